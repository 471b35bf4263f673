//! How many packets are in flight, and what unreliable messages may take of the room there.

/// Counts of the packets in flight that ask for an acknowledgement.
///
/// Those that hold unreliable messages and no others are counted apart. Whoever floods an
/// unreliable channel that goes before others would else fill the flight alone, and take each
/// place that an acknowledgement frees: what is reliable would wait for the flood's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// All of them.
    packets: usize,
    /// Those that hold unreliable messages only.
    unreliable: usize,
    /// Contents of these.
    contents: usize,
}

impl Flight {
    /// Nothing.
    pub(super) const EMPTY: Self = Self {
        packets: 0,
        unreliable: 0,
        contents: 0,
    };

    /// Takes note of a packet with so many frames of unreliable messages; 0 where it holds another
    /// message, or none.
    pub(super) fn add(&mut self, unreliable: u8) {
        self.packets = self.packets.saturating_add(1);
        if unreliable > 0 {
            self.unreliable = self.unreliable.saturating_add(1);
            self.contents = self.contents.saturating_add(unreliable.into());
        }
    }

    /// Takes note that the packet arrived or counts as lost.
    pub(super) fn remove(&mut self, unreliable: u8) {
        self.packets = self.packets.saturating_sub(1);
        if unreliable > 0 {
            self.unreliable = self.unreliable.saturating_sub(1);
            self.contents = self.contents.saturating_sub(unreliable.into());
        }
    }

    /// Returns how many there are.
    pub(super) const fn packets(self) -> usize {
        self.packets
    }

    /// Returns whether no further packet with unreliable messages only may leave.
    pub(super) const fn is_full_for_unreliable(self) -> bool {
        self.unreliable >= UNRELIABLE_MAX || self.contents >= CONTENTS_MAX
    }
}

/// Three quarters of [`SentPackets::IN_FLIGHT_MAX`](super::SentPackets::IN_FLIGHT_MAX).
pub(super) const UNRELIABLE_MAX: usize = 768;

/// Three quarters of [`SentPackets::CONTENTS_MAX`](super::SentPackets::CONTENTS_MAX).
const CONTENTS_MAX: usize = 6_144;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreliable_messages_leave_a_quarter_of_packets_and_contents() {
        for (packets, contents) in [(768, 1), (6_144 / 30 + 1, 30)] {
            let mut flight = Flight::EMPTY;
            for _ in 0..packets {
                assert!(!flight.is_full_for_unreliable());
                flight.add(contents);
                flight.add(0);
            }
            assert!(flight.is_full_for_unreliable());
            flight.remove(0);
            assert!(flight.is_full_for_unreliable());
            flight.remove(contents);
            assert!(!flight.is_full_for_unreliable());
            assert_eq!(flight.packets(), 2 * (packets - 1));
        }
    }
}
