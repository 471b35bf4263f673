//! Bytes of messages in a row, taken from the front.

use std::collections::VecDeque;

/// A queue of bytes in which each keeps the offset that it got, as in a TCP send buffer.
///
/// It grows by half and keeps what it grew to, so a steady load allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// What is held.
    bytes: VecDeque<u8>,
    /// Offset of the first byte held.
    start: u64,
}

impl Ring {
    /// Appends `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let spare = self.bytes.capacity().saturating_sub(self.bytes.len());
        if spare < bytes.len() {
            let step = (self.bytes.capacity() / 2).max(bytes.len());
            self.bytes.reserve_exact(step);
        }
        self.bytes.extend(bytes);
    }

    /// Appends the `len` bytes of `other` from `offset` on, or those of them that it holds.
    pub(crate) fn push_from(&mut self, other: &Self, offset: u64, len: usize) {
        for slice in other.slices(offset, len) {
            self.push(slice);
        }
    }

    /// Appends to `out` the `len` bytes from `offset` on, or those of them that are held.
    pub(crate) fn copy(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        for slice in self.slices(offset, len) {
            out.extend_from_slice(slice);
        }
    }

    /// Returns the `len` bytes from `offset` on, or those of them that are held; all in the first
    /// slice where they are not around the end of the memory.
    fn slices(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        let from = to_usize(offset.saturating_sub(self.start));
        let to = from.saturating_add(len);
        let (first, second) = self.bytes.as_slices();
        if let Some(bytes) = first.get(from..to) {
            return [bytes, &[]];
        }
        let middle = first.len();
        let part = |slice: &'_ [u8], from: usize, to: usize| -> core::ops::Range<usize> {
            let to = to.min(slice.len());
            from.min(to)..to
        };
        let (from_second, to_second) = (from.saturating_sub(middle), to.saturating_sub(middle));
        [
            first.get(part(first, from, to)).unwrap_or_default(),
            second
                .get(part(second, from_second, to_second))
                .unwrap_or_default(),
        ]
    }

    /// Drops all bytes before `offset`.
    pub(crate) fn release(&mut self, offset: u64) {
        let len = to_usize(offset.saturating_sub(self.start)).min(self.bytes.len());
        self.bytes.drain(..len);
        self.start = self.start.max(offset);
    }

    /// Gives back what it grew to, where it is empty.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
    }

    /// Returns the offset that the next byte will get.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    /// Returns the offset of the first byte held.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Returns how many bytes it holds.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the heap memory it keeps, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// `value`, or the largest there is.
fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector_that_forgets_nothing(
            steps in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..40), 0_u64..60), 0..60),
            probe: u64,
        ) {
            let (mut ring, mut all) = (Ring::default(), Vec::new());
            let mut released = 0_u64;
            for (bytes, drop) in steps {
                prop_assert_eq!(ring.end(), all.len() as u64);
                ring.push(&bytes);
                all.extend_from_slice(&bytes);
                released = (released + drop).min(all.len() as u64);
                ring.release(released);
                prop_assert_eq!(ring.len() as u64, all.len() as u64 - released);
                let held = all.len() as u64 - released;
                let from = released + probe.checked_rem(held).unwrap_or(0);
                let mut out = Vec::new();
                ring.copy(from, 13, &mut out);
                let from = usize::try_from(from).unwrap();
                prop_assert_eq!(&out, &all[from..(from + 13).min(all.len())]);
            }
        }
    }
}
