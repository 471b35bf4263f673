//! What a game client that wants UDP compiles: few crates, and none of the heavy ones.

use std::collections::BTreeSet;

use super::Outcome;
use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// What is counted: a package, and the features that it is built with.
const COUNTED: [(&str, &[&str]); 2] = [
    (
        "tickwire-servicer",
        &["--no-default-features", "--features=udp"],
    ),
    // What the first program of a newcomer compiles.
    ("tickwire", &[]),
];
/// Crates of others that each may compile; ARCHITECTURE.md, the arrows.
const CRATES_MAX: usize = 60;
/// What a UDP client has no use for.
const BANNED: [&str; 5] = ["rustls", "quinn-proto", "tokio", "redb", "foca"];

/// Counts what the packages compile for UDP alone.
pub(super) fn run(metadata: &Metadata) -> Result<Outcome, Failure> {
    let mut found = Vec::new();
    for (package, features) in COUNTED {
        if !metadata.members.iter().any(|it| it.package == package) {
            return Ok(Outcome::Skipped(format!(
                "the workspace has no {package} yet"
            )));
        }
        let mut tree = process::cargo(["tree", "--package", package]);
        tree.args(features);
        tree.args(["--edges=normal,build", "--prefix=none", "--format={p}"]);
        let count = count(package, &process::output(&mut tree)?).map_err(Failure::Check)?;
        found.push(format!("{count} crates of others for {package}"));
    }
    Ok(Outcome::Passed(found.join(", ")))
}

/// Counts the packages of `cargo tree`'s output that are not ours; a sentence where they are too
/// many or too heavy.
fn count(package: &str, tree: &str) -> Result<usize, String> {
    let packages: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .filter(|(name, _)| !name.starts_with("tickwire"))
        .collect();
    if let Some((name, _)) = packages.iter().find(|(name, _)| BANNED.contains(name)) {
        return Err(format!("{package} for UDP alone compiles {name}"));
    }
    if packages.len() > CRATES_MAX {
        return Err(format!(
            "{package} for UDP alone compiles {} crates of others, over the limit of {CRATES_MAX}",
            packages.len()
        ));
    }
    Ok(packages.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_others_counts_once_and_each_version_by_itself() {
        let tree = "tickwire-servicer v0.1.0 (path)\nmio v1.2.0\nlibc v0.2.1\nmio v1.2.0 (*)\n\
                    syn v1.0.0\nsyn v2.0.0 (proc-macro)\n\n";
        assert_eq!(count("a", tree), Ok(4));
    }

    #[test]
    fn too_many_and_too_heavy_are_refused() {
        let many = |count: usize| -> String {
            let lines = (0..count).map(|number| format!("crate-{number} v1.0.0\n"));
            lines.collect::<Vec<_>>().concat()
        };
        assert_eq!(count("a", &many(60)), Ok(60));
        assert!(count("a", &many(61)).unwrap_err().contains("61"));
        for name in BANNED {
            let error = count("a", &format!("mio v1.0.0\n{name} v1.0.0\n")).unwrap_err();
            assert!(error.ends_with(name), "{error}");
        }
    }

    #[test]
    fn a_workspace_without_the_crate_says_so() {
        let metadata = Metadata {
            members: Vec::new(),
            target_directory: "target".into(),
        };
        assert!(matches!(run(&metadata), Ok(Outcome::Skipped(_))));
    }
}
