//! Runs every test of the workspace: plain tests, tests which need a server, and doc tests.
//!
//! It uses std's test harness instead of nextest: every machine has it, and doc tests need it in
//! any case. All features are enabled, because features are additive.

use std::collections::BTreeSet;
use std::process::Command;

use crate::changed;
use crate::failure::Failure;
use crate::need::{self, Absent, Plan};
use crate::process;
use crate::tree::Workspace;

/// Runs all tests.
pub(crate) fn run(absent: Absent) -> Result<(), Failure> {
    let mut tally = run_code(absent)?;
    tally.add(run_docs()?);
    println!("{tally}");
    Ok(())
}

/// Runs the tests of packages that differ from the commit `base`, and of packages that depend on
/// them.
pub(crate) fn run_changed(absent: Absent, base: &str) -> Result<(), Failure> {
    let mut workspace = Workspace::load()?;
    let files = changed::files(base)?;
    let affected = changed::affected(&workspace.members, &files);
    let affected: BTreeSet<String> = affected.into_iter().map(str::to_owned).collect();
    println!(
        "changed since {base}: {} files, {} of {} packages affected",
        files.len(),
        affected.len(),
        workspace.members.len()
    );
    workspace.members.retain(|it| affected.contains(&it.folder));
    // Servers are installed only for affected tests.
    workspace.files.retain(|path, _| {
        let mut folders = workspace.members.iter().map(|it| it.folder.as_str());
        folders.any(|folder| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    });
    if workspace.members.is_empty() {
        println!("{}", Tally::default());
        return Ok(());
    }
    let plan = need::prepare(&workspace, absent)?;
    let mut tally = run_alone(&packages(&workspace, |_| true))?;
    run_servers(&workspace, &plan, &mut tally)?;
    tally.add(run_docs_of(&workspace)?);
    println!("{tally}");
    Ok(())
}

/// Returns cargo arguments for the packages whose folders are `wanted`.
fn packages(workspace: &Workspace, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let members = workspace.members.iter();
    members
        .filter(|member| wanted(&member.folder))
        .map(|member| format!("--package={}", member.package))
        .collect()
}

/// Runs unit and integration tests, then the tests which need a server.
pub(crate) fn run_code(absent: Absent) -> Result<Tally, Failure> {
    let workspace = Workspace::load()?;
    let plan = need::prepare(&workspace, absent)?;
    let mut tally = run_alone(&["--workspace".to_owned()])?;
    run_servers(&workspace, &plan, &mut tally)?;
    Ok(tally)
}

/// Runs the tests of `packages` (cargo arguments) which need no server.
fn run_alone(packages: &[String]) -> Result<Tally, Failure> {
    let mut pass = Pass::default();
    let mut command = process::cargo(["test", "--all-features", "--no-fail-fast"]);
    command.args(packages);
    command.args(["--tests", "--examples", "--", "--show-output"]);
    let ended = process::run_quietly(&mut command, |line| {
        if pass.take(line) {
            println!("{line}");
        }
    });
    for name in &pass.failed {
        println!("failed: {name}");
    }
    ended?;
    Ok(pass.tally())
}

/// Runs the doc tests of the crates and of the examples. Other packages have none, and cargo would
/// build their libraries again.
pub(crate) fn run_docs() -> Result<Tally, Failure> {
    run_docs_of(&Workspace::load()?)
}

fn run_docs_of(workspace: &Workspace) -> Result<Tally, Failure> {
    let with_docs = packages(workspace, |folder| {
        folder.starts_with("crates/") || folder == "examples"
    });
    if with_docs.is_empty() {
        return Ok(Tally::default());
    }
    let mut command = process::cargo(["test", "--all-features", "--doc"]);
    run_cargo(command.args(with_docs))
}

/// Runs the tests which need a server. Every planned test must run.
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

/// A test run with captured output of passing tests, which is parsed and not printed.
#[derive(Debug, Default)]
struct Pass {
    tally: Tally,
    /// Whether the current line is output of a test.
    is_hidden: bool,
    /// Names of tests that failed.
    failed: Vec<String>,
}

impl Pass {
    /// Handles a line of a test binary's output. Returns whether to print it.
    fn take(&mut self, line: &str) -> bool {
        self.tally.take(line);
        let failed = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failed.extend(failed.map(str::to_owned));
        if line == "successes:" {
            self.is_hidden = true;
        } else if line == "failures:" || line.starts_with(RESULT) {
            self.is_hidden = false;
        }
        !self.is_hidden || line.starts_with(UNAVAILABLE)
    }

    /// Returns the totals, including tests which passed only because they could not run here.
    const fn tally(&self) -> Tally {
        let mut tally = self.tally;
        tally.passed = tally.passed.saturating_sub(tally.unavailable);
        tally.ignored = tally.ignored.saturating_add(tally.unavailable);
        tally
    }
}

/// Totals over the result lines of test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of test binaries.
    pub(crate) binaries: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests left out.
    pub(crate) ignored: usize,
    /// Passed tests that reported that they could not run here. Counted only if test output is
    /// shown.
    pub(crate) unavailable: usize,
}

impl Tally {
    /// Handles a line of a test binary's output. Only result lines count.
    pub(crate) fn take(&mut self, line: &str) {
        self.unavailable += usize::from(line.starts_with(UNAVAILABLE));
        let Some((_, counts)) = line
            .strip_prefix(RESULT)
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

    /// Adds the totals of another run.
    pub(crate) const fn add(&mut self, other: Self) {
        self.binaries += other.binaries;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.unavailable += other.unavailable;
    }
}

/// First output of a test which lacks a privilege or a protocol on this machine.
const UNAVAILABLE: &str = "not available here";

/// Start of a test binary's result line.
const RESULT: &str = "test result: ";

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
    fn a_test_that_could_not_run_is_counted_and_other_output_not_printed() {
        let mut pass = Pass::default();
        let lines = [
            ("running 3 tests", true),
            ("test a ... ok", true),
            ("test b ... ok", true),
            ("test c ... FAILED", true),
            ("successes:", false),
            ("---- a stdout ----", false),
            (
                "not available here: it takes the right to open raw sockets",
                true,
            ),
            ("---- b stdout ----", false),
            ("much", false),
            ("successes:", false),
            ("    a", false),
            ("    b", false),
            ("failures:", true),
            ("---- c stdout ----", true),
            ("why", true),
            (
                "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured",
                true,
            ),
            ("running 1 test", true),
            ("test d ... ok", true),
            ("successes:", false),
            (
                "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured",
                true,
            ),
        ];
        for (line, is_printed) in lines {
            assert_eq!(pass.take(line), is_printed, "{line}");
        }
        assert_eq!(pass.failed, ["c"]);
        assert_eq!(
            pass.tally().to_string(),
            "tests: 2 passed, 1 failed, 2 not run, in 2 binaries"
        );
    }

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
