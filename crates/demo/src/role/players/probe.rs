//! Pings over one session: round trips, and pings without an answer.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

use crate::game_protocol::PING;

#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Latest pings, oldest first.
    pings: VecDeque<Ping>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Played,
    /// A fallback, or only for measurement.
    Idle,
}

impl Probe {
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

/// Arrival times of the match's datagrams, and the faults being measured.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Latest arrivals, oldest first.
    arrivals: VecDeque<Instant>,
    /// Faults with an open window, oldest first.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    fault: u8,
    at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) fault: u8,
    pub(super) at: Instant,
    /// From then to the end of the silence that it caused; zero if it caused none.
    pub(super) span: Duration,
}

impl Gaps {
    pub(super) fn on_arrival(&mut self, now: Instant) {
        if self.arrivals.len() >= ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
    }

    pub(super) fn on_fault(&mut self, now: Instant, fault: u8) {
        if self.marks.len() < MARKS_MAX {
            self.marks.push_back(Mark { fault, at: now });
        }
    }

    /// Returns when the window of the next fault ends.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.marks.front().map(|mark| mark.at + WINDOW)
    }

    /// Returns the next gap after its window has ended.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Gap> {
        let mark = *self.marks.front()?;
        if now < mark.at + WINDOW {
            return None;
        }
        self.marks.pop_front();
        Some(self.judge(mark, mark.at + WINDOW))
    }

    /// Returns the next gap although its window is open, because the match ended.
    pub(super) fn conclude(&mut self, now: Instant) -> Option<Gap> {
        let mark = self.marks.pop_front()?;
        Some(self.judge(mark, now.min(mark.at + WINDOW)))
    }

    fn judge(&self, Mark { fault, at }: Mark, last: Instant) -> Gap {
        Gap {
            fault,
            at,
            span: self.silence(at, last).saturating_since(at),
        }
    }

    /// Returns the end of the longest silence that began at `at` or shortly after and ended by
    /// `last`; `at` if there was none.
    fn silence(&self, at: Instant, last: Instant) -> Instant {
        let mut before = at;
        let mut longest = (SILENCE_MIN, at);
        let ends = self.arrivals.iter().copied().filter(|end| *end > at);
        for end in ends.take_while(|end| *end < last).chain([last]) {
            let span = end.saturating_since(before);
            if span > longest.0 && before <= at + ONSET_MAX {
                longest = (span, end);
            }
            before = end;
        }
        longest.1
    }
}

/// Window after a fault; a longer silence counts as this long.
pub(super) const WINDOW: Duration = Duration::from_secs(5);
/// Datagrams in flight at the fault still arrive for this long.
const ONSET_MAX: Duration = Duration::from_millis(600);
/// Shorter silences are jitter and single losses at 30 datagrams a second.
const SILENCE_MIN: Duration = Duration::from_millis(100);
/// Arrivals kept: twice the window, at 200 datagrams a second.
const ARRIVALS_MAX: usize = 2_048;
const MARKS_MAX: usize = 8;

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
    fn silence_is_detected() {
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

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Arrivals every 33 ms except between `from` and `to`, and a fault at 10 s.
    fn gap(silences: &[(u64, u64)]) -> Duration {
        let mut gaps = Gaps::default();
        for millis in (0..20_000).step_by(33) {
            if millis == 9_999 {
                gaps.on_fault(at(10_000), 1);
            }
            if !silences
                .iter()
                .any(|(from, to)| (*from..*to).contains(&millis))
            {
                gaps.on_arrival(at(millis));
            }
        }
        assert_eq!(gaps.poll_timeout(), Some(at(15_000)));
        assert_eq!(gaps.poll(at(14_999)), None);
        gaps.poll(at(20_000)).unwrap().span
    }

    #[test]
    fn a_gap_lasts_from_the_fault_to_the_end_of_the_silence() {
        let span = gap(&[(10_100, 10_450)]);
        assert!((450..490).contains(&span.as_millis()), "{span:?}");
    }

    #[test]
    fn an_endless_silence_counts_as_the_window() {
        assert_eq!(gap(&[]), Duration::ZERO);
        assert_eq!(gap(&[(10_000, 20_000)]), WINDOW);
        assert_eq!(
            gap(&[(10_050, 10_090)]),
            Duration::ZERO,
            "one lost datagram"
        );
    }

    #[test]
    fn a_much_later_silence_is_not_attributed_to_the_fault() {
        assert_eq!(gap(&[(12_000, 13_000)]), Duration::ZERO);
    }

    #[test]
    fn the_end_of_the_match_ends_the_wait() {
        let mut gaps = Gaps::default();
        gaps.on_fault(at(1_000), 3);
        gaps.on_arrival(at(1_400));
        assert_eq!(gaps.poll(at(1_500)), None);
        let gap = gaps.conclude(at(1_500)).unwrap();
        assert_eq!((gap.fault, gap.span), (3, Duration::from_millis(400)));
        assert_eq!(gaps.conclude(at(1_500)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut gaps = Gaps::default();
        for millis in 0..10_000 {
            gaps.on_arrival(at(millis));
            gaps.on_fault(at(millis), 0);
        }
        assert_eq!(gaps.arrivals.len(), ARRIVALS_MAX);
        assert_eq!(gaps.marks.len(), MARKS_MAX);
    }
}
