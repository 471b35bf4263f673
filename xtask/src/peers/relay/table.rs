//! The tables of `relay_mesh` in the page.

use super::super::goal::{OURS, Verdict};
use super::super::row::Rows;
use super::super::table::{Tables, title, values};
use super::goal::{Judgement, PLAIN};
use super::shown::{SHOWN, Shown};

/// The machine that was measured on.
#[derive(Debug)]
pub(super) struct Machine {
    /// Name of the processor.
    pub(super) processor: String,
    /// Load average before and after.
    pub(super) load: [String; 2],
    /// Rounds in which CPU time was taken.
    pub(super) rounds: u32,
}

/// The marks around the summary.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers relay: written by cargo xtask peers relay -->",
    "<!-- peers relay: end -->",
];
/// Columns, ours first.
const STACKS: [&str; 3] = [OURS, PLAIN, "mmsg"];

/// Cases and metrics of the summary, in its order.
const SUMMARY: [[&str; 2]; 12] = [
    ["hop100", "cpu_ns_per_packet"],
    ["sealed100", "cpu_ns_per_packet"],
    ["spread_sealed100", "cpu_ns_per_packet"],
    ["trunk100", "cpu_ns_per_packet"],
    ["clients1000", "cpu_ns_per_packet"],
    ["paced_sealed100", "latency_us_p50"],
    ["flows", "bytes_per_label"],
    ["routes", "routes_n1000/ms"],
    ["kill_dup", "lost"],
    ["kill_shadow", "gap_ms_p99"],
    ["kill_single", "gap_ms_p99"],
    ["control1000", "bytes_per_s"],
];

/// The summary and the whole of what was measured.
pub(super) fn tables(rows: &Rows, judged: &[Judgement], machine: &Machine) -> Tables<'static> {
    let Machine {
        processor,
        load: [before, after],
        rounds,
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let head = vec![
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
    ];
    let goals = |is_listed: fn(&Judgement) -> bool| {
        let mut lines = vec![
            "| | what | goal | measured | |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(judged.iter().filter(|it| is_listed(it)).map(goal_line));
        lines.push(String::new());
        lines
    };
    let summary = [
        head.clone(),
        values(rows, &STACKS, Some(&SUMMARY)),
        vec![String::new()],
        goals(|it| it.verdict == Some(Verdict::Missed)),
    ];
    let all = [
        vec![title("relay")],
        head,
        goals(|_| true),
        vec![
            "| | what | shown by |".to_owned(),
            "|---|---|---|".to_owned(),
        ],
        SHOWN.iter().map(Shown::cells).collect(),
        vec![String::new()],
        values(rows, &STACKS, None),
        vec![String::new()],
    ];
    Tables {
        marks: MARKS,
        summary: summary.concat().join("\n"),
        results: "benches/results/relay.md",
        all: all.concat().join("\n"),
    }
}

fn goal_line(judgement: &Judgement) -> String {
    let Judgement {
        id,
        what,
        aim,
        measured,
        ..
    } = judgement;
    let verdict = judgement.verdict_name();
    format!("| {id} | {what} | {aim} | {measured} | {verdict} |")
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
        let Tables {
            summary, all: text, ..
        } = tables(&rows, &judge(&rows), &machine);
        assert!(summary.contains("| sealed100 | `cpu_ns_per_packet` | 1000 | 2000 |  |"));
        assert!(!summary.contains("| F2 |"));
        assert!(text.contains("| sealed100 | `cpu_ns_per_packet` | 1000 | 2000 |  |"));
        assert!(text.contains("| F2 | sealed100 `cpu_ns_per_packet` | at most 1.3 times plain | 0.500 times plain | met |"));
        assert!(text.contains(
            "| F3 | trunk100 `cpu_ns_per_packet` | at most 0.15 times plain | not measured |  |"
        ));
        assert!(text.contains("1 are met, 0 are missed, 51 are not measured"));
        assert!(text.contains("| A2 | no old document is taken, after a restart neither | `pgx7_mesh_a2_any_old_config_is_refused_after_restart_too` |"));
    }
}
