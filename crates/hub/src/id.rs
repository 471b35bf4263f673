//! Numbers of the hub. Each has its own type, so that they cannot be confused.

use core::fmt;

/// Number of a node's run: 1 for the first, then counting up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// Identifies a log. Drawn at random when the log is created on an empty disk, and stored in it.
///
/// Mail numbers are valid within one log only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// Position of a mail in the hub's log: increasing within each mailbox, with gaps. 0 is before the
/// first mail.
///
/// A client that persists the largest number it has processed, together with the [`LogId`], gets no
/// mail twice: it passes the number with its next claim, or 0 if the log has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailSeq(pub u64);

/// The sender's number of a mail: 1 for the first of its run; unchanged when the mail is resent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderSeq(pub u64);

impl SenderSeq {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Orders the claims of a player: later claims have larger leases, also across hub restarts.
///
/// The upper half counts the hub's starts, which are persisted; the lower half the leases since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

impl Lease {
    /// Sent by a node that has no lease yet.
    pub const NONE: Self = Self(0);

    /// Creates the `count`-th lease of the hub's `boot`-th start.
    #[must_use]
    pub fn new(boot: u32, count: u32) -> Self {
        Self((u64::from(boot) << 32) | u64::from(count))
    }

    pub(crate) fn boot(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

/// The claiming node's number of a session. Records about a player carry it, so that those for an
/// earlier session are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimNumber(pub u64);

/// The calling node's number of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The hub's number of a call, for the node that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The counting node's number of a batch: 1 for the first of its run.
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
