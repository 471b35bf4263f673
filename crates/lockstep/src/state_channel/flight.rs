//! The state that is being sent.

use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use wire::Instant;

use super::marks::Marks;
use super::message::{
    FRAGMENT_HEAD_LEN, FRAGMENTS_MAX, StatePart, WHOLE_HEAD_LEN, part_range, write_part,
};
use crate::transfer::after;

/// In how many parts states go out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// Longest datagram, in bytes.
    datagram_len: usize,
}

impl Split {
    pub(super) const fn new(datagram_len: usize) -> Self {
        Self { datagram_len }
    }

    /// Longest state that goes out.
    pub(super) const fn len_max(self) -> usize {
        self.stride().saturating_mul(FRAGMENTS_MAX as usize)
    }

    /// How many parts a state has; `None` where that is too many.
    pub(super) fn count(self, state: &[u8]) -> Option<u16> {
        if state.len().saturating_add(WHOLE_HEAD_LEN) <= self.datagram_len {
            return Some(1);
        }
        let count = state.len().div_ceil(self.stride());
        // One that is too long for a datagram with the short head only.
        let count = u16::try_from(count.max(2)).ok()?;
        (count <= FRAGMENTS_MAX).then_some(count)
    }

    const fn stride(self) -> usize {
        self.datagram_len.saturating_sub(FRAGMENT_HEAD_LEN)
    }
}

/// A state with its number, in parts.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    /// Its number.
    pub(super) number: u32,
    /// Its bytes.
    pub(super) bytes: Arc<[u8]>,
    /// How many parts it has; at least 1.
    pub(super) count: u16,
}

impl Numbered {
    /// Length of the datagram of a part.
    pub(super) fn datagram_len(&self, index: u16) -> u32 {
        let head = if self.count > 1 {
            FRAGMENT_HEAD_LEN
        } else {
            WHOLE_HEAD_LEN
        };
        let range = self.range(index);
        let len = head.saturating_add(range.end.saturating_sub(range.start));
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    fn write(&self, index: u16, out: &mut Vec<u8>) {
        let part = StatePart {
            number: self.number,
            total: self.total(),
            count: self.count,
            index,
            bytes: self.bytes.get(self.range(index)).unwrap_or_default(),
        };
        write_part(out, &part);
    }

    fn range(&self, index: u16) -> Range<usize> {
        let range = part_range(self.total(), self.count, index);
        let [start, end] =
            [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        start..end
    }

    fn total(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }
}

/// The state that is being sent, part by part, and again until the receiver has it.
#[derive(Debug)]
pub(super) struct Flight {
    state: Numbered,
    /// First part that was never sent.
    unsent: u16,
    /// Parts that the receiver has, as it says.
    arrived: Marks,
    /// Whether any part was sent twice.
    is_repeated: bool,
}

/// How long to wait before a part is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long an answer may take.
    pub(super) answer: Duration,
    /// When the receiver last said anything new.
    pub(super) heard: Instant,
    /// Longest wait for one that says nothing, unless an answer may take longer.
    pub(super) pause_max: Duration,
}

/// The next datagram of a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) index: u16,
    /// When it is due.
    pub(super) at: Instant,
}

impl Flight {
    pub(super) fn new(state: Numbered) -> Self {
        Self {
            state,
            unsent: 0,
            arrived: Marks::default(),
            is_repeated: false,
        }
    }

    /// Returns what to send next: what was never sent, then what is missing for longest; `None`
    /// where the receiver has all. `sent_at` are the times of the last transmission of each part.
    pub(super) fn next(
        &self,
        now: Instant,
        sent_at: &[Instant],
        patience: &Patience,
    ) -> Option<Next> {
        if self.unsent < self.state.count {
            let (index, at) = (self.unsent, now);
            return Some(Next { index, at });
        }
        let parts = (0..self.state.count).zip(sent_at);
        let missing = parts.filter(|(index, _)| !self.arrived.has(*index));
        let due = missing.map(|(index, sent)| {
            // A pause as long as the silence before it: they double.
            let silence = sent.saturating_since(patience.heard);
            let pause = silence.min(patience.pause_max).max(patience.answer);
            let at = after(*sent, pause);
            Next { index, at }
        });
        due.min_by_key(|next| (next.at, next.index))
    }

    /// Appends a part to `out`, and notes when that was.
    pub(super) fn send(
        &mut self,
        now: Instant,
        index: u16,
        sent_at: &mut [Instant],
        out: &mut Vec<u8>,
    ) {
        self.state.write(index, out);
        if let Some(sent) = sent_at.get_mut(usize::from(index)) {
            *sent = now;
        }
        if index == self.unsent {
            self.unsent = self.unsent.saturating_add(1);
        } else {
            self.is_repeated = true;
        }
    }

    /// Takes word that a part arrived.
    pub(super) fn on_arrived(&mut self, index: u16) {
        if index < self.unsent {
            self.arrived.insert(index);
        }
    }

    /// Whether each part was sent.
    pub(super) const fn is_sent(&self) -> bool {
        self.unsent >= self.state.count
    }

    pub(super) const fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    pub(super) const fn state(&self) -> &Numbered {
        &self.state
    }
}
