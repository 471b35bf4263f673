//! The tables of lockstep in the page.

use super::super::goal::Verdict;
use super::super::row::Rows;
use super::super::table::{Tables, title, values};
use super::goal::{Judgement, MESH, PEER, SERVER};

/// The machine that was measured on.
#[derive(Debug)]
pub(super) struct Machine {
    /// Name of the processor.
    pub(super) processor: String,
    /// Load average before and after.
    pub(super) load: [String; 2],
    /// Each peer with its version.
    pub(super) versions: Vec<String>,
    /// Rounds in which CPU time was taken.
    pub(super) rounds: u32,
}

/// The marks around the summary.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers lockstep: written by cargo xtask peers lockstep -->",
    "<!-- peers lockstep: end -->",
];
/// Columns, ours first.
const STACKS: [&str; 4] = [SERVER, MESH, PEER, "fortress"];
/// Packages with a version in the tables.
pub(super) const PACKAGES: [&str; 2] = ["ggrs", "fortress-rollback"];

/// Cases and metrics of the summary, in its order.
const SUMMARY: [[&str; 2]; 13] = [
    ["p2", "cpu_us_per_frame"],
    ["p4", "cpu_us_per_frame"],
    ["p8", "cpu_us_per_frame"],
    ["p16", "cpu_us_per_frame"],
    ["p8/sync-test", "cpu_us_per_frame"],
    ["p8", "server_ns_per_player_tick"],
    ["p8", "up_bytes_per_s"],
    ["p8", "down_bytes_per_s"],
    ["p8", "latency_ms"],
    ["p8/client-window", "latency_ms"],
    ["p8/loss5", "stalled_ms_per_s"],
    ["p4/desync", "desync_p50_ms"],
    ["p4/start", "first_step_p50_ms"],
];

/// The summary and the whole of what was measured.
pub(super) fn tables(rows: &Rows, judged: &[Judgement], machine: &Machine) -> Tables<'static> {
    let Machine {
        processor,
        load: [before, after],
        versions,
        rounds,
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let head = vec![
        format!(
            "{processor}, load average {before} before and {after} after; CPU times are medians of \
             {rounds} interleaved rounds, all else is a minute of virtual time. {}.",
            versions.join(", ")
        ),
        String::new(),
        format!(
            "Of {} lines of goals {} are met, {} are missed, {} are not measured here.",
            judged.len(),
            count(Some(Verdict::Met)),
            count(Some(Verdict::Missed)),
            count(None)
        ),
        String::new(),
    ];
    let goals = |is_listed: fn(&Judgement) -> bool| {
        let mut lines = vec![
            format!("| | what | goal | measured | {PEER} | |"),
            "|---|---|---|---|---|---|".to_owned(),
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
        vec![title("lockstep")],
        head,
        goals(|_| true),
        values(rows, &STACKS, None),
        vec![String::new()],
    ];
    Tables {
        marks: MARKS,
        summary: summary.concat().join("\n"),
        results: "benches/results/lockstep.md",
        all: all.concat().join("\n"),
    }
}

fn goal_line(judgement: &Judgement) -> String {
    let Judgement {
        id,
        what,
        aim,
        measured,
        peer,
        ..
    } = judgement;
    let verdict = judgement.verdict_name();
    format!("| {id} | {what} | {aim} | {measured} | {peer} | {verdict} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_every_goal_has_its_line() {
        let rows = Rows::of(&[
            (SERVER, "p8", "cpu_us_per_frame", 2.0),
            (PEER, "p8", "cpu_us_per_frame", 58.6),
        ]);
        let judgement = |verdict, measured: &str| Judgement {
            id: "G2",
            what: "what".to_owned(),
            aim: "less".to_owned(),
            measured: measured.to_owned(),
            peer: "58.6".to_owned(),
            verdict,
        };
        let judged = [
            judgement(Some(Verdict::Missed), "29.3 times less"),
            judgement(None, "not measured"),
        ];
        let machine = Machine {
            processor: "a processor".to_owned(),
            load: ["1".to_owned(), "2".to_owned()],
            versions: vec!["ggrs 0.13.0".to_owned()],
            rounds: 11,
        };
        let text = tables(&rows, &judged, &machine).all;
        for line in [
            "Of 2 lines of goals 0 are met, 1 are missed, 1 are not measured here.",
            "| G2 | what | less | 29.3 times less | 58.6 | missed |",
            "| G2 | what | less | not measured | 58.6 |  |",
            "| p8 | `cpu_us_per_frame` | 2.00 |  | 58.6 |  |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
