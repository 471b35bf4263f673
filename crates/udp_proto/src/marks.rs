//! A bitmap ring of 1,024 consecutive numbers.

/// A ring of 1,024 bits indexed by the low 10 bits of a number, as in RFC 6479.
///
/// Its user knows which 1,024 numbers it covers, and clears the bits of numbers that enter the
/// range. All operations work on words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    words: [u64; WORDS],
}

impl Marks {
    /// Numbers with a bit of their own.
    pub(crate) const LEN: u64 = 1_024;

    /// Creates an empty ring.
    pub(crate) const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Returns whether `number` is marked.
    pub(crate) fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Marks `number`.
    pub(crate) fn set(&mut self, number: u64) {
        let (word, bit) = place(number);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    /// Returns the marks of `number`, in the lowest bit, and the 63 below it.
    pub(crate) fn downwards(&self, number: u64) -> u64 {
        let (word, bit) = place(number);
        let of = |word: usize| self.words.get(word % WORDS).copied().unwrap_or_default();
        let above = bit.leading_zeros();
        let below = of(word.wrapping_sub(1))
            .checked_shr(64_u32.wrapping_sub(above))
            .unwrap_or_default();
        (of(word) << above | below).reverse_bits()
    }

    /// Clears the marks of `first` to `last`. Returns the number of words touched, at most 17.
    pub(crate) fn clear(&mut self, first: u64, last: u64) -> u32 {
        if last.saturating_sub(first) >= Self::LEN {
            self.words = [0; WORDS];
            return 16;
        }
        let ((first_word, first_bit), (last_word, last_bit)) = (place(first), place(last));
        let from_first = !first_bit.wrapping_sub(1);
        let to_last = last_bit | last_bit.wrapping_sub(1);
        // Equal words mean a range inside one word, or around the whole ring.
        if first_word == last_word && first_bit <= last_bit {
            self.clear_bits(first_word, from_first & to_last);
            return 1;
        }
        self.clear_bits(first_word, from_first);
        let (mut word, mut touched) = (first_word.wrapping_add(1) % WORDS, 2_u32);
        while word != last_word {
            self.clear_bits(word, u64::MAX);
            word = word.wrapping_add(1) % WORDS;
            touched = touched.saturating_add(1);
        }
        self.clear_bits(last_word, to_last);
        touched
    }

    /// Clears the bits of `mask` in one word.
    fn clear_bits(&mut self, word: usize, mask: u64) {
        if let Some(word) = self.words.get_mut(word) {
            *word &= !mask;
        }
    }
}

/// Word and bit of `number`.
const fn place(number: u64) -> (usize, u64) {
    let [.., high, low] = number.to_be_bytes();
    let index = u16::from_be_bytes([high, low]) % 1_024;
    ((index / 64) as usize, 1 << (index % 64))
}

/// 64-bit words of the ring.
const WORDS: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_bits_one_by_one_and_touches_17_words_at_most(
            start in prop_oneof![Just(2_000_u64), Just((1 << 32) - 7), Just(u64::MAX - 90_000)],
            steps in prop::collection::vec((0_u64..1_300, 0_u64..1_300, any::<bool>()), 1..60),
        ) {
            let mut marks = Marks::new();
            let mut model = [false; 1_024];
            let at = |number: u64| usize::try_from(number % 1_024).unwrap();
            for (from, len, is_set) in steps {
                let range = start + from..=start + from + len;
                if is_set {
                    for number in range.step_by(3) {
                        marks.set(number);
                        model[at(number)] = true;
                    }
                } else {
                    let touched = marks.clear(*range.start(), *range.end());
                    prop_assert!((1..=17).contains(&touched), "{touched}");
                    range.for_each(|number| model[at(number)] = false);
                }
                for number in start..start + 1_024 {
                    prop_assert_eq!(marks.contains(number), model[at(number)]);
                }
                let word = marks.downwards(start + from);
                for below in 0..64 {
                    prop_assert_eq!(word >> below & 1 == 1, model[at(start + from - below)]);
                }
            }
        }
    }

    #[test]
    fn the_most_expensive_range_takes_17_words() {
        let mut marks = Marks::new();
        assert_eq!(marks.clear(65, 65 + 1_023), 17);
        assert_eq!(marks.clear(0, u64::MAX), 16);
        assert_eq!(marks.clear(64, 127), 1);
    }
}
