//! What was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One value, as the programs print it and the report holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Of which stack.
    pub(super) stack: String,
    /// Doing what.
    pub(super) case: String,
    /// What was measured.
    pub(super) metric: String,
    /// How much.
    pub(super) value: f64,
}

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// Adds rows.
    pub(super) fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.0.extend(rows);
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of a row, where there is one.
    pub(super) fn value(&self, stack: &str, case: &str, metric: &str) -> Option<f64> {
        let row = self
            .0
            .iter()
            .find(|row| row.stack == stack && row.case == case && row.metric == metric);
        row.map(|row| row.value)
    }

    /// What each stack did in each case and metric, these in the order of their first rows.
    pub(super) fn by_case(&self) -> Vec<([&str; 2], BTreeMap<&str, f64>)> {
        let mut found: Vec<([&str; 2], BTreeMap<&str, f64>)> = Vec::new();
        for row in &self.0 {
            let key = [row.case.as_str(), row.metric.as_str()];
            let at = found.iter_mut().find(|(known, _)| *known == key);
            if let Some((_, values)) = at {
                values.insert(&row.stack, row.value);
            } else {
                found.push((key, BTreeMap::from([(row.stack.as_str(), row.value)])));
            }
        }
        found
    }

    /// The report: a list, a row a line.
    pub(super) fn to_json(&self) -> String {
        let rows: Vec<_> = self
            .0
            .iter()
            .filter_map(|row| serde_json::to_string(row).ok())
            .collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }

    /// Rows for tests: stack, case, metric, value.
    #[cfg(test)]
    pub(super) fn of(rows: &[(&str, &str, &str, f64)]) -> Self {
        let rows = rows.iter().map(|(stack, case, metric, value)| Row {
            stack: (*stack).to_owned(),
            case: (*case).to_owned(),
            metric: (*metric).to_owned(),
            value: *value,
        });
        Self(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_a_list_of_rows() {
        let rows = Rows::of(&[("a", "u100", "m", 1.5), ("b", "u100", "m", 2.0)]);
        let read: Vec<Row> = serde_json::from_str(&rows.to_json()).unwrap();
        assert_eq!(read, rows.0);
    }

    #[test]
    fn values_of_one_case_stand_together() {
        let rows = Rows::of(&[
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
}
