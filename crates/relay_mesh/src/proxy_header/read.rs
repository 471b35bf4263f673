//! Reads a header from a stream or a datagram.

use super::header::BadHeader;
use super::header::{Header, Subject, Transport};
use super::{SIGNATURE, block, line};

/// What bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A whole header.
    Header(Header<'a>),
    /// No header.
    Nothing,
    /// A prefix of a header; more bytes are needed. Never returned for as many bytes as the limit
    /// allows.
    Partial {
        /// Least total number of bytes that such a header has. Retrying sooner is cheap and rejects
        /// sooner.
        needed: usize,
    },
}

/// Reads the header at the start of a stream, of which `bytes` have arrived.
///
/// Accepts headers of at most `len_max` bytes (usually [`LEN_USUAL`]), and of at most 107 in
/// version 1. A caller that waits while the result is [`Found::Partial`] so holds fewer than
/// `len_max` bytes. A call on an incomplete header inspects at most 107 bytes.
///
/// # Errors
///
/// [`BadHeader`] if the stream must be dropped: it begins like a header and continues otherwise.
pub fn read(bytes: &[u8], len_max: usize) -> Result<Found<'_>, BadHeader> {
    if is_start(bytes, &SIGNATURE) && !bytes.is_empty() {
        block::read(bytes, len_max)
    } else if is_start(bytes, line::NAME) {
        line::read(bytes, len_max)
    } else {
        Ok(Found::Nothing)
    }
}

/// Whether bytes begin like a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderStart {
    /// They do not, whatever follows.
    Absent,
    /// Too few bytes to decide; so is an empty slice.
    Partial,
    /// They begin with `PROXY` of version 1 or the signature of version 2.
    Complete,
}

/// Checks whether a stream that may not begin with a header does. Inspects at most 12 bytes.
#[must_use]
pub fn header_start(bytes: &[u8]) -> HeaderStart {
    if bytes.starts_with(&SIGNATURE) || bytes.starts_with(line::NAME) {
        HeaderStart::Complete
    } else if SIGNATURE.starts_with(bytes) || line::NAME.starts_with(bytes) {
        HeaderStart::Partial
    } else {
        HeaderStart::Absent
    }
}

/// Reads the header at the start of a datagram; `None` if there is none.
///
/// Accepts version 2 only, since version 1 does not support datagrams, and at most `len_max` bytes.
///
/// # Errors
///
/// [`BadHeader`] if the datagram must be dropped: it begins with the signature, but has no whole
/// header for datagrams.
pub fn read_datagram(datagram: &[u8], len_max: usize) -> Result<Option<Header<'_>>, BadHeader> {
    if !datagram.starts_with(&SIGNATURE) {
        return Ok(None);
    }
    match block::read(datagram, len_max)? {
        Found::Header(header) => match header.subject {
            Subject::Flow(ends) if ends.transport != Transport::Datagram => Err(BadHeader::Family),
            Subject::Flow(_) | Subject::Proxy | Subject::Unnamed => Ok(Some(header)),
        },
        Found::Partial { .. } => Err(BadHeader::Short),
        Found::Nothing => Ok(None),
    }
}

/// Returns whether `bytes` are a prefix of `whole`, or begin with it.
pub(super) fn is_start(bytes: &[u8], whole: &[u8]) -> bool {
    bytes
        .iter()
        .zip(whole)
        .all(|(byte, expected)| byte == expected)
}

/// Longest header that a receiver should accept: what fits the smallest segment that every TCP
/// supports, 576 - 40 bytes; the specification, section 2.
pub const LEN_USUAL: usize = 536;
