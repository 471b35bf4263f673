//! Kills the processes of a hub again and again: `examples/hub` with `soak`.

use std::time::Duration;

use super::example;
use crate::failure::Failure;
use crate::process;

/// How long to go on.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Processes to kill.
    #[arg(long, default_value_t = 1_000)]
    kills: u32,
    /// Stops after this many minutes.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=120))]
    minutes: u32,
    /// Seed of the moments and of the processes to kill.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Time allowed beyond the duration, for the last mail.
const SPARE: Duration = Duration::from_secs(120);

/// Runs it. Fails if acknowledged mail is lost, doubled or out of order.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let mut command = example("hub")?;
    command.arg("soak");
    command.args(["--kills", &options.kills.to_string()]);
    command.args(["--minutes", &options.minutes.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    let limit = Duration::from_secs(u64::from(options.minutes) * 60) + SPARE;
    process::run_bounded(&mut command, limit, |line| println!("{line}"))
}
