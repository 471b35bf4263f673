//! Parser of the text form of queries.

use core::fmt;
use core::time::Duration;

use wire::UnixTime;

use super::{Aggregate, Quantile, Query, QueryStep};
use crate::field::Name;
use crate::stats::StatText;

/// Why a text is not a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Byte of the text at which `found` begins.
    pub position: usize,
    /// The first characters of what was found; `None` at the end of the text.
    pub found: Option<StatText>,
    /// What is expected there.
    pub expected: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: found ", self.position)?;
        match &self.found {
            Some(found) => write!(f, "`{found}`")?,
            None => f.write_str("the end")?,
        }
        write!(f, " where {} is expected", self.expected)
    }
}

impl core::error::Error for ParseError {}

pub(super) fn query(text: &str, now: UnixTime) -> Result<Query, ParseError> {
    if text.len() > Query::TEXT_BYTES_MAX {
        return Err(ParseError {
            position: Query::TEXT_BYTES_MAX,
            found: text.get(Query::TEXT_BYTES_MAX..).and_then(excerpt),
            expected: "the end, at most 2,048 bytes,",
        });
    }
    let mut parser = Parser { text, at: 0 };
    let mut aggregates = Vec::new();
    loop {
        let token = parser.next()?;
        let limit = aggregates.len() < Query::AGGREGATES_MAX;
        let aggregate = token.word().and_then(aggregate).filter(|_| limit);
        aggregates.push(aggregate.ok_or_else(|| {
            token.error(if limit {
                "count, sum, min, max, mean, last, uniques or a quantile such as p99"
            } else {
                "at most 16 columns"
            })
        })?);
        if parser.separator("of", "`,` or `of`")? == Separator::End {
            break;
        }
    }
    let name = parser.name()?;
    let mut token = parser.next()?;
    let mut filters = Vec::new();
    if token.word() == Some("where") {
        token = parser.filters(&mut filters)?;
    }
    let mut by = Vec::new();
    if token.word() == Some("by") {
        token = parser.dimensions(&mut by)?;
    }
    if token.word() != Some("from") {
        return Err(token.error(match (filters.is_empty(), by.is_empty()) {
            (true, true) => "`where`, `by` or `from`",
            (false, true) => "`,`, `by` or `from`",
            (_, false) => "`,` or `from`",
        }));
    }
    let from = parser.time(now)?;
    parser.keyword("to", "`to`")?;
    let to = parser.time(now)?;
    parser.keyword("step", "`step`")?;
    let token = parser.next()?;
    let step = token.word().and_then(span).and_then(QueryStep::new);
    let step = step.ok_or_else(|| token.error("a multiple of 10s, such as 60s, 5m, 1h or 1d,"))?;
    let end = parser.next()?;
    if !matches!(end.kind, Kind::End) {
        return Err(end.error("the end"));
    }
    Ok(Query {
        name,
        from,
        to,
        step,
        filters,
        by,
        aggregates,
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

struct Token<'a> {
    kind: Kind,
    /// The text of the token as it is written, and behind it; empty at the end.
    rest: &'a str,
    /// Length of the token.
    len: usize,
    position: usize,
}

enum Kind {
    /// Characters of a [`Name`].
    Word,
    /// A string without its quotes and escapes.
    String(String),
    Comma,
    Equals,
    /// Not a token.
    Other,
    End,
}

#[derive(PartialEq, Eq)]
enum Separator {
    Comma,
    End,
}

impl<'a> Token<'a> {
    fn written(&self) -> &'a str {
        self.rest.get(..self.len).unwrap_or_default()
    }

    fn word(&self) -> Option<&'a str> {
        matches!(self.kind, Kind::Word).then(|| self.written())
    }

    fn error(&self, expected: &'static str) -> ParseError {
        ParseError {
            position: self.position,
            found: excerpt(self.written()),
            expected,
        }
    }
}

impl<'a> Parser<'a> {
    /// Reads a token; it fails only at characters that are none.
    fn next(&mut self) -> Result<Token<'a>, ParseError> {
        let text = self.text.get(self.at..).unwrap_or_default();
        let rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
        let position = self.text.len().saturating_sub(rest.len());
        let first = rest.chars().next();
        let (kind, len) = match first {
            None => (Kind::End, 0),
            Some(',') => (Kind::Comma, 1),
            Some('=') => (Kind::Equals, 1),
            Some('"') => match string(rest) {
                Some((string, len)) => (Kind::String(string), len),
                None => (Kind::Other, rest.len()),
            },
            Some(_) => match rest.find(|char| !is_word(char)).unwrap_or(rest.len()) {
                0 => (Kind::Other, first.map_or(0, char::len_utf8)),
                len => (Kind::Word, len),
            },
        };
        self.at = position.saturating_add(len);
        let token = Token {
            kind,
            rest,
            len,
            position,
        };
        match (&token.kind, first) {
            (Kind::Other, Some('"')) => Err(token.error("a string that ends with `\"`")),
            (Kind::Other, _) => Err(token.error("a-z 0-9 . _ - , = or `\"`")),
            (Kind::Word | Kind::String(_) | Kind::Comma | Kind::Equals | Kind::End, _) => Ok(token),
        }
    }

    fn keyword(&mut self, word: &str, expected: &'static str) -> Result<(), ParseError> {
        let token = self.next()?;
        if token.word() == Some(word) {
            Ok(())
        } else {
            Err(token.error(expected))
        }
    }

    /// Reads a comma, or the word that ends the list.
    fn separator(&mut self, end: &str, expected: &'static str) -> Result<Separator, ParseError> {
        let token = self.next()?;
        if matches!(token.kind, Kind::Comma) {
            Ok(Separator::Comma)
        } else if token.word() == Some(end) {
            Ok(Separator::End)
        } else {
            Err(token.error(expected))
        }
    }

    fn name(&mut self) -> Result<Name, ParseError> {
        let token = self.next()?;
        let name = token.word().and_then(|word| Name::new(word).ok());
        name.ok_or_else(|| token.error("a name, 1 to 32 of a-z 0-9 . _ -,"))
    }

    /// Reads the name of a dimension that is not in `known`.
    fn dimension(&mut self, known: &[Name]) -> Result<Name, ParseError> {
        let token = self.next()?;
        let name = token.word().and_then(|word| Name::new(word).ok());
        let name = name.ok_or_else(|| token.error("the name of a dimension"))?;
        if known.contains(&name) {
            return Err(token.error("another dimension"));
        }
        if known.len() >= Query::DIMENSIONS_MAX {
            return Err(token.error("at most 8 dimensions"));
        }
        Ok(name)
    }

    /// Reads filters, and returns the token behind them.
    fn filters(&mut self, filters: &mut Vec<(Name, StatText)>) -> Result<Token<'a>, ParseError> {
        loop {
            let known: Vec<_> = filters.iter().map(|(name, _)| *name).collect();
            let name = self.dimension(&known)?;
            let token = self.next()?;
            if !matches!(token.kind, Kind::Equals) {
                return Err(token.error("`=`"));
            }
            let token = self.next()?;
            let text = match &token.kind {
                Kind::Word => StatText::new(token.written()).ok(),
                Kind::String(string) => StatText::new(string).ok(),
                Kind::Comma | Kind::Equals | Kind::Other | Kind::End => None,
            };
            let text = text.ok_or_else(|| token.error("a text of 1 to 64 bytes"))?;
            filters.push((name, text));
            let token = self.next()?;
            if !matches!(token.kind, Kind::Comma) {
                return Ok(token);
            }
        }
    }

    /// Reads names of dimensions, and returns the token behind them.
    fn dimensions(&mut self, by: &mut Vec<Name>) -> Result<Token<'a>, ParseError> {
        loop {
            let name = self.dimension(by)?;
            by.push(name);
            let token = self.next()?;
            if !matches!(token.kind, Kind::Comma) {
                return Ok(token);
            }
        }
    }

    fn time(&mut self, now: UnixTime) -> Result<UnixTime, ParseError> {
        let token = self.next()?;
        let time = token
            .word()
            .and_then(|word| match word.strip_prefix("now") {
                Some("") => Some(now),
                Some(before) => {
                    let before = span(before.strip_prefix('-')?)?;
                    let secs = now.as_secs().saturating_sub(before.as_secs());
                    Some(UnixTime::from_secs(secs))
                }
                None => number(word).map(UnixTime::from_secs),
            });
        time.ok_or_else(|| {
            token.error("seconds since 1970, `now`, or `now-` and a span such as 30d,")
        })
    }
}

const fn is_word(char: char) -> bool {
    matches!(char, 'a'..='z' | '0'..='9' | '.' | '_' | '-')
}

/// Reads a string in quotes at the start of `text`; returns its content and its whole length.
fn string(text: &str) -> Option<(String, usize)> {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1);
    loop {
        match chars.next()? {
            (at, '"') => return Some((content, at.saturating_add(1))),
            (_, '\\') => match chars.next()? {
                (_, char @ ('"' | '\\')) => content.push(char),
                _ => return None,
            },
            (_, char) => content.push(char),
        }
    }
}

/// The start of what was found, printable and short; `None` if it is empty.
fn excerpt(text: &str) -> Option<StatText> {
    let printable = |char: char| if char.is_control() { '?' } else { char };
    // At most 4 bytes each.
    let start: String = text.chars().take(16).map(printable).collect();
    StatText::new(&start).ok()
}

fn aggregate(word: &str) -> Option<Aggregate> {
    let aggregate = match word {
        "count" => Aggregate::Count,
        "sum" => Aggregate::Sum,
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        "mean" => Aggregate::Mean,
        "last" => Aggregate::Last,
        "uniques" => Aggregate::Uniques,
        _ => Aggregate::Quantile(quantile(word.strip_prefix('p')?)?),
    };
    Some(aggregate)
}

fn quantile(text: &str) -> Option<Quantile> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let scale = match decimals.len() {
        1 => 10,
        2 => 1,
        _ => return None,
    };
    let whole = number(whole)?.checked_mul(100)?;
    let parts = whole.checked_add(number(decimals)?.checked_mul(scale)?)?;
    Quantile::new(u16::try_from(parts).ok()?)
}

fn span(text: &str) -> Option<Duration> {
    let scale = match text.chars().next_back()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let count = number(text.get(..text.len().checked_sub(1)?)?)?;
    count.checked_mul(scale).map(Duration::from_secs)
}

/// Parses digits only.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
