//! Numbers of the hub, each a type of its own so that no two can be mixed up.

use core::fmt;

/// The number that the hub gives to one run of a node: 1 for its first, then one more each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// A log of a hub, drawn at random when it is begun on an empty disk, and kept in it.
///
/// Numbers of mails are those of one log: with another they say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// A mail's place in the hub's log of mail: grows within every mailbox, with gaps.
///
/// 0 stands before the first mail. A player's client that keeps the largest it has handled, and the
/// [`LogId`] with it, sees no mail twice: it names the number when it claims again, and 0 where the
/// log is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailSeq(pub u64);

/// The number that a sender gives to a mail, 1 for the first of its run, and keeps when it sends
/// the mail again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderSeq(pub u64);

impl SenderSeq {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One claim of a player; a later claim has a larger number, also across restarts of the hub.
///
/// The upper half counts the hub's starts, which are persisted, the lower half its claims since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

impl Lease {
    /// What a node sends that holds no lease yet.
    pub const NONE: Self = Self(0);

    /// Makes the `count`-th lease of the hub's `boot`-th start.
    #[must_use]
    pub fn new(boot: u32, count: u32) -> Self {
        Self((u64::from(boot) << 32) | u64::from(count))
    }

    /// Returns which start of the hub gave it.
    pub(crate) fn boot(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

/// One session of a player, as the node that claims it numbers it: what the hub says of a player
/// names the session that it is about, and what was under way to an earlier one is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimNumber(pub u64);

/// A call, as the calling node numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call, as the hub numbers it for the node that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A batch of counts, as the counting node numbers it: 1 for the first of its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSeq(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for MailSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_a_later_start_is_larger() {
        assert!(Lease::new(2, 0) > Lease::new(1, u32::MAX));
        assert!(Lease::new(1, 1) > Lease::NONE);
    }
}
