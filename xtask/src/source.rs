//! A Rust file with comments and literal contents blanked, and with test code separated.
//!
//! Blanking keeps every byte position and line break, so offsets are equal in all views. This is a
//! scanner, not a parser: it knows comments, literals, attributes and brackets, which suffice for
//! the checks.

use std::iter::once;
use std::ops::Range;

use crate::tree::is_test_file;

/// One scanned file.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// Path from the root.
    pub(crate) path: &'a str,
    /// The text on disk.
    pub(crate) text: &'a str,
    /// The text without comments and literal contents.
    pub(crate) code: String,
    /// `code` without test code.
    pub(crate) shipped: String,
    /// Only the test code of `code`.
    pub(crate) tests: String,
}

impl<'a> Source<'a> {
    /// Scans `text`.
    pub(crate) fn scan(path: &'a str, text: &'a str) -> Self {
        let code = blank(text);
        let ranges = if is_test_file(path) {
            once(0..code.len()).collect()
        } else {
            test_items(&code)
        };
        let inside = |offset| ranges.iter().any(|range| range.contains(&offset));
        let view = |tests: bool| {
            code.char_indices()
                .map(|(offset, char)| {
                    if char == '\n' || inside(offset) == tests {
                        char
                    } else {
                        ' '
                    }
                })
                .collect()
        };
        let (shipped, tests) = (view(false), view(true));
        Self {
            path,
            text,
            code,
            shipped,
            tests,
        }
    }
}

/// Returns the line, from 1, of the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or(text).split('\n').count()
}

/// Returns the offsets of `needle` in `text` as a whole word, not as part of a longer name.
pub(crate) fn words<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part_of_name = |char: Option<char>| char.is_some_and(is_name);
    let (opens, closes) = (
        part_of_name(needle.chars().next()),
        part_of_name(needle.chars().next_back()),
    );
    text.match_indices(needle)
        .map(|(offset, _)| offset)
        .filter(move |offset| {
            let (before, rest) = text.split_at(*offset);
            let after = rest.get(needle.len()..).unwrap_or("");
            !(opens && part_of_name(before.chars().next_back())
                || closes && part_of_name(after.chars().next()))
        })
}

/// Returns whether `text` contains `needle` as a whole word.
pub(crate) fn has_word(text: &str, needle: &str) -> bool {
    words(text, needle).next().is_some()
}

/// Returns the name at the start of `text`.
pub(crate) fn leading_name(text: &str) -> &str {
    let end = text.find(|char| !is_name(char)).unwrap_or(text.len());
    text.get(..end).unwrap_or("")
}

/// Returns the offset after the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns whether `char` can be part of a name.
pub(crate) fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Blanks comments and literal contents.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let len = hidden_len(rest, before).unwrap_or(0);
        let taken = len.max(first.len_utf8());
        let (head, tail) = rest.split_at(taken);
        if len == 0 {
            out.push(first);
        } else {
            hide(head, &mut out);
        }
        before = head.chars().next_back().unwrap_or(' ');
        rest = tail;
    }
    out
}

/// Appends spaces for `text` and keeps its line breaks.
fn hide(text: &str, out: &mut String) {
    for byte in text.bytes() {
        out.push(if byte == b'\n' { '\n' } else { ' ' });
    }
}

/// Returns the length of the comment or literal at the start of `rest`, if there is one.
fn hidden_len(rest: &str, before: char) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment_len(rest));
    }
    if let Some(inside) = rest.strip_prefix('"') {
        return Some(1 + quoted_len(inside, b'"'));
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut chars = inside.chars();
        let is_literal = match chars.next() {
            Some('\\') => true,
            Some(_) => chars.next() == Some('\''),
            None => false,
        };
        // Otherwise it is a lifetime.
        return is_literal.then(|| 1 + quoted_len(inside, b'\''));
    }
    if is_name(before) {
        return None;
    }
    raw_string_len(rest)
}

/// Returns the length including the closing quote.
fn quoted_len(inside: &str, quote: u8) -> usize {
    let mut bytes = inside.bytes().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else if byte == quote {
            return offset + 1;
        }
    }
    inside.len()
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut offset = 0;
    while let Some(here) = rest.as_bytes().get(offset..) {
        if here.starts_with(b"/*") {
            depth += 1;
            offset += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            offset += 2;
            if depth == 0 {
                return offset;
            }
        } else if here.is_empty() {
            break;
        } else {
            offset += 1;
        }
    }
    rest.len()
}

/// Returns the length of a raw string such as `r"..."` or `br#"..."#`.
fn raw_string_len(rest: &str) -> Option<usize> {
    let body = rest.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let quoted = body.trim_start_matches('#');
    let hashes = body.len() - quoted.len();
    let inside = quoted.strip_prefix('"')?;
    let start = rest.len() - inside.len();
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        inside
            .find(&end)
            .map_or(rest.len(), |at| start + at + end.len()),
    )
}

/// Returns the items under `#[cfg(test)]`, or the whole file if it has `#![cfg(test)]`.
fn test_items(code: &str) -> Vec<Range<usize>> {
    if code.contains("#![cfg(test)]") {
        return once(0..code.len()).collect();
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            ranges.push(start..item_end(code, start));
        }
    }
    ranges
}

/// Returns the end of the item whose first attribute starts at `start`.
fn item_end(code: &str, start: usize) -> usize {
    let mut offset = start;
    while let Some(byte) = code.as_bytes().get(offset) {
        match byte {
            b';' => return offset + 1,
            b'{' => return closing(code, offset).unwrap_or(code.len()),
            b'(' | b'[' => match closing(code, offset) {
                Some(end) => offset = end,
                None => return code.len(),
            },
            _ => offset += 1,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests;
