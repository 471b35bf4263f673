//! Datagrams that wait for the driver to take them.

mod batch;

use core::net::IpAddr;
use core::num::NonZeroU16;

use wire::Transmit;

use crate::leg::Leg;
use crate::link::LinkId;
use crate::link_terms::Packing;
use crate::shard::ShardId;
use batch::Batch;

/// Whom a datagram is for, and the address of ours to send it from, where that matters.
pub(crate) type Way = (Leg, Option<IpAddr>);

/// A queue of datagrams in two buffers, one that fills and one that is taken from, each emptied once all of it
/// is taken; so in the steady state nothing is allocated for a packet, and what was taken makes room
/// also where the queue is never empty, since several threads fill it.
///
/// Frames to one neighbour leave together, as far as they have come when their turn does. None waits for
/// others to come.
#[derive(Debug)]
pub(crate) struct Outbox {
    filling: Batch,
    leaving: Batch,
    /// Bytes that may wait, [`SPAN_LEN`](batch::SPAN_LEN) counted for each datagram.
    bytes_max: usize,
}

impl Outbox {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            filling: Batch::EMPTY,
            leaving: Batch::EMPTY,
            bytes_max,
        }
    }

    /// Whether there is no room for a datagram more.
    pub(crate) fn is_full(&self) -> bool {
        self.filling.len().saturating_add(self.leaving.len()) >= self.bytes_max
    }

    /// Appends what `write` appends, as one datagram; nothing where it returns an error. Whoever
    /// calls has asked whether there [is room](Self::is_full).
    pub(crate) fn push<E>(
        &mut self,
        way: Way,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push(way, write)
    }

    /// Appends what `write` appends, as one hop frame to a shard of the neighbour of `link`, as `push` does.
    pub(crate) fn push_frame<E>(
        &mut self,
        to: (LinkId, ShardId),
        by: (Way, Packing),
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push_frame(to, by, write)
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

    /// Takes the next, as what a driver sends, with its bytes behind those of `buf`.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        let ((leg, source), segment_len) = self.pop(buf)?;
        Some(Transmit {
            source,
            segment_len,
            ..Transmit::to(leg)
        })
    }

    /// Appends what is next to `out`. Returns whom it is for, and the length of its datagrams where it
    /// is several, of which the last may be shorter.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<(Way, Option<NonZeroU16>)> {
        if self.leaving.is_empty() {
            core::mem::swap(&mut self.filling, &mut self.leaving);
        }
        self.leaving.pop(out)
    }

    /// Returns the bytes of memory that the queue holds.
    pub(crate) fn memory(&self) -> usize {
        self.filling.memory().saturating_add(self.leaving.memory())
    }
}

#[cfg(test)]
mod tests;
