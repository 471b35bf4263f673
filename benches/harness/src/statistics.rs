//! Medians and quantiles of measured values.

/// Returns the median; the higher of two middle values if the count is even. NaN without values.
#[must_use]
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 1, 2)
}

/// Returns the value which exceeds `part` of `of` values. NaN without values.
#[must_use]
pub fn quantile(mut values: Vec<f64>, part: usize, of: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = values.len() * part / of;
    let last = values.len().saturating_sub(1);
    values.get(rank.min(last)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let values = || (0..100).map(f64::from).rev().collect::<Vec<_>>();
        assert!((median(values()) - 50.0).abs() < f64::EPSILON);
        assert!((quantile(values(), 99, 100) - 99.0).abs() < f64::EPSILON);
        assert!((median(vec![3.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 3.0]) - 4.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }
}
