//! What servicers tell the application's end of a server.

use std::time::Duration;

use bytes::Bytes;

use super::event::{JoinRequest, LeaveCause, MemberId};

/// What servicers tell the application's end of a server.
#[derive(Debug)]
pub(super) enum News {
    Join(JoinRequest),
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
    /// Bytes that it holds beside itself.
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Join(request) => request.payload().len(),
            Self::Message { payload, .. } => payload.len(),
            Self::Slow { .. } | Self::Left { .. } | Self::Ended(_) => 0,
        }
    }
}
