//! The table in the page.

use super::goal::{Digits, Judgement, OURS, Verdict};
use super::row::Rows;

/// What was measured on.
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

/// What the table of `peers udp` stands between.
pub(super) const MARKS: [&str; 2] = [
    "<!-- peers udp: written by cargo xtask peers udp -->",
    "<!-- peers udp: end -->",
];
/// Columns, ours first, plain text and the floor last.
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
/// Packages whose versions are told.
pub(super) const PACKAGES: [&str; 7] = [
    "quinn-proto",
    "quinn",
    "renet",
    "renet_netcode",
    "rusty_enet",
    "rustls",
    "ring",
];

/// Puts `table` between the marks of `page`; `None` where it has not both, in order.
pub(super) fn replace(page: &str, [begin, end]: [&str; 2], table: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{table}\n{end}{after}"))
}

/// Goals and what came of them, and then every value.
pub(super) fn markdown(rows: &Rows, judged: &[Judgement], machine: &Machine) -> String {
    let Machine {
        processor,
        load: [before, after],
        versions,
        rounds: [rounds, load_rounds],
    } = machine;
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    let mut lines = vec![
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
        "| case | metric | goal | measured | |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(judged.iter().map(|judgement| {
        let Judgement {
            case,
            metric,
            aim,
            measured,
            ..
        } = judgement;
        let verdict = judgement.verdict.name();
        format!("| {case} | `{metric}` | {aim} | {measured} | {verdict} |")
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
        let text = markdown(&rows, &judged, &machine());
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
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"renet\"\nversion = \"2.0.1\"\n\n\
                    [[package]]\nname = \"other\"\nversion = \"1.0.0\"\n";
        assert_eq!(versions(lock, &PACKAGES), ["renet 2.0.1"]);
    }
}
