//! The records of a hub link: what a node says to the hub, and the hub to a node.
//!
//! A record is what the driver frames with a length. Its first byte is its [code]; numbers
//! are big-endian; a body is the rest of the record. A record with an unknown code, a field out of
//! range or bytes left over is refused as a whole, and its link with it.

pub mod code;
mod to_hub;
mod to_node;

use core::fmt;

use wire::Truncated;

pub use to_hub::{Join, MailSubmission, ToHub};
pub(crate) use to_hub::{decode_counts, encode_counts};
pub use to_node::{Delivery, NodeInfo, Request, ToNode};

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

/// Makes an enum whose variants are bytes on the wire and sentences for people.
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
    /// Why the hub ends a link.
    DownReason {
        /// The join file does not list the key.
        NotListed = 1, "the join file does not list this key";
        /// The join file lists the key, but not in this role.
        RoleRefused = 2, "the join file does not give this key the role";
        /// The join file does not give the key one of the services.
        ServiceRefused = 3, "the join file does not give this key the service";
        /// The node speaks another version.
        Version = 4, "the version of the records is not known";
        /// A record that is none, or one that does not belong here.
        Protocol = 5, "a record that does not belong here";
        /// A later run of the same node has joined.
        Fenced = 6, "a later run of this node has joined";
        /// A later link of the same run has joined.
        Replaced = 7, "a later link of this run has joined";
        /// The hub's disk has failed; it starts again from what the disk holds.
        StoreFailed = 8, "the disk of the hub has failed";
        /// The hub has no room for this node now.
        Busy = 9, "the hub has no room for this node now";
        /// Nothing came for too long.
        Silent = 10, "nothing came for too long";
        /// The node does not read what it must read.
        Overrun = 11, "the node reads too slowly";
    }
}

choices! {
    /// Why a call has no answer.
    CallError {
        /// No answer came in time.
        TimedOut = 1, "no answer came in time";
        /// Nobody is there: no such node, service or player.
        Unreachable = 2, "nobody is at the address";
        /// The node that was asked is gone.
        NodeDown = 3, "the node that was asked is gone";
        /// The link to the hub has ended.
        HubDown = 4, "the link to the hub has ended";
        /// Too many calls are open, or the one asked reads too slowly.
        Busy = 5, "too many calls are open";
        /// The one asked refuses.
        Refused = 6, "the node that was asked refuses";
    }
}

choices! {
    /// Why a mail is not kept, for good.
    MailRefusal {
        /// The mailbox holds all it may.
        MailboxFull = 1, "the mailbox is full";
        /// Mail goes to players only.
        Address = 2, "mail goes to players only";
    }
}

choices! {
    /// Why a claim has ended.
    RevokeReason {
        /// A later claim has taken the player.
        Taken = 1, "a later claim has taken the player";
        /// Another node holds the player, and the hub lets it.
        Held = 2, "another node holds the player";
        /// The hub has no room for another player.
        Busy = 3, "the hub has no room for another player";
    }
}

/// What became of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailVerdict {
    /// It is on disk, and will be delivered.
    Stored,
    /// It is not kept, for good.
    Refused(MailRefusal),
    /// It is not kept now; the sender sends it again, and all after it, when the time is over.
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
