//! Limits that widen while a ticket waits.

use core::time::Duration;

/// A limit that depends on how long a ticket has waited, and never shrinks: points of waiting time and
/// value, linear between two points, constant before the first and after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    first: Point,
    rest: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    wait_ms: u64,
    value: u32,
}

impl Curve {
    /// Points of one curve.
    pub const POINTS_MAX: usize = 16;

    /// Creates a limit that does not depend on the wait.
    #[must_use]
    pub const fn constant(value: u32) -> Self {
        let first = Point { wait_ms: 0, value };
        Self {
            first,
            rest: Vec::new(),
        }
    }

    /// Creates a limit from pairs of waiting time, in whole milliseconds, and value.
    ///
    /// # Errors
    ///
    /// [`CurveError`], unless there are 1 to 16 points with increasing times and values that do not
    /// decrease.
    pub fn new(points: &[(Duration, u32)]) -> Result<Self, CurveError> {
        if points.len() > Self::POINTS_MAX {
            return Err(CurveError::TooMany(points.len()));
        }
        let mut points = points.iter().map(|(wait, value)| Point {
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            value: *value,
        });
        let first = points.next().ok_or(CurveError::Empty)?;
        let rest: Vec<_> = points.collect();
        let mut last = first;
        for (index, point) in rest.iter().enumerate() {
            let position = index.saturating_add(1);
            if point.wait_ms <= last.wait_ms {
                return Err(CurveError::Time(position));
            }
            if point.value < last.value {
                return Err(CurveError::Value(position));
            }
            last = *point;
        }
        Ok(Self { first, rest })
    }

    /// Returns the limit after a wait of `wait_ms` milliseconds.
    #[must_use]
    pub fn at(&self, wait_ms: u64) -> u32 {
        let mut last = self.first;
        for point in &self.rest {
            if wait_ms < point.wait_ms {
                return last.value.saturating_add(last.rise(*point, wait_ms));
            }
            last = *point;
        }
        last.value
    }

    /// Returns the limit of a ticket that waits for ever.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.rest.last().unwrap_or(&self.first).value
    }

    /// Returns the shortest wait, in milliseconds, after which the limit is at least `value`.
    #[must_use]
    pub fn reaches(&self, value: u32) -> Option<u64> {
        if value <= self.first.value {
            return Some(0);
        }
        let mut last = self.first;
        for point in &self.rest {
            if value <= point.value {
                let rise = u64::from(value.saturating_sub(last.value));
                let whole = u64::from(point.value.saturating_sub(last.value));
                let span = point.wait_ms.saturating_sub(last.wait_ms);
                let wait = rise.saturating_mul(span).div_ceil(whole.max(1));
                return Some(last.wait_ms.saturating_add(wait));
            }
            last = *point;
        }
        None
    }
}

impl Point {
    /// Returns how much the limit exceeds that of this point, at a time before `next`.
    fn rise(self, next: Self, wait_ms: u64) -> u32 {
        let whole = u64::from(next.value.saturating_sub(self.value));
        let span = next.wait_ms.saturating_sub(self.wait_ms);
        let waited = wait_ms.saturating_sub(self.wait_ms);
        let rise = whole.saturating_mul(waited).checked_div(span);
        rise.and_then(|rise| u32::try_from(rise).ok())
            .unwrap_or_default()
    }
}

/// Why points are no [`Curve`]. Positions count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CurveError {
    /// There is no point.
    Empty,
    /// There are this many points.
    TooMany(usize),
    /// The time of this point is not later than that of the one before.
    Time(usize),
    /// The value of this point is below that of the one before.
    Value(usize),
}

wire::error_text! { CurveError {
    Self::Empty => "a curve needs at least one point",
    Self::TooMany(count) => "a curve has {count} points, at most 16 are allowed",
    Self::Time(position) => "the time of point {position} is not later than that of the one before",
    Self::Value(position) => "the value of point {position} is less than that of the one before",
}}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(u64, u32)]) -> Result<Curve, CurveError> {
        let points = points.iter();
        let points: Vec<_> = points
            .map(|(wait, value)| (Duration::from_millis(*wait), *value))
            .collect();
        Curve::new(&points)
    }

    #[test]
    fn a_curve_is_linear_between_points_and_constant_outside() {
        let curve = curve(&[(1_000, 50), (6_000, 100), (10_000, 500)]).unwrap();
        let values = [0, 1_000, 3_500, 6_000, 8_000, 10_000, u64::MAX].map(|wait| curve.at(wait));
        assert_eq!(values, [50, 50, 75, 100, 300, 500, 500]);
        let waits = [0, 50, 51, 75, 500, 501].map(|value| curve.reaches(value));
        let expected = [
            Some(0),
            Some(0),
            Some(1_100),
            Some(3_500),
            Some(10_000),
            None,
        ];
        assert_eq!(waits, expected);
    }

    #[test]
    fn a_curve_that_shrinks_is_refused_with_the_position() {
        assert_eq!(curve(&[]), Err(CurveError::Empty));
        assert_eq!(curve(&[(0, 5), (0, 6)]), Err(CurveError::Time(1)));
        assert_eq!(curve(&[(0, 5), (1, 6), (2, 5)]), Err(CurveError::Value(2)));
        let long: Vec<_> = (0..17).map(|at| (at, 1)).collect();
        assert_eq!(curve(&long), Err(CurveError::TooMany(17)));
    }

    proptest! {
        #[test]
        fn a_limit_is_reached_at_the_first_wait_that_allows_it(
            steps in proptest::collection::vec((1_u64..5_000, 0_u32..1_000), 1..10),
            value in 0_u32..6_000,
        ) {
            let mut at = (0, 0);
            let points: Vec<_> = steps
                .iter()
                .map(|(wait, rise)| { at = (at.0 + wait, at.1 + rise); at })
                .collect();
            let curve = curve(&points).unwrap();
            match curve.reaches(value) {
                None => prop_assert!(curve.last() < value),
                Some(wait) => {
                    prop_assert!(curve.at(wait) >= value);
                    prop_assert!(wait == 0 || curve.at(wait - 1) < value);
                }
            }
        }
    }
}
