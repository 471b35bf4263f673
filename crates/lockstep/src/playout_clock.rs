//! When to play what was sent: the sender's clock, as heard through the network, and a delay.

use core::time::Duration;

use wire::Instant;

use crate::playout::{Playout, PlayoutDelay};

/// Arrivals over which the quickest is taken, twice: long enough for a quiet moment, short enough
/// for a drift of 200 ppm to cost 0.4 ms at 60 Hz.
const WINDOW: u32 = 64;

/// How the sender's moments come to be ours.
#[derive(Clone, Debug)]
pub(crate) struct PlayoutClock {
    /// What our clock shows when the sender's shows nothing, had the quickest of late been sent
    /// then, in nanoseconds: of the last whole window, and of the one that is being filled, with
    /// how many are in it. `None` before the first arrival.
    quickest: Option<(i64, (i64, u32))>,
    delay: PlayoutDelay,
}

impl PlayoutClock {
    pub(crate) const fn new(playout: Playout) -> Self {
        Self {
            quickest: None,
            delay: PlayoutDelay::new(playout),
        }
    }

    /// Takes the arrival of what was sent at `sent_at` of the sender's clock.
    pub(crate) fn on_arrival(&mut self, now: Instant, sent_at: Instant) {
        let base = nanos(now).saturating_sub(nanos(sent_at));
        let (settled, (filling, count)) = self.quickest.unwrap_or((base, (i64::MAX, 0)));
        let (filling, count) = (filling.min(base), count.saturating_add(1));
        self.quickest = Some(if count == WINDOW {
            (filling, (i64::MAX, 0))
        } else {
            (settled, (filling, count))
        });
    }

    /// Takes word that what belongs to `sent_at` could be played from `now` on.
    pub(crate) fn on_ready(&mut self, now: Instant, sent_at: Instant) {
        if let Some(base) = self.base() {
            let late = nanos(now).saturating_sub(nanos(sent_at).saturating_add(base));
            let late = Duration::from_nanos(u64::try_from(late).unwrap_or(0));
            self.delay.on_late(now, late);
        }
    }

    /// Returns how much sooner than the quickest of late it would have had to be sent, to come
    /// now; none where it is not sooner.
    pub(crate) fn lead(&self, now: Instant, sent_at: Instant) -> Duration {
        let lead = self.base().map_or(0, |base| {
            let sooner = nanos(sent_at).saturating_add(base);
            sooner.saturating_sub(nanos(now))
        });
        Duration::from_nanos(u64::try_from(lead).unwrap_or(0))
    }

    /// Returns the moment of the sender's clock that is played at `now`; `None` before the first
    /// arrival.
    pub(crate) fn played(&self, now: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos_of(self.delay.get()));
        Some(instant(nanos(now).saturating_sub(base)))
    }

    /// Returns when `sent_at` is played.
    pub(crate) fn play_at(&self, sent_at: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos_of(self.delay.get()));
        Some(instant(nanos(sent_at).saturating_add(base)))
    }

    /// Returns how long what is as quick as the quickest is held back.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.get()
    }

    /// Begins anew with another clock of the sender's, keeping what was learned of the network.
    pub(crate) const fn restart(&mut self) {
        self.quickest = None;
    }

    fn base(&self) -> Option<i64> {
        self.quickest
            .map(|(settled, (filling, _))| settled.min(filling))
    }
}

fn nanos(now: Instant) -> i64 {
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos_of(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

fn instant(nanos: i64) -> Instant {
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn moments_follow_the_quickest_arrival_of_late() {
        let mut clock = PlayoutClock::new(Playout::Fixed(Duration::from_millis(10)));
        assert_eq!(
            (clock.played(millis(9)), clock.play_at(millis(9))),
            (None, None)
        );
        clock.on_arrival(millis(5_060), millis(1_000));
        clock.on_arrival(millis(5_150), millis(1_100));
        clock.on_arrival(millis(5_260), millis(1_200));
        assert_eq!(clock.play_at(millis(1_300)), Some(millis(5_360)));
        assert_eq!(clock.played(millis(5_360)), Some(millis(1_300)));
        assert_eq!(
            clock.lead(millis(5_000), millis(1_000)),
            Duration::from_millis(50)
        );
        // The path gets 20 ms slower: after a whole window that counts.
        for sent in (1_300..).step_by(100).take(128) {
            clock.on_arrival(millis(sent + 4_070), millis(sent));
        }
        assert_eq!(clock.play_at(millis(1_300)), Some(millis(5_380)));
        clock.restart();
        assert_eq!(clock.play_at(millis(1_300)), None);
        clock.on_arrival(millis(20_000), millis(3));
        assert_eq!(clock.play_at(millis(4)), Some(millis(20_011)));
    }

    #[test]
    fn no_number_is_a_trap() {
        let far = Instant::from_nanos(u64::MAX);
        for sent in [Instant::ZERO, far] {
            for now in [Instant::ZERO, far] {
                let max = Duration::MAX;
                let mut clock = PlayoutClock::new(Playout::Adaptive { max });
                clock.on_arrival(now, sent);
                clock.on_ready(far, Instant::ZERO);
                clock.on_ready(far, Instant::ZERO);
                assert!(clock.played(now).is_some() && clock.play_at(sent).is_some());
            }
        }
    }
}
