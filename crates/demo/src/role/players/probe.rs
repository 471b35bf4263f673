//! Pings over one session: round trips, and pings without an answer.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

use crate::game_protocol::PING;

/// The pings of one session.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Latest pings, oldest first.
    pings: VecDeque<Ping>,
    /// Number of the next ping.
    next: u32,
    /// Latest round trips, and when they ended.
    recent: VecDeque<(Instant, Duration)>,
}

#[derive(Debug)]
struct Ping {
    number: u32,
    sent_at: Instant,
    /// Whether the player used this session for play if it was sent.
    is_played: bool,
    is_answered: bool,
}

/// Whether a session is in use for play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// In use.
    Played,
    /// A fallback, or only for measurement.
    Idle,
}

impl Probe {
    /// Makes the next ping.
    pub(super) fn ping(&mut self, now: Instant, used: Use) -> [u8; 5] {
        if self.pings.len() >= PINGS_MAX {
            self.pings.pop_front();
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.pings.push_back(Ping {
            number,
            sent_at: now,
            is_played: used == Use::Played,
            is_answered: false,
        });
        let [a, b, c, d] = number.to_be_bytes();
        [PING, a, b, c, d]
    }

    /// Records an answer and returns its round trip. A second answer to a ping is ignored.
    pub(super) fn on_echo(&mut self, now: Instant, number: [u8; 4]) -> Option<Duration> {
        let number = u32::from_be_bytes(number);
        let oldest = self.pings.front().map(|ping| ping.number)?;
        let at = usize::try_from(number.wrapping_sub(oldest)).ok()?;
        let ping = self.pings.get_mut(at).filter(|ping| !ping.is_answered)?;
        ping.is_answered = true;
        let span = now.saturating_since(ping.sent_at);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, span));
        Some(span)
    }

    /// Returns the median of the latest round trips; `None` after a silence of [`SILENCE_MAX`].
    pub(super) fn recent(&self, now: Instant) -> Option<Duration> {
        let (last, _) = self.recent.back()?;
        if now.saturating_since(*last) >= SILENCE_MAX {
            return None;
        }
        let mut spans: Vec<Duration> = self.recent.iter().map(|(_, span)| *span).collect();
        spans.sort_unstable();
        spans.get(spans.len() / 2).copied()
    }

    /// Counts the unanswered pings that were sent between `from` and `to` on the session in use.
    pub(super) fn lost(&self, from: Instant, to: Instant) -> u32 {
        let lost = self
            .pings
            .iter()
            .filter(|ping| ping.is_played && !ping.is_answered)
            .filter(|ping| ping.sent_at >= from && ping.sent_at < to)
            .count();
        u32::try_from(lost).unwrap_or(u32::MAX)
    }
}

/// Round trips in the median: half a second at one a tick.
const RECENT_MAX: usize = 15;
/// Six unanswered pings in a row: probability one in a million at 10 % loss.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// Pings kept: half a minute at one a tick.
const PINGS_MAX: usize = 1_024;
#[cfg(test)]
mod tests {
    use super::*;

    fn number([_, number @ ..]: [u8; 5]) -> [u8; 4] {
        number
    }

    #[test]
    fn round_trips_and_losses_are_distinguished() {
        let mut probe = Probe::default();
        let at = Instant::from_millis;
        let mut pings = Vec::new();
        for i in 0..4 {
            pings.push(number(probe.ping(at(i * 10), Use::Played)));
        }
        probe.ping(at(35), Use::Idle);
        assert_eq!(
            probe.on_echo(at(50), pings[0]),
            Some(Duration::from_millis(50))
        );
        assert_eq!(
            probe.on_echo(at(51), pings[2]),
            Some(Duration::from_millis(31))
        );
        assert_eq!(probe.on_echo(at(99), pings[2]), None, "answered before");
        assert_eq!(probe.lost(at(0), at(100)), 2);
        assert_eq!(probe.lost(at(10), at(30)), 1);
    }

    #[test]
    fn silence_is_noticed() {
        let mut probe = Probe::default();
        let at = Instant::from_millis;
        assert_eq!(probe.recent(at(0)), None);
        let ping = number(probe.ping(at(0), Use::Played));
        probe.on_echo(at(40), ping);
        assert_eq!(probe.recent(at(239)), Some(Duration::from_millis(40)));
        assert_eq!(probe.recent(at(240)), None);
    }

    #[test]
    fn old_pings_are_dropped_and_unknown_ones_ignored() {
        let mut probe = Probe::default();
        let first = number(probe.ping(Instant::ZERO, Use::Idle));
        for _ in 0..PINGS_MAX {
            let ping = number(probe.ping(Instant::ZERO, Use::Idle));
            probe.on_echo(Instant::ZERO, ping);
        }
        assert_eq!(probe.pings.len(), PINGS_MAX);
        assert_eq!(probe.recent.len(), RECENT_MAX);
        assert_eq!(probe.on_echo(Instant::ZERO, first), None);
        assert_eq!(probe.on_echo(Instant::ZERO, [0xff; 4]), None);
    }
}
