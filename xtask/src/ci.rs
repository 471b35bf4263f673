//! All CI gates, ordered so that the fastest failures are found first.

mod build_cost;
mod deny;
mod footprint;

use std::time::{Duration, Instant};

use build_cost::BuildCost;

use crate::failure::Failure;
use crate::member::Metadata;
use crate::need::Absent;
use crate::tree::Workspace;
use crate::{book, docs, locks, process, test, tree_check, vectors};

/// Input of a gate.
struct Context {
    /// The source tree.
    workspace: Workspace,
    /// The workspace members and the target directory.
    metadata: Metadata,
}

/// Result of a gate that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The gate passed; the text may say how much it checked.
    Passed(String),
    /// The gate did not apply; the text gives the reason.
    Skipped(String),
}

/// A gate's name and its function.
struct Gate {
    name: &'static str,
    run: fn(&Context) -> Result<Outcome, Failure>,
}

const GATES: [Gate; 13] = [
    Gate {
        name: "format",
        run: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Gate {
        name: "tree-check",
        run: |context| tree_check::run(&context.workspace).map(|()| passed()),
    },
    Gate {
        name: "book",
        run: |context| book::run(&context.workspace).map(|()| passed()),
    },
    Gate {
        name: "vectors",
        run: |context| vectors::check(&context.workspace).map(|()| passed()),
    },
    Gate {
        name: "locks",
        run: |context| locks::check(&context.workspace).map(|()| passed()),
    },
    Gate {
        name: "footprint",
        run: |context| footprint::run(&context.metadata),
    },
    Gate {
        name: "clippy, default features",
        run: |_| cargo(&CLIPPY),
    },
    Gate {
        name: "clippy, all features",
        run: |_| cargo(&CLIPPY_ALL),
    },
    Gate {
        name: "tests",
        run: |_| test::run_code(Absent::Install).map(|tally| Outcome::Passed(tally.to_string())),
    },
    Gate {
        name: "doc tests",
        run: |_| test::run_docs().map(|tally| Outcome::Passed(tally.to_string())),
    },
    Gate {
        name: "docs",
        run: |_| {
            let mut command = process::cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
            process::run(command.env("RUSTDOCFLAGS", "-D warnings")).map(|()| passed())
        },
    },
    Gate {
        name: "docs are run",
        run: |context| docs::run(&context.workspace).map(|()| passed()),
    },
    Gate {
        name: "deny",
        run: |context| deny::run(&context.metadata.target_directory).map(|()| passed()),
    },
];
const CLIPPY: [&str; 6] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--",
    "-D",
    "warnings",
];
const CLIPPY_ALL: [&str; 7] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--all-features",
    "--",
    "-D",
    "warnings",
];

/// Prints how many crates a UDP client compiles. If `build` asks for it, also builds the stack from
/// scratch and prints the cost.
pub(crate) fn footprint(build: Build) -> Result<(), Failure> {
    let metadata = Metadata::load()?;
    match footprint::run(&metadata)? {
        Outcome::Passed(what) | Outcome::Skipped(what) => println!("{what}"),
    }
    if build == Build::FromNothing {
        println!("{}", BuildCost::measure(&metadata.target_directory)?);
    }
    Ok(())
}

/// Whether to measure a build from scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Build in a separate, empty folder.
    FromNothing,
    /// Count crates only.
    Not,
}

/// Runs every gate. Stops at the first failure and names the gate.
pub(crate) fn run() -> Result<(), Failure> {
    let context = Context {
        workspace: Workspace::load()?,
        metadata: Metadata::load()?,
    };
    run_gates(&GATES, &context)
}

#[expect(clippy::disallowed_methods, reason = "tells how long each gate took")]
fn run_gates(gates: &[Gate], context: &Context) -> Result<(), Failure> {
    let start = Instant::now();
    let mut summary = Vec::new();
    let mut failed = None;
    for gate in gates {
        println!("\n== {}", gate.name);
        let gate_start = Instant::now();
        let result = (gate.run)(context);
        summary.push(summary_line(gate.name, gate_start.elapsed(), &result));
        if let Err(failure) = result {
            failed = Some((gate.name, failure));
            break;
        }
    }
    println!("\n== summary");
    for line in &summary {
        println!("{line}");
    }
    for gate in gates.iter().skip(summary.len()) {
        println!("not run          {}", gate.name);
    }
    println!("all together {:.0} s", start.elapsed().as_secs_f64());
    match failed {
        None => Ok(()),
        Some((name, failure)) => Err(Failure::Check(format!("gate \"{name}\" failed: {failure}"))),
    }
}

fn summary_line(name: &str, took: Duration, result: &Result<Outcome, Failure>) -> String {
    let took = took.as_secs_f64();
    match result {
        Ok(Outcome::Passed(what)) if what.is_empty() => format!("passed  {took:6.1} s {name}"),
        Ok(Outcome::Passed(what)) => format!("passed  {took:6.1} s {name} ({what})"),
        Ok(Outcome::Skipped(why)) => format!("skipped {took:6.1} s {name}: {why}"),
        Err(failure) => format!("FAILED  {took:6.1} s {name}: {failure}"),
    }
}

const fn passed() -> Outcome {
    Outcome::Passed(String::new())
}

fn cargo(arguments: &[&str]) -> Result<Outcome, Failure> {
    process::run(&mut process::cargo(arguments)).map(|()| passed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static RAN: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn the_first_failure_is_named_and_ends_the_run() {
        let context = Context {
            workspace: Workspace::default(),
            metadata: Metadata {
                members: Vec::new(),
                target_directory: "target".into(),
            },
        };
        let count = |_: &Context| {
            RAN.fetch_add(1, Ordering::Relaxed);
            Ok(passed())
        };
        let gates = [
            Gate {
                name: "first",
                run: count,
            },
            Gate {
                name: "second",
                run: |_| Err(Failure::Check("planted".to_owned())),
            },
            Gate {
                name: "third",
                run: count,
            },
        ];
        let failure = run_gates(&gates, &context).unwrap_err().to_string();
        assert_eq!(failure, "gate \"second\" failed: planted");
        assert_eq!(RAN.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_skipped_gate_is_not_reported_as_passed() {
        let skipped = Ok(Outcome::Skipped("no such crate".to_owned()));
        let line = summary_line("footprint", Duration::from_millis(1_500), &skipped);
        assert_eq!(line, "skipped    1.5 s footprint: no such crate");
    }
}
