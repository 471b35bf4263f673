//! Messages between the processes of a run, one JSON object a line over pipes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::plan::LinkFault;

/// A command of the orchestrator to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildCommand {
    /// Players: get tickets from the matchmaker, and join the match.
    Join,
    /// Players: a fault follows; measure its effect.
    Mark { fault: u8 },
    /// Players: find the fastest route and report it.
    FindRoute,
    /// Relay: degrade a link.
    Degrade {
        host: IpAddr,
        remote: IpAddr,
        fault: LinkFault,
    },
    /// Players: report the measurements.
    Conclude,
}

/// An event that a child reports to the orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildEvent {
    /// The process serves.
    Ready,
    /// Game server: the matchmaker has its token key and renews its lease.
    Leased,
    /// Game server: the hub has stored all counts so far.
    Counted { ticks: u64 },
    /// Player: all sessions are open.
    Joined { player: u16 },
    /// Player: its first turn arrived.
    Seated {
        player: u16,
        given: Place,
        played: Place,
    },
    /// Game server: tick 0 began.
    Started,
    /// Player: its current state.
    Status(Status),
    /// Player or, without a number, game server: digest of all state hashes up to a tick.
    Checkpoint {
        /// Its number in the plan; `None` for the server.
        player: Option<u16>,
        ticks: u32,
        digest: u64,
    },
    /// Game server: states differ.
    Desync {
        /// First tick that differs.
        tick: u32,
        seats: Vec<u16>,
    },
    /// Game server: a player left before the end.
    Left { seat: u16, reason: String },
    /// Player: effect of a fault.
    Gap(Gap),
    /// Player: the route that it will use.
    RouteFound {
        player: u16,
        /// The entry; `None` if the direct route is the fastest.
        entry: Option<u8>,
        /// Whether a ping through the mesh was answered.
        is_pinged: bool,
    },
    /// Relay: a link is up.
    LinkUp { relay: u8 },
    /// Relay: flows to another node changed their path.
    Route {
        relay: u8,
        /// The nodes after this one, the last one included.
        path: Vec<u8>,
    },
    /// Mail writer: mails are in flight.
    MailUnderWay { count: usize },
    /// Mail writer: the link to the hub is lost.
    HubLost {
        /// Mails that the hub had not acknowledged.
        mails_under_way: usize,
    },
    /// Mail writer: totals so far.
    MailWritten {
        sent: u64,
        /// Mails that the hub has stored.
        acknowledged: u64,
    },
    /// Mail reader: totals so far.
    MailRead { delivered: u64, duplicates: u64 },
    /// Players: round trips of all players over the whole match.
    Measured {
        direct: Quantiles,
        /// Of the sessions on each player's assigned route.
        accelerated: Quantiles,
        /// Of those of them that use the mesh.
        mesh: Quantiles,
        players: Vec<Medians>,
    },
    /// Game server: counters at its end.
    Closed { joins_refused: u64 },
    /// An error that ends the run.
    Failed { reason: String },
}

/// Effect of one fault on one player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gap {
    pub(crate) fault: u8,
    /// The player's number in the plan.
    pub(crate) player: u16,
    /// From the fault to the end of the silence that it caused; 0 if it caused none.
    pub(crate) silence_us: u64,
    /// Datagrams without an answer, from one round trip before the fault to the end of the gap.
    pub(crate) lost_datagrams: u32,
}

/// A seat of a match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The match, as tickets name it.
    pub(crate) match_id: String,
    pub(crate) seat: u16,
}

/// Mails in flight at least if the hub is killed: the writer's window.
pub(crate) const MAILS_AT_KILL_MIN: u64 = 64;

/// Current state of one player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) player: u16,
    pub(crate) is_entered: bool,
    /// Smoothed round trip of the direct session, microseconds.
    pub(crate) direct_us: u64,
    pub(crate) accelerated_us: u64,
    /// Packets of the accelerated session that were lost, in a million of those sent.
    pub(crate) loss_per_million: u64,
    pub(crate) ticks: u32,
    pub(crate) hash: u64,
}

/// The median round trips of one player, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Medians {
    pub(crate) player: u16,
    /// Whether its assigned route uses the mesh.
    pub(crate) is_mesh: bool,
    /// Of the session on the direct route.
    pub(crate) direct_us: u64,
    /// Of the session on its assigned route, in use or not.
    pub(crate) accelerated_us: u64,
    /// Of the sessions that it used for play.
    pub(crate) played_us: u64,
}

/// Returns the median by nearest rank; 0 without samples.
pub(crate) fn median(mut samples: Vec<u32>) -> u64 {
    samples.sort_unstable();
    ranked(&samples, 50).map_or(0, u64::from)
}

/// Round trips of several players, in microseconds.
///
/// Players are far apart, so the median of all samples would jump between two players' values with
/// little noise. So the median is that of the players' own medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    /// Median of the players' medians; of an even number of players, the mean of the middle two.
    pub(crate) p50_us: u64,
    /// 99th percentile of all players' samples.
    pub(crate) p99_us: u64,
    pub(crate) samples: u64,
}

impl Quantiles {
    /// Computes them from the samples of each player, by nearest rank; 0 without samples.
    pub(crate) fn of(players: Vec<Vec<u32>>) -> Self {
        let mut all = Vec::new();
        let mut medians = Vec::new();
        for mut samples in players {
            samples.sort_unstable();
            if let Some(median) = ranked(&samples, 50) {
                medians.push(median);
            }
            all.append(&mut samples);
        }
        all.sort_unstable();
        medians.sort_unstable();
        let upper = medians.get(medians.len() / 2).copied().unwrap_or(0);
        let p50_us = match ranked(&medians, 50) {
            Some(lower) => u64::midpoint(lower.into(), upper.into()),
            None => 0,
        };
        Self {
            p50_us,
            p99_us: ranked(&all, 99).map_or(0, u64::from),
            samples: u64::try_from(all.len()).unwrap_or(u64::MAX),
        }
    }
}

/// The smallest of `sorted` that `percent` of them do not exceed.
fn ranked(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100);
    let rank = rank.saturating_sub(1);
    sorted.get(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p50_is_of_the_players_medians_and_p99_of_all_samples() {
        let all = Quantiles::of(vec![(1..=100).rev().collect()]);
        assert_eq!((all.p50_us, all.p99_us, all.samples), (50, 99, 100));
        // Most samples are of one player, but each player counts once.
        let uneven = Quantiles::of(vec![vec![10; 900], vec![30; 10], vec![90; 10]]);
        assert_eq!((uneven.p50_us, uneven.p99_us), (30, 90));
        assert_eq!(Quantiles::of(vec![vec![10], vec![31]]).p50_us, 20);
        assert_eq!(Quantiles::of(vec![vec![7]]).p99_us, 7);
        assert_eq!(Quantiles::of(vec![Vec::new()]), Quantiles::default());
    }
}
