//! Checks that a struct with private fields has at most 15 fields.
//!
//! Structs with only public fields are data (settings, statistics, reports) and do not count.

use crate::source::{closing, leading_name, line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Maximum fields of a struct with state.
const FIELDS_MAX: usize = 15;

/// Exceptions: crate and struct. Remove an entry when its struct is split.
const WIDER: [(&str, &str); 9] = [
    ("hub", "Hub"),
    ("hub", "HubLink"),
    ("lockstep", "HostedPeer"),
    ("lockstep", "MatchServer"),
    ("lockstep", "MeshPeer"),
    ("lockstep", "Session"),
    ("relay_mesh", "Node"),
    ("udp_proto", "Endpoint"),
    ("udp_proto", "Session"),
];

/// Finds structs over the limit, and unneeded exceptions.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = Vec::new();
    for source in &view.sources {
        let Some(name) = crate_of(source.path) else {
            continue;
        };
        for (found, offset, fields) in structs(&source.shipped) {
            if fields <= FIELDS_MAX {
                continue;
            }
            if WIDER.contains(&(name, found)) {
                needed.push((name, found));
                continue;
            }
            let fault = format!("{found} has {fields} fields, over the limit of {FIELDS_MAX}");
            let line = line_of(&source.shipped, offset);
            findings.push(Finding::at(source.path, line, fault));
        }
    }
    findings.extend(super::unneeded(view, &WIDER, &needed, file!()));
    findings
}

/// Returns the structs with a private field: name, offset and number of fields.
fn structs(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for start in words(code, "struct") {
        let after = code.get(start..).unwrap_or("");
        let name = leading_name(after.trim_start_matches("struct").trim_start());
        let Some(open) = after.find(['{', ';', '(']).map(|at| start + at) else {
            continue;
        };
        let Some(end) = closing(code, open) else {
            continue;
        };
        let body = code.get(open + 1..end.saturating_sub(1)).unwrap_or("");
        if name.is_empty() || !code.get(open..).unwrap_or("").starts_with('{') {
            continue;
        }
        let fields: Vec<_> = fields(body).collect();
        if fields.iter().any(|field| !field.starts_with("pub ")) {
            found.push((name, start, fields.len()));
        }
    }
    found
}

/// Returns the fields in a struct's body, without attributes.
fn fields(body: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let mut before = ' ';
    body.split(move |char| {
        match char {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = char;
        char == ',' && depth == 0
    })
    .map(without_attributes)
    .filter(|field| field.contains(':'))
}

fn without_attributes(field: &str) -> &str {
    let mut rest = field.trim();
    while rest.starts_with("#[") {
        let end = closing(rest, 1).unwrap_or(rest.len());
        rest = rest.get(end..).unwrap_or("").trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    fn a_struct(name: &str, fields: usize, visibility: &str) -> String {
        let one = |number| {
            format!("#[a(b, c)]\n{visibility}f{number}: Map<u8, fn(u8, u8) -> [u8; 2]>,\n")
        };
        let fields: String = (0..fields).map(one).collect();
        format!("pub struct {name}<T: A, const N: usize> where T: B {{\n{fields}}}\n")
    }

    #[test]
    fn finds_structs_with_too_many_fields() {
        let text = format!(
            "{}{}{}struct Unit;\nstruct Pair(u8, u8);\n",
            a_struct("Full", 15, ""),
            a_struct("Over", 16, "pub(crate) "),
            a_struct("Data", 40, "pub "),
        );
        let workspace = Workspace::of(&[("crates/a/src/a.rs", &text)]);
        let findings = check(&workspace.view());
        let faults: Vec<_> = findings.iter().map(|it| it.fault.as_str()).collect();
        assert_eq!(faults, ["Over has 16 fields, over the limit of 15"]);
    }
}
