//! The round trip of a path whose queues are empty.

use core::time::Duration;

use wire::Instant;

use crate::nanos::Nanos;

/// The smallest of the round trips of the last ten to twenty seconds.
///
/// The smallest ever would hold a path that has become longer for one with a queue, for good; so two
/// spans are kept, and the older one is forgotten. Who fills the queue himself lets it run empty at
/// the turn of the spans, or he would take it for a part of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseDelay {
    /// Smallest of the span that runs; [`Nanos::MAX`] before the first.
    current: Nanos,
    /// Smallest of the one before; as `current`.
    previous: Nanos,
    /// When the next span begins.
    turn_at: Instant,
}

/// How long a span is.
const SPAN: Duration = Duration::from_secs(10);

impl BaseDelay {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            current: Nanos::MAX,
            previous: Nanos::MAX,
            turn_at: now,
        }
    }

    /// Returns the round trip without queues; `None` where none was measured.
    pub(super) fn get(&self) -> Option<Duration> {
        let base = self.current.min(self.previous);
        (base < Nanos::MAX).then(|| base.get())
    }

    /// Takes a round trip; returns whether a further span has begun.
    pub(super) fn on_sample(&mut self, now: Instant, sample: Duration) -> bool {
        let sample = Nanos::of(sample);
        let is_turn = now >= self.turn_at;
        if is_turn {
            if self.current < Nanos::MAX {
                self.previous = self.current;
            }
            self.current = Nanos::MAX;
            self.turn_at = now + SPAN;
        }
        self.current = self.current.min(sample);
        is_turn && self.previous < Nanos::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_longer_path_is_believed_within_twenty_seconds_and_a_shorter_one_at_once() {
        let mut base = BaseDelay::new(Instant::ZERO);
        assert_eq!(base.get(), None);
        let mut turns = Vec::new();
        for second in 0..40 {
            let sample = if second < 5 { ms(40) } else { ms(140) };
            if base.on_sample(Instant::from_millis(second * 1_000), sample) {
                turns.push(second);
            }
            let expected = if second < 20 { ms(40) } else { ms(140) };
            assert_eq!(base.get(), Some(expected), "{second}");
        }
        assert_eq!(turns, [10, 20, 30]);
        base.on_sample(Instant::from_millis(40_000), ms(30));
        assert_eq!(base.get(), Some(ms(30)));
    }

    #[test]
    fn after_a_long_silence_the_last_span_still_counts_until_another_is_over() {
        let mut base = BaseDelay::new(Instant::ZERO);
        base.on_sample(Instant::ZERO, ms(40));
        assert!(base.on_sample(Instant::from_millis(900_000), ms(70)));
        assert_eq!(base.get(), Some(ms(40)));
        assert!(base.on_sample(Instant::from_millis(910_000), ms(70)));
        assert_eq!(base.get(), Some(ms(70)));
    }
}
