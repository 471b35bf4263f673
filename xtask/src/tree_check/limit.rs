//! Checks that a test names every limit.

use crate::source::{closing, has_word, leading_name, line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Finds public fields of `Config` and `Limits` structs that no test of their crate names.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &view.sources {
        // A simulator's settings are not limits, because it has no hostile input.
        let Some(name) = crate_of(source.path).filter(|name| *name != "netsim") else {
            continue;
        };
        for (field, offset) in limits(&source.shipped) {
            // The tests of `cli` run the daemon's processes.
            let program = (name == "daemon").then_some("cli");
            let mut tested = [Some(name), program].into_iter().flatten();
            if !tested.any(|by| view.sources_of(by).any(|it| has_word(&it.tests, field))) {
                findings.push(Finding::at(
                    source.path,
                    line_of(&source.shipped, offset),
                    format!("no test of {name} names the limit `{field}`"),
                ));
            }
        }
    }
    findings
}

/// Returns the public fields of limit structs, each with its offset.
fn limits(code: &str) -> Vec<(&str, usize)> {
    let mut fields = Vec::new();
    for start in words(code, "pub struct") {
        let after = code.get(start..).unwrap_or("");
        let name = leading_name(after.trim_start_matches("pub struct").trim_start());
        if !(name.ends_with("Config") || name.ends_with("Limits")) {
            continue;
        }
        // A tuple struct or one without fields ends before any brace opens.
        let Some(open) = after.find(['{', ';']).map(|at| start + at) else {
            continue;
        };
        let Some(end) = closing(code, open) else {
            continue;
        };
        let body = code.get(open..end).unwrap_or("");
        if !body.starts_with('{') {
            continue;
        }
        fields.extend(words(body, "pub").filter_map(|at| {
            let field = leading_name(body.get(at + 3..)?.trim_start());
            (!field.is_empty()).then_some((field, open + at))
        }));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    const CONFIG: &str = "/// a\npub struct Config {\n    /// b\n    pub sessions_max: u32,\n    \
                          pub idle_timeout: Duration,\n    pub(crate) own: u8,\n}\n\
                          pub struct Marker;\npub struct Other { pub free: u8 }\n\
                          pub struct MailLimits { pub mails_max: u8 }\n";

    #[test]
    fn finds_limits_that_no_test_names() {
        let workspace = Workspace::of(&[
            ("crates/a/src/config.rs", CONFIG),
            (
                "crates/a/tests/it/bounds.rs",
                "fn t() { config.sessions_max = 1; } // idle_timeout",
            ),
            (
                "crates/b/tests/it/bounds.rs",
                "fn t() { config.idle_timeout }",
            ),
            (
                "crates/a/src/mail.rs",
                "#[cfg(test)]\nmod tests { fn t() { limits.mails_max } }",
            ),
        ]);
        let findings = check(&workspace.view());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].line, 5);
        assert!(findings[0].fault.contains("idle_timeout"), "{findings:?}");
    }

    #[test]
    fn only_public_fields_of_limit_structs_count() {
        let names: Vec<_> = limits(CONFIG).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["sessions_max", "idle_timeout", "mails_max"]);
        assert!(limits("pub struct Config;\nfn a() { b { pub c } }").is_empty());
    }
}
