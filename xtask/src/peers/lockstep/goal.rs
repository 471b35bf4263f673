//! The goals of lockstep, and whether they are reached.

use super::super::goal::{Digits, Verdict};
use super::super::row::Rows;

/// Ours with a server.
pub(super) const SERVER: &str = "tickwire-server";
/// Ours among equals.
pub(super) const MESH: &str = "tickwire-mesh";
/// The peer that ratios are taken with.
pub(super) const PEER: &str = "ggrs";

/// One line of the goals.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// Its number.
    id: &'static str,
    aim: Aim,
}

/// What is aimed at.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// A value of ours.
    Value(Place, Bound),
    /// Nothing that these programs measure.
    Elsewhere(&'static str),
}

/// Where a value stands in the report.
#[derive(Clone, Copy, Debug)]
struct Place {
    stack: &'static str,
    case: &'static str,
    metric: &'static str,
}

/// What our value must be.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// No more.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
    /// So many times less than ggrs has in the same case.
    TimesLess(f64),
}

impl Goal {
    const fn server(id: &'static str, case: &'static str, metric: &'static str, b: Bound) -> Self {
        Self::of(id, SERVER, [case, metric], b)
    }

    const fn mesh(id: &'static str, case: &'static str, metric: &'static str, b: Bound) -> Self {
        Self::of(id, MESH, [case, metric], b)
    }

    const fn of(
        id: &'static str,
        stack: &'static str,
        [case, metric]: [&'static str; 2],
        bound: Bound,
    ) -> Self {
        let place = Place {
            stack,
            case,
            metric,
        };
        Self {
            id,
            aim: Aim::Value(place, bound),
        }
    }

    const fn elsewhere(id: &'static str, why: &'static str) -> Self {
        Self {
            id,
            aim: Aim::Elsewhere(why),
        }
    }

    fn judge(&self, rows: &Rows) -> Judgement {
        match self.aim {
            Aim::Value(place, bound) => place.judge(self.id, bound, rows),
            Aim::Elsewhere(why) => Judgement {
                id: self.id,
                what: why.to_owned(),
                aim: String::new(),
                measured: "not measured here".to_owned(),
                peer: String::new(),
                verdict: None,
            },
        }
    }
}

impl Place {
    fn judge(self, id: &'static str, bound: Bound, rows: &Rows) -> Judgement {
        let Self {
            stack,
            case,
            metric,
        } = self;
        let value = |stack| {
            let value = rows.value(stack, case, metric);
            value.filter(|value| value.is_finite())
        };
        let (ours, peer) = (value(stack), value(PEER));
        let met = |ours: f64| match bound {
            Bound::AtMost(most) => Some(ours <= most),
            Bound::AtLeast(least) => Some(ours >= least),
            Bound::TimesLess(factor) => peer.map(|peer| ours * factor <= peer),
        };
        let ratio = ours.zip(peer).map(|(ours, peer)| peer / ours);
        let shown = |value: Option<f64>| value.map(|value| Digits(value).to_string());
        let measured = match (bound, ours) {
            (_, None) => None,
            (Bound::TimesLess(_), _) => ratio.map(|ratio| format!("{} times less", Digits(ratio))),
            (Bound::AtMost(_) | Bound::AtLeast(_), ours) => shown(ours),
        };
        Judgement {
            id,
            what: format!("{stack} {case} `{metric}`"),
            aim: match bound {
                Bound::AtMost(most) => format!("at most {most}"),
                Bound::AtLeast(least) => format!("at least {least}"),
                Bound::TimesLess(factor) => format!("{factor} times less than {PEER}"),
            },
            measured: measured.unwrap_or_else(|| "not measured".to_owned()),
            peer: shown(peer).unwrap_or_default(),
            verdict: ours.and_then(met).map(|is_met| {
                if is_met {
                    Verdict::Met
                } else {
                    Verdict::Missed
                }
            }),
        }
    }
}

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Number of the goal.
    pub(super) id: &'static str,
    /// What was looked at, or why nothing was.
    pub(super) what: String,
    /// What was aimed at.
    pub(super) aim: String,
    /// What was reached.
    pub(super) measured: String,
    /// What ggrs has there.
    pub(super) peer: String,
    /// Whether that is enough; `None` where it was not measured.
    pub(super) verdict: Option<Verdict>,
}

impl Judgement {
    /// As the table has it; nothing where nothing was measured.
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
        let verdict = match self.verdict_name() {
            "" => "-",
            name => name,
        };
        format!("{verdict:<9} {id} {what}: {aim}: {measured}")
    }
}

/// Judges every goal.
pub(super) fn judge(rows: &Rows) -> Vec<Judgement> {
    GOALS.iter().map(|goal| goal.judge(rows)).collect()
}

const CPU: &str = "cpu_us_per_frame";
const UP: &str = "up_bytes_per_s";
const DOWN: &str = "down_bytes_per_s";
const UP_PAYLOAD: &str = "up_payload_bytes_per_s";
const DOWN_PAYLOAD: &str = "down_payload_bytes_per_s";
const FPS: &str = "frames_per_s";
const STALLED: &str = "stalled_ms_per_s";
const IN_TIME: &str = "desync_within_150_ms";

/// All of them; the numbers are those of the design.
const GOALS: [Goal; 60] = [
    Goal::mesh("G1", "p2", CPU, Bound::TimesLess(4.0)),
    Goal::mesh("G1", "p4", CPU, Bound::TimesLess(6.0)),
    Goal::mesh("G1", "p8", CPU, Bound::TimesLess(10.0)),
    Goal::mesh("G1", "p16", CPU, Bound::TimesLess(20.0)),
    Goal::server("G2", "p8", CPU, Bound::AtMost(1.0)),
    Goal::server("G2", "p8", CPU, Bound::TimesLess(30.0)),
    Goal::server(
        "G3",
        "p8",
        "server_ns_per_player_tick",
        Bound::AtMost(200.0),
    ),
    Goal::server(
        "G3",
        "p64",
        "server_ns_per_player_tick",
        Bound::AtMost(200.0),
    ),
    Goal::server(
        "G3",
        "p8",
        "server_allocations_per_tick",
        Bound::AtMost(0.0),
    ),
    Goal::server(
        "G3",
        "p64",
        "server_allocations_per_tick",
        Bound::AtMost(0.0),
    ),
    Goal::server("G3", "p64", "encodes_per_tick", Bound::AtMost(1.0)),
    Goal::elsewhere(
        "G4",
        "spectators at the server, unsealed and sealed: `cargo bench --bench spectators`",
    ),
    Goal::elsewhere(
        "G5",
        "sealed players over loopback: `cargo bench --bench players`",
    ),
    // 60.0: what three digits show.
    Goal::mesh("G6", "p2/lockstep-d4", FPS, Bound::AtLeast(59.95)),
    Goal::mesh("G6", "p4/lockstep-d4", FPS, Bound::AtLeast(59.95)),
    Goal::mesh("G6", "p8/lockstep-d4", FPS, Bound::AtLeast(59.95)),
    Goal::mesh("G7", "p4/lockstep-jitter-d6", FPS, Bound::AtLeast(59.9)),
    Goal::server("G8", "p8/jitter", "latency_ms", Bound::AtMost(165.0)),
    Goal::server("G8", "p8/jitter", STALLED, Bound::AtMost(0.1)),
    Goal::server(
        "G8",
        "p8/jitter",
        "late_inputs_per_minute",
        Bound::AtMost(2.0),
    ),
    Goal::elsewhere(
        "G8",
        "adaptive delay: `ls_g8_adaptive_delay_is_within_a_tenth_of_the_best_fixed_one`",
    ),
    Goal::server("G9", "p8/loss5", STALLED, Bound::AtMost(0.5)),
    Goal::server("G9", "p8/loss5", "p999_stall_ms", Bound::AtMost(34.0)),
    Goal::mesh("G9", "p2/lockstep-loss5-d8", STALLED, Bound::AtMost(0.5)),
    Goal::mesh("G9", "p4/lockstep-loss5-d8", STALLED, Bound::AtMost(0.5)),
    Goal::mesh("G9", "p8/lockstep-loss5-d8", STALLED, Bound::AtMost(0.5)),
    Goal::server("G10", "p8", UP_PAYLOAD, Bound::AtMost(700.0)),
    Goal::server("G10", "p8", DOWN_PAYLOAD, Bound::AtMost(1_600.0)),
    Goal::server("G10", "p8", UP, Bound::AtMost(4_300.0)),
    Goal::server("G10", "p8", DOWN, Bound::AtMost(5_000.0)),
    Goal::server("G10", "p8", UP, Bound::TimesLess(14.0)),
    Goal::server("G10", "p8", DOWN, Bound::TimesLess(14.0)),
    Goal::mesh("G10", "p8", UP_PAYLOAD, Bound::AtMost(15_000.0)),
    Goal::mesh(
        "G10",
        "p8",
        "up_unsealed_bytes_per_s",
        Bound::AtMost(30_000.0),
    ),
    // The design sizes it without encryption, which ggrs has not; sealed, as it is sent, it is this.
    Goal::mesh("G10", "p8", UP, Bound::AtMost(30_000.0)),
    Goal::server("G11", "p8/stick-100", UP_PAYLOAD, Bound::AtMost(2_000.0)),
    Goal::server("G11", "p8/stick-100", DOWN_PAYLOAD, Bound::AtMost(9_000.0)),
    Goal::server("G12", "p64", DOWN_PAYLOAD, Bound::AtMost(10_000.0)),
    Goal::server(
        "G12",
        "p64",
        "longest_datagram_bytes",
        Bound::AtMost(1_200.0),
    ),
    Goal::server("G13", "p4/outage", "others_stalled_ms", Bound::AtMost(0.0)),
    // A round trip and two ticks, seen at the next turn.
    Goal::server("G13", "p4/outage", "caught_up_ms", Bound::AtMost(137.4)),
    Goal::elsewhere(
        "G14",
        "late join: `ls_g14_a_mebibyte_at_10_mbit_is_in_step_within_1_4_s_and_stalls_nobody`",
    ),
    Goal::server("G15", "p2/desync", "desync_p50_ms", Bound::AtMost(150.0)),
    Goal::server("G15", "p4/desync", "desync_p50_ms", Bound::AtMost(150.0)),
    Goal::mesh("G15", "p2/desync", "desync_p50_ms", Bound::AtMost(150.0)),
    Goal::mesh("G15", "p4/desync", "desync_p50_ms", Bound::AtMost(150.0)),
    // The lines before say of one half of them that it is told in time; the goal is of all.
    Goal::server("G15", "p2/desync", IN_TIME, Bound::AtLeast(1.0)),
    Goal::server("G15", "p4/desync", IN_TIME, Bound::AtLeast(1.0)),
    Goal::mesh("G15", "p2/desync", IN_TIME, Bound::AtLeast(1.0)),
    Goal::mesh("G15", "p4/desync", IN_TIME, Bound::AtLeast(1.0)),
    Goal::elsewhere(
        "G15",
        "tick and section: `sim_ls_g15_tick_and_section_are_told_within_two_more_round_trips`",
    ),
    // Two round trips, and the 99th of 100 starts.
    Goal::server("G16", "p4/start", "first_step_p50_ms", Bound::AtMost(200.0)),
    Goal::server("G16", "p4/start", "first_step_p99_ms", Bound::AtMost(350.0)),
    Goal::mesh("G16", "p4/start", "first_step_p99_ms", Bound::AtMost(350.0)),
    Goal::mesh("G17", "p8/sync-test", CPU, Bound::AtMost(0.8)),
    Goal::elsewhere(
        "G18",
        "save policy: `ls_g18_auto_costs_at_most_a_twentieth_more_than_the_better_policy`",
    ),
    Goal::elsewhere(
        "G19",
        "length and seeks: `ls_g19_an_hour_of_eight_pads_takes_at_most_a_megabyte`",
    ),
    Goal::elsewhere("G19", "time to verify: `cargo bench --bench replay`"),
    Goal::elsewhere("G20", "TCP clients: `cargo bench --bench broadcast`"),
    Goal::elsewhere("G21", "seeds: `cargo xtask sim --crate lockstep` says"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(aim: Aim, rows: &Rows) -> Judgement {
        Goal { id: "G0", aim }.judge(rows)
    }

    const PLACE: Place = Place {
        stack: SERVER,
        case: "p8",
        metric: CPU,
    };

    #[test]
    fn a_ratio_is_taken_with_ggrs_and_both_values_are_told() {
        let rows = |ours| Rows::of(&[(SERVER, "p8", CPU, ours), (PEER, "p8", CPU, 60.0)]);
        let aim = Aim::Value(PLACE, Bound::TimesLess(30.0));
        let met = judged(aim, &rows(2.0));
        assert_eq!(
            met.line(),
            "met       G0 tickwire-server p8 `cpu_us_per_frame`: 30 times less than ggrs: \
             30.0 times less"
        );
        assert_eq!(met.peer, "60.0");
        assert_eq!(judged(aim, &rows(2.1)).verdict, Some(Verdict::Missed));
    }

    #[test]
    fn what_has_no_row_is_not_measured_and_never_met() {
        let only_peer = Rows::of(&[(PEER, "p8", CPU, 60.0)]);
        let only_ours = Rows::of(&[(SERVER, "p8", CPU, 0.0)]);
        let endless = Rows::of(&[(SERVER, "p8", CPU, f64::INFINITY)]);
        for (bound, rows) in [
            (Bound::AtMost(1.0), &only_peer),
            (Bound::AtLeast(1.0), &only_peer),
            (Bound::TimesLess(1.0), &only_peer),
            (Bound::TimesLess(1.0), &only_ours),
            (Bound::AtLeast(1.0), &endless),
        ] {
            let judgement = judged(Aim::Value(PLACE, bound), rows);
            assert_eq!(judgement.verdict, None);
            assert_eq!(judgement.measured, "not measured");
        }
        let elsewhere = judged(Aim::Elsewhere("there is none yet"), &only_ours);
        assert_eq!(elsewhere.verdict, None);
        assert!(
            judge(&Rows::default())
                .iter()
                .all(|it| it.verdict.is_none())
        );
    }

    #[test]
    fn bounds_hold_at_their_edges_and_not_beyond() {
        let rows = Rows::of(&[(SERVER, "p8", CPU, 1.0)]);
        let verdict = |bound| judged(Aim::Value(PLACE, bound), &rows).verdict;
        assert_eq!(verdict(Bound::AtMost(1.0)), Some(Verdict::Met));
        assert_eq!(verdict(Bound::AtMost(0.99)), Some(Verdict::Missed));
        assert_eq!(verdict(Bound::AtLeast(1.0)), Some(Verdict::Met));
        assert_eq!(verdict(Bound::AtLeast(1.01)), Some(Verdict::Missed));
    }

    #[test]
    fn every_goal_of_the_design_has_a_line() {
        for number in 1..=21 {
            let id = format!("G{number}");
            assert!(GOALS.iter().any(|goal| goal.id == id), "{id}");
        }
    }
}
