//! `cargo deny`: checks licences, bans and sources of the dependencies.

use std::path::Path;

use crate::failure::Failure;
use crate::process;

/// The tested release; another may need a different configuration.
const VERSION: &str = "0.20.2";

/// Checks the dependencies. Builds the tool first if it is missing.
pub(super) fn run(target: &Path) -> Result<(), Failure> {
    let root = target.join("tools");
    let built = root.join("bin").join("cargo-deny");
    let program = if is_current(Path::new("cargo-deny")) {
        Path::new("cargo-deny")
    } else {
        if !is_current(&built) {
            println!(
                "deny: installing cargo-deny {VERSION} into {}",
                root.display()
            );
            // A debug build: the tool runs for seconds, and an optimised build takes minutes
            // longer.
            let install = ["install", "--locked", "--debug", "--version", VERSION];
            let mut install = process::cargo(install);
            process::run(install.arg("--root").arg(&root).arg("cargo-deny"))?;
        }
        &built
    };
    process::run(process::program(program).args(["check", "bans", "licenses", "sources"]))
}

/// Returns whether `program` exists and is the expected release.
fn is_current(program: &Path) -> bool {
    // A program that cannot be started counts as missing.
    process::program(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| is_version(&String::from_utf8_lossy(&output.stdout)))
}

fn is_version(reported: &str) -> bool {
    reported.trim() == format!("cargo-deny {VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_other_or_missing_release_is_installed() {
        assert!(is_version(&format!("cargo-deny {VERSION}\n")));
        assert!(!is_version("cargo-deny 0.1.0\n"));
        assert!(!is_current(Path::new("no-such-program-anywhere")));
        assert!(!is_current(Path::new("true")));
    }
}
