//! Measures how long a player received nothing after a fault.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

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

/// Effect of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Number of the fault.
    pub(super) fault: u8,
    /// Time of the fault.
    pub(super) at: Instant,
    /// From then to the end of the silence that it caused; zero if it caused none.
    pub(super) span: Duration,
}

impl Gaps {
    /// Records an arrival of the match.
    pub(super) fn on_arrival(&mut self, now: Instant) {
        if self.arrivals.len() >= ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
    }

    /// Records a fault.
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
/// Faults measured at a time.
const MARKS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn no_silence_is_no_gap_and_an_endless_one_counts_as_the_window() {
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
