//! A point in time that may be missing, in as little room as one that may not.

use wire::Instant;

/// When something is due, if at all. An `Option<Instant>` is twice as large: too much for what each
/// session keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(
    /// Nanoseconds since the origin; the last of all stands for never.
    u64,
);

impl Deadline {
    /// It is never due.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn at(at: Instant) -> Self {
        Self(at.as_nanos())
    }

    pub(crate) fn new(at: Option<Instant>) -> Self {
        at.map_or(Self::NEVER, Self::at)
    }

    /// Returns when it is due; `None` means never.
    pub(crate) const fn get(self) -> Option<Instant> {
        if self.0 == u64::MAX {
            return None;
        }
        Some(Instant::from_nanos(self.0))
    }

    /// Returns whether it is due at `now`, or was before.
    pub(crate) const fn is_due(self, now: Instant) -> bool {
        self.0 <= now.as_nanos() && self.0 != u64::MAX
    }

    /// The same, or `at`, whichever comes first.
    pub(crate) fn or_at(self, at: Instant) -> Self {
        Self(self.0.min(at.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_option_in_half_the_room() {
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
