//! Internal events from servicers to the application's end of a server.

use std::time::Duration;

use bytes::Bytes;

use super::event::{JoinRequest, LeaveCause, MemberId};

/// An internal event from a servicer to the application's end of a server.
#[derive(Debug)]
pub(super) enum News {
    /// Boxed to keep the enum small, since many messages may be queued.
    Join(Box<JoinRequest>),
    Message {
        from: MemberId,
        payload: Bytes,
    },
    Slow {
        member: MemberId,
        waiting_bytes: usize,
        waiting_for: Duration,
    },
    Left {
        member: MemberId,
        cause: LeaveCause,
    },
    /// A servicer has ended, by itself or on request.
    Ended(ServicerNumber),
}

/// Id of a servicer within a server. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServicerNumber(pub(super) u32);

impl News {
    /// Returns the bytes that the event counts for in the queue.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Join(request) => request.payload().len(),
            Self::Message { payload, .. } => payload.len().saturating_add(MESSAGE_COST),
            Self::Slow { .. } | Self::Left { .. } | Self::Ended(_) => 0,
        }
    }
}

/// Overhead of a queued message, bytes: its entry in the queue.
pub(super) const MESSAGE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_no_more_than_what_it_counts_for() {
        // Includes the length that the mailbox stores.
        assert!(size_of::<(usize, News)>() <= MESSAGE_COST);
    }
}
