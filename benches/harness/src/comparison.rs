//! A comparison with other stacks: its goals and its tables.

use crate::goal::{Digits, Goal, Judgement, Verdict};
use crate::row::Rows;

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Its name on the command line, `udp`.
    pub name: &'static str,
    /// The goals.
    pub goals: &'static [Goal],
    /// Goals shown by tests.
    pub shown: &'static [Shown],
    /// Columns of the tables.
    pub stacks: &'static [&'static str],
    /// The stack to print next to each goal.
    pub peer: Option<&'static str>,
    /// Cases and metrics of the summary, in order.
    pub summary: &'static [[&'static str; 2]],
    /// Packages to list with their versions.
    pub packages: &'static [&'static str],
    /// How the values were measured; `{rounds}` and `{load_rounds}` are replaced.
    pub method: &'static str,
}

/// A goal without a figure, shown by tests.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Number of the goal.
    pub id: &'static str,
    /// The guarantee.
    pub what: &'static str,
    /// The functions of the tests.
    pub tests: &'static [&'static str],
}

impl Shown {
    /// Returns a line of plain text.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { id, what, tests } = self;
        format!("{:<9} {id} {what}: {}", "by tests", tests.join(", "))
    }

    /// Returns a row of a Markdown table.
    #[must_use]
    pub fn cells(&self) -> String {
        let Self { id, what, tests } = self;
        format!("| {id} | {what} | `{}` |", tests.join("`, `"))
    }
}

/// The machine and its load.
#[derive(Debug)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Load average before and after.
    pub load: [String; 2],
    /// Rounds in memory and over sockets.
    pub rounds: [u32; 2],
}

/// The texts generated from a run.
#[derive(Debug)]
pub struct Tables {
    /// Machine, number of goals met, main values, and missed goals.
    pub summary: String,
    /// All goals and values.
    pub all: String,
}

impl Comparison {
    /// Evaluates every goal.
    #[must_use]
    pub fn judge(&self, rows: &Rows) -> Vec<Judgement> {
        let goals = self.goals.iter();
        goals.map(|goal| goal.judge(rows, self.peer)).collect()
    }

    /// Returns the markers around the summary in a page.
    #[must_use]
    pub fn marks(&self) -> [String; 2] {
        let name = self.name;
        [
            format!("<!-- peers {name}: written by cargo xtask peers {name} -->"),
            format!("<!-- peers {name}: end -->"),
        ]
    }

    /// Replaces the text between the markers in `page`; `None` if the page does not have both, in
    /// order.
    #[must_use]
    pub fn insert(&self, page: &str, summary: &str) -> Option<String> {
        let [begin, end] = self.marks();
        let (before, rest) = page.split_once(&begin)?;
        let (_, after) = rest.split_once(&end)?;
        Some(format!("{before}{begin}\n\n{summary}\n{end}{after}"))
    }

    /// Returns the listed packages with their versions in a lock file.
    #[must_use]
    pub fn versions(&self, lock: &str) -> Vec<String> {
        let found = self.packages.iter().filter_map(|package| {
            let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
            let (version, _) = rest.split_once('"')?;
            Some(format!("{package} {version}"))
        });
        found.collect()
    }

    /// Generates the texts.
    #[must_use]
    pub fn tables(
        &self,
        rows: &Rows,
        judged: &[Judgement],
        (machine, versions): (&Machine, &[String]),
    ) -> Tables {
        let head = [self.head(machine, versions), String::new(), count(judged)].join("\n");
        let goals = |is_listed: fn(&Judgement) -> bool| {
            let peer = self.peer.unwrap_or_default();
            let mut lines = vec![
                format!("| | what | goal | measured | {peer} | |"),
                "|---|---|---|---|---|---|".to_owned(),
            ];
            lines.extend(
                judged
                    .iter()
                    .filter(|it| is_listed(it))
                    .map(Judgement::cells),
            );
            lines.join("\n")
        };
        let open = |it: &Judgement| matches!(it.verdict, Verdict::Missed | Verdict::Undecided);
        let summary = [
            head.clone(),
            self.values(rows, Some(self.summary)),
            goals(open),
        ];
        let name = self.name;
        let title = format!(
            "# All values of `cargo xtask peers {name}`\n\nWritten by that command. \
             `docs/benchmarks.md` explains the cases."
        );
        let mut all = vec![title, head, goals(|_| true)];
        if !self.shown.is_empty() {
            let mut lines = vec![
                "| | what | shown by |".to_owned(),
                "|---|---|---|".to_owned(),
            ];
            lines.extend(self.shown.iter().map(Shown::cells));
            all.push(lines.join("\n"));
        }
        all.push(self.values(rows, None));
        Tables {
            summary: summary.join("\n\n") + "\n",
            all: all.join("\n\n") + "\n",
        }
    }

    fn head(&self, machine: &Machine, versions: &[String]) -> String {
        let Machine {
            processor,
            load: [before, after],
            rounds: [rounds, load_rounds],
        } = machine;
        let method = self.method.replace("{rounds}", &rounds.to_string());
        let method = method.replace("{load_rounds}", &load_rounds.to_string());
        let versions = if versions.is_empty() {
            String::new()
        } else {
            format!(" {}.", versions.join(", "))
        };
        format!("{processor}, load average {before} before and {after} after; {method}.{versions}")
    }

    /// A table with a column per stack. Rows are `keys` in their order, or all. A key without
    /// values has no row.
    fn values(&self, rows: &Rows, keys: Option<&[[&str; 2]]>) -> String {
        let found = rows.by_case();
        let line = |[case, metric]: [&str; 2]| {
            let (_, values) = found.iter().find(|(key, _)| *key == [case, metric])?;
            let cells = self.stacks.iter().map(|stack| {
                let value = values.get(stack);
                value.map_or_else(String::new, |value| Digits(*value).to_string())
            });
            let cells: Vec<_> = cells.collect();
            Some(format!("| {case} | `{metric}` | {} |", cells.join(" | ")))
        };
        let mut lines = vec![
            format!("| case | metric | {} |", self.stacks.join(" | ")),
            format!("|---|---|{}", "---|".repeat(self.stacks.len())),
        ];
        match keys {
            Some(keys) => lines.extend(keys.iter().copied().filter_map(line)),
            None => lines.extend(found.iter().filter_map(|(key, _)| line(*key))),
        }
        lines.join("\n")
    }
}

/// Counts the goals per verdict.
fn count(judged: &[Judgement]) -> String {
    let count = |verdict| judged.iter().filter(|it| it.verdict == verdict).count();
    format!(
        "Of {} goals {} are met, {} are missed, {} are undecided, {} are not measured here.",
        judged.len(),
        count(Verdict::Met),
        count(Verdict::Missed),
        count(Verdict::Undecided),
        count(Verdict::NotMeasured)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Bound;

    const GOALS: [Goal; 3] = [
        goal("met_case", Bound::AtMost(1.0)),
        goal("missed_case", Bound::AtMost(0.5)),
        goal("absent_case", Bound::AtMost(0.5)),
    ];
    const COMPARISON: Comparison = Comparison {
        name: "udp",
        goals: &GOALS,
        shown: &[Shown {
            id: "A2",
            what: "it holds",
            tests: &["one", "other"],
        }],
        stacks: &["tickwire", "renet"],
        peer: Some("renet"),
        summary: &[["met_case", "m"]],
        packages: &["renet"],
        method: "medians of {rounds} rounds, over sockets of {load_rounds}",
    };

    const fn goal(case: &'static str, bound: Bound) -> Goal {
        Goal {
            id: "G1",
            stack: "tickwire",
            case,
            metric: "m",
            bound,
        }
    }

    #[test]
    fn the_summary_has_its_cases_and_the_goals_that_are_not_met() {
        let rows = Rows::from([
            ("tickwire", "met_case", "m", 1.0),
            ("renet", "met_case", "m", 7_000.0),
            ("tickwire", "missed_case", "m", 1.0),
        ]);
        let machine = Machine {
            processor: "a processor".to_owned(),
            load: ["1".to_owned(), "2".to_owned()],
            rounds: [11, 3],
        };
        let judged = COMPARISON.judge(&rows);
        let versions = ["renet 2.0.1".to_owned()];
        let Tables { summary, all } = COMPARISON.tables(&rows, &judged, (&machine, &versions));
        for text in [&summary, &all] {
            for line in [
                "a processor, load average 1 before and 2 after; medians of 11 rounds, over \
                 sockets of 3. renet 2.0.1.",
                "Of 3 goals 1 are met, 1 are missed, 0 are undecided, 1 are not measured here.",
                "| met_case | `m` | 1.00 | 7000 |",
                "| G1 | tickwire missed_case `m` | at most 0.5 | 1.00 |  | missed |",
            ] {
                assert!(text.contains(line), "{line} is not in {text}");
            }
        }
        assert!(!summary.contains("| missed_case |") && all.contains("| missed_case |"));
        assert!(!summary.contains("tickwire met_case") && all.contains("tickwire met_case"));
        assert!(all.contains("| A2 | it holds | `one`, `other` |"));
        assert!(all.contains("| not measured |  |  |"));
    }

    #[test]
    fn a_summary_is_written_between_its_marks() {
        let [begin, end] = COMPARISON.marks();
        let page = format!("a\n{begin}\nold\n{end}\nb\n");
        let expected = format!("a\n{begin}\n\nnew\n{end}\nb\n");
        assert_eq!(COMPARISON.insert(&page, "new"), Some(expected));
        assert_eq!(COMPARISON.insert(&format!("{end}{begin}"), "new"), None);
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"renet\"\nversion = \"2.0.1\"\n\n\
                    [[package]]\nname = \"other\"\nversion = \"1.0.0\"\n";
        assert_eq!(COMPARISON.versions(lock), ["renet 2.0.1"]);
    }
}
