//! The picture of the crates and their imports, as a Mermaid graph made from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::member::{Kind, Member};

/// Which crate imports which, and whether only with a feature.
type Imports<'m> = BTreeMap<&'m str, BTreeMap<&'m str, bool>>;

/// Draws the members below `crates/`. An import that others imply is left out.
pub(crate) fn draw(members: &[Member]) -> String {
    let imports = imports(members);
    let mut text = "```mermaid\ngraph RL\n".to_owned();
    for (name, of) in &imports {
        for (imported, is_optional) in of {
            let is_implied = of
                .keys()
                .any(|other| other != imported && reaches(&imports, other, imported));
            if !is_implied {
                let arrow = if *is_optional { "-.->" } else { "-->" };
                // Writing to a string cannot fail.
                writeln!(text, "  {name} {arrow} {imported}").ok();
            }
        }
    }
    text + "```\n"
}

fn imports(members: &[Member]) -> Imports<'_> {
    let crates = || members.iter().filter(|it| it.folder.starts_with("crates/"));
    let names: BTreeSet<_> = crates().map(Member::name).collect();
    let of = |member: &'_ Member| {
        let normal = member
            .dependencies
            .iter()
            .filter(|it| it.kind == Kind::Normal);
        normal
            .filter_map(|it| {
                let name = it.folder.as_deref()?.rsplit('/').next()?;
                names.get(name).map(|name| (*name, it.optional))
            })
            .collect()
    };
    crates().map(|member| (member.name(), of(member))).collect()
}

/// Whether `from` imports `to`, over any number of crates.
fn reaches(imports: &Imports<'_>, from: &str, to: &str) -> bool {
    let of = imports.get(from);
    of.is_some_and(|of| of.keys().any(|it| *it == to || reaches(imports, it, to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Dependency;

    fn member(folder: &str, imports: &[(&str, bool)]) -> Member {
        let dependency = |(folder, optional): &(&str, bool)| Dependency {
            package: "any".to_owned(),
            kind: Kind::Normal,
            optional: *optional,
            folder: Some((*folder).to_owned()),
        };
        Member {
            package: "any".to_owned(),
            folder: folder.to_owned(),
            dependencies: imports.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn implied_imports_and_other_folders_are_left_out() {
        let text = draw(&[
            member("crates/a", &[]),
            member("crates/b", &[("crates/a", false)]),
            member(
                "crates/c",
                &[("crates/a", false), ("crates/b", true), ("benches", false)],
            ),
            member("benches", &[("crates/a", false)]),
        ]);
        assert_eq!(text, "```mermaid\ngraph RL\n  b --> a\n  c -.-> b\n```\n");
    }
}
