//! The tables of `relay_mesh` in the page.

use super::super::goal::{Digits, OURS, Verdict};
use super::super::row::Rows;
use super::goal::{Judgement, PLAIN};
use super::shown::{SHOWN, Shown};

/// What was measured on.
#[derive(Debug)]
pub(super) struct Machine {
    /// Name of the processor.
    pub(super) processor: String,
    /// Load average before and after.
    pub(super) load: [String; 2],
    /// Rounds in which CPU time was taken.
    pub(super) rounds: u32,
}

/// What the table stands between.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers relay: written by cargo xtask peers relay -->",
    "<!-- peers relay: end -->",
];
/// Columns, ours first.
const STACKS: [&str; 3] = [OURS, PLAIN, "mmsg"];

/// Goals and what came of them, and then every value.
pub(super) fn markdown(rows: &Rows, judged: &[Judgement], machine: &Machine) -> String {
    let Machine {
        processor,
        load: [before, after],
        rounds,
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let mut lines = vec![
        format!(
            "{processor}, load average {before} before and {after} after; CPU times are medians of \
             {rounds} interleaved rounds."
        ),
        String::new(),
        format!(
            "Of {} lines of goals {} are met, {} are missed, {} are not measured.",
            judged.len(),
            count(Some(Verdict::Met)),
            count(Some(Verdict::Missed)),
            count(None)
        ),
        String::new(),
        "| | what | goal | measured | |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(judged.iter().map(|judgement| {
        let Judgement {
            id,
            what,
            aim,
            measured,
            ..
        } = judgement;
        let verdict = judgement.verdict_name();
        format!("| {id} | {what} | {aim} | {measured} | {verdict} |")
    }));
    lines.push(String::new());
    lines.push("| | what | shown by |".to_owned());
    lines.push("|---|---|---|".to_owned());
    lines.extend(SHOWN.iter().map(Shown::cells));
    lines.push(String::new());
    lines.push(format!("| case | metric | {} |", STACKS.join(" | ")));
    lines.push(format!("|---|---|{}", "---|".repeat(STACKS.len())));
    lines.extend(rows.by_case().into_iter().map(|([case, metric], values)| {
        let cells = STACKS.map(|stack| {
            values
                .get(stack)
                .map_or_else(String::new, |value| Digits(*value).to_string())
        });
        format!("| {case} | `{metric}` | {} |", cells.join(" | "))
    }));
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::goal::judge;
    use super::*;

    #[test]
    fn each_value_has_a_cell_and_each_goal_a_line() {
        let rows = Rows::of(&[
            ("plain", "sealed100", "cpu_ns_per_packet", 2_000.0),
            ("tickwire", "sealed100", "cpu_ns_per_packet", 1_000.0),
        ]);
        let machine = Machine {
            processor: "a processor".to_owned(),
            load: ["1".to_owned(), "2".to_owned()],
            rounds: 7,
        };
        let text = markdown(&rows, &judge(&rows), &machine);
        assert!(text.contains("| sealed100 | `cpu_ns_per_packet` | 1000 | 2000 |  |"));
        assert!(text.contains("| F2 | sealed100 `cpu_ns_per_packet` | at most 1.3 times plain | 0.500 times plain | met |"));
        assert!(text.contains(
            "| F3 | trunk100 `cpu_ns_per_packet` | at most 0.15 times plain | not measured |  |"
        ));
        assert!(text.contains("1 are met, 0 are missed, 51 are not measured"));
        assert!(text.contains("| A2 | no old document is taken, after a restart neither | `pgx7_mesh_a2_any_old_config_is_refused_after_restart_too` |"));
    }
}
