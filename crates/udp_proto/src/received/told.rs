//! What the peer is told of, where that is not all that opened.

use crate::packet::PacketNumber;
use crate::replay::ReplayWindow;

/// The replay window without what is withheld from the peer. There is one only while numbers that are
/// withheld lie in the window.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// What is told.
    pub(super) window: ReplayWindow,
    /// The largest number that is not.
    last: PacketNumber,
}

impl Told {
    /// Tells of all in `window`, and not of `number`, which is not marked there.
    pub(super) fn without(number: PacketNumber, window: &ReplayWindow) -> Self {
        Self {
            window: window.clone(),
            last: number,
        }
    }

    /// Takes note of a further number that is withheld.
    pub(super) fn withhold(&mut self, number: PacketNumber) {
        self.last = self.last.max(number);
    }

    /// Returns whether it is the same as `all`, what opened, and stays so.
    pub(super) fn is_whole(&self, all: &ReplayWindow) -> bool {
        let largest = all.largest();
        largest == self.window.largest()
            && largest.is_some_and(|largest| largest.distance_from(self.last) >= ReplayWindow::LEN)
    }
}
