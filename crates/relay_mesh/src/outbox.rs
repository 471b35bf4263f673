//! Queue of datagrams that the driver has not taken yet.

mod batch;

use core::net::IpAddr;
use core::num::NonZeroU16;

use wire::Transmit;

use crate::leg::Leg;
use crate::link::LinkId;
use crate::link_terms::Packing;
use crate::shard::ShardId;
use batch::Batch;

/// Destination of a datagram, and the local source address if it matters.
pub(crate) type Way = (Leg, Option<IpAddr>);

/// A queue of datagrams in two buffers: one is filled while the other is drained. Each is cleared
/// once it is drained, so the steady state does not allocate per packet, and memory is reclaimed
/// even if the queue is never empty because several threads fill it.
///
/// Frames to one neighbour that are queued at their turn are sent together. No frame is delayed to
/// wait for others.
#[derive(Debug)]
pub(crate) struct Outbox {
    filling: Batch,
    leaving: Batch,
    /// Maximum queue size in bytes, plus [`SPAN_LEN`](batch::SPAN_LEN) per datagram.
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

    /// Returns whether the queue is full.
    pub(crate) fn is_full(&self) -> bool {
        self.filling.len().saturating_add(self.leaving.len()) >= self.bytes_max
    }

    /// Appends the bytes that `write` appends as one datagram; nothing if it returns an error. The
    /// caller must check [`is_full`](Self::is_full) first.
    pub(crate) fn push<E>(
        &mut self,
        way: Way,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push(way, write)
    }

    /// Like `push`, but appends one hop frame to a shard of the neighbour of `link`.
    pub(crate) fn push_frame<E>(
        &mut self,
        to: (LinkId, ShardId),
        by: (Way, Packing),
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push_frame(to, by, write)
    }

    /// Appends `datagram`. Returns false if the queue is full.
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

    /// Takes the next datagrams for the driver, and appends their bytes to `buf`.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        let ((leg, source), segment_len) = self.pop(buf)?;
        Some(Transmit {
            source,
            segment_len,
            ..Transmit::to(leg)
        })
    }

    /// Appends the next datagrams to `out`. Returns the destination and, if there are several,
    /// their length; the last may be shorter.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<(Way, Option<NonZeroU16>)> {
        if self.leaving.is_empty() {
            core::mem::swap(&mut self.filling, &mut self.leaving);
        }
        self.leaving.pop(out)
    }

    /// Returns the memory that the queue holds, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.filling.memory().saturating_add(self.leaving.memory())
    }
}

#[cfg(test)]
mod tests;
