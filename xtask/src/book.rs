//! Checks that `docs/` is a book: every page has a chapter, no link is dead, and the phrases of the
//! acceptance page are short.

use std::collections::BTreeSet;
use std::path::Path;

use crate::docs::{is_document, resolve};
use crate::failure::Failure;
use crate::need;
use crate::process;
use crate::reference;
use crate::tree::{Finding, View, Workspace, extension, report};

/// The list of chapters, in mdBook's format.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The page with the capabilities.
const ACCEPTANCE: &str = "docs/acceptance.md";
/// Maximum words in a capability's phrase.
const PHRASE_WORDS_MAX: usize = 20;

/// Checks chapters and links, then renders the book if mdBook is installed.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let view = workspace.view();
    let documents = view.files.iter().filter(|(path, _)| is_document(path));
    let mut findings = chapters(&view);
    findings.extend(long_phrases(&view));
    findings.extend(reference::check(&view));
    let mut count = 0;
    for (path, text) in documents {
        let links = links(text);
        count += links.len();
        findings.extend(links.iter().filter_map(|link| dead(&view, path, link)));
    }
    report("book", &findings)?;
    println!("book: {count} links are good");
    let Some(mdbook) = need::find("mdbook") else {
        println!("book: not rendered: mdbook is not installed");
        return Ok(());
    };
    process::run(process::program(mdbook).args(["build", "."]))
}

/// Finds pages without a chapter. A chapter without a page is reported as a dead link.
fn chapters(view: &View<'_>) -> Vec<Finding> {
    let text = view.files.get(SUMMARY).map_or("", String::as_str);
    let listed: BTreeSet<String> = links(text)
        .iter()
        .map(|link| resolve("docs", link.target))
        .collect();
    let pages = view.files.keys().filter(|path| {
        let is_page = path.starts_with("docs/") && extension(path) == "md";
        is_page && path.as_str() != SUMMARY && !listed.contains(path.as_str())
    });
    pages
        .map(|page| Finding::at(SUMMARY, 1, format!("has no chapter for {page}")))
        .collect()
}

/// Finds rows of the acceptance page with too many words in the phrase, the second cell.
fn long_phrases(view: &View<'_>) -> Vec<Finding> {
    let text = view.files.get(ACCEPTANCE).map_or("", String::as_str);
    let mut findings = Vec::new();
    for (line, row) in (1..).zip(text.lines()) {
        let phrase = row.strip_prefix('|').and_then(|row| row.split('|').nth(1));
        let count = phrase.map_or(0, |phrase| phrase.split_whitespace().count());
        if count > PHRASE_WORDS_MAX {
            let fault =
                format!("the phrase has {count} words, over the limit of {PHRASE_WORDS_MAX}");
            findings.push(Finding::at(ACCEPTANCE, line, fault));
        }
    }
    findings
}

/// An inline link, `[text](target)`.
#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    line: usize,
    target: &'a str,
}

/// Returns the inline links of a document, except those in code.
fn links(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(prose(text)) {
        let mut is_code = false;
        let mut rest = content;
        while let Some(at) = rest.find(['`', ']']) {
            let (before, after) = rest.split_at(at);
            let is_escaped = before.ends_with('\\');
            rest = after.get(1..).unwrap_or("");
            if after.starts_with('`') {
                is_code ^= !is_escaped;
            } else if let Some(target) = rest.strip_prefix('(').filter(|_| !is_code) {
                let end = target.find(')').unwrap_or(target.len());
                let (target, after) = target.split_at(end);
                found.push(Link { line, target });
                rest = after;
            }
        }
    }
    found
}

/// Returns each line of a document; lines in fenced blocks are replaced by empty ones.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fence = None;
    text.lines().map(move |line| {
        let content = line.trim_start();
        let ticks = content.len() - content.trim_start_matches('`').len();
        match fence {
            None if ticks >= 3 => fence = Some(ticks),
            None => return line,
            Some(opening) if ticks >= opening => fence = None,
            Some(_) => {}
        }
        ""
    })
}

/// Checks a link. Links to other sites and to Rust items are not checked.
fn dead(view: &View<'_>, page: &str, link: &Link<'_>) -> Option<Finding> {
    let fault = |what: &str| {
        let fault = format!("links to {}: {what}", link.target);
        Some(Finding::at(page, link.line, fault))
    };
    let is_item = link
        .target
        .chars()
        .all(|it| it.is_alphanumeric() || matches!(it, '_' | ':'));
    if is_item || link.target.contains("://") {
        return None;
    }
    let (file, anchor) = match link.target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link.target, None),
    };
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = match file {
        "" => page.to_owned(),
        _ => resolve(folder, file),
    };
    let Some(text) = view.files.get(&path) else {
        let inside = format!("{path}/");
        let is_folder = view.files.keys().any(|known| known.starts_with(&inside));
        // Pictures are not text files, so they are not in the view.
        let is_there = is_folder || Path::new(&path).is_file();
        return if is_there {
            None
        } else {
            fault("there is no such file")
        };
    };
    let anchor = anchor.filter(|anchor| !headings(text).contains(*anchor))?;
    fault(&format!("no heading has the anchor {anchor}"))
}

/// Returns the anchors of a page's headings, in the format of GitHub and mdBook.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        let anchor: String = kept.map(|it| if it == ' ' { '-' } else { it }).collect();
        let others = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = core::iter::once(anchor.clone()).chain(others);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "a [b](c.md), `[d](e.md)` and [`f`](g.md#h)\n```text\n[i](j.md)\n```\n[k](l.md)\n";
        let found = links(text);
        let found: Vec<_> = found.iter().map(|link| (link.line, link.target)).collect();
        assert_eq!(found, [(1, "c.md"), (1, "g.md#h"), (5, "l.md")]);
    }

    #[test]
    fn a_dead_link_is_named_with_its_line() {
        let page = "# One\n\n## Two, three\n## Two, three\n";
        let workspace = Workspace::of(&[
            ("README.md", page),
            ("docs/a.md", page),
            ("crates/b/README.md", page),
        ]);
        let view = workspace.view();
        let fault = |target| dead(&view, "docs/a.md", &Link { line: 7, target });
        for good in [
            "a.md",
            "#one",
            "a.md#two-three",
            "#two-three-1",
            "../README.md#one",
            "../crates/b",
            "https://example.org/x#y",
            "crate::Item",
            "function",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in [
            "b.md",
            "#four",
            "a.md#two-three-2",
            "../crates/c",
            "README.md",
        ] {
            let found = fault(bad).unwrap();
            assert_eq!((found.path.as_str(), found.line), ("docs/a.md", 7), "{bad}");
        }
    }

    #[test]
    fn a_phrase_of_the_acceptance_page_has_at_most_20_words() {
        let row = |words: usize| format!("| U1 | {} | `a_test` |\n", "word ".repeat(words));
        let page = format!("{}\n{}{}", "prose ".repeat(30), row(20), row(21));
        let files = [(ACCEPTANCE, page.as_str()), ("docs/other.md", &page)];
        let workspace = Workspace::of(&files);
        let found = long_phrases(&workspace.view());
        let found: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.line)).collect();
        assert_eq!(found, [(ACCEPTANCE, 3)]);
    }

    #[test]
    fn a_page_without_a_chapter_is_named() {
        let summary = "# Summary\n\n- [A](a.md)\n";
        let files = [
            (SUMMARY, summary),
            ("docs/a.md", "# a"),
            ("docs/b.md", "# b"),
        ];
        let found = chapters(&Workspace::of(&files).view());
        let faults: Vec<_> = found.iter().map(|it| it.fault.as_str()).collect();
        assert_eq!(faults, ["has no chapter for docs/b.md"]);
        assert!(chapters(&Workspace::of(&files[..2]).view()).is_empty());
    }
}
