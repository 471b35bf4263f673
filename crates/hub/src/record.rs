//! The records of a hub link: what a node says to the hub, and the hub to a node.
//!
//! A record is what the driver frames with a length. Its first byte is its [code]; numbers
//! are big-endian; a body is the rest of the record. A record with an unknown code, a field out of
//! range or bytes left over is refused as a whole, and its link with it.

pub mod code;
mod status;
mod to_hub;
mod to_node;

use core::fmt;

use wire::Truncated;

pub use status::{CallError, DownReason, MailRefusal, MailVerdict, RevokeReason};
pub use to_hub::{Join, MailSubmission, ToHub};
pub(crate) use to_hub::{decode_counts, encode_counts};
pub use to_node::{Delivery, Request, Seen, ToNode};

/// Version of these records, as the first record of a link states it.
pub const VERSION: u16 = 1;

/// Longest body of a call, mail or broadcast, bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1_024;

/// Longest record, bytes: the longest body, and 1 KiB for what stands before it. A batch of counts
/// is cut to fit.
pub const RECORD_BYTES_MAX: usize = BODY_BYTES_MAX + 1_024;

/// Longest note that a claim carries, bytes.
pub const META_BYTES_MAX: usize = 256;

/// Services that one node may serve.
pub const SERVICES_MAX: usize = 16;

/// Keys in one batch of counts.
pub const COUNTS_MAX: usize = 64;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than the fields need.
    Truncated,
    /// This many bytes behind the last field.
    Trailing(usize),
    /// No record has this code in this direction.
    Code(u8),
    /// No address has this code.
    Addr(u8),
    /// A name is too long, empty, or holds a character that names do not have.
    Name,
    /// A number that stands for a choice stands for none.
    Choice(u8),
    /// A list or body is longer than allowed, or a list out of order.
    Count,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("fewer bytes than the fields need"),
            Self::Trailing(len) => write!(f, "{len} bytes behind the last field"),
            Self::Code(code) => write!(f, "no record has code {code}"),
            Self::Addr(code) => write!(f, "no address has code {code}"),
            Self::Name => f.write_str("a name that is none"),
            Self::Choice(code) => write!(f, "{code} stands for no choice"),
            Self::Count => f.write_str("a list or body over its limit, or out of order"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// `body`, where it is not too long.
const fn bounded(body: &[u8], max: usize) -> Result<&[u8], DecodeError> {
    if body.len() > max {
        Err(DecodeError::Count)
    } else {
        Ok(body)
    }
}

/// Ends a record that has no body.
fn ended<T>(record: T, rest: &[u8]) -> Result<T, DecodeError> {
    if rest.is_empty() {
        Ok(record)
    } else {
        Err(DecodeError::Trailing(rest.len()))
    }
}
