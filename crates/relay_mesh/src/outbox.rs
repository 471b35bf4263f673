//! Datagrams that wait for the driver to take them.

use core::net::IpAddr;
use std::collections::VecDeque;

use crate::leg::Leg;

/// Whom a datagram is for, and the address of ours to send it from, where that matters.
pub(crate) type Way = (Leg, Option<IpAddr>);

/// A queue of datagrams in one buffer, which is emptied once all are taken; so in the steady state
/// nothing is allocated for a packet.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Whom each datagram is for, and its length.
    spans: VecDeque<(Way, usize)>,
    /// Bytes taken already.
    taken: usize,
    /// Bytes that may wait, [`SPAN_LEN`] counted for each datagram.
    bytes_max: usize,
}

impl Outbox {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            spans: VecDeque::new(),
            taken: 0,
            bytes_max,
        }
    }

    /// Whether there is no room for a datagram more.
    pub(crate) fn is_full(&self) -> bool {
        let spans = self.spans.len().saturating_mul(SPAN_LEN);
        self.bytes.len().saturating_add(spans) >= self.bytes_max
    }

    /// Appends what `write` appends, as one datagram; nothing where it returns an error. Whoever
    /// calls has asked whether there [is room](Self::is_full).
    pub(crate) fn push<E>(
        &mut self,
        way: Way,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.spans
            .push_back((way, self.bytes.len().saturating_sub(start)));
        Ok(())
    }

    /// Appends `datagram`; false where there is no room.
    pub(crate) fn push_bytes(&mut self, way: Way, datagram: &[u8]) -> bool {
        if self.is_full() {
            return false;
        }
        let write = |out: &mut Vec<u8>| -> Result<(), core::convert::Infallible> {
            out.extend_from_slice(datagram);
            Ok(())
        };
        let Ok(()) = self.push(way, write);
        true
    }

    /// Appends the next datagram to `out` and returns whom it is for.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Way> {
        let Some((way, len)) = self.spans.pop_front() else {
            self.bytes.clear();
            self.taken = 0;
            return None;
        };
        let end = self.taken.saturating_add(len);
        out.extend_from_slice(self.bytes.get(self.taken..end).unwrap_or_default());
        self.taken = end;
        Some(way)
    }

    /// Returns the bytes of memory that the queue holds.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
            .capacity()
            .saturating_add(self.spans.capacity().saturating_mul(SPAN_LEN))
    }
}

/// What a datagram costs beside its bytes, so that empty ones are not free.
const SPAN_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::SocketId;

    fn leg(socket: u32) -> Way {
        let leg = Leg {
            socket: SocketId(socket),
            address: "192.0.2.1:1".parse().unwrap(),
        };
        (
            leg,
            Some(IpAddr::from([192, 0, 2, u8::try_from(socket).unwrap()])),
        )
    }

    #[test]
    fn gives_datagrams_in_order_and_is_bounded() {
        let mut outbox = Outbox::new(2 * SPAN_LEN + 3);
        assert!(outbox.push_bytes(leg(1), &[1, 2]));
        let refused: Result<(), ()> = outbox.push(leg(9), |out| {
            out.push(9);
            Err(())
        });
        assert_eq!(refused, Err(()));
        assert!(outbox.push_bytes(leg(2), &[3]));
        assert!(!outbox.push_bytes(leg(3), &[4]));
        let mut out = Vec::new();
        assert_eq!(outbox.pop(&mut out), Some(leg(1)));
        assert_eq!(outbox.pop(&mut out), Some(leg(2)));
        assert_eq!(outbox.pop(&mut out), None);
        assert_eq!(out, [1, 2, 3]);
        assert!(outbox.push_bytes(leg(3), &[4]));
        assert_eq!(outbox.pop(&mut out), Some(leg(3)));
    }

    #[test]
    fn empty_datagrams_take_room_too() {
        let mut outbox = Outbox::new(10 * SPAN_LEN);
        let taken = (0..1_000)
            .filter(|_| outbox.push_bytes(leg(1), &[]))
            .count();
        assert_eq!(taken, 10);
        assert!(outbox.memory() <= 16 * SPAN_LEN);
    }
}
