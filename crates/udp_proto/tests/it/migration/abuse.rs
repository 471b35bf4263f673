//! Strangers that know a connection id, and a peer that claims addresses.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::{Config, SessionId};
use wire::{Generator, Seed};

use crate::direct::{CLIENT, Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE, address};
use crate::hostile::unknown_address;
use crate::rogue::{Rogue, RogueSession, confirm};

/// A session of a few seconds with `forged` forged packets from elsewhere before each valid one;
/// returns what the server sent to its client.
fn play(forged: u32) -> (Line, Vec<Vec<u8>>) {
    let mut line = Line::new(41);
    let (session, theirs) = line.join(1);
    line.run(100);
    let mut generator = Seed::from_number(41).generator(9);
    let mut sent = Vec::new();
    for tick in 0..250_u32 {
        line.now += Duration::from_millis(16);
        let now = line.now;
        line.client.wake(now);
        line.server.wake(now);
        let message = tick.to_be_bytes().repeat(20);
        for channel in [UNRELIABLE, RELIABLE] {
            line.client
                .machine
                .send(now, session, channel, &message)
                .unwrap();
            line.server
                .machine
                .send(now, theirs, channel, &message)
                .unwrap();
        }
        for _ in 0..3 {
            for Sent { bytes, .. } in line.client.drain(now) {
                flood(&mut line, &mut generator, &bytes[1..5], forged);
                line.server.take(now, line.client.at, &bytes);
            }
            for Sent { to, bytes } in line.server.drain(now) {
                assert_eq!(to, line.client.at, "nobody else is sent anything");
                line.client.take(now, line.server.at, &bytes);
                sent.push(bytes);
            }
        }
    }
    (line, sent)
}

fn flood(line: &mut Line, generator: &mut Generator, cid: &[u8], count: u32) {
    for number in 0..count {
        let mut packet = vec![0; 60];
        generator.fill(&mut packet);
        packet[0] = 0x40;
        packet[1..5].copy_from_slice(cid);
        line.server.take(line.now, unknown_address(number), &packet);
    }
}

#[test]
fn twp_f2_a_flood_on_a_known_connection_id_leaves_the_path_unchanged() {
    let (quiet, without) = play(0);
    let (flooded, with) = play(100);
    assert_eq!(with, without, "byte for byte");
    assert_eq!(flooded.server.messages, quiet.server.messages);
    assert_eq!(flooded.client.messages.len(), 500);
    let stats = flooded.server.machine.stats();
    assert!(stats.dropped_off_path > 20_000, "{stats:?}");
    // 4 s of 32, and a burst of as many.
    let opened = stats.dropped_forged + stats.dropped_replayed;
    assert!((60..=32 + 4 * 32).contains(&opened), "{stats:?}");
}

/// A session with a hand-written client that may send anything from any address.
fn rogue_session(line: &mut Line) -> (RogueSession, SessionId) {
    let mut rogue = Rogue::new(5, &line.token(1));
    line.server.take(line.now, address(CLIENT), &rogue.hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    let mut session = rogue.accept(&accept);
    let first = session.packet(&confirm(&Config::default()));
    line.server.take(line.now, address(CLIENT), &first);
    line.server.drain(line.now);
    // Acknowledges packet 0, which validates the address.
    let ack = session.packet(&[0x02, 0, 0, 0xFF, 0xFF, 0, 0]);
    line.server.take(line.now, address(CLIENT), &ack);
    line.server.drain(line.now);
    (session, line.server.sessions()[0])
}

/// A PING, padded to `len` bytes.
fn ping(len: usize) -> Vec<u8> {
    let mut plaintext = vec![0x00; len];
    plaintext[0] = 0x01;
    plaintext
}

/// Sends 10,000 packets from the addresses of `claim`. Returns the bytes sent to other addresses
/// than the session's, the bytes received, and the peak memory of the server.
fn claim(line: &mut Line, claim: impl Fn(u32) -> SocketAddr) -> (usize, usize, usize) {
    let (mut rogue, theirs) = rogue_session(line);
    let (mut came, mut sent, mut most) = (0, 0, 0);
    for number in 0..10_000 {
        line.now += Duration::from_millis(1);
        line.server.wake(line.now);
        let packet = rogue.packet(&ping(40));
        came += packet.len();
        line.server.take(line.now, claim(number), &packet);
        for datagram in line.server.drain(line.now) {
            if datagram.to != address(CLIENT) {
                sent += datagram.bytes.len();
            }
        }
        most = most.max(line.server.machine.memory());
    }
    let at = line.server.machine.peer_address(theirs);
    assert_eq!(at, Some(address(CLIENT)));
    (sent, came, most)
}

#[test]
fn ten_thousand_claimed_addresses_cost_one_candidate_and_no_amplification() {
    let (_, _, honest) = claim(&mut Line::new(42), |_| address(CLIENT));
    let mut line = Line::new(42);
    let (sent, came, most) = claim(&mut line, unknown_address);
    assert!(sent > 0 && sent <= came / 10, "{sent} for {came}");
    // Unacknowledged challenges stay recorded with the packets after them: 1,024 packets.
    assert!(most <= honest + (64 << 10), "{most} beside {honest}");
    let stats = line.server.machine.stats();
    assert!(stats.dropped_off_path > 9_000, "{stats:?}");
}

/// Only a peer that received packets at an address can claim it: a session moves only with the
/// right token from the challenged address.
#[test]
fn only_the_challenged_address_moves_a_session_with_the_token() {
    let mut line = Line::new(43);
    let (mut rogue, theirs) = rogue_session(&mut line);
    let (claimed, other) = (unknown_address(1), unknown_address(2));
    let at = |line: &Line| line.server.machine.peer_address(theirs);
    let ping = rogue.packet(&ping(60));
    line.server.take(line.now, claimed, &ping);
    let sent = line.server.drain(line.now);
    let to_claimed = sent.iter().find(|sent| sent.to == claimed).unwrap();
    let plaintext = rogue.open(&to_claimed.bytes).unwrap();
    assert_eq!((plaintext[0], plaintext.len()), (0x05, 9), "a challenge");
    let token: [u8; 8] = plaintext[1..9].try_into().unwrap();
    for guess in 0..64 {
        let mut wrong = token;
        wrong[guess / 8] ^= 1 << (guess % 8);
        let packet = rogue.packet(&[&[0x06][..], &wrong].concat());
        line.server.take(line.now, claimed, &packet);
        assert_eq!(at(&line), Some(address(CLIENT)));
    }
    let answer = [&[0x06][..], &token].concat();
    for from in [other, address(CLIENT)] {
        let packet = rogue.packet(&answer);
        line.server.take(line.now, from, &packet);
        assert_eq!(at(&line), Some(address(CLIENT)));
    }
    let packet = rogue.packet(&answer);
    line.server.take(line.now, claimed, &packet);
    assert_eq!(at(&line), Some(claimed));
}

/// A response from the current address shows that the peer has not moved.
#[test]
fn a_response_from_the_current_address_cancels_the_move() {
    let mut line = Line::new(44);
    let (mut rogue, theirs) = rogue_session(&mut line);
    let ping = rogue.packet(&ping(60));
    line.server.take(line.now, unknown_address(1), &ping);
    let mut tokens = line.server.drain(line.now).into_iter().filter_map(|sent| {
        let plaintext = rogue.open(&sent.bytes)?;
        (plaintext[0] == 0x05).then(|| (sent.to, plaintext[1..9].to_vec()))
    });
    let (first, second) = (tokens.next().unwrap(), tokens.next().unwrap());
    drop(tokens);
    let (new, old) = if first.0 == address(CLIENT) {
        (second, first)
    } else {
        (first, second)
    };
    assert_eq!(old.0, address(CLIENT), "both are asked");
    for (from, token) in [(address(CLIENT), old.1), (unknown_address(1), new.1)] {
        let packet = rogue.packet(&[&[0x06][..], &token].concat());
        line.server.take(line.now, from, &packet);
    }
    assert_eq!(
        line.server.machine.peer_address(theirs),
        Some(address(CLIENT))
    );
}

/// A late packet from another address triggers no challenge.
#[test]
fn twp_t5_an_older_packet_causes_no_migration() {
    let mut line = Line::new(45);
    let (mut rogue, theirs) = rogue_session(&mut line);
    let late: Vec<_> = (0..20).map(|_| rogue.packet(&ping(60))).collect();
    let newest = rogue.packet(&ping(60));
    line.server.take(line.now, address(CLIENT), &newest);
    for packet in late {
        line.server.take(line.now, unknown_address(1), &packet);
    }
    let sent = line.server.drain(line.now);
    assert!(
        sent.iter().all(|sent| sent.to == address(CLIENT)),
        "{sent:?}"
    );
    assert_eq!(
        line.server.machine.peer_address(theirs),
        Some(address(CLIENT))
    );
}

/// CVE-2023-49295: endless challenges do not grow a queue.
#[test]
fn a_flood_of_challenges_is_answered_two_at_a_time() {
    let mut line = Line::new(46);
    let (mut rogue, _) = rogue_session(&mut line);
    line.run(1_000);
    let before = line.server.machine.memory();
    for _ in 0..500 {
        let challenges: Vec<u8> = (0..16_u8)
            .flat_map(|number| [&[0x05][..], &[number; 8]].concat())
            .collect();
        let packet = rogue.packet(&challenges);
        line.server.take(line.now, address(CLIENT), &packet);
    }
    assert!(line.server.machine.memory() <= before);
    let answers: Vec<Vec<u8>> = line
        .server
        .drain(line.now)
        .iter()
        .filter_map(|sent| rogue.open(&sent.bytes))
        .filter(|plaintext| plaintext[0] == 0x06)
        .collect();
    assert_eq!(
        answers,
        [[[0x06, 0, 0, 0, 0, 0, 0, 0, 0], [6, 1, 1, 1, 1, 1, 1, 1, 1]].concat()]
    );
}

/// The memory of a migration is freed when it is complete.
#[test]
fn a_migrated_session_frees_its_memory() {
    let mut line = Line::with(47, Config::default(), |listen| listen);
    let (_, theirs) = line.join(1);
    line.run(3_000);
    let before = line.server.machine.memory();
    let moved = SocketAddr::new(address(CLIENT).ip(), 4_001);
    line.client.at = moved;
    line.run(5_000);
    assert_eq!(line.server.machine.peer_address(theirs), Some(moved));
    assert!(line.server.machine.memory() > before);
    line.run(70_000);
    assert_eq!(line.server.machine.memory(), before);
}

/// The same for a busy session: leftover migration state would cost time on each packet.
#[test]
fn a_busy_migrated_session_frees_its_memory() {
    let mut line = Line::with(48, Config::default(), |listen| listen);
    let (session, theirs) = line.join(1);
    let play = |line: &mut Line, ticks: u32| {
        for _ in 0..ticks {
            let now = line.now;
            let machine = &mut line.client.machine;
            machine.send(now, session, UNRELIABLE, &[7; 100]).unwrap();
            let machine = &mut line.server.machine;
            machine.send(now, theirs, UNRELIABLE, &[8; 100]).unwrap();
            line.run(16);
        }
        line.server.machine.memory()
    };
    play(&mut line, 300);
    line.client.at = SocketAddr::new(address(CLIENT).ip(), 4_001);
    let moved = play(&mut line, 2_500);
    let settled = play(&mut line, 2_500);
    // The packet record's growth after a loss stays.
    assert!(settled + 500 < moved, "{settled} {moved}");
}

/// A new address for each packet does not bypass the inbound limits.
#[test]
fn b9_a_peer_that_changes_address_keeps_its_inbound_limits() {
    let mut config = Config::default();
    config.inbound.packets = 100;
    config.inbound.packets_burst = 50;
    let mut line = Line::with(49, config, |listen| listen);
    let (mut rogue, _) = rogue_session(&mut line);
    let before = line.server.machine.stats().packets;
    for milli in 0..2_000 {
        line.now += Duration::from_millis(1);
        line.server.wake(line.now);
        for _ in 0..10 {
            let packet = rogue.packet(&ping(40));
            line.server
                .take(line.now, unknown_address(milli / 50), &packet);
        }
        line.server.drain(line.now);
    }
    let stats = line.server.machine.stats();
    let opened = stats.packets - before;
    assert!((50..=50 + 2 * 100).contains(&opened), "{opened} {stats:?}");
}

/// An attacker who reads packets and forges the source knows the connection id. His packets do not
/// open, and take nothing of the player's limit until they exceed sixteen times that limit.
#[test]
fn twp_f2_forged_packets_use_none_of_the_sessions_limits() {
    for each_tick in [10, 130] {
        let mut line = Line::with(50, Config::for_server(), |listen| listen);
        let (session, _) = line.join(1);
        line.run(500);
        let seen = line.record.iter().rev().find(|(is_client, _)| *is_client);
        let header = seen.unwrap().1[..5].to_vec();
        let mut draws = Seed::from_number(50).generator(1);
        let before = line.server.messages.len();
        for _ in 0..1_000 {
            let mut forged = || {
                let mut packet = header.clone();
                packet.resize(27, 0);
                draws.fill(&mut packet[5..]);
                packet
            };
            for _ in 0..each_tick {
                let packet = forged();
                line.server.take(line.now, line.client.at, &packet);
            }
            let now = line.now;
            let machine = &mut line.client.machine;
            machine.send(now, session, UNRELIABLE, &[7; 100]).unwrap();
            line.run(16);
        }
        assert_eq!(line.server.messages.len() - before, 1_000, "{each_tick}");
        assert_eq!(line.server.closes(), []);
        let stats = line.server.machine.stats();
        assert!(stats.dropped_forged > 1_000, "{stats:?}");
    }
}
