//! Checks that the tree contains no path of the developer's machine and no private registry.

use crate::source::line_of;
use crate::tree::{Finding, View};

/// Folders of a machine, split so that this file does not match.
const FOLDERS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];
/// The only allowed registry, as a lock file writes it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Starts of lines that redirect cargo.
const REDIRECTIONS: [&str; 6] = [
    "[source",
    "[registries",
    "[registry",
    "registry =",
    "registry-index =",
    "replace-with",
];

/// Finds such paths in all texts, and other registries in lock files, manifests and cargo
/// configuration.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in view.files {
        for folder in FOLDERS {
            let offsets = text.match_indices(folder).map(|(offset, _)| offset);
            for offset in offsets.filter(|offset| starts_a_path(text, *offset)) {
                let line = line_of(text, offset);
                findings.push(Finding::at(path, line, "names a folder of one machine"));
            }
        }
        let is_lock = path.ends_with("Cargo.lock");
        let is_cargo = is_lock || path.ends_with("Cargo.toml") || path.starts_with(".cargo/");
        for (line, content) in text.lines().enumerate().filter(|_| is_cargo) {
            let source = content.strip_prefix("source = \"").filter(|_| is_lock);
            let is_foreign = source.is_some_and(|source| source.trim_end_matches('"') != REGISTRY);
            let is_redirected = REDIRECTIONS
                .iter()
                .any(|start| content.trim_start().starts_with(start));
            if is_foreign || is_redirected {
                findings.push(Finding::at(path, line + 1, "names a registry of its own"));
            }
        }
    }
    findings
}

/// Returns whether an absolute path can start at `offset`, as opposed to the inside of a longer
/// one.
fn starts_a_path(text: &str, offset: usize) -> bool {
    let before = text.get(..offset).and_then(|text| text.chars().next_back());
    !before.is_some_and(|char| char.is_alphanumeric() || "._-~/}".contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let workspace = Workspace::of(&[(path, text)]);
        let findings = check(&workspace.view());
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_folders_of_a_machine() {
        for folder in FOLDERS {
            assert_eq!(lines("docs/a.md", &format!("a\nsee `{folder}notes`")), [2]);
            assert!(lines("docs/a.md", &format!("https://a.example{folder}b")).is_empty());
        }
        assert!(lines("docs/a.md", "the framework/house and /var/lib/tickwire/").is_empty());
    }

    #[test]
    fn finds_other_registries() {
        let good = format!("[[package]]\nsource = \"{REGISTRY}\"\n");
        assert!(lines("Cargo.lock", &good).is_empty());
        assert_eq!(
            lines("Cargo.lock", "a\nsource = \"registry+https://b.example/i\""),
            [2]
        );
        assert_eq!(
            lines("Cargo.lock", "source = \"git+https://b.example/i\""),
            [1]
        );
        assert_eq!(
            lines(
                ".cargo/config.toml",
                "[source.crates-io]\nreplace-with = \"b\""
            ),
            [1, 2]
        );
        assert_eq!(
            lines("crates/a/Cargo.toml", "[dependencies.b]\nregistry = \"c\""),
            [2]
        );
        assert!(lines("crates/a/src/a.rs", "registry = 1").is_empty());
    }
}
