//! Checks that the tree has no markers of unfinished work, which belongs in issues.

use crate::source::{line_of, words};
use crate::tree::{Finding, View};

/// Markers of unfinished work, split so that this file does not match.
const WORDS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
/// Placeholder macros for missing code.
const MACROS: [&str; 2] = [concat!("to", "do!"), concat!("unimpl", "emented!")];

/// Finds the markers in all texts and the macros in code.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let texts = view
        .files
        .iter()
        .filter(|(path, _)| !path.starts_with("fuzz/corpus/"));
    let in_texts = texts.flat_map(|(path, text)| {
        WORDS
            .iter()
            .flat_map(|word| words(text, word))
            .map(|offset| Finding::at(path, line_of(text, offset), "work left undone"))
    });
    let in_code = view.sources.iter().flat_map(|source| {
        MACROS
            .iter()
            .flat_map(|name| words(&source.code, name))
            .map(|offset| {
                let line = line_of(&source.code, offset);
                Finding::at(source.path, line, "code is missing")
            })
    });
    in_texts.chain(in_code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_words_in_texts_and_macros_in_code() {
        let note = format!("# a\n\n{}: later\n", WORDS[0]);
        let code = format!("// {}\nfn a() {{ {}() }}\n", MACROS[0], MACROS[1]);
        let workspace = Workspace::of(&[
            ("docs/a.md", &note),
            ("crates/a/src/a.rs", &code),
            ("docs/b.md", "a method is no such word"),
        ]);
        let findings = check(&workspace.view());
        let lines: Vec<_> = findings
            .iter()
            .map(|it| (it.path.as_str(), it.line))
            .collect();
        assert_eq!(lines, [("docs/a.md", 3), ("crates/a/src/a.rs", 2)]);
    }
}
