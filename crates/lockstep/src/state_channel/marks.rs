//! Bitmap of the received fragments of a state.

use super::message::FRAGMENTS_MAX;

/// Bytes for one bit per fragment.
pub(super) const MARKS_LEN: usize = 32;

const _: () = assert!(MARKS_LEN * 8 == FRAGMENTS_MAX as usize);

/// A bit per fragment, up to [`FRAGMENTS_MAX`], highest first; those past the last are not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    bytes: [u8; MARKS_LEN],
    /// Number of set bits.
    count: u16,
}

impl Marks {
    /// Sets the bit of a fragment; false if it was set, or there is no such fragment.
    pub(super) fn insert(&mut self, index: u16) -> bool {
        let bit = bit(index);
        let Some(byte) = self.bytes.get_mut(usize::from(index / 8)) else {
            return false;
        };
        if *byte & bit != 0 {
            return false;
        }
        *byte |= bit;
        self.count = self.count.saturating_add(1);
        true
    }

    pub(super) fn has(&self, index: u16) -> bool {
        let byte = self.bytes.get(usize::from(index / 8));
        byte.is_some_and(|byte| byte & bit(index) != 0)
    }

    /// Number of set bits.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    /// The bytes up to the last set bit.
    pub(super) fn used(&self) -> &[u8] {
        let last = self.bytes.iter().rposition(|byte| *byte != 0);
        let len = last.map_or(0, |last| last.saturating_add(1));
        self.bytes.get(..len).unwrap_or_default()
    }
}

const fn bit(index: u16) -> u8 {
    0x80 >> (index % 8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::Seed;

    use super::*;

    #[test]
    fn they_are_a_set_of_256_numbers() {
        let mut draw = Seed::from_number(1).generator(0);
        let (mut marks, mut model) = (Marks::default(), BTreeSet::new());
        assert_eq!(marks.used(), [0; 0]);
        for _ in 0..6_000 {
            let index = u16::try_from(draw.below(300)).unwrap();
            assert_eq!(marks.insert(index), index < 256 && model.insert(index));
            assert_eq!(usize::from(marks.count()), model.len());
            assert!((0..300).all(|index| marks.has(index) == model.contains(&index)));
            let last = usize::from(model.last().map_or(0, |last| last / 8 + 1));
            assert_eq!(marks.used().len(), last);
        }
        assert_eq!(marks.count(), FRAGMENTS_MAX);
    }
}
