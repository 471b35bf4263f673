//! Packages that a change can affect: the owners of changed files and all packages that depend on
//! them.

use std::collections::BTreeSet;

use crate::failure::Failure;
use crate::member::Member;
use crate::process;

/// Root files which affect every package.
const SHARED: [&str; 5] = [
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "clippy.toml",
    "rust-toolchain.toml",
];

/// Returns the paths that differ from the commit `base`, untracked files included.
pub(crate) fn files(base: &str) -> Result<Vec<String>, Failure> {
    let mut paths = Vec::new();
    for arguments in [
        &["diff", "--name-only", base, "--"][..],
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let listed = process::output(process::program("git").args(arguments))?;
        paths.extend(listed.lines().map(str::to_owned));
    }
    Ok(paths)
}

/// Returns the folders of all members that a change of `files` can affect.
pub(crate) fn affected<'a>(members: &'a [Member], files: &[String]) -> BTreeSet<&'a str> {
    let folders = members.iter().map(|member| member.folder.as_str());
    if files.iter().any(|file| SHARED.contains(&file.as_str())) {
        return folders.collect();
    }
    let owner = |file: &String| {
        let owners = folders.clone().filter(|folder| {
            let rest = file.strip_prefix(folder);
            rest.is_some_and(|rest| rest.starts_with('/'))
        });
        owners.max_by_key(|folder| folder.len())
    };
    let mut affected: BTreeSet<&str> = files.iter().filter_map(owner).collect();
    // Each pass adds the packages that depend on those already found, until none is added.
    loop {
        let before = affected.len();
        for member in members {
            let mut needs = member
                .dependencies
                .iter()
                .filter_map(|it| it.folder.as_deref());
            if needs.any(|folder| affected.contains(folder)) {
                affected.insert(&member.folder);
            }
        }
        if affected.len() == before {
            return affected;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Dependency, Kind};

    fn member(folder: &str, needs: &[&str]) -> Member {
        let dependencies = needs.iter().map(|folder| Dependency {
            package: (*folder).to_owned(),
            kind: Kind::Dev,
            optional: false,
            folder: Some((*folder).to_owned()),
        });
        Member {
            package: folder.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.collect(),
        }
    }

    fn members() -> Vec<Member> {
        vec![
            member("crates/hub", &["crates/wire"]),
            member("crates/daemon", &["crates/hub"]),
            member("crates/wire", &[]),
            member("crates/lockstep", &["crates/wire"]),
            member("fuzz", &["crates/lockstep"]),
        ]
    }

    fn affected_by(files: &[&str]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|file| (*file).to_owned()).collect();
        let members = members();
        let affected = affected(&members, &files);
        affected.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_change_affects_its_package_and_all_that_depend_on_it() {
        assert_eq!(affected_by(&["crates/daemon/src/a.rs"]), ["crates/daemon"]);
        assert_eq!(
            affected_by(&["crates/hub/README.md"]),
            ["crates/daemon", "crates/hub"]
        );
        assert_eq!(affected_by(&["crates/wire/src/lib.rs"]).len(), 5);
        assert_eq!(affected_by(&["crates/hubbub/x", "docs/mesh.md"]), [""; 0]);
    }

    #[test]
    fn a_shared_file_affects_all() {
        assert_eq!(affected_by(&["Cargo.lock"]).len(), 5);
    }
}
