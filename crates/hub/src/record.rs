//! Records of a hub link.
//!
//! The driver frames each record with its length. The first byte is its [code]; numbers are
//! big-endian; a body is the rest of the record. If a record has an unknown code, a field out of
//! range or trailing bytes, it is rejected and its link closed.

pub mod code;
mod to_hub;
mod to_node;

use core::fmt;

use wire::Truncated;

pub use to_hub::{Join, MailSubmission, ToHub};
pub(crate) use to_hub::{decode_counts, encode_counts};
pub use to_node::{Delivery, NodeInfo, Request, ToNode};

/// Version of these records, as sent in the first record of a link.
pub const VERSION: u16 = 1;

/// Longest body of a call, mail or broadcast, bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1_024;

/// Longest record, bytes: the longest body, and 1 KiB for the fields before it. A batch of counts
/// is cut to fit.
pub const RECORD_BYTES_MAX: usize = BODY_BYTES_MAX + 1_024;

/// Longest note of a claim, bytes.
pub const META_BYTES_MAX: usize = 256;

/// Most services of one node.
pub const SERVICES_MAX: usize = 16;

/// Most keys in one batch of counts.
pub const COUNTS_MAX: usize = 64;

/// Why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The record ends before its last field.
    Truncated,
    /// This many bytes follow the last field.
    Trailing(usize),
    /// The code is unknown in this direction.
    Code(u8),
    /// The address kind is unknown.
    Addr(u8),
    /// A name is empty, too long, or has an invalid character.
    Name,
    /// The value of an enum field is unknown.
    Choice(u8),
    /// A list or body is too long, or a list is not sorted.
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

/// Returns `body` if it is not too long.
const fn bounded(body: &[u8], max: usize) -> Result<&[u8], DecodeError> {
    if body.len() > max {
        Err(DecodeError::Count)
    } else {
        Ok(body)
    }
}

/// Returns `record` if no bytes follow it.
fn ended<T>(record: T, rest: &[u8]) -> Result<T, DecodeError> {
    if rest.is_empty() {
        Ok(record)
    } else {
        Err(DecodeError::Trailing(rest.len()))
    }
}

/// Defines an enum with a wire code and a message per variant.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$case_doc])* $case,)*
        }

        impl $name {
            pub(crate) const fn code(self) -> u8 {
                match self { $(Self::$case => $code,)* }
            }

            pub(crate) const fn from_code(code: u8) -> Result<Self, DecodeError> {
                match code {
                    $($code => Ok(Self::$case),)*
                    _ => Err(DecodeError::Choice(code)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$case => $text,)* })
            }
        }
    };
}

choices! {
    /// Why the hub closes a link.
    DownReason {
        /// The join file does not list the key.
        NotListed = 1, "the join file does not list this key";
        /// The join file does not grant the key this role.
        RoleRefused = 2, "the join file does not give this key the role";
        /// The join file does not grant the key one of the services.
        ServiceRefused = 3, "the join file does not give this key the service";
        /// The node uses another version of the records.
        Version = 4, "the version of the records is not known";
        /// A record that does not decode, or is not allowed in this state.
        Protocol = 5, "a record that does not belong here";
        /// A later run of the same node has joined.
        Fenced = 6, "a later run of this node has joined";
        /// A later link of the same run has joined.
        Replaced = 7, "a later link of this run has joined";
        /// The hub's disk has failed; the hub restarts from its contents.
        StoreFailed = 8, "the disk of the hub has failed";
        /// The hub has no room for this node now.
        Busy = 9, "the hub has no room for this node now";
        /// Idle timeout.
        Silent = 10, "nothing came for too long";
        /// The node reads too slowly.
        Overrun = 11, "the node reads too slowly";
    }
}

choices! {
    /// Why a call has no reply.
    CallError {
        /// The timeout has passed.
        TimedOut = 1, "no answer came in time";
        /// There is no such node, service or player.
        Unreachable = 2, "nobody is at the address";
        /// The callee's link has closed.
        NodeDown = 3, "the node that was asked is gone";
        /// The link to the hub has closed.
        HubDown = 4, "the link to the hub has ended";
        /// Too many calls are open, or the callee reads too slowly.
        Busy = 5, "too many calls are open";
        /// The callee refuses.
        Refused = 6, "the node that was asked refuses";
    }
}

choices! {
    /// Why a mail is rejected permanently.
    MailRefusal {
        /// The mailbox is full.
        MailboxFull = 1, "the mailbox is full";
        /// The address is not a player.
        Address = 2, "mail goes to players only";
    }
}

choices! {
    /// Why a claim has ended.
    RevokeReason {
        /// A later claim of the player was granted.
        Taken = 1, "a later claim has taken the player";
        /// Another node holds the player, and the hub is configured to keep it.
        Held = 2, "another node holds the player";
        /// The hub has no room for another player.
        Busy = 3, "the hub has no room for another player";
    }
}

/// Verdict on a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailVerdict {
    /// Stored; it will be delivered.
    Stored,
    /// Rejected permanently.
    Refused(MailRefusal),
    /// Not stored now; the sender resends it and all later ones after a delay.
    Busy,
}

impl MailVerdict {
    /// 0 stored, 255 busy, else the refusal's code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Stored => 0,
            Self::Refused(refusal) => refusal.code(),
            Self::Busy => u8::MAX,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Stored),
            u8::MAX => Ok(Self::Busy),
            code => MailRefusal::from_code(code).map(Self::Refused),
        }
    }
}
