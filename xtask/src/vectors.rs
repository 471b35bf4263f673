//! Wire vectors: a test names each, and none changes without `--bless`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::tree::{Finding, View, Workspace, crate_of, extension, report};

/// The committed hashes, in the format of `sha256sum`.
const LIST: &str = "docs/vectors.sha256";

/// Checks the vectors.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let view = workspace.view();
    let hashes = hashes(&view);
    let committed = view.files.get(LIST).map_or("", String::as_str);
    let mut findings = changed(&hashes, committed);
    findings.extend(unnamed(&view, &hashes));
    report("vectors", &findings)?;
    println!("vectors: {} files, unchanged", hashes.len());
    Ok(())
}

/// Accepts the current vectors.
pub(crate) fn bless(workspace: &Workspace) -> Result<(), Failure> {
    let hashes = hashes(&workspace.view());
    fs::write(LIST, list(&hashes)).map_err(|source| Failure::File {
        path: Path::new(LIST).to_path_buf(),
        source,
    })?;
    println!("vectors: {} files, blessed", hashes.len());
    Ok(())
}

/// Returns the hash of each vector file by its path.
fn hashes(view: &View<'_>) -> BTreeMap<String, String> {
    view.files
        .iter()
        .filter(|(path, _)| path.contains("/testdata/") && extension(path) == "hex")
        .map(|(path, text)| {
            let digest = Sha256::digest(text.as_bytes());
            let digits = digest.iter().map(|byte| format!("{byte:02x}"));
            (path.clone(), digits.collect::<Vec<_>>().concat())
        })
        .collect()
}

/// Formats the list as it is committed.
fn list(hashes: &BTreeMap<String, String>) -> String {
    hashes
        .iter()
        .map(|(path, hash)| format!("{hash}  {path}\n"))
        .collect::<Vec<_>>()
        .concat()
}

/// Finds vectors that differ from the list, are not in it, or are missing.
fn changed(hashes: &BTreeMap<String, String>, committed: &str) -> Vec<Finding> {
    let committed: BTreeMap<_, _> = committed
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(hash, path)| (path, hash))
        .collect();
    let present = hashes.iter().filter_map(|(path, hash)| {
        let fault = match committed.get(path.as_str()) {
            Some(was) if was == hash => return None,
            Some(_) => "has changed: raise the protocol's version, or undo it",
            None => "is not in docs/vectors.sha256: `cargo xtask vectors --bless` adds it",
        };
        Some(Finding::at(path, 1, fault))
    });
    let gone = committed
        .keys()
        .filter(|path| !hashes.contains_key(**path))
        .map(|path| Finding::at(path, 1, "is listed in docs/vectors.sha256 and gone"));
    present.chain(gone).collect()
}

/// Finds vectors with a file name that no test of their crate contains.
fn unnamed(view: &View<'_>, hashes: &BTreeMap<String, String>) -> Vec<Finding> {
    hashes
        .keys()
        .filter(|path| {
            let file = path.rsplit('/').next().unwrap_or(path);
            let stem = file.trim_end_matches(".hex");
            let is_named = |text: &str| {
                text.match_indices(stem).any(|(at, _)| {
                    let before = text.get(..at).and_then(|it| it.chars().next_back());
                    let after = text.get(at + stem.len()..).unwrap_or("");
                    before.is_some_and(|char| char == '"' || char == '/')
                        && (after.starts_with('"') || after.starts_with(".hex"))
                })
            };
            let owner = crate_of(path);
            !view
                .sources
                .iter()
                .filter(|source| crate_of(source.path) == owner)
                .filter(|source| !source.tests.trim().is_empty())
                .any(|source| is_named(source.text))
        })
        .map(|path| Finding::at(path, 1, "is a vector that no test of its crate names"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: (&str, &str) = ("crates/udp_proto/testdata/hello.hex", "c1 00\n");

    fn faults(files: &[(&str, &str)], committed: &str) -> Vec<String> {
        let workspace = Workspace::of(files);
        let view = workspace.view();
        let hashes = hashes(&view);
        let mut findings = changed(&hashes, committed);
        findings.extend(unnamed(&view, &hashes));
        findings.into_iter().map(|finding| finding.fault).collect()
    }

    fn blessed(files: &[(&str, &str)]) -> String {
        list(&hashes(&Workspace::of(files).view()))
    }

    #[test]
    fn a_blessed_vector_that_a_test_names_passes() {
        let test = (
            "crates/udp_proto/tests/it/vectors.rs",
            "include_str!(\"../../testdata/hello.hex\")",
        );
        let list = blessed(&[HELLO]);
        assert!(list.ends_with("  crates/udp_proto/testdata/hello.hex\n"));
        assert_eq!(list.find(' '), Some(64));
        assert_eq!(faults(&[HELLO, test], &list), [""; 0]);
        let by_stem = ("crates/udp_proto/tests/it/vectors.rs", "vector(\"hello\")");
        assert_eq!(faults(&[HELLO, by_stem], &list), [""; 0]);
    }

    #[test]
    fn changed_new_removed_and_unnamed_vectors_are_found() {
        let test = ("crates/udp_proto/tests/it/v.rs", "\"hello.hex\"");
        let list = blessed(&[HELLO]);
        let changed = (HELLO.0, "c1 01\n");
        assert!(faults(&[changed, test], &list)[0].contains("has changed"));
        assert!(faults(&[HELLO, test], "")[0].contains("--bless"));
        assert!(faults(&[test], &list)[0].contains("gone"));
        assert!(faults(&[HELLO], &list)[0].contains("no test"));
        let shipped = ("crates/udp_proto/src/a.rs", "\"hello.hex\"");
        let elsewhere = ("crates/hub/tests/it/v.rs", "\"hello.hex\"");
        let longer = ("crates/udp_proto/tests/it/v.rs", "\"othello.hex\"");
        for other in [shipped, elsewhere, longer] {
            assert_eq!(faults(&[HELLO, other], &list).len(), 1, "{other:?}");
        }
    }

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let files = [("crates/a/testdata/empty.hex", "")];
        assert!(blessed(&files).starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }
}
