//! A crate's seeded simulations over a range of seeds.
//!
//! Built with the profile `sim`: optimised, since thousands of seeds are run, and with debug
//! assertions, since a broken invariant is what they look for.

use std::process::Command;

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
    /// Only simulations with this in their names.
    #[arg(long, default_value = "sim_")]
    test: String,
}

/// Runs the tests of the crate whose names hold `sim_`, or what is asked for, with `SEEDS` and `FROM` set for them.
pub(crate) fn run(range: &Range, workspace: &Workspace) -> Result<(), Failure> {
    let member = member(&workspace.members, &range.name)
        .ok_or_else(|| Failure::Check(format!("no crate is called {}", range.name)))?;
    let mut tally = Tally::default();
    let (mut told, mut traces) = (Vec::new(), Vec::new());
    process::run_lines(
        &mut command(range, &member.package, ("sim", &range.test)),
        |line| {
            tally.take(line);
            told.extend(seeds_done(line));
            traces.extend(trace(line));
        },
    )?;
    println!("{}", verdict(&member.package, tally.passed, &told)?);
    if traces.is_empty() {
        return Ok(());
    }
    // The same once more, not optimised as much.
    let mut others = Vec::new();
    process::run_lines(
        &mut command(range, &member.package, ("dev", TRACED)),
        |line| {
            others.extend(trace(line));
        },
    )?;
    println!("{}", same_traces(&traces, &others)?);
    Ok(())
}

/// Simulations that tell a trace have this in their names: invariant D1 of the protocol papers.
const TRACED: &str = "_d1_";

/// The command that runs the tests of `package` whose names hold `filter`, in a profile.
fn command(range: &Range, package: &str, (profile, filter): (&str, &str)) -> Command {
    let mut command = process::cargo(["test", "--all-features", "--tests"]);
    command
        .args(["--profile", profile, "--package", package, filter])
        .args(["--", "--nocapture"])
        .env("SEEDS", range.seeds.to_string())
        .env("FROM", range.from.to_string())
        // Worlds that the tests of each day have no time for.
        .env("ALL_SIZES", "1")
        // It would win over both.
        .env_remove("SEED");
    command
}

/// The hash of all datagrams that a line tells of: `trace: 0123456789abcdef`.
pub(crate) fn trace(line: &str) -> Option<String> {
    let (_, hash) = line.split_once("trace: ")?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.to_owned())
}

/// Whether two profiles gave the same traces.
fn same_traces(optimised: &[String], other: &[String]) -> Result<String, Failure> {
    if optimised != other {
        return Err(Failure::Check(format!(
            "the profile sim gives the traces {optimised:?}, and dev {other:?}"
        )));
    }
    Ok(format!(
        "sim: the profiles sim and dev give one trace, {}",
        optimised.join(" ")
    ))
}

/// What came of it; a failure where no simulation ran, or one did not tell its seeds.
fn verdict(package: &str, passed: usize, told: &[u64]) -> Result<String, Failure> {
    if passed == 0 {
        return Err(Failure::Check(format!(
            "{package} has no test with `sim_` in its name"
        )));
    }
    if told.len() < passed {
        return Err(Failure::Check(format!(
            "{passed} simulations of {package} passed, and only {} told their seeds: run them by \
             netsim::for_each_seed",
            told.len()
        )));
    }
    let seeds: u64 = told.iter().sum();
    Ok(format!(
        "sim: {package}: {passed} simulations held, {seeds} seeds done in all"
    ))
}

/// The package that a person means by `name`.
fn member<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members
        .iter()
        .find(|member| member.package == name || member.name() == name)
}

/// How many seeds a line of `netsim::for_each_seed` says were done: `... 200 seeds done, 0 to 199`.
fn seeds_done(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" seeds done, ")?;
    before.rsplit(' ').next()?.parse().ok()
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
        let line = "test world::sim_loss ... it::world::sim_loss: 200 seeds done, 0 to 199";
        assert_eq!(seeds_done(line), Some(200));
        assert_eq!(seeds_done("test sim_loss ... ok"), None);
        assert_eq!(seeds_done("17 seeds held, then"), None);
    }

    #[test]
    fn traces_of_two_profiles_are_compared() {
        let line = "test world::sim_twp_d1_one ... trace: 0123456789abcdef";
        let hash = trace(line).unwrap();
        assert_eq!(hash, "0123456789abcdef");
        assert_eq!(trace("trace: none"), None);
        assert_eq!(trace("a stack trace"), None);
        let same = [hash];
        assert!(same_traces(&same, &same).is_ok());
        assert!(same_traces(&same, &["fedcba9876543210".to_owned()]).is_err());
        assert!(same_traces(&same, &[]).is_err());
    }

    #[test]
    fn a_simulation_that_did_not_run_or_tell_is_a_failure() {
        assert!(verdict("a", 0, &[]).is_err());
        assert!(verdict("a", 2, &[200]).is_err());
        let text = verdict("a", 2, &[200, 100]).unwrap();
        assert_eq!(text, "sim: a: 2 simulations held, 300 seeds done in all");
    }
}
