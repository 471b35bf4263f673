//! Spans and deadlines as 64-bit nanoseconds.

use core::ops::Add;
use core::time::Duration;

use wire::Instant;

/// A span in nanoseconds, saturating at 584 years: half as large as a [`Duration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(u64);

impl Nanos {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) const MAX: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn of(duration: Duration) -> Self {
        let nanos = duration
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(duration.subsec_nanos() as u64);
        Self::from_nanos(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn get(self) -> Duration {
        Duration::from_nanos(self.as_nanos())
    }

    pub(crate) const fn saturating_mul(self, factor: u64) -> Self {
        Self::from_nanos(self.as_nanos().saturating_mul(factor))
    }

    /// Divides by `parts`; unchanged for zero.
    pub(crate) const fn divided(self, parts: u64) -> Self {
        let Some(part) = self.as_nanos().checked_div(parts) else {
            return self;
        };
        Self::from_nanos(part)
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;

    fn add(self, span: Nanos) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(span.as_nanos()))
    }
}

/// An optional point in time. An `Option<Instant>` is twice as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(
    /// Nanoseconds since the origin; the maximum means never.
    u64,
);

impl Deadline {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn at(at: Instant) -> Self {
        Self(at.as_nanos())
    }

    pub(crate) fn new(at: Option<Instant>) -> Self {
        at.map_or(Self::NEVER, Self::at)
    }

    /// Returns the time; `None` means never.
    pub(crate) const fn get(self) -> Option<Instant> {
        if self.0 == u64::MAX {
            return None;
        }
        Some(Instant::from_nanos(self.0))
    }

    pub(crate) const fn is_due(self, now: Instant) -> bool {
        self.0 <= now.as_nanos() && self.0 != u64::MAX
    }

    pub(crate) fn or_at(self, at: Instant) -> Self {
        Self(self.0.min(at.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_duration_at_half_the_size() {
        assert_eq!(size_of::<Nanos>() * 2, size_of::<Duration>());
        let start = Instant::from_millis(7);
        for duration in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(1_500),
            Duration::from_hours(24 * 365 * 200),
        ] {
            let span = Nanos::of(duration);
            assert_eq!(span.get(), duration);
            assert_eq!(start + span, start + duration);
            assert_eq!((span + span).get(), duration * 2);
            assert_eq!(span.saturating_mul(3) > span, !duration.is_zero());
        }
        assert_eq!(Nanos::of(Duration::MAX), Nanos::from_nanos(u64::MAX));
    }

    #[test]
    fn agrees_with_an_option_at_half_the_size() {
        assert_eq!(size_of::<Deadline>() * 2, size_of::<Option<Instant>>());
        let points = [0, 7, u64::MAX - 1].map(Instant::from_nanos);
        for at in points.map(Some).into_iter().chain([None]) {
            let deadline = Deadline::new(at);
            assert_eq!(deadline.get(), at);
            for now in points {
                assert_eq!(deadline.is_due(now), at.is_some_and(|at| at <= now));
                let first = at.map_or(now, |at| at.min(now));
                assert_eq!(deadline.or_at(now).get(), Some(first));
            }
        }
        assert!(!Deadline::NEVER.is_due(Instant::from_nanos(u64::MAX)));
    }
}
