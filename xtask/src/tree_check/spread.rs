//! Checks that the inherent impls of a type are in at most three files of its crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{closing, leading_name, words};
use crate::tree::{Finding, View, crate_of};

/// Maximum files with inherent impls of one type.
const FILES_MAX: usize = 3;

/// Exceptions: crate and type. Remove an entry when its type is split.
const WIDER: [(&str, &str); 5] = [
    ("lockstep", "MatchServer"),
    ("lockstep", "MeshPeer"),
    ("relay_mesh", "Node"),
    ("udp_proto", "Endpoint"),
    ("udp_proto", "Session"),
];

/// Finds types over the limit, and unneeded exceptions.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for source in &view.sources {
        let Some(name) = crate_of(source.path) else {
            continue;
        };
        for found in inherent(&source.shipped) {
            files.entry((name, found)).or_default().insert(source.path);
        }
    }
    let mut needed = Vec::new();
    let mut findings = Vec::new();
    for (of, files) in files {
        if files.len() <= FILES_MAX {
            continue;
        }
        if WIDER.contains(&of) {
            needed.push(of);
            continue;
        }
        let fault = format!(
            "{} has impls in {} files, over the limit of {FILES_MAX}",
            of.1,
            files.len()
        );
        let path = files.first().copied().unwrap_or_default();
        findings.push(Finding::at(path, 1, fault));
    }
    findings.extend(super::unneeded(view, &WIDER, &needed, file!()));
    findings
}

/// Returns the types with inherent impls in `code`.
fn inherent(code: &str) -> impl Iterator<Item = &str> {
    words(code, "impl").filter_map(|start| {
        // An `impl Trait` in a signature is not at the start of a line.
        let before = code.get(..start)?;
        if !(before.is_empty() || before.ends_with('\n')) {
            return None;
        }
        let mut head = code.get(start + "impl".len()..)?;
        head = head.get(..head.find('{')?)?;
        if words(head, "for").any(|at| !head.get(at..).is_some_and(|it| it.starts_with("for<"))) {
            return None;
        }
        let name = leading_name(after_generics(head)?);
        (!name.is_empty()).then_some(name)
    })
}

/// Returns the text after the generic parameters of an impl.
fn after_generics(head: &str) -> Option<&str> {
    if !head.starts_with('<') {
        return Some(head.trim_start());
    }
    let mut depth = 0_i32;
    let mut before = ' ';
    for (offset, char) in head.char_indices() {
        match char {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            '(' | '[' => {
                closing(head, offset)?;
            }
            _ => {}
        }
        before = char;
        if depth == 0 {
            return head.get(offset + 1..).map(str::trim_start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_a_type_with_impls_in_four_files() {
        let own = "impl<P: A<B>, F: Fn(u8) -> u8> Wide<P> {}\nimpl Narrow {}\n";
        let of_trait = "impl Display for Narrow {}\nfn f() -> impl Narrow {}\n";
        let workspace = Workspace::of(&[
            ("crates/a/src/a.rs", own),
            ("crates/a/src/b.rs", own),
            ("crates/a/src/c.rs", own),
            ("crates/a/src/d.rs", "impl Wide<u8> {}\n"),
            ("crates/a/src/e.rs", of_trait),
            ("crates/a/src/a/tests.rs", own),
            ("crates/b/src/a.rs", own),
        ]);
        let findings = check(&workspace.view());
        let faults: Vec<_> = findings.iter().map(|it| it.fault.as_str()).collect();
        assert_eq!(faults, ["Wide has impls in 4 files, over the limit of 3"]);
    }
}
