//! Round trips of the last 30 s.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

/// Round trips of the last 30 s, at most 512 of them.
///
/// Each is weighted by the time since the one before, at most 1 s. Otherwise the round trips of a few
/// bad seconds would dominate, since a suspect link is probed twenty times as often as an idle one.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Oldest first.
    samples: VecDeque<Sample>,
    /// Round trips in µs and their weights. Kept between summaries to avoid allocations.
    scratch: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    micros: u32,
    /// Weight in ms.
    weight: u32,
}

/// Statistics of a [`Window`], in µs, weighted by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Shortest round trip.
    pub min: u32,
    /// Weighted median; the lower of two.
    pub median: u32,
    /// Weighted 95th percentile (nearest rank).
    pub p95: u32,
    /// Number of round trips.
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
    /// Length of the window.
    pub const SPAN: Duration = Duration::from_secs(30);
    /// Maximum number of round trips; the oldest is evicted first. Probes at 5 Hz fill 150.
    pub const SAMPLES_MAX: usize = 512;

    /// Maximum plausible round trip of a path: a longer one waited for a process.
    pub const DELAY_MAX: Duration = Duration::from_secs(1);

    /// Adds a round trip that ended at `now`. One of more than 1 s gets minimal weight: one end
    /// stalled, which must not raise the link's jitter.
    pub fn add(&mut self, now: Instant, round_trip: Duration) {
        let before = self.samples.back();
        let since = before.map_or(FIRST, |before| now.saturating_since(before.at));
        let weight = u32::try_from(since.as_millis()).unwrap_or(WEIGHT_MAX);
        self.expire(now);
        if self.samples.len() >= Self::SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at: now,
            micros: u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX),
            weight: if round_trip > Self::DELAY_MAX {
                1
            } else {
                weight.clamp(1, WEIGHT_MAX)
            },
        });
    }

    /// Returns the statistics of the last 30 s, or `None` if there are no round trips.
    pub fn summary(&mut self, now: Instant) -> Option<Summary> {
        self.expire(now);
        self.scratch.clear();
        let samples = self.samples.iter();
        self.scratch
            .extend(samples.map(|sample| (sample.micros, sample.weight)));
        self.scratch.sort_unstable();
        let total: u32 = self.scratch.iter().map(|(_, weight)| weight).sum();
        Some(Summary {
            min: self.scratch.first()?.0,
            median: self.within(total.div_ceil(2))?,
            p95: self.within(total.saturating_mul(19).div_ceil(20))?,
            samples: self.scratch.len(),
        })
    }

    /// Returns the shortest round trip at which the accumulated weight reaches `weight`.
    fn within(&self, weight: u32) -> Option<u32> {
        let mut sum = 0_u32;
        let mut sorted = self.scratch.iter();
        let found = sorted.find(|(_, weighs)| {
            sum = sum.saturating_add(*weighs);
            sum >= weight
        });
        found.map(|&(micros, _)| micros)
    }

    /// Returns the median of the newest three round trips, in µs.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        let mut newest = self.samples.iter().rev().map(|sample| sample.micros);
        let (a, b, c) = (newest.next()?, newest.next()?, newest.next()?);
        Some(a.min(b).max(a.max(b).min(c)))
    }

    fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.samples.front() {
            if now.saturating_since(oldest.at) <= Self::SPAN {
                break;
            }
            self.samples.pop_front();
        }
    }
}

/// Weight of the first round trip.
const FIRST: Duration = Duration::from_millis(50);
/// Maximum weight of a round trip, in ms: links are probed at least once per second.
const WEIGHT_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A neighbour that stalled for 9 s answers late. Such an answer once raised the jitter of a
    /// young link for 20 s, and made it unroutable.
    #[test]
    fn mesh_a8_an_answer_that_waited_for_a_process_is_no_jitter() {
        let mut window = Window::default();
        for tick in 0..25 {
            window.add(Instant::from_millis(tick * 200), Duration::from_millis(20));
        }
        let (at, waited) = (Instant::from_millis(14_000), Duration::from_secs(9));
        window.add(at, waited);
        let summary = window.summary(at).unwrap();
        assert_eq!((summary.p95, summary.jitter()), (20_000, 0));
    }

    proptest! {
        #[test]
        fn pgx5_agrees_with_a_sorted_list(trips in prop::collection::vec((0_u64..2_000, 0_u32..500_000), 1..700)) {
            let (mut window, mut model, mut now, mut before) = (Window::default(), Vec::new(), 0, None);
            for (gap, micros) in trips {
                now += gap;
                window.add(Instant::from_millis(now), Duration::from_micros(micros.into()));
                let weight = before.map_or(50, |before| now - before).clamp(1, 1_000);
                before = Some(now);
                model.push((now, micros, weight));
            }
            let newest = model.len().saturating_sub(Window::SAMPLES_MAX);
            // Each round trip is repeated once per millisecond of its weight.
            let held: Vec<_> = model[newest..]
                .iter()
                .filter(|(at, ..)| now - at <= 30_000)
                .collect();
            let mut spread: Vec<u32> = held
                .iter()
                .flat_map(|(_, micros, weight)| (0..*weight).map(|_| *micros))
                .collect();
            spread.sort_unstable();
            let n = spread.len();
            let summary = window.summary(Instant::from_millis(now)).unwrap();
            prop_assert_eq!(summary.samples, held.len());
            prop_assert_eq!(summary.min, spread[0]);
            prop_assert_eq!(summary.median, spread[(n - 1) / 2]);
            prop_assert_eq!(summary.p95, spread[(n * 19).div_ceil(20) - 1]);
            prop_assert_eq!(window.summary(Instant::from_millis(now + 30_001)), None);
        }
    }

    #[test]
    fn answers_that_come_all_at_once_count_as_one() {
        let mut window = Window::default();
        for second in 0..25 {
            window.add(
                Instant::from_millis(second * 1_000),
                Duration::from_millis(20),
            );
        }
        let late = Instant::from_millis(26_000);
        for _ in 0..60 {
            window.add(late, Duration::from_millis(900));
        }
        let summary = window.summary(late).unwrap();
        assert_eq!((summary.median, summary.samples), (20_000, 85));
        assert_eq!(summary.p95, 20_000, "one of 26 s is less than a twentieth");
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
