//! What servicers tell the application's end of a server.

use std::time::Duration;

use bytes::Bytes;

use super::event::{JoinRequest, LeaveCause, MemberId};

/// What servicers tell the application's end of a server.
#[derive(Debug)]
pub(super) enum News {
    /// In a box, so that a message, of which many may wait, takes the less.
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
    /// A servicer has ended, by itself or because it was asked to.
    Ended(ServicerNumber),
}

/// Names one servicer of one server; not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServicerNumber(pub(super) u32);

impl News {
    /// Bytes that it counts for while it waits.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Join(request) => request.payload().len(),
            Self::Message { payload, .. } => payload.len().saturating_add(MESSAGE_COST),
            Self::Slow { .. } | Self::Left { .. } | Self::Ended(_) => 0,
        }
    }
}

/// What a message holds beside its bytes while it waits: its place in the queue.
pub(super) const MESSAGE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_no_more_than_what_it_counts_for() {
        // With what the mailbox puts beside it.
        assert!(size_of::<(usize, News)>() <= MESSAGE_COST);
    }
}
