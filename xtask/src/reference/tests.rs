use super::*;

const SOURCE: &str = "\
/// A file.
pub struct Sample {
    /// Its name; see [`Other`](crate::Other)
    /// and [that](x).
    ///
    /// More.
    pub name: String,
    /// Bytes a second; 7.
    #[serde(
        default
    )]
    pub rate: u32,
    pub(super) hidden: u8,
    /// In a struct.
    pub inner: Inner,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            name: String::new(),
            rate: 7,
            inner: Inner::default(),
        }
    }
}

pub struct Inner {
    /// Dropped: too long.
    pub dropped_long: u64,
}

impl Inner {
    /// Longest name.
    pub const LEN_MAX: usize = 64;
    /// Another one.
    pub const INNER_MAX: u32 = 5;
}

/// Most of them.
///
/// More.
pub const INNER_MAX: u32 = 1 << 7;

pub enum Code {
    /// It failed.
    Failed = 1,
}

reasons! {
    /// Declared by a macro.
    Reason {
        /// It ended.
        Ended = 0,
        /// It was slow.
        Slow = 1,
    }
}

pub enum Cause {
    /// It is full.
    Full {
        /// How full.
        by: u8,
    },
    /// See [`Code`].
    #[default]
    Other(u8),
}
";

fn filled_with(page: &str) -> Result<String, (usize, String)> {
    let workspace = Workspace::of(&[("crates/a/src/lib.rs", SOURCE)]);
    filled(&workspace.view(), page)
}

fn page(mark: &str) -> String {
    let text = filled_with(&format!("# A\n{MARK}{mark} -->\nold\n{END}\nb\n")).unwrap();
    assert!(
        text.starts_with("# A\n") && text.ends_with(&format!("\n{END}\nb\n")),
        "{text}"
    );
    assert!(!text.contains("old"), "{text}");
    // A second pass changes nothing.
    assert_eq!(filled_with(&text).unwrap(), text);
    text
}

#[test]
fn a_file_lists_its_required_fields() {
    let text = page("file a Sample");
    assert!(
        text.contains("| `name` | `String` | required | Its name; see `Other` and that. |"),
        "{text}"
    );
    assert!(
        text.contains("| `rate` | `u32` |  | Bytes a second; 7. |"),
        "{text}"
    );
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn a_config_has_the_defaults_of_its_impl() {
    let text = page("config a Sample");
    assert!(
        text.contains("| `rate` | `u32` | `7` | Bytes a second; 7. |"),
        "{text}"
    );
}

#[test]
fn counters_have_their_prefix_and_those_of_inner_structs() {
    let text = page("counters a Sample t_");
    assert!(
        text.contains("| `t_rate_total` | Bytes a second; 7. |"),
        "{text}"
    );
    let dropped = "| `t_inner_dropped_total{reason=\"long\"}` | Dropped: too long. |";
    assert!(text.contains(dropped), "{text}");
}

#[test]
fn codes_have_their_numbers() {
    let page = page("codes a Code");
    assert!(page.contains("| 0 | Success. |\n| 1 | It failed. |"));
}

#[test]
fn variants_have_their_meaning() {
    let page = page("variants a Cause");
    let rows = "| `Full` | It is full. |\n| `Other` | See `Code`. |\n\n";
    assert!(page.contains(rows), "{page}");
    let page = self::page("variants a Reason");
    let rows = "| `Ended` | It ended. |\n| `Slow` | It was slow. |\n\n";
    assert!(page.contains(rows), "{page}");
}

#[test]
fn limits_are_constants_of_a_crate_or_a_type() {
    let page = page("limits a INNER_MAX Inner::LEN_MAX");
    let rows = "| `INNER_MAX` | 128 | Most of them. |\n\
                | `Inner::LEN_MAX` | 64 | Longest name. |\n";
    assert!(page.contains(rows), "{page}");
}

#[test]
fn a_renamed_field_has_its_name_in_files_and_metrics() {
    let body = "    /// Reads.\n    #[serde(default, rename = \"old\")]\n    pub new: u64,\n";
    let fields = fields(body);
    assert_eq!(fields[0].file_row(), "| `old` | `u64` |  | Reads. |");
    let workspace = Workspace::of(&[]);
    let mut rows = Vec::new();
    counters(&workspace.view(), "a", body, "x_", &mut rows);
    assert_eq!(rows, ["| `x_old_total` | Reads. |"]);
}

#[test]
fn an_unknown_mark_is_a_fault() {
    for mark in [
        "file a Gone",
        "file b Sample",
        "other a Sample",
        "file a",
        "variants a Sample",
        "limits a GONE_MAX",
        "limits a Code::LEN_MAX",
    ] {
        let found = filled_with(&format!("# A\n{MARK}{mark} -->\n{END}\n"));
        assert_eq!(found.unwrap_err().0, 2, "{mark}");
    }
    assert!(
        filled_with(&format!("{MARK}file a Sample -->\n")).is_err(),
        "it is not closed"
    );
}

#[test]
fn a_table_that_differs_is_found_with_its_line() {
    // The second row has another number, then another meaning.
    for row in ["| 2 | It failed. |", "| 1 | It succeeded. |"] {
        let table = format!(
            "# A\n{MARK}codes a Code -->\n\n| code | meaning |\n|---|---|\n| 0 | Success. |\n{row}\n\n{END}\n"
        );
        let files = [("crates/a/src/lib.rs", SOURCE), ("docs/a.md", &table)];
        let workspace = Workspace::of(&files);
        let findings = check(&workspace.view());
        let lines: Vec<usize> = findings.iter().map(|it| it.line).collect();
        assert_eq!(lines, [7], "{row}");
    }
}
