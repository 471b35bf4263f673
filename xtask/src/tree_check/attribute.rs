//! Checks required and forbidden attributes of crates.

use crate::source::{line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Finds crates that do not forbid `unsafe`, lints that are permanently allowed, and tests that are
/// ignored without a reason.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &view.sources {
        let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
        let may_be_unsafe = crate_of(source.path) == Some("servicer");
        if is_root && !may_be_unsafe && !source.code.contains("#![forbid(unsafe_code)]") {
            findings.push(Finding::at(
                source.path,
                1,
                "lacks `#![forbid(unsafe_code)]`",
            ));
        }
        for offset in words(&source.code, "allow(").filter(|at| in_attribute(&source.code, *at)) {
            findings.push(Finding::at(
                source.path,
                line_of(&source.code, offset),
                "silences a lint for good: write `expect` with a reason",
            ));
        }
        for offset in words(&source.code, "#[ignore]") {
            findings.push(Finding::at(
                source.path,
                line_of(&source.code, offset),
                "leaves a test out without saying why",
            ));
        }
    }
    findings
}

/// Returns whether an attribute is open at `offset`.
fn in_attribute(code: &str, offset: usize) -> bool {
    let before = code.get(..offset).unwrap_or(code);
    let opened = before.rfind("#[").max(before.rfind("#!["));
    opened.is_some_and(|at| {
        let inside = before.get(at..).unwrap_or("");
        inside.matches('[').count() > inside.matches(']').count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    fn faults(path: &str, text: &str) -> Vec<usize> {
        let workspace = Workspace::of(&[(path, text)]);
        let findings = check(&workspace.view());
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_root_but_that_of_servicer_forbids_unsafe() {
        assert_eq!(faults("crates/a/src/lib.rs", "//! a\n"), [1]);
        assert_eq!(faults("xtask/src/main.rs", "fn main() {}"), [1]);
        let only_said = "// #![forbid(unsafe_code)]";
        assert_eq!(faults("crates/a/src/lib.rs", only_said), [1]);
        assert!(faults("crates/servicer/src/lib.rs", "").is_empty());
        assert!(faults("crates/a/src/lib.rs", "#![forbid(unsafe_code)]").is_empty());
        assert!(faults("crates/a/src/b.rs", "").is_empty());
    }

    #[test]
    fn finds_silenced_lints() {
        let path = "crates/a/src/a.rs";
        assert_eq!(faults(path, "\n#[allow(dead_code)]\nfn a() {}"), [2]);
        assert_eq!(faults(path, "#![allow(dead_code)]"), [1]);
        assert_eq!(
            faults(path, "#[cfg_attr(test, allow(dead_code))]\nfn a() {}"),
            [1]
        );
        assert!(faults(path, "#[expect(dead_code)]\nfn a() { list.allow(b); }").is_empty());
        assert!(faults(path, "#[must_use] fn a() { allow(b[0]) }").is_empty());
    }

    #[test]
    fn an_ignored_test_has_a_reason() {
        let path = "crates/a/src/a.rs";
        assert_eq!(faults(path, "#[test]\n#[ignore]\nfn a() {}"), [2]);
        assert!(faults(path, "#[test]\n#[ignore = \"needs doom\"]\nfn a() {}").is_empty());
    }
}
