//! Strict JSON reader for files that people write; errors have a line and a field.
//!
//! Node files and signed documents share it, so a mistake has the same error text in both.

use core::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use wire::{AddressError, parse_address};

/// An error in a text, with its place; displayed as one sentence for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line, from 1; 0 for the text as a whole.
    pub line: usize,
    /// Field, such as `games[1].server`; empty for the text as a whole.
    pub field: String,
    /// What was found and what is expected.
    pub fault: String,
}

impl TextError {
    /// Creates the error of a value in the JSON `text`, with its line.
    #[must_use]
    pub fn of_field(text: &[u8], field: &str, fault: &dyn fmt::Display) -> Self {
        Self {
            line: line_of(text, field),
            field: field.to_owned(),
            fault: fault.to_string(),
        }
    }

    /// Creates the error of a value that breaks a rule, such as `is not within 1 to 8`.
    #[must_use]
    pub fn of_rule(text: &[u8], field: &str, rule: &str) -> Self {
        let valid = str::from_utf8(text).map(without_mark).ok();
        let value = valid.and_then(|text| found(text, field));
        let fault = match &value {
            None | Some(Value::Array(_) | Value::Object(_)) => rule.to_owned(),
            Some(value) => {
                let address = value.as_str().filter(|_| rule.contains("no address"));
                let shown = show(value);
                match address.map(parse_address) {
                    Some(Err(error)) => format!("found {shown}; {error}"),
                    _ => format!("found {shown}, which {rule}"),
                }
            }
        };
        Self::of_field(text, field, &fault)
    }

    /// Creates the error of a whole text.
    #[must_use]
    pub fn of_whole(fault: impl Into<String>) -> Self {
        Self::whole(0, fault)
    }

    fn whole(line: usize, fault: impl Into<String>) -> Self {
        Self {
            line,
            field: String::new(),
            fault: fault.into(),
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.fault)
    }
}

impl core::error::Error for TextError {}

/// Reads a JSON object. A byte order mark is skipped, and CRLF ends a line as LF does. `expected`
/// describes the value of a field, such as `games[1].server`, if its type does not.
///
/// # Errors
///
/// [`TextError`] for the first mistake.
pub fn read_json<T: DeserializeOwned>(
    bytes: &[u8],
    expected: impl Fn(&str) -> Option<Expected>,
) -> Result<T, TextError> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        TextError::whole(count_lines(before), "the text is not UTF-8")
    })?;
    let text = without_mark(text);
    if text.trim().is_empty() {
        let fault = "the file is empty; expected a JSON object";
        return Err(TextError::of_whole(fault));
    }
    if text.trim_start().starts_with('[') {
        let fault = "the file holds a list; expected a JSON object";
        return Err(TextError::whole(line_of(bytes, ""), fault));
    }
    let mut source = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut source);
    read.map_err(|error| {
        let field = error.path().to_string();
        explain(text, &field, &error.into_inner(), expected)
    })
    .and_then(|value| {
        let end = source.end();
        end.map_err(|error| explain(text, ".", &error, |_| None))?;
        Ok(value)
    })
}

/// Expected value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// An IP address and a port.
    Address,
    /// An IP address or host name, and a port.
    Target,
    /// As described by this text.
    Form(&'static str),
}

/// Returns `text` without the byte order mark that some editors add.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{FEFF}').unwrap_or(text)
}

/// Returns the line of a value, such as `games[1].server`, or of the object that lacks it; from 1.
#[must_use]
pub fn line_of(text: &[u8], field: &str) -> usize {
    let mut cursor = Cursor { text, at: 0 };
    cursor.find(field);
    count_lines(text.get(..cursor.at).unwrap_or_default())
}

fn count_lines(before: &[u8]) -> usize {
    let ends = before.iter().filter(|byte| **byte == b'\n');
    ends.count().saturating_add(1)
}

fn explain(
    text: &str,
    field: &str,
    error: &serde_json::Error,
    expected: impl Fn(&str) -> Option<Expected>,
) -> TextError {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    match error.classify() {
        Category::Eof => {
            let fault = "the text ends within its JSON: a } or ] is missing";
            return TextError::whole(error.line(), fault);
        }
        // serde also reports a value of the wrong type in place of an enum's name as syntax.
        Category::Syntax | Category::Io if serde_json::from_str::<Value>(text).is_err() => {
            return no_json(text, error, message);
        }
        Category::Syntax | Category::Io | Category::Data => {}
    }
    // A field's own reader may name a part of it.
    let field = field.trim_start_matches('.');
    if let Some((part, rule)) = part_of(field, message) {
        return TextError::of_rule(text.as_bytes(), &part, rule);
    }
    let field = field.to_owned();
    let fault = match expected(&without_indices(&field)) {
        Some(_) if message.starts_with("missing field") || message.starts_with("unknown field") => {
            None
        }
        Some(form) => found(text, &field).map(|value| not_expected(&value, form, message)),
        None => None,
    };
    let line = if message.starts_with("unknown field") || message.starts_with("duplicate field") {
        error.line()
    } else {
        line_of(text.as_bytes(), &field)
    };
    TextError {
        line,
        fault: fault.unwrap_or_else(|| restate(text, &field, message)),
        field,
    }
}

/// Error text of an unexpected value; `message` is the error of its type.
fn not_expected(value: &Value, form: Expected, message: &str) -> String {
    let shown = show(value);
    let error = value.as_str().map(parse_address);
    match (form, error) {
        (Expected::Form(form), _) => format!("found {shown}; expected {form}"),
        (Expected::Target, Some(Ok(_) | Err(AddressError::HostName))) => {
            format!("found {shown}; {message}")
        }
        (Expected::Address | Expected::Target, Some(Err(error))) => {
            format!("found {shown}; {error}")
        }
        (Expected::Address | Expected::Target, _) => {
            format!("found {shown}; expected \"IP:port\", like \"192.0.2.7:5029\"")
        }
    }
}

/// Error of a text that is not JSON: another format, a comment, or a typing mistake.
fn no_json(text: &str, error: &serde_json::Error, message: &str) -> TextError {
    let line = error.line();
    let start = text.trim_start();
    if !start.starts_with(['{', '[']) && !start.starts_with(['/', '#']) {
        let before = text.strip_suffix(start).unwrap_or_default();
        let line = count_lines(before.as_bytes());
        let first: String = start.chars().take(1).collect();
        let fault = format!("the file is not JSON: it begins with {first:?}; expected {{");
        return TextError::whole(line, fault);
    }
    let wrong = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let column = error.column();
    if matches!(wrong.chars().nth(column.saturating_sub(1)), Some('/' | '#')) {
        return TextError::whole(line, "JSON has no comments; remove this one");
    }
    TextError::whole(
        line,
        format!("the file is not JSON at column {column}: {message}"),
    )
}

/// Error text of a value with the wrong type.
fn restate(text: &str, field: &str, message: &str) -> String {
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("the field {} is missing", rest.replace('`', "\""));
    }
    let unexpected = |start| message.strip_prefix(start)?.split_once(", expected ");
    if let Some((value, wanted)) = unexpected("unknown variant ") {
        let (value, wanted) = (value.replace('`', "\""), wanted.replace('`', "\""));
        return format!("found {value}; expected {wanted}");
    }
    if message == "expected value"
        && let Some(found) = found(text, field)
    {
        return format!("found {}; expected a string", show(&found));
    }
    for start in ["invalid type: ", "invalid value: "] {
        if let Some((_, wanted)) = unexpected(start)
            && let Some(found) = found(text, field)
        {
            return format!(
                "found {}; expected {}",
                show(&found),
                describe_expected(wanted)
            );
        }
    }
    message.replace('`', "\"")
}

/// JSON's name for a Rust type.
fn describe_expected(wanted: &str) -> &str {
    match wanted {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        _ if wanted.starts_with("struct ") || wanted == "a map" => "an object",
        _ => wanted,
    }
}

/// Splits the path of a part from the error text: from `signed.admins` and `admins.keys[0] is ...`.
fn part_of<'a>(field: &str, message: &'a str) -> Option<(String, &'a str)> {
    let (parent, last) = field.rsplit_once('.').unwrap_or(("", field));
    let (part, rule) = message.split_once(' ')?;
    let rest = part.strip_prefix(last).filter(|_| !last.is_empty())?;
    if !rest.starts_with(['.', '[']) {
        return None;
    }
    let dot = if parent.is_empty() { "" } else { "." };
    Some((format!("{parent}{dot}{part}"), rule))
}

fn without_indices(field: &str) -> String {
    let mut within = false;
    field
        .chars()
        .filter(|&letter| {
            within |= letter == '[';
            let is_kept = !within;
            within &= letter != ']';
            is_kept
        })
        .collect()
}

fn found(text: &str, field: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    for part in parts(field) {
        value = match part {
            Part::Key(key) => value.get_mut(key)?.take(),
            Part::Index(index) => value.get_mut(index)?.take(),
        };
    }
    Some(value)
}

/// Formats a value for an error, shortened.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > FOUND_MAX => {
            let cut: String = text.chars().take(FOUND_MAX).collect();
            format!("{cut:?}...")
        }
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

enum Part<'a> {
    Key(&'a str),
    Index(usize),
}

fn parts(field: &str) -> impl Iterator<Item = Part<'_>> {
    let parts = field.split(['.', '[']).filter(|part| !part.is_empty());
    parts.map(|part| {
        let index = part.strip_suffix(']').and_then(|part| part.parse().ok());
        index.map_or(Part::Key(part), Part::Index)
    })
}

/// Scans JSON without storing it.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn find(&mut self, field: &str) {
        self.skip_space();
        for part in parts(field) {
            let before = self.at;
            let is_there = match part {
                Part::Key(key) => self.find_key(key),
                Part::Index(index) => self.find_item(index),
            };
            if is_there.is_none() {
                self.at = before;
                return;
            }
        }
    }

    fn find_key(&mut self, key: &str) -> Option<()> {
        self.take(b'{')?;
        loop {
            self.skip_space();
            let start = self.at;
            self.skip_value()?;
            let found = self.text.get(start..self.at)?;
            self.skip_space();
            self.take(b':')?;
            self.skip_space();
            if serde_json::from_slice::<String>(found).is_ok_and(|found| found == key) {
                return Some(());
            }
            self.skip_value()?;
            self.skip_space();
            self.take(b',')?;
        }
    }

    fn find_item(&mut self, index: usize) -> Option<()> {
        self.take(b'[')?;
        self.skip_space();
        for _ in 0..index {
            self.skip_value()?;
            self.skip_space();
            self.take(b',')?;
            self.skip_space();
        }
        Some(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    const fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.step())
    }

    fn skip_space(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with("\u{FEFF}".as_bytes()) {
            self.at = self.at.saturating_add(3);
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.step();
        }
    }

    /// Skips a value; its depth uses no stack.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        let mut is_first = true;
        loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth = depth.saturating_add(1);
                    self.step();
                }
                b'}' | b']' | b',' | b':' if depth == 0 => return (!is_first).then_some(()),
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.step();
                }
                byte if depth == 0 && byte.is_ascii_whitespace() => return Some(()),
                _ => self.step(),
            }
            is_first = false;
            let last = self.text.get(self.at.saturating_sub(1));
            if depth == 0 && matches!(last, Some(b'"' | b'}' | b']')) {
                return Some(());
            }
        }
    }

    fn skip_string(&mut self) -> Option<()> {
        self.step();
        loop {
            match self.peek()? {
                b'"' => {
                    self.step();
                    return Some(());
                }
                b'\\' => self.at = self.at.saturating_add(2),
                _ => self.step(),
            }
        }
    }
}

/// Longest value in an error, in characters.
const FOUND_MAX: usize = 80;

#[cfg(test)]
mod tests;
