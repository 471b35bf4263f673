//! The tables that `peers` writes.

use super::goal::{Digits, Judgement, OURS, Verdict};
use super::row::Rows;

/// The machine that was measured on.
#[derive(Debug)]
pub(super) struct Machine {
    /// Name of the processor.
    pub(super) processor: String,
    /// Load average before and after.
    pub(super) load: [String; 2],
    /// Each peer with its version.
    pub(super) versions: Vec<String>,
    /// Rounds in memory and over sockets.
    pub(super) rounds: [u32; 2],
}

/// The marks around the summary of `peers udp`.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers udp: written by cargo xtask peers udp -->",
    "<!-- peers udp: end -->",
];
/// Columns: ours first, the unencrypted peer and the floor last.
const STACKS: [&str; 8] = [
    OURS,
    "tickwire-woken",
    "quinn-proto",
    "quinn",
    "quinn-ticked",
    "renet",
    "enet",
    "floor",
];
/// Packages with a version in the tables.
pub(super) const PACKAGES: [&str; 7] = [
    "quinn-proto",
    "quinn",
    "renet",
    "renet_netcode",
    "rusty_enet",
    "rustls",
    "ring",
];

/// Puts `table` between the marks of `page`; `None` if it does not have both, in order.
pub(super) fn replace(page: &str, [begin, end]: [&str; 2], table: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{table}\n{end}{after}"))
}

/// What a run of `peers` writes.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    /// The marks in the page that the summary goes between.
    pub(super) marks: [&'a str; 2],
    /// Machine, number of goals met, the most telling values, and the missed goals.
    pub(super) summary: String,
    /// The file for all goals and values.
    pub(super) results: &'a str,
    /// All goals and values.
    pub(super) all: String,
}

/// Cases and metrics of the summary, in its order.
const SUMMARY: [[&str; 2]; 12] = [
    ["u100", "cpu_ns_per_message"],
    ["u1000", "cpu_ns_per_message"],
    ["packed32x100", "cpu_ns_per_message"],
    ["frag64k", "cpu_ns_per_message"],
    ["u100", "allocations_per_message"],
    ["handshake", "server_us"],
    ["refuse_no_cookie", "server_us"],
    ["refuse_stolen_token", "server_us"],
    ["load1000", "server_cpu_ns_per_message"],
    ["load3000", "server_cpu_ns_per_message"],
    ["mpgs_goal", "server_cpu_fraction"],
    ["idle", "bytes_per_connection"],
];

/// The head of a file with all goals and values.
pub(super) fn title(protocol: &str) -> String {
    format!(
        "# All values of `cargo xtask peers {protocol}`\n\nWritten by that command. `docs/benchmarks.md` explains the cases.\n"
    )
}

/// Rows of a table with a column for each of `stacks`: those of `keys`, in their order, or all.
///
/// A key that has no value has no row.
pub(super) fn values(rows: &Rows, stacks: &[&str], keys: Option<&[[&str; 2]]>) -> Vec<String> {
    let found = rows.by_case();
    let line = |[case, metric]: [&str; 2]| {
        let (_, values) = found.iter().find(|(key, _)| *key == [case, metric])?;
        let cells = stacks.iter().map(|stack| {
            let value = values.get(stack);
            value.map_or_else(String::new, |value| Digits(*value).to_string())
        });
        let cells: Vec<_> = cells.collect();
        Some(format!("| {case} | `{metric}` | {} |", cells.join(" | ")))
    };
    let mut lines = vec![
        format!("| case | metric | {} |", stacks.join(" | ")),
        format!("|---|---|{}", "---|".repeat(stacks.len())),
    ];
    if let Some(keys) = keys {
        lines.extend(keys.iter().copied().filter_map(line));
    } else {
        lines.extend(found.iter().filter_map(|(key, _)| line(*key)));
    }
    lines
}

/// The summary and the whole of what was measured.
pub(super) fn tables(rows: &Rows, judged: &[Judgement], machine: &Machine) -> Tables<'static> {
    let Machine {
        processor,
        load: [before, after],
        versions,
        rounds: [rounds, load_rounds],
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let head = vec![
        format!(
            "{processor}, load average {before} before and {after} after; medians of {rounds} \
             interleaved rounds, over sockets of {load_rounds}. {}.",
            versions.join(", ")
        ),
        String::new(),
        format!(
            "{} of {} goals are met, {} are missed, {} are undecided.",
            count(Verdict::Met),
            judged.len(),
            count(Verdict::Missed),
            count(Verdict::Undecided)
        ),
        String::new(),
    ];
    let goals = |is_listed: fn(&Judgement) -> bool| {
        let mut lines = vec![
            "| case | metric | goal | measured | |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(judged.iter().filter(|it| is_listed(it)).map(goal_line));
        lines.push(String::new());
        lines
    };
    let values_of_summary = values(rows, &STACKS, Some(&SUMMARY));
    let summary = [
        head.clone(),
        values_of_summary,
        vec![String::new()],
        goals(|it| it.verdict != Verdict::Met),
    ];
    let all = [
        vec![title("udp")],
        head,
        goals(|_| true),
        values(rows, &STACKS, None),
        vec![String::new()],
    ];
    Tables {
        marks: MARKS,
        summary: summary.concat().join("\n"),
        results: "benches/results/udp.md",
        all: all.concat().join("\n"),
    }
}

fn goal_line(judgement: &Judgement) -> String {
    let Judgement {
        case,
        metric,
        aim,
        measured,
        ..
    } = judgement;
    let verdict = judgement.verdict.name();
    format!("| {case} | `{metric}` | {aim} | {measured} | {verdict} |")
}

/// Those of `packages` that a lock file has, with their versions.
pub(super) fn versions(lock: &str, packages: &[&str]) -> Vec<String> {
    let blocks: Vec<_> = lock.split("[[package]]").collect();
    let field = |block: &str, name: &str| {
        let line = block.lines().find(|line| line.starts_with(name))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    let version = |package: &&str| {
        let block = blocks
            .iter()
            .find(|block| field(block, "name = ").as_deref() == Some(*package))?;
        Some(format!("{package} {}", field(block, "version = ")?))
    };
    packages.iter().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            processor: "a processor".to_owned(),
            load: ["1".to_owned(), "2".to_owned()],
            versions: vec!["renet 2.0.1".to_owned()],
            rounds: [11, 3],
        }
    }

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let [begin, end] = MARKS;
        let page = format!("# a\n\n{begin}\nold\n{end}\n\nb\n");
        let once = replace(&page, MARKS, "| new |\n").unwrap();
        assert_eq!(once, format!("# a\n\n{begin}\n\n| new |\n\n{end}\n\nb\n"));
        assert_eq!(replace(&once, MARKS, "| new |\n").unwrap(), once);
        assert_eq!(replace("# a\n", MARKS, "| new |\n"), None);
        assert_eq!(replace(&format!("{end}{begin}"), MARKS, "| new |\n"), None);
    }

    #[test]
    fn every_value_and_every_goal_has_its_line() {
        let rows = Rows::of(&[
            ("tickwire", "u100", "cpu_ns_per_message", 300.0),
            ("renet", "u100", "cpu_ns_per_message", 7_000.0),
        ]);
        let judged = [Judgement {
            case: "u100",
            metric: "cpu_ns_per_message",
            aim: "less".to_owned(),
            measured: "2.00 times".to_owned(),
            verdict: Verdict::Missed,
        }];
        let Tables { summary, all, .. } = tables(&rows, &judged, &machine());
        for text in [&summary, &all] {
            assert_has_all(text);
        }
    }

    fn assert_has_all(text: &str) {
        assert!(
            text.contains("0 of 1 goals are met, 1 are missed, 0 are undecided."),
            "{text}"
        );
        assert!(
            text.contains("| u100 | `cpu_ns_per_message` | less | 2.00 times | missed |"),
            "{text}"
        );
        assert!(
            text.contains("| u100 | `cpu_ns_per_message` | 300 |  |  |  |  | 7000 |  |  |"),
            "{text}"
        );
        assert!(text.contains("renet 2.0.1."), "{text}");
    }

    #[test]
    fn the_summary_has_its_cases_and_the_goals_that_are_not_met() {
        let rows = Rows::of(&[
            ("tickwire", "other", "metric", 1.0),
            ("tickwire", "u100", "cpu_ns_per_message", 300.0),
        ]);
        let judgement = |case, verdict| Judgement {
            case,
            metric: "metric",
            aim: "less".to_owned(),
            measured: "1.00".to_owned(),
            verdict,
        };
        let judged = [
            judgement("met_case", Verdict::Met),
            judgement("missed_case", Verdict::Missed),
            judgement("undecided_case", Verdict::Undecided),
        ];
        let Tables { summary, all, .. } = tables(&rows, &judged, &machine());
        assert!(summary.contains("| u100 |") && all.contains("| u100 |"));
        assert!(!summary.contains("| other |") && all.contains("| other |"));
        assert!(!summary.contains("| met_case |") && all.contains("| met_case |"));
        for case in ["| missed_case |", "| undecided_case |"] {
            assert!(summary.contains(case) && all.contains(case), "{case}");
        }
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"renet\"\nversion = \"2.0.1\"\n\n\
                    [[package]]\nname = \"other\"\nversion = \"1.0.0\"\n";
        assert_eq!(versions(lock, &PACKAGES), ["renet 2.0.1"]);
    }
}
