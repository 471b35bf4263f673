//! Window of packet numbers already accepted.

use crate::packet::PacketNumber;

/// Which of the newest 1,024 packet numbers were marked; all older ones count as seen.
///
/// A ring of 1,024 bits, the bit of a number at its low 10 bits, as in RFC 6479; unlike there the
/// bits between the old and the new largest are cleared one by one, not by the word, so the
/// window is exactly 1,024 wide with no spare word. Work per call is at most 17 words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// Bit `n % 1024` is set where `n` was marked, for the 1,024 numbers up to `largest`.
    words: [u64; WORDS],
    /// Largest number marked; `None` before the first.
    largest: Option<PacketNumber>,
}

/// How a number stands to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not marked yet.
    Fresh,
    /// Marked before.
    Duplicate,
    /// 1,024 or more below the largest: whether it was marked is forgotten.
    TooOld,
}

impl ReplayWindow {
    /// Numbers the window holds. 1,024 are half a second at 2,000 packets/s.
    pub const LEN: u64 = 1_024;

    /// Makes a window with nothing marked.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: [0; WORDS],
            largest: None,
        }
    }

    /// Marks `number`; nothing changes where it is not [`Verdict::Fresh`].
    pub fn mark(&mut self, number: PacketNumber) {
        match self.largest {
            Some(largest) if number <= largest => {
                if self.check(number) == Verdict::TooOld {
                    return;
                }
            }
            Some(largest) => {
                self.forget_above(largest, number);
                self.largest = Some(number);
            }
            None => self.largest = Some(number),
        }
        let (word, bit) = place(number);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    /// Judges `number`, without marking it.
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
        let (word, bit) = place(number);
        match self.words.get(word) {
            Some(word) if word & bit == 0 => Verdict::Fresh,
            _ => Verdict::Duplicate,
        }
    }

    /// Returns whether `number` lies in the window and was marked.
    #[must_use]
    pub fn contains(&self, number: PacketNumber) -> bool {
        self.check(number) == Verdict::Duplicate
    }

    /// Returns the largest number marked.
    #[must_use]
    pub const fn largest(&self) -> Option<PacketNumber> {
        self.largest
    }

    /// Returns the number that is next if nothing is lost: what truncated numbers are nearest to.
    ///
    /// `first` is the direction's first number.
    #[must_use]
    pub fn expected(&self, first: PacketNumber) -> PacketNumber {
        self.largest
            .map_or(first, |largest| largest.next().unwrap_or(largest))
    }

    /// Clears the bits of the numbers above `largest` up to `number`.
    fn forget_above(&mut self, largest: PacketNumber, number: PacketNumber) {
        if number.distance_from(largest) >= Self::LEN {
            self.words = [0; WORDS];
            return;
        }
        let (first_word, first_bit) = place(number_after(largest));
        let (last_word, last_bit) = place(number);
        let from_first = !(first_bit.wrapping_sub(1));
        let to_last = last_bit | last_bit.wrapping_sub(1);
        // Equal words mean either a range inside one word, or one around the whole ring.
        if first_word == last_word && first_bit <= last_bit {
            self.clear(first_word, from_first & to_last);
            return;
        }
        self.clear(first_word, from_first);
        let mut word = (first_word + 1) % WORDS;
        while word != last_word {
            self.clear(word, u64::MAX);
            word = (word + 1) % WORDS;
        }
        self.clear(last_word, to_last);
    }

    /// Clears the bits of `mask` in one word.
    fn clear(&mut self, word: usize, mask: u64) {
        if let Some(word) = self.words.get_mut(word) {
            *word &= !mask;
        }
    }
}

/// Where the bit of `number` is: word and bit in it.
const fn place(number: PacketNumber) -> (usize, u64) {
    let [.., high, low] = number.get().to_be_bytes();
    let index = u16::from_be_bytes([high, low]) % 1_024;
    ((index / 64) as usize, 1 << (index % 64))
}

/// The number after `largest`, which is below another number, so there is one.
fn number_after(largest: PacketNumber) -> PacketNumber {
    largest.next().unwrap_or(largest)
}

/// 64-bit words of the ring.
const WORDS: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The same by a set of all numbers ever marked.
    #[derive(Default)]
    struct Model {
        marked: BTreeSet<u64>,
    }

    impl Model {
        fn check(&self, number: u64) -> Verdict {
            match self.marked.last() {
                Some(&largest) if number + 1_024 <= largest => Verdict::TooOld,
                _ if self.marked.contains(&number) => Verdict::Duplicate,
                _ => Verdict::Fresh,
            }
        }
    }

    /// Steps around the largest number so far: small ones, and 2^k - 1, 2^k, 2^k + 1 both ways.
    fn step() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => -40_i64..40,
            2 => -1_100_i64..1_100,
            1 => (0_u32..62, -1_i64..=1, any::<bool>()).prop_map(|(power, near, back)| {
                let jump = (1_i64 << power) + near;
                if back { -jump } else { jump }
            }),
        ]
    }

    fn start() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just((1_u64 << 16) - 500),
            Just((1_u64 << 32) - 500),
            Just((1_u64 << 62) - 3_000),
        ]
    }

    proptest! {
        #[test]
        fn twp_r1_agrees_with_a_set(
            start in start(),
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let (mut window, mut model) = (ReplayWindow::new(), Model::default());
            for step in steps {
                let largest = window.largest().map_or(start, PacketNumber::get);
                let value = largest.saturating_add_signed(step).min(PacketNumber::MAX.get());
                let number = PacketNumber::new(value).unwrap();
                let verdict = model.check(value);
                prop_assert_eq!(window.check(number), verdict, "{}", value);
                let before = window.clone();
                window.mark(number);
                if verdict == Verdict::Fresh {
                    model.marked.insert(value);
                } else {
                    prop_assert_eq!(&window, &before);
                }
                // The edge of the window, and one packet beyond.
                let largest = window.largest().unwrap().get();
                for below in [0, 1, 63, 64, 65, 960, 961, 1_022, 1_023, 1_024, 1_025] {
                    if let Some(near) = largest.checked_sub(below) {
                        let number = PacketNumber::new(near).unwrap();
                        prop_assert_eq!(window.check(number), model.check(near), "{}", near);
                    }
                }
            }
        }
    }

    #[test]
    fn twp_r1_top_of_the_range_is_marked_once() {
        let mut window = ReplayWindow::new();
        window.mark(PacketNumber::ZERO);
        assert_eq!(window.check(PacketNumber::MAX), Verdict::Fresh);
        window.mark(PacketNumber::MAX);
        assert_eq!(window.check(PacketNumber::MAX), Verdict::Duplicate);
        assert_eq!(window.check(PacketNumber::ZERO), Verdict::TooOld);
        assert_eq!(window.expected(PacketNumber::ZERO), PacketNumber::MAX);
    }

    #[test]
    fn twp_r1_every_jump_length_clears_what_it_passes() {
        for jump in 1..=1_100_u64 {
            let mut window = ReplayWindow::new();
            for value in 0..1_024 {
                window.mark(PacketNumber::new(value).unwrap());
            }
            window.mark(PacketNumber::new(1_023 + jump).unwrap());
            for value in 0..1_023 + jump {
                let expected = match value {
                    _ if value + 1_024 <= 1_023 + jump => Verdict::TooOld,
                    0..1_024 => Verdict::Duplicate,
                    _ => Verdict::Fresh,
                };
                let number = PacketNumber::new(value).unwrap();
                assert_eq!(window.check(number), expected, "{jump} {value}");
            }
        }
    }
}
