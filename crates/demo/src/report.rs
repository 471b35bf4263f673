//! What a run comes to, for programs.

mod file;

use serde::{Deserialize, Serialize};

use super::message::Quantiles;
use super::plan::{PlanOptions, RELAYS};
pub use file::ReportFile;

/// The outcome of one run, as `--report` writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What everything was drawn from.
    pub seed: u64,
    /// Seconds from the first tick to the last.
    pub seconds: u32,
    /// Bots that played.
    pub players: u16,
    /// Mesh nodes that were started.
    pub nodes: u8,
    /// Living descendants at the match's start.
    pub processes: usize,
    /// Ticks that every player has simulated.
    pub ticks: u32,
    /// Whether all players' states were equal after each of them.
    pub state_hashes_equal: bool,
    /// Round trips of the players' second sessions, which go directly.
    pub direct_rtt_ms: RoundTrips,
    /// Round trips of the sessions that go the way that each player was told to play by: through
    /// the mesh or directly, wherever the player turned when its way became worse.
    pub accelerated_rtt_ms: RoundTrips,
    /// Of those of them that go through the mesh.
    pub mesh_rtt_ms: RoundTrips,
    /// Median of the players' optima, as [`PlayerTrips::optimum`].
    pub optimum_rtt_ms: f64,
    /// Round trips of each player.
    pub players_rtt_ms: Vec<PlayerTrips>,
    /// What each accident did.
    pub reroutes: Vec<Reroute>,
    /// Tickets that the matchmaker took.
    pub tickets: u64,
    /// Tokens that it made.
    pub tokens_issued: u64,
    /// Attempts to join that the game server did not let in.
    pub joins_refused: u64,
    /// Mail through the hub.
    pub mail: Mail,
    /// What the counts on the hub's disk amount to: ticks that the game server has counted.
    pub stats_events: u64,
    /// What was checked.
    pub checks: Vec<Check>,
    /// Whether every check holds.
    pub ok: bool,
}

impl Report {
    /// Begins the report of a run of which nothing is known yet.
    #[must_use]
    pub fn new(options: &PlanOptions) -> Self {
        Self {
            seed: options.seed,
            seconds: options.seconds,
            players: options.players,
            nodes: RELAYS,
            ..Self::default()
        }
    }

    /// Says why the run did not come to its end.
    #[must_use]
    pub fn broken_off(mut self, reason: &str) -> Self {
        self.checks.push(Check {
            name: "the run comes to its end".to_owned(),
            ok: false,
            detail: reason.to_owned(),
        });
        self.ok = false;
        self
    }
}

/// Median round trips of one player, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayerTrips {
    /// Its number in the plan; the seat that it plays in is the matchmaker's choice.
    pub player: u16,
    /// Where it is.
    pub city: String,
    /// Of the session that measures the direct way.
    pub direct: f64,
    /// Of the session that goes the way that it was told to play by.
    pub accelerated: f64,
    /// The same where that way leads through the mesh.
    pub mesh: Option<f64>,
    /// Of the sessions that it played by, the direct one as long as that was faster.
    pub played: f64,
    /// What the map gives to who is on the best of all ways at every moment, accidents included:
    /// found by trying all, from mean delays.
    pub optimum: f64,
}

/// Two points of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Half lie below.
    pub p50: f64,
    /// 99 of 100 lie below.
    pub p99: f64,
}

impl From<Quantiles> for RoundTrips {
    fn from(quantiles: Quantiles) -> Self {
        Self {
            p50: millis(quantiles.p50_us),
            p99: millis(quantiles.p99_us),
        }
    }
}

/// What one accident did to the players that it hit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reroute {
    /// What happened.
    pub cause: Cause,
    /// From then to the end of the longest silence that it caused for any player.
    pub gap_ms: f64,
    /// Datagrams without an answer, of all players.
    pub lost_datagrams: u32,
}

/// An accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A link became slow and lossy.
    Degraded,
    /// A relay was killed.
    Killed,
}

/// Mail through the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Given to the hub, repetitions not counted.
    pub sent: u64,
    /// Said by the hub to be on disk.
    pub acknowledged: u64,
    /// Handed to their readers.
    pub delivered: u64,
    /// Handed to a reader a second time.
    pub duplicates: u64,
    /// Not known to be on the hub's disk when its sender lost the hub that was killed.
    pub in_flight_at_kill: u64,
}

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// Whether it does.
    pub ok: bool,
    /// What was found.
    pub detail: String,
}

/// Returns microseconds as milliseconds; exact below an hour.
#[must_use]
pub fn millis(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_fields_that_are_promised() {
        let report = Report {
            reroutes: vec![Reroute {
                cause: Cause::Killed,
                gap_ms: 120.5,
                lost_datagrams: 4,
            }],
            checks: vec![Check {
                name: "a".to_owned(),
                ok: true,
                detail: "b".to_owned(),
            }],
            ..Report::default()
        };
        let value = serde_json::to_value(&report).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        let mut promised = vec![
            "seed",
            "seconds",
            "players",
            "nodes",
            "processes",
            "ticks",
            "state_hashes_equal",
            "direct_rtt_ms",
            "accelerated_rtt_ms",
            "mesh_rtt_ms",
            "optimum_rtt_ms",
            "players_rtt_ms",
            "reroutes",
            "tickets",
            "tokens_issued",
            "joins_refused",
            "mail",
            "stats_events",
            "checks",
            "ok",
        ];
        promised.sort_unstable();
        assert_eq!(keys, promised);
        assert_eq!(value["reroutes"][0]["cause"], "killed");
        assert_eq!(value["reroutes"][0]["gap_ms"], 120.5);
        assert!(value["direct_rtt_ms"]["p99"].is_number());
        assert_eq!(value["mail"]["duplicates"], 0);
        assert_eq!(value["mail"]["in_flight_at_kill"], 0);
        assert_eq!(value["checks"][0]["detail"], "b");
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
    }
}
