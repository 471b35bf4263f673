//! Faults of other stacks, each checked here; the references are public advisories and fixes.

use core::time::Duration;

use netsim::provider::{NonceLog, Recording, SimProvider};
use udp_proto::fragment::FRAGMENT_LEN;
use udp_proto::{CloseCode, CloseReason, Config};
use wire::Seed;

use crate::authenticated::{Scenario, fragment};
use crate::direct::{CLIENT, Line, Party, UNIX, again};
use crate::harness::{INSTANCE, RELIABLE, SERVER, UNRELIABLE, address};
use crate::hostile::unknown_address;

/// renet 2a5080d: a full slice with an index beyond its count, on an unreliable channel, crashed
/// the server.
#[test]
fn renet_a_slice_past_its_count_ends_its_session_and_no_other() {
    for (index, count) in [
        (2, 2),
        (16, 16),
        (u16::MAX, 2),
        (1, 1),
        (0, 0),
        (0, u16::MAX),
    ] {
        let mut scenario = Scenario::open_with(1, Config::default());
        let (_, other) = scenario.line.join(2);
        scenario.line.server.events.clear();
        scenario.send_plaintext(&fragment(0, 7, (index, count), &[5; FRAGMENT_LEN]));
        let reason = CloseReason::Local(CloseCode::Fragment);
        assert_eq!(scenario.server().closes(), [reason], "{index} of {count}");
        assert!(scenario.server().machine.session_stats(other).is_some());
        assert!(scenario.server().messages.is_empty());
    }
}

/// netcode up to 1.3.5: a restarted server counted its nonces from 0 under the keys of a reused
/// token.
#[test]
fn netcode_a_restart_with_the_same_token_repeats_no_nonce() {
    let log = NonceLog::default();
    let seed = Seed::from_number(2);
    let mut count = 0;
    let mut provider = || {
        count += 1;
        Recording::new(SimProvider::new(seed.generator(count).seed()), &log)
    };
    let ends = (provider(), provider());
    let mut line = Line::between(seed, Config::default(), |listen| listen, ends);
    let credentials = line.token(1);
    for round in 0..4 {
        let session = line.client.dial(line.now, &line.keys, again(&credentials));
        line.run(100);
        let taken = line.client.sessions().contains(&session);
        assert!(taken, "round {round}");
        for _ in 0..50 {
            let (now, machine) = (line.now, &mut line.client.machine);
            machine.send(now, session, RELIABLE, &[1; 30]).unwrap();
            line.run(5);
        }
        // Another process with the same key and name; both clients have the same token.
        let (now, keys) = (line.now, &line.keys);
        line.server = Party::server(Config::default(), keys, provider(), |listen| listen);
        line.server.machine.set_unix_time(now, UNIX);
        line.client = Party::new(CLIENT, Config::default(), provider());
    }
    assert!(log.sealed() > 240, "{}", log.sealed());
    assert_eq!(log.reuses(), []);
}

/// quinn-proto RUSTSEC-2026-0185: out-of-order data was buffered without a bound. A peer sends
/// every fragment but the first, of as many messages as allowed.
#[test]
fn quinn_out_of_order_data_is_bounded_by_the_window() {
    let config = Config::for_server();
    let window = usize::try_from(config.receive_window).unwrap();
    let mut scenario = Scenario::open_with(3, config);
    let before = scenario.server().machine.memory();
    let (mut most, mut sent) = (0, 0);
    'flood: for id in 0..1_024 {
        for index in (1..58).rev() {
            scenario.line.now += Duration::from_millis(5);
            scenario.send_plaintext(&fragment(1, id, (index, 58), &[5; FRAGMENT_LEN]));
            sent += FRAGMENT_LEN;
            let held = scenario.server().machine.memory() - before;
            most = most.max(held);
            assert!(held <= 2 * window, "{held} of {sent}");
            if scenario.end().is_some() {
                break 'flood;
            }
        }
    }
    assert_eq!(scenario.end(), Some(CloseReason::Local(CloseCode::Flow)));
    assert!(sent > window && most > window / 2, "{most} of {sent}");
}

/// quiche before 0.24.4, CVE-2025-4820: acknowledging unsent packets raised the send rate.
#[test]
fn quiche_an_acknowledgement_of_an_unsent_packet_ends_the_session() {
    for ack in [
        &[0x02, 0x3F, 0xFF, 0, 0, 0, 0][..],
        &[0x03, 0, 0, 0x80, 0, 0, 0, 0xFF, 0x07, 0],
        // A sent packet, and below it an unsent one.
        &[0x02, 0, 0, 0, 0, 0, 1, 0x80],
    ] {
        let mut scenario = Scenario::open_with(4, Config::default());
        let theirs = scenario.server().sessions()[0];
        let before = scenario.server().machine.session_stats(theirs).unwrap();
        scenario.send_plaintext(ack);
        let code = CloseReason::Local(CloseCode::AckUnsent);
        assert_eq!(scenario.end(), Some(code), "{ack:02x?}");
        assert!(before.packets_acknowledged <= before.packets_sent);
    }
}

/// `RakNet` issue 102: one ACK range, even from a stranger, made the receiver count to 2^32.
#[test]
fn raknet_no_range_of_an_ack_is_longer_than_the_window() {
    let ack = |largest: u32, run: [u8; 2], bits: usize| {
        let len = u8::try_from(bits).unwrap();
        let head = [&[0x03][..], &largest.to_be_bytes(), &[0, 0], &run, &[len]].concat();
        [head, vec![0xFF; bits]].concat()
    };
    // A run of 16,383, of 1,024; more bits than allowed; the maximum allowed.
    for (frame, code) in [
        (ack(0xFFFF, [0xFF, 0x7F], 0), CloseCode::Frame),
        (ack(0xFFFF, [0x80, 0x08], 0), CloseCode::Frame),
        (ack(0xFFFF, [0xFF, 0x07], 129), CloseCode::Frame),
        (ack(u32::MAX, [0xFF, 0x07], 128), CloseCode::AckUnsent),
    ] {
        let mut scenario = Scenario::open_with(5, Config::default());
        scenario.send_plaintext(&frame);
        assert_eq!(
            scenario.end(),
            Some(CloseReason::Local(code)),
            "{frame:02x?}"
        );
        // Without the keys it is not parsed at all.
        let mut line = Line::new(5);
        let (_, theirs) = line.join(1);
        let memory = line.server.machine.memory();
        line.server.take(line.now, line.client.at, &frame);
        assert!(line.server.drain(line.now).is_empty());
        assert_eq!(line.server.machine.memory(), memory);
        assert!(line.server.machine.session_stats(theirs).is_some());
    }
}

/// `GnuTLS` work item 1839 and reliable f0e3be1: fragments of two messages were combined into one.
#[test]
fn gnutls_fragments_of_two_messages_never_become_one() {
    let (whole, end) = ([1; FRAGMENT_LEN], [2; 10]);
    for channel in [0, 1] {
        let mut scenario = Scenario::open_with(6, Config::default());
        scenario.send_plaintext(&fragment(channel, 0, (0, 2), &whole));
        scenario.send_plaintext(&fragment(channel, 1, (1, 2), &end));
        assert!(scenario.server().messages.is_empty() && scenario.end().is_none());
        // The same number with another count.
        scenario.send_plaintext(&fragment(channel, 0, (2, 3), &end));
        assert_eq!(
            scenario.end(),
            Some(CloseReason::Local(CloseCode::Fragment))
        );
        assert!(scenario.server().messages.is_empty());
    }
}

/// `WireGuard` CVE-2021-46873: a handshake from a clock that ran ahead blocked later ones.
#[test]
fn wireguard_a_token_from_the_future_blocks_no_other_player() {
    let mut line = Line::new(7);
    for hours in [1, 24 * 365 * 100] {
        let issued = UNIX + Duration::from_hours(hours);
        let expires = issued + Duration::from_secs(60);
        let place = (INSTANCE, address(SERVER));
        let early = line.keys.token_for(issued, expires, 1, place);
        line.client.dial(line.now, &line.keys, early);
        line.run(11_000);
        assert!(line.server.events.is_empty());
    }
    line.join(2);
    // The server's own clock ran ahead and is corrected; tokens used in between are forgotten.
    let unix = UNIX + line.now.saturating_since(crate::direct::START);
    let ahead = unix + Duration::from_hours(24);
    line.server.machine.set_unix_time(line.now, ahead);
    line.run(1_000);
    line.server.machine.set_unix_time(line.now, unix);
    let (session, _) = line.join(1);
    let (now, machine) = (line.now, &mut line.client.machine);
    machine.send(now, session, UNRELIABLE, b"in").unwrap();
    line.run(100);
    assert_eq!(line.server.messages.len(), 1);
}

/// netcode issue 84: an attacker with a copied token could use it up before its owner.
#[test]
fn netcode_84_a_copied_token_still_opens_for_its_owner() {
    let mut line = Line::new(8);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    for number in 0..20 {
        line.server.take(line.now, unknown_address(number), &hello);
        // He may even answer a RETRY, because his addresses are real.
        for answer in line.server.drain(line.now) {
            if answer.bytes[0] == 0xC2 {
                let mut again = hello.clone();
                again[101] = 32;
                again[102..134].copy_from_slice(&answer.bytes[13..45]);
                line.server.take(line.now, answer.to, &again);
                line.server.drain(line.now);
            }
        }
    }
    let start = line.now;
    line.server.take(line.now, line.client.at, &hello);
    while line.client.sessions().is_empty() {
        line.run(10);
        assert!(line.now < start + Duration::from_millis(600));
    }
    assert_eq!(line.client.sessions(), [session]);
    assert_eq!(line.server.sessions().len(), 1);
}
