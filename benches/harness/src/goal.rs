//! Goals, and whether measured values meet them.

use std::fmt;

use crate::row::Rows;

/// One goal: a value of a stack and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Number of the goal in the design; may be empty.
    pub id: &'static str,
    /// The stack to evaluate.
    pub stack: &'static str,
    /// The case.
    pub case: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// The bound on the value.
    pub bound: Bound,
}

/// A bound on a value.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At least this many times less than the best of these stacks in the same case.
    TimesLess(f64, &'static [&'static str]),
    /// At least this many times the best of these stacks in the same case.
    TimesMore(f64, &'static [&'static str]),
    /// At most this many times the value of a stack in a case.
    TimesOf(f64, &'static str, &'static str),
    /// At most this much more than the value of a stack in the same case.
    Over(f64, &'static str),
    /// Measured outside this comparison, at the given place.
    Elsewhere(&'static str),
}

/// Share of turns that a stack's clients took. With a lower share, a load test says nothing about
/// the server.
const CLIENT_TURNS: &str = "client_turns_fraction";
/// The minimum of [`CLIENT_TURNS`].
const CLIENT_TURNS_MIN: f64 = 0.98;

impl Goal {
    /// Evaluates the goal. The value of `peer` is also listed.
    #[must_use]
    pub fn judge(&self, rows: &Rows, peer: Option<&'static str>) -> Judgement {
        let of = |stack: &str, case: &str| rows.value(stack, case, self.metric);
        let ours = of(self.stack, self.case);
        let peer = peer.and_then(|peer| of(peer, self.case));
        let reached = self.reached(rows);
        let verdict = match &reached {
            Some(_) if !self.is_decided(rows) => Verdict::Undecided,
            Some((_, true)) => Verdict::Met,
            Some((_, false)) => Verdict::Missed,
            None => Verdict::NotMeasured,
        };
        let (what, aim) = match self.bound {
            Bound::Elsewhere(place) => (place.to_owned(), String::new()),
            bound @ (Bound::AtMost(_)
            | Bound::AtLeast(_)
            | Bound::TimesLess(..)
            | Bound::TimesMore(..)
            | Bound::TimesOf(..)
            | Bound::Over(..)) => (
                format!("{} {} `{}`", self.stack, self.case, self.metric),
                Aim(bound, self.case).to_string(),
            ),
        };
        Judgement {
            id: self.id,
            what,
            aim,
            measured: reached.map_or_else(|| "not measured".to_owned(), |(text, _)| text),
            ours,
            peer,
            verdict,
        }
    }

    /// Returns the value and whether it meets the bound, or `None` if a value is missing.
    fn reached(&self, rows: &Rows) -> Option<(String, bool)> {
        let of = |stack: &str, case: &str| rows.value(stack, case, self.metric);
        let ours = of(self.stack, self.case);
        Some(match self.bound {
            Bound::AtMost(most) => (Digits(ours?).to_string(), ours? <= most),
            Bound::AtLeast(least) => (Digits(ours?).to_string(), ours? >= least),
            Bound::TimesLess(factor, peers) => {
                let best = self
                    .values(rows, peers)?
                    .into_iter()
                    .min_by(f64::total_cmp)?;
                let ratio = best / ours?;
                (format!("{ratio:.2} times less"), ours? * factor <= best)
            }
            Bound::TimesMore(factor, peers) => {
                let best = self
                    .values(rows, peers)?
                    .into_iter()
                    .max_by(f64::total_cmp)?;
                let ratio = ours? / best;
                (format!("{ratio:.2} times more"), ours? >= best * factor)
            }
            Bound::TimesOf(factor, stack, case) => {
                let floor = of(stack, case).filter(|value| *value > 0.0)?;
                let ratio = ours? / floor;
                (format!("{ratio:.2} times"), ours? <= floor * factor)
            }
            Bound::Over(most, stack) => {
                let floor = of(stack, self.case).filter(|value| *value > 0.0)?;
                let over = ours? - floor;
                (format!("{} more", Digits(over)), over <= most)
            }
            Bound::Elsewhere(_) => return None,
        })
    }

    /// Returns the values of all `peers`, or `None` if one is missing: that could make ours look
    /// better.
    fn values(&self, rows: &Rows, peers: &[&str]) -> Option<Vec<f64>> {
        let values = peers
            .iter()
            .map(|peer| rows.value(peer, self.case, self.metric));
        values.collect()
    }

    /// Returns whether the clients of all compared stacks took their turns, if the case has
    /// clients.
    fn is_decided(&self, rows: &Rows) -> bool {
        let peers = match self.bound {
            Bound::TimesLess(_, peers) | Bound::TimesMore(_, peers) => peers,
            Bound::AtMost(_)
            | Bound::AtLeast(_)
            | Bound::TimesOf(..)
            | Bound::Over(..)
            | Bound::Elsewhere(_) => &[],
        };
        let stacks = [&[self.stack], peers];
        stacks.into_iter().flatten().all(|stack| {
            let turns = rows.value(stack, self.case, CLIENT_TURNS);
            turns.is_none_or(|turns| turns >= CLIENT_TURNS_MIN)
        })
    }
}

/// Formats a bound for a goal of this case.
struct Aim<'a>(Bound, &'a str);

impl fmt::Display for Aim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bound::AtMost(most) => write!(f, "at most {most}"),
            Bound::AtLeast(least) => write!(f, "at least {least}"),
            Bound::TimesLess(factor, peers) => {
                write!(f, "{factor} times less than {}", peers.join(" and "))
            }
            Bound::TimesMore(factor, peers) => {
                write!(f, "{factor} times more than {}", peers.join(" and "))
            }
            Bound::TimesOf(factor, stack, case) if case == self.1 => {
                write!(f, "at most {factor} times {stack}")
            }
            Bound::TimesOf(factor, stack, case) => {
                write!(f, "at most {factor} times {stack} {case}")
            }
            Bound::Over(most, stack) => write!(f, "at most {most} more than {stack}"),
            Bound::Elsewhere(_) => Ok(()),
        }
    }
}

/// A goal with its measured values.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Number of the goal.
    pub id: &'static str,
    /// Stack, case and metric, or the place of the measurement.
    pub what: String,
    /// The goal.
    pub aim: String,
    /// The measured value.
    pub measured: String,
    /// Our value.
    pub ours: Option<f64>,
    /// The other stack's value in the same case.
    pub peer: Option<f64>,
    /// Whether the goal is met.
    pub verdict: Verdict,
}

/// Whether a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The goal is met.
    Met,
    /// The goal is missed.
    Missed,
    /// The machine was too busy: clients did not take their turns.
    Undecided,
    /// A value is missing.
    NotMeasured,
}

impl Verdict {
    /// Returns the text in tables; empty if nothing was measured.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
            Self::NotMeasured => "",
        }
    }
}

impl Judgement {
    /// Returns a line of plain text.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            id,
            what,
            aim,
            measured,
            ..
        } = self;
        let verdict = match self.verdict.name() {
            "" => "-",
            name => name,
        };
        let id = if id.is_empty() {
            String::new()
        } else {
            format!("{id} ")
        };
        format!("{verdict:<9} {id}{what}: {aim}: {measured}")
    }

    /// Returns a row of a Markdown table.
    #[must_use]
    pub fn cells(&self) -> String {
        let Self {
            id,
            what,
            aim,
            measured,
            ..
        } = self;
        let peer = self
            .peer
            .map_or_else(String::new, |it| Digits(it).to_string());
        let verdict = self.verdict.name();
        format!("| {id} | {what} | {aim} | {measured} | {peer} | {verdict} |")
    }
}

/// A number with about three significant digits.
#[derive(Clone, Copy, Debug)]
pub struct Digits(pub f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        match value {
            100.0.. => write!(f, "{value:.0}"),
            10.0.. => write!(f, "{value:.1}"),
            1.0.. => write!(f, "{value:.2}"),
            0.001.. => write!(f, "{value:.3}"),
            _ if value == 0.0 => f.write_str("0"),
            // A small value is not rounded to zero.
            _ => write!(f, "{value:.1e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = "cpu_ns_per_message";

    fn judged(case: &'static str, metric: &'static str, bound: Bound, rows: &Rows) -> Judgement {
        let (id, stack) = ("G0", "tickwire");
        let goal = Goal {
            id,
            stack,
            case,
            metric,
            bound,
        };
        goal.judge(rows, Some("renet"))
    }

    #[test]
    fn a_ratio_is_taken_with_the_best_of_the_named_peers() {
        let rows = |quinn| {
            Rows::from([
                ("tickwire", "u100", CPU, 300.0),
                ("renet", "u100", CPU, 7_000.0),
                ("quinn-proto", "u100", CPU, quinn),
                // Unencrypted, and not part of any goal.
                ("enet", "u100", CPU, 200.0),
            ])
        };
        let bound = Bound::TimesLess(3.0, &["renet", "quinn-proto"]);
        let met = judged("u100", CPU, bound, &rows(900.0));
        assert_eq!(
            met.line(),
            "met       G0 tickwire u100 `cpu_ns_per_message`: 3 times less than renet and \
             quinn-proto: 3.00 times less"
        );
        assert!(met.cells().ends_with("| 3.00 times less | 7000 | met |"));
        let missed = judged("u100", CPU, bound, &rows(899.0));
        assert_eq!(missed.verdict, Verdict::Missed);
    }

    #[test]
    fn a_missing_or_infinite_value_is_not_measured_and_never_met() {
        let only_ours = Rows::from([("tickwire", "a", "m", 0.0), ("renet", "a", "m", 9.0)]);
        let only_peer = Rows::from([("renet", "a", "m", 60.0)]);
        let endless = Rows::from([("tickwire", "a", "m", f64::INFINITY)]);
        let nan = Rows::from([("tickwire", "a", "m", f64::NAN)]);
        for (bound, rows) in [
            (Bound::AtMost(1.0), &only_peer),
            (Bound::AtLeast(1.0), &only_peer),
            (Bound::TimesLess(1.0, &["renet"]), &only_peer),
            (Bound::TimesLess(1.0, &["renet", "enet"]), &only_ours),
            (Bound::TimesOf(1.0, "floor", "a"), &only_ours),
            (Bound::Over(1.0, "floor"), &only_ours),
            (Bound::AtLeast(1.0), &endless),
            (Bound::AtMost(1.0), &nan),
            (Bound::Elsewhere("a test"), &only_ours),
        ] {
            let judgement = judged("a", "m", bound, rows);
            assert_eq!(judgement.verdict, Verdict::NotMeasured, "{bound:?}");
            assert_eq!(judgement.measured, "not measured");
        }
    }

    #[test]
    fn bounds_hold_at_their_edges_and_not_beyond() {
        let rows = Rows::from([
            ("tickwire", "a", "m", 0.99),
            ("tickwire", "b", "m", 1.5),
            ("floor", "c", "m", 1.0),
            ("floor", "b", "m", 0.74),
        ]);
        let verdict = |case, bound| judged(case, "m", bound, &rows).verdict;
        assert_eq!(verdict("a", Bound::AtLeast(0.99)), Verdict::Met);
        assert_eq!(verdict("a", Bound::AtLeast(0.991)), Verdict::Missed);
        assert_eq!(verdict("b", Bound::AtMost(1.5)), Verdict::Met);
        assert_eq!(verdict("b", Bound::AtMost(1.49)), Verdict::Missed);
        assert_eq!(verdict("b", Bound::Over(0.76, "floor")), Verdict::Met);
        assert_eq!(verdict("b", Bound::Over(0.75, "floor")), Verdict::Missed);
        let at_most = judged("b", "m", Bound::TimesOf(1.5, "floor", "c"), &rows);
        assert_eq!(at_most.verdict, Verdict::Met);
        assert_eq!(at_most.aim, "at most 1.5 times floor c");
        let of_its_own = judged("b", "m", Bound::TimesOf(2.0, "floor", "b"), &rows);
        assert_eq!(of_its_own.verdict, Verdict::Missed);
        assert_eq!(of_its_own.aim, "at most 2 times floor");
    }

    #[test]
    fn a_load_run_whose_clients_lacked_cpu_is_undecided() {
        let rows = |ours, quinn| {
            Rows::from([
                ("tickwire", "load1000", CPU, 1.0),
                ("tickwire", "load1000", CLIENT_TURNS, ours),
                ("quinn", "load1000", CPU, 9.0),
                ("quinn", "load1000", CLIENT_TURNS, quinn),
            ])
        };
        let bound = Bound::TimesLess(2.6, &["quinn"]);
        let verdict = |rows| judged("load1000", CPU, bound, &rows).verdict;
        assert_eq!(verdict(rows(0.98, 1.0)), Verdict::Met);
        assert_eq!(verdict(rows(0.97, 1.0)), Verdict::Undecided);
        assert_eq!(verdict(rows(1.0, 0.97)), Verdict::Undecided);
        // A goal about our own value does not depend on other stacks.
        let alone = judged("load1000", CPU, Bound::AtMost(2.0), &rows(1.0, 0.5));
        assert_eq!(alone.verdict, Verdict::Met);
    }

    #[test]
    fn a_small_value_is_not_shown_as_zero() {
        let shown = [0.0, 0.000_13, 0.104_23, 1.0, 87.65, 7_014.4].map(|it| Digits(it).to_string());
        assert_eq!(shown, ["0", "1.3e-4", "0.104", "1.00", "87.7", "7014"]);
    }
}
