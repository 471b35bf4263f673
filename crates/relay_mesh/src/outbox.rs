//! Datagrams that wait for the driver to take them.

use std::collections::VecDeque;

use crate::leg::Leg;

/// A queue of datagrams in one buffer, which is emptied once all are taken; so in the steady state
/// nothing is allocated for a packet.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Whom each datagram is for, and its length.
    spans: VecDeque<(Leg, usize)>,
    /// Bytes taken already.
    taken: usize,
    /// Bytes that may wait.
    bytes_max: usize,
    /// Datagrams that found no room.
    pub(crate) dropped: u64,
}

impl Outbox {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            spans: VecDeque::new(),
            taken: 0,
            bytes_max,
            dropped: 0,
        }
    }

    /// Appends what `write` appends, as one datagram; nothing where it returns an error, and where
    /// there is no room.
    pub(crate) fn push<E>(
        &mut self,
        leg: Leg,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.bytes.len() >= self.bytes_max {
            self.dropped = self.dropped.saturating_add(1);
            return Ok(());
        }
        let start = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.spans
            .push_back((leg, self.bytes.len().saturating_sub(start)));
        Ok(())
    }

    /// Appends `datagram`.
    pub(crate) fn push_bytes(&mut self, leg: Leg, datagram: &[u8]) {
        let write = |out: &mut Vec<u8>| -> Result<(), core::convert::Infallible> {
            out.extend_from_slice(datagram);
            Ok(())
        };
        let Ok(()) = self.push(leg, write);
    }

    /// Appends the next datagram to `out` and returns whom it is for.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Leg> {
        let Some((leg, len)) = self.spans.pop_front() else {
            self.bytes.clear();
            self.taken = 0;
            return None;
        };
        let end = self.taken.saturating_add(len);
        out.extend_from_slice(self.bytes.get(self.taken..end).unwrap_or_default());
        self.taken = end;
        Some(leg)
    }

    /// Returns the bytes of memory that the queue holds.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
            .capacity()
            .saturating_add(self.spans.capacity().saturating_mul(64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::SocketId;

    fn leg(socket: u32) -> Leg {
        Leg {
            socket: SocketId(socket),
            address: "192.0.2.1:1".parse().unwrap(),
        }
    }

    #[test]
    fn gives_datagrams_in_order_and_is_bounded() {
        let mut outbox = Outbox::new(3);
        outbox.push_bytes(leg(1), &[1, 2]);
        let refused: Result<(), ()> = outbox.push(leg(9), |out| {
            out.push(9);
            Err(())
        });
        assert_eq!(refused, Err(()));
        outbox.push_bytes(leg(2), &[3]);
        outbox.push_bytes(leg(3), &[4]);
        let mut out = Vec::new();
        assert_eq!(outbox.pop(&mut out), Some(leg(1)));
        assert_eq!(outbox.pop(&mut out), Some(leg(2)));
        assert_eq!(outbox.pop(&mut out), None);
        assert_eq!(out, [1, 2, 3]);
        assert_eq!(outbox.dropped, 1);
        outbox.push_bytes(leg(3), &[4]);
        assert_eq!(outbox.pop(&mut out), Some(leg(3)));
    }
}
