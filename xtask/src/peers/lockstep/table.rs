//! The tables of lockstep in the page.

use super::super::goal::{Digits, Verdict};
use super::super::row::Rows;
use super::goal::{Judgement, MESH, PEER, SERVER};

/// What was measured on.
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

/// What the table stands between.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers lockstep: written by cargo xtask peers lockstep -->",
    "<!-- peers lockstep: end -->",
];
/// Columns, ours first.
const STACKS: [&str; 4] = [SERVER, MESH, PEER, "fortress"];
/// Packages whose versions are told.
pub(super) const PACKAGES: [&str; 2] = ["ggrs", "fortress-rollback"];

/// Goals and what came of them, and then every value.
pub(super) fn markdown(rows: &Rows, judged: &[Judgement], machine: &Machine) -> String {
    let Machine {
        processor,
        load: [before, after],
        versions,
        rounds,
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let mut lines = vec![
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
        format!("| | what | goal | measured | {PEER} | |"),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(judged.iter().map(|judgement| {
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
    }));
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
        let text = markdown(&rows, &judged, &machine);
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
