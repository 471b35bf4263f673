//! A crate's seeded simulations over a range of seeds.
//!
//! Built with the profile `sim`: optimised, since thousands of seeds are run, and with debug
//! assertions, since a broken invariant is what they look for.

use crate::failure::Failure;
use crate::member::Member;
use crate::process;
use crate::test::Tally;
use crate::tree::Workspace;

/// Which seeds of which crate.
#[derive(Debug, clap::Args)]
pub(crate) struct Range {
    /// The crate: `udp_proto` or `tickwire-udp-proto`.
    #[arg(long = "crate", value_name = "NAME")]
    name: String,
    /// How many seeds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

/// Runs the tests of the crate whose names hold `sim_`, with `SEEDS` and `FROM` set for them.
pub(crate) fn run(range: &Range, workspace: &Workspace) -> Result<(), Failure> {
    let member = member(&workspace.members, &range.name)
        .ok_or_else(|| Failure::Check(format!("no crate is called {}", range.name)))?;
    let mut command = process::cargo(["test", "--profile=sim", "--all-features", "--tests"]);
    command
        .args(["--package", &member.package, "sim_", "--", "--nocapture"])
        .env("SEEDS", range.seeds.to_string())
        .env("FROM", range.from.to_string());
    let mut tally = Tally::default();
    let mut told = Vec::new();
    process::run_lines(&mut command, |line| {
        tally.take(line);
        told.extend(seeds_done(line).map(str::to_owned));
    })?;
    if tally.passed == 0 {
        return Err(Failure::Check(format!(
            "{} has no test with `sim_` in its name",
            member.package
        )));
    }
    println!(
        "sim: {}, {} seeds from {} asked for; {} tests passed; seeds done: {}",
        member.package,
        range.seeds,
        range.from,
        tally.passed,
        if told.is_empty() {
            "none told".to_owned()
        } else {
            told.join(", ")
        }
    );
    Ok(())
}

/// The package that a person means by `name`.
fn member<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members
        .iter()
        .find(|member| member.package == name || member.name() == name)
}

/// What a simulation says it did: the rest of a line behind `seeds done: `.
fn seeds_done(line: &str) -> Option<&str> {
    line.split_once("seeds done: ").map(|(_, rest)| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_two_names() {
        let members = [Member {
            package: "tickwire-udp-proto".to_owned(),
            folder: "crates/udp_proto".to_owned(),
            ..Member::default()
        }];
        assert!(member(&members, "udp_proto").is_some());
        assert!(member(&members, "tickwire-udp-proto").is_some());
        assert!(member(&members, "udp").is_none());
    }

    #[test]
    fn reads_what_a_simulation_tells() {
        assert_eq!(seeds_done("sim_loss: seeds done: 0..200 "), Some("0..200"));
        assert_eq!(seeds_done("test sim_loss ... ok"), None);
    }
}
