//! What tests of `relay_mesh` print, as rows.

use super::super::goal::OURS;
use super::super::row::Row;

/// The row of a line that tells one figure: `figure: kill_shadow gap_ms_p99 270`.
///
/// What stands before it is another's: a test's name has no end of line yet when the test begins.
pub(super) fn row(line: &str) -> Option<Row> {
    let (_, said) = line.split_once("figure: ")?;
    let mut words = said.split_whitespace();
    let (case, metric, value) = (words.next()?, words.next()?, words.next()?);
    let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    words.next().is_none().then(|| Row {
        stack: OURS.to_owned(),
        case: case.to_owned(),
        metric: metric.to_owned(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tests_print_is_read() {
        let expected = Row {
            stack: "tickwire".to_owned(),
            case: "kill_shadow".to_owned(),
            metric: "gap_ms_p99".to_owned(),
            value: 269.5,
        };
        for line in [
            "figure: kill_shadow gap_ms_p99 269.5",
            "test play::sim_mesh_m3 ... figure: kill_shadow gap_ms_p99 269.5",
        ] {
            assert_eq!(row(line), Some(expected.clone()), "{line}");
        }
        for other in [
            "shadow: p50 237 ms, p99 269 ms, largest 270 ms",
            "figure: kill_shadow gap_ms_p99",
            "figure: kill_shadow gap_ms_p99 none",
            "figure: kill_shadow gap_ms_p99 NaN",
            "figure: kill_shadow gap_ms_p99 269 ms",
            "figure: ",
            "",
        ] {
            assert_eq!(row(other), None, "{other}");
        }
    }
}
