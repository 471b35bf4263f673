//! Datagrams under way from one end to others.

use core::net::SocketAddr;

/// Datagrams under way, in buffers that are used again.
#[derive(Debug, Default)]
pub struct Lane {
    packets: Vec<Packet>,
    /// How many of them are under way; those behind are spare.
    used: usize,
}

/// What one send would hand to the system.
#[derive(Debug)]
struct Packet {
    destination: SocketAddr,
    bytes: Vec<u8>,
    /// Length of each datagram in `bytes`, the last one maybe shorter.
    segment: usize,
}

impl Packet {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            destination: SocketAddr::from(([0, 0, 0, 0], 0)),
            bytes: Vec::with_capacity(capacity),
            segment: 1,
        }
    }
}

/// Room for what one send hands to the system: ten datagrams, as quinn sends at most.
const CAPACITY: usize = 16_384;

impl Lane {
    /// Has `write` fill an empty buffer; it returns where the bytes go and how long each datagram
    /// is, or `None` where there is nothing to send.
    ///
    /// Returns whether there was something.
    pub fn push(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Option<(SocketAddr, Option<usize>)>,
    ) -> bool {
        let packet = self.next();
        packet.bytes.clear();
        packet.bytes.reserve(CAPACITY);
        let Some((destination, segment)) = write(&mut packet.bytes) else {
            return false;
        };
        packet.destination = destination;
        packet.segment = segment.unwrap_or(packet.bytes.len()).max(1);
        self.used += 1;
        true
    }

    /// Adds one datagram.
    pub fn copy(&mut self, destination: SocketAddr, datagram: &[u8]) {
        let packet = self.next();
        packet.bytes.clear();
        packet.bytes.extend_from_slice(datagram);
        packet.destination = destination;
        packet.segment = datagram.len().max(1);
        self.used += 1;
    }

    /// Makes room for `count` pushes that allocate nothing.
    pub fn reserve(&mut self, count: usize) {
        while self.packets.len() < count {
            self.packets.push(Packet::with_capacity(CAPACITY));
        }
    }

    /// The first packet that is not under way.
    fn next(&mut self) -> &mut Packet {
        if self.used == self.packets.len() {
            self.packets.push(Packet::with_capacity(0));
        }
        &mut self.packets[self.used]
    }

    /// Hands each datagram to `take` with its destination, oldest first; none is left.
    pub fn deliver(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        for packet in &mut self.packets[..self.used] {
            for datagram in packet.bytes.chunks_mut(packet.segment) {
                take(packet.destination, datagram);
            }
        }
        self.used = 0;
    }

    /// Returns how many datagrams are under way.
    pub fn datagrams(&self) -> u64 {
        let counts = self.packets[..self.used]
            .iter()
            .map(|packet| packet.bytes.len().div_ceil(packet.segment));
        counts.sum::<usize>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_at_once_arrives_as_its_datagrams_and_buffers_are_used_again() {
        let address = SocketAddr::from(([192, 0, 2, 1], 7));
        let mut lane = Lane::default();
        for _ in 0..3 {
            lane.copy(address, b"one");
            assert!(lane.push(|bytes| {
                bytes.extend_from_slice(b"twotwoth");
                Some((address, Some(3)))
            }));
            assert!(!lane.push(|_| None));
            assert_eq!(lane.datagrams(), 4);
            let mut seen = Vec::new();
            lane.deliver(|to, datagram| {
                assert_eq!(to, address);
                seen.push(datagram.to_vec());
            });
            assert_eq!(seen, [&b"one"[..], b"two", b"two", b"th"]);
            assert_eq!(lane.datagrams(), 0);
        }
        assert_eq!(lane.packets.len(), 3);
    }
}
