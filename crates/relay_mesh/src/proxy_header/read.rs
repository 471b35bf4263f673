//! Reading a header from a stream or a datagram.

use super::header::BadHeader;
use super::header::{Header, Subject, Transport};
use super::{SIGNATURE, block, line};

/// What bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A whole header.
    Header(Header<'a>),
    /// No header, whatever follows.
    Nothing,
    /// Perhaps a header, of which more is needed. Never for as many bytes as are taken at most.
    Partial {
        /// As many bytes, from the first on, no header that begins so is shorter than. To ask again sooner
        /// costs little, and tells sooner that there is none.
        needed: usize,
    },
}

/// Reads the header that a stream begins with, of which `bytes` came so far.
///
/// Takes headers of at most `len_max` bytes ([`LEN_USUAL`] where there is no reason for another limit), and of
/// version 1 at most 107 whatever the limit. So a caller that waits as long as the answer is
/// [`Found::Partial`] holds fewer than `len_max`. A call for a part of a header looks at no more than 107
/// bytes of it.
///
/// # Errors
///
/// [`BadHeader`] where the stream is to be dropped: it begins like a header and goes on otherwise.
pub fn read(bytes: &[u8], len_max: usize) -> Result<Found<'_>, BadHeader> {
    if is_start(bytes, &SIGNATURE) && !bytes.is_empty() {
        block::read(bytes, len_max)
    } else if is_start(bytes, line::NAME) {
        line::read(bytes, len_max)
    } else {
        Ok(Found::Nothing)
    }
}

/// How far bytes begin as a header does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderStart {
    /// They begin otherwise, whatever follows.
    Absent,
    /// Too few to tell; none are too few.
    Partial,
    /// With the `PROXY` of version 1 or the signature of version 2, whatever follows.
    Complete,
}

/// Says whether a stream that nobody may begin with a header begins with one. Looks at 12 bytes at most.
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

/// Reads the header that a datagram begins with; `None` where it begins otherwise.
///
/// Of version 2 only, since version 1 knows of no datagrams, and of at most `len_max` bytes.
///
/// # Errors
///
/// [`BadHeader`] where the datagram is to be dropped: it begins with the signature, and no whole header for
/// datagrams is there.
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

/// Returns whether `bytes` are the start of `whole`, or begin with it.
pub(super) fn is_start(bytes: &[u8], whole: &[u8]) -> bool {
    bytes
        .iter()
        .zip(whole)
        .all(|(byte, expected)| byte == expected)
}

/// Longest header that a receiver should take: what the smallest segment that every TCP carries has room for,
/// 576 - 40 bytes; the specification, section 2.
pub const LEN_USUAL: usize = 536;
