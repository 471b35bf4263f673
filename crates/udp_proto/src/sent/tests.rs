//! Acknowledgement, loss and timers of a sender alone; `pipe` connects it to a receiver.

mod pipe;

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::Mtu;
use crate::frame::AckFrame;
use crate::received::{Received, Written};

/// A sender that sends 100-byte packets, each holding its own number.
struct Sender {
    sent: SentPackets<u64>,
    rtt: RttEstimator,
    reported: Vec<(u64, Outcome)>,
    ack_packet: u64,
}

impl Sender {
    fn new(first: u64) -> Self {
        Self {
            sent: SentPackets::new(number(first)),
            rtt: RttEstimator::new(Duration::from_millis(25)),
            reported: Vec::new(),
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
            kind: if number.get().is_multiple_of(2) {
                SentKind::Other
            } else {
                SentKind::Unreliable(1)
            },
            described: None,
            untracked_frames: 0,
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
            self.reported.push((content, outcome));
        })
    }

    fn timeout(&mut self, millis: u64) -> Timeout {
        self.sent
            .on_timeout(at(millis), &self.rtt, |content, outcome| {
                self.reported.push((content, outcome));
            })
    }

    fn reported(&mut self) -> Vec<(u64, Outcome)> {
        core::mem::take(&mut self.reported)
    }
}

fn number(value: u64) -> PacketNumber {
    PacketNumber::new(value).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn acked_and_lost_contents_are_reported_once_in_order() {
    let mut sender = Sender::new(0);
    for millis in 0..6 {
        sender.send(millis, Elicits::Ack);
    }
    assert_eq!(sender.sent.in_flight_packets(), 6);
    // 5 and 1 arrived. 0 and 2 are lost: they are 3 or more below 5. 3 and 4 are not.
    let summary = sender.ack(50, 5, 0, &[0b100]).unwrap();
    let expected = [
        (0, Outcome::Lost),
        (1, Outcome::Acked),
        (2, Outcome::Lost),
        (5, Outcome::Acked),
    ];
    assert_eq!(sender.reported(), expected);
    assert_eq!((summary.acked_packets, summary.lost_packets), (2, 2));
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(45)));
    assert_eq!(sender.sent.in_flight_packets(), 2);
    assert!(sender.sent.in_flight().eq([3, 4]));
    // A repeated ACK reports nothing new and gives no RTT sample.
    let again = sender.ack(51, 5, 0, &[0b100]).unwrap();
    assert_eq!((again.acked_packets, again.rtt_sample), (0, None));
    assert_eq!(sender.reported(), []);
}

#[test]
fn a_packet_is_lost_nine_eighths_of_a_round_trip_after_it_left() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    sender.send(8, Elicits::Ack);
    sender.ack(88, 1, 0, &[]).unwrap();
    // 90 ms after packet 0.
    assert_eq!(sender.sent.loss_deadline(), Some(at(90)));
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), Some(at(90)));
    assert_eq!(sender.timeout(89), Timeout::Checked(Summary::default()));
    sender.reported();
    assert!(matches!(sender.timeout(90), Timeout::Checked(summary) if summary.lost_packets == 1));
    assert_eq!(sender.reported(), [(0, Outcome::Lost)]);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
}

#[test]
fn a_late_ack_of_a_lost_packet_is_counted_and_adds_slack() {
    let mut sender = Sender::new(0);
    for _ in 0..30 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack(80, 20, 9, &[]).unwrap();
    sender.reported();
    // 11..=20 had arrived; now 10 arrives, ten below the previous largest.
    let summary = sender.ack(81, 21, 11, &[]).unwrap();
    assert_eq!(summary.spurious_packets, 1);
    // Its content need not be retransmitted.
    assert_eq!(
        sender.reported(),
        [(10, Outcome::Acked), (21, Outcome::Acked)]
    );
    assert_eq!(sender.sent.reorder_threshold(), 11);
}

#[test]
fn lost_packets_are_evicted_for_new_ones() {
    let mut sender = Sender::new(0);
    for _ in 0..10 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack(80, 9, 0, &[]).unwrap();
    let lost = [0, 1, 2, 3, 4, 5, 6].map(|content| (content, Outcome::Lost));
    assert_eq!(
        sender.reported(),
        [&lost[..], &[(9, Outcome::Acked)]].concat()
    );
    // 7 and 8 are in flight; 7 lost packets also use room.
    let room = sender.sent.contents_room();
    assert_eq!(room, SentPackets::<u64>::CONTENTS_MAX - 2);
    for _ in 0..room {
        sender.sent.push(70).unwrap();
    }
    assert_eq!(sender.sent.contents_room(), 0);
    assert_eq!(sender.sent.push(71), Err(ContentsFull(71)));
    sender.sent.discard();
    assert_eq!(sender.sent.contents_room(), room);
    // They arrive late, and only those in flight are reported.
    assert_eq!(sender.ack(81, 9, 9, &[]).unwrap().spurious_packets, 7);
    assert_eq!(
        sender.reported(),
        [(7, Outcome::Acked), (8, Outcome::Acked)]
    );
    assert_eq!(
        sender.sent.contents_room(),
        SentPackets::<u64>::CONTENTS_MAX
    );
}

/// An ACK covers 1,023 numbers below its largest.
#[test]
fn no_packet_is_sent_so_far_ahead_that_its_ack_misses_the_oldest() {
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
    // With one packet left above the largest acknowledged, the PTO counts from that packet.
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
fn twp_a4_acks_of_unsent_packets_are_refused_and_change_nothing() {
    let first = 1 << 32;
    let mut sender = Sender::new(first);
    for _ in 0..5 {
        sender.send(0, Elicits::Ack);
    }
    sender.sent.skip();
    for _ in 0..5 {
        sender.send(0, Elicits::Ack);
    }
    let report_false_delays: [(u64, u16, &[u8]); 6] = [
        // Not yet sent; skipped as the largest, in the run, in the bits; before the first number in
        // the run and in the bits.
        (first + 11, 0, &[]),
        (first + 5, 0, &[]),
        (first + 8, 3, &[]),
        (first + 8, 0, &[0b010]),
        (first + 3, 4, &[]),
        (first + 3, 0, &[0b100]),
    ];
    for (largest, run, bits) in report_false_delays {
        assert_eq!(
            sender.ack(50, largest, run, bits),
            Err(AckUnsent),
            "{largest} {run} {bits:?}"
        );
        assert_eq!(sender.sent.in_flight_packets(), 10);
        assert_eq!(sender.reported(), []);
    }
    sender.ack(50, first + 10, 4, &[0b1_1111]).unwrap();
    assert_eq!(sender.sent.in_flight_packets(), 0);
    assert_eq!(sender.reported().len(), 10);
}

#[test]
fn twp_a4_an_optimistic_acker_is_caught_within_2048_packets() {
    for seed in 0..50 {
        let mut generator = wire::Seed::from_number(seed).generator(0);
        let mut sender = Sender::new(0);
        let mut policy = crate::packet::SkipPolicy::new(number(0), &mut generator);
        // The attacker acknowledges all it can guess, every 100 packets.
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
fn skipped_numbers_are_recorded() {
    let mut sender = Sender::new(0);
    sender.sent.on_sent(&SentPacket {
        number: number(3),
        at: at(0),
        len: 100,
        elicits: Elicits::Ack,
        kind: SentKind::Other,
        described: None,
        untracked_frames: 0,
    });
    assert_eq!(sender.sent.next_number(), Some(number(4)));
    assert_eq!(sender.ack(1, 2, 0, &[]), Err(AckUnsent));
    assert_eq!(sender.ack(1, 3, 0, &[]).unwrap().acked_packets, 1);
}

#[test]
fn a_full_ring_declares_the_oldest_lost() {
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
    assert_eq!(sender.reported(), [(0, Outcome::Lost)]);
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
}

#[test]
fn memory_and_work_stay_bounded_for_any_acks() {
    let mut sender = Sender::new(0);
    for round in 0..5_000 {
        sender.send(round, Elicits::Ack);
    }
    assert_eq!(sender.sent.slots.len(), SentPackets::<u64>::SLOTS_MAX);
    assert!(sender.sent.slots.capacity() <= SentPackets::<u64>::SLOTS_MAX);
    // The ring grew in steps, and the first 2,952 packets were dropped.
    let summary = sender.ack(5_000, 4_999, 0, &[0xFF; 128]).unwrap();
    assert_eq!(summary.lost_packets + summary.acked_packets, 5_000);
    assert_eq!(summary.acked_packets, 1_025);
    assert_eq!(summary.slots_visited, 2_049);
    // Contents have a limit of their own, apart from packets.
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
fn a_delayed_ack_counts_while_its_number_is_unambiguous() {
    let mut sender = Sender::new(0);
    for _ in 0..10 {
        sender.send(0, Elicits::Ack);
    }
    sender.ack_packet = 5;
    sender.ack(40, 9, 1, &[]).unwrap();
    sender.reported();
    sender.ack_packet = 2;
    let summary = sender.ack(41, 7, 0, &[]).unwrap();
    assert_eq!(sender.reported(), [(7, Outcome::Acked)]);
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(41)));
    // An honest receiver never acknowledges more in an older packet than in a newer one.
    sender.ack_packet = 3;
    assert_eq!(sender.ack(42, 10, 0, &[]), Ok(Summary::default()));
}

proptest! {
    /// For any ACK: either an error that changes nothing, or each content is reported at most once,
    /// or first as lost and later as acknowledged.
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
            for (content, outcome) in sender.reported() {
                let is_late = outcome == Outcome::Acked && lost.remove(&content);
                prop_assert!(is_late || open.remove(&content), "{} is reported twice", content);
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
                let kind = if is_unreliable {
                    SentKind::Unreliable(1)
                } else {
                    SentKind::Other
                };
                flight.add(kind, 100);
            }
            prop_assert_eq!(sender.sent.flight, flight);
        }
    }
}

#[test]
fn a_confirmed_ack_is_returned() {
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
            kind: SentKind::Other,
            described: *described,
            untracked_frames: 0,
        });
    }
    // The last was not acknowledged; the one before it is the newest that was.
    let summary = sender.ack(9, 1, 1, &[]).unwrap();
    assert_eq!(summary.described, described[1]);
    assert_eq!(summary.acked_packets, 1);
    let summary = sender.ack(10, 2, 2, &[]).unwrap();
    assert_eq!(summary.described, described[2]);
}

/// One packet every 16 ms; the first is lost. Half a second later its record is dropped. Until
/// then, a late acknowledgement is recognized.
#[test]
fn lost_packets_are_remembered_for_half_a_second_and_three_ptos() {
    for late_at in [450, 570] {
        let mut sender = Sender::new(0);
        let mut spurious = 0;
        for step in 0..40_u64 {
            let now = step * 16;
            sender.send(now, Elicits::Ack);
            if step == 0 {
                continue;
            }
            // All but the first are acknowledged 10 ms later, and the first at the end.
            let is_late = now + 10 >= late_at;
            let run = u16::try_from(step - u64::from(!is_late)).unwrap();
            let summary = sender.ack(now + 10, step, run, &[]).unwrap();
            spurious += summary.spurious_packets;
            let most = if now < 600 { 40 } else { 1 };
            assert!(sender.sent.slots.len() <= most, "{step}");
        }
        // It counts as lost together with the fourth, at 58 ms at the latest.
        assert_eq!(spurious, u32::from(late_at < 558), "{late_at}");
        assert!(sender.sent.slots.capacity() <= 64);
        assert_eq!(sender.sent.lost, 0);
    }
}

/// If the RTT grows after the loss, so does the time in which a late acknowledgement is recognized.
#[test]
fn lost_packets_are_remembered_by_the_current_rtt() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    for step in 1..=4 {
        sender.send(step * 16, Elicits::Ack);
        let run = u16::try_from(step - 1).unwrap();
        sender.ack(step * 16 + 10, step, run, &[]).unwrap();
    }
    assert!(sender.reported().contains(&(0, Outcome::Lost)));
    let last = sender.send(100, Elicits::Ack);
    let summary = sender.ack(700, last, 4, &[]).unwrap();
    assert_eq!((last, summary.lost_packets), (5, 0));
    assert!(sender.rtt.pto() * 3 > Duration::from_secs(1));
    let summary = sender.ack(710, last, 5, &[]).unwrap();
    assert_eq!(summary.spurious_packets, 1);
}

/// Packets that elicit no ACK are never acknowledged: later ones replace them, and no memory grows.
#[test]
fn non_eliciting_packets_expire_without_acknowledgements() {
    let mut sender = Sender::new(0);
    for step in 0..1_000 {
        sender.send(step * 100, Elicits::Nothing);
        assert_eq!(sender.sent.slots.capacity(), 8);
    }
    let last = sender.send(200_000, Elicits::Ack);
    sender.ack(200_010, last, 0, &[]).unwrap();
    assert_eq!(sender.reported(), [(last, Outcome::Acked)]);
}

/// The path changes between a packet and its acknowledgement.
#[test]
fn a_packet_sent_before_a_path_change_gives_no_sample() {
    let mut sender = Sender::new(0);
    for millis in [0, 10, 20] {
        sender.send(millis, Elicits::Ack);
    }
    sender.ack(50, 0, 0, &[]).unwrap();
    assert_eq!(sender.rtt.latest(), Some(Duration::from_millis(50)));
    sender.sent.reset_rtt_sampling();
    sender.rtt.reset(None);
    let summary = sender.ack(60, 2, 1, &[]).unwrap();
    assert_eq!((summary.acked_packets, summary.rtt_sample), (2, None));
    assert_eq!(sender.rtt.latest(), None);
    let first = sender.send(70, Elicits::Ack);
    let summary = sender.ack(90, first, 0, &[]).unwrap();
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(20)));
}

#[test]
fn shrinking_frees_memory_that_packets_in_flight_do_not_need() {
    let mut sender = Sender::new(10);
    for _ in 0..200 {
        sender.send(0, Elicits::Ack);
    }
    // Only the last packet is acknowledged: the two below it may still arrive, the others are lost
    // and remembered.
    sender.ack(50, 209, 0, &[]).unwrap();
    assert_eq!(sender.sent.largest_acked(), Some(number(209)));
    let before = sender.sent.memory();
    assert!(before >= 200 * size_of::<Slot>(), "{before}");
    sender.sent.shrink();
    assert!(sender.sent.slots.capacity() <= 8);
    assert!(sender.sent.in_flight().eq([207, 208]));
    assert_eq!(sender.sent.next_number(), Some(number(210)));
    let after = sender.sent.memory();
    assert!(after < before && after >= 3 * size_of::<Slot>(), "{after}");
    // Both still count, and nothing else is reported.
    sender.reported();
    sender.ack(51, 209, 2, &[]).unwrap();
    let both = [207, 208].map(|number| (number, Outcome::Acked));
    assert_eq!(sender.reported(), both);
    assert_eq!(
        sender.sent.contents_room(),
        SentPackets::<u64>::CONTENTS_MAX
    );
}

#[test]
fn an_ended_session_drops_its_packets_in_flight() {
    let mut sender = Sender::new(0);
    for _ in 0..100 {
        sender.send(0, Elicits::Ack);
    }
    sender.sent.forget();
    assert_eq!(sender.sent.in_flight_packets(), 0);
    assert_eq!(sender.sent.in_flight_bytes(), InFlight::default());
    assert_eq!(sender.sent.in_flight().count(), 0);
    assert!(sender.sent.memory() < 10 * size_of::<Slot>());
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), None);
    // Numbering continues, and late acknowledgements give no sample.
    assert_eq!(sender.send(1, Elicits::Ack), 100);
    let summary = sender.ack(2, 99, 99, &[]).unwrap();
    assert_eq!((summary.acked_packets, sender.reported()), (0, vec![]));
}

#[test]
fn the_last_36_skipped_numbers_are_kept_in_memory_from_the_start() {
    let mut sender = Sender::new(0);
    assert_eq!(sender.sent.memory(), 0);
    sender.send(0, Elicits::Ack);
    let room = sender.sent.skipped.capacity();
    assert!(room >= 36);
    for _ in 0..36 * 2 {
        sender.sent.skip();
        sender.send(0, Elicits::Ack);
    }
    assert_eq!(sender.sent.skipped.len(), 36);
    assert_eq!(sender.sent.skipped.capacity(), room);
    // Both were skipped, so an ACK of either is invalid.
    assert_eq!(sender.ack(9, 144, 1, &[]), Err(AckUnsent));
    assert_eq!(sender.ack(9, 144, 0, &[0b10]), Err(AckUnsent));
    assert!(sender.ack(9, 144, 0, &[0b101]).is_ok());
}

/// More packets than the record holds, and no acknowledgement: the contents of the oldest are
/// reported as lost, and untracked frames are counted as lost.
#[test]
fn packets_evicted_from_a_full_record_count_as_lost() {
    let mut sender = Sender::new(0);
    let places = u64::try_from(SentPackets::<u64>::SLOTS_MAX).unwrap();
    for number in 0..places + 3 {
        sender.sent.push(number).unwrap();
        sender.sent.on_sent(&SentPacket {
            number: self::number(number),
            at: at(0),
            len: 100,
            elicits: Elicits::Ack,
            kind: SentKind::Unreliable(1),
            described: None,
            untracked_frames: 7,
        });
    }
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), Some(at(0)));
    let Timeout::Checked(summary) = sender.timeout(0) else {
        panic!("no probe");
    };
    assert_eq!((summary.lost_packets, summary.untracked_lost), (3, 21));
    assert_eq!(
        sender.reported(),
        [0, 1, 2].map(|number| (number, Outcome::Lost))
    );
    let summary = sender.ack(1, places + 2, 1_023, &[]).unwrap();
    assert_eq!(summary.acked_packets, 1_024);
    assert!(sender.reported().iter().all(|(number, _)| *number > 2));
}

#[test]
fn unreliable_packets_leave_room_in_the_flight() {
    let mut sender = Sender::new(0);
    let mut count = 0;
    while !sender.sent.is_full_for_unreliable() {
        let number = sender.sent.next_number().unwrap();
        sender.sent.push(number.get()).unwrap();
        sender.sent.on_sent(&SentPacket {
            number,
            at: at(0),
            len: 100,
            elicits: Elicits::Ack,
            kind: SentKind::Unreliable(1),
            described: None,
            untracked_frames: 0,
        });
        count += 1;
        assert!(count <= SentPackets::<u64>::UNRELIABLE_IN_FLIGHT_MAX);
    }
    assert_eq!(count, SentPackets::<u64>::UNRELIABLE_IN_FLIGHT_MAX);
    assert!(!sender.sent.is_full());
}

const MIN: u16 = Mtu::MIN.get();

fn send(sender: &mut Sender, millis: u64, len: u16, kind: SentKind) {
    let number = sender.sent.next_number().unwrap();
    sender.sent.push(number.get()).unwrap();
    sender.sent.on_sent(&SentPacket {
        number,
        at: at(millis),
        len,
        elicits: Elicits::Ack,
        kind,
        described: None,
        untracked_frames: 0,
    });
}

#[test]
fn only_packets_sent_after_a_reduction_grow_the_window() {
    let mut sender = Sender::new(0);
    sender.sent.set_recovery(at(10));
    for (millis, len) in [(9, 100), (10, 200), (11, 300), (12, 400)] {
        send(&mut sender, millis, len, SentKind::Bulk);
    }
    let summary = sender.ack(50, 3, 3, &[]).unwrap();
    assert_eq!((summary.acked_packets, summary.acked_bytes), (4, 700));
}

#[test]
fn packets_above_the_minimum_mtu_are_long_except_probes() {
    for (len, kind, is_long) in [
        (MIN - 1, SentKind::Bulk, false),
        (MIN, SentKind::Bulk, false),
        (MIN + 1, SentKind::Bulk, true),
        (MIN + 1, SentKind::Other, true),
        (MIN + 1, SentKind::MtuProbe, false),
        (MIN - 1, SentKind::MtuProbe, false),
    ] {
        let mut sender = Sender::new(0);
        // The first two are lost; the third and a short one arrive.
        for _ in 0..3 {
            send(&mut sender, 0, len, kind);
        }
        send(&mut sender, 0, 100, SentKind::Other);
        sender.sent.skip();
        send(&mut sender, 9, 100, SentKind::Other);
        let summary = sender.ack(50, 5, 0, &[0b11]).unwrap();
        let long = u32::from(is_long);
        assert_eq!((summary.acked_packets, summary.long_acked), (3, long));
        assert_eq!((summary.lost_packets, summary.long_lost), (2, 2 * long));
        let reported = (kind != SentKind::MtuProbe).then_some(at(0));
        assert_eq!(
            summary.lost_sent_at, reported,
            "a lost probe does not count"
        );
    }
}

#[test]
fn the_newest_lost_packet_gives_the_send_time() {
    let mut sender = Sender::new(0);
    for millis in [1, 2, 3, 40, 41, 42, 43] {
        send(&mut sender, millis, 100, SentKind::Bulk);
    }
    let summary = sender.ack(60, 6, 0, &[]).unwrap();
    assert_eq!(
        (summary.lost_packets, summary.lost_sent_at),
        (4, Some(at(40)))
    );
}

#[test]
fn non_eliciting_packets_are_removed_when_acknowledged() {
    let mut sender = Sender::new(0);
    for millis in 0..10 {
        sender.send(millis, Elicits::Nothing);
    }
    sender.ack(50, 9, 9, &[]).unwrap();
    assert_eq!(sender.sent.slots.len(), 0);
}

#[test]
fn an_ack_without_new_packets_leaves_the_probe_count() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    sender.ack(50, 0, 0, &[]).unwrap();
    sender.send(60, Elicits::Ack);
    assert_eq!(sender.timeout(10_000), Timeout::Probe);
    let again = sender.ack(10_001, 0, 0, &[]).unwrap();
    assert_eq!((again.acked_packets, sender.sent.probes()), (0, 1));
    sender.ack(10_002, 1, 1, &[]).unwrap();
    assert_eq!(sender.sent.probes(), 0);
}
