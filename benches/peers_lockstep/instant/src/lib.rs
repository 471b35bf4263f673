//! Virtual time which replaces the `instant` crate, through which ggrs 0.13.0 reads its clock.
//!
//! Each thread has its own time, which only [`advance_to`] changes. The API is the part of that
//! crate which ggrs uses.

#![forbid(unsafe_code)]

use core::cell::Cell;
use core::ops::{Add, AddAssign, Sub};

pub use core::time::Duration;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Sets this thread's time. It may decrease, for example when another match starts.
pub fn advance_to(now: Duration) {
    NOW.set(now);
}

/// Returns this thread's time.
pub fn now() -> Duration {
    NOW.get()
}

/// A point in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the time that [`advance_to`] set last.
    #[must_use]
    pub fn now() -> Self {
        Self(now())
    }

    /// Returns the time since `earlier`, or zero if that is later.
    #[must_use]
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time since then.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_constant_until_advanced() {
        advance_to(Duration::from_secs(1));
        let then = Instant::now();
        assert_eq!(then.elapsed(), Duration::ZERO);
        advance_to(Duration::from_secs(3));
        assert_eq!(then.elapsed(), Duration::from_secs(2));
        assert!(then + Duration::from_secs(1) < Instant::now());
        advance_to(Duration::ZERO);
        assert_eq!(Instant::now() - then, Duration::ZERO);
    }
}
