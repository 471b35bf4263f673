//! The newest turns, laid out once for all who get them.

use super::Stage;
use super::saying::write_turns;
use crate::message::TURNS_HEAD_LEN_MAX;
use crate::repair::{Closed, RepairLimits, Wanted, newest};
use crate::tick::Tick;

/// Ticks that go out unasked, at most; in a burst more may.
const TICKS: usize = 8;

/// The datagrams that hold the last tick and up to seven before it.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// First tick of the longest datagram.
    begin: Tick,
    /// One past the last tick.
    end: Tick,
    /// Where the datagram that begins with each tick lies in `bytes`, and one without any.
    spans: [(u32, u32); TICKS + 1],
    bytes: Vec<u8>,
    /// Whether there was room for no more: no datagram holds what lies before `begin`.
    is_cut: bool,
}

impl Tail {
    /// Takes the memory that it needs.
    pub(super) fn prepare(&mut self, run_len_max: usize) {
        let datagram = run_len_max.saturating_add(TURNS_HEAD_LEN_MAX);
        let most = datagram.saturating_mul(TICKS + 1);
        self.bytes.reserve(most.saturating_sub(self.bytes.len()));
    }

    /// Lays out what is shown, where that has not been done.
    pub(super) fn lay_out(&mut self, stage: &Stage<'_>, limits: &RepairLimits) {
        if self.end == stage.end && !self.bytes.is_empty() {
            return;
        }
        let oldest = stage.end.minus(u32::try_from(TICKS).unwrap_or(0));
        let closed = Closed {
            chain: stage.chain,
            end: stage.end,
            next_at: None,
        };
        let oldest = oldest.max(stage.begin);
        let wanted = Wanted {
            from: oldest,
            spare: oldest,
        };
        let ticks = newest(&closed, wanted, limits);
        (self.begin, self.end) = (Tick(ticks.start), stage.end);
        self.is_cut = self.begin > oldest;
        self.bytes.clear();
        for (span, first) in self.spans.iter_mut().zip(ticks.start..=ticks.end) {
            let start = self.bytes.len();
            write_turns(&(first..ticks.end), stage, &mut self.bytes);
            let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            *span = (place(start), place(self.bytes.len()));
        }
    }

    /// The first tick of what goes to somebody who is to get all from `oldest` on, where that is
    /// laid out.
    pub(super) fn first_from(&self, oldest: Tick) -> Option<Tick> {
        if oldest >= self.begin {
            Some(oldest.min(self.end))
        } else {
            self.is_cut.then_some(self.begin)
        }
    }

    /// The datagram that begins with `first`, one that [`first_from`](Self::first_from) returned.
    pub(super) fn datagram(&self, first: Tick) -> &[u8] {
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let span = self.spans.get(place(first.since(self.begin)));
        let (start, end) = span.copied().unwrap_or_default();
        self.bytes.get(place(start)..place(end)).unwrap_or_default()
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}
