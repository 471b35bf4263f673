//! A file is one idea: it ends before line 500.

use crate::tree::{Finding, View, is_test_file};

/// Lines of a file outside tests; past 400 one looks for the seam.
const LINES_MAX: usize = 500;

/// Finds files past the limit.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    view.sources
        .iter()
        .filter(|source| !is_test_file(source.path))
        .filter_map(|source| {
            let lines = source.text.lines().count();
            (lines > LINES_MAX).then(|| {
                Finding::at(
                    source.path,
                    lines,
                    format!("{lines} lines, over the limit of {LINES_MAX}: where is the seam?"),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_a_file_past_the_limit_and_leaves_tests_alone() {
        let (full, over) = ("\n".repeat(500), "\n".repeat(501));
        let workspace = Workspace::of(&[
            ("crates/a/src/full.rs", &full),
            ("crates/a/src/over.rs", &over),
            ("crates/a/src/over/tests.rs", &over),
            ("crates/a/tests/it/over.rs", &over),
        ]);
        let findings = check(&workspace.view());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].path, "crates/a/src/over.rs");
    }
}
