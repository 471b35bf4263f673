//! One value, as a line that `cargo xtask peers relay` reads.

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of which stack.
    pub stack: &'static str,
    /// Doing what.
    pub case: &'static str,
    /// What was measured.
    pub metric: &'static str,
    /// How much.
    pub value: f64,
}

impl Row {
    /// Prints it as JSON; all names are words without quotes.
    #[expect(clippy::print_stdout, reason = "the rows are what it is for")]
    pub fn print(&self) {
        println!("{}", self.to_json());
    }

    fn to_json(&self) -> String {
        let Self {
            stack,
            case,
            metric,
            value,
        } = self;
        format!(r#"{{"stack":"{stack}","case":"{case}","metric":"{metric}","value":{value}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_an_object() {
        let row = Row {
            stack: "plain",
            case: "hop100",
            metric: "threads",
            value: 1.5,
        };
        let text = r#"{"stack":"plain","case":"hop100","metric":"threads","value":1.5}"#;
        assert_eq!(row.to_json(), text);
    }
}
