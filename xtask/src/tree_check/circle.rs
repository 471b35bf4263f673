//! Checks that the top-level modules of a crate have no import cycles.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, closing, leading_name, line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Known cycles: crate and one module of each. Remove an entry when its cycle is broken.
const STANDING: [(&str, &str); 0] = [];

/// Imports of each module: file and line of the first one.
type Imports<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (&'a str, usize)>>;

/// Finds cycles and reports each once.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = Vec::new();
    for folder in view.crate_folders() {
        let name = folder.trim_start_matches("crates/");
        let imports = imports(view, name);
        let mut seen = BTreeSet::new();
        for module in imports.keys().copied() {
            let circle: BTreeSet<_> = reachable(&imports, module)
                .into_iter()
                .filter(|other| reachable(&imports, other).contains(module))
                .collect();
            if circle.len() < 2 || !seen.is_disjoint(&circle) {
                continue;
            }
            seen.extend(circle.iter().copied());
            if let Some(known) = STANDING
                .iter()
                .find(|(of, one)| *of == name && circle.contains(one))
            {
                needed.push(*known);
                continue;
            }
            let names: Vec<_> = circle.iter().copied().collect();
            let place = imports
                .get(module)
                .and_then(|of| of.iter().find(|(to, _)| circle.contains(*to)));
            let (path, line) = place.map_or((folder, 1), |(_, place)| *place);
            let fault = format!(
                "modules import each other in a circle: {}",
                names.join(", ")
            );
            findings.push(Finding::at(path, line, fault));
        }
    }
    findings.extend(super::unneeded(view, &STANDING, &needed, file!()));
    findings
}

/// Returns the imports of each top-level module of a crate.
fn imports<'a>(view: &'a View<'_>, name: &'a str) -> Imports<'a> {
    let mut imports = Imports::new();
    let sources = || {
        view.sources.iter().filter_map(move |source| {
            let inside = source.path.strip_prefix("crates/")?.strip_prefix(name)?;
            let inside = inside.strip_prefix("/src/")?;
            let module = inside.split(['/', '.']).next()?;
            (crate_of(source.path) == Some(name)).then_some((module, inside, source))
        })
    };
    let is_root = |module: &str| module == "lib" || module == "main";
    for (module, ..) in sources().filter(|(module, ..)| !is_root(module)) {
        imports.entry(module).or_default();
    }
    let modules: BTreeSet<_> = imports.keys().copied().collect();
    for (module, inside, source) in sources().filter(|(module, ..)| !is_root(module)) {
        for (other, offset) in named(source, inside.matches('/').count() + 1) {
            if other != module && modules.contains(other) {
                let place = (source.path, line_of(&source.shipped, offset));
                let of = imports.entry(module).or_default();
                of.entry(other).or_insert(place);
            }
        }
    }
    imports
}

/// Returns the names after `crate::`, and after as many `super::` as lead to the root from `depth`.
fn named<'a>(source: &'a Source<'_>, depth: usize) -> Vec<(&'a str, usize)> {
    let code = source.shipped.as_str();
    let mut found = Vec::new();
    let roots = words(code, "crate::").map(|at| (at, at + "crate::".len()));
    let supers = words(code, "super::").filter_map(|at| {
        // Only the first `super::` of a sequence counts.
        let is_first = !code.get(..at)?.ends_with("super::");
        let row = code.get(at..)?;
        let len = row.len() - row.trim_start_matches("super::").len();
        (is_first && len == depth * "super::".len()).then_some((at, at + len))
    });
    for (at, start) in roots.chain(supers) {
        let rest = code.get(start..).unwrap_or("");
        if rest.starts_with('{') {
            let group = rest
                .get(1..closing(rest, 0).unwrap_or(rest.len()))
                .unwrap_or("");
            found.extend(members(group).map(|name| (name, at)));
        } else {
            found.push((leading_name(rest), at));
        }
    }
    found
}

/// Returns the first name of each member of a group import.
fn members(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    group
        .split(move |char| {
            match char {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            char == ',' && depth == 0
        })
        .map(|member| leading_name(member.trim_start()))
}

fn reachable<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(module) = open.pop() {
        for other in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*other) {
                open.push(other);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Workspace::of(files);
        let findings = check(&workspace.view());
        findings.into_iter().map(|it| it.to_string()).collect()
    }

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "");

    #[test]
    fn finds_a_circle_through_folders_groups_and_super() {
        let found = faults(&[
            MANIFEST,
            ("crates/a/src/lib.rs", "mod one; mod three; mod two;"),
            ("crates/a/src/one.rs", "mod inner;"),
            ("crates/a/src/one/inner.rs", "\nuse super::super::two::Two;"),
            ("crates/a/src/two.rs", "use crate::{three::{A, B}, C};"),
            ("crates/a/src/three.rs", "fn f() { crate::one::g() }"),
        ]);
        let fault = "crates/a/src/one/inner.rs:2: modules import each other in a circle: one, \
                     three, two";
        assert_eq!(found, [fault]);
    }

    #[test]
    fn one_direction_tests_and_the_own_module_are_no_circle() {
        let found = faults(&[
            MANIFEST,
            (
                "crates/a/src/one.rs",
                "use crate::two::Two; use crate::one::inner;",
            ),
            (
                "crates/a/src/one/inner.rs",
                "use super::two; mod super_two;",
            ),
            (
                "crates/a/src/two.rs",
                "#[cfg(test)]\nmod tests { use crate::one::One; }",
            ),
            ("crates/a/src/two/tests.rs", "use crate::one::One;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
