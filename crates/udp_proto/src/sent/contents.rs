//! Contents of sent packets: many short lists in one store.

/// Lists of `C`, linked by index, with a free list. A packet needs no allocation.
#[derive(Clone, Debug)]
pub(super) struct Contents<C> {
    /// All nodes, used and free.
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

    /// Releases all memory if no node is used.
    pub(super) fn shrink(&mut self) {
        if self.used == 0 {
            *self = Self::new();
        }
    }

    /// Returns the heap memory in bytes.
    pub(super) const fn memory(&self) -> usize {
        self.nodes.capacity().saturating_mul(size_of::<Node<C>>())
    }

    /// Returns how many more contents fit.
    pub(super) const fn room(&self) -> usize {
        NODES_MAX.saturating_sub(self.used)
    }

    /// Appends `content` to `chain`; returns it if the store is full.
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

    /// Appends all of `rest` to `chain`.
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

    /// Returns the content of `chain`, in order.
    pub(super) fn iter(&self, chain: Chain) -> impl Iterator<Item = C> + '_ {
        core::iter::successors(self.nodes.get(usize::from(chain.head)), |node| {
            self.nodes.get(usize::from(node.next))
        })
        .map(|node| node.content)
    }

    /// Takes a free or new node.
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

/// Growth of the store in nodes.
const GROWTH: usize = 64;

/// No node; above every index.
const END: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_do_not_mix(
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
    fn the_store_grows_by_64_and_is_given_back_when_nothing_uses_it() {
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
}
