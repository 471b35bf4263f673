//! Values of samples, and their exact conversion to floats.

/// A float that is neither infinite nor NaN. Negative zero becomes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finite(u64);

impl Finite {
    /// Returns `value`, or `None` if it is infinite or NaN.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        // Adding zero turns a negative zero into a positive one.
        value.is_finite().then(|| Self((value + 0.0).to_bits()))
    }

    /// Returns the value.
    #[must_use]
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// An integer; sums of integers are exact.
    Int(i64),
    /// A float; a sum of floats is rounded in the order of the log.
    Float(Finite),
}

impl Number {
    /// Returns the value as a float; an integer beyond 2^53 is rounded.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => float_of_i128(value.into()),
            Self::Float(value) => value.get(),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Finite> for Number {
    fn from(value: Finite) -> Self {
        Self::Float(value)
    }
}

pub(super) fn float_of_u64(value: u64) -> f64 {
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
    let high = u32::try_from(value >> 32).unwrap_or(0);
    // Both parts are exact, so the sum is rounded once.
    f64::from(high) * TWO_POW_32 + f64::from(low)
}

pub(super) fn float_of_i128(value: i128) -> f64 {
    let size = value.unsigned_abs();
    let float = if let Ok(small) = u64::try_from(size) {
        float_of_u64(small)
    } else {
        let high = u64::try_from(size >> 64).unwrap_or(u64::MAX);
        let low = u64::try_from(size & u128::from(u64::MAX)).unwrap_or(0);
        float_of_u64(high) * (TWO_POW_32 * TWO_POW_32) + float_of_u64(low)
    };
    if value < 0 { -float } else { float }
}

const TWO_POW_32: f64 = 4_294_967_296.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_become_the_nearest_float() {
        for (value, text) in [
            (0, "0"),
            (-1, "-1"),
            (i128::from(i64::MAX), "9223372036854775807"),
            (i128::from(i64::MIN), "-9223372036854775808"),
            ((1 << 53) + 1, "9007199254740993"),
            (i128::from(u64::MAX), "18446744073709551615"),
            (1 << 100, "1267650600228229401496703205376"),
        ] {
            let nearest: f64 = text.parse().unwrap();
            assert_eq!(float_of_i128(value).to_bits(), nearest.to_bits(), "{value}");
        }
    }

    #[test]
    fn floats_are_finite_and_zero_has_one_sign() {
        assert_eq!(Finite::new(f64::NAN), None);
        assert_eq!(Finite::new(f64::INFINITY), None);
        assert_eq!(Finite::new(-0.0), Finite::new(0.0));
        assert_eq!(Number::from(3).to_f64().to_bits(), 3.0_f64.to_bits());
    }
}
