//! Order of ACKs, and the reference for widening their largest number.

use crate::packet::{PacketNumber, TruncatedNumber};

/// Widens the largest number of ACKs unambiguously, whatever the delay.
///
/// The receiver's largest number only grows. So an ACK from the newest packet so far has a largest
/// number at or above the last one, and uses 2 bytes only if that is less than 2^14 above a number
/// whose acknowledgement we are known to have received (4 bytes: 2^30). The number nearest to the
/// last one is then exact. The ACK of an older packet, which may be delayed for as long as the
/// replay window allows, is widened only if the acknowledged number has advanced by less than 2^14
/// since. Otherwise it is ignored; later ACKs cover the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckReference {
    /// The newest packet that carried an ACK.
    newest: Mark,
    /// An earlier one, less than 2^13 acknowledged numbers before `newest`.
    middle: Mark,
    /// The former `middle`.
    oldest: Mark,
}

/// The largest acknowledged number as of one packet of the peer.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// `None` sorts before all packets.
    packet: Option<PacketNumber>,
    /// The number after the largest acknowledged.
    expected: PacketNumber,
}

impl AckReference {
    /// Starts with nothing acknowledged and numbers from `first`.
    pub(super) const fn new(first: PacketNumber) -> Self {
        let start = Mark {
            packet: None,
            expected: first,
        };
        Self {
            newest: start,
            middle: start,
            oldest: start,
        }
    }

    /// Returns the largest number of an ACK; `None` if it is ambiguous.
    pub(super) fn widen(&self, packet: PacketNumber, low: TruncatedNumber) -> Option<PacketNumber> {
        let number = self.newest.expected.widen(low);
        if Some(packet) > self.newest.packet {
            return Some(number);
        }
        let certain = [self.middle, self.oldest].into_iter().any(|mark| {
            Some(packet) > mark.packet
                && self.newest.expected.distance_from(mark.expected) < CERTAIN
        });
        (certain && number < self.newest.expected).then_some(number)
    }

    /// Records a valid ACK.
    pub(super) fn advance(&mut self, packet: PacketNumber, largest: PacketNumber) {
        if Some(packet) <= self.newest.packet {
            return;
        }
        let after = largest.next().unwrap_or(largest);
        self.newest = Mark {
            packet: Some(packet),
            expected: after.max(self.newest.expected),
        };
        let moved = self.newest.expected.distance_from(self.middle.expected);
        if moved >= CERTAIN / 2 {
            self.oldest = self.middle;
            self.middle = self.newest;
        }
    }
}

/// Numbers that 2 bytes distinguish with a margin.
const CERTAIN: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Form;

    fn number(value: u64) -> PacketNumber {
        PacketNumber::new(value).unwrap()
    }

    proptest! {
        /// ACKs arrive in any order and with any delay; widened numbers are exact.
        #[test]
        fn twp_a1_no_held_back_ack_reads_as_another_number(
            start in prop_oneof![Just(0), Just((1_u64 << 32) - 9_000), Just(1_u64 << 61)],
            steps in prop::collection::vec((0_u64..16_384, 0_usize..600), 1..300),
        ) {
            let mut reference = AckReference::new(number(start));
            let mut held: Vec<(u64, u64, TruncatedNumber)> = Vec::new();
            let (mut largest, mut known) = (start, start);
            for (packet, (step, pick)) in steps.into_iter().enumerate() {
                // The receiver's rule; `known` is the largest number that we have processed.
                largest += if pick % 2 == 0 { step * 3 } else { step / 64 };
                let form = number(largest).form_after(number(known)).unwrap();
                held.push((packet as u64, largest, number(largest).truncate(form)));
                // A third of the ACKs is delayed until drawn.
                let (packet, truth, low) = match step % 3 {
                    0 => continue,
                    1 => held.swap_remove(pick % held.len()),
                    _ => held.swap_remove(held.len() - 1),
                };
                if let Some(widened) = reference.widen(number(packet), low) {
                    prop_assert_eq!(widened, number(truth));
                    reference.advance(number(packet), widened);
                    known = known.max(truth);
                }
            }
        }
    }

    #[test]
    fn a_recent_older_ack_counts_and_an_ancient_one_does_not() {
        let mut reference = AckReference::new(PacketNumber::ZERO);
        let low = |value: u64| number(value).truncate(Form::Two);
        reference.advance(number(5), number(100));
        assert_eq!(reference.widen(number(3), low(90)), Some(number(90)));
        // An older packet cannot report more.
        assert_eq!(reference.widen(number(3), low(101)), None);
        for packet in 6..20 {
            reference.advance(number(packet), number(packet * 10_000));
        }
        // 90 below 2^16 plus 90, which is nearest to the current largest acknowledged.
        assert_eq!(reference.widen(number(3), low(90)), None);
        assert_eq!(
            reference.widen(number(20), low(190_001)),
            Some(number(190_001))
        );
    }

    #[test]
    fn certainty_ends_at_2_14_numbers_and_with_the_packet_itself() {
        let low = |value: u64| number(value).truncate(Form::Two);
        let of = |acks: &[(u64, u64)]| {
            let mut reference = AckReference::new(PacketNumber::ZERO);
            for &(packet, largest) in acks {
                reference.advance(number(packet), number(largest));
            }
            reference
        };
        // One packet carries one ACK.
        assert_eq!(of(&[(5, 100)]).widen(number(5), low(101)), None);
        assert_eq!(of(&[(5, 20_000)]).widen(number(5), low(19_990)), None);
        // 2^14 - 1 and 2^14 numbers behind the first.
        let behind = |largest| of(&[(5, largest)]).widen(number(3), low(100));
        assert_eq!(behind((1 << 14) - 2), Some(number(100)));
        assert_eq!(behind((1 << 14) - 1), None);
        // Small steps do not move the marks; a large one does.
        let small = of(&[(5, 100), (7, 5_000), (8, 6_000)]);
        assert_eq!(small.widen(number(6), low(4_000)), Some(number(4_000)));
        let great = of(&[(5, 10_000), (9, 20_000)]);
        assert_eq!(great.widen(number(7), low(15_000)), Some(number(15_000)));
    }
}
