//! Measured values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One value, in the format of programs and the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The stack that was measured.
    pub stack: Cow<'static, str>,
    /// The case, `u100`.
    pub case: Cow<'static, str>,
    /// The metric, `cpu_ns_per_message`.
    pub metric: Cow<'static, str>,
    /// The value.
    pub value: f64,
}

impl Row {
    /// Creates a row.
    pub fn new(
        stack: impl Into<Cow<'static, str>>,
        case: impl Into<Cow<'static, str>>,
        metric: impl Into<Cow<'static, str>>,
        value: f64,
    ) -> Self {
        Self {
            stack: stack.into(),
            case: case.into(),
            metric: metric.into(),
            value,
        }
    }

    /// Prints it as a line of JSON. NaN and infinity become `null`, which `parse` rejects.
    #[expect(clippy::print_stdout, reason = "programs report by rows on stdout")]
    pub fn print(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            println!("{line}");
        }
    }

    /// Parses a line that a program printed; `None` if it is not a row.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Parses a figure that a test printed, `figure: kill_shadow gap_ms_p99 270`, as a row of
    /// `stack`.
    ///
    /// Other text may precede it, because the test's name is not followed by a line break.
    #[must_use]
    pub fn parse_figure(stack: &'static str, line: &str) -> Option<Self> {
        let (_, figure) = line.split_once("figure: ")?;
        let mut words = figure.split_whitespace();
        let (case, metric, value) = (words.next()?, words.next()?, words.next()?);
        let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        let row = || Self::new(stack, case.to_owned(), metric.to_owned(), value);
        words.next().is_none().then(row)
    }
}

/// Prints a row as a line of JSON.
pub fn print(stack: &str, case: &str, metric: &str, value: f64) {
    Row::new(stack.to_owned(), case.to_owned(), metric.to_owned(), value).print();
}

/// Rows, in the order in which they were printed.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

/// A case and a metric, with the value of each stack.
pub type CaseValues<'a> = ([&'a str; 2], BTreeMap<&'a str, f64>);

impl Rows {
    /// Adds rows.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.0.extend(rows);
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a finite value; `None` if it was not measured.
    #[must_use]
    pub fn value(&self, stack: &str, case: &str, metric: &str) -> Option<f64> {
        let row = self
            .0
            .iter()
            .find(|row| row.stack == stack && row.case == case && row.metric == metric);
        row.map(|row| row.value).filter(|value| value.is_finite())
    }

    /// Returns the values by case and metric, in the order of their first rows.
    #[must_use]
    pub fn by_case(&self) -> Vec<CaseValues<'_>> {
        let mut found: Vec<CaseValues<'_>> = Vec::new();
        for row in &self.0 {
            let key = [&*row.case, &*row.metric];
            let at = found.iter_mut().find(|(known, _)| *known == key);
            if let Some((_, values)) = at {
                values.insert(&row.stack, row.value);
            } else {
                found.push((key, BTreeMap::from([(&*row.stack, row.value)])));
            }
        }
        found
    }

    /// Returns the report: a JSON list with one row per line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let rows: Vec<_> = self
            .0
            .iter()
            .filter_map(|row| serde_json::to_string(row).ok())
            .collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }
}

impl<const N: usize> From<[(&'static str, &'static str, &'static str, f64); N]> for Rows {
    fn from(rows: [(&'static str, &'static str, &'static str, f64); N]) -> Self {
        let rows = rows.into_iter();
        Self(
            rows.map(|(s, c, m, value)| Row::new(s, c, m, value))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_a_list_of_rows() {
        let rows = Rows::from([("a", "u100", "m", 1.5), ("b", "u100", "m", 2.0)]);
        let read: Vec<Row> = serde_json::from_str(&rows.to_json()).unwrap();
        assert_eq!(read, rows.0);
        let text = r#"{"stack":"plain","case":"hop100","metric":"threads","value":1.5}"#;
        assert_eq!(
            Row::parse(text),
            Some(Row::new("plain", "hop100", "threads", 1.5))
        );
        assert_eq!(serde_json::to_string(&Row::parse(text)).unwrap(), text);
        assert_eq!(Row::parse("no row"), None);
    }

    #[test]
    fn values_of_one_case_are_grouped() {
        let rows = Rows::from([
            ("a", "u100", "m", 1.0),
            ("a", "r100", "m", 2.0),
            ("b", "u100", "m", 3.0),
        ]);
        let found = rows.by_case();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1, BTreeMap::from([("a", 1.0), ("b", 3.0)]));
        assert_eq!(rows.value("b", "u100", "m"), Some(3.0));
        assert_eq!(rows.value("b", "r100", "m"), None);
    }

    #[test]
    fn figures_of_tests_are_parsed() {
        let expected = Row::new("tickwire", "kill_shadow", "gap_ms_p99", 269.5);
        for line in [
            "figure: kill_shadow gap_ms_p99 269.5",
            "test play::sim_mesh_m3 ... figure: kill_shadow gap_ms_p99 269.5",
        ] {
            let row = Row::parse_figure("tickwire", line);
            assert_eq!(row, Some(expected.clone()), "{line}");
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
            assert_eq!(Row::parse_figure("tickwire", other), None, "{other}");
        }
    }
}
