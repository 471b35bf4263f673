//! A file is one idea: it ends before line 500.

use crate::tree::{Finding, View};

/// Lines of a Rust file, tests included; past 400 one looks for the seam.
const LINES_MAX: usize = 500;

/// Finds files past the limit.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    view.sources
        .iter()
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
    fn finds_files_past_the_limit_and_excepts_none() {
        let (full, over) = ("\n".repeat(500), "\n".repeat(501));
        let workspace = Workspace::of(&[
            ("crates/a/src/full.rs", &full),
            ("crates/a/src/over.rs", &over),
            ("crates/a/src/over/tests.rs", &over),
            ("crates/a/tests/it/full.rs", &full),
            ("crates/a/tests/it/over.rs", &over),
            ("fuzz/fuzz_targets/over.rs", &over),
            ("docs/over.md", &over),
        ]);
        let findings = check(&workspace.view());
        let paths: Vec<_> = findings.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "crates/a/src/over.rs",
                "crates/a/src/over/tests.rs",
                "crates/a/tests/it/over.rs",
                "fuzz/fuzz_targets/over.rs",
            ]
        );
    }
}
