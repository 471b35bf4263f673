//! Every test of the workspace: those that cargo runs alone, those that need a server, and docs.
//!
//! std's own harness, not nextest: a fresh machine has it, and doc tests need it in any case. All
//! features are on, since features only add.

use std::process::Command;

use crate::failure::Failure;
use crate::need::{self, Absent, Plan};
use crate::process;
use crate::tree::Workspace;

/// Runs all of them.
pub(crate) fn run(absent: Absent) -> Result<(), Failure> {
    let mut tally = run_code(absent)?;
    tally.add(run_docs()?);
    println!("{tally}");
    Ok(())
}

/// Runs unit and integration tests, then those that need a server.
pub(crate) fn run_code(absent: Absent) -> Result<Tally, Failure> {
    let workspace = Workspace::load()?;
    let plan = need::prepare(&workspace, absent)?;
    let mut tally = run_cargo(&mut process::cargo([
        "test",
        "--workspace",
        "--all-features",
        "--tests",
        "--examples",
    ]))?;
    run_servers(&workspace, &plan, &mut tally)?;
    Ok(tally)
}

/// Runs the examples in docs.
pub(crate) fn run_docs() -> Result<Tally, Failure> {
    run_cargo(&mut process::cargo([
        "test",
        "--workspace",
        "--all-features",
        "--doc",
    ]))
}

/// Runs the tests that need a server; each that is planned must have run.
fn run_servers(workspace: &Workspace, plan: &Plan, tally: &mut Tally) -> Result<(), Failure> {
    for (folder, functions) in &plan.run {
        let package = workspace
            .members
            .iter()
            .find(|member| member.folder == *folder)
            .map(|member| member.package.as_str())
            .ok_or_else(|| Failure::Check(format!("{folder} is no member of the workspace")))?;
        let mut command = process::cargo(["test", "--all-features", "--tests", "--package"]);
        command.args([package, "--", "--ignored", "--show-output"]);
        command.args(functions).env("PATH", need::search_path());
        let ran = run_cargo(&mut command)?;
        if ran.passed < functions.len() {
            return Err(Failure::Check(format!(
                "{package} has {} tests that need a server, and only {} ran",
                functions.len(),
                ran.passed
            )));
        }
        let whole = ran.passed.saturating_sub(ran.unavailable);
        tally.passed += whole;
        tally.ignored = tally.ignored.saturating_sub(whole);
    }
    Ok(())
}

fn run_cargo(command: &mut Command) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    process::run_lines(command, |line| tally.take(line))?;
    Ok(tally)
}

/// What the closing lines of test binaries add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Test binaries.
    pub(crate) binaries: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests left out.
    pub(crate) ignored: usize,
    /// Of those that passed, how many told that they could not run here, where what they tell is shown.
    pub(crate) unavailable: usize,
}

impl Tally {
    /// Takes a line of a test binary's output; all but closing lines add nothing.
    pub(crate) fn take(&mut self, line: &str) {
        self.unavailable += usize::from(line.starts_with(UNAVAILABLE));
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        self.binaries += 1;
        for part in counts.split(';') {
            let Some((count, what)) = part.trim().split_once(' ') else {
                continue;
            };
            let count = count.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Adds another run's numbers.
    pub(crate) const fn add(&mut self, other: Self) {
        self.binaries += other.binaries;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.unavailable += other.unavailable;
    }
}

/// What a test says first that lacks a right or a protocol of this machine.
const UNAVAILABLE: &str = "not available here";

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "tests: {} passed, {} failed, {} not run, in {} binaries",
            self.passed, self.failed, self.ignored, self.binaries
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_closing_lines_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "not available here: it takes the right to make network namespaces",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: nonsense",
        ] {
            tally.take(line);
        }
        let expected = Tally {
            binaries: 2,
            passed: 14,
            failed: 4,
            ignored: 1,
            unavailable: 1,
        };
        assert_eq!(tally, expected);
        tally.add(expected);
        assert_eq!(
            tally.to_string(),
            "tests: 28 passed, 8 failed, 2 not run, in 4 binaries"
        );
    }
}
