//! Runs a crate's seeded simulations over a range of seeds.
//!
//! They are built with the profile `sim`: optimised, because there are thousands of seeds, and with
//! debug assertions, because they look for broken invariants.

use std::process::Command;

use crate::failure::Failure;
use crate::member::Member;
use crate::process;
use crate::test::Tally;
use crate::tree::Workspace;

/// The crate and its seeds.
#[derive(Debug, clap::Args)]
pub(crate) struct Range {
    /// The crate: `udp_proto` or `tickwire-udp-proto`.
    #[arg(long = "crate", value_name = "NAME")]
    name: String,
    /// Number of seeds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only simulations with this in their names.
    #[arg(long, default_value = "sim_")]
    test: String,
}

/// Runs the crate's tests whose names contain `sim_` or the given filter, with `SEEDS` and `FROM`
/// set.
pub(crate) fn run(range: &Range, workspace: &Workspace) -> Result<(), Failure> {
    let member = member(&workspace.members, &range.name)
        .ok_or_else(|| Failure::Check(format!("no crate is called {}", range.name)))?;
    let mut tally = Tally::default();
    let (mut reported, mut traces) = (Vec::new(), Vec::new());
    process::run_lines(
        &mut command(range, &member.package, ("sim", &range.test)),
        |line| {
            tally.take(line);
            reported.extend(seeds_done(line));
            traces.extend(trace(line));
        },
    )?;
    println!("{}", verdict(&member.package, tally.passed, &reported)?);
    if traces.is_empty() {
        return Ok(());
    }
    // A second run with less optimisation must give the same traces.
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

/// Simulations which print a trace have this in their names: invariant D1 of the protocol
/// documents.
const TRACED: &str = "_d1_";

/// Returns the command which runs the tests of `package` that match `filter`, in a profile.
fn command(range: &Range, package: &str, (profile, filter): (&str, &str)) -> Command {
    let mut command = process::cargo(["test", "--all-features", "--tests"]);
    command
        .args(["--profile", profile, "--package", package, filter])
        .args(["--", "--nocapture"])
        .env("SEEDS", range.seeds.to_string())
        .env("FROM", range.from.to_string())
        // Also simulates the sizes that are too slow for the daily tests.
        .env("ALL_SIZES", "1")
        // It would override both.
        .env_remove("SEED");
    command
}

/// Parses the hash of all datagrams from a line such as `trace: 0123456789abcdef`.
pub(crate) fn trace(line: &str) -> Option<String> {
    let (_, hash) = line.split_once("trace: ")?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.to_owned())
}

/// Compares the traces of two profiles.
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

/// Summarises the run. Fails if no simulation ran or one did not report its seeds.
fn verdict(package: &str, passed: usize, reported: &[u64]) -> Result<String, Failure> {
    if passed == 0 {
        return Err(Failure::Check(format!(
            "{package} has no test with `sim_` in its name"
        )));
    }
    if reported.len() < passed {
        return Err(Failure::Check(format!(
            "{passed} simulations of {package} passed, and only {} told their seeds: run them by \
             netsim::for_each_seed",
            reported.len()
        )));
    }
    let seeds: u64 = reported.iter().sum();
    Ok(format!(
        "sim: {package}: {passed} simulations held, {seeds} seeds done in all"
    ))
}

/// Finds the package called `name`.
fn member<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members
        .iter()
        .find(|member| member.package == name || member.name() == name)
}

/// Parses the number of seeds from a line of `netsim::for_each_seed`: `... 200 seeds done, 0 to
/// 199`.
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
    fn reads_the_output_of_a_simulation() {
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
    fn a_simulation_without_output_is_a_failure() {
        assert!(verdict("a", 0, &[]).is_err());
        assert!(verdict("a", 2, &[200]).is_err());
        let text = verdict("a", 2, &[200, 100]).unwrap();
        assert_eq!(text, "sim: a: 2 simulations held, 300 seeds done in all");
    }
}
