//! Matches of eight on real sockets with encryption: what a player costs the server in a tick, beside bare
//! loops that take and send as many datagrams of the same lengths.
//!
//! Server and loops run on one thread of this process, whose CPU time is measured. Who plays, and who sends
//! to the loops, is another process.

pub mod child;
pub mod crowd;
pub mod echo;
pub mod floor;
pub mod host;
pub mod pace;

use core::time::Duration;
use std::num::NonZeroU32;

/// Players of a match.
pub const SEATS: u16 = 8;

/// Turns of the server in a tick: a quarter of the matches closes in each.
pub const TURNS: u32 = 4;

/// How many play how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Matches, of [`SEATS`] players each.
    pub matches: u32,
    /// Ticks a second.
    pub rate: NonZeroU32,
}

impl Plan {
    /// Returns how many play.
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

    /// Returns how many ticks all players together take part in, in `span`.
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
