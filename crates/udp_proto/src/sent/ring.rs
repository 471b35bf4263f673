//! The ring of packet numbers: how it grows, and what leaves it.

use wire::Instant;

use super::contents::Chain;
use super::scan::{Slot, State};
use super::{Cargo, SentPackets};
use crate::deadline::Deadline;
use crate::replay::ReplayWindow;

impl<C: Copy> SentPackets<C> {
    /// Appends a slot for a number that is never sent.
    pub(super) fn skip_next(&mut self) {
        let number = self.next();
        if self.skipped.len() == SKIPPED_LEN {
            self.skipped.pop_front();
        }
        self.skipped.push_back(number);
        self.append(Slot {
            at: self.slots.back().map_or(Instant::ZERO, |slot| slot.at),
            described: None,
            contents: Chain::EMPTY,
            len: 0,
            cargo: Cargo::Other,
            untold: 0,
            state: State::Skipped,
        });
    }

    /// Appends a slot; where the ring is full the oldest goes, lost if it was in flight.
    pub(super) fn append(&mut self, slot: Slot) {
        if self.slots.len() == Self::SLOTS_MAX {
            self.evict();
        }
        if self.slots.len() == self.slots.capacity() {
            // Where nobody acknowledges anything, nothing else does.
            self.trim(slot.at);
        }
        if self.slots.len() == self.slots.capacity() {
            let step = self.slots.capacity().clamp(GROWTH_MIN, GROWTH);
            self.slots.reserve_exact(step);
        }
        if self.skipped.capacity() == 0 {
            // With the first packet: the first number left out may come long after a session is warm.
            self.skipped.reserve_exact(SKIPPED_LEN);
        }
        self.slots.push_back(slot);
    }

    /// Removes the oldest slot.
    ///
    /// 2,048 numbers were sent after it without its being acknowledged or lost: the peer's
    /// acknowledgements do not reach us, and would no longer reach down to it.
    fn evict(&mut self) {
        let Some(slot) = self.pop_front() else {
            return;
        };
        if slot.state == State::InFlight {
            self.flight.remove(slot.cargo, slot.len);
            self.contents
                .join(&mut self.evicted.contents, slot.contents);
            self.evicted.packets = self.evicted.packets.saturating_add(1);
            let untold = u32::from(slot.untold);
            self.evicted.untold = self.evicted.untold.saturating_add(untold);
            // At once.
            self.loss_deadline = Deadline::at(slot.at);
        }
    }

    /// Removes the oldest slot, and what it still held of a packet that counts as lost.
    pub(super) fn pop_front(&mut self) -> Option<Slot> {
        let mut slot = self.slots.pop_front()?;
        self.base = self.base.saturating_add(1);
        if slot.state == State::Lost {
            let contents = core::mem::take(&mut slot.contents);
            let lost = &mut self.lost;
            self.contents
                .drain(contents, |_| *lost = lost.saturating_sub(1));
        }
        Some(slot)
    }

    /// Forgets what packets held that count as lost: should one arrive after all, that is not told.
    pub(super) fn forget_lost(&mut self) {
        if self.lost == 0 {
            return;
        }
        self.lost = 0;
        for slot in &mut self.slots {
            if slot.state == State::Lost {
                self.contents
                    .drain(core::mem::take(&mut slot.contents), |_| ());
            }
        }
    }

    /// Removes the oldest slots as far as nothing is to be learnt about them any more.
    pub(super) fn trim(&mut self, now: Instant) {
        let largest = self.largest_acked.unwrap_or(self.first);
        while let Some(slot) = self.slots.front() {
            let done = match slot.state {
                State::Acked | State::Skipped => true,
                State::InFlight => false,
                // Packets do not overtake each other by that much; or the peer's window has passed it.
                State::Quiet | State::Lost => {
                    slot.at + self.memory_span <= now
                        || largest.saturating_sub(self.base) >= ReplayWindow::LEN
                }
            };
            if !done {
                return;
            }
            self.pop_front();
        }
    }
}

/// Numbers never sent that are remembered. Deliberate skips are 64 or more apart, so these cover
/// 2,240 numbers, and an ACK reaches 2,048 below its largest.
const SKIPPED_LEN: usize = 36;

/// Slots by which the ring grows at most, and at least.
const GROWTH: usize = 64;
const GROWTH_MIN: usize = 8;
