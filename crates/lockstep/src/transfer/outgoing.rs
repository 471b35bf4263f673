//! The sender of a snapshot.

use std::sync::Arc;

use wire::Instant;

use super::flight::Flight;
use super::rate::Rate;
use super::{STALL_TIME, TransferLimits, after};
use crate::message::{
    CHUNK_HEAD_LEN, Chunk, ChunkAck, Direction, chunk_count, chunk_len, chunk_offset, write_chunk,
};

/// One snapshot on its way to one receiver.
///
/// Memory besides the snapshot, which several may share: 60 kB, all taken at the start.
#[derive(Debug)]
pub struct Outgoing {
    direction: Direction,
    id: u8,
    bytes: Arc<[u8]>,
    total: u32,
    stride: u16,
    flight: Flight,
    rate: Rate,
    /// What [`poll_timeout`](Self::poll_timeout) returns.
    due: Option<Instant>,
}

impl Outgoing {
    /// Begins a transfer of `bytes` under `id`, to a receiver that has not seen this id or a later
    /// one; ids are compared as they wrap, 127 ahead at most.
    ///
    /// `None` where `bytes` are 4 GiB or more.
    #[must_use]
    pub fn new(
        direction: Direction,
        id: u8,
        bytes: Arc<[u8]>,
        limits: &TransferLimits,
        now: Instant,
    ) -> Option<Self> {
        let total = u32::try_from(bytes.len()).ok()?;
        let stride = limits.stride();
        let head_len = u32::try_from(CHUNK_HEAD_LEN).unwrap_or(0);
        let burst = limits
            .burst_bytes
            .max(head_len.saturating_add(stride.into()));
        Some(Self {
            direction,
            id,
            bytes,
            total,
            stride,
            flight: Flight::new(chunk_count(total, stride)),
            rate: Rate::new(limits.rate_bytes_per_s, burst, now),
            due: Some(now),
        })
    }

    /// Appends the datagram that is due to `out`; false where none is.
    ///
    /// What was lost goes first, then what was never sent, in order, then the last
    /// [`TAIL_MAX`](super::TAIL_MAX) again.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.is_done() {
            self.due = None;
            return false;
        }
        self.rate.refill(now);
        self.flight.judge(now);
        let is_sent = self.rate.holds(self.datagram_len()) && self.send(now, out);
        self.due = self.plan(now);
        is_sent
    }

    /// Takes the receiver's word of what it has; that of another transfer is ignored.
    pub fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        if ack.id != self.id {
            return;
        }
        self.flight.on_ack(now, ack);
        self.flight.judge(now);
        self.rate.refill(now);
        self.due = self.plan(now);
    }

    /// Returns when to call [`poll`](Self::poll) next; `None` when all has arrived, and where the
    /// rate is 0.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns when to give the receiver up, unless it says before that it has more:
    /// [`STALL_TIME`] after something went out; `None` where all has arrived or nothing went out.
    pub(crate) fn stalls_at(&self) -> Option<Instant> {
        let from = self.flight.unanswered_from().filter(|_| !self.is_done())?;
        Some(after(from, STALL_TIME))
    }

    /// Returns whether the receiver has the whole snapshot.
    pub const fn is_done(&self) -> bool {
        self.flight.is_done()
    }

    /// Returns the transfer's id.
    pub const fn id(&self) -> u8 {
        self.id
    }

    fn send(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some((index, purpose)) = self.flight.choose(now) else {
            return false;
        };
        let start = usize::try_from(chunk_offset(self.stride, index)).unwrap_or(usize::MAX);
        let len = chunk_len(self.total, self.stride, index);
        let bytes = self.bytes.get(start..start.saturating_add(len));
        let number = self.flight.on_sent(now, index, purpose);
        let chunk = Chunk {
            id: self.id,
            total: self.total,
            stride: self.stride,
            index,
            number,
            bytes: bytes.unwrap_or_default(),
        };
        write_chunk(out, self.direction, &chunk);
        let len = CHUNK_HEAD_LEN.saturating_add(len);
        self.rate.spend(u32::try_from(len).unwrap_or(u32::MAX));
        true
    }

    /// When there is something to do, if nothing comes in before.
    fn plan(&self, now: Instant) -> Option<Instant> {
        if self.is_done() {
            return None;
        }
        let timer = self.flight.timer();
        if !self.flight.has_work(now) {
            return timer;
        }
        let paid = self.rate.holds_at(self.datagram_len())?;
        Some(timer.map_or(paid, |timer| timer.min(paid)))
    }

    /// Length of all datagrams but the last.
    fn datagram_len(&self) -> u32 {
        let head_len = u32::try_from(CHUNK_HEAD_LEN).unwrap_or(0);
        head_len.saturating_add(self.stride.into())
    }
}
