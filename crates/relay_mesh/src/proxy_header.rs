//! PROXY protocol headers, versions 1 and 2: they name the source of a connection, flow or datagram
//! to a server.
//!
//! W. Tarreau, "The PROXY protocol, versions 1 and 2", of 2020-03-05, is "the specification" in
//! this module. Version 1 is a line of text, for streams only (section 2.1). Version 2 is binary
//! (section 2.2) and can have extensions in type-length-value format.
//!
//! - [`read`] parses the start of a stream and [`read_datagram`] a datagram; neither copies, or
//!   reads a byte after the header.
//! - [`write_line`] and [`write_block`] append to a buffer.
//! - [`TrustedProxies`] defines which senders' headers are accepted. The protocol has no
//!   authentication.
//!
//! ```
//! use relay_mesh::proxy_header::{Found, LEN_USUAL, HeaderPolicy, TrustedProxies, read};
//!
//! let trusted = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::/32"], HeaderPolicy::Required)?;
//! let stream = b"PROXY TCP4 203.0.113.9 10.0.0.2 4000 443\r\nGET / HTTP/1.1\r\n";
//! let Found::Header(header) = read(stream, LEN_USUAL)? else {
//!     panic!("there is one");
//! };
//! let ends = trusted.judge("10.0.0.1".parse()?, Some(&header))?.expect("of a player");
//! assert_eq!(ends.source, "203.0.113.9:4000".parse()?);
//! assert!(stream[header.len..].starts_with(b"GET"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod error;
mod header;
mod line;
#[cfg(test)]
mod tests;
mod trust;

pub use block::{BLOCK_MAX, Checksum, WriteError, write_block};
pub use error::BadHeader;
pub use header::{Header, Tlv, TlvKind, Tlvs, UNIQUE_ID_MAX, Version};
pub use line::{LINE_MAX, write_line};
pub use trust::{HeaderPolicy, PREFIXES_MAX, PolicyViolation, TrustError, TrustedProxies};
use wire::proxy_header::SIGNATURE;
pub use wire::proxy_header::{BadHeader as BadBlock, Ends, Subject, Transport};

/// What bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A whole header.
    Header(Header<'a>),
    /// No header.
    Nothing,
    /// A prefix of a header, shorter than the limit; more bytes are needed.
    Partial {
        /// Least total number of bytes that such a header has.
        needed: usize,
    },
}

/// Reads the header at the start of a stream, of which `bytes` have arrived.
///
/// Accepts headers of at most `len_max` bytes (usually [`LEN_USUAL`]), and of at most 107 in
/// version 1, so a caller that waits while the result is [`Found::Partial`] holds fewer than
/// `len_max` bytes.
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
            Subject::Flow(ends) if ends.transport != Transport::Datagram => {
                Err(BadBlock::Family.into())
            }
            Subject::Flow(_) | Subject::Proxy | Subject::Unnamed => Ok(Some(header)),
        },
        Found::Partial { .. } => Err(BadBlock::Short.into()),
        Found::Nothing => Ok(None),
    }
}

fn is_start(bytes: &[u8], whole: &[u8]) -> bool {
    bytes.iter().zip(whole).all(|(byte, want)| byte == want)
}

/// Longest header that a receiver should accept: what fits the smallest segment that every TCP
/// supports, 576 - 40 bytes; the specification, section 2.
pub const LEN_USUAL: usize = 536;

pub(crate) fn is_like(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE)
}
