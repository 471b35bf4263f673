//! The workspace's files in memory, so that every check is a testable function.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::member::{Member, Metadata};
use crate::source::Source;

/// Input of the checks.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Every text file by its path from the root, separated by `/`.
    pub(crate) files: BTreeMap<String, String>,
    /// The packages.
    pub(crate) members: Vec<Member>,
}

impl Workspace {
    /// Reads the tree below the current directory, and gets the members from cargo.
    pub(crate) fn load() -> Result<Self, Failure> {
        let mut files = BTreeMap::new();
        read_folder(Path::new("."), "", &mut files)?;
        let members = Metadata::load()?.members;
        Ok(Self { files, members })
    }

    /// Creates a tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Self {
            files,
            members: Vec::new(),
        }
    }

    /// Scans every Rust file.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            files: &self.files,
            members: &self.members,
            sources: self
                .files
                .iter()
                .filter(|(path, _)| extension(path) == "rs")
                .map(|(path, text)| Source::scan(path, text))
                .collect(),
        }
    }
}

/// A workspace with scanned sources.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// Every text file by its path from the root.
    pub(crate) files: &'a BTreeMap<String, String>,
    /// The packages.
    pub(crate) members: &'a [Member],
    /// Every Rust file, sorted by path.
    pub(crate) sources: Vec<Source<'a>>,
}

impl View<'_> {
    /// Returns the sorted folders of the crates, such as `crates/wire`.
    pub(crate) fn crate_folders(&self) -> impl Iterator<Item = &str> {
        self.files
            .keys()
            .filter_map(|path| path.strip_suffix("/Cargo.toml"))
            .filter(|folder| folder.starts_with("crates/"))
    }

    /// Returns the Rust files of the crate called `name`, including its tests.
    pub(crate) fn sources_of<'v>(&'v self, name: &'v str) -> impl Iterator<Item = &'v Source<'v>> {
        self.sources
            .iter()
            .filter(move |source| crate_of(source.path) == Some(name))
    }
}

/// Returns the text after the last dot of `path`.
pub(crate) fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Returns the folder name of the crate which contains `path`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// Folders with generated files.
const MADE: [&str; 4] = [".git", "target", "artifacts", "coverage"];

fn read_folder(
    folder: &Path,
    name: &str,
    files: &mut BTreeMap<String, String>,
) -> Result<(), Failure> {
    let failure = |path: &Path, source| Failure::File {
        path: path.to_path_buf(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(|source| failure(folder, source))? {
        let entry = entry.map_err(|source| failure(folder, source))?;
        let path = entry.path();
        let Ok(last) = entry.file_name().into_string() else {
            continue;
        };
        if MADE.contains(&last.as_str()) {
            continue;
        }
        let inner = if name.is_empty() {
            last
        } else {
            format!("{name}/{last}")
        };
        let kind = entry.file_type().map_err(|source| failure(&path, source))?;
        if kind.is_dir() {
            read_folder(&path, &inner, files)?;
        } else if kind.is_file() {
            let bytes = fs::read(&path).map_err(|source| failure(&path, source))?;
            // Binary files (corpora, pictures) are skipped.
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(inner, text);
            }
        }
    }
    Ok(())
}

/// Returns whether the whole file is test code.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path
            .split('/')
            .rev()
            .skip(1)
            .any(|folder| folder == "tests" || folder == "benches" || folder == "fuzz")
}

/// A fault with its location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root.
    pub(crate) path: String,
    /// Line from 1; 1 if the fault concerns the whole file.
    pub(crate) line: usize,
    /// Description of the fault.
    pub(crate) fault: String,
}

impl Finding {
    /// Creates a fault at `line` of `path`.
    pub(crate) fn at(path: &str, line: usize, fault: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            fault: fault.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.fault)
    }
}

/// Prints `findings`. Fails if there are any.
pub(crate) fn report(check: &'static str, findings: &[Finding]) -> Result<(), Failure> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failure::Findings {
        check,
        count: findings.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_test_files_from_others() {
        for path in [
            "crates/wire/tests/it/main.rs",
            "crates/wire/src/codec/tests.rs",
            "fuzz/src/lib.rs",
            "benches/benches/seal.rs",
        ] {
            assert!(is_test_file(path), "{path}");
        }
        for path in ["crates/wire/src/codec.rs", "xtask/src/test.rs", "tests.rs"] {
            assert!(!is_test_file(path), "{path}");
        }
    }

    #[test]
    fn a_finding_reads_as_editors_expect() {
        let finding = Finding::at("a/b.rs", 7, "too long");
        assert_eq!(finding.to_string(), "a/b.rs:7: too long");
        assert!(report("size", &[finding]).is_err());
        assert!(report("size", &[]).is_ok());
    }
}
