//! CPU time of one thread, in interleaved rounds.

use core::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A repeatable workload which measures its own CPU time.
pub trait Case {
    /// Runs it `count` times. Returns the CPU time without preparations.
    fn run(&mut self, count: u32) -> Duration;
}

/// A workload from a closure without preparations.
pub struct Repeat<F>(pub F);

impl<F: FnMut()> Case for Repeat<F> {
    fn run(&mut self, count: u32) -> Duration {
        cpu_time_of(|| (0..count).for_each(|_| (self.0)()))
    }
}

impl<F> core::fmt::Debug for Repeat<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Repeat(..)")
    }
}

/// Returns the CPU time that this thread spent in `work`.
pub fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let before = cpu_time();
    work();
    cpu_time().saturating_sub(before)
}

/// Returns the CPU time that this thread has used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one");
    Duration::from(time)
}

/// Results of a comparison; times are per repetition, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of the case.
    pub ours: f64,
    /// Median of its floor.
    pub floor: f64,
    /// Median of the rounds' ratios.
    pub ratio: f64,
    /// Lower and upper quartile of the rounds' ratios.
    pub quartiles: [f64; 2],
}

/// Approximate CPU time of each half of a round.
const HALF: Duration = Duration::from_millis(20);

/// Runs `ours` and `floor` alternately, `rounds` times. The first one changes with each round, so
/// that other load on the machine affects both alike.
pub fn compare(ours: &mut dyn Case, floor: &mut dyn Case, rounds: u32) -> Comparison {
    let counts = [repetitions(ours), repetitions(floor)];
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let mut halves = [0.0; 2];
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for half in order {
            let case: &mut dyn Case = if half == 0 { &mut *ours } else { &mut *floor };
            let count = counts.get(half).copied().unwrap_or(1);
            if let Some(time) = halves.get_mut(half) {
                *time = case.run(count).as_secs_f64() * 1e9 / f64::from(count);
            }
        }
        let [ours, floor] = halves;
        for (values, value) in times.iter_mut().zip([ours, floor, ours / floor]) {
            values.push(value);
        }
    }
    let [ours, floor, ratios] = times.map(sorted);
    Comparison {
        ours: quantile(&ours, 2),
        floor: quantile(&floor, 2),
        ratio: quantile(&ratios, 2),
        quartiles: [quantile(&ratios, 1), quantile(&ratios, 3)],
    }
}

/// Returns the repetitions in half a round. This also warms up the case.
fn repetitions(case: &mut dyn Case) -> u32 {
    let mut count = 1_u32;
    loop {
        let time = case.run(count);
        if time >= HALF / 4 || count >= 1 << 24 {
            let factor = HALF.as_secs_f64() / time.as_secs_f64().max(1e-9);
            return scaled(count, factor);
        }
        count *= 2;
    }
}

/// Returns `count` times `factor`, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of repetitions, clamped to its range"
)]
fn scaled(count: u32, factor: f64) -> u32 {
    (f64::from(count) * factor).clamp(1.0, f64::from(u32::MAX)) as u32
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Returns a quartile of `sorted`.
fn quantile(sorted: &[f64], quarters: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * quarters / 4).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload which reports preset times.
    struct Reported(Vec<u64>);

    impl Case for Reported {
        fn run(&mut self, count: u32) -> Duration {
            let nanos = self.0.pop().unwrap_or(10_000_000);
            Duration::from_nanos(nanos) * count
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_paired_rounds() {
        // Used from the end: one call to determine the count, then five rounds of which two are
        // slow.
        let ours = vec![300, 3_000, 300, 3_000, 300, 20_000_000];
        let floor = vec![100, 1_000, 100, 1_000, 100, 20_000_000];
        let found = compare(&mut Reported(ours), &mut Reported(floor), 5);
        let [low, high] = found.quartiles;
        let found =
            [found.ours, found.floor, found.ratio, low, high].map(|value| value.to_string());
        assert_eq!(found, ["300", "100", "3", "3", "3"]);
    }

    #[test]
    fn work_takes_cpu_time() {
        let mut sum = 0_u64;
        let time = cpu_time_of(|| {
            for number in 0..1_000_000_u64 {
                sum = std::hint::black_box(sum ^ number);
            }
        });
        assert!(time > Duration::ZERO);
    }
}
