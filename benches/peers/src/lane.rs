//! Datagrams in flight from one end to others.

use core::net::SocketAddr;

/// Datagrams in flight, in reused buffers.
#[derive(Debug, Default)]
pub struct Lane {
    packets: Vec<Packet>,
    /// Number of packets in flight; the rest are spare.
    used: usize,
}

/// The bytes of one send call.
#[derive(Debug)]
struct Packet {
    destination: SocketAddr,
    bytes: Vec<u8>,
    /// Length of each datagram in `bytes`; the last may be shorter.
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

/// Capacity for one send call: ten datagrams, as in quinn.
const CAPACITY: usize = 16_384;

impl Lane {
    /// Lets `write` fill an empty buffer. It returns the destination and the length of each
    /// datagram, or `None` if there is nothing to send.
    ///
    /// Returns whether something was written.
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

    /// Reserves space for `count` pushes without allocations.
    pub fn reserve(&mut self, count: usize) {
        while self.packets.len() < count {
            self.packets.push(Packet::with_capacity(CAPACITY));
        }
    }

    /// Returns the first spare packet.
    fn next(&mut self) -> &mut Packet {
        if self.used == self.packets.len() {
            self.packets.push(Packet::with_capacity(0));
        }
        &mut self.packets[self.used]
    }

    /// Passes each datagram with its destination to `take`, oldest first, and empties the lane.
    pub fn deliver(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        for packet in &mut self.packets[..self.used] {
            for datagram in packet.bytes.chunks_mut(packet.segment) {
                take(packet.destination, datagram);
            }
        }
        self.used = 0;
    }

    /// Returns the number of datagrams in flight.
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
    fn a_batch_arrives_as_its_datagrams_and_buffers_are_reused() {
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
