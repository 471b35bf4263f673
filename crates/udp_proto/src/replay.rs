//! The replay window.

use crate::marks::Marks;
use crate::packet::PacketNumber;

/// Which of the newest 1,024 packet numbers were received; older ones count as received.
///
/// A ring of 1,024 bits as in RFC 6479. Unlike there, exactly the bits between the old and the new
/// largest are cleared, so the window needs no spare word. Each call touches at most 17 words.
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

    /// Returns the number expected next, the reference for truncated numbers.
    ///
    /// `first` is the direction's first number.
    #[must_use]
    pub fn expected(&self, first: PacketNumber) -> PacketNumber {
        self.largest
            .map_or(first, |largest| largest.next().unwrap_or(largest))
    }

    /// Returns the marks of `number`, in the lowest bit, and the 63 below it; all must lie in the
    /// window.
    pub(crate) fn downwards(&self, number: PacketNumber) -> u64 {
        self.marks.downwards(number.get())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A model: the set of all numbers.
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
