//! Checks what a game client with UDP compiles: few crates, and no heavy ones.

use std::collections::BTreeSet;

use super::Outcome;
use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// The packages to count, with the features of a UDP client.
const PACKAGES: [(&str, &[&str]); 2] = [
    (
        "tickwire-servicer",
        &["--no-default-features", "--features=udp"],
    ),
    ("tickwire", &[]),
];
/// Maximum crates per package, itself included; see ARCHITECTURE.md.
const CRATES_MAX: usize = 60;
/// Crates that a UDP client must not compile.
const BANNED: [&str; 5] = ["rustls", "quinn-proto", "tokio", "redb", "foca"];

/// Counts the crates of each package.
pub(super) fn run(metadata: &Metadata) -> Result<Outcome, Failure> {
    let mut counts = Vec::new();
    for (package, features) in PACKAGES {
        if !metadata.members.iter().any(|it| it.package == package) {
            return Ok(Outcome::Skipped(format!(
                "the workspace has no {package} yet"
            )));
        }
        let mut command = process::cargo([
            "tree",
            "--package",
            package,
            "--edges=normal,build",
            "--prefix=none",
            "--format={p}",
        ]);
        let tree = process::output(command.args(features))?;
        let count = count(package, &tree).map_err(Failure::Check)?;
        counts.push(format!("{count} crates for {package}"));
    }
    Ok(Outcome::Passed(counts.join(", ")))
}

/// Counts the packages in the output of `cargo tree`. Fails if there are too many or banned ones.
fn count(package: &str, tree: &str) -> Result<usize, String> {
    let packages: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    if let Some((name, _)) = packages.iter().find(|(name, _)| BANNED.contains(name)) {
        return Err(format!("{package} for UDP alone compiles {name}"));
    }
    if packages.len() > CRATES_MAX {
        return Err(format!(
            "{package} for UDP alone compiles {} crates, over the limit of {CRATES_MAX}",
            packages.len()
        ));
    }
    Ok(packages.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_and_each_version_by_itself() {
        let tree = "tickwire-servicer v0.1.0 (path)\nmio v1.2.0\nlibc v0.2.1\nmio v1.2.0 (*)\n\
                    syn v1.0.0\nsyn v2.0.0 (proc-macro)\n\n";
        assert_eq!(count("it", tree), Ok(5));
    }

    #[test]
    fn too_many_or_too_large_dependencies_are_refused() {
        let many = |count: usize| -> String {
            let lines = (0..count).map(|number| format!("crate-{number} v1.0.0\n"));
            lines.collect::<Vec<_>>().concat()
        };
        assert_eq!(count("it", &many(60)), Ok(60));
        assert!(count("it", &many(61)).unwrap_err().contains("61"));
        for name in BANNED {
            let error = count("it", &format!("mio v1.0.0\n{name} v1.0.0\n")).unwrap_err();
            assert!(error.ends_with(name), "{error}");
        }
    }

    #[test]
    fn a_workspace_without_the_crate_gives_an_error() {
        let metadata = Metadata {
            members: Vec::new(),
            target_directory: "target".into(),
        };
        assert!(matches!(run(&metadata), Ok(Outcome::Skipped(_))));
    }
}
