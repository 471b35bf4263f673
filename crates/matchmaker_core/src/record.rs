//! The records of the calls between game servers and matchmaker.
//!
//! All integers are big-endian. The first byte is the version, 1, the second the kind.
//!
//! | kind | from | fields behind it |
//! |---|---|---|
//! | 1 register | server | app id 8, token key 36, capacity 2, flags 1, key count 1 (1 to 4) and identity keys 65 each, address count 1 (1 to 8) and addresses 19 each, match count 2 (0 to 256), running matches |
//! | 2 heartbeat | server | flags 1, match count 2 (0 to 256), match id 16 and flags 1 of each |
//! | 3 result | server | match id 16, result (0 to 1,024) |
//! | 4 left | server | match id 16, client 8 |
//! | 5 bye | server | |
//! | 16 assign | matchmaker | instance 8, match |
//!
//! A match is its id 16, player count 2 (1 to 256) and players of client 8, seat 2, team 1. A running
//! match has flags 1 behind its id (bit 0: a player has entered it), and may have lost all players.
//! Matches and ids are in ascending order, so no two are equal. An address is family 4 or 6, 16 bytes
//! (IPv4 mapped, RFC 4291, section 2.5.5.2), port 2, as in a TWT1 token. Flags of a server: bit 0
//! takes new matches. All other bits of flags are 0.
//!
//! A reply of the matchmaker is version 1, status 1 and what [`Reply`] says; that of a server is
//! version 1, verdict 1 ([`Verdict`]). A record that breaks the format, has bytes left over, or is
//! longer than [`RECORD_BYTES_MAX`] is refused as a whole.

mod field;
mod reply;
mod to_matchmaker;
mod to_server;

use core::fmt;

use wire::Truncated;

pub(crate) use field::Listed;
pub(crate) use reply::Renewal;
pub use reply::{RefuseReason, Reply};
pub(crate) use to_matchmaker::ToMatchmaker;
pub use to_matchmaker::{
    Intake, Register, RunningMatch, encode_bye, encode_heartbeat, encode_left, encode_result,
};
pub use to_server::{Assign, Verdict};

/// Version of these records.
pub const VERSION: u8 = 1;

/// Longest record, bytes; it fits the body of a hub call.
pub const RECORD_BYTES_MAX: usize = 60 * 1_024;

/// Most matches that one instance may run at a time.
pub const MATCHES_MAX: usize = 256;

/// Longest result of a match, bytes.
pub const RESULT_BYTES_MAX: usize = 1_024;

/// Most matches that one reply tells an instance to forget; the next reply names the rest.
pub const RELEASE_MAX: usize = 32;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Longer than [`RECORD_BYTES_MAX`].
    TooLong(usize),
    /// Fewer bytes than the fields need.
    Truncated,
    /// This many bytes behind the last field.
    Trailing(usize),
    /// Not version 1.
    Version(u8),
    /// No record or reply has this kind here.
    Kind(u8),
    /// A count is out of range.
    Count(u16),
    /// Matches are not in ascending order.
    Order,
    /// A reserved flag is set.
    Flags(u8),
    /// An identity key is no point of the curve.
    Key,
    /// An address has another family than 4 or 6, or its IPv4 mapping is wrong.
    Address,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(
                    f,
                    "record of {len} bytes is over the limit of {RECORD_BYTES_MAX}"
                )
            }
            Self::Truncated => f.write_str("fewer bytes than the fields need"),
            Self::Trailing(len) => write!(f, "{len} bytes behind the last field"),
            Self::Version(version) => {
                write!(f, "record version {version}, where {VERSION} is known")
            }
            Self::Kind(kind) => write!(f, "no record has kind {kind} here"),
            Self::Count(count) => write!(f, "a count of {count} is out of range"),
            Self::Order => f.write_str("matches are not in ascending order"),
            Self::Flags(flags) => write!(f, "flags {flags:#04x} are reserved"),
            Self::Key => f.write_str("an identity key is no point of P-256"),
            Self::Address => f.write_str("an address is neither IPv4 nor IPv6"),
        }
    }
}

impl core::error::Error for DecodeError {}
