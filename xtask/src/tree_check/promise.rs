//! Checks that the tests named in tables exist.

use crate::source::{has_word, is_name};
use crate::tree::{Finding, View, crate_of, extension};

/// Headings of columns with test names.
const HEADS: [&str; 3] = ["test", "tests", "shown by"];

/// Finds names in the tables of documents that no test function has. Tables in a crate's own pages
/// refer to that crate's tests, with or without the path before the name.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in view
        .files
        .iter()
        .filter(|(path, _)| extension(path) == "md")
    {
        let owner = crate_of(path);
        for (line, name) in named_tests(text) {
            let function = format!("fn {name}");
            let exists = view
                .sources
                .iter()
                .filter(|source| owner.is_none() || crate_of(source.path) == owner)
                .any(|source| has_word(&source.tests, &function));
            if !exists {
                findings.push(Finding::at(
                    path,
                    line,
                    format!("no test is called `{name}`"),
                ));
            }
        }
    }
    findings
}

/// Returns the test names in a document's tables, each with its line.
fn named_tests(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // The column with test names in the current table.
    let mut column = None;
    let mut in_table = false;
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let mut cells = row.trim_end_matches('|').split('|').map(str::trim);
        if in_table {
            let cell = column.and_then(|column| cells.nth(column)).unwrap_or("");
            let quoted = cell.split('`').skip(1).step_by(2);
            found.extend(
                quoted
                    .filter_map(function_name)
                    .map(|name| (number + 1, name)),
            );
        } else {
            in_table = true;
            column = cells.position(|head| HEADS.contains(&head.to_lowercase().as_str()));
        }
    }
    found
}

/// Returns the last name of a Rust path, or `None` for a command, a file or a pattern.
fn function_name(token: &str) -> Option<&str> {
    let is_path = token.chars().all(|char| is_name(char) || char == ':');
    let name = token.rsplit("::").next()?;
    (is_path && name.contains('_')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    const TABLE: &str = "# a\n\n| promise | test |\n|---|---|\n| it holds | `it::holds_at_the_edge` |\n\
                         | it ends | `ends_in_time`, `cargo xtask sim`, `tests/it/a_b.rs` |\n\n\
                         | test_name | what |\n|---|---|\n| `not_a_test` | `neither_is_this` |\n";

    fn faults(files: &[(&str, &str)]) -> Vec<usize> {
        let workspace = Workspace::of(files);
        let findings = check(&workspace.view());
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_named_test_must_exist_where_it_is_promised() {
        let page = ("crates/a/README.md", TABLE);
        let both = "fn holds_at_the_edge() {}\nfn ends_in_time() {}";
        let one = "fn holds_at_the_edge() {}\nfn ends_in_time_too() {}";
        assert_eq!(faults(&[page]), [5, 6]);
        assert!(faults(&[page, ("crates/a/tests/it/main.rs", both)]).is_empty());
        assert_eq!(faults(&[page, ("crates/a/tests/it/main.rs", one)]), [6]);
        assert_eq!(faults(&[page, ("crates/b/tests/it/main.rs", both)]), [5, 6]);
        assert_eq!(faults(&[page, ("crates/a/src/lib.rs", both)]), [5, 6]);
    }

    #[test]
    fn pages_of_the_whole_mean_any_crate() {
        let page = ("ARCHITECTURE.md", TABLE);
        let both = "fn holds_at_the_edge() {}\nfn ends_in_time() {}";
        assert!(faults(&[page, ("crates/b/tests/it/main.rs", both)]).is_empty());
    }
}
