//! How many packets are in flight, and what unreliable messages may take of the room there.

use super::Cargo;

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
    /// Bytes of all packets.
    bytes: InFlight,
}

/// Bytes in flight, of packets that ask for an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Of all packets, but for those that search for the path's size or went elsewhere.
    pub total: u64,
    /// Of packets with messages of bulk channels.
    pub bulk: u64,
}

impl Flight {
    /// Nothing.
    pub(super) const EMPTY: Self = Self {
        packets: 0,
        unreliable: 0,
        contents: 0,
        bytes: InFlight { total: 0, bulk: 0 },
    };

    /// Takes note of a packet of `len` bytes.
    pub(super) fn add(&mut self, cargo: Cargo, len: u16) {
        self.packets = self.packets.saturating_add(1);
        let len = u64::from(len);
        match cargo {
            Cargo::Unreliable(frames) | Cargo::Again(frames) => {
                self.unreliable = self.unreliable.saturating_add(1);
                self.contents = self.contents.saturating_add(frames.into());
            }
            Cargo::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_add(len),
            Cargo::Probe | Cargo::Elsewhere => return,
            Cargo::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_add(len);
    }

    /// Takes note that the packet arrived or counts as lost.
    pub(super) fn remove(&mut self, cargo: Cargo, len: u16) {
        self.packets = self.packets.saturating_sub(1);
        let len = u64::from(len);
        match cargo {
            Cargo::Unreliable(frames) | Cargo::Again(frames) => {
                self.unreliable = self.unreliable.saturating_sub(1);
                self.contents = self.contents.saturating_sub(frames.into());
            }
            Cargo::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_sub(len),
            Cargo::Probe | Cargo::Elsewhere => return,
            Cargo::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_sub(len);
    }

    /// Returns how many bytes there are.
    pub(super) const fn bytes(self) -> InFlight {
        self.bytes
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
            let unreliable = Cargo::Unreliable(contents);
            for _ in 0..packets {
                assert!(!flight.is_full_for_unreliable());
                flight.add(unreliable, 100);
                flight.add(Cargo::Other, 100);
            }
            assert!(flight.is_full_for_unreliable());
            flight.remove(Cargo::Other, 100);
            assert!(flight.is_full_for_unreliable());
            flight.remove(unreliable, 100);
            assert!(!flight.is_full_for_unreliable());
            assert_eq!(flight.packets(), 2 * (packets - 1));
        }
    }

    #[test]
    fn bytes_are_counted_by_cargo_and_probes_are_not() {
        let mut flight = Flight::EMPTY;
        let all = [
            (Cargo::Other, 10),
            (Cargo::Unreliable(2), 200),
            (Cargo::Bulk, 1_000),
            (Cargo::Probe, 1_452),
            (Cargo::Elsewhere, 40),
        ];
        for (cargo, len) in all {
            flight.add(cargo, len);
        }
        let bytes = InFlight {
            total: 1_210,
            bulk: 1_000,
        };
        assert_eq!((flight.packets(), flight.bytes()), (5, bytes));
        for (cargo, len) in all {
            flight.remove(cargo, len);
        }
        assert_eq!(flight, Flight::EMPTY);
    }
}
