//! Block storage for fragments.

/// Byte strings in chained blocks of `LEN` bytes, which are reused.
///
/// A string wastes less than one block, under any sequence of operations, and a steady load
/// allocates nothing.
#[derive(Debug)]
pub(super) struct Blocks<const LEN: usize> {
    /// All blocks, used and free.
    all: Vec<Block<LEN>>,
    /// First free block.
    free: u32,
    /// Blocks in use.
    held: usize,
}

impl<const LEN: usize> Blocks<LEN> {
    /// Makes an empty store.
    pub(super) const fn new() -> Self {
        Self {
            all: Vec::new(),
            free: NONE,
            held: 0,
        }
    }

    /// Stores a copy of `bytes` and returns its first block.
    pub(super) fn store(&mut self, bytes: &[u8]) -> u32 {
        // From the last block to the first, since each links to its successor.
        let mut follower = NONE;
        for chunk in bytes.chunks(LEN).rev() {
            let index = self.take_free();
            if let Some(block) = self.get_mut(index) {
                if let Some(data) = block.data.get_mut(..chunk.len()) {
                    data.copy_from_slice(chunk);
                }
                block.next = follower;
                follower = index;
            }
        }
        follower
    }

    /// Passes the string of `len` bytes that starts at `first` to `sink`, block by block.
    pub(super) fn read(&self, first: u32, len: usize, sink: &mut impl FnMut(&[u8])) {
        let (mut index, mut left) = (first, len);
        while let Some(block) = self.get(index) {
            let taken = left.min(LEN);
            sink(block.data.get(..taken).unwrap_or_default());
            left = left.saturating_sub(taken);
            index = block.next;
        }
    }

    /// Frees the string that starts at `first`.
    pub(super) fn release(&mut self, first: u32) {
        let mut index = first;
        while let Some(block) = self.get(index) {
            let next = block.next;
            let free = self.free;
            if let Some(block) = self.get_mut(index) {
                block.next = free;
            }
            self.free = index;
            self.held = self.held.saturating_sub(1);
            index = next;
        }
    }

    /// Releases all memory if nothing is stored.
    pub(super) fn shrink(&mut self) {
        if self.held == 0 {
            *self = Self::new();
        }
    }

    /// Returns whether its capacity is more than twice its content, and large enough to matter.
    pub(super) const fn is_sparse(&self) -> bool {
        self.all.capacity() / 2 > self.held && self.all.capacity() > FEW
    }

    /// Creates an empty store with capacity for the content of this one.
    pub(super) fn fresh(&self) -> Self {
        Self {
            all: Vec::with_capacity(self.held),
            ..Self::new()
        }
    }

    /// Returns the bytes of the used blocks.
    #[cfg(test)]
    pub(super) const fn held_bytes(&self) -> usize {
        self.held.saturating_mul(size_of::<Block<LEN>>())
    }

    /// Returns the heap memory it keeps, bytes.
    pub(super) const fn memory(&self) -> usize {
        self.all.capacity().saturating_mul(size_of::<Block<LEN>>())
    }

    /// Takes a free or new block.
    fn take_free(&mut self) -> u32 {
        self.held = self.held.saturating_add(1);
        let index = self.free;
        if let Some(block) = self.get(index) {
            self.free = block.next;
            return index;
        }
        let len = self.all.len();
        if len == self.all.capacity() {
            let least = const { if LEN < 100 { 8 } else { 1 } };
            self.all.reserve_exact((len / 2).max(least));
        }
        self.all.push(Block {
            data: [0; LEN],
            next: NONE,
        });
        u32::try_from(len).unwrap_or(NONE)
    }

    /// Returns block `index`.
    fn get(&self, index: u32) -> Option<&Block<LEN>> {
        self.all.get(usize::try_from(index).ok()?)
    }

    /// Returns block `index` mutably.
    fn get_mut(&mut self, index: u32) -> Option<&mut Block<LEN>> {
        self.all.get_mut(usize::try_from(index).ok()?)
    }
}

/// A part of a string.
#[derive(Debug)]
struct Block<const LEN: usize> {
    /// Only the first bytes count in the last block of a string.
    data: [u8; LEN],
    /// The next block of the string, or the next free block.
    next: u32,
}

/// No block. Budgets keep the number of blocks far below it.
const NONE: u32 = u32::MAX;

/// Blocks kept in any case: two steps of growth.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_stored_and_reuses_what_was_released() {
        let mut blocks = Blocks::<56>::new();
        let strings: Vec<Vec<u8>> = [0_u8, 1, 55, 56, 57, 112, 200]
            .iter()
            .map(|len| (0..*len).collect())
            .collect();
        let mut memory = 0;
        for turn in 0..50 {
            let firsts: Vec<u32> = strings.iter().map(|string| blocks.store(string)).collect();
            for (first, string) in firsts.iter().zip(&strings) {
                let mut out = Vec::new();
                blocks.read(*first, string.len(), &mut |bytes| {
                    out.extend_from_slice(bytes);
                });
                assert_eq!(&out, string);
            }
            for first in firsts {
                blocks.release(first);
            }
            assert_eq!(blocks.held, 0);
            assert!(turn == 0 || memory == blocks.memory());
            memory = blocks.memory();
        }
    }
}
