//! Checks that the lock files of packages outside the workspace match their manifests.
//!
//! No build of the workspace reads them. Without this check, a new dependency of a crate would
//! leave them stale until the next fuzzing or benchmark run.

use std::path::Path;

use crate::failure::Failure;
use crate::process;
use crate::tree::Workspace;

/// Checks all of them.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut stale = Vec::new();
    let folders = folders(workspace);
    for folder in &folders {
        println!("locks: {folder}");
        if !is_current(Path::new(folder), &[])? {
            stale.push(folder.as_str());
        }
    }
    if stale.is_empty() {
        println!("locks: {} files, as their manifests ask", folders.len());
        return Ok(());
    }
    let each = stale.iter().map(|folder| {
        format!("`cargo update --workspace --manifest-path {folder}/Cargo.toml` renews it")
    });
    Err(Failure::Check(format!(
        "stale lock files: {}",
        each.collect::<Vec<_>>().join("; ")
    )))
}

/// Returns the folders below the root which have their own lock file.
fn folders(workspace: &Workspace) -> Vec<String> {
    let paths = workspace.files.keys();
    let folders = paths.filter_map(|path| path.strip_suffix("/Cargo.lock"));
    folders.map(str::to_owned).collect()
}

/// Returns whether cargo would leave the lock file of `folder` unchanged. It downloads only the
/// registry's index, and only if the file names a package that cargo has not cached.
fn is_current(folder: &Path, options: &[&str]) -> Result<bool, Failure> {
    let mut command = process::cargo(["update", "--workspace", "--locked", "--quiet"]);
    command.args(options);
    command
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"));
    match process::run(&mut command) {
        Ok(()) => Ok(true),
        Err(Failure::Status { .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_lock_files_below_the_root_are_checked() {
        let tree = Workspace::of(&[
            ("Cargo.lock", ""),
            ("Cargo.toml", ""),
            ("benches/peers/Cargo.lock", ""),
            ("fuzz/libfuzzer/Cargo.lock", ""),
            ("fuzz/libfuzzer/Cargo.toml", ""),
        ]);
        assert_eq!(folders(&tree), ["benches/peers", "fuzz/libfuzzer"]);
    }

    #[test]
    fn a_lock_file_without_a_dependency_of_ours_is_stale() {
        let root = std::env::temp_dir().join(format!("xtask-locks-{}", std::process::id()));
        let package = |folder: &Path, name: &str, dependencies: &str| {
            let manifest = format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                 [workspace]\n[dependencies]\n{dependencies}"
            );
            fs::create_dir_all(folder.join("src")).unwrap();
            fs::write(folder.join("src/lib.rs"), "").unwrap();
            fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        };
        let whole = root.join("whole");
        package(&root.join("one"), "one", "");
        package(&whole, "whole", "");
        let entry =
            |name, rest| format!("\n[[package]]\nname = \"{name}\"\nversion = \"0.1.0\"\n{rest}");
        let lock = |entries: &[String]| {
            let lock = format!("version = 4\n{}", entries.concat());
            fs::write(whole.join("Cargo.lock"), lock).unwrap();
            is_current(&whole, &["--offline"])
        };
        let before = lock(&[entry("whole", "")]);
        package(&whole, "whole", "one = { path = \"../one\" }\n");
        let stale = lock(&[entry("whole", "")]);
        let depends = "dependencies = [\n \"one\",\n]\n";
        let after = lock(&[entry("one", ""), entry("whole", depends)]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            [before.unwrap(), stale.unwrap(), after.unwrap()],
            [true, false, true]
        );
    }
}
