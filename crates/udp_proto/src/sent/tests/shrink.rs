//! What the record keeps, and what it gives back.

use super::*;

#[test]
fn shrinking_gives_back_what_the_packets_in_flight_do_not_need() {
    let mut sender = Sender::new(10);
    for _ in 0..200 {
        sender.send(0, Elicits::Ack);
    }
    // The last one alone: the two below it may still come, the others are lost and remembered.
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
    // Both still count, and nothing else is told.
    sender.told();
    sender.ack(51, 209, 2, &[]).unwrap();
    let both = [207, 208].map(|number| (number, Outcome::Acked));
    assert_eq!(sender.told(), both);
    assert_eq!(
        sender.sent.contents_room(),
        SentPackets::<u64>::CONTENTS_MAX
    );
}

#[test]
fn a_session_that_has_ended_forgets_what_is_in_flight() {
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
    // Numbers go on, and what comes late says nothing.
    assert_eq!(sender.send(1, Elicits::Ack), 100);
    let summary = sender.ack(2, 99, 99, &[]).unwrap();
    assert_eq!((summary.acked_packets, sender.told()), (0, vec![]));
}

#[test]
fn numbers_never_sent_are_remembered_36_at_a_time_in_memory_had_from_the_start() {
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
    // The last of them and the one before are odd: an ACK of either is a lie.
    assert_eq!(sender.ack(9, 144, 1, &[]), Err(AckUnsent));
    assert_eq!(sender.ack(9, 144, 0, &[0b10]), Err(AckUnsent));
    assert!(sender.ack(9, 144, 0, &[0b101]).is_ok());
}

/// More packets than the record has places for, and no acknowledgement: what the oldest held is told of as
/// lost, and what nobody wants to hear of is counted so.
#[test]
fn what_a_full_record_pushes_out_counts_as_lost_told_or_not() {
    let mut sender = Sender::new(0);
    let places = u64::try_from(SentPackets::<u64>::SLOTS_MAX).unwrap();
    for number in 0..places + 3 {
        sender.sent.push(number).unwrap();
        sender.sent.on_sent(&SentPacket {
            number: self::number(number),
            at: at(0),
            len: 100,
            elicits: Elicits::Ack,
            cargo: Cargo::Unreliable(1),
            described: None,
            untold: 7,
        });
    }
    assert_eq!(sender.sent.poll_timeout(&sender.rtt), Some(at(0)));
    let Timeout::Checked(summary) = sender.timeout(0) else {
        panic!("no probe");
    };
    assert_eq!((summary.lost_packets, summary.untold_lost), (3, 21));
    assert_eq!(
        sender.told(),
        [0, 1, 2].map(|number| (number, Outcome::Lost))
    );
    // Told once.
    let summary = sender.ack(1, places + 2, 1_023, &[]).unwrap();
    assert_eq!(summary.acked_packets, 1_024);
    assert!(sender.told().iter().all(|(number, _)| *number > 2));
}

#[test]
fn unreliable_packets_alone_may_not_fill_the_flight() {
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
            cargo: Cargo::Unreliable(1),
            described: None,
            untold: 0,
        });
        count += 1;
        assert!(count <= SentPackets::<u64>::UNRELIABLE_IN_FLIGHT_MAX);
    }
    assert_eq!(count, SentPackets::<u64>::UNRELIABLE_IN_FLIGHT_MAX);
    assert!(!sender.sent.is_full());
}
