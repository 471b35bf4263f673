//! ACKs compared with a set model, and when reports are dropped.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::channel::ChannelTable;
use crate::frame::Frames;

const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Room for every ACK.
const ROOM: usize = AckFrame::LEN_MAX;

fn number(value: u64) -> PacketNumber {
    PacketNumber::new(value).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn fresh() -> Received {
    Received::new(PacketNumber::ZERO, MAX_ACK_DELAY)
}

/// The numbers that an encoded ACK reports, nearest to `expected`.
fn reported(bytes: &[u8], expected: PacketNumber) -> BTreeSet<u64> {
    let table = ChannelTable::default();
    let mut frames = Frames::new(bytes, &table);
    let Some(Ok(Frame::Ack(ack))) = frames.next() else {
        panic!("{bytes:?} is no ACK");
    };
    assert_eq!(frames.next(), None);
    let largest = expected.widen(ack.largest).get();
    let set: BTreeSet<u64> = (0..=largest.min(5_000))
        .filter(|&below| ack.reports(below))
        .map(|below| largest - below)
        .collect();
    assert_eq!(set.first(), Some(&(largest - ack.lowest_below())));
    set
}

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just((1_u64 << 16) - 700),
        Just((1_u64 << 32) - 700),
        Just((1_u64 << 62) - 5_000),
    ]
}

proptest! {
    #[test]
    fn twp_a3_an_ack_reports_the_set_within_the_window(
        start in starts(),
        offsets in prop::collection::btree_set(0_u64..2_500, 1..600),
        order in any::<u64>(),
        withheld in prop_oneof![Just(0_u64), any::<u64>()],
        room in 0_usize..160,
    ) {
        let mut received = Received::new(number(start), MAX_ACK_DELAY);
        let mut arrivals: Vec<u64> = offsets.iter().map(|offset| start + offset).collect();
        let len = arrivals.len() as u64;
        // A few swaps, so that some packets arrive late.
        for swap in 0..20 {
            let a = order.rotate_left(swap) % len;
            let b = order.rotate_right(swap * 3) % len;
            arrivals.swap(usize::try_from(a).unwrap(), usize::try_from(b).unwrap());
        }
        let (mut recorded, mut unwithheld) = (BTreeSet::new(), BTreeSet::new());
        for (value, turn) in arrivals.into_iter().zip(0_u32..) {
            // A packet below the window when it arrived was not recorded.
            let is_recorded = recorded.last().is_none_or(|&largest| value + 1_024 > largest);
            if withheld.rotate_left(turn) & 5 == 5 {
                received.withhold(number(value));
            } else {
                received.on_packet(at(0), number(value), Elicits::Ack);
                unwithheld.extend(is_recorded.then_some(value));
            }
            recorded.extend(is_recorded.then_some(value));
            // No packet is accepted twice, and a withheld packet stays withheld.
            let before = received.clone();
            received.on_packet(at(0), number(value), Elicits::Ack);
            prop_assert_eq!(received.check(number(value)), before.check(number(value)));
            prop_assert_ne!(received.check(number(value)), Verdict::Fresh);
        }
        prop_assume!(!unwithheld.is_empty());
        let largest = *unwithheld.last().unwrap();
        let wanted: BTreeSet<u64> =
            unwithheld.into_iter().filter(|value| value + 1_024 > largest).collect();

        let mut cut = Vec::new();
        let written = received.clone().write_ack(at(0), room, &mut cut);
        prop_assert!(cut.len() <= room);
        prop_assert_eq!(written.is_some(), !cut.is_empty());
        prop_assert_eq!(received.fits(room), matches!(written, Some(Written::Whole(_))));
        if written.is_some() {
            let subset = reported(&cut, number(start));
            prop_assert!(subset.is_subset(&wanted));
            prop_assert_eq!(subset == wanted, written != Some(Written::Cut));
        }

        let mut out = Vec::new();
        let written = received.write_ack(at(0), ROOM, &mut out);
        prop_assert!(matches!(written, Some(Written::Whole(_))));
        prop_assert!(out.len() <= AckFrame::LEN_MAX);
        prop_assert_eq!(reported(&out, number(start)), wanted);
    }

    /// Two sides of a pipe that loses and delays ACKs and their confirmations. A received packet
    /// within the window is known to the peer or still reported.
    #[test]
    fn twp_a2_no_report_is_dropped_before_it_is_confirmed(
        start in starts(),
        steps in prop::collection::vec((0_u64..30, 0_u8..8, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut received = Received::new(number(start), MAX_ACK_DELAY);
        let mut recorded = BTreeSet::new();
        let mut known = BTreeSet::new();
        // Complete ACKs that were written and are not yet confirmed.
        let mut under_way: Vec<(BTreeSet<u64>, Described)> = Vec::new();
        let mut newest = start;
        for (step, action, pick) in steps {
            match action {
                0..=2 => {
                    newest += step;
                    received.on_packet(at(0), number(newest), Elicits::Ack);
                    recorded.insert(newest);
                }
                3..=4 => {
                    let late = newest.saturating_sub(step * 3).max(start);
                    received.on_packet(at(0), number(late), Elicits::Ack);
                    recorded.insert(late);
                }
                5..=6 => {
                    let room = if step % 4 == 0 { 9 } else { ROOM };
                    let mut out = Vec::new();
                    if let Some(Written::Whole(described)) =
                        received.write_ack(at(0), room, &mut out)
                    {
                        under_way.push((reported(&out, number(newest)), described));
                    }
                }
                _ if !under_way.is_empty() => {
                    let (set, described) = under_way.swap_remove(pick.index(under_way.len()));
                    known.extend(set);
                    received.on_confirmed(described);
                }
                _ => {}
            }
            let Some(&largest) = recorded.last() else { continue };
            let mut out = Vec::new();
            received.clone().write_ack(at(0), ROOM, &mut out);
            let reported = reported(&out, number(largest));
            prop_assert!(reported.is_subset(&recorded));
            for value in recorded.iter().filter(|&value| value + 1_024 > largest) {
                prop_assert!(
                    known.contains(value) || reported.contains(value),
                    "{} of {} is forgotten", value, largest
                );
            }
        }
    }
}

#[test]
fn an_ack_is_sent_after_the_delay_or_at_the_tenth_packet() {
    let mut received = fresh();
    assert_eq!(received.poll_timeout(), None);
    for value in 0..9 {
        received.on_packet(at(value), number(value), Elicits::Ack);
        assert!(received.wants_ack());
        assert_eq!(received.poll_timeout(), Some(at(25)));
    }
    assert!(!received.ack_due(at(24)));
    assert!(received.clone().ack_due(at(25)));
    received.on_packet(at(9), number(9), Elicits::Ack);
    assert!(received.ack_due(at(9)));
    received.write_ack(at(9), ROOM, &mut Vec::new()).unwrap();
    assert!(!received.wants_ack());
    assert_eq!(received.poll_timeout(), None);
    received.on_packet(at(10), number(10), Elicits::Ack);
    assert_eq!(received.poll_timeout(), Some(at(35)));
}

#[test]
fn a_gap_is_reported_at_once_when_it_opens_and_closes() {
    let mut received = fresh();
    received.on_packet(at(0), number(0), Elicits::Ack);
    received.on_packet(at(1), number(2), Elicits::Ack);
    assert!(received.ack_due(at(1)));
    received.write_ack(at(1), ROOM, &mut Vec::new()).unwrap();
    received.on_packet(at(2), number(1), Elicits::Ack);
    assert!(received.ack_due(at(2)));
    // The first packet does not have the first number.
    let mut received = fresh();
    received.on_packet(at(0), number(1), Elicits::Ack);
    assert!(received.ack_due(at(0)));
}

#[test]
fn twp_a5_non_eliciting_packets_cause_no_ack() {
    let mut received = fresh();
    for value in [0, 1, 5, 3, 900, 901] {
        received.on_packet(at(value), number(value), Elicits::Nothing);
        assert!(!received.wants_ack());
        assert_eq!(received.poll_timeout(), None);
    }
    received.on_packet(at(901), number(902), Elicits::Ack);
    let mut out = Vec::new();
    received.write_ack(at(902), ROOM, &mut out).unwrap();
    assert_eq!(
        reported(&out, PacketNumber::ZERO),
        BTreeSet::from([0, 1, 3, 5, 900, 901, 902])
    );
}

#[test]
fn the_plain_ack_has_seven_bytes_and_the_longest_fits_138() {
    let mut received = fresh();
    for value in 0..100 {
        received.on_packet(at(3), number(value), Elicits::Ack);
    }
    let mut out = Vec::new();
    received.write_ack(at(4), ROOM, &mut out).unwrap();
    // 1 ms are 62 units of 16 microseconds.
    assert_eq!(out, [0x02, 0, 99, 0, 62, 99, 0]);

    let first = 1 << 20;
    let mut received = fresh();
    for value in (first..first + 2_048).step_by(2) {
        received.on_packet(at(0), number(value), Elicits::Ack);
    }
    let mut out = Vec::new();
    received.write_ack(at(0), ROOM, &mut out).unwrap();
    // Type 1, largest 4, delay 2, run 1, length 1, bits 128.
    assert_eq!(out.len(), 137);
}

#[test]
fn the_rest_of_a_truncated_report_stays_due() {
    let mut received = fresh();
    for value in (0..600).step_by(2) {
        received.on_packet(at(0), number(value), Elicits::Ack);
    }
    let mut out = Vec::new();
    assert_eq!(received.write_ack(at(0), 42, &mut out), Some(Written::Cut));
    assert_eq!(out.len(), 42);
    assert_eq!(received.poll_timeout(), Some(at(25)));
    assert!(matches!(
        received.write_ack(at(25), ROOM, &mut out),
        Some(Written::Whole(_))
    ));
    assert!(!received.wants_ack());
}

#[test]
fn without_room_or_arrivals_nothing_is_written() {
    let mut out = Vec::new();
    assert_eq!(fresh().write_ack(at(0), ROOM, &mut out), None);
    let mut received = fresh();
    received.on_packet(at(0), number(0), Elicits::Ack);
    assert_eq!(received.write_ack(at(0), 6, &mut out), None);
    assert!(received.wants_ack());
    assert!(out.is_empty());
    assert!(received.write_ack(at(0), 7, &mut out).is_some());
}

#[test]
fn a_far_unconfirmed_largest_is_encoded_in_four_bytes() {
    let mut received = fresh();
    let mut out = Vec::new();
    received.on_packet(at(0), number(0x3FFF), Elicits::Ack);
    let Some(Written::Whole(described)) = received.write_ack(at(0), ROOM, &mut out) else {
        panic!("not whole");
    };
    assert_eq!(out[0], 0x02);
    received.on_packet(at(0), number(0x4000), Elicits::Ack);
    out.clear();
    received.write_ack(at(0), ROOM, &mut out);
    assert_eq!(out[0], 0x03);
    received.on_confirmed(described);
    out.clear();
    received.write_ack(at(0), ROOM, &mut out);
    assert_eq!(out[0], 0x02);
}

#[test]
fn a_reordered_older_ack_changes_nothing() {
    let mut received = fresh();
    let mut described = [1, 2].map(|value| {
        received.on_packet(at(0), number(value), Elicits::Ack);
        match received.write_ack(at(0), ROOM, &mut Vec::new()) {
            Some(Written::Whole(described)) => described,
            other => panic!("{other:?}"),
        }
    });
    for _ in 0..2 {
        let [one, other] = described;
        assert_eq!(one.newer(other).largest, number(2));
        described.reverse();
    }
}

#[test]
fn the_delay_counts_from_the_arrival_of_the_largest() {
    let mut received = fresh();
    for (millis, value, reported) in [(0, 5, 10), (10, 3, 20), (30, 6, 10)] {
        received.on_packet(at(millis), number(value), Elicits::Ack);
        let mut out = Vec::new();
        received.write_ack(at(millis + 10), ROOM, &mut out).unwrap();
        let table = ChannelTable::default();
        let Some(Ok(Frame::Ack(ack))) = Frames::new(&out, &table).next() else {
            panic!("{out:?} is no ACK");
        };
        assert_eq!(
            ack.delay(),
            Some(Duration::from_millis(reported)),
            "{value}"
        );
    }
    assert_eq!(received.largest(), Some(number(6)));
}

/// A withheld packet uses no memory once it is below the window.
#[test]
fn a_second_window_is_kept_only_while_something_in_it_is_withheld() {
    let mut received = fresh();
    received.on_packet(at(0), number(0), Elicits::Ack);
    assert_eq!(received.memory(), 0);
    received.withhold(number(1));
    assert!(received.memory() > 0);
    for value in 2..1_025 {
        received.on_packet(at(0), number(value), Elicits::Ack);
        assert!(received.memory() > 0, "{value}");
        let mut out = Vec::new();
        received.write_ack(at(0), ROOM, &mut out);
        assert!(!reported(&out, number(value)).contains(&1));
    }
    received.on_packet(at(0), number(1_025), Elicits::Ack);
    assert_eq!(received.memory(), 0);
    received.withhold(number(1_026));
    let mut out = Vec::new();
    received.write_ack(at(0), ROOM, &mut out);
    assert_eq!(
        reported(&out, number(1_026)).last(),
        Some(&1_025),
        "the largest may be withheld, too"
    );
}

#[test]
fn an_acknowledgement_is_requested_once_in_128_unconfirmed_numbers() {
    let mut received = fresh();
    let mut asked = Vec::new();
    let mut report = |received: &mut Received, value| {
        received.on_packet(at(value), number(value), Elicits::Ack);
        let written = received.write_ack(at(value), ROOM, &mut Vec::new());
        if received.asks_for_an_answer() {
            asked.push(value);
        }
        written
    };
    assert!(!fresh().asks_for_an_answer(), "nothing was reported");
    for value in 0..300 {
        report(&mut received, value);
    }
    let Some(Written::Whole(last)) = report(&mut received, 300) else {
        panic!("there was room");
    };
    received.on_confirmed(last);
    for value in 301..500 {
        report(&mut received, value);
    }
    assert_eq!(asked, [128, 256, 428]);
}

#[test]
fn the_expected_number_follows_withheld_packets_too() {
    let mut received = Received::new(number(7), MAX_ACK_DELAY);
    assert_eq!(received.expected(), number(7));
    received.on_packet(at(0), number(9), Elicits::Ack);
    assert_eq!(received.expected(), number(10));
    received.on_packet(at(0), number(8), Elicits::Ack);
    assert_eq!(received.expected(), number(10));
    received.withhold(number(12));
    assert_eq!(received.expected(), number(13));
}
