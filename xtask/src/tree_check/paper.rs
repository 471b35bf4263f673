//! Checks for required documents: both licences, and a README in each crate.

use crate::tree::{Finding, View};

/// Finds missing or empty documents.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(str::to_owned);
    let readmes = view
        .crate_folders()
        .map(|folder| format!("{folder}/README.md"));
    licences
        .into_iter()
        .chain(readmes)
        .filter(|path| {
            view.files
                .get(path)
                .is_none_or(|text| text.trim().is_empty())
        })
        .map(|path| Finding::at(&path, 1, "is missing or empty"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_missing_and_empty_specifications() {
        let workspace = Workspace::of(&[
            ("LICENSE-MIT", "text"),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/README.md", " \n"),
            ("crates/b/Cargo.toml", ""),
            ("crates/b/README.md", "# b"),
        ]);
        let findings = check(&workspace.view());
        let paths: Vec<_> = findings.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["LICENSE-APACHE", "crates/a/README.md"]);
    }
}
