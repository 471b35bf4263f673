//! Runs the shell blocks of documents, and checks that doc tests compile their Rust blocks.
//!
//! A block that cannot run has `<!-- not run: REASON -->` on the line above it. (A marker after the
//! fence would not work: rustdoc reads every word there as an attribute.)

use std::time::Instant;

use crate::failure::Failure;
use crate::process;
use crate::source::line_of;
use crate::tree::{Finding, View, Workspace, extension, report};

/// Allowed languages of a code block. `console` shows a session and is not run; `text` is not code.
const LANGUAGES: [&str; 10] = [
    "sh", "rust", "console", "text", "toml", "json", "yaml", "ini", "diff", "mermaid",
];

/// One fenced block of a document.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    /// The document.
    path: &'a str,
    /// Line of the opening fence.
    line: usize,
    /// The text after the opening fence.
    info: &'a str,
    /// The reason not to run it, from the line above.
    reason: Option<&'a str>,
    /// The content of the block.
    text: &'a str,
}

/// Runs each shell block in the workspace root.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let view = workspace.view();
    let blocks: Vec<_> = view
        .files
        .iter()
        .filter(|(path, _)| is_document(path))
        .flat_map(|(path, text)| blocks(path, text))
        .collect();
    report("docs-run", &faults(&view, &blocks))?;
    let mut ran = 0;
    for block in blocks.iter().filter(|block| language(block.info) == "sh") {
        let place = format!("{}:{}", block.path, block.line);
        if let Some(reason) = block.reason {
            println!("docs-run: {place}: not run: {reason}");
            continue;
        }
        println!("docs-run: {place}");
        run_block(block)?;
        ran += 1;
    }
    println!("docs-run: {ran} shell blocks ran");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "tells how long a block took")]
fn run_block(block: &Block<'_>) -> Result<(), Failure> {
    let start = Instant::now();
    let mut command = process::program("bash");
    command.args(["-euo", "pipefail", "-c", block.text]);
    process::run(&mut command)
        .map_err(|failure| Failure::Check(format!("{}:{}: {failure}", block.path, block.line)))?;
    println!(
        "docs-run: ended after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Returns whether `path` is a root page, in `docs/`, or a crate's README.
pub(crate) fn is_document(path: &str) -> bool {
    let is_readme = path.ends_with("/README.md");
    extension(path) == "md" && (!path.contains('/') || path.starts_with("docs/") || is_readme)
}

fn language(info: &str) -> &str {
    info.split([' ', ',']).next().unwrap_or("")
}

/// Parses the reason in `<!-- not run: REASON -->`.
fn reason_not_to_run(line: &str) -> Option<&str> {
    let inside = line.trim().strip_prefix("<!-- not run:")?;
    inside.strip_suffix("-->").map(str::trim)
}

/// Finds blocks with an unknown language, unexecuted blocks without a reason, Rust that no crate
/// compiles, and invalid JSON.
fn faults(view: &View<'_>, blocks: &[Block<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for block in blocks {
        let is_included = is_included(view, block.path);
        let fault = match language(block.info) {
            // rustdoc treats these as Rust.
            "" | "no_run" | "compile_fail" | "should_panic" if is_included => continue,
            "rust" if !is_included => "holds Rust that no crate compiles: include the page in one",
            "sh" if block.info != "sh" || block.reason == Some("") => {
                "is a shell block that is neither run nor says why above: `<!-- not run: REASON -->`"
            }
            "json" if serde_json::from_str::<serde::de::IgnoredAny>(block.text).is_err() => {
                "is no JSON"
            }
            "toml" | "yaml" | "ini" | "diff" if block.reason.is_none_or(str::is_empty) => {
                "is read by no test and does not say why above: `<!-- not run: REASON -->`"
            }
            language if LANGUAGES.contains(&language) => continue,
            _ => "is a code block in no language that the documents use",
        };
        findings.push(Finding::at(block.path, block.line, fault));
    }
    findings
}

/// Returns whether a crate includes the page in its docs, so that doc tests compile its Rust.
fn is_included(view: &View<'_>, page: &str) -> bool {
    view.sources.iter().any(|source| {
        source.text.split("include_str!(\"").skip(1).any(|rest| {
            let folder = source
                .path
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            let relative = rest.split('"').next().unwrap_or("");
            resolve(folder, relative) == page
        })
    })
}

/// Resolves `relative` against `folder`, both relative to the root. `folder` is empty for the root.
pub(crate) fn resolve(folder: &str, relative: &str) -> String {
    let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the fenced blocks of a document. An unclosed block ends with the document.
fn blocks<'a>(path: &'a str, text: &'a str) -> Vec<Block<'a>> {
    let mut found: Vec<Block<'a>> = Vec::new();
    // The info string of the open block, and the offset of its text.
    let mut open: Option<(&str, usize)> = None;
    let (mut offset, mut above) = (0, "");
    for line in text.split_inclusive('\n') {
        let end = offset + line.len();
        let content = line.trim();
        let ticks = content.len() - content.trim_start_matches('`').len();
        let (fence, info) = content.split_at(ticks);
        match open {
            None if ticks >= 3 => {
                open = Some((fence, end));
                found.push(Block {
                    path,
                    line: line_of(text, offset),
                    info: info.trim(),
                    reason: reason_not_to_run(above),
                    text: text.get(end..).unwrap_or(""),
                });
            }
            Some((opening, start)) if ticks >= opening.len() && info.is_empty() => {
                open = None;
                if let Some(block) = found.last_mut() {
                    block.text = text.get(start..offset).unwrap_or("");
                }
            }
            _ => {}
        }
        (offset, above) = (end, line);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(page: &str) -> Vec<String> {
        let workspace = Workspace::of(&[
            ("docs/a.md", page),
            (
                "crates/b/src/lib.rs",
                "#![doc = include_str!(\"../README.md\")]",
            ),
            ("crates/b/README.md", page),
        ]);
        let view = workspace.view();
        let found = faults(&view, &blocks("docs/a.md", page));
        found.into_iter().map(|finding| finding.fault).collect()
    }

    #[test]
    fn finds_blocks_with_their_lines() {
        let page =
            "# a\n<!-- not run: no -->\n```sh\ncargo b\ncargo c\n```\ntext\n````text\n```\n````\n";
        let found = blocks("a.md", page);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].line, found[0].info), (3, "sh"));
        assert_eq!((found[0].reason, found[1].reason), (Some("no"), None));
        assert_eq!(found[0].text, "cargo b\ncargo c\n");
        assert_eq!((found[1].line, found[1].text), (8, "```\n"));
        assert_eq!(blocks("a.md", "```sh\ntrue").len(), 1);
    }

    #[test]
    fn each_block_is_run_compiled_or_gives_a_reason() {
        assert_eq!(
            planted("```sh\ntrue\n```\n<!-- not run: it loops -->\n```sh\na\n```\n"),
            [""; 0]
        );
        assert_eq!(planted("<!-- not run: -->\n```sh\ntrue\n```\n").len(), 1);
        assert_eq!(planted("```sh ignore\ntrue\n```\n").len(), 1);
        assert_eq!(planted("```\ntrue\n```\n").len(), 1);
        assert_eq!(planted("```bash\ntrue\n```\n").len(), 1);
        assert_eq!(planted("```rust\nfn a() {}\n```\n").len(), 1);
        assert_eq!(planted("```json\n{\"a\": [1, 2]}\n```\n"), [""; 0]);
        assert_eq!(planted("```json\n{\"a\": [1, 2}\n```\n"), ["is no JSON"]);
        assert_eq!(planted("```ini\n[Service]\n```\n").len(), 1);
        let page = "<!-- not run: it needs systemd -->\n```ini\n[Service]\n```\n";
        assert_eq!(planted(page), [""; 0]);
    }

    #[test]
    fn rust_in_an_included_page_is_compiled_by_doc_tests() {
        let page = "```rust\nfn a() {}\n```\n```\nfn b() {}\n```\n";
        let workspace = Workspace::of(&[
            (
                "crates/b/src/lib.rs",
                "#![doc = include_str!(\"../README.md\")]",
            ),
            ("crates/b/README.md", page),
        ]);
        let view = workspace.view();
        assert!(faults(&view, &blocks("crates/b/README.md", page)).is_empty());
    }

    #[test]
    fn a_block_that_fails_is_named() {
        let [good, bad] = ["true\ntest -f Cargo.toml\n", "false\ntrue\n"].map(|text| Block {
            path: "docs/a.md",
            line: 3,
            info: "sh",
            reason: None,
            text,
        });
        run_block(&good).unwrap();
        let failure = run_block(&bad).unwrap_err().to_string();
        assert!(failure.starts_with("docs/a.md:3: "), "{failure}");
    }

    #[test]
    fn documents_are_root_pages_docs_and_readmes() {
        for path in [
            "README.md",
            "docs/a.md",
            "crates/a/README.md",
            "fuzz/README.md",
        ] {
            assert!(is_document(path), "{path}");
        }
        for path in ["crates/a/notes.md", "docs/a.txt"] {
            assert!(!is_document(path), "{path}");
        }
    }
}
