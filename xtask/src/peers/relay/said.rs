//! What tests of `relay_mesh` print, as rows.

use super::super::goal::OURS;
use super::super::row::Row;

/// The rows of a line: those of the stability model, or of relays that were killed.
///
/// `mesh_s1, as shipped: 8.7 changes an hour, 1079 us over the best, 1.412 % of the time ...`
/// `shadow: p50 237 ms, p99 270 ms, largest 270 ms`
pub(super) fn rows(line: &str) -> Vec<Row> {
    stability(line).or_else(|| gap(line)).unwrap_or_default()
}

fn stability(line: &str) -> Option<Vec<Row>> {
    let said = line.trim().strip_prefix("mesh_s1, as shipped: ")?;
    let mut parts = said.split(", ").map(first_number);
    let (changes, micros, share) = (parts.next()??, parts.next()??, parts.next()??);
    Some(vec![
        row("stability", "switches_per_h", changes),
        row("stability", "excess_ms", micros / 1_000.0),
        row("stability", "over_20ms_percent", share),
    ])
}

fn gap(line: &str) -> Option<Vec<Row>> {
    let said = line.trim().strip_prefix("shadow: ")?;
    let p99 = said
        .split(", ")
        .find_map(|part| part.strip_prefix("p99 "))?;
    Some(vec![row("kill", "gap_ms_p99", first_number(p99)?)])
}

fn first_number(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

fn row(case: &str, metric: &str, value: f64) -> Row {
    Row {
        stack: OURS.to_owned(),
        case: case.to_owned(),
        metric: metric.to_owned(),
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tests_print_is_read() {
        let text = "mesh_s1, as shipped: 8.7 changes an hour, 1079 us over the best, 1.412 % of \
                    the time more than 20 ms";
        let found = rows(text);
        let values: Vec<_> = found.iter().map(|row| row.value).collect();
        assert_eq!(values, [8.7, 1.079, 1.412]);
        let found = rows("shadow: p50 237 ms, p99 269 ms, largest 270 ms");
        assert_eq!(found, [row("kill", "gap_ms_p99", 269.0)]);
        for other in [
            "single: p50 1 ms, p99 2 ms",
            "mesh_s1, nothing learned: 2",
            "",
            "shadow: ",
        ] {
            assert_eq!(rows(other), [], "{other}");
        }
    }
}
