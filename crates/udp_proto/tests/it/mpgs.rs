//! Defects of `MpGameServer`, each held against this crate.

use core::time::Duration;

use udp_proto::{Credentials, Event};

use crate::direct::{CLIENT, Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE, address};
use crate::rogue::Rogue;

/// S1: hello types and forged plaintext from the peer's own address do nothing to a session.
#[test]
fn mpgs_s1_plaintext_is_not_taken_into_a_session() {
    let mut line = Line::new(1);
    let (session, theirs) = line.join(1);
    line.run(300);
    let events = (line.client.events.len(), line.server.events.len());
    // What the handshake consisted of, once more, and what a message and a CLOSE look like bare.
    let mut forged: Vec<Vec<u8>> = line.record.iter().map(|(_, b)| b.clone()).collect();
    forged.push([&[0x80, 0][..], b"injected"].concat());
    forged.push(vec![0x04, 0, 1, 0]);
    for first in [0x40, 0x50, 0xC1, 0xC2, 0xC3, 0xC4, 0xC5] {
        forged.push([&[first][..], &[4; 60]].concat());
    }
    for bytes in &forged {
        line.server.take(line.now, line.client.at, bytes);
        line.client.take(line.now, line.server.at, bytes);
    }
    line.run(300);
    assert_eq!((line.client.events.len(), line.server.events.len()), events);
    assert!(line.server.messages.is_empty() && line.client.messages.is_empty());
    assert!(line.client.machine.session_stats(session).is_some());
    assert!(line.server.machine.session_stats(theirs).is_some());
}

/// S2: a HELLO from the address of a live session, even one that is good for a session of its own,
/// changes nothing of the live one.
#[test]
fn mpgs_s2_a_hello_from_the_peers_address_does_not_rekey_its_session() {
    let mut line = Line::new(2);
    let (session, _) = line.join(1);
    let other = line.token(2);
    let rogue = Rogue::new(1, &other);
    line.server.take(line.now, line.client.at, &rogue.hello);
    let answer = line.server.drain(line.now);
    assert_eq!(answer[0].bytes[0], 0xC3);
    line.client
        .machine
        .send(line.now, session, RELIABLE, b"same keys")
        .unwrap();
    line.run(100);
    assert_eq!(line.server.messages, [(RELIABLE, b"same keys".to_vec())]);
    assert_eq!(line.server.sessions().len(), 1);
}

/// S3: what is older than any window is a duplicate, not news.
#[test]
fn mpgs_s3_a_replay_after_300_or_5000_packets_is_not_delivered() {
    let mut line = Line::new(3);
    let (session, _) = line.join(1);
    let mut sent = Vec::new();
    for number in 0..5_000_u32 {
        line.client
            .machine
            .send(line.now, session, UNRELIABLE, &number.to_be_bytes())
            .unwrap();
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
            sent.push(bytes);
        }
        line.now += Duration::from_millis(1);
        for Sent { bytes, .. } in line.server.drain(line.now) {
            line.client.take(line.now, line.server.at, &bytes);
        }
        if number == 300 {
            line.server.take(line.now, line.client.at, &sent[0]);
        }
    }
    assert_eq!(line.server.messages.len(), 5_000);
    for bytes in &sent {
        line.server.take(line.now, line.client.at, bytes);
    }
    line.server.drain(line.now);
    assert_eq!(line.server.messages.len(), 5_000);
    let replayed = line.server.machine.stats().dropped_replayed;
    assert!(replayed > 5_000, "{replayed}");
}

/// S6: spoofed hellos without a token leave nothing behind.
#[test]
fn mpgs_s6_a_spoofed_hello_leaves_no_state() {
    let mut line = Line::new(4);
    let before = line.server.machine.memory();
    for number in 0..1_000 {
        let rogue = Rogue::new(number, &Credentials::Open);
        line.server.take(line.now, address(CLIENT), &rogue.hello);
        assert!(line.server.drain(line.now).is_empty());
    }
    assert_eq!(line.server.machine.session_count(), 0);
    assert_eq!(line.server.machine.memory(), before);
}

/// F1: a lost fragment is sent again with its header, and the message arrives.
#[test]
fn mpgs_f1_a_lost_fragment_arrives_when_sent_again() {
    for lost in 0..6 {
        let mut line = Line::new(5);
        let (session, _) = line.join(1);
        line.run(100);
        let message: Vec<u8> = (0..5_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        line.client
            .machine
            .send(line.now, session, RELIABLE, &message)
            .unwrap();
        let packets = line.client.drain(line.now);
        assert!(packets.len() >= 5);
        for (index, Sent { bytes, .. }) in packets.into_iter().enumerate() {
            if index != lost {
                line.server.take(line.now, line.client.at, &bytes);
            }
        }
        line.run(2_000);
        assert_eq!(line.server.messages, [(RELIABLE, message)]);
    }
}

/// F4: reliable messages keep their order, whatever is lost on the way.
#[test]
fn mpgs_f4_reliable_messages_keep_their_order() {
    let mut line = Line::new(6);
    let (session, _) = line.join(1);
    line.run(100);
    for number in 0..200_u32 {
        line.client
            .machine
            .send(line.now, session, RELIABLE, &number.to_be_bytes())
            .unwrap();
        for Sent { bytes, .. } in line.client.drain(line.now) {
            if number % 3 != 0 {
                line.server.take(line.now, line.client.at, &bytes);
            }
        }
        line.now += Duration::from_millis(1);
    }
    line.run(3_000);
    let expected: Vec<_> = (0..200_u32)
        .map(|number| (RELIABLE, number.to_be_bytes().to_vec()))
        .collect();
    assert_eq!(line.server.messages, expected);
    assert!(
        !line
            .server
            .events
            .iter()
            .any(|event| matches!(event, Event::Closed { .. }))
    );
}
