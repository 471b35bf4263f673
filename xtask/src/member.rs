//! The workspace members, from `cargo metadata`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;

/// One package of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    /// Package name, `tickwire-udp-proto`.
    pub(crate) package: String,
    /// Folder relative to the root, `crates/udp_proto`.
    pub(crate) folder: String,
    /// Its dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

impl Member {
    /// Returns the last part of the folder, which is the crate's short name.
    pub(crate) fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }
}

/// One line of a manifest's dependency tables.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// Package name.
    pub(crate) package: String,
    /// The dependency table.
    pub(crate) kind: Kind,
    /// Whether it is compiled only with a feature.
    pub(crate) optional: bool,
    /// The member's folder, if it is in this workspace.
    pub(crate) folder: Option<String>,
}

/// A dependency table of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `[dependencies]`
    Normal,
    /// `[dev-dependencies]`
    Dev,
    /// `[build-dependencies]`
    Build,
}

/// Output of `cargo metadata`.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// Its packages, by folder.
    pub(crate) members: Vec<Member>,
    /// Cargo's target directory.
    pub(crate) target_directory: PathBuf,
}

impl Metadata {
    /// Runs `cargo metadata`. Needs no network.
    pub(crate) fn load() -> Result<Self, Failure> {
        let mut command = process::cargo(["metadata", "--format-version=1", "--no-deps"]);
        let text = process::output(&mut command)?;
        Self::parse(&text).map_err(|source| Failure::Unreadable {
            line: process::line(&command),
            source,
        })
    }

    fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let raw: RawMetadata = serde_json::from_str(text)?;
        let root = raw.workspace_root;
        let relative = |path: &Path| {
            let inside = path.strip_prefix(&root).unwrap_or(path);
            inside.to_string_lossy().replace('\\', "/")
        };
        let mut members: Vec<_> = raw
            .packages
            .into_iter()
            .map(|package| Member {
                folder: relative(package.manifest_path.parent().unwrap_or(&root)),
                package: package.name,
                dependencies: package
                    .dependencies
                    .into_iter()
                    .map(|dependency| Dependency {
                        package: dependency.name,
                        kind: match dependency.kind.as_deref() {
                            None => Kind::Normal,
                            Some("dev") => Kind::Dev,
                            Some(_) => Kind::Build,
                        },
                        optional: dependency.optional,
                        folder: dependency.path.as_deref().map(relative),
                    })
                    .collect(),
            })
            .collect();
        members.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(Self {
            members,
            target_directory: raw.target_directory,
        })
    }
}

#[derive(Deserialize)]
struct RawMetadata {
    packages: Vec<RawPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct RawPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    kind: Option<String>,
    optional: bool,
    path: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_folders_kinds_and_paths() {
        let metadata = Metadata::parse(
            r#"{"workspace_root": "/w", "target_directory": "/w/target", "packages": [{
                "name": "tickwire-udp-proto", "manifest_path": "/w/crates/udp_proto/Cargo.toml",
                "dependencies": [
                  {"name": "tickwire-wire", "kind": null, "optional": false, "path": "/w/crates/wire"},
                  {"name": "bincode", "kind": null, "optional": true},
                  {"name": "proptest", "kind": "dev", "optional": false}]}]}"#,
        )
        .unwrap();
        let [member] = metadata.members.as_slice() else {
            panic!("one member: {metadata:?}");
        };
        assert_eq!(member.name(), "udp_proto");
        assert_eq!(member.folder, "crates/udp_proto");
        let [wire, bincode, proptest] = member.dependencies.as_slice() else {
            panic!("three dependencies: {member:?}");
        };
        assert_eq!(wire.folder.as_deref(), Some("crates/wire"));
        assert!(bincode.optional && bincode.folder.is_none());
        assert_eq!(proptest.kind, Kind::Dev);
    }
}
