//! Time margin: the second-largest recent need.

/// Samples per window; the maximum is over up to two: 10 s at 60 Hz. One in 600 to 1,200 may exceed
/// the margin, which is 3 to 6 a minute.
const WINDOW: u32 = 600;

/// Recent needs, in any unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    /// The two largest of the last whole window.
    settled: Worst,
    /// Those of the current window, and its number of samples.
    filling: Worst,
    count: u32,
}

/// Two largest values, in descending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Worst(i64, i64);

impl Worst {
    const NONE: Self = Self(i64::MIN, i64::MIN);

    fn with(self, need: i64) -> Self {
        if need > self.0 {
            Self(need, self.0)
        } else {
            Self(self.0, self.1.max(need))
        }
    }
}

impl Margin {
    pub(crate) const fn new() -> Self {
        Self {
            settled: Worst::NONE,
            filling: Worst::NONE,
            count: 0,
        }
    }

    /// Adds what an event would have needed to be in time.
    pub(crate) fn add(&mut self, need: i64) {
        self.filling = self.filling.with(need);
        self.count = self.count.saturating_add(1);
        if self.count == WINDOW {
            self.settled = self.filling;
            self.filling = Worst::NONE;
            self.count = 0;
        }
    }

    /// Returns the second-largest recent need; `None` before two samples.
    pub(crate) fn need(&self) -> Option<i64> {
        let Worst(first, second) = self.filling;
        let need = self.settled.with(first).with(second).1;
        (need > i64::MIN).then_some(need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_counts_for_nothing_and_two_do() {
        let mut margin = Margin::new();
        margin.add(3);
        assert_eq!(margin.need(), None);
        margin.add(1);
        assert_eq!(margin.need(), Some(1));
        margin.add(90);
        assert_eq!(margin.need(), Some(3));
        margin.add(80);
        assert_eq!(margin.need(), Some(80));
    }

    #[test]
    fn what_was_is_forgotten_after_two_windows() {
        let mut margin = Margin::new();
        for need in [90, 80].into_iter().chain([0; 598]) {
            margin.add(need);
        }
        for _ in 0..599 {
            assert_eq!(margin.need(), Some(80));
            margin.add(0);
        }
        margin.add(0);
        assert_eq!(margin.need(), Some(0));
    }
}
