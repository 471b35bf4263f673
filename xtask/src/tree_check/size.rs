//! Checks that a source file has at most 800 lines. Tests may be longer.

use crate::tree::{Finding, View};

/// Maximum lines of a Rust file that is not a test.
const LINES_MAX: usize = 800;

/// Finds files past the limit.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    view.sources
        .iter()
        .filter(|source| !is_test(source.path))
        .filter_map(|source| {
            let lines = source.text.lines().count();
            (lines > LINES_MAX).then(|| {
                Finding::at(
                    source.path,
                    lines,
                    format!("{lines} lines, over the limit of {LINES_MAX}: split it by idea"),
                )
            })
        })
        .collect()
}

/// Returns whether the file at `path` contains only tests.
fn is_test(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_source_files_past_the_limit_and_no_tests() {
        let (full, over) = ("\n".repeat(800), "\n".repeat(801));
        let workspace = Workspace::of(&[
            ("crates/a/src/full.rs", &full),
            ("crates/a/src/over.rs", &over),
            ("crates/a/src/over/tests.rs", &over),
            ("crates/a/src/over/tests/part.rs", &over),
            ("crates/a/tests/it/over.rs", &over),
            ("fuzz/fuzz_targets/over.rs", &over),
            ("docs/over.md", &over),
        ]);
        let findings = check(&workspace.view());
        let paths: Vec<_> = findings.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["crates/a/src/over.rs", "fuzz/fuzz_targets/over.rs"]);
    }
}
