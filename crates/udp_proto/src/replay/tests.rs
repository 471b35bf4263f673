//! The replay window.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

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
fn twp_r1_a_jump_of_any_length_clears_the_skipped_numbers() {
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

proptest! {
    #[test]
    fn agrees_with_single_bits_and_touches_17_words_at_most(
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
