//! Matches of eight on real sockets with encryption: the cost of a player to the server per tick,
//! compared with bare loops which receive and send as many datagrams of equal lengths.
//!
//! Server and loops run on one thread of this process, whose CPU time is measured. The players, and
//! the senders to the loops, run in another process.

pub mod child;
pub mod clients;
pub mod echo;
pub mod floor;
pub mod host;
pub mod ticker;

use core::time::Duration;
use std::num::NonZeroU32;

/// Players per match.
pub const SEATS: u16 = 8;

/// Server turns per tick. A quarter of the matches closes in each.
pub const TURNS: u32 = 4;

/// Number of players and tick rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Matches, of [`SEATS`] players each.
    pub matches: u32,
    /// Ticks per second.
    pub rate: NonZeroU32,
}

impl Plan {
    /// Returns the number of players.
    #[must_use]
    pub const fn players(self) -> u32 {
        self.matches.saturating_mul(SEATS as u32)
    }

    /// Returns the length of a tick.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_secs(1) / self.rate.get()
    }

    /// Returns the time between two turns of the server.
    #[must_use]
    pub fn turn(self) -> Duration {
        self.period() / TURNS
    }

    /// Returns the sum over all players of their ticks in `span`.
    #[must_use]
    pub fn player_ticks(self, span: Duration) -> f64 {
        f64::from(self.players()) * f64::from(self.rate.get()) * span.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_counts_players_and_their_ticks() {
        let plan = Plan {
            matches: 313,
            rate: NonZeroU32::new(60).unwrap(),
        };
        assert_eq!(plan.players(), 2_504);
        let ticks = plan.player_ticks(Duration::from_secs(10));
        assert!((ticks - 1_502_400.0).abs() < 0.5, "{ticks}");
        assert_eq!(plan.turn(), Duration::from_nanos(4_166_666));
    }
}
