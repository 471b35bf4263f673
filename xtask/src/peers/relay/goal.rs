//! The goals of a relay, and whether they are reached.

use super::super::goal::{Digits, OURS, Verdict};
use super::super::row::Rows;

/// The forwarder that ratios are taken with.
pub(super) const PLAIN: &str = "plain";

/// One line of the goals.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// Its number in the design.
    id: &'static str,
    case: &'static str,
    metric: &'static str,
    bound: Bound,
}

/// What our value must be.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// No more.
    AtMost(f64),
    /// At most so many times what the plain forwarder has in this case.
    TimesPlain(f64, &'static str),
}

const CPU: &str = "cpu_ns_per_packet";

/// All of them. Sealed packets are compared with bare datagrams of the same player.
const GOALS: [Goal; 17] = [
    Goal::new("F1", "hop100", CPU, Bound::TimesPlain(1.10, "sealed100")),
    Goal::new("F1", "hop1200", CPU, Bound::TimesPlain(1.15, "sealed1200")),
    Goal::new("F2", "sealed100", CPU, Bound::TimesPlain(1.30, "sealed100")),
    Goal::new(
        "F2",
        "sealed1200",
        CPU,
        Bound::TimesPlain(1.30, "sealed1200"),
    ),
    Goal::new("F3", "trunk100", CPU, Bound::TimesPlain(0.15, "sealed100")),
    Goal::new(
        "F3",
        "trunk1200",
        CPU,
        Bound::TimesPlain(0.35, "sealed1200"),
    ),
    // Sessions, probes and records go on meanwhile; a frame itself allocates nothing, which a test
    // of the crate counts.
    Goal::new(
        "F7",
        "sealed100",
        "allocations_per_packet",
        Bound::AtMost(0.01),
    ),
    Goal::new("F6", "sealed100", "threads", Bound::AtMost(5.0)),
    Goal::new("F6", "sealed100", "bytes_per_label", Bound::AtMost(256.0)),
    Goal::new("R1", "routes", "routes_n1000/ms", Bound::AtMost(1.0)),
    Goal::new("R1", "routes", "alternatives_n1000/ms", Bound::AtMost(20.0)),
    Goal::new("R2", "routes", "all_pairs_n1000/ms", Bound::AtMost(250.0)),
    Goal::new("R3", "routes", "link_change_n1000/ms", Bound::AtMost(0.2)),
    Goal::new("S1", "stability", "switches_per_h", Bound::AtMost(10.0)),
    Goal::new("S1", "stability", "excess_ms", Bound::AtMost(1.2)),
    Goal::new("S1", "stability", "over_20ms_percent", Bound::AtMost(1.5)),
    Goal::new("M3", "kill", "gap_ms_p99", Bound::AtMost(300.0)),
];

impl Goal {
    const fn new(id: &'static str, case: &'static str, metric: &'static str, bound: Bound) -> Self {
        Self {
            id,
            case,
            metric,
            bound,
        }
    }

    fn judge(&self, rows: &Rows) -> Judgement {
        let Self {
            id,
            case,
            metric,
            bound,
        } = *self;
        let value = |stack, case| {
            let value = rows.value(stack, case, metric);
            value.filter(|value| value.is_finite())
        };
        let ours = value(OURS, case);
        // Ours, and the most that it may be.
        let (reached, most) = match bound {
            Bound::AtMost(most) => (ours, most),
            Bound::TimesPlain(factor, floor) => {
                let plain = value(PLAIN, floor).filter(|plain| *plain > 0.0);
                (ours.zip(plain).map(|(ours, plain)| ours / plain), factor)
            }
        };
        let unit = match bound {
            Bound::AtMost(_) => "",
            Bound::TimesPlain(..) => " times plain",
        };
        let verdict = reached.map(|reached| {
            if reached <= most {
                Verdict::Met
            } else {
                Verdict::Missed
            }
        });
        let absent = if NOT_BUILT.contains(&case) {
            "not built"
        } else {
            "not measured"
        };
        Judgement {
            id,
            what: format!("{case} `{metric}`"),
            aim: format!("at most {most}{unit}"),
            measured: reached.map_or_else(
                || absent.to_owned(),
                |reached| format!("{}{unit}", Digits(reached)),
            ),
            verdict,
        }
    }
}

/// Cases of links with a tag alone, and of trunks.
const NOT_BUILT: [&str; 4] = ["hop100", "hop1200", "trunk100", "trunk1200"];

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Number of the goal.
    pub(super) id: &'static str,
    /// What was looked at.
    pub(super) what: String,
    /// What was aimed at.
    pub(super) aim: String,
    /// What was reached, or why nothing was.
    pub(super) measured: String,
    /// Whether that is enough; `None` where nothing was measured.
    pub(super) verdict: Option<Verdict>,
}

impl Judgement {
    /// As the table has it.
    pub(super) const fn verdict_name(&self) -> &'static str {
        match self.verdict {
            Some(verdict) => verdict.name(),
            None => "",
        }
    }

    /// One line for a person.
    pub(super) fn line(&self) -> String {
        let Self {
            id,
            what,
            aim,
            measured,
            ..
        } = self;
        format!("{:<9} {id} {what}: {aim}: {measured}", self.verdict_name())
    }
}

/// Judges every goal.
pub(super) fn judge(rows: &Rows) -> Vec<Judgement> {
    GOALS.iter().map(|goal| goal.judge(rows)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rows: &[(&str, &str, &str, f64)], case: &str, metric: &str) -> Judgement {
        let what = format!("{case} `{metric}`");
        let mut judged = judge(&Rows::of(rows)).into_iter();
        judged.find(|judgement| judgement.what == what).unwrap()
    }

    #[test]
    fn a_sealed_packet_is_compared_with_a_bare_one() {
        let found = |ours| {
            let rows = [
                ("tickwire", "sealed100", CPU, ours),
                ("plain", "sealed100", CPU, 2_000.0),
                ("mmsg", "sealed100", CPU, 1.0),
            ];
            judged(&rows, "sealed100", CPU)
        };
        assert_eq!(found(2_600.0).verdict, Some(Verdict::Met));
        assert_eq!(found(2_602.0).verdict, Some(Verdict::Missed));
        assert_eq!(found(2_602.0).measured, "1.30 times plain");
    }

    #[test]
    fn what_is_not_there_is_neither_met_nor_missed() {
        let judgement = judged(&[("plain", "sealed100", CPU, 2_000.0)], "trunk100", CPU);
        assert_eq!(judgement.verdict, None);
        assert_eq!(judgement.measured, "not built");
        let judgement = judged(&[], "routes", "routes_n1000/ms");
        assert_eq!(judgement.measured, "not measured");
        let nan = [("tickwire", "routes", "routes_n1000/ms", f64::NAN)];
        assert_eq!(judged(&nan, "routes", "routes_n1000/ms").verdict, None);
    }
}
