//! One thing that was measured.

use serde_json::json;

/// A row of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Of which stack.
    pub stack: &'a str,
    /// Doing what.
    pub case: &'a str,
    /// What was measured.
    pub metric: &'a str,
    /// How much.
    pub value: f64,
}

impl Row<'_> {
    /// Prints it as one line of JSON.
    #[expect(clippy::print_stdout, reason = "rows are what the program is for")]
    pub fn print(&self) {
        let Self {
            stack,
            case,
            metric,
            value,
        } = self;
        println!(
            "{}",
            json!({ "stack": stack, "case": case, "metric": metric, "value": value })
        );
    }
}
