//! How long a player heard nothing after an accident.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

/// When datagrams of the match arrived, and the accidents that are being measured.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The latest arrivals, the oldest first.
    arrivals: VecDeque<Instant>,
    /// Accidents whose time is not over, the oldest first.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    accident: u8,
    at: Instant,
}

/// What one accident did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Which accident.
    pub(super) accident: u8,
    /// When it happened.
    pub(super) at: Instant,
    /// From then to the end of the silence that it caused; zero where it caused none.
    pub(super) span: Duration,
}

impl Gaps {
    /// Takes note of a datagram of the match.
    pub(super) fn on_arrival(&mut self, now: Instant) {
        if self.arrivals.len() >= ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
    }

    /// Takes note of an accident.
    pub(super) fn on_accident(&mut self, now: Instant, accident: u8) {
        if self.marks.len() < MARKS_MAX {
            self.marks.push_back(Mark { accident, at: now });
        }
    }

    /// Returns when the next accident can be judged.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.marks.front().map(|mark| mark.at + WINDOW)
    }

    /// Judges the next accident whose time is over.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Gap> {
        let mark = *self.marks.front()?;
        if now < mark.at + WINDOW {
            return None;
        }
        self.marks.pop_front();
        Some(self.judge(mark, mark.at + WINDOW))
    }

    /// Judges the next accident although its time is not over: the match is.
    pub(super) fn conclude(&mut self, now: Instant) -> Option<Gap> {
        let mark = self.marks.pop_front()?;
        Some(self.judge(mark, now.min(mark.at + WINDOW)))
    }

    fn judge(&self, Mark { accident, at }: Mark, last: Instant) -> Gap {
        Gap {
            accident,
            at,
            span: self.silence(at, last).saturating_since(at),
        }
    }

    /// The end of the longest silence that began at `at` or shortly after and ended by `last`;
    /// `at` itself where there was none worth the name.
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

/// How long after an accident its silence may end; a longer one is given as this long.
pub(super) const WINDOW: Duration = Duration::from_secs(5);
/// What was on its way before the accident still arrives for this long.
const ONSET_MAX: Duration = Duration::from_millis(600);
/// Silences that jitter and single losses make at 30 datagrams a second are no gap.
const SILENCE_MIN: Duration = Duration::from_millis(100);
/// Arrivals remembered: twice the window, at 200 datagrams a second.
const ARRIVALS_MAX: usize = 2_048;
/// Accidents measured at a time.
const MARKS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Arrivals each 33 ms but between `from` and `to`, and an accident at 10 s.
    fn gap(silences: &[(u64, u64)]) -> Duration {
        let mut gaps = Gaps::default();
        for millis in (0..20_000).step_by(33) {
            if millis == 9_999 {
                gaps.on_accident(at(10_000), 1);
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
    fn a_gap_counts_from_the_accident_to_the_end_of_the_silence() {
        let span = gap(&[(10_100, 10_450)]);
        assert!((450..490).contains(&span.as_millis()), "{span:?}");
    }

    #[test]
    fn no_silence_is_no_gap_and_an_endless_one_is_the_window() {
        assert_eq!(gap(&[]), Duration::ZERO);
        assert_eq!(gap(&[(10_000, 20_000)]), WINDOW);
        assert_eq!(
            gap(&[(10_050, 10_090)]),
            Duration::ZERO,
            "one lost datagram"
        );
    }

    #[test]
    fn a_silence_that_begins_much_later_is_not_the_accidents() {
        assert_eq!(gap(&[(12_000, 13_000)]), Duration::ZERO);
    }

    #[test]
    fn the_end_of_the_match_ends_the_wait() {
        let mut gaps = Gaps::default();
        gaps.on_accident(at(1_000), 3);
        gaps.on_arrival(at(1_400));
        assert_eq!(gaps.poll(at(1_500)), None);
        let gap = gaps.conclude(at(1_500)).unwrap();
        assert_eq!((gap.accident, gap.span), (3, Duration::from_millis(400)));
        assert_eq!(gaps.conclude(at(1_500)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut gaps = Gaps::default();
        for millis in 0..10_000 {
            gaps.on_arrival(at(millis));
            gaps.on_accident(at(millis), 0);
        }
        assert_eq!(gaps.arrivals.len(), ARRIVALS_MAX);
        assert_eq!(gaps.marks.len(), MARKS_MAX);
    }
}
