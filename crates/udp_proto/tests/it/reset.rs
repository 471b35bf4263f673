//! Stateless reset: a restarted server sends it, and nobody else can forge it.

#![expect(
    clippy::print_stdout,
    reason = "figures that docs/protocol.md states, for whoever runs it with --nocapture"
)]

mod detection;

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Secret32;
use netsim::provider::SimProvider;
use udp_proto::handshake::reset::{LEN, TRIGGER_LEN_MIN};
use udp_proto::{CidLen, CloseReason, Config, Event, Listen, SessionId};
use wire::{Generator, Seed};

use crate::direct::{CLIENT, Line, Party, config};
use crate::harness::{RELIABLE, SERVER, UNRELIABLE, address};
use crate::hostile::unknown_address;

fn long_ids() -> Config {
    config(|config| config.cid_len = CidLen::Eight)
}

fn with_secret(number: u8) -> impl Fn(Listen) -> Listen {
    move |listen| listen.with_resets(Secret32::new([number; 32]))
}

/// A session that has been open for a second.
fn open(seed: u64, server: Config, client: Config) -> (Line, SessionId) {
    let mut line = Line::with(seed, server, with_secret(1));
    let provider = SimProvider::new(Seed::from_number(seed + 1_000));
    line.client = Party::new(CLIENT, client, provider);
    let (session, _) = line.join(1);
    line.run(1_000);
    (line, session)
}

/// Restarts the server with the same identity.
fn restart(line: &mut Line, config: Config, shape: impl Fn(Listen) -> Listen) {
    let provider = SimProvider::new(Seed::from_number(99));
    let now = line.now;
    line.server = Party::server(config, &line.keys, provider, shape);
    line.server.wake(now);
}

/// With connection ids of any length at the client: its next packet triggers the reset, which
/// arrives after one round trip.
#[test]
fn twp_t8_a_client_detects_a_restart_with_its_next_packet() {
    for (seed, len) in [(51, CidLen::Zero), (52, CidLen::Four), (53, CidLen::Eight)] {
        let (mut line, session) = open(seed, long_ids(), config(|config| config.cid_len = len));
        let close_frame = line.server.machine.sessions().next().unwrap();
        let now = line.now;
        line.server
            .machine
            .send(now, close_frame, RELIABLE, b"unread")
            .unwrap();
        line.settle();
        restart(&mut line, long_ids(), with_secret(1));
        line.client
            .machine
            .send(now, session, UNRELIABLE, &[3; 100])
            .unwrap();
        line.settle();
        assert_eq!(line.client.closes(), [CloseReason::Reset], "{len:?}");
        assert_eq!(line.client.machine.session_count(), 0);
        assert_eq!(line.client.machine.stats().resets_taken, 1);
        assert_eq!(line.server.machine.stats().resets_sent, 1);
        // The client reconnects with a new token at once.
        line.client.events.clear();
        line.server.events.clear();
        line.join(1);
        line.run(100);
        assert_eq!(line.client.sessions().len(), 1);
    }
}

/// A packet shorter than the minimum that is answered is followed by a probe that is long enough.
#[test]
fn twp_t8_a_quiet_client_detects_a_restart_with_its_first_probe() {
    for message in [&b""[..], &b"short"[..]] {
        let (mut line, session) = open(54, long_ids(), Config::default());
        restart(&mut line, long_ids(), with_secret(1));
        let now = line.now;
        if !message.is_empty() {
            line.client
                .machine
                .send(now, session, RELIABLE, message)
                .unwrap();
        }
        line.run(1_300);
        assert_eq!(line.client.closes(), [CloseReason::Reset]);
    }
}

#[test]
fn twp_t8_without_a_secret_or_with_short_ids_the_session_times_out() {
    let short = Config::default;
    for (first, second, secret) in [
        (long_ids(), long_ids(), 2),
        (short(), short(), 1),
        (long_ids(), short(), 1),
    ] {
        let (mut line, session) = open(55, first, Config::default());
        restart(&mut line, second, with_secret(secret));
        let now = line.now;
        line.client
            .machine
            .send(now, session, RELIABLE, &[3; 1_000])
            .unwrap();
        line.run(8_000);
        assert!(line.client.closes().is_empty());
        line.run(3_000);
        assert_eq!(line.client.closes(), [CloseReason::Timeout]);
    }
}

/// The reset that ends the session of `line`, sent by a restarted server, while the session's
/// server still runs.
fn genuine_reset(line: &mut Line, session: SessionId) -> Vec<u8> {
    let now = line.now;
    line.client
        .machine
        .send(now, session, UNRELIABLE, &[3; 100])
        .unwrap();
    let packet = line.client.drain(now).remove(0).bytes;
    let provider = SimProvider::new(Seed::from_number(99));
    let mut other = Party::server(long_ids(), &line.keys, provider, with_secret(1));
    other.take(now, line.client.at, &packet);
    line.server.take(now, line.client.at, &packet);
    line.settle();
    let sent = other.drain(now);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].to, sent[0].bytes.len()), (line.client.at, LEN));
    sent[0].bytes.clone()
}

#[test]
fn a_reset_is_accepted_with_its_token_and_from_its_server_only() {
    let (mut line, session) = open(56, long_ids(), long_ids());
    let reset = genuine_reset(&mut line, session);
    let server = address(SERVER);
    for from in [unknown_address(1), SocketAddr::new(server.ip(), 1)] {
        line.client.take(line.now, from, &reset);
    }
    for bit in (LEN - 16) * 8..LEN * 8 {
        let mut changed = reset.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        line.client.take(line.now, server, &changed);
    }
    line.client.take(line.now, server, &reset[1..]);
    line.run(100);
    assert!(line.client.closes().is_empty());
    line.client.take(line.now, server, &reset);
    line.client.drain(line.now);
    assert_eq!(line.client.closes(), [CloseReason::Reset]);
}

fn unknown(generator: &mut Generator, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    generator.fill(&mut packet);
    packet[0] = 0x40;
    packet
}

/// A reset is shorter than its trigger, two servers never answer each other, and a flood from one
/// network gets an eighth of a thousand per second.
#[test]
fn twp_k6_resets_are_few_and_short() {
    let mut line = Line::with(57, long_ids(), with_secret(1));
    let mut generator = Seed::from_number(57).generator(0);
    let (mut came, mut sent, mut resets) = (0, 0, 0);
    for number in 0..20_000_usize {
        line.now += Duration::from_micros(500);
        let packet = unknown(&mut generator, 23 + number % 200);
        came += packet.len();
        line.server.take(line.now, unknown_address(1), &packet);
        for answer in line.server.drain(line.now) {
            assert!(packet.len() >= TRIGGER_LEN_MIN);
            assert!(answer.bytes.len() * 100 <= packet.len() * 35);
            sent += answer.bytes.len();
            resets += 1;
            // Another server's answer to the reset.
            line.server
                .take(line.now, unknown_address(2), &answer.bytes);
            assert!(line.server.drain(line.now).is_empty());
        }
    }
    assert!((1_250..=1_375).contains(&resets), "{resets} in 10 s");
    assert!(sent * 100 <= came * 35);
    assert_eq!(line.server.machine.stats().resets_sent, resets);
}

/// A server never resets a session that it has, whatever is sent to it.
#[test]
fn a_live_session_is_never_reset() {
    let (mut line, _) = open(58, long_ids(), long_ids());
    let (_, packet) = line
        .record
        .iter()
        .rev()
        .find(|(is_up, bytes)| *is_up && bytes[0] & 0xC0 == 0x40)
        .cloned()
        .unwrap();
    let mut forged = packet;
    forged.resize(200, 9);
    for _ in 0..100 {
        line.server.take(line.now, line.client.at, &forged);
        line.server.take(line.now, unknown_address(1), &forged);
    }
    assert_eq!(line.server.machine.stats().resets_sent, 0);
}

/// The server's messages from before the restart are readable when the reset is reported. A client
/// that dials at once then finds the slot and the address free.
#[test]
fn twp_t8_messages_before_a_reset_stay_readable() {
    let settings = config(|config| {
        config.cid_len = CidLen::Zero;
        config.sessions_max = 1;
    });
    let (mut line, session) = open(57, long_ids(), settings);
    let now = line.now;
    let reset = genuine_reset(&mut line, session);
    let theirs = line.server.machine.sessions().next().unwrap();
    line.server
        .machine
        .send(now, theirs, RELIABLE, b"last words")
        .unwrap();
    for sent in line.server.drain(now) {
        line.client.take(now, line.server.at, &sent.bytes);
    }
    line.client.take(now, line.server.at, &reset);
    let machine = &mut line.client.machine;
    let mut buffer = Vec::new();
    while machine.poll_transmit(now, &mut buffer).is_some() {
        buffer.clear();
    }
    let ends = core::iter::from_fn(|| machine.poll_event()).any(|event| {
        matches!(
            event,
            Event::Closed {
                reason: CloseReason::Reset,
                ..
            }
        )
    });
    assert!(ends);
    assert_eq!(machine.receive(now, session, &mut buffer), Some(RELIABLE));
    assert_eq!(buffer, b"last words");
    let credentials = line.token(1);
    line.client.dial(now, &line.keys, credentials);
}
