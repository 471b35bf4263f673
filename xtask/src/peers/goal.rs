//! What is aimed at, and whether it is reached.

use super::row::Rows;
use crate::failure::Failure;

/// Ours.
pub(super) const OURS: &str = "tickwire";
/// Peers that encrypt, in memory.
const PEERS: &[&str] = &["renet", "quinn-proto"];

/// One aim.
#[derive(Clone, Copy, Debug)]
struct Goal {
    case: &'static str,
    metric: &'static str,
    bound: Bound,
}

/// What our value must be.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// No more.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
    /// So many times less than the best of these stacks has in the same case.
    TimesLess(f64, &'static [&'static str]),
    /// At most so many times what the floor has, in this case.
    TimesFloor(f64, &'static str),
}

const CPU: &str = "cpu_ns_per_message";
const ALLOCATIONS: &str = "allocations_per_message";
const DELIVERED: &str = "delivered_fraction";
const CLIENT_TURNS: &str = "client_turns_fraction";
/// Turns that clients must have taken, of all, for a load to say something of its server.
const CLIENT_TURNS_MIN: f64 = 0.98;

/// All of them.
const GOALS: [Goal; 18] = [
    Goal::new("u100", CPU, Bound::TimesLess(3.0, PEERS)),
    Goal::new("u100", CPU, Bound::TimesFloor(2.0, "u100")),
    Goal::new("u100", ALLOCATIONS, Bound::AtMost(0.0)),
    Goal::new("r100", CPU, Bound::TimesLess(2.8, PEERS)),
    Goal::new("r100", ALLOCATIONS, Bound::AtMost(1.0)),
    // 1.00: what two digits show.
    Goal::new("r100", "datagrams_per_message", Bound::AtMost(1.004)),
    Goal::new("u1000", CPU, Bound::TimesLess(2.8, PEERS)),
    Goal::new("packed32x100", CPU, Bound::TimesLess(2.1, PEERS)),
    Goal::new("frag64k", CPU, Bound::TimesLess(2.4, PEERS)),
    Goal::new("load1000", DELIVERED, Bound::AtLeast(0.99)),
    Goal::new(
        "load1000",
        "server_cpu_ns_per_message",
        Bound::TimesLess(2.6, &["quinn"]),
    ),
    Goal::new("load3000", DELIVERED, Bound::AtLeast(0.99)),
    Goal::new(
        "handshake",
        "server_us",
        Bound::TimesLess(2.5, &["quinn-proto"]),
    ),
    Goal::new(
        "refuse_no_cookie",
        "server_us",
        Bound::TimesFloor(1.5, "sha256_1200"),
    ),
    Goal::new(
        "refuse_stolen_token",
        "server_us",
        Bound::TimesFloor(4.0, "sha256_1200"),
    ),
    Goal::new("idle", "bytes_per_connection", Bound::AtMost(3_072.0)),
    Goal::new("mpgs_goal", DELIVERED, Bound::AtLeast(0.99)),
    Goal::new("mpgs_goal", "server_cpu_fraction", Bound::AtMost(0.05)),
];

impl Goal {
    const fn new(case: &'static str, metric: &'static str, bound: Bound) -> Self {
        Self {
            case,
            metric,
            bound,
        }
    }

    /// Whether the clients of every stack that it looks at had time for their turns; so it is in
    /// cases without clients of their own.
    fn is_decided(&self, rows: &Rows) -> bool {
        let peers = match self.bound {
            Bound::TimesLess(_, peers) => peers,
            Bound::AtMost(_) | Bound::AtLeast(_) | Bound::TimesFloor(..) => &[],
        };
        let mut stacks = peers.iter().chain(&[OURS]);
        stacks.all(|stack| {
            let turns = rows.value(stack, self.case, CLIENT_TURNS);
            turns.is_none_or(|turns| turns >= CLIENT_TURNS_MIN)
        })
    }

    /// What came of it; `None` where a row is missing or no number.
    fn judge(&self, rows: &Rows) -> Option<Judgement> {
        let number = |value: f64| value.is_finite().then_some(value);
        let ours = rows.value(OURS, self.case, self.metric).and_then(number)?;
        let (aim, measured, is_met) = match self.bound {
            Bound::AtMost(most) => (
                format!("at most {most}"),
                format!("{}", Digits(ours)),
                ours <= most,
            ),
            Bound::AtLeast(least) => (
                format!("at least {least}"),
                format!("{}", Digits(ours)),
                ours >= least,
            ),
            Bound::TimesLess(factor, peers) => {
                let values = peers.iter().map(|peer| {
                    let value = rows.value(peer, self.case, self.metric);
                    value.and_then(number).map(|value| (value, *peer))
                });
                // Whoever is left out would make us look better.
                let values = values.collect::<Option<Vec<_>>>()?;
                let (best, peer) = values.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
                (
                    format!("{factor} times less than {peer}"),
                    format!("{:.2} times less", best / ours),
                    ours * factor <= best,
                )
            }
            Bound::TimesFloor(factor, case) => {
                let floor = rows.value("floor", case, self.metric).and_then(number)?;
                let name = if case == self.case { "the floor" } else { case };
                (
                    format!("at most {factor} times {name}"),
                    format!("{:.2} times", ours / floor),
                    ours <= floor * factor,
                )
            }
        };
        Some(Judgement {
            case: self.case,
            metric: self.metric,
            aim,
            measured,
            verdict: match (self.is_decided(rows), is_met) {
                (false, _) => Verdict::Undecided,
                (true, true) => Verdict::Met,
                (true, false) => Verdict::Missed,
            },
        })
    }
}

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Doing what.
    pub(super) case: &'static str,
    /// What was measured.
    pub(super) metric: &'static str,
    /// What was aimed at.
    pub(super) aim: String,
    /// What was reached.
    pub(super) measured: String,
    /// Whether that is enough.
    pub(super) verdict: Verdict,
}

/// How a goal was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is reached.
    Met,
    /// It is not.
    Missed,
    /// The machine was too busy to tell: clients had no time for their turns.
    Undecided,
}

impl Verdict {
    /// As the table has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

impl Judgement {
    /// One line for a person.
    pub(super) fn line(&self) -> String {
        let Self {
            case,
            metric,
            aim,
            measured,
            ..
        } = self;
        format!(
            "{:<9} {case} {metric}: {aim}: {measured}",
            self.verdict.name()
        )
    }
}

/// Judges every goal; a failure where one was not measured.
pub(super) fn judge(rows: &Rows) -> Result<Vec<Judgement>, Failure> {
    let judged = GOALS.iter().map(|goal| {
        goal.judge(rows).ok_or_else(|| {
            let Goal { case, metric, .. } = goal;
            Failure::Check(format!("{case} {metric}: not measured"))
        })
    });
    judged.collect()
}

/// A number by about three digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits(pub(super) f64);

impl core::fmt::Display for Digits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let value = self.0;
        match value {
            100.0.. => write!(f, "{value:.0}"),
            10.0.. => write!(f, "{value:.1}"),
            1.0.. => write!(f, "{value:.2}"),
            0.001.. => write!(f, "{value:.3}"),
            _ if value == 0.0 => f.write_str("0"),
            // What is almost nothing is not nothing.
            _ => write!(f, "{value:.1e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(case: &'static str, metric: &'static str, bound: Bound, rows: &Rows) -> Judgement {
        Goal::new(case, metric, bound).judge(rows).unwrap()
    }

    #[test]
    fn a_ratio_is_taken_with_the_best_peer_that_was_named() {
        let rows = |quinn| {
            Rows::of(&[
                ("tickwire", "u100", CPU, 300.0),
                ("renet", "u100", CPU, 7_000.0),
                ("quinn-proto", "u100", CPU, quinn),
                // Plain text, and named by no goal.
                ("enet", "u100", CPU, 200.0),
            ])
        };
        let bound = Bound::TimesLess(3.0, PEERS);
        let met = judged("u100", CPU, bound, &rows(900.0));
        assert_eq!(
            met.line(),
            "met       u100 cpu_ns_per_message: 3 times less than quinn-proto: 3.00 times less"
        );
        let missed = judged("u100", CPU, bound, &rows(899.0));
        assert_eq!(missed.verdict.name(), "missed");
    }

    #[test]
    fn a_peer_that_was_not_measured_is_a_failure_and_so_is_no_number() {
        let rows = Rows::of(&[("tickwire", "u100", CPU, 1.0), ("renet", "u100", CPU, 9.0)]);
        let goal = Goal::new("u100", CPU, Bound::TimesLess(3.0, PEERS));
        assert!(goal.judge(&rows).is_none());
        let rows = Rows::of(&[("tickwire", "idle", "b", f64::NAN)]);
        assert!(
            Goal::new("idle", "b", Bound::AtMost(1.0))
                .judge(&rows)
                .is_none()
        );
        assert!(judge(&Rows::default()).is_err());
    }

    #[test]
    fn bounds_hold_at_their_edges_and_not_beyond() {
        let rows = Rows::of(&[
            ("tickwire", "a", "m", 0.99),
            ("tickwire", "b", "m", 1.5),
            ("floor", "c", "m", 1.0),
            ("floor", "b", "m", 0.74),
        ]);
        assert_eq!(
            judged("a", "m", Bound::AtLeast(0.99), &rows).verdict,
            Verdict::Met
        );
        assert_eq!(
            judged("a", "m", Bound::AtLeast(0.991), &rows).verdict,
            Verdict::Missed
        );
        assert_eq!(
            judged("b", "m", Bound::AtMost(1.5), &rows).verdict,
            Verdict::Met
        );
        assert_eq!(
            judged("b", "m", Bound::AtMost(1.49), &rows).verdict,
            Verdict::Missed
        );
        let at_most = judged("b", "m", Bound::TimesFloor(1.5, "c"), &rows);
        assert_eq!(at_most.verdict, Verdict::Met);
        assert_eq!(at_most.aim, "at most 1.5 times c");
        let of_its_own = judged("b", "m", Bound::TimesFloor(2.0, "b"), &rows);
        assert_eq!(of_its_own.verdict, Verdict::Missed);
        assert_eq!(of_its_own.aim, "at most 2 times the floor");
    }

    #[test]
    fn a_load_whose_clients_had_no_time_is_undecided() {
        let rows = |ours, quinn| {
            Rows::of(&[
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
        // What looks at ours alone does not care about others.
        let alone = judged("load1000", CPU, Bound::AtMost(2.0), &rows(1.0, 0.5));
        assert_eq!(alone.verdict, Verdict::Met);
    }

    #[test]
    fn little_is_not_shown_as_nothing() {
        let shown = [0.0, 0.000_13, 0.104_23, 1.0, 87.65, 7_014.4].map(|it| Digits(it).to_string());
        assert_eq!(shown, ["0", "1.3e-4", "0.104", "1.00", "87.7", "7014"]);
    }
}
