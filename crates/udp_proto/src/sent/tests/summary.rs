//! What an acknowledgement adds up to, for whoever limits the rate and the size of packets.

use super::*;
use crate::config::Mtu;

const MIN: u16 = Mtu::MIN.get();

/// Sends a packet of `len` bytes.
fn send(sender: &mut Sender, millis: u64, len: u16, cargo: Cargo) {
    let number = sender.sent.next_number().unwrap();
    sender.sent.push(number.get()).unwrap();
    sender.sent.on_sent(&SentPacket {
        number,
        at: at(millis),
        len,
        elicits: Elicits::Ack,
        cargo,
        described: None,
        untold: 0,
    });
}

#[test]
fn only_what_was_sent_after_the_window_was_cut_opens_it_again() {
    let mut sender = Sender::new(0);
    sender.sent.set_recovery(at(10));
    for (millis, len) in [(9, 100), (10, 200), (11, 300), (12, 400)] {
        send(&mut sender, millis, len, Cargo::Bulk);
    }
    let summary = sender.ack(50, 3, 3, &[]).unwrap();
    assert_eq!((summary.acked_packets, summary.acked_bytes), (4, 700));
}

#[test]
fn long_packets_are_those_that_not_every_path_carries_and_no_probes() {
    for (len, cargo, is_long) in [
        (MIN - 1, Cargo::Bulk, false),
        (MIN, Cargo::Bulk, false),
        (MIN + 1, Cargo::Bulk, true),
        (MIN + 1, Cargo::Other, true),
        (MIN + 1, Cargo::Probe, false),
        (MIN - 1, Cargo::Probe, false),
    ] {
        let mut sender = Sender::new(0);
        // The first two are lost and the third arrives; so does a short one.
        for _ in 0..3 {
            send(&mut sender, 0, len, cargo);
        }
        send(&mut sender, 0, 100, Cargo::Other);
        sender.sent.skip();
        send(&mut sender, 9, 100, Cargo::Other);
        let summary = sender.ack(50, 5, 0, &[0b11]).unwrap();
        let long = u32::from(is_long);
        assert_eq!((summary.acked_packets, summary.long_acked), (3, long));
        assert_eq!((summary.lost_packets, summary.long_lost), (2, 2 * long));
        let told = (cargo != Cargo::Probe).then_some(at(0));
        assert_eq!(summary.lost_sent_at, told, "a lost probe says nothing");
    }
}

#[test]
fn the_last_of_what_is_lost_tells_when_it_was_sent() {
    let mut sender = Sender::new(0);
    for millis in [1, 2, 3, 40, 41, 42, 43] {
        send(&mut sender, millis, 100, Cargo::Bulk);
    }
    let summary = sender.ack(60, 6, 0, &[]).unwrap();
    assert_eq!(
        (summary.lost_packets, summary.lost_sent_at),
        (4, Some(at(40)))
    );
}

#[test]
fn packets_that_ask_for_nothing_are_forgotten_when_they_are_acknowledged() {
    let mut sender = Sender::new(0);
    for millis in 0..10 {
        sender.send(millis, Elicits::Nothing);
    }
    sender.ack(50, 9, 9, &[]).unwrap();
    assert_eq!(sender.sent.slots.len(), 0);
}

#[test]
fn an_ack_that_tells_nothing_new_leaves_the_probes_as_they_are() {
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
