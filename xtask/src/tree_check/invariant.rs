//! Checks that each invariant of TWP/1 has a row in `docs/invariants.md` and a test named after its
//! id.

use crate::tree::{Finding, View};

/// The page with the rows. [`promise`](super::promise) checks that the tests exist.
const PAGE: &str = "docs/invariants.md";
/// Letters of the ids, and the number of ids per letter: 44 in total.
const IDS: [(char, usize); 7] = [
    ('K', 12),
    ('R', 5),
    ('A', 7),
    ('M', 7),
    ('T', 8),
    ('F', 4),
    ('D', 1),
];

/// Finds ids without a row, and rows without a test `twp_` that has the id in its name.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    // Another workspace may have other protocols.
    let Some(text) = view.files.get(PAGE) else {
        return Vec::new();
    };
    let ids = IDS
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")));
    let missing = ids.filter(|id| {
        let head = format!("| {id} |");
        let row = text.lines().find(|line| line.starts_with(&head));
        let part = format!("_{}_", id.to_lowercase());
        row.is_none_or(|row| {
            let mut names = row.split('`').skip(1).step_by(2);
            !names.any(|name| name.contains("twp_") && name.contains(&part))
        })
    });
    missing
        .map(|id| Finding::at(PAGE, 1, format!("{id} has no test with its id in the name")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn an_invariant_without_a_row_or_a_test_of_its_name_is_found() {
        let row = |id: &str, test: &str| format!("| {id} | it holds | `{test}` |\n");
        let all: String = IDS
            .iter()
            .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")))
            .map(|id| row(&id, &format!("it::sim_twp_{}_holds", id.to_lowercase())))
            .collect();
        let faults = |page: &str| {
            let workspace = Workspace::of(&[(PAGE, page)]);
            check(&workspace.view()).len()
        };
        assert_eq!(faults(&all), 0);
        assert_eq!(faults(""), 44);
        let wrong = all.replace("sim_twp_k1_holds", "sim_twp_k11_holds");
        assert_eq!(faults(&wrong), 1, "K11 is not K1");
        let none = all.replace(&row("D1", "it::sim_twp_d1_holds"), "| D1 | it holds | |\n");
        assert_eq!(faults(&none), 1);
        assert!(check(&Workspace::of(&[]).view()).is_empty());
    }
}
