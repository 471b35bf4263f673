//! What is in flight: the contents of packets, and their counts.

use super::SentKind;

/// Lists of `C`, linked by index, with a free list. A packet needs no allocation.
#[derive(Clone, Debug)]
pub(super) struct Contents<C> {
    nodes: Vec<Node<C>>,
    /// First free node, or [`END`].
    free: u16,
    used: usize,
}

/// One list, which owns its nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// First node, or [`END`].
    head: u16,
    /// Last node; undefined if the list is empty.
    tail: u16,
}

#[derive(Clone, Copy, Debug)]
struct Node<C> {
    /// Stale if the node is free.
    content: C,
    /// Next node of its list, or [`END`].
    next: u16,
}

impl Chain {
    pub(super) const EMPTY: Self = Self {
        head: END,
        tail: END,
    };

    pub(super) const fn is_empty(self) -> bool {
        self.head == END
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<C: Copy> Contents<C> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: END,
            used: 0,
        }
    }

    pub(super) fn shrink(&mut self) {
        if self.used == 0 {
            *self = Self::new();
        }
    }

    pub(super) const fn memory(&self) -> usize {
        self.nodes.capacity().saturating_mul(size_of::<Node<C>>())
    }

    pub(super) const fn room(&self) -> usize {
        NODES_MAX.saturating_sub(self.used)
    }

    #[inline]
    pub(super) fn push(&mut self, chain: &mut Chain, content: C) -> Result<(), C> {
        let Some(index) = self.take(content) else {
            return Err(content);
        };
        let one = Chain {
            head: index,
            tail: index,
        };
        self.join(chain, one);
        Ok(())
    }

    pub(super) fn join(&mut self, chain: &mut Chain, rest: Chain) {
        if rest.is_empty() {
            return;
        }
        if chain.is_empty() {
            *chain = rest;
            return;
        }
        if let Some(tail) = self.nodes.get_mut(usize::from(chain.tail)) {
            tail.next = rest.head;
        }
        chain.tail = rest.tail;
    }

    /// Frees the nodes of `chain` and calls `each` for their content, in order.
    pub(super) fn drain(&mut self, chain: Chain, mut each: impl FnMut(C)) {
        let mut index = chain.head;
        while let Some(node) = self.nodes.get_mut(usize::from(index)) {
            let next = core::mem::replace(&mut node.next, self.free);
            self.free = index;
            self.used = self.used.saturating_sub(1);
            each(node.content);
            index = next;
        }
    }

    pub(super) fn iter(&self, chain: Chain) -> impl Iterator<Item = C> + '_ {
        core::iter::successors(self.nodes.get(usize::from(chain.head)), |node| {
            self.nodes.get(usize::from(node.next))
        })
        .map(|node| node.content)
    }

    #[inline]
    fn take(&mut self, content: C) -> Option<u16> {
        let node = Node { content, next: END };
        if let Some(free) = self.nodes.get_mut(usize::from(self.free)) {
            let index = self.free;
            self.free = free.next;
            *free = node;
            self.used = self.used.saturating_add(1);
            return Some(index);
        }
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.reserve_exact(GROWTH);
        }
        let index = u16::try_from(self.nodes.len()).ok()?;
        self.nodes.push(node);
        self.used = self.used.saturating_add(1);
        Some(index)
    }
}

/// Most nodes: 8 for each of 1,024 packets.
pub(super) const NODES_MAX: usize = 8_192;

const GROWTH: usize = 64;

/// No node; above every index.
const END: u16 = u16::MAX;

/// Counts of ack-eliciting packets in flight. Those with only unreliable messages are limited: a
/// flood of them would otherwise fill every place that an acknowledgement frees, and starve
/// reliable messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) packets: usize,
    /// Those that hold unreliable messages only.
    unreliable: usize,
    /// Contents of these.
    contents: usize,
    pub(super) bytes: InFlight,
}

/// Bytes in flight, of packets that ask for an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Of all packets, but for those that search for the path's size or went elsewhere.
    pub total: u64,
    /// Of packets with messages of bulk channels.
    pub bulk: u64,
}

impl Flight {
    pub(super) const EMPTY: Self = Self {
        packets: 0,
        unreliable: 0,
        contents: 0,
        bytes: InFlight { total: 0, bulk: 0 },
    };

    pub(super) fn add(&mut self, kind: SentKind, len: u16) {
        self.packets = self.packets.saturating_add(1);
        let len = u64::from(len);
        match kind {
            SentKind::Unreliable(frames) | SentKind::Retransmit(frames) => {
                self.unreliable = self.unreliable.saturating_add(1);
                self.contents = self.contents.saturating_add(frames.into());
            }
            SentKind::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_add(len),
            SentKind::MtuProbe | SentKind::OffPath => return,
            SentKind::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_add(len);
    }

    pub(super) fn remove(&mut self, kind: SentKind, len: u16) {
        self.packets = self.packets.saturating_sub(1);
        let len = u64::from(len);
        match kind {
            SentKind::Unreliable(frames) | SentKind::Retransmit(frames) => {
                self.unreliable = self.unreliable.saturating_sub(1);
                self.contents = self.contents.saturating_sub(frames.into());
            }
            SentKind::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_sub(len),
            SentKind::MtuProbe | SentKind::OffPath => return,
            SentKind::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_sub(len);
    }

    pub(super) const fn is_full_for_unreliable(self) -> bool {
        self.unreliable >= UNRELIABLE_MAX || self.contents >= CONTENTS_MAX
    }
}

/// Three quarters of [`SentPackets::IN_FLIGHT_MAX`](super::SentPackets::IN_FLIGHT_MAX).
pub(super) const UNRELIABLE_MAX: usize = 768;

/// Three quarters of [`SentPackets::CONTENTS_MAX`](super::SentPackets::CONTENTS_MAX).
const CONTENTS_MAX: usize = 6_144;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn content_lists_of_packets_are_separate(
            steps in prop::collection::vec((0_usize..6, 0_u8..8), 1..500),
        ) {
            let mut contents = Contents::new();
            let mut chains = [Chain::EMPTY; 6];
            let mut model: [Vec<usize>; 6] = Default::default();
            for (stamp, (which, action)) in steps.into_iter().enumerate() {
                match action {
                    0 => {
                        let mut drained = Vec::new();
                        let chain = core::mem::take(&mut chains[which]);
                        contents.drain(chain, |content| drained.push(content));
                        prop_assert_eq!(drained, core::mem::take(&mut model[which]));
                    }
                    1 => {
                        let chain = core::mem::take(&mut chains[which]);
                        let other = (which + 1) % 6;
                        contents.join(&mut chains[other], chain);
                        let moved = core::mem::take(&mut model[which]);
                        model[other].extend(moved);
                    }
                    _ => {
                        contents.push(&mut chains[which], stamp).unwrap();
                        model[which].push(stamp);
                    }
                }
                let held: usize = model.iter().map(Vec::len).sum();
                prop_assert_eq!(contents.room(), NODES_MAX - held);
                for (chain, list) in chains.iter().zip(&model) {
                    prop_assert!(contents.iter(*chain).eq(list.iter().copied()));
                }
            }
        }
    }

    #[test]
    fn the_store_is_bounded_and_reused() {
        let mut contents = Contents::new();
        let mut chain = Chain::EMPTY;
        for value in 0..NODES_MAX {
            contents.push(&mut chain, value).unwrap();
        }
        let capacity = contents.nodes.capacity();
        assert_eq!(contents.push(&mut chain, 7), Err(7));
        contents.drain(chain, |_| ());
        let mut chain = Chain::EMPTY;
        for value in 0..NODES_MAX {
            contents.push(&mut chain, value).unwrap();
        }
        assert_eq!(contents.push(&mut chain, 7), Err(7));
        assert_eq!(contents.nodes.capacity(), capacity);
    }

    #[test]
    fn the_store_grows_by_64_and_is_freed_when_unused() {
        let mut contents = Contents::new();
        let mut chain = Chain::EMPTY;
        for value in 0..64_u64 {
            contents.push(&mut chain, value).unwrap();
        }
        assert_eq!(contents.memory(), 64 * size_of::<Node<u64>>());
        contents.push(&mut chain, 64).unwrap();
        contents.shrink();
        assert!(contents.iter(chain).eq(0..=64), "in use");
        assert_eq!(contents.memory(), 128 * size_of::<Node<u64>>());
        contents.drain(chain, |_| ());
        contents.shrink();
        assert_eq!(contents.memory(), 0);
    }

    #[test]
    fn unreliable_messages_leave_a_quarter_of_packets_and_contents() {
        for (packets, contents) in [(768, 1), (6_144 / 30 + 1, 30)] {
            let mut flight = Flight::EMPTY;
            let unreliable = SentKind::Unreliable(contents);
            for _ in 0..packets {
                assert!(!flight.is_full_for_unreliable());
                flight.add(unreliable, 100);
                flight.add(SentKind::Other, 100);
            }
            assert!(flight.is_full_for_unreliable());
            flight.remove(SentKind::Other, 100);
            assert!(flight.is_full_for_unreliable());
            flight.remove(unreliable, 100);
            assert!(!flight.is_full_for_unreliable());
            assert_eq!(flight.packets, 2 * (packets - 1));
        }
    }

    #[test]
    fn bytes_are_counted_by_kind_without_probes() {
        let mut flight = Flight::EMPTY;
        let all = [
            (SentKind::Other, 10),
            (SentKind::Unreliable(2), 200),
            (SentKind::Bulk, 1_000),
            (SentKind::MtuProbe, 1_452),
            (SentKind::OffPath, 40),
        ];
        for (kind, len) in all {
            flight.add(kind, len);
        }
        let bytes = InFlight {
            total: 1_210,
            bulk: 1_000,
        };
        assert_eq!((flight.packets, flight.bytes), (5, bytes));
        for (kind, len) in all {
            flight.remove(kind, len);
        }
        assert_eq!(flight, Flight::EMPTY);
    }
}
