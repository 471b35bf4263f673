//! Faults that are known and written down: `xtask/debts.txt` names them, and may only grow shorter.

use crate::tree::{Finding, View};

/// Where they stand: a line each, `path: fault` as the check prints it, without the line's number.
const LEDGER: &str = "xtask/debts.txt";

/// Takes the known faults out, and finds those that are mended but still stand in the list.
pub(super) fn settle(view: &View<'_>, findings: Vec<Finding>) -> Vec<Finding> {
    let ledger = view.files.get(LEDGER).map_or("", String::as_str);
    let debts: Vec<(usize, &str)> = ledger
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let is_owed = |finding: &Finding| {
        let text = format!("{}: {}", finding.path, finding.fault);
        debts.iter().any(|(_, line)| *line == text)
    };
    let paid = debts.iter().filter(|(_, line)| {
        !findings
            .iter()
            .any(|finding| format!("{}: {}", finding.path, finding.fault) == *line)
    });
    let paid: Vec<Finding> = paid
        .map(|(index, line)| {
            let fault = format!("`{line}` is mended: take it off the list");
            Finding::at(LEDGER, index.saturating_add(1), fault)
        })
        .collect();
    findings
        .into_iter()
        .filter(|finding| !is_owed(finding))
        .chain(paid)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn a_debt_is_passed_over_until_it_is_paid_and_then_must_go() {
        let workspace = Workspace::of(&[(LEDGER, "# why\na.rs: is too long\nb.rs: is gone\n")]);
        let findings = vec![
            Finding::at("a.rs", 7, "is too long"),
            Finding::at("c.rs", 1, "is too long"),
        ];
        let left: Vec<String> = settle(&workspace.view(), findings)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            left,
            [
                "c.rs:1: is too long",
                "xtask/debts.txt:3: `b.rs: is gone` is mended: take it off the list"
            ]
        );
    }
}
