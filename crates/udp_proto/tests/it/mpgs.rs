//! Defects of `MpGameServer`, each checked against this crate.

use core::time::Duration;

use netsim::provider::{Counting, Counts, NonceLog, Recording, SimProvider};
use netsim::{Chance, LinkConfig, Loss};
use udp_proto::{Config, Credentials, Event, Listen, Message, MessageId, MessageOutcome};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, START, Sent, UNIX, without_rate_limits};
use crate::harness::{Keys, RELIABLE, Testbed, UNRELIABLE, address};
use crate::outcomes::reported;
use crate::rogue::Rogue;

/// S1: HELLOs and forged plaintext from the peer's own address do not affect a session.
#[test]
fn mpgs_s1_plaintext_is_not_accepted_into_a_session() {
    let mut line = Line::new(1);
    let (session, theirs) = line.join(1);
    line.run(300);
    let events = (line.client.events.len(), line.server.events.len());
    // The handshake's datagrams again, and a message and a CLOSE in plaintext.
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

/// S2: a HELLO from the address of a live session does not change that session, even if it opens
/// one of its own.
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

/// S3: a packet older than the window is rejected as a duplicate.
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

/// S4: a nonce is the packet number under a key per direction, not the wall clock's second: 70,000
/// packets each way within one second, while that clock is set back and forth.
#[test]
fn mpgs_s4_no_nonce_repeats_in_70_000_packets_under_any_clock() {
    let log = NonceLog::default();
    let seed = Seed::from_number(7);
    let provider = |number| Recording::new(SimProvider::new(seed.generator(number).seed()), &log);
    let ends = (provider(1), provider(2));
    let mut line = Line::between(seed, without_rate_limits(), |listen| listen, ends);
    let (ours, theirs) = line.join(1);
    let before = log.sealed();
    for number in 0..70_000_u32 {
        let unix = UNIX + Duration::from_secs([0, 60, 1][number as usize % 3]);
        for (endpoint, session) in [(&mut line.client, ours), (&mut line.server, theirs)] {
            endpoint.machine.set_unix_time(line.now, unix);
            endpoint
                .machine
                .send(line.now, session, UNRELIABLE, &number.to_be_bytes())
                .unwrap();
        }
        line.settle();
        line.record.clear();
        line.now += Duration::from_micros(14);
    }
    assert!(line.now < START + Duration::from_secs(1));
    assert_eq!(line.server.messages.len(), 70_000);
    assert!(log.sealed() - before >= 140_000, "{}", log.sealed());
    assert_eq!(log.reuses(), []);
}

/// S5: the signature covers both keys and the HELLO, so an ACCEPT for another client connects
/// nobody.
#[test]
fn mpgs_s5_an_accept_of_another_handshake_is_rejected() {
    let mut line = Line::new(8);
    line.join(1);
    let recorded = line
        .record
        .iter()
        .find(|(is_up, bytes)| !is_up && bytes[0] == 0xC3);
    let recorded = recorded.unwrap().1.clone();
    let credentials = line.token(2);
    let mut other = Party::new(
        "203.0.113.10:4000",
        Config::default(),
        SimProvider::new(Seed::from_number(80)),
    );
    other.dial(line.now, &line.keys, credentials);
    let hello = other.drain(line.now).remove(0).bytes;
    // Unchanged, and with the hello id that the other client expects.
    let mut fitting = recorded.clone();
    fitting[5..13].copy_from_slice(&hello[17..25]);
    for bytes in [&recorded, &fitting] {
        other.take(line.now, line.server.at, bytes);
        // At most it retransmits its HELLO.
        let sent = other.drain(line.now);
        assert!(sent.iter().all(|sent| sent.bytes == hello) && sent.len() <= 1);
        assert!(other.events.is_empty());
    }
    assert_eq!(other.machine.stats().dropped_reply, 2);
    // The real answer still connects it.
    line.server.take(line.now, other.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    other.take(line.now, line.server.at, &accept);
    other.drain(line.now);
    assert_eq!(other.sessions().len(), 1);
}

/// S6: spoofed HELLOs without a token leave no state.
#[test]
fn mpgs_s6_a_spoofed_hello_leaves_no_state() {
    let mut line = Line::new(4);
    let before = line.server.machine.memory();
    let mut answers = 0;
    for number in 0..1_000 {
        let rogue = Rogue::new(number, &Credentials::Open);
        line.server.take(line.now, address(CLIENT), &rogue.hello);
        let sent = line.server.drain(line.now);
        assert!(sent.iter().all(|sent| sent.bytes.len() == 31), "a REFUSE");
        answers += sent.len();
    }
    assert_eq!(answers, 256, "within the budget of its network");
    assert_eq!(line.server.machine.session_count(), 0);
    assert_eq!(line.server.machine.memory(), before);
}

/// S7: unauthenticated data is read at fixed offsets; no length, type or nesting in it is followed.
#[test]
fn mpgs_s7_unauthenticated_bytes_reach_no_parser_and_no_memory() {
    let (seed, counts) = (Seed::from_number(9), Counts::default());
    let keys = Keys::new(seed);
    let provider = Counting::new(SimProvider::new(seed), &counts);
    let mut server = Party::server(Config::default(), &keys, provider, Listen::with_open_mode);
    let (memory, before) = (server.machine.memory(), counts.now());
    let mut sent = 0;
    for first in 0..=u8::MAX {
        // Nested lists of one; the maximum length; a text; zeros.
        for filler in [0x91, 0xFF, 0x7B, 0x00] {
            for len in [1, 23, 64, 1_200, 1_500] {
                let mut bytes = vec![filler; len];
                bytes[0] = first;
                server.take(START, address(CLIENT), &bytes);
                assert!(server.drain(START).is_empty());
                sent += 1;
            }
        }
    }
    assert!(server.events.is_empty() && server.machine.session_count() == 0);
    assert_eq!(server.machine.memory(), memory);
    assert_eq!(server.machine.stats().datagrams_received(), sent);
    let calls = counts.now() - before;
    assert_eq!((calls.hash(), calls.elliptic_curve()), (0, 0));
}

/// F1: a lost fragment is retransmitted with its header, and the message arrives.
#[test]
fn mpgs_f1_a_lost_fragment_is_retransmitted() {
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

/// F4: reliable messages keep their order under loss.
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

/// Sends `count` tracked messages; returns their ids.
fn track(line: &mut Line, session: udp_proto::SessionId, count: usize) -> Vec<MessageId> {
    let send_plaintext = |_| {
        let message = Message::new(RELIABLE, &[9; 5_000]);
        let machine = &mut line.client.machine;
        machine.send_tracked(line.now, session, &message).unwrap()
    };
    (0..count).map(send_plaintext).collect()
}

/// F2: a split message is reported once and leaves no state.
#[test]
fn mpgs_f2_a_split_message_is_reported_and_leaves_no_state() {
    let mut line = Line::new(10);
    let (session, _) = line.join(1);
    line.run(2_000);
    let mut held = Vec::new();
    for _ in 0..20 {
        let ids = track(&mut line, session, 5);
        line.run(3_000);
        let expected: Vec<_> = ids
            .into_iter()
            .map(|id| (RELIABLE, id, MessageOutcome::Delivered))
            .collect();
        assert_eq!(reported(&line.client.events), expected);
        line.client.events.clear();
        line.server.messages.clear();
        held.push(line.client.machine.memory());
    }
    // A keepalive may be in flight at the measurement.
    let least = |rounds: &[usize]| rounds.iter().min().copied();
    assert_eq!(least(&held[..10]), least(&held[10..]), "{held:?}");
}

/// F3: the outcome of a reliable message is reported once, however often it was retransmitted.
#[test]
fn mpgs_f3_a_reliable_message_is_reported_once_at_200_ms_and_half_lost() {
    let mut testbed = Testbed::new(Seed::from_number(11));
    let link = LinkConfig::default().with_delay(Duration::from_millis(100));
    testbed.world.set_default_link(link);
    let (client, session) = testbed.join(1);
    testbed.run(2_000);
    testbed
        .world
        .set_default_link(link.with_loss(Loss::Bernoulli(Chance::percent(50))));
    let mut sent = Vec::new();
    for number in 0..100_u32 {
        sent.push(testbed.world.apply(client, |host, now| {
            let bytes = number.to_be_bytes();
            let message = Message::new(RELIABLE, &bytes);
            host.machine.send_tracked(now, session, &message).unwrap()
        }));
        testbed.run(50);
    }
    testbed.world.set_default_link(link);
    testbed.run(10_000);
    let expected: Vec<_> = sent
        .into_iter()
        .map(|id| (RELIABLE, id, MessageOutcome::Delivered))
        .collect();
    let mut incoming = reported(&testbed.log(client).events);
    incoming.sort_by_key(|(_, id, _)| *id);
    assert_eq!(incoming, expected);
}

/// F5: each lost datagram of the handshake is retransmitted, the client's last one too. If one end
/// is connected, the other soon is.
#[test]
fn mpgs_f5_a_handshake_survives_the_loss_of_each_of_its_datagrams() {
    for lost in 0..6 {
        let mut line = Line::new(12);
        let credentials = line.token(1);
        line.client.dial(line.now, &line.keys, credentials);
        let end = line.now + Duration::from_secs(2);
        let mut number = 0;
        while line.now < end {
            for is_up in [true, false] {
                let (from, to) = if is_up {
                    (&mut line.client, &mut line.server)
                } else {
                    (&mut line.server, &mut line.client)
                };
                from.wake(line.now);
                for Sent { bytes, .. } in from.drain(line.now) {
                    if number != lost {
                        to.take(line.now, from.at, &bytes);
                    }
                    number += 1;
                }
            }
            line.now += Duration::from_millis(5);
        }
        line.settle();
        let opened = (line.client.sessions().len(), line.server.sessions().len());
        assert_eq!(opened, (1, 1), "datagram {lost} is lost");
        assert!(line.client.closes().is_empty() && line.server.closes().is_empty());
    }
}

/// F6: bursts before one acknowledgement are acknowledged completely.
#[test]
fn mpgs_f6_bursts_of_up_to_1_000_before_one_ack_are_all_acknowledged() {
    for burst in [34_u64, 64, 128, 1_000] {
        let mut line = Line::new(13);
        let (session, _) = line.join(1);
        line.run(500);
        let stats = |line: &Line| line.client.machine.session_stats(session).unwrap();
        let before = stats(&line);
        for number in 0..burst {
            let (now, machine) = (line.now, &mut line.client.machine);
            // Every third is unreliable, because fewer reliable ones may be in flight.
            let channel = [RELIABLE, UNRELIABLE][usize::from(number % 3 == 0)];
            machine.send(now, session, channel, &[1; 40]).unwrap();
            for Sent { bytes, .. } in line.client.drain(now) {
                line.server.take(now, line.client.at, &bytes);
            }
        }
        // The server's last datagram acknowledges all of it.
        line.now += Duration::from_millis(25);
        line.server.wake(line.now);
        let sent_text = line.server.drain(line.now);
        let Sent { bytes, .. } = sent_text.last().unwrap();
        line.client.take(line.now, line.server.at, bytes);
        let after = stats(&line);
        let sent = after.packets_sent - before.packets_sent;
        let acknowledged = after.packets_acknowledged - before.packets_acknowledged;
        assert!(sent >= burst, "{sent} of {burst}");
        assert_eq!(
            (acknowledged, after.packets_lost),
            (sent, before.packets_lost)
        );
    }
}
