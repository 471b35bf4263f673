//! Destinations of messages.

use std::sync::Arc;

use super::event::MemberId;

/// The recipients of a message.
///
/// The recipients on one thread cost one order together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dest {
    /// One member.
    One(MemberId),
    /// These members, once per occurrence. Those that have left are ignored.
    Many(Arc<[MemberId]>),
    /// All members at the time of sending.
    All,
}

impl From<MemberId> for Dest {
    fn from(member: MemberId) -> Self {
        Self::One(member)
    }
}
