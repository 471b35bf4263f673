//! Whether whoever speaks from an address also hears what is answered there.

/// Datagrams to and fro, as far as they prove that the asking side receives.
///
/// Somebody who sends in another's name does not know when the answers come. So who speaks after
/// each of [`EXCHANGES`] answers is taken for genuine. It is no proof: a forger may guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// So many replies followed a request, and the asking side spoke last.
    Asked(u8),
    /// So many replies followed a request, and the last word was the reply.
    Answered(u8),
    /// The asking side went on after all of them.
    Proved,
}

impl Exchange {
    /// Nothing was said.
    pub(crate) const NEW: Self = Self::Asked(0);

    /// Takes a datagram of the asking side; returns whether that was the proof.
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

    /// Takes a datagram to the asking side.
    pub(crate) const fn on_reply(&mut self) {
        if let Self::Asked(count) = *self {
            *self = Self::Answered(count.saturating_add(1));
        }
    }
}

/// Replies, each to a request, and a request after the last, that prove a source.
const EXCHANGES: u8 = 2;
