//! The replay window, and its ring of bits.

use crate::packet::PacketNumber;

/// Which of the newest 1,024 packet numbers were received; older ones count as received.
///
/// As in RFC 6479, but exactly the bits between the old and the new largest are cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// The 1,024 numbers up to `largest`.
    marks: Marks,
    /// Largest number received; `None` before the first.
    largest: Option<PacketNumber>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not received.
    Fresh,
    /// Already received.
    Duplicate,
    /// 1,024 or more below the largest.
    TooOld,
}

impl ReplayWindow {
    /// Width of the window. 1,024 numbers are half a second at 2,000 packets/s.
    pub const LEN: u64 = Marks::LEN;

    /// Creates an empty window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            marks: Marks::new(),
            largest: None,
        }
    }

    /// Marks `number` if it is [`Verdict::Fresh`].
    pub fn mark(&mut self, number: PacketNumber) {
        match self.largest {
            Some(largest) if number <= largest => {
                if self.check(number) == Verdict::TooOld {
                    return;
                }
            }
            Some(largest) => {
                self.marks
                    .clear(largest.get().saturating_add(1), number.get());
                self.largest = Some(number);
            }
            None => self.largest = Some(number),
        }
        self.marks.set(number.get());
    }

    /// Checks `number` without marking it.
    #[must_use]
    pub fn check(&self, number: PacketNumber) -> Verdict {
        let Some(largest) = self.largest else {
            return Verdict::Fresh;
        };
        if number > largest {
            return Verdict::Fresh;
        }
        if largest.distance_from(number) >= Self::LEN {
            return Verdict::TooOld;
        }
        if self.marks.contains(number.get()) {
            Verdict::Duplicate
        } else {
            Verdict::Fresh
        }
    }

    /// Returns the largest number marked.
    #[must_use]
    pub const fn largest(&self) -> Option<PacketNumber> {
        self.largest
    }

    /// Returns the number expected next; `first` is the direction's first.
    #[must_use]
    pub fn expected(&self, first: PacketNumber) -> PacketNumber {
        self.largest
            .map_or(first, |largest| largest.next().unwrap_or(largest))
    }

    /// Returns the marks of `number`, in the lowest bit, and the 63 below it, all in the window.
    pub(crate) fn downwards(&self, number: PacketNumber) -> u64 {
        self.marks.downwards(number.get())
    }
}

/// A ring of 1,024 bits indexed by the low 10 bits of a number, as in RFC 6479. Its user clears the
/// bits of numbers that enter the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    words: [u64; WORDS],
}

impl Marks {
    /// Numbers with a bit of their own.
    pub(crate) const LEN: u64 = 1_024;

    pub(crate) const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

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
mod tests;
