//! Blocking: by prefix, by the application, and after violations.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::{Config, Credentials, Prefix};
use wire::{Arrival, ClientId, Instant, Seed};

use crate::authenticated::Scenario;
use crate::direct::{CLIENT, Line, Party, START, UNIX, config, network};
use crate::harness::{Keys, SERVER, address};
use crate::rogue::{Rogue, confirm};
use netsim::provider::SimProvider;

/// A frame of an unknown type.
const BREACH: [u8; 1] = [0x30];
/// An ACK of packet 0.
const ACK_OF_0: [u8; 7] = [0x02, 0, 0, 0xFF, 0xFF, 0, 0];
const SPAN: Duration = Duration::from_secs(60);

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn server(number: u64, config: Config) -> (Party, Keys) {
    let seed = Seed::from_number(number);
    let keys = Keys::new(seed);
    let endpoint = Party::server(config, &keys, SimProvider::new(seed), |listen| {
        listen.with_open_mode()
    });
    (endpoint, keys)
}

fn receive_from(
    endpoint: &mut Party,
    now: Instant,
    (peer, real_source): (&str, Option<&str>),
    bytes: &[u8],
) {
    let arrival = Arrival {
        real_source: real_source.map(address),
        ..Arrival::from(address(peer))
    };
    let mut copy = bytes.to_vec();
    endpoint.machine.handle_datagram(now, arrival, &mut copy);
}

/// Datagrams from a blocked prefix are dropped before their length and first byte are checked.
#[test]
fn u13_datagrams_from_a_blocked_prefix_are_not_read() {
    let (mut server, mut keys) = server(1, Config::default());
    let (v4, v6) = (prefix("203.0.113.0/24"), prefix("2001:db8::/32"));
    server.machine.block(START, v4, None).unwrap();
    server.machine.block(START, v6, None).unwrap();
    let hello = Rogue::new(1, &keys.token(UNIX, 1, address(SERVER))).hello;
    let sent: [&[u8]; 5] = [&hello, &[], &[0; 2_000], &[0x40; 100], &[9]];
    for from in [
        "203.0.113.9:1",
        "[2001:db8:7::1]:1",
        "[::ffff:203.0.113.9]:1",
    ] {
        for bytes in sent {
            receive_from(&mut server, START, (from, None), bytes);
        }
    }
    let stats = *server.machine.stats();
    assert_eq!(
        (stats.dropped_blocked, stats.datagrams_received()),
        (15, 15)
    );
    assert!(server.drain(START).is_empty());
    receive_from(&mut server, START, ("203.0.114.9:1", None), &hello);
    assert_eq!(server.machine.stats().accepted, 1);
}

#[test]
fn u13_a_block_holds_from_the_next_datagram_until_its_end() {
    let mut line = Line::new(2);
    line.join(1);
    let here = prefix("203.0.113.9");
    let dropped = |line: &Line| line.server.machine.stats().dropped_blocked;
    line.server
        .machine
        .block(line.now, here, Some(SPAN))
        .unwrap();
    line.run(3_000);
    assert!(dropped(&line) > 0, "keepalives of a session that exists");
    assert!(line.server.machine.unblock(&here));
    assert!(!line.server.machine.unblock(&here));
    let before = dropped(&line);
    line.run(20_000);
    assert_eq!((dropped(&line), line.server.closes()), (before, vec![]));
    // Silent for longer than the idle timeout.
    line.server
        .machine
        .block(line.now, here, Some(SPAN))
        .unwrap();
    assert_eq!(line.server.machine.blocked().len(), 1);
    line.run(59_000);
    assert_eq!(line.server.closes().len(), 1);
    let credentials = line.token(2);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(500);
    assert_eq!(line.server.sessions().len(), 1);
    line.run(2_000);
    assert_eq!(
        line.server.sessions().len(),
        2,
        "heard again after a minute"
    );
    assert!(line.server.machine.blocked().is_empty());
}

/// Blocking a player behind an exit affects no other player there. An exit that does not report the
/// player's address is not blocked.
#[test]
fn u13_behind_a_trusted_exit_the_players_own_address_counts() {
    let exit = "192.0.2.200:9";
    let (mut server, mut keys) = server(
        3,
        config(|config| config.trusted_exits = vec![address(exit).ip()]),
    );
    for blocked in ["192.0.2.0/24", "203.0.113.7"] {
        server.machine.block(START, prefix(blocked), None).unwrap();
    }
    let mut number = 0;
    let mut is_heard = |peer, reported| {
        number += 1;
        let before = server.machine.stats().dropped_blocked;
        let rogue = Rogue::new(number, &keys.token(UNIX, number, address(SERVER)));
        receive_from(&mut server, START, (peer, reported), &rogue.hello);
        server.machine.stats().dropped_blocked == before
    };
    assert!(is_heard(exit, None));
    assert!(is_heard(exit, Some("203.0.113.8:1")));
    assert!(!is_heard(exit, Some("203.0.113.7:1")));
    assert!(!is_heard(exit, Some("192.0.2.3:1")));
    assert!(!is_heard("192.0.2.201:9", None), "no exit of ours");
}

/// Off by default. If enabled, it blocks the player from any address.
#[test]
fn u13_block_breaches_bans_a_player_after_a_violation() {
    for span in [None, Some(SPAN)] {
        let config = config(|config| config.block_breaches = span);
        let mut scenario = Scenario::open_with(4, config);
        scenario.send_plaintext(&BREACH);
        assert!(scenario.end().is_some());
        let line = &mut scenario.line;
        assert_eq!(
            line.server.machine.stats().blocked_for_breaches,
            u64::from(span.is_some())
        );
        assert!(line.server.machine.blocked().is_empty(), "no address");
        let is_let_in = |line: &mut Line, player, from: SocketAddr| {
            let accepted = line.server.machine.stats().accepted;
            let number = line.now.as_millis() + player;
            let rogue = Rogue::new(number, &line.token(player));
            line.server.take(line.now, from, &rogue.hello);
            line.server.machine.stats().accepted > accepted
        };
        line.run(1_000);
        assert_eq!(is_let_in(line, 1, network(5)), span.is_none());
        assert!(is_let_in(line, 2, address(CLIENT)), "another from there");
        if span.is_some() {
            assert!(line.server.machine.unban(ClientId(1)));
            assert!(!line.server.machine.unban(ClientId(1)));
            line.run(6_000);
            assert!(is_let_in(line, 1, network(5)));
        }
    }
}

/// Two attempts of one player: the first opens and violates the protocol. The second, accepted
/// before that, no longer opens.
#[test]
fn u13_block_breaches_applies_to_half_open_attempts() {
    for span in [None, Some(SPAN)] {
        let config = config(|config| config.block_breaches = span);
        let (mut server, mut keys) = server(8, config);
        let first = confirm(&Config::default());
        let mut attempt = |server: &mut Party, number: u64| {
            let rogue = Rogue::new(number, &keys.token(UNIX, 1, address(SERVER)));
            server.take(START, network(number.try_into().unwrap()), &rogue.hello);
            let accept = server.drain(START).remove(0).bytes;
            let mut rogue = rogue;
            rogue.accept(&accept)
        };
        let mut breaks = attempt(&mut server, 1);
        let mut waits = attempt(&mut server, 2);
        server.take(START, network(1), &breaks.packet(&first));
        server.take(START, network(1), &breaks.packet(&BREACH));
        server.drain(START);
        assert_eq!(server.closes().len(), 1);
        let opened = server.machine.stats().sessions_opened;
        server.take(START, network(2), &waits.packet(&first));
        server.drain(START);
        let more = server.machine.stats().sessions_opened - opened;
        assert_eq!(more, u64::from(span.is_none()));
    }
}

#[test]
fn u13_a_ban_by_block_breaches_expires() {
    let config = config(|config| config.block_breaches = Some(Duration::from_secs(5)));
    let mut scenario = Scenario::open_with(5, config);
    scenario.send_plaintext(&BREACH);
    let line = &mut scenario.line;
    for (millis, accepted) in [(4_900, 1), (200, 2)] {
        line.run(millis);
        let rogue = Rogue::new(millis, &line.token(1));
        line.server.take(line.now, network(5), &rogue.hello);
        assert_eq!(line.server.machine.stats().accepted, accepted);
    }
}

/// In open mode only the address identifies a peer, and it counts only once validated: a first
/// packet with a forged source blocks nobody.
#[test]
fn u13_only_validated_addresses_are_blocked() {
    for has_answered in [false, true] {
        let config = config(|config| config.block_breaches = Some(SPAN));
        let (mut server, _) = server(6, config);
        let from = address(CLIENT);
        let mut rogue = Rogue::new(6, &Credentials::Open);
        server.take(START, from, &rogue.hello);
        let retry = server.drain(START).remove(0).bytes;
        rogue.follow(&retry);
        server.take(START, from, &rogue.hello);
        let accept = server.drain(START).remove(0).bytes;
        let mut session = rogue.accept(&accept);
        server.take(START, from, &session.packet(&confirm(&Config::default())));
        assert!(!server.drain(START).is_empty(), "its packet 0");
        if has_answered {
            server.take(START, from, &session.packet(&ACK_OF_0));
        }
        server.take(START, from, &session.packet(&BREACH));
        server.drain(START);
        assert_eq!(server.closes().len(), 1);
        let blocked: Vec<_> = server.machine.blocked().iter().collect();
        let here = (prefix("203.0.113.9/32"), Some(START + SPAN));
        assert_eq!(blocked, if has_answered { vec![here] } else { vec![] });
    }
}

/// Close reasons that an honest peer may cause block no address.
#[test]
fn u13_a_regular_end_and_silence_block_no_address() {
    let config = config(|config| config.block_breaches = Some(SPAN));
    let mut line = Line::with(7, config, |listen| listen);
    let (_, theirs) = line.join(1);
    line.server.machine.kick(line.now, theirs, b"").unwrap();
    line.run(1_000);
    line.join(1);
    line.now += Duration::from_secs(30);
    line.server.wake(line.now);
    line.server.drain(line.now);
    assert_eq!(line.server.closes().len(), 2);
    assert_eq!(line.server.machine.stats().blocked_for_breaches, 0);
}

/// A driver may drop its state of a flow behind an exit if the flow has no session. A handshake
/// that anybody can start does not count.
#[test]
fn u13_only_peers_with_a_session_are_listed() {
    let (mut server, _) = server(8, Config::default());
    let from = address(CLIENT);
    let reported = |server: &Party| {
        let mut reported = Vec::new();
        wire::Machine::for_each_peer(&server.machine, &mut |peer| reported.push(peer));
        reported
    };
    let mut rogue = Rogue::new(8, &Credentials::Open);
    server.take(START, from, &rogue.hello);
    let retry = server.drain(START).remove(0).bytes;
    rogue.follow(&retry);
    server.take(START, from, &rogue.hello);
    let accept = server.drain(START).remove(0).bytes;
    assert_eq!(reported(&server), []);
    let mut session = rogue.accept(&accept);
    server.take(START, from, &session.packet(&confirm(&Config::default())));
    assert_eq!(reported(&server), [from]);
    server.drain(START);
    let session = server.sessions()[0];
    server.machine.kick(START, session, b"").unwrap();
    server.drain(START);
    server.wake(START + SPAN);
    server.drain(START + SPAN);
    assert_eq!(reported(&server), []);
}
