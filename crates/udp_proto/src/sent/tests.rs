//! Acknowledgement, loss and timers of a sender alone; `pipe` joins it to a receiver.

mod memory;
mod pipe;
mod shrink;
mod summary;

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::frame::AckFrame;
use crate::received::{Received, Written};

/// A sender that sends 100-byte packets, each holding its own number.
struct Sender {
    sent: SentPackets<u64>,
    rtt: RttEstimator,
    told: Vec<(u64, Outcome)>,
    ack_packet: u64,
}

impl Sender {
    fn new(first: u64) -> Self {
        Self {
            sent: SentPackets::new(number(first)),
            rtt: RttEstimator::new(Duration::from_millis(25)),
            told: Vec::new(),
            ack_packet: 0,
        }
    }

    fn send(&mut self, millis: u64, elicits: Elicits) -> u64 {
        let number = self.sent.next_number().unwrap();
        if elicits == Elicits::Ack {
            self.sent.push(number.get()).unwrap();
        }
        self.sent.on_sent(&SentPacket {
            number,
            at: at(millis),
            len: 100,
            elicits,
            cargo: if number.get().is_multiple_of(2) {
                Cargo::Other
            } else {
                Cargo::Unreliable(1)
            },
            described: None,
            untold: 0,
        });
        number.get()
    }

    /// Applies an ACK of `largest`, `run` below it, and `bits` below the gap.
    fn ack(
        &mut self,
        millis: u64,
        largest: u64,
        run: u16,
        bits: &[u8],
    ) -> Result<Summary, AckUnsent> {
        self.ack_packet += 1;
        let ack = ArrivedAck {
            at: at(millis),
            packet: number(self.ack_packet),
            frame: AckFrame {
                largest: number(largest).truncate(crate::packet::Form::Four),
                delay: 0,
                run,
                bits,
            },
        };
        self.sent.on_ack(ack, &mut self.rtt, |content, outcome| {
            self.told.push((content, outcome));
        })
    }

    fn timeout(&mut self, millis: u64) -> Timeout {
        self.sent
            .on_timeout(at(millis), &self.rtt, |content, outcome| {
                self.told.push((content, outcome));
            })
    }

    fn told(&mut self) -> Vec<(u64, Outcome)> {
        core::mem::take(&mut self.told)
    }
}

fn number(value: u64) -> PacketNumber {
    PacketNumber::new(value).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn what_arrived_and_what_is_lost_is_told_once_in_order() {
    let mut sender = Sender::new(0);
    for millis in 0..6 {
        sender.send(millis, Elicits::Ack);
    }
    assert_eq!(sender.sent.in_flight_packets(), 6);
    // 5 and 1 arrived; 0 and 2 are 3 or more below, 3 and 4 are not.
    let summary = sender.ack(50, 5, 0, &[0b100]).unwrap();
    let expected = [
        (0, Outcome::Lost),
        (1, Outcome::Acked),
        (2, Outcome::Lost),
        (5, Outcome::Acked),
    ];
    assert_eq!(sender.told(), expected);
    assert_eq!((summary.acked_packets, summary.lost_packets), (2, 2));
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(45)));
    assert_eq!(sender.sent.in_flight_packets(), 2);
    assert!(sender.sent.in_flight().eq([3, 4]));
    // The same again tells nothing new, and measures nothing.
    let again = sender.ack(51, 5, 0, &[0b100]).unwrap();
    assert_eq!((again.acked_packets, again.rtt_sample), (0, None));
    assert_eq!(sender.told(), []);
}

#[test]
fn a_packet_is_lost_nine_eighths_of_a_round_trip_after_it_left() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    sender.send(8, Elicits::Ack);
    sender.ack(88, 1, 0, &[]).unwrap();
    // 90 ms after 0.
    assert_eq!(sender.sent.loss_deadline(), Some(at(90)));
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), Some(at(90)));
    assert_eq!(sender.timeout(89), Timeout::Checked(Summary::default()));
    sender.told();
    assert!(matches!(sender.timeout(90), Timeout::Checked(summary) if summary.lost_packets == 1));
    assert_eq!(sender.told(), [(0, Outcome::Lost)]);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
}

#[test]
fn a_late_ack_of_a_lost_packet_is_counted_and_makes_the_sender_patient() {
    let mut sender = Sender::new(0);
    for _ in 0..30 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack(80, 20, 9, &[]).unwrap();
    sender.told();
    // 11..=20 had arrived; now 10 does, ten below the largest of before.
    let summary = sender.ack(81, 21, 11, &[]).unwrap();
    assert_eq!(summary.spurious_packets, 1);
    // What it held need not be sent again.
    assert_eq!(sender.told(), [(10, Outcome::Acked), (21, Outcome::Acked)]);
    assert_eq!(sender.sent.reorder_threshold(), 11);
}

#[test]
fn what_was_lost_is_forgotten_where_there_is_no_room_for_what_is_sent() {
    let mut sender = Sender::new(0);
    for _ in 0..10 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack(80, 9, 0, &[]).unwrap();
    let lost = [0, 1, 2, 3, 4, 5, 6].map(|content| (content, Outcome::Lost));
    assert_eq!(sender.told(), [&lost[..], &[(9, Outcome::Acked)]].concat());
    // 7 and 8 are in flight, and 7 that are lost count as room.
    let room = sender.sent.contents_room();
    assert_eq!(room, SentPackets::<u64>::CONTENTS_MAX - 2);
    for _ in 0..room {
        sender.sent.push(70).unwrap();
    }
    assert_eq!(sender.sent.contents_room(), 0);
    assert_eq!(sender.sent.push(71), Err(ContentsFull(71)));
    sender.sent.discard();
    assert_eq!(sender.sent.contents_room(), room);
    // They come late, and only those in flight are told.
    assert_eq!(sender.ack(81, 9, 9, &[]).unwrap().spurious_packets, 7);
    assert_eq!(sender.told(), [(7, Outcome::Acked), (8, Outcome::Acked)]);
    assert_eq!(
        sender.sent.contents_room(),
        SentPackets::<u64>::CONTENTS_MAX
    );
}

/// An ACK reaches 1,023 below its largest.
#[test]
fn no_packet_leaves_whose_ack_would_not_reach_down_to_the_oldest_in_flight() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    sender.ack(1, 0, 0, &[]).unwrap();
    for _ in 0..2_000 {
        sender.send(1, Elicits::Nothing);
        assert!(!sender.sent.is_full(), "nothing is in flight");
    }
    let fill = |sender: &mut Sender| {
        for _ in 0..1_500 {
            if !sender.sent.is_full() {
                sender.send(6, Elicits::Nothing);
            }
        }
        sender.sent.next()
    };
    let oldest = sender.send(2, Elicits::Ack);
    assert_eq!(fill(&mut sender), oldest + ReplayWindow::LEN);
    sender.ack(3, oldest, 0, &[]).unwrap();
    assert!(!sender.sent.is_full());
    // With one left above the largest that was acknowledged, it counts from there.
    let (first, second) = (sender.send(4, Elicits::Ack), sender.send(4, Elicits::Ack));
    sender.ack(5, first, 0, &[]).unwrap();
    assert_eq!(fill(&mut sender), second + ReplayWindow::LEN);
}

#[test]
fn probes_double_up_to_half_a_second_and_an_ack_resets_them() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Nothing);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
    sender.send(0, Elicits::Ack);
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let due = sender.sent.poll_timeout(&sender.rtt).unwrap().as_millis();
        assert_eq!(
            sender.timeout(due - 1),
            Timeout::Checked(Summary::default())
        );
        assert_eq!(sender.timeout(due), Timeout::Probe);
        waits.push(due - now);
        now = due;
    }
    // 200 + 4 * 100 + 25.
    assert_eq!(waits, [625; 5]);
    assert_eq!(sender.sent.probes(), 5);
    assert!(sender.sent.in_flight().eq([1]));
    sender.send(now, Elicits::Ack);
    sender.ack(now + 80, 2, 1, &[]).unwrap();
    assert_eq!(sender.sent.probes(), 0);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
}

#[test]
fn twp_a4_acks_of_what_was_never_sent_are_refused_and_change_nothing() {
    let first = 1 << 32;
    let mut sender = Sender::new(first);
    for _ in 0..5 {
        sender.send(0, Elicits::Ack);
    }
    sender.sent.skip();
    for _ in 0..5 {
        sender.send(0, Elicits::Ack);
    }
    let lies: [(u64, u16, &[u8]); 6] = [
        // Not yet sent; skipped as the largest, in the run, in the bits; before the first in the
        // run and in the bits.
        (first + 11, 0, &[]),
        (first + 5, 0, &[]),
        (first + 8, 3, &[]),
        (first + 8, 0, &[0b010]),
        (first + 3, 4, &[]),
        (first + 3, 0, &[0b100]),
    ];
    for (largest, run, bits) in lies {
        assert_eq!(
            sender.ack(50, largest, run, bits),
            Err(AckUnsent),
            "{largest} {run} {bits:?}"
        );
        assert_eq!(sender.sent.in_flight_packets(), 10);
        assert_eq!(sender.told(), []);
    }
    sender.ack(50, first + 10, 4, &[0b1_1111]).unwrap();
    assert_eq!(sender.sent.in_flight_packets(), 0);
    assert_eq!(sender.told().len(), 10);
}

#[test]
fn twp_a4_an_optimistic_acker_is_caught_within_2048_packets() {
    for seed in 0..50 {
        let mut generator = wire::Seed::from_number(seed).generator(0);
        let mut sender = Sender::new(0);
        let mut policy = crate::skip::SkipPolicy::new(number(0), &mut generator);
        // It acknowledges all it can guess, every 100 packets.
        let caught = (1..=2_048_u64).find(|packets| {
            while policy.skips(sender.sent.next_number().unwrap(), &mut generator) {
                sender.sent.skip();
            }
            let largest = sender.send(*packets, Elicits::Ack);
            let run = u16::try_from(largest.min(1_023)).unwrap();
            packets % 100 == 0 && sender.ack(*packets, largest, run, &[]).is_err()
        });
        assert!(caught.is_some(), "seed {seed}");
    }
}

#[test]
fn numbers_passed_over_count_as_skipped() {
    let mut sender = Sender::new(0);
    sender.sent.on_sent(&SentPacket {
        number: number(3),
        at: at(0),
        len: 100,
        elicits: Elicits::Ack,
        cargo: Cargo::Other,
        described: None,
        untold: 0,
    });
    assert_eq!(sender.sent.next_number(), Some(number(4)));
    assert_eq!(sender.ack(1, 2, 0, &[]), Err(AckUnsent));
    assert_eq!(sender.ack(1, 3, 0, &[]).unwrap().acked_packets, 1);
}

#[test]
fn a_full_ring_gives_the_oldest_up_as_lost() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    for _ in 1..SentPackets::<u64>::SLOTS_MAX {
        sender.send(1, Elicits::Nothing);
    }
    assert_eq!(sender.sent.loss_deadline(), None);
    sender.send(1, Elicits::Nothing);
    assert_eq!(sender.sent.in_flight_packets(), 0);
    assert_eq!(sender.sent.loss_deadline(), Some(at(0)));
    assert!(matches!(sender.timeout(1), Timeout::Checked(summary) if summary.lost_packets == 1));
    assert_eq!(sender.told(), [(0, Outcome::Lost)]);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
}

#[test]
fn memory_and_work_stay_bounded_whatever_is_acked() {
    let mut sender = Sender::new(0);
    for round in 0..5_000 {
        sender.send(round, Elicits::Ack);
    }
    assert_eq!(sender.sent.slots.len(), SentPackets::<u64>::SLOTS_MAX);
    assert!(sender.sent.slots.capacity() <= SentPackets::<u64>::SLOTS_MAX);
    // The ring filled in steps and the first 2,952 were given up.
    let summary = sender.ack(5_000, 4_999, 0, &[0xFF; 128]).unwrap();
    assert_eq!(summary.lost_packets + summary.acked_packets, 5_000);
    assert_eq!(summary.acked_packets, 1_025);
    assert_eq!(summary.slots_visited, 2_049);
    // Contents are bounded apart from packets.
    let mut held = 0;
    while sender.sent.push(7).is_ok() {
        held += 1;
    }
    assert_eq!(held, SentPackets::<u64>::CONTENTS_MAX);
    assert_eq!(sender.sent.push(9), Err(ContentsFull(9)));
    sender.sent.discard();
    assert_eq!(sender.sent.push(9), Ok(()));
}

#[test]
fn rings_grow_in_steps_of_64_and_are_kept() {
    let mut sender = Sender::new(0);
    assert_eq!(sender.sent.slots.capacity(), 0);
    for _ in 0..65 {
        sender.send(0, Elicits::Ack);
    }
    assert_eq!(sender.sent.slots.capacity(), 128);
    sender.ack(1, 64, 64, &[]).unwrap();
    assert!(sender.sent.slots.is_empty());
    assert_eq!(sender.sent.slots.capacity(), 128);
}

#[test]
fn an_ack_held_back_out_of_order_still_counts_while_it_is_certain() {
    let mut sender = Sender::new(0);
    for _ in 0..10 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack_packet = 5;
    sender.ack(40, 9, 1, &[]).unwrap();
    sender.told();
    sender.ack_packet = 2;
    let summary = sender.ack(41, 7, 0, &[]).unwrap();
    assert_eq!(sender.told(), [(7, Outcome::Acked)]);
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(41)));
    // An older packet that claims more than a newer one is no honest receiver's.
    sender.ack_packet = 3;
    assert_eq!(sender.ack(42, 10, 0, &[]), Ok(Summary::default()));
}

proptest! {
    /// Any ACK at all: an error with nothing changed, or every content is told at most once; or
    /// first as lost and then, late, as acknowledged.
    #[test]
    fn twp_m3_any_ack_is_applied_or_refused(
        first in prop_oneof![Just(0), Just((1_u64 << 16) - 300), Just((1_u64 << 62) - 900)],
        steps in prop::collection::vec(
            (0_u8..8, 0_u64..64, 0_u16..80, prop::collection::vec(any::<u8>(), 0..12)), 1..120
        ),
    ) {
        let mut sender = Sender::new(first);
        let mut open = std::collections::BTreeSet::new();
        let mut lost = std::collections::BTreeSet::new();
        let mut now = 0;
        for (action, back, run, bits) in steps {
            now += back;
            match action {
                0..=3 => {
                    for _ in 0..back % 6 {
                        open.insert(sender.send(now, Elicits::Ack));
                    }
                }
                4 => sender.sent.skip(),
                5 => {
                    sender.timeout(now);
                }
                _ => {
                    let largest = (sender.sent.next() + 2).saturating_sub(back);
                    let before = sender.sent.in_flight_packets();
                    let largest = largest.min(PacketNumber::MAX.get());
                    match sender.ack(now, largest, run, &bits) {
                        Ok(summary) => prop_assert!(summary.slots_visited <= 2_049),
                        Err(AckUnsent) => {
                            prop_assert_eq!(sender.sent.in_flight_packets(), before);
                        }
                    }
                }
            }
            for (content, outcome) in sender.told() {
                let is_late = outcome == Outcome::Acked && lost.remove(&content);
                prop_assert!(is_late || open.remove(&content), "{} is told twice", content);
                if outcome == Outcome::Lost {
                    lost.insert(content);
                }
            }
            let held: usize = open.len() + sender.sent.lost;
            prop_assert!(sender.sent.lost <= lost.len());
            prop_assert_eq!(sender.sent.contents.room() + held, SentPackets::<u64>::CONTENTS_MAX);
            prop_assert_eq!(sender.sent.in_flight_packets(), open.len());
            prop_assert!(sender.sent.in_flight().eq(open.iter().copied()));
            let mut flight = Flight::EMPTY;
            for number in &open {
                let is_unreliable = number % 2 == 1;
                let cargo = if is_unreliable {
                    Cargo::Unreliable(1)
                } else {
                    Cargo::Other
                };
                flight.add(cargo, 100);
            }
            prop_assert_eq!(sender.sent.flight, flight);
        }
    }
}

#[test]
fn a_confirmed_ack_of_ours_is_handed_back() {
    let mut received = Received::new(PacketNumber::ZERO, Duration::from_millis(25));
    let mut describe = |value: u64| {
        received.on_packet(at(0), number(value), Elicits::Ack);
        match received.write_ack(at(0), 200, &mut Vec::new()) {
            Some(Written::Whole(described)) => Some(described),
            other => panic!("{other:?}"),
        }
    };
    let mut sender = Sender::new(0);
    let described: Vec<_> = (0..3).map(&mut describe).collect();
    for (index, described) in described.iter().enumerate() {
        sender.sent.on_sent(&SentPacket {
            number: number(index as u64),
            at: at(0),
            len: 100,
            elicits: if index == 1 {
                Elicits::Ack
            } else {
                Elicits::Nothing
            },
            cargo: Cargo::Other,
            described: *described,
            untold: 0,
        });
    }
    // The last was not acknowledged: the one before it is the newest that was.
    let summary = sender.ack(9, 1, 1, &[]).unwrap();
    assert_eq!(summary.described, described[1]);
    assert_eq!(summary.acked_packets, 1);
    let summary = sender.ack(10, 2, 2, &[]).unwrap();
    assert_eq!(summary.described, described[2]);
}
