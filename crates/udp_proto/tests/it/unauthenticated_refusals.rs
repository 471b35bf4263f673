//! Unauthenticated REFUSE packets: how soon they end an attempt, and the reported cause.

use core::net::SocketAddr;
use core::time::Duration;

use netsim::provider::SimProvider;
use netsim::{Handle, Host, LinkConfig};
use udp_proto::{
    AppId, Certainty, CloseCode, Config, ConnectFailure, Credentials, Endpoint, Listen,
    ServerIdentity, Target,
};
use wire::{Instant, Seed, UnixTime};

use crate::direct::{Line, UNIX, config, failures};
use crate::harness::{Keys, Log, Peer, SERVER, Testbed, address};
use crate::rogue::Rogue;

/// A server in open mode, `one_way` milliseconds from every client.
fn open_server(number: u64, (config, one_way): (Config, u64)) -> Testbed {
    let mut testbed = Testbed::with(Seed::from_number(number), config, Listen::with_open_mode);
    let link = LinkConfig::default().with_delay(Duration::from_millis(one_way));
    testbed.world.set_default_link(link);
    testbed
}

/// Runs until `client` has failed; returns the failure and the time in milliseconds.
fn failure(testbed: &mut Testbed, client: Handle<Peer>) -> (ConnectFailure, u64) {
    for millis in 1..=11_000 {
        testbed.run(1);
        if let [failure] = testbed.log(client).failures()[..] {
            return (failure, millis);
        }
    }
    panic!("it neither failed nor gave up");
}

/// A second or three round trips, plus the rounding of a simulated millisecond.
fn limit(one_way: u64) -> core::ops::RangeInclusive<u64> {
    let span = (6 * one_way).max(1_000);
    span - 1..=span + 2
}

#[test]
fn a_full_server_refuses_within_1_s_or_3_round_trips() {
    for one_way in [10, 50, 150, 300] {
        let mut small = Config::default();
        small.sessions_max = 1;
        let mut testbed = open_server(one_way, (small, one_way));
        let first = testbed.client();
        testbed.dial(first, Credentials::Open);
        testbed.run(4_000);
        assert_eq!(testbed.log(first).sessions().len(), 1);
        let second = testbed.client();
        testbed.dial(second, Credentials::Open);
        let (failure, millis) = failure(&mut testbed, second);
        assert_eq!(failure, ConnectFailure::RefusedUnproved(CloseCode::Full));
        assert_eq!(failure.certainty(), Certainty::Unproved);
        assert!(limit(one_way).contains(&millis), "{one_way}: {millis}");
    }
}

#[test]
fn a_server_with_another_key_is_detected_in_a_second() {
    for one_way in [10, 300] {
        let mut testbed = open_server(20 + one_way, (Config::default(), one_way));
        let client = testbed.client();
        let unknown_address = Keys::new(Seed::from_number(99)).public();
        let mut target = testbed.target(Credentials::Open);
        target.server = ServerIdentity::Keys(vec![unknown_address]);
        testbed.world.apply(client, |host, now| {
            host.machine.connect(now, target).expect("a target");
        });
        let (failure, millis) = failure(&mut testbed, client);
        assert!(
            matches!(failure, ConnectFailure::NotTheServer { rejected: 2.. }),
            "{failure}"
        );
        assert!(limit(one_way).contains(&millis), "{one_way}: {millis}");
    }
}

#[test]
fn a_client_of_another_application_fails_within_1_s_or_3_round_trips() {
    for one_way in [10, 300] {
        let mut testbed = open_server(40 + one_way, (Config::default(), one_way));
        let at: SocketAddr = address("203.0.113.5:4000");
        let client = testbed.world.add(at, |now| {
            let provider = SimProvider::new(Seed::from_number(5));
            let machine = Endpoint::new(Config::default(), AppId(1), provider, now);
            Host::new(machine.expect("seeded"), Log::default())
        });
        testbed.dial(client, Credentials::Open);
        let (failure, millis) = failure(&mut testbed, client);
        let expected = ConnectFailure::RefusedUnproved(CloseCode::Application);
        assert_eq!(failure, expected);
        assert!(limit(one_way).contains(&millis), "{one_way}: {millis}");
        assert!(testbed.peer(testbed.server).machine.stats().dropped_app >= 2);
    }
}

/// Each of these used to be a timeout without a cause.
#[test]
fn each_token_fault_has_its_own_code_and_counter() {
    let hour = Duration::from_secs(3_600);
    let minute = Duration::from_secs(60);
    for (number, (issued, lives), code, is_counted) in [
        (
            1,
            (UNIX + hour, minute),
            CloseCode::TokenClock,
            [0, 0, 1, 0],
        ),
        (
            2,
            (UNIX + Duration::from_secs(10), minute),
            CloseCode::TokenClock,
            [0, 0, 1, 0],
        ),
        (
            3,
            (UnixTime::from_secs(UNIX.as_secs() - 3_600), minute),
            CloseCode::TokenExpired,
            [0, 1, 0, 0],
        ),
        (4, (UNIX, minute), CloseCode::TokenInvalid, [1, 0, 0, 0]),
        (5, (UNIX, minute), CloseCode::TokenUsed, [0, 0, 0, 1]),
    ] {
        let mut line = Line::new(60 + number);
        let instance = if number == 4 {
            wire::InstanceId(5)
        } else {
            crate::harness::INSTANCE
        };
        let server = (instance, address(SERVER));
        let credentials = line.keys.token_for(issued, issued + lives, 1, server);
        if number == 5 {
            let again = crate::direct::again(&credentials);
            line.client.dial(line.now, &line.keys, again);
            line.run(100);
        }
        let before = *line.server.machine.stats();
        line.client.dial(line.now, &line.keys, credentials);
        line.run(1_100);
        let expected = ConnectFailure::RefusedUnproved(code);
        assert_eq!(failures(&line.client), [expected], "{number}");
        let after = *line.server.machine.stats();
        let counted = [
            after.dropped_token - before.dropped_token,
            after.dropped_token_expired - before.dropped_token_expired,
            after.dropped_token_clock - before.dropped_token_clock,
            after.dropped_token_used - before.dropped_token_used,
        ];
        assert_eq!(counted.map(|count| u64::from(count > 0)), is_counted);
    }
    let text = CloseCode::TokenClock.to_string();
    assert!(text.contains("the matchmaker's clock is ahead"), "{text}");
}

/// 32 sessions of one address are open, and there is room for others.
#[test]
fn sessions_per_source_max_has_its_own_refusal_code() {
    let mut line = Line::with(70, Config::for_server(), Listen::with_open_mode);
    for _ in 0..32 {
        line.client.dial(line.now, &line.keys, Credentials::Open);
        line.run(10);
    }
    assert_eq!(line.server.sessions().len(), 32);
    line.client.dial(line.now, &line.keys, Credentials::Open);
    line.run(1_100);
    let [failure] = failures(&line.client)[..] else {
        panic!("one");
    };
    let expected = ConnectFailure::RefusedUnproved(CloseCode::SourceFull);
    assert_eq!(failure, expected);
    assert!(failure.to_string().contains("sessions_per_source_max"));
    assert_eq!(line.server.machine.session_count(), 32);
}

/// A client with a token at an open-mode server, and the reverse.
#[test]
fn a_mode_that_is_not_served_is_named() {
    let mut line = Line::new(71);
    line.client.dial(line.now, &line.keys, Credentials::Open);
    line.run(1_100);
    let expected = ConnectFailure::RefusedUnproved(CloseCode::Mode);
    assert_eq!(failures(&line.client), [expected]);
    assert!(line.server.machine.stats().dropped_mode >= 2);
}

/// An attacker on the path sends FULL at once, repeatedly; the server's own ACCEPT arrives later.
#[test]
fn forged_refusals_do_not_end_an_attempt_that_is_accepted_within_a_second() {
    let mut line = Line::with(72, config(|_| {}), Listen::with_open_mode);
    let session = line.client.dial(line.now, &line.keys, Credentials::Open);
    let begin = line.now;
    let mut hello = Vec::new();
    while line.now < begin + Duration::from_millis(990) {
        for sent in line.client.drain(line.now) {
            hello = sent.bytes;
            let forged = refuse(&hello, CloseCode::Full);
            line.client.take(line.now, line.server.at, &forged);
        }
        line.now += Duration::from_millis(1);
        line.client.wake(line.now);
    }
    assert_eq!(failures(&line.client), []);
    line.server.take(line.now, line.client.at, &hello);
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
    // A REFUSE from another address or for another attempt does not count.
    let mut line = Line::with(73, config(|_| {}), Listen::with_open_mode);
    line.client.dial(line.now, &line.keys, Credentials::Open);
    let hello = line.client.drain(line.now).remove(0).bytes;
    let mut other = hello.clone();
    other[20] ^= 1;
    for _ in 0..5 {
        let elsewhere = address("192.0.2.66:7777");
        let forged = refuse(&hello, CloseCode::Full);
        line.client.take(line.now, elsewhere, &forged);
        let forged = refuse(&other, CloseCode::Full);
        line.client.take(line.now, line.server.at, &forged);
        line.now += Duration::from_secs(1);
        line.client.wake(line.now);
        line.client.drain(line.now);
    }
    assert_eq!(failures(&line.client), []);
}

/// After a REFUSE the client tries the next address at once and does not retry the first.
#[test]
fn after_a_refusal_the_next_address_is_tried_within_a_second() {
    let mut small = Config::default();
    small.sessions_max = 1;
    let mut testbed = open_server(74, (small, 20));
    let full = testbed.client();
    testbed.dial(full, Credentials::Open);
    let away: SocketAddr = address("198.51.100.2:7777");
    let keys = Keys::new(testbed.seed);
    let seed = testbed.seed;
    testbed.world.add(away, |now: Instant| {
        let parts = (Config::default(), wire::InstanceId(3));
        crate::harness::server_host(seed, parts, &keys, Listen::with_open_mode, now)
    });
    testbed.run(1_000);
    let client = testbed.client();
    let target = Target {
        addresses: vec![address(SERVER), away],
        ..testbed.target(Credentials::Open)
    };
    testbed.world.apply(client, |host, now| {
        host.machine.connect(now, target).expect("a target");
    });
    testbed.run(1_200);
    assert_eq!(testbed.log(client).sessions().len(), 1);
    assert_eq!(testbed.log(client).failures(), []);
}

/// K6 and U4 apply: 31 bytes for 1,200, one per HELLO, within the budget of the network.
#[test]
fn twp_k6_u4_refusals_without_proof_are_few_and_short() {
    let mut line = Line::new(75);
    let from: SocketAddr = address("203.0.113.66:1");
    let (mut datagrams, mut bytes) = (0, 0);
    for number in 0..2_000 {
        let rogue = match number % 2 {
            0 => Rogue::with(number, &Credentials::Open, |hello| hello.app_id = 1),
            _ => Rogue::new(number, &Credentials::Open),
        };
        line.server.take(line.now, from, &rogue.hello);
        for sent in line.server.drain(line.now) {
            assert_eq!((sent.to, sent.bytes[0]), (from, 0xC4));
            datagrams += 1;
            bytes += sent.bytes.len();
        }
    }
    assert_eq!((datagrams, bytes), (256, 256 * 31));
}

/// An unauthenticated REFUSE for this HELLO.
fn refuse(hello: &[u8], code: CloseCode) -> Vec<u8> {
    let refuse = udp_proto::handshake::reply::Refuse {
        version: u32::from_be_bytes(hello[1..5].try_into().expect("four")),
        hello_id: u64::from_be_bytes(hello[17..25].try_into().expect("eight")),
        reason: code.to_wire(),
        mac: [0; 16],
    };
    let mut bytes = Vec::new();
    refuse.encode(&mut bytes);
    bytes
}
