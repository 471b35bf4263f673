//! What the processes of a run say to each other over their pipes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::wan::Accident;

/// What the orchestrator tells a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Players: ask the matchmaker for seats, and enter the match.
    Join,
    /// Players: something is about to happen to the network; measure what it does to you.
    Mark {
        /// Which accident.
        accident: u8,
    },
    /// Players: find out which way is the shortest, and say so.
    Scout,
    /// Relay: a link of yours gets worse.
    Degrade {
        /// Your end.
        host: IpAddr,
        /// The other one.
        remote: IpAddr,
        /// How much.
        accident: Accident,
    },
    /// Players: say what you have measured.
    Conclude,
}

/// What a child tells the orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The process serves.
    Ready,
    /// Game server: the matchmaker knows it, has its token key, and renews its lease.
    Leased,
    /// Game server: the hub says that all counts so far are on its disk.
    Counted {
        /// What they amount to.
        ticks: u64,
    },
    /// Player: all sessions are open.
    Joined {
        /// Its number in the plan.
        player: u16,
    },
    /// Player: its first turn is there.
    Seated {
        /// Its number in the plan.
        player: u16,
        /// Where its ticket says that it plays.
        given: Place,
        /// Where it plays.
        played: Place,
    },
    /// Game server: tick 0 begins.
    Started,
    /// Player: how it goes.
    Status(Status),
    /// Player or, without one, game server: digest over all state hashes up to a tick.
    Checkpoint {
        /// Its number in the plan; `None` for the server.
        player: Option<u16>,
        /// Ticks that the digest covers.
        ticks: u32,
        /// Equal where all states were equal.
        digest: u64,
    },
    /// Game server: states differ.
    Desync {
        /// First tick that differs.
        tick: u32,
        /// Whose.
        seats: Vec<u16>,
    },
    /// Game server: a player is out before the end.
    Left {
        /// Seat.
        seat: u16,
        /// Why.
        reason: String,
    },
    /// Player: what an accident did to it.
    Gap {
        /// Which accident.
        accident: u8,
        /// Its number in the plan.
        player: u16,
        /// From the accident to the end of the silence that it caused; 0 where it caused none.
        gap_us: u64,
        /// Datagrams of the player's that found no answer, from a round trip before the accident
        /// to the end of the gap.
        lost_datagrams: u32,
    },
    /// Player: where it will enter.
    Way {
        /// Its number in the plan.
        player: u16,
        /// The entry; `None` where the direct way is the shortest.
        entry: Option<u8>,
        /// Round trip of the direct way, microseconds; `None` where nothing came back.
        direct_us: Option<u64>,
        /// Of the best entry.
        entry_us: Option<u64>,
    },
    /// Relay: another one is there.
    LinkUp {
        /// Which one says it.
        relay: u8,
    },
    /// Relay: packets to another one take another path.
    Route {
        /// Which one says it.
        relay: u8,
        /// The nodes that they pass behind it, the end included.
        path: Vec<u8>,
        /// Why.
        cause: RouteCause,
        /// How many players' sessions they are of, pings included.
        flows: usize,
    },
    /// Writer of mails: mails are on their way.
    MailUnderWay {
        /// How many.
        count: usize,
    },
    /// Writer of mails: the hub has gone.
    HubLost {
        /// Mails that it had not said to be on disk.
        mails_under_way: usize,
    },
    /// Writer of mails: how many so far.
    MailWritten {
        /// Given to the node.
        sent: u64,
        /// Said by the hub to be on disk.
        acknowledged: u64,
    },
    /// Reader of mails: how many so far.
    MailRead {
        /// Different ones.
        delivered: u64,
        /// Those that had come before.
        duplicates: u64,
    },
    /// Players: round trips of all players over the whole match.
    Measured {
        /// Of direct sessions.
        direct: Quantiles,
        /// Of the sessions that go the way that each player was told to play by.
        accelerated: Quantiles,
        /// Of those of them that go through the mesh.
        mesh: Quantiles,
        /// Of each player.
        players: Vec<Medians>,
    },
    /// Game server: counters at its end.
    Closed {
        /// Attempts to join that were not let in.
        joins_refused: u64,
    },
    /// Something went wrong that ends the run.
    Failed {
        /// One sentence.
        reason: String,
    },
}

/// A seat of a match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The match, as tickets name it.
    pub match_id: String,
    /// The seat in it.
    pub seat: u16,
}

/// Mails that the hub is killed with at least: as many as its sender keeps under way.
pub const MAILS_AT_KILL_MIN: u64 = 64;

/// Why packets take another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteCause {
    /// They had none.
    First,
    /// The old one no longer carried.
    Killed,
    /// The old one had become slow or lossy.
    Degraded,
    /// The new one had been better for long enough.
    Better,
}

/// How one player is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its number in the plan.
    pub player: u16,
    /// Whether it plays through the mesh now.
    pub is_entered: bool,
    /// Smoothed round trip of the direct session, microseconds.
    pub direct_us: u64,
    /// Of the accelerated session.
    pub accelerated_us: u64,
    /// Packets of the accelerated session that were lost, in a million of those sent.
    pub loss_per_million: u64,
    /// Ticks simulated.
    pub ticks: u32,
    /// State hash after the last one.
    pub hash: u64,
}

/// The median round trips of one player, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medians {
    /// Its number in the plan.
    pub player: u16,
    /// Whether it was told to play through the mesh.
    pub is_mesh: bool,
    /// Of the session that measures the direct way.
    pub direct_us: u64,
    /// Of the session that goes the way that it was told to play by, in use or not.
    pub accelerated_us: u64,
    /// Of the sessions that it played by.
    pub played_us: u64,
}

/// The median of samples, by nearest rank; zero where there are none.
#[must_use]
pub fn median(mut samples: Vec<u32>) -> u64 {
    samples.sort_unstable();
    ranked(&samples, 50).map_or(0, u64::from)
}

/// Round trips of several players, in microseconds.
///
/// Players are far apart, so half of all samples lie below a gap between two players' values as
/// often as not, and a breath of noise would move a common median by the width of the gap. So the
/// median is that of the players' own medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median of the players' medians; of an even number of players, the mean of the middle two.
    pub p50_us: u64,
    /// 99 of 100 samples of all players lie below.
    pub p99_us: u64,
    /// How many samples there were.
    pub samples: u64,
}

impl Quantiles {
    /// Takes the points from the samples of each player, by nearest rank; zero where there are
    /// none.
    #[must_use]
    pub fn of(players: Vec<Vec<u32>>) -> Self {
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
    fn the_median_is_that_of_players_and_the_tail_that_of_all() {
        let all = Quantiles::of(vec![(1..=100).rev().collect()]);
        assert_eq!((all.p50_us, all.p99_us, all.samples), (50, 99, 100));
        // Most samples are one player's; each player counts once.
        let uneven = Quantiles::of(vec![vec![10; 900], vec![30; 10], vec![90; 10]]);
        assert_eq!((uneven.p50_us, uneven.p99_us), (30, 90));
        assert_eq!(Quantiles::of(vec![vec![10], vec![31]]).p50_us, 20);
        assert_eq!(Quantiles::of(vec![vec![7]]).p99_us, 7);
        assert_eq!(Quantiles::of(vec![Vec::new()]), Quantiles::default());
    }
}
