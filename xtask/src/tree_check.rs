//! Checks that the compiler does not make: sizes, imports, purity, limits, contracts, licences.

mod arithmetic;
mod arrow;
mod attribute;
mod circle;
mod contract;
mod invariant;
mod limit;
mod locality;
mod loose_end;
mod paper;
mod promise;
mod purity;
mod seal;
mod size;
mod spread;
mod width;

use crate::failure::Failure;
use crate::tree::{Finding, View, Workspace, report};

/// A check of the whole tree, which returns its faults.
type Check = fn(&View<'_>) -> Vec<Finding>;

const CHECKS: [Check; 16] = [
    arithmetic::check,
    arrow::check,
    attribute::check,
    circle::check,
    contract::check,
    limit::check,
    locality::check,
    loose_end::check,
    invariant::check,
    paper::check,
    promise::check,
    purity::check,
    seal::check,
    size::check,
    spread::check,
    width::check,
];

/// The protocol crates, which use no sockets, clocks or threads: those below `servicer`.
const PROTOCOL: [&str; 8] = [
    "wire",
    "crypto",
    "udp_proto",
    "lockstep",
    "relay_mesh",
    "hub",
    "matchmaker_core",
    "netsim",
];

/// Finds exceptions that are no longer needed, if the tree has their crate.
fn unneeded(
    view: &View<'_>,
    exceptions: &[(&str, &str)],
    needed: &[(&str, &str)],
    path: &str,
) -> Vec<Finding> {
    exceptions
        .iter()
        .filter(|(name, _)| view.sources_of(name).next().is_some())
        .filter(|exception| !needed.contains(exception))
        .map(|(name, what)| Finding::at(path, 1, format!("nothing needs {what} of {name} here")))
        .collect()
}

/// Runs every check and prints what they find.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let view = workspace.view();
    let mut findings: Vec<_> = CHECKS.iter().flat_map(|check| check(&view)).collect();
    findings.sort();
    findings.dedup();
    report("tree-check", &findings)?;
    println!(
        "tree-check: {} files, {} packages, nothing found",
        view.files.len(),
        view.members.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_planted_fault_fails_the_check() {
        let sound = Workspace::of(&[
            ("LICENSE-MIT", "text"),
            ("LICENSE-APACHE", "text"),
            ("crates/wire/Cargo.toml", ""),
            ("crates/wire/README.md", "# wire"),
            (
                "crates/wire/src/lib.rs",
                "#![forbid(unsafe_code)]\n#![warn(clippy::arithmetic_side_effects)]",
            ),
        ]);
        run(&sound).unwrap();
        let mut faulty = sound;
        faulty.files.remove("crates/wire/README.md");
        assert!(run(&faulty).is_err());
    }
}
