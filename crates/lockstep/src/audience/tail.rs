//! The newest bundles, laid out once for all who get them.

#![warn(clippy::arithmetic_side_effects)]

use super::Stage;
use crate::Tick;
use crate::repair::newest;
use crate::repair::{Closed, RepairLimits};

/// Ticks that are laid out: as many as go out unasked at most.
const TICKS: usize = 8;

/// The last few bundles, one after the other.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// First tick.
    begin: Tick,
    /// One past the last.
    end: Tick,
    /// Where each tick's bundle begins in `bytes`, and where the last one ends.
    starts: [u16; TICKS + 1],
    bytes: Vec<u8>,
    /// Whether there was room for no more: no datagram holds what lies before `begin`.
    is_cut: bool,
}

impl Tail {
    /// Takes the memory that it needs.
    pub(super) fn prepare(&mut self, len_max: usize) {
        self.bytes.reserve(len_max.saturating_sub(self.bytes.len()));
    }

    /// Lays out what is shown, where that has not been done.
    pub(super) fn lay_out(&mut self, stage: &Stage<'_>, limits: &RepairLimits) {
        if self.end == stage.end {
            return;
        }
        let oldest = stage.end.minus(u32::try_from(TICKS).unwrap_or(0));
        let closed = Closed {
            chain: stage.chain,
            end: stage.end,
            next_at: None,
        };
        let ticks = newest(&closed, oldest.max(stage.begin), limits);
        (self.begin, self.end) = (Tick(ticks.start), stage.end);
        self.is_cut = self.begin > oldest.max(stage.begin);
        self.bytes.clear();
        self.starts = [0; TICKS + 1];
        for (start, tick) in self.starts.iter_mut().skip(1).zip(ticks) {
            let bundle = stage.chain.get(Tick(tick)).unwrap_or_default();
            self.bytes.extend_from_slice(bundle);
            *start = u16::try_from(self.bytes.len()).unwrap_or(u16::MAX);
        }
    }

    /// The first tick of what goes to somebody who is to get all from `oldest` on, where it is laid
    /// out.
    pub(super) fn first_from(&self, oldest: Tick) -> Option<Tick> {
        if oldest >= self.begin {
            Some(oldest.min(self.end))
        } else {
            self.is_cut.then_some(self.begin)
        }
    }

    /// The bundles from `first` on.
    pub(super) fn from(&self, first: Tick) -> Option<&[u8]> {
        let index = first.0.checked_sub(self.begin.0)?;
        let start = *self.starts.get(usize::try_from(index).ok()?)?;
        self.bytes.get(usize::from(start)..)
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}
