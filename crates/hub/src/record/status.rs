//! How things ended, each with its byte.

use core::fmt;

use super::DecodeError;

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
