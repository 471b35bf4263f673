//! Round trips of the last 30 s.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

/// Round trips of the last 30 s, at most 512 of them.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// When each came and how long it took in µs, oldest first.
    samples: VecDeque<(Instant, u32)>,
    /// Kept between summaries, so that none allocates.
    scratch: Vec<u32>,
}

/// What a [`Window`] shows; all in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Shortest round trip.
    pub min: u32,
    /// The one in the middle; of two, the shorter.
    pub median: u32,
    /// 19 of 20 took no longer (nearest rank).
    pub p95: u32,
    /// How many there were.
    pub samples: usize,
}

impl Summary {
    /// Returns p95 − median.
    #[must_use]
    pub const fn jitter(&self) -> u32 {
        self.p95.saturating_sub(self.median)
    }
}

impl Window {
    /// How far it reaches back.
    pub const SPAN: Duration = Duration::from_secs(30);
    /// How many round trips it holds; the oldest leaves first. Probes at 5 Hz fill 150.
    pub const SAMPLES_MAX: usize = 512;

    /// Takes a round trip that ended at `now`; past 71 minutes it counts as 71 minutes.
    pub fn add(&mut self, now: Instant, round_trip: Duration) {
        self.expire(now);
        if self.samples.len() >= Self::SAMPLES_MAX {
            self.samples.pop_front();
        }
        let micros = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        self.samples.push_back((now, micros));
    }

    /// Returns what the last 30 s show, `None` where they hold nothing.
    pub fn summary(&mut self, now: Instant) -> Option<Summary> {
        self.expire(now);
        self.scratch.clear();
        self.scratch
            .extend(self.samples.iter().map(|&(_, micros)| micros));
        self.scratch.sort_unstable();
        let samples = self.scratch.len();
        let rank = |index: usize| self.scratch.get(index).copied();
        Some(Summary {
            min: rank(0)?,
            median: rank(samples.saturating_sub(1) / 2)?,
            p95: rank((samples * 19).div_ceil(20).saturating_sub(1))?,
            samples,
        })
    }

    /// Returns the middle one of the newest three round trips, in µs.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        let mut newest = self.samples.iter().rev().map(|&(_, micros)| micros);
        let (a, b, c) = (newest.next()?, newest.next()?, newest.next()?);
        Some(a.min(b).max(a.max(b).min(c)))
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(at, _)) = self.samples.front() {
            if now.saturating_since(at) <= Self::SPAN {
                break;
            }
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(trips in prop::collection::vec((0_u64..2_000, 0_u32..500_000), 1..700)) {
            let (mut window, mut model, mut now) = (Window::default(), Vec::new(), 0);
            for (gap, micros) in trips {
                now += gap;
                window.add(Instant::from_millis(now), Duration::from_micros(micros.into()));
                model.push((now, micros));
            }
            let newest = model.len().saturating_sub(Window::SAMPLES_MAX);
            let mut held: Vec<u32> = model[newest..]
                .iter()
                .filter(|(at, _)| now - at <= 30_000)
                .map(|&(_, micros)| micros)
                .collect();
            held.sort_unstable();
            let n = held.len();
            let summary = window.summary(Instant::from_millis(now)).unwrap();
            prop_assert_eq!(summary.samples, n);
            prop_assert_eq!(summary.min, held[0]);
            prop_assert_eq!(summary.median, held[(n - 1) / 2]);
            let below = held.iter().filter(|&&micros| micros <= summary.p95).count();
            prop_assert!(below * 20 >= n * 19);
            prop_assert!(held.contains(&summary.p95));
            prop_assert_eq!(window.summary(Instant::from_millis(now + 30_001)), None);
        }
    }

    #[test]
    fn the_newest_is_the_middle_of_three() {
        let mut window = Window::default();
        for micros in [9_000, 1, 7, 5] {
            assert!(window.newest().is_none_or(|middle| middle == 7));
            window.add(Instant::ZERO, Duration::from_micros(micros));
        }
        assert_eq!(window.newest(), Some(5));
    }

    #[test]
    fn holds_no_more_than_its_bound() {
        let mut window = Window::default();
        for micros in 0..10_000 {
            window.add(Instant::ZERO, Duration::from_micros(micros));
        }
        let summary = window.summary(Instant::ZERO).unwrap();
        assert_eq!(summary.samples, Window::SAMPLES_MAX);
        assert_eq!(summary.min, 10_000 - 512);
    }
}
