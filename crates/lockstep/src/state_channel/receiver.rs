//! Receiver of states.

use wire::Instant;

use super::{FragmentSet, StateAck, StatePart, decode_state_part, part_range, write_ack};
use crate::message::DecodeError;
use crate::transfer::ACK_WAIT;

/// Receives the newest states from one sender, in memory of three times the longest state of which
/// a part arrived, and 300 bytes.
#[derive(Debug)]
pub struct StateReceiver {
    len_max: u32,
    /// Incomplete states. Two, since fragments of consecutive states may be reordered.
    assemblies: [Assembly; 2],
    /// Number of the newest complete state; 0 for none.
    whole: u32,
    bytes: Vec<u8>,
    len: u32,
    is_taken: bool,
    due: Option<Instant>,
    next_ack_at: Instant,
    stats: StateReceiverStats,
}

/// Counters of useless datagrams, and of states not returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateReceiverStats {
    /// Malformed datagrams.
    pub malformed: u64,
    /// Datagrams of states over the limit.
    pub oversize: u64,
    /// Datagrams of states older than the newest complete one, or displaced by newer ones.
    pub stale: u64,
    /// Fragments that arrived again.
    pub duplicate: u64,
    /// Fragments with another length or number of parts than the first of their state.
    pub contradicting: u64,
    /// Incomplete states displaced by newer ones.
    pub overtaken: u64,
    /// Complete states replaced by a newer one before they were polled.
    pub untaken: u64,
}

impl StateReceiver {
    /// Creates a receiver of states of at most `len_max` bytes.
    #[must_use]
    pub fn new(len_max: u32) -> Self {
        Self {
            len_max,
            assemblies: [Assembly::default(), Assembly::default()],
            whole: 0,
            bytes: Vec::new(),
            len: 0,
            is_taken: true,
            due: None,
            next_ack_at: Instant::ZERO,
            stats: StateReceiverStats::default(),
        }
    }

    /// Handles a datagram of the sender.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let part = match decode_state_part(datagram) {
            Ok(part) => part,
            Err(
                DecodeError::Truncated
                | DecodeError::UnknownKind(_)
                | DecodeError::Version(_)
                | DecodeError::Malformed,
            ) => {
                self.stats.malformed = self.stats.malformed.saturating_add(1);
                return;
            }
        };
        if part.total > self.len_max {
            self.stats.oversize = self.stats.oversize.saturating_add(1);
            return;
        }
        self.take(&part);
        // Even if it brought nothing: the sender may not know that.
        self.due = Some(self.due.unwrap_or_else(|| self.next_ack_at.max(now)));
    }

    /// Returns the newest complete state and its number, once.
    pub fn poll_state(&mut self) -> Option<(u32, &[u8])> {
        if core::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        Some((self.whole, self.bytes.get(..len)?))
    }

    /// Appends a due acknowledgement to `out`; false if there is none.
    ///
    /// At most one per 20 ms.
    pub fn poll_ack(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        self.next_ack_at = now + ACK_WAIT;
        let newest = self.assemblies.iter().max_by_key(|state| state.number);
        let (partial, bits) = match newest {
            Some(state) if state.number > 0 => (state.number, state.arrived.used()),
            Some(_) | None => (0, &[][..]),
        };
        write_ack(out, &StateAck::new(self.whole, partial, bits));
        true
    }

    /// Returns when to call [`poll_ack`](Self::poll_ack) next.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the number of the newest complete state; `None` before the first.
    pub fn newest(&self) -> Option<u32> {
        (self.whole > 0).then_some(self.whole)
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &StateReceiverStats {
        &self.stats
    }

    fn take(&mut self, part: &StatePart<'_>) {
        if part.number <= self.whole {
            self.stats.stale = self.stats.stale.saturating_add(1);
            return;
        }
        if part.count == 1 {
            self.bytes.clear();
            self.bytes.extend_from_slice(part.bytes);
            self.len = part.total;
            self.finish(part.number);
            return;
        }
        let Some(index) = self.index(part) else {
            self.stats.stale = self.stats.stale.saturating_add(1);
            return;
        };
        let [first, second] = &mut self.assemblies;
        let state = if index == 0 { first } else { second };
        match state.put(part) {
            Put::Kept => {}
            Put::Whole => {
                self.len = state.swap_out(&mut self.bytes);
                self.finish(part.number);
            }
            Put::Duplicate => self.stats.duplicate = self.stats.duplicate.saturating_add(1),
            Put::Contradicts => {
                self.stats.contradicting = self.stats.contradicting.saturating_add(1);
            }
        }
    }

    /// Slot of a fragment's state, allocated if necessary; `None` if it is displaced by newer ones.
    fn index(&mut self, part: &StatePart<'_>) -> Option<usize> {
        let mut states = self.assemblies.iter();
        if let Some(index) = states.position(|state| state.number == part.number) {
            return Some(index);
        }
        let slots = (0..).zip(&mut self.assemblies);
        let (index, oldest) = slots.min_by_key(|(_, state)| state.number)?;
        if oldest.number > part.number {
            return None;
        }
        if oldest.number > 0 {
            self.stats.overtaken = self.stats.overtaken.saturating_add(1);
        }
        oldest.begin(part);
        Some(index)
    }

    fn finish(&mut self, number: u32) {
        self.whole = number;
        if !core::mem::replace(&mut self.is_taken, false) {
            self.stats.untaken = self.stats.untaken.saturating_add(1);
        }
        for state in &mut self.assemblies {
            if (1..=number).contains(&state.number) {
                let is_given_up = state.number < number;
                state.number = 0;
                let overtaken = &mut self.stats.overtaken;
                *overtaken = overtaken.saturating_add(is_given_up.into());
            }
        }
    }
}

#[derive(Debug, Default)]
struct Assembly {
    /// Number of the state; 0 if the slot is free.
    number: u32,
    total: u32,
    count: u16,
    arrived: FragmentSet,
    /// At least `total` bytes while in use; missing fragments hold bytes of older states.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Whole,
    Kept,
    Duplicate,
    /// It has another length or number of parts than the first of its state.
    Contradicts,
}

impl Assembly {
    fn begin(&mut self, part: &StatePart<'_>) {
        self.number = part.number;
        self.total = part.total;
        self.count = part.count;
        self.arrived = FragmentSet::default();
        // Nothing is cleared: a state is only read once all of it was written. So a header that
        // announces a large state costs no work, and memory only once.
        let total = usize::try_from(part.total).unwrap_or(usize::MAX);
        if self.bytes.len() < total {
            let missing = total.saturating_sub(self.bytes.len());
            self.bytes.reserve_exact(missing);
            self.bytes.resize(total, 0);
        }
    }

    fn put(&mut self, part: &StatePart<'_>) -> Put {
        if (part.total, part.count) != (self.total, self.count) {
            return Put::Contradicts;
        }
        let range = part_range(self.total, self.count, part.index);
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end).unwrap_or(usize::MAX);
        let Some(index) = self.bytes.get_mut(start..end) else {
            return Put::Contradicts;
        };
        if index.len() != part.bytes.len() {
            return Put::Contradicts;
        }
        if !self.arrived.insert(part.index) {
            return Put::Duplicate;
        }
        index.copy_from_slice(part.bytes);
        if self.arrived.count == self.count {
            Put::Whole
        } else {
            Put::Kept
        }
    }

    const fn swap_out(&mut self, buffer: &mut Vec<u8>) -> u32 {
        core::mem::swap(&mut self.bytes, buffer);
        self.number = 0;
        self.total
    }
}
