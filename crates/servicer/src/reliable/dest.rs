//! To whom a message goes.

use std::sync::Arc;

use super::event::MemberId;

/// To whom a message goes.
///
/// Whoever is served by the same thread costs one order together, however many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dest {
    /// One member.
    One(MemberId),
    /// These, each as often as it stands there; those who have left are passed over.
    Many(Arc<[MemberId]>),
    /// Whoever is a member when it is sent.
    All,
}

impl From<MemberId> for Dest {
    fn from(member: MemberId) -> Self {
        Self::One(member)
    }
}
