//! Random faults in a mesh of processes under load.

use std::time::Duration;

use crate::failure::Failure;
use crate::process;

/// Number of flows, duration, and seed of the faults.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration in minutes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=120))]
    minutes: u32,
    /// Number of flows; one in 25 is a TCP connection.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(8..=2_000))]
    flows: u16,
    /// Determines the sequence of faults.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Time allowed beyond the duration, for all flows to open and the last fault to end.
const SPARE: Duration = Duration::from_secs(240);

/// Runs the example `mesh soak`, which prints the worst case of each kind of fault. Fails if a flow
/// was not served in time after a fault.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let seconds = u64::from(options.minutes) * 60;
    let mut command = super::example("mesh")?;
    command.arg("soak");
    command.arg(format!("--seconds={seconds}"));
    command.arg(format!("--flows={}", options.flows));
    command.arg(format!("--seed={}", options.seed));
    let limit = Duration::from_secs(seconds) + SPARE;
    process::run_bounded(&mut command, limit, |line| println!("{line}"))
}
