//! Whether the sender at an address receives the replies sent there.

/// Exchange of datagrams, as evidence that the requesting side receives.
///
/// A sender with a forged address does not know when replies arrive. So a source that sends after
/// each of [`EXCHANGES`] replies is treated as genuine. It is no proof: a forger may guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// This many replies followed a request, and a request was last.
    Asked(u8),
    /// This many replies followed a request, and a reply was last.
    Answered(u8),
    /// A request followed the last of [`EXCHANGES`] replies.
    Proved,
}

impl Exchange {
    /// No datagrams yet.
    pub(crate) const NEW: Self = Self::Asked(0);

    /// Handles a datagram of the requesting side; returns whether it completed the proof.
    pub(crate) const fn on_request(&mut self) -> bool {
        let Self::Answered(count) = *self else {
            return false;
        };
        let is_proved = count >= EXCHANGES;
        *self = if is_proved {
            Self::Proved
        } else {
            Self::Asked(count)
        };
        is_proved
    }

    /// Handles a datagram to the requesting side.
    pub(crate) const fn on_reply(&mut self) {
        if let Self::Asked(count) = *self {
            *self = Self::Answered(count.saturating_add(1));
        }
    }
}

/// Replies, each after a request and followed by one, that prove a source.
const EXCHANGES: u8 = 2;
