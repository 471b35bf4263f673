//! Checks that the tests named in tables exist.

use crate::source::{Source, has_word, is_name};
use crate::tree::{Finding, View, crate_of, extension};

/// Headings of columns with test names; text in parentheses may follow.
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
        for (line, promised) in named_tests(text) {
            let exists = view
                .sources
                .iter()
                .filter(|source| promised.is_of(owner, source))
                .any(|source| promised.is_in(source));
            if !exists {
                let fault = format!("no test is called `{}`", promised.text);
                findings.push(Finding::at(path, line, fault));
            }
        }
    }
    findings
}

/// A test as a table names it: modules, and the name or, with `...`, its beginning or end.
struct Promised<'a> {
    text: &'a str,
    modules: Vec<&'a str>,
    name: &'a str,
}

impl<'a> Promised<'a> {
    /// Reads a Rust path, or returns `None` for a command, a file or a pattern.
    fn read(text: &'a str) -> Option<Self> {
        let mut modules: Vec<&str> = text.split("::").collect();
        let name = modules.pop()?;
        let is_path = text
            .chars()
            .all(|char| is_name(char) || matches!(char, ':' | '.'));
        let inner = name.trim_start_matches("...").trim_end_matches("...");
        let is_test = is_path && inner.contains('_') && !inner.contains('.');
        is_test.then_some(Self {
            text,
            modules,
            name,
        })
    }

    /// Whether `source` may have it: a crate's page means that crate, or the one that it names first.
    fn is_of(&self, owner: Option<&str>, source: &Source<'_>) -> bool {
        let place = crate_of(source.path);
        let is_named = || place.is_some() && self.modules.first().copied() == place;
        owner.is_none() || place == owner || is_named()
    }

    fn is_in(&self, source: &Source<'_>) -> bool {
        let has_name = if let Some(end) = self.name.strip_prefix("...") {
            functions(&source.tests).any(|name| name.ends_with(end))
        } else if let Some(start) = self.name.strip_suffix("...") {
            functions(&source.tests).any(|name| name.starts_with(start))
        } else {
            has_word(&source.tests, &format!("fn {}", self.name))
        };
        let is_at = |module: &&str| {
            source.path.split(['/', '.']).any(|part| part == *module)
                || has_word(&source.tests, &format!("mod {module}"))
        };
        has_name && self.modules.iter().all(is_at)
    }
}

/// Returns the names of functions in `code`.
fn functions(code: &str) -> impl Iterator<Item = &str> {
    code.split("fn ").skip(1).map(|rest| {
        let end = rest.find(|char| !is_name(char)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    })
}

/// Returns the test names in a document's tables, each with its line.
fn named_tests(text: &str) -> Vec<(usize, Promised<'_>)> {
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
            let promised = quoted.filter_map(Promised::read);
            found.extend(promised.map(|promised| (number + 1, promised)));
        } else {
            in_table = true;
            column = cells.position(|head| {
                let head = head.split(" (").next().unwrap_or(head).to_lowercase();
                HEADS.contains(&head.as_str())
            });
        }
    }
    found
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
    fn modules_beginnings_and_ends_of_names_must_fit() {
        let test = ("crates/a/src/one/tests.rs", "fn holds_at_the_edge() {}");
        let page =
            |name: &str| format!("| promise | test (`tests/it`) |\n|---|---|\n| it | `{name}` |\n");
        for name in [
            "one::tests::holds_at_the_edge",
            "holds_at_...",
            "..._the_edge",
        ] {
            assert!(
                faults(&[("crates/a/README.md", &page(name)), test]).is_empty(),
                "{name}"
            );
        }
        for name in ["two::holds_at_the_edge", "holds_in_...", "..._the_middle"] {
            assert_eq!(
                faults(&[("crates/a/README.md", &page(name)), test]),
                [3],
                "{name}"
            );
        }
    }

    #[test]
    fn workspace_pages_may_name_tests_of_any_crate() {
        let page = ("ARCHITECTURE.md", TABLE);
        let both = "fn holds_at_the_edge() {}\nfn ends_in_time() {}";
        assert!(faults(&[page, ("crates/b/tests/it/main.rs", both)]).is_empty());
    }
}
