//! Monotonic time for everything, wall-clock time for expiry only.

use core::fmt;
use core::ops::{Add, AddAssign};
use core::time::Duration;

/// A point of a monotonic clock, in nanoseconds since an origin that the driver chooses.
///
/// `std::time::Instant` cannot be created from a number, so a trace, test vector or seed file cannot
/// hold it, and bare wasm lacks it. This type has no `now()`: time is an argument. Arithmetic
/// saturates; 2^64 nanoseconds are 584 years.
///
/// An `Option<Instant>` takes 16 bytes. A `NonZeroU64` inside would halve that, but rustc 1.95 (LLVM
/// 22.1.2) at `opt-level = 1` then miscompiles `option.map(|at| at.min(other))`: the result of `None` is
/// `Some`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// Returns the point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the point `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns whole milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point `span` earlier, or the origin if that is out of range.
    #[must_use]
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = self.add(span);
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
    }
}

/// A point of the wall clock, in milliseconds since 1970-01-01 00:00:00 UTC.
///
/// Only expiry uses it (tokens, certificates, configurations). It never orders events of different
/// machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Returns the point `millis` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the point `secs` seconds after the epoch; it saturates.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Returns milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns whole seconds since the epoch.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

/// `span` in nanoseconds; past 584 years, the largest value.
const fn nanos(span: Duration) -> u64 {
    span.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(span.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_secs(1), last);
        assert_eq!(last + Duration::MAX, last);
        assert_eq!(Instant::ZERO.saturating_since(last), Duration::ZERO);
        assert_eq!(
            Instant::ZERO.saturating_sub(Duration::from_secs(1)),
            Instant::ZERO
        );
        assert_eq!(UnixTime::from_secs(u64::MAX).as_millis(), u64::MAX);
    }

    /// This fails if [`Instant`] has a niche; see its documentation.
    #[test]
    fn two_missing_points_remain_missing() {
        let other = core::hint::black_box(Instant::from_millis(6));
        for point in [None, Some(Instant::ZERO)].map(core::hint::black_box) {
            let earlier = point.map(|point| point.min(other));
            assert_eq!(earlier.is_some(), point.is_some());
        }
    }

    #[test]
    fn adds_and_subtracts_the_same_span() {
        let start = Instant::from_millis(5);
        let end = start + Duration::from_micros(1_500);
        assert_eq!(end.saturating_since(start), Duration::from_micros(1_500));
        assert_eq!(end.saturating_sub(Duration::from_micros(1_500)), start);
    }
}
