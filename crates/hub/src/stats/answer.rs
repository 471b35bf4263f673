//! Encoding of an answer.
//!
//! ```text
//! version 1, status 1, rest
//! status 0: next ms 8 (0: last part), dimensions 1, columns 1, row...
//! row     = start s 8, (0 or 1, [text]) for each dimension, cell for each column
//! cell    = 0, or 1 and a float in 8 bytes, or 2 and a text
//! status 1 to 6: a sentence
//! ```
//!
//! Numbers are big-endian; a text is its length in 1 byte and its bytes.

use core::fmt;

use wire::{Encode, Reader, UnixTime, Writer};

use super::batch::{BatchError, decode_float, decode_text, encode_text};
use super::query::{Cell, Query, QueryError, QueryPage, QueryRow};
use super::record::StatText;
use crate::record::BODY_BYTES_MAX;

/// Version of this format.
const VERSION: u8 = 1;

/// Longest sentence, bytes.
const SENTENCE_BYTES_MAX: usize = 512;

/// An answer to a query: a part of its rows, or why there is none.
pub type StatsAnswer = Result<QueryPage, QueryRefusal>;

/// Why there is no answer: a reason, and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRefusal {
    /// The reason.
    pub reason: QueryReason,
    /// What was found where, or which limit is exceeded; at most 512 bytes.
    pub sentence: String,
}

/// Reasons of a [`QueryRefusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum QueryReason {
    /// The text is no query.
    Syntax = 1,
    /// One step of the answer has too many rows.
    Rows = 2,
    /// One step of the answer takes too much work.
    Work = 3,
    /// No room now; try again.
    Busy = 4,
    /// The role of the node may not query, or this hub has no statistics.
    Refused = 5,
    /// The link has closed.
    HubDown = 6,
}

impl QueryReason {
    const ALL: [Self; 6] = [
        Self::Syntax,
        Self::Rows,
        Self::Work,
        Self::Busy,
        Self::Refused,
        Self::HubDown,
    ];
}

impl QueryRefusal {
    pub(crate) fn new(reason: QueryReason, sentence: impl fmt::Display) -> Self {
        let mut sentence = sentence.to_string();
        let mut len = sentence.len().min(SENTENCE_BYTES_MAX);
        while !sentence.is_char_boundary(len) {
            len = len.saturating_sub(1);
        }
        sentence.truncate(len);
        Self { reason, sentence }
    }
}

impl From<QueryError> for QueryRefusal {
    fn from(error: QueryError) -> Self {
        let reason = match error {
            QueryError::Rows(_) => QueryReason::Rows,
            QueryError::TooLong => QueryReason::Syntax,
            QueryError::Work => QueryReason::Work,
        };
        Self::new(reason, error)
    }
}

impl fmt::Display for QueryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl core::error::Error for QueryRefusal {}

/// Encodes an answer in at most 64 KiB: whole steps of `page`, so that the rest follows with the next
/// part. A step that alone does not fit is refused.
pub fn encode_answer(answer: &StatsAnswer) -> Vec<u8> {
    let refusal = match answer {
        Ok(page) => match encode_page(page) {
            Some(bytes) => return bytes,
            None => &QueryRefusal::new(
                QueryReason::Rows,
                format_args!("one step of the answer exceeds {BODY_BYTES_MAX} bytes"),
            ),
        },
        Err(refusal) => refusal,
    };
    let mut bytes = vec![VERSION, refusal.reason as u8];
    bytes.extend_from_slice(refusal.sentence.as_bytes());
    bytes
}

/// Returns `None` if the first step does not fit.
fn encode_page(page: &QueryPage) -> Option<Vec<u8>> {
    let mut bytes = vec![VERSION, 0];
    bytes.extend_from_slice(&[0; 8]);
    let first = page.rows.first();
    let dimensions = first.map_or(0, |row| row.group.len());
    let columns = first.map_or(0, |row| row.cells.len());
    bytes.push(u8::try_from(dimensions).ok()?);
    bytes.push(u8::try_from(columns).ok()?);
    let mut next = page.next;
    for step in page.rows.chunk_by(|one, next| one.start == next.start) {
        let before = bytes.len();
        for row in step {
            encode_row(row, &mut Writer::new(&mut bytes));
        }
        if bytes.len() > BODY_BYTES_MAX {
            bytes.truncate(before);
            let start = step.first().map(|row| row.start);
            if start == first.map(|row| row.start) {
                return None;
            }
            next = start;
            break;
        }
    }
    let next = next.map_or(0, UnixTime::as_millis).to_be_bytes();
    for (target, byte) in bytes.iter_mut().skip(2).zip(next) {
        *target = byte;
    }
    Some(bytes)
}

fn encode_row(row: &QueryRow, out: &mut Writer<'_>) {
    row.start.as_secs().encode(out);
    for dimension in &row.group {
        match dimension {
            None => out.u8(0),
            Some(text) => {
                out.u8(1);
                encode_text(text, out);
            }
        }
    }
    for cell in &row.cells {
        match cell {
            Cell::Empty => out.u8(0),
            Cell::Number(number) => {
                out.u8(1);
                // Adding zero turns a negative zero into a positive one.
                out.u64((number + 0.0).to_bits());
            }
            Cell::Text(text) => {
                out.u8(2);
                encode_text(text, out);
            }
        }
    }
}

/// Decodes an answer. It allocates in proportion to the length of `bytes`.
///
/// # Errors
///
/// [`BatchError`] if a field is out of range.
pub fn decode_answer(bytes: &[u8]) -> Result<StatsAnswer, BatchError> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        VERSION => {}
        version => return Err(BatchError::Version(version)),
    }
    let status = reader.u8()?;
    if status == 0 {
        return decode_page(&mut reader).map(Ok);
    }
    let mut reasons = QueryReason::ALL.into_iter();
    let reason = reasons.find(|reason| *reason as u8 == status);
    let reason = reason.ok_or(BatchError::Head(status))?;
    let sentence = reader.take_rest();
    if sentence.len() > SENTENCE_BYTES_MAX {
        return Err(BatchError::Count);
    }
    let sentence = str::from_utf8(sentence).map_err(|_| BatchError::Text)?;
    let sentence = sentence.to_owned();
    Ok(Err(QueryRefusal { reason, sentence }))
}

fn decode_page(reader: &mut Reader<'_>) -> Result<QueryPage, BatchError> {
    let next = match reader.u64()? {
        0 => None,
        millis => Some(UnixTime::from_millis(millis)),
    };
    let dimensions = usize::from(reader.u8()?);
    let columns = usize::from(reader.u8()?);
    if dimensions > Query::DIMENSIONS_MAX || columns > Query::AGGREGATES_MAX {
        return Err(BatchError::Count);
    }
    let mut rows = Vec::new();
    while !reader.is_empty() {
        let start = reader.u64()?.checked_mul(1_000).ok_or(BatchError::Number)?;
        let start = UnixTime::from_millis(start);
        let group = (0..dimensions).map(|_| decode_dimension(reader));
        let group = group.collect::<Result<_, _>>()?;
        let cells = (0..columns).map(|_| decode_cell(reader));
        let cells = cells.collect::<Result<_, _>>()?;
        rows.push(QueryRow {
            start,
            group,
            cells,
        });
    }
    Ok(QueryPage { rows, next })
}

fn decode_dimension(reader: &mut Reader<'_>) -> Result<Option<StatText>, BatchError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => decode_text(reader).map(Some),
        form => Err(BatchError::Head(form)),
    }
}

fn decode_cell(reader: &mut Reader<'_>) -> Result<Cell, BatchError> {
    Ok(match reader.u8()? {
        0 => Cell::Empty,
        1 => Cell::Number(decode_float(f64::from_bits(reader.u64()?))?.get()),
        2 => Cell::Text(decode_text(reader)?),
        form => return Err(BatchError::Head(form)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> StatText {
        StatText::new(text).unwrap()
    }

    #[test]
    fn a_start_that_has_no_milliseconds_is_refused() {
        let mut bytes = vec![VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(u64::MAX.to_be_bytes());
        assert_eq!(decode_answer(&bytes), Err(BatchError::Number));
    }

    fn row(secs: u64, group: &str) -> QueryRow {
        QueryRow {
            start: UnixTime::from_secs(secs),
            group: vec![Some(text(group)), None],
            cells: vec![Cell::Number(1.5), Cell::Empty, Cell::Text(text("live"))],
        }
    }

    /// Formats change by a new version; this release must go on reading version 1.
    #[test]
    fn h12_an_answer_of_version_1_is_read() {
        let page = QueryPage {
            rows: vec![row(1_800_000_000, "eu")],
            next: Some(UnixTime::from_secs(1_800_000_010)),
        };
        let frozen = [
            &b"\x01\0\0\0\x01\xa3\x18\x5c\x77\x10\x02\x03"[..],
            b"\0\0\0\0\x6b\x49\xd2\0",
            b"\x01\x02eu\0",
            b"\x01\x3f\xf8\0\0\0\0\0\0",
            b"\0",
            b"\x02\x04live",
        ]
        .concat();
        let bytes = encode_answer(&Ok(page.clone()));
        assert_eq!(bytes, frozen);
        assert_eq!(decode_answer(&bytes), Ok(Ok(page)));
        let refusal = QueryRefusal::new(QueryReason::Busy, "x".repeat(600));
        let bytes = encode_answer(&Err(refusal.clone()));
        assert_eq!(bytes.len(), 2 + 512);
        assert_eq!(decode_answer(&bytes), Ok(Err(refusal)));
        for (bytes, error) in [
            (&[2, 0][..], BatchError::Version(2)),
            (&[1, 7], BatchError::Head(7)),
            (&[1, 1, 0xff], BatchError::Text),
            (&[1], BatchError::Truncated),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0], BatchError::Count),
            (
                &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                BatchError::Truncated,
            ),
        ] {
            assert_eq!(decode_answer(bytes), Err(error));
        }
    }

    #[test]
    fn h11_an_answer_is_cut_between_steps_to_fit_a_record() {
        let rows: Vec<_> = (0..4_000).map(|at| row(at / 10 * 10, "eu")).collect();
        let bytes = encode_answer(&Ok(QueryPage {
            rows: rows.clone(),
            next: None,
        }));
        assert!(bytes.len() <= BODY_BYTES_MAX);
        let page = decode_answer(&bytes).unwrap().unwrap();
        let next = page.next.unwrap().as_secs();
        assert_eq!(usize::try_from(next).unwrap(), page.rows.len());
        assert_eq!(page.rows[..], rows[..page.rows.len()]);
        let one_step = (0..4_000).map(|_| row(0, "eu")).collect();
        let refused = encode_answer(&Ok(QueryPage {
            rows: one_step,
            next: None,
        }));
        let refusal = decode_answer(&refused).unwrap().unwrap_err();
        assert_eq!(refusal.reason, QueryReason::Rows);
    }
}
