//! A contiguous byte queue.

use std::collections::VecDeque;

/// A contiguous byte queue in which each byte keeps its offset, as in a TCP send buffer. Capacity
/// is kept, so a steady load allocates nothing. The content moves to the front of the buffer after
/// at least a quarter as many bytes were pushed since the last move.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    /// Released and held bytes.
    bytes: Vec<u8>,
    /// Released bytes at the front of `bytes`; less than all.
    released: usize,
    /// Offset of the first byte held.
    start: u64,
}

impl ByteQueue {
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity().saturating_sub(self.bytes.len()) < bytes.len() {
            self.make_room(bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Makes room for `len` bytes and a quarter of the content.
    #[cold]
    fn make_room(&mut self, len: usize) {
        let held = self.len();
        let spare = self.bytes.capacity().saturating_sub(held);
        if spare < len.max(held / 4) {
            self.move_to(held.saturating_add(len.max(held / 2)));
        } else {
            self.bytes.drain(..self.released);
            self.released = 0;
        }
    }

    fn move_to(&mut self, capacity: usize) {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(self.first(self.len()));
        self.bytes = bytes;
        self.released = 0;
    }

    /// Returns the `len` bytes from `offset`, or those of them that are held.
    #[inline]
    pub(crate) fn get(&self, offset: u64, len: usize) -> &[u8] {
        let from = to_usize(offset.saturating_sub(self.start)).saturating_add(self.released);
        let rest = self.bytes.get(from..).unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    /// Returns the first `len` bytes, or all if there are fewer.
    #[inline]
    pub(crate) fn first(&self, len: usize) -> &[u8] {
        let held = self.bytes.get(self.released..).unwrap_or_default();
        held.get(..len).unwrap_or(held)
    }

    /// Drops all bytes before `offset`.
    pub(crate) fn release(&mut self, offset: u64) {
        self.release_first(to_usize(offset.saturating_sub(self.start)));
        self.start = self.start.max(offset);
    }

    /// Removes `len` bytes from `offset`; later ones get lower offsets.
    pub(crate) fn remove(&mut self, offset: u64, len: usize) {
        let from = to_usize(offset.saturating_sub(self.start)).saturating_add(self.released);
        let end = from.saturating_add(len).min(self.bytes.len());
        if from < end {
            self.bytes.drain(from..end);
        }
    }

    /// Drops the first `len` bytes, or all if there are fewer.
    #[inline]
    pub(crate) fn release_first(&mut self, len: usize) {
        let held = self.len();
        if len < held {
            self.released = self.released.saturating_add(len);
            self.start = self.start.saturating_add(len as u64);
        } else {
            self.bytes.clear();
            self.released = 0;
            self.start = self.start.saturating_add(held as u64);
        }
    }

    pub(crate) fn tidy(&mut self) {
        let held = self.len();
        if self.bytes.capacity() / 2 > held {
            self.move_to(held);
        }
    }

    pub(crate) fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start.saturating_add(self.len() as u64)
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.released)
    }

    pub(crate) const fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Returns the heap memory of a deque in bytes.
pub(crate) fn deque_memory<T>(deque: &VecDeque<T>) -> usize {
    deque.capacity().saturating_mul(size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capacity_grows_by_half_of_the_held_bytes() {
        let mut queue = ByteQueue::default();
        queue.push(&[1; 1_000]);
        queue.release_first(900);
        queue.push(&[2; 300]);
        assert_eq!(
            (queue.memory(), queue.first(101)[100]),
            (1_000, 2),
            "moved to the front"
        );
        queue.push(&[3; 700]);
        assert_eq!((queue.memory(), queue.len()), (1_100, 1_100));
        assert_eq!(queue.first(1_100)[1_099], 3);
        queue.release_first(1_050);
        queue.tidy();
        assert_eq!((queue.memory(), queue.first(50)), (50, &[3; 50][..]));
        queue.tidy();
        assert_eq!(queue.memory(), 50);
    }

    proptest! {
        #[test]
        fn agrees_with_an_unbounded_vector(
            steps in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..40), 0_u64..60), 0..60),
            probe: u64,
        ) {
            let (mut queue, mut all) = (ByteQueue::default(), Vec::new());
            let mut released = 0_u64;
            for (bytes, drop) in steps {
                prop_assert_eq!(queue.end(), all.len() as u64);
                queue.push(&bytes);
                all.extend_from_slice(&bytes);
                released = (released + drop).min(all.len() as u64);
                queue.release(released);
                prop_assert_eq!(queue.len() as u64, all.len() as u64 - released);
                let held = all.len() as u64 - released;
                let from = released + probe.checked_rem(held).unwrap_or(0);
                let index = usize::try_from(from).unwrap();
                let part = &all[index..(index + 13).min(all.len())];
                prop_assert_eq!(queue.get(from, 13), part);
                let index = usize::try_from(released).unwrap();
                prop_assert_eq!(queue.first(13), &all[index..(index + 13).min(all.len())]);
            }
        }
    }
}
