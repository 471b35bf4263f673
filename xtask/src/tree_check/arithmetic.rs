//! Checks that clippy's overflow lint is on in all modules that handle a peer's numbers.

use crate::source::{Source, line_of};
use crate::tree::{Finding, View, is_test_file};

/// Modules that handle a peer's numbers. The module itself or one above it sets the lint; modules
/// below inherit it.
const ROOMS: [&str; 10] = [
    "crates/crypto/src",
    "crates/daemon/src",
    "crates/demo/src",
    "crates/hub/src",
    "crates/lockstep/src",
    "crates/matchmaker_core/src",
    "crates/relay_mesh/src",
    "crates/servicer/src",
    "crates/udp_proto/src",
    "crates/wire/src",
];

/// Attributes that set the lint. Tests may omit it, because an overflow fails a test.
const SETTINGS: [&str; 2] = [
    "#![warn(clippy::arithmetic_side_effects)]",
    "#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]",
];

/// Finds files in these modules without the lint, and files that allow it as a whole.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    check_with(view, &ROOMS)
}

fn check_with(view: &View<'_>, rooms: &[&str]) -> Vec<Finding> {
    let files = view.sources.iter().filter(|source| {
        !is_test_file(source.path) && rooms.iter().any(|room| is_in(source.path, room))
    });
    files
        .flat_map(|source| missing(view, source).into_iter().chain(lifted(source)))
        .collect()
}

/// Returns whether the file at `path` is the module of `room` or below it.
fn is_in(path: &str, room: &str) -> bool {
    path.strip_prefix(room)
        .is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

fn missing(view: &View<'_>, source: &Source<'_>) -> Option<Finding> {
    let is_set = owners(source.path).iter().any(|owner| {
        let mut sources = view.sources.iter();
        sources.any(|source| source.path == owner && sets(&source.shipped))
    });
    (!is_set).then(|| {
        let fault = "handles numbers of peers, and no module above it warns of \
                     clippy::arithmetic_side_effects";
        Finding::at(source.path, 1, fault)
    })
}

fn sets(code: &str) -> bool {
    SETTINGS.iter().any(|setting| code.contains(setting))
}

/// Returns the file at `path` and the files of its parent modules, up to the crate root.
fn owners(path: &str) -> Vec<String> {
    let mut owners = vec![path.to_owned()];
    let mut folder = path;
    while let Some((above, last)) = folder.rsplit_once('/') {
        if last == "src" {
            owners.extend([format!("{folder}/lib.rs"), format!("{folder}/main.rs")]);
            break;
        }
        owners.push(format!("{above}.rs"));
        folder = above;
    }
    owners
}

/// Finds a file that disables the lint as a whole.
fn lifted(source: &Source<'_>) -> Option<Finding> {
    let code = &source.shipped;
    let at = code.match_indices("#![expect(").find_map(|(at, _)| {
        let attribute = code.get(at..)?;
        let end = attribute.find(']')?;
        attribute
            .get(..end)?
            .contains("clippy::arithmetic_side_effects")
            .then_some(at)
    })?;
    let fault = "lifts clippy::arithmetic_side_effects for a whole file; expect it on the item";
    Some(Finding::at(source.path, line_of(code, at), fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    const SETS: &str = "#![warn(clippy::arithmetic_side_effects)]";
    const SETS_BUT_IN_TESTS: &str =
        "#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]";

    #[test]
    fn finds_files_of_a_room_that_no_module_guards() {
        let workspace = Workspace::of(&[
            ("crates/a/src/lib.rs", SETS_BUT_IN_TESTS),
            ("crates/a/src/one/two.rs", "fn f() {}"),
            ("crates/b/src/lib.rs", "mod frame; mod other;"),
            ("crates/b/src/other.rs", "fn f() {}"),
            ("crates/b/src/frame.rs", SETS),
            ("crates/b/src/frame/head.rs", "fn f() {}"),
            (
                "crates/b/src/link.rs",
                "mod inner; // #![warn(clippy::arithmetic_side_effects)]",
            ),
            ("crates/b/src/link/inner.rs", SETS),
            ("crates/b/src/link/tests.rs", "fn f() {}"),
            ("crates/b/src/link/outer.rs", "fn f() {}"),
        ]);
        let rooms = ["crates/a/src", "crates/b/src/frame", "crates/b/src/link"];
        let findings = check_with(&workspace.view(), &rooms);
        let paths: Vec<_> = findings.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(
            paths,
            ["crates/b/src/link.rs", "crates/b/src/link/outer.rs"]
        );
    }

    #[test]
    fn an_exception_may_not_cover_a_file() {
        let item = "#[expect(clippy::arithmetic_side_effects, reason = \"x\")]\nfn f() {}";
        let whole = "fn f() {}\n#![expect(\n    clippy::arithmetic_side_effects,\n)]";
        let workspace = Workspace::of(&[
            ("crates/a/src/lib.rs", SETS),
            ("crates/a/src/item.rs", item),
            ("crates/a/src/whole.rs", whole),
        ]);
        let findings = check_with(&workspace.view(), &["crates/a/src"]);
        let lines: Vec<_> = findings
            .iter()
            .map(|it| (it.path.as_str(), it.line))
            .collect();
        assert_eq!(lines, [("crates/a/src/whole.rs", 2)]);
    }
}
