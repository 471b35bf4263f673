//! Skipped packet numbers, which expose optimistic ackers.

use wire::Generator;

use crate::packet::PacketNumber;

/// Skips one packet number at random intervals.
///
/// A peer that acknowledges packets it has not received, to raise its rate, must guess which
/// numbers do not exist (RFC 9000, section 21.4). Intervals are 64 to 1,023, so any 1,024 numbers
/// contain a skip, and the 2,048 that an ACK covers at most 33.
#[derive(Clone, Copy, Debug)]
pub struct SkipPolicy {
    /// The next number to skip.
    next: u64,
}

impl SkipPolicy {
    /// Least interval.
    pub const DISTANCE_MIN: u64 = 64;
    /// Largest interval.
    pub const DISTANCE_MAX: u64 = 1_023;

    /// Draws the first skip after `first`.
    #[must_use]
    pub fn new(first: PacketNumber, generator: &mut Generator) -> Self {
        Self {
            next: first.get().saturating_add(draw(generator)),
        }
    }

    /// Returns whether to skip `number`, the next one to use, and if so draws the next skip.
    ///
    /// Call once for each number in order, including the one after a skip.
    pub fn skips(&mut self, number: PacketNumber, generator: &mut Generator) -> bool {
        if number.get() < self.next {
            return false;
        }
        self.next = number.get().saturating_add(draw(generator));
        true
    }
}

/// Draws an interval.
fn draw(generator: &mut Generator) -> u64 {
    generator.between(SkipPolicy::DISTANCE_MIN, SkipPolicy::DISTANCE_MAX)
}

#[cfg(test)]
mod tests {
    use wire::Seed;

    use super::*;

    #[test]
    fn twp_a4_every_1024_numbers_hold_a_skip_and_skips_are_64_apart() {
        for seed in 0..20 {
            let mut generator = Seed::from_number(seed).generator(0);
            let first = PacketNumber::new((1 << 32) - 50_000).unwrap();
            let mut policy = SkipPolicy::new(first, &mut generator);
            let mut last = first.get();
            let mut distances = Vec::new();
            let mut number = first;
            for _ in 0..100_000 {
                if policy.skips(number, &mut generator) {
                    distances.push(number.get() - last);
                    last = number.get();
                }
                number = number.next().unwrap();
            }
            assert!(
                distances
                    .iter()
                    .all(|distance| (64..1_024).contains(distance))
            );
            assert!(number.get() - last < 1_024);
            // Spread over the range.
            let near = distances.iter().filter(|distance| **distance < 544).count();
            assert!((distances.len() / 3..distances.len() * 2 / 3).contains(&near));
        }
    }
}
