//! What saves and steps of a game take, as measured while it runs.

use core::time::Duration;

/// Samples before a mean is believed.
const SAMPLES_MIN: u32 = 8;

/// Samples from one telling of the means to the next.
const SAMPLES_PER_WORD: u32 = 64;

/// Most that one sample counts as many times the mean: the process may have been put aside in it.
const SPIKE: u64 = 8;

/// A mean that follows what is measured, over some 16 samples.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: u64,
    samples: u32,
}

impl Mean {
    fn take(&mut self, from: Duration, to: Duration) {
        let span = u64::try_from(to.saturating_sub(from).as_nanos()).unwrap_or(u64::MAX);
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.nanos = span;
            return;
        }
        let span = if self.samples > SAMPLES_MIN {
            // Clocks may be coarse: a microsecond is never a spike.
            span.min(self.nanos.max(1_000).saturating_mul(SPIKE))
        } else {
            span
        };
        // The first ones weigh alike.
        let weight = u64::from(self.samples.min(16));
        let sum = self.nanos.saturating_mul(weight.saturating_sub(1));
        // Rounded, so that small ones do not sink to nothing.
        let sum = sum.saturating_add(span).saturating_add(weight / 2);
        self.nanos = sum.checked_div(weight).unwrap_or(span);
    }

    const fn is_known(&self) -> bool {
        self.samples >= SAMPLES_MIN
    }
}

/// Means of saves and steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    save: Mean,
    step: Mean,
    /// Samples since they were told.
    untold: u32,
}

impl Costs {
    /// Takes a save that began and ended at these times.
    pub(crate) fn on_save(&mut self, from: Duration, to: Duration) {
        self.save.take(from, to);
        self.untold = self.untold.saturating_add(1);
    }

    /// Takes a step, and the hash of the state after it, that began and ended at these times.
    pub(crate) fn on_step(&mut self, from: Duration, to: Duration) {
        self.step.take(from, to);
        self.untold = self.untold.saturating_add(1);
    }

    /// Returns what a save and a step take, now and then.
    pub(crate) fn tell(&mut self) -> Option<(Duration, Duration)> {
        if self.untold < SAMPLES_PER_WORD || !self.save.is_known() || !self.step.is_known() {
            return None;
        }
        self.untold = 0;
        let span = |mean: Mean| Duration::from_nanos(mean.nanos);
        Some((span(self.save), span(self.step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn told(costs: &mut Costs, save: u64, step: u64) -> Vec<(Duration, Duration)> {
        let mut told = Vec::new();
        for _ in 0..64 {
            costs.on_save(micros(5), micros(5 + save));
            costs.on_step(micros(5), micros(5 + step));
            told.extend(costs.tell());
        }
        told
    }

    #[test]
    fn means_are_told_each_64_samples_and_follow_what_is_measured() {
        let mut costs = Costs::default();
        assert_eq!(told(&mut costs, 3, 40), [(micros(3), micros(40)); 2]);
        let (save, step) = *told(&mut costs, 30, 4).last().unwrap();
        assert!(save > micros(20) && step < micros(10), "{save:?} {step:?}");
    }

    #[test]
    fn one_spike_and_a_clock_that_goes_back_change_little() {
        let mut costs = Costs::default();
        told(&mut costs, 10, 10);
        costs.on_step(micros(0), micros(1_000_000));
        costs.on_save(micros(9), micros(3));
        let (save, step) = told(&mut costs, 10, 10)[0];
        assert!(save > micros(9) && step < micros(12), "{save:?} {step:?}");
    }

    #[test]
    fn nothing_is_told_before_both_are_known() {
        let mut costs = Costs::default();
        for _ in 0..1_000 {
            costs.on_step(micros(1), micros(2));
            assert_eq!(costs.tell(), None);
        }
    }
}
