//! The tickets of a queue.

use super::index::Entry;
use super::party::Party;

/// Where a queue holds a ticket; not valid any more once the ticket has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketSlot {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// All tickets of a queue, by slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    parties: Vec<Option<Party>>,
    /// The number of each slot's ticket; apart from the parties, since the search reads it for every
    /// neighbour.
    generations: Vec<u32>,
    /// How often each ticket was tried in vain.
    tries: Vec<u8>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, party: Party) -> TicketSlot {
        let index = self.free.pop().unwrap_or_else(|| {
            self.parties.push(None);
            self.generations.push(0);
            self.tries.push(0);
            u32::try_from(self.parties.len().saturating_sub(1)).unwrap_or(u32::MAX)
        });
        let at = index as usize;
        if let Some(place) = self.parties.get_mut(at) {
            *place = Some(party);
        }
        if let Some(tries) = self.tries.get_mut(at) {
            *tries = 0;
        }
        let generation = self.generations.get(at).copied().unwrap_or_default();
        TicketSlot { index, generation }
    }

    pub(super) fn remove(&mut self, slot: TicketSlot) -> Option<Party> {
        self.get(slot)?;
        self.take(slot.index)
    }

    pub(super) fn take(&mut self, index: u32) -> Option<Party> {
        let at = index as usize;
        let party = self.parties.get_mut(at)?.take()?;
        if let Some(generation) = self.generations.get_mut(at) {
            *generation = generation.wrapping_add(1);
        }
        self.free.push(index);
        Some(party)
    }

    pub(super) fn get(&self, slot: TicketSlot) -> Option<&Party> {
        let is_same = self.holds(slot.index, slot.generation);
        is_same.then(|| self.party(slot.index)).flatten()
    }

    pub(super) fn party(&self, index: u32) -> Option<&Party> {
        self.parties.get(index as usize)?.as_ref()
    }

    pub(super) fn is_waiting(&self, entry: &Entry) -> bool {
        self.holds(entry.slot, entry.generation)
    }

    pub(super) fn holds(&self, index: u32, generation: u32) -> bool {
        self.generations.get(index as usize) == Some(&generation)
    }

    /// Notes that a ticket was tried in vain. Returns how often that was before.
    pub(super) fn note_try(&mut self, index: u32) -> u8 {
        let Some(tries) = self.tries.get_mut(index as usize) else {
            return 0;
        };
        let before = *tries;
        *tries = tries.saturating_add(1);
        before
    }

    pub(super) const fn len(&self) -> usize {
        self.parties.len().saturating_sub(self.free.len())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const SLOT: usize = size_of::<Option<Party>>() + 2 * size_of::<u32>() + 1;
        let heaps = self.parties.iter().flatten().map(Party::heap_bytes);
        let slots = self.parties.capacity().saturating_mul(SLOT);
        heaps.fold(slots, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::TicketId;
    use wire::Instant;

    fn party(id: u64) -> Party {
        Party::new(TicketId(id), Vec::new(), Vec::new(), Instant::ZERO)
    }

    #[test]
    fn a_slot_used_again_is_another_ticket() {
        let mut slots = Slots::default();
        let first = slots.insert(party(1));
        assert_eq!(slots.remove(first), Some(party(1)));
        assert_eq!(slots.remove(first), None);
        let second = slots.insert(party(2));
        assert_eq!(first.index, second.index);
        assert_eq!(
            (slots.get(first), slots.get(second)),
            (None, Some(&party(2)))
        );
        assert_eq!(slots.len(), 1);
    }
}
