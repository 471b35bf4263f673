//! The slab of sessions, their connection ids and their deadlines.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant};

use crate::packet::Cid;

/// Identifies one session of one endpoint; never reused. The default is for use without an
/// endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

impl SessionId {
    pub(crate) const MIN: Self = Self {
        index: 0,
        generation: 0,
    };
    pub(crate) const MAX: Self = Self {
        index: u16::MAX,
        generation: u32::MAX,
    };
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Slots for values, each with a connection id of `index 16 | random 16`, and 32 more random bits
/// if ids have 8 bytes. Freed slots are reused in order, and an id not within 60 s.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Slot<T>>,
    free: VecDeque<u16>,
    capacity: u16,
    taken: u16,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    generation: u32,
    tag: [u8; 6],
    /// Its former ids; `None` during its first use.
    quarantine: Option<Box<Quarantine>>,
}

/// Random bits of former ids, and until when each is blocked; the oldest is overwritten.
#[derive(Debug)]
struct Quarantine {
    ids: [(u16, Instant); FORMER_IDS],
    next: u8,
}

/// Free slots beyond which no new ones are created, so that short sessions do not grow the slab.
const REUSE_AT: usize = 64;
/// Former ids kept per slot. A slot that ends more sessions within 60 s forgets the oldest.
const FORMER_IDS: usize = 4;
/// How long an id is not reused; TWP/1, section 9.
const ID_REUSE_INTERVAL: Duration = Duration::from_secs(60);

impl<T> Slots<T> {
    pub(crate) const fn new(capacity: u16) -> Self {
        Self {
            entries: Vec::new(),
            free: VecDeque::new(),
            capacity,
            taken: 0,
        }
    }

    /// Inserts the value that `make` returns; `None` if the slab is full.
    #[cfg(test)]
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        make: impl FnOnce(SessionId, CidTag) -> T,
    ) -> Option<SessionId> {
        self.try_insert(now, generator, |id, tag| Some(make(id, tag)))
    }

    /// Inserts the value that `make` returns. Takes no slot if it returns `None` or the slab is full.
    pub(crate) fn try_insert(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        make: impl FnOnce(SessionId, CidTag) -> Option<T>,
    ) -> Option<SessionId> {
        let index = self.reserve()?;
        let slot = self.entries.get_mut(usize::from(index))?;
        let random = slot.fresh_random(now, generator);
        let [a, b, c, d] = generator.next_u32().to_be_bytes();
        let [high, low] = random.to_be_bytes();
        slot.tag = [high, low, a, b, c, d];
        let id = SessionId {
            index,
            generation: slot.generation,
        };
        slot.value = make(id, CidTag(slot.tag));
        if slot.value.is_none() {
            self.free.push_front(index);
            return None;
        }
        self.taken = self.taken.saturating_add(1);
        Some(id)
    }

    pub(crate) fn remove(&mut self, now: Instant, id: SessionId) -> Option<T> {
        let slot = self.entries.get_mut(usize::from(id.index))?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.reuse_later(now);
        self.free.push_back(id.index);
        self.taken = self.taken.saturating_sub(1);
        Some(value)
    }

    pub(crate) fn replace(&mut self, id: SessionId, value: T) -> Option<T> {
        self.get_mut(id)
            .map(|present| core::mem::replace(present, value))
    }

    pub(crate) fn take(&mut self, id: SessionId) -> Option<T> {
        let slot = self.entries.get_mut(usize::from(id.index))?;
        if slot.generation == id.generation {
            slot.value.take()
        } else {
            None
        }
    }

    /// Fills a slot that [`take`](Self::take) emptied.
    pub(crate) fn put(&mut self, id: SessionId, value: T) {
        if let Some(slot) = self.entries.get_mut(usize::from(id.index))
            && slot.generation == id.generation
        {
            slot.value = Some(value);
        }
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&T> {
        let slot = self.entries.get(usize::from(id.index))?;
        slot.value
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut T> {
        let slot = self.entries.get_mut(usize::from(id.index))?;
        slot.value
            .as_mut()
            .filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn id_at(&self, index: u16) -> Option<SessionId> {
        let slot = self.entries.get(usize::from(index))?;
        slot.value.as_ref().map(|_| SessionId {
            index,
            generation: slot.generation,
        })
    }

    pub(crate) fn by_cid(&self, cid: Cid) -> Option<SessionId> {
        let [high, low, tag @ ..] = cid.as_slice() else {
            return None;
        };
        let index = u16::from_be_bytes([*high, *low]);
        let slot = self.entries.get(usize::from(index))?;
        if slot.tag.starts_with(tag) && !tag.is_empty() {
            self.id_at(index)
        } else {
            None
        }
    }

    pub(crate) const fn len(&self) -> u16 {
        self.taken
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.taken >= self.capacity
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        (0..self.entries.len())
            .filter_map(|index| u16::try_from(index).ok())
            .filter_map(|index| self.id_at(index))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|slot| slot.value.as_ref())
    }

    fn reserve(&mut self) -> Option<u16> {
        if self.is_full() {
            return None;
        }
        // New slots first, so that used ones are reused as late as possible.
        if self.entries.len() < usize::from(self.capacity) && self.free.len() < REUSE_AT {
            let index = u16::try_from(self.entries.len()).ok()?;
            self.entries.push(Slot {
                value: None,
                generation: 0,
                tag: [0; 6],
                quarantine: None,
            });
            return Some(index);
        }
        self.free.pop_front()
    }
}

impl<T> Slot<T> {
    /// Draws random bits that differ from all former ids. At most four draws collide.
    fn fresh_random(&self, now: Instant, generator: &mut Generator) -> u16 {
        let first = generator.next_u32().to_be_bytes();
        let mut random = u16::from_be_bytes([first[0], first[1]]);
        for _ in 0..=FORMER_IDS {
            let quarantined = self.quarantine.as_ref().map(|quarantine| &quarantine.ids);
            let is_in_use = quarantined
                .into_iter()
                .flatten()
                .any(|(bits, until)| *bits == random && now < *until);
            if !is_in_use {
                break;
            }
            random = random.wrapping_add(0x9E37);
        }
        random
    }

    fn reuse_later(&mut self, now: Instant) {
        let [high, low, ..] = self.tag;
        let quarantine = self.quarantine.get_or_insert_with(|| {
            Box::new(Quarantine {
                ids: [(0, Instant::ZERO); FORMER_IDS],
                next: 0,
            })
        });
        if let Some(entry) = quarantine
            .ids
            .get_mut(usize::from(quarantine.next) % FORMER_IDS)
        {
            *entry = (u16::from_be_bytes([high, low]), now + ID_REUSE_INTERVAL);
        }
        quarantine.next = quarantine.next.wrapping_add(1);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CidTag([u8; 6]);

impl CidTag {
    pub(crate) fn cid(self, index: u16, len: CidLen) -> Cid {
        let [i0, i1] = index.to_be_bytes();
        let [t0, t1, t2, t3, t4, t5] = self.0;
        let bytes = [i0, i1, t0, t1, t2, t3, t4, t5];
        bytes
            .get(..len.bytes())
            .and_then(Cid::from_slice)
            .unwrap_or(Cid::EMPTY)
    }
}

/// Length of an endpoint's connection ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CidLen {
    /// None: packets are matched by source address. For endpoints that only dial.
    Zero,
    /// 4 bytes: the default of endpoints that accept.
    Four,
    /// 8 bytes.
    Eight,
}

impl CidLen {
    /// Returns the length in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Zero => 0,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// The earliest deadline of up to 65,536 slots: an indexed binary heap. Ties go to the lower slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Instant, u16)>,
    /// Index of each slot in `heap`; `NOWHERE` without a deadline.
    position: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Timers {
    pub(crate) fn set(&mut self, slot: u16, deadline: Option<Instant>) {
        let index = usize::from(slot);
        if self.position.len() <= index {
            self.position.resize(index.saturating_add(1), NOWHERE);
        }
        let at = self.position.get(index).copied().unwrap_or(NOWHERE);
        match (at, deadline) {
            (NOWHERE, None) => {}
            (NOWHERE, Some(deadline)) => {
                self.heap.push((deadline, slot));
                self.settle(self.heap.len().saturating_sub(1));
            }
            (at, Some(deadline)) => {
                let at = at as usize;
                if let Some(entry) = self.heap.get_mut(at) {
                    if entry.0 == deadline {
                        return;
                    }
                    entry.0 = deadline;
                }
                self.settle(at);
            }
            (at, None) => {
                let at = at as usize;
                self.heap.swap_remove(at);
                self.place(index, NOWHERE);
                if at < self.heap.len() {
                    self.settle(at);
                }
            }
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns the slot with the earliest deadline if that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u16> {
        let &(deadline, slot) = self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.set(slot, None);
        Some(slot)
    }

    fn settle(&mut self, mut at: usize) {
        while at > 0 {
            let parent = at.saturating_sub(1) / 2;
            if self.heap.get(at) >= self.heap.get(parent) {
                break;
            }
            self.exchange(at, parent);
            at = parent;
        }
        loop {
            let left = at.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.heap.get(child) < self.heap.get(least) {
                    least = child;
                }
            }
            if least == at {
                break;
            }
            self.exchange(at, least);
            at = least;
        }
        self.note(at);
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn note(&mut self, at: usize) {
        if let Some(&(_, slot)) = self.heap.get(at) {
            self.place(usize::from(slot), u32::try_from(at).unwrap_or(NOWHERE));
        }
    }

    fn place(&mut self, index: usize, at: u32) {
        if let Some(position) = self.position.get_mut(index) {
            *position = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use wire::Seed;

    fn generator() -> Generator {
        Seed::from_number(1).generator(0)
    }

    #[test]
    fn a_connection_id_is_valid_until_its_slot_is_freed() {
        let mut slots = Slots::new(2);
        let mut generator = generator();
        let now = Instant::ZERO;
        let mut cid = Cid::EMPTY;
        let id = slots
            .insert(now, &mut generator, |id, tag| {
                cid = tag.cid(id.index, CidLen::Four);
                'a'
            })
            .unwrap();
        assert_eq!(slots.by_cid(cid), Some(id));
        let mut other = [0; 4];
        other.copy_from_slice(cid.as_slice());
        other[3] ^= 1;
        assert_eq!(slots.by_cid(Cid::from_slice(&other).unwrap()), None);
        assert_eq!(slots.remove(now, id), Some('a'));
        assert_eq!(slots.by_cid(cid), None);
        assert_eq!(slots.get(id), None);
        assert_eq!(slots.remove(now, id), None);
    }

    #[test]
    fn is_full_at_its_capacity() {
        let mut slots = Slots::new(1);
        let mut generator = generator();
        assert!(
            slots
                .insert(Instant::ZERO, &mut generator, |_, _| ())
                .is_some()
        );
        assert!(slots.is_full());
        assert!(
            slots
                .insert(Instant::ZERO, &mut generator, |_, _| ())
                .is_none()
        );
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_connection_id_is_not_reused_within_a_minute() {
        let mut slots = Slots::new(1);
        let mut generator = generator();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let id = slots
                .insert(Instant::ZERO, &mut generator, |id, tag| {
                    seen.push(tag.cid(id.index, CidLen::Four));
                })
                .unwrap();
            slots.remove(Instant::ZERO, id);
        }
        for (at, cid) in seen.iter().enumerate() {
            assert!(!seen[..at].iter().rev().take(4).any(|old| old == cid));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(steps in proptest::collection::vec((0_u16..40, proptest::option::of(0_u64..50)), 1..400)) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (slot, deadline) in steps {
                match deadline {
                    Some(nanos) => model.insert(slot, Instant::from_nanos(nanos)),
                    None => model.remove(&slot),
                };
                timers.set(slot, deadline.map(Instant::from_nanos));
                prop_assert_eq!(timers.next(), model.values().min().copied());
            }
            let mut order: Vec<_> = model.iter().map(|(slot, at)| (*at, *slot)).collect();
            order.sort_unstable();
            for (at, slot) in order {
                prop_assert_eq!(timers.pop_due(at), Some(slot));
            }
            prop_assert_eq!(timers.next(), None);
        }
    }

    #[test]
    fn no_timer_fires_early() {
        let mut timers = Timers::default();
        timers.set(3, Some(Instant::from_nanos(10)));
        assert_eq!(timers.pop_due(Instant::from_nanos(9)), None);
        assert_eq!(timers.pop_due(Instant::from_nanos(10)), Some(3));
    }
}
