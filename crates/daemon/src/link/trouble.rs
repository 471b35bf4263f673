//! What a node's log says of a hub that it does not reach: each reason as it comes, and again each
//! minute for as long as it stands.

use core::fmt;
use core::time::Duration;

use servicer::DialError;
use wire::{Instant, NodeId};

/// Why the hub was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No address was found behind its name.
    NoAddress,
    /// A dial came to nothing.
    Dial(DialError),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no address was found behind its name"),
            Self::Dial(DialError::Refused) => f.write_str(
                "it refused the handshake; see whether the hub's join file lists this node",
            ),
            Self::Dial(error) => error.fmt(f),
        }
    }
}

/// The log of one node's troubles.
#[derive(Debug)]
pub(super) struct Trouble {
    node: NodeId,
    told: Option<(Reason, Instant)>,
}

impl Trouble {
    pub(super) const fn new(node: NodeId) -> Self {
        Self { node, told: None }
    }

    /// The hub was not reached.
    pub(super) fn on_failed(&mut self, now: Instant, reason: Reason) {
        if self.shall_tell(now, reason) {
            let node = self.node;
            tracing::warn!(%node, %reason, "the hub is not reached; tried again until it is");
        }
    }

    /// The hub has let this node join.
    pub(super) fn on_joined(&mut self) {
        if self.told.take().is_some() {
            tracing::info!(node = %self.node, "the hub is reached");
        }
    }

    fn shall_tell(&mut self, now: Instant, reason: Reason) -> bool {
        let is_news = self
            .told
            .is_none_or(|(told, at)| told != reason || now.saturating_since(at) >= REMINDER);
        // Whoever ends the process knows.
        let is_fault = reason != Reason::Dial(DialError::Ended);
        if is_news && is_fault {
            self.told = Some((reason, now));
        }
        is_news && is_fault
    }
}

/// How often a trouble that stands is told.
const REMINDER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_a_minute_and_another_one_at_once() {
        let mut trouble = Trouble::new(NodeId([1; 32]));
        let (gone, refused) = (DialError::Gone, DialError::Refused);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let told: Vec<_> = [
            (0, gone),
            (1, gone),
            (59, gone),
            (60, gone),
            (61, refused),
            (62, refused),
            (63, DialError::Ended),
            (120, refused),
            (121, refused),
        ]
        .into_iter()
        .filter(|(second, error)| trouble.shall_tell(at(*second), Reason::Dial(*error)))
        .map(|(second, _)| second)
        .collect();
        assert_eq!(told, [0, 60, 61, 121]);
        trouble.on_joined();
        assert!(trouble.shall_tell(at(122), Reason::Dial(refused)));
        assert!(trouble.shall_tell(at(122), Reason::NoAddress));
    }
}
