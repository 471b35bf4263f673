//! The life of a connect token.

use core::time::Duration;

use netsim::{Handle, LinkConfig};
use udp_proto::{CloseCode, CloseReason, Config, ConnectFailure, Credentials};
use wire::{InstanceId, Seed};

use crate::harness::{INSTANCE, Peer, SERVER, Testbed, address, server_host};

fn again(credentials: &Credentials) -> Credentials {
    match credentials {
        Credentials::Token { token, psk } => Credentials::Token {
            token: token.clone(),
            psk: psk.clone(),
        },
        _ => panic!("a token"),
    }
}

fn expect_refusal(testbed: &mut Testbed, client: Handle<Peer>, code: CloseCode) {
    testbed.run(1_100);
    assert!(testbed.log(client).sessions().is_empty());
    let expected = ConnectFailure::RefusedUnproved(code);
    assert_eq!(testbed.log(client).failures(), [expected]);
}

#[test]
fn twp_k7_a_token_used_twice_opens_one_session_from_any_address() {
    let mut testbed = Testbed::new(Seed::from_number(1));
    let first = testbed.client();
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let copy = again(&credentials);
    let session = testbed.dial(first, again(&credentials));
    testbed.run(100);
    assert_eq!(testbed.log(first).sessions(), [session]);

    // The same address, after the session has ended.
    testbed.world.apply(first, |host, now| {
        host.machine
            .close(now, session, CloseCode::App, b"")
            .unwrap();
    });
    testbed.run(1_000);
    testbed.dial(first, credentials);
    testbed.run(1_100);
    assert_eq!(testbed.log(first).sessions().len(), 1);
    let used = ConnectFailure::RefusedUnproved(CloseCode::TokenUsed);
    assert_eq!(testbed.log(first).failures(), [used]);
    // Another address.
    let second = testbed.client();
    testbed.dial(second, copy);
    expect_refusal(&mut testbed, second, CloseCode::TokenUsed);
    let stats = *testbed.peer(testbed.server).machine.stats();
    assert!(stats.dropped_token_used >= 2);
    assert_eq!(stats.sessions_opened, 1);
}

#[test]
fn twp_k7_a_token_opens_nothing_after_a_restart_or_at_a_second_instance() {
    let mut testbed = Testbed::new(Seed::from_number(2));
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let seed = testbed.seed;
    // A new process: another instance id and, in production, another token key. Here the key is the
    // same, so that only the instance id can cause the rejection.
    let keys = crate::harness::Keys::new(seed);
    testbed.world.restart(testbed.server, |now| {
        server_host(
            seed,
            (Config::default(), InstanceId(INSTANCE.0 + 1)),
            &keys,
            |listen| listen,
            now,
        )
    });
    let client = testbed.client();
    testbed.dial(client, credentials);
    expect_refusal(&mut testbed, client, CloseCode::TokenInvalid);
    assert!(testbed.peer(testbed.server).machine.stats().dropped_token > 0);
}

#[test]
fn a_token_of_a_key_that_was_removed_is_refused() {
    let mut testbed = Testbed::new(Seed::from_number(7));
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let id = testbed.keys.token_key.id();
    let server = testbed.server;
    let world = &mut testbed.world;
    let mut remove = |id| world.apply(server, |host, _| host.machine.remove_token_key(id));
    assert!(!remove(id + 1));
    assert!(remove(id));
    assert!(!remove(id), "it is gone");
    let client = testbed.client();
    testbed.dial(client, credentials);
    expect_refusal(&mut testbed, client, CloseCode::Mode);
    assert_eq!(testbed.peer(server).machine.sessions().count(), 0);
}

#[test]
fn tokens_are_refused_when_expired_or_without_a_wall_clock() {
    let mut testbed = Testbed::new(Seed::from_number(3));
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token_for(
        unix,
        unix + Duration::from_secs(5),
        1,
        (INSTANCE, address(SERVER)),
    );
    testbed.run(15_000);
    let client = testbed.client();
    testbed.dial(client, credentials);
    expect_refusal(&mut testbed, client, CloseCode::TokenExpired);
    assert!(
        testbed
            .peer(testbed.server)
            .machine
            .stats()
            .dropped_token_expired
            > 0
    );
}

#[test]
fn a_token_with_one_bit_flipped_is_dropped_and_counted() {
    let mut testbed = Testbed::new(Seed::from_number(4));
    let unix = testbed.world.unix_now();
    let good = testbed.keys.token(unix, 1, address(SERVER));
    let Credentials::Token { token, psk } = good else {
        panic!("a token");
    };
    let mut refused = 0;
    for byte in 0..token.len() {
        let mut token = token.clone();
        token[byte] ^= 1 << (byte % 8);
        let client = testbed.client();
        testbed.dial(
            client,
            Credentials::Token {
                token,
                psk: psk.clone(),
            },
        );
        testbed.run(100);
        assert!(testbed.log(client).sessions().is_empty(), "byte {byte}");
        testbed.world.kill(client);
        refused += 1;
    }
    let stats = *testbed.peer(testbed.server).machine.stats();
    // A flipped bit of the expiry moves it to the past or the future.
    let dropped = stats.dropped_token + stats.dropped_token_expired + stats.dropped_token_clock;
    assert!(dropped >= refused);
    assert_eq!(stats.sessions_opened, 0);
}

#[test]
fn a_stolen_token_without_its_key_opens_and_consumes_nothing() {
    let mut testbed = Testbed::new(Seed::from_number(5));
    let unix = testbed.world.unix_now();
    let good = testbed.keys.token(unix, 1, address(SERVER));
    let Credentials::Token { token, .. } = again(&good) else {
        panic!("a token");
    };
    let attacker = testbed.client();
    testbed.dial(
        attacker,
        Credentials::Token {
            token,
            psk: crypto::Secret32::new([1; 32]),
        },
    );
    testbed.run(200);
    assert!(testbed.log(attacker).sessions().is_empty());
    assert!(testbed.peer(testbed.server).machine.stats().dropped_psk > 0);
    let owner = testbed.client();
    let session = testbed.dial(owner, good);
    testbed.run(200);
    assert_eq!(testbed.log(owner).sessions(), [session]);
}

#[test]
fn twp_t7_a_crashed_player_returns_with_a_new_token() {
    let mut testbed = Testbed::new(Seed::from_number(6));
    testbed
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (first, _) = testbed.join(7);
    testbed.run(500);
    testbed.world.kill(first);
    testbed.run(500);
    let (second, session) = testbed.join(7);
    testbed.run(80);
    assert_eq!(testbed.log(second).sessions(), [session]);
    testbed.run(40);
    let server = testbed.log(testbed.server);
    assert_eq!(server.sessions().len(), 2);
    assert_eq!(
        server.closes()[0],
        (
            server.sessions()[0],
            CloseReason::Local(CloseCode::Replaced)
        )
    );
}

#[test]
fn an_older_token_of_a_present_player_is_refused() {
    let mut testbed = Testbed::new(Seed::from_number(7));
    let unix = testbed.world.unix_now();
    let old = testbed.keys.token(unix, 7, address(SERVER));
    testbed.run(1_000);
    let (first, session) = testbed.join(7);
    testbed.run(100);
    let second = testbed.client();
    testbed.dial(second, old);
    testbed.run(100);
    assert_eq!(
        testbed.log(second).failures(),
        [ConnectFailure::Refused(CloseCode::Replaced)]
    );
    assert_eq!(testbed.log(first).sessions(), [session]);
    assert!(testbed.log(first).closes().is_empty());
}

#[test]
fn a_full_token_cache_refuses_new_tokens_and_keeps_valid_ones() {
    let mut config = Config::default();
    config.token_cache_max = 2;
    let mut testbed = Testbed::with(Seed::from_number(8), config, |listen| listen);
    let (a, _) = testbed.join(1);
    let (b, _) = testbed.join(2);
    testbed.run(100);
    let (c, _) = testbed.join(3);
    testbed.run(100);
    assert_eq!(testbed.log(a).sessions().len(), 1);
    assert_eq!(testbed.log(b).sessions().len(), 1);
    assert!(testbed.log(c).sessions().is_empty());
    assert!(
        testbed
            .peer(testbed.server)
            .machine
            .stats()
            .dropped_overload
            > 0
    );
}

#[test]
fn sessions_max_and_sessions_per_source_max_refuse_by_name() {
    let mut config = Config::default();
    config.sessions_max = 2;
    let mut testbed = Testbed::with(Seed::from_number(9), config, |listen| listen);
    testbed.join(1);
    testbed.join(2);
    testbed.run(100);
    let (third, _) = testbed.join(3);
    testbed.run(100);
    assert_eq!(
        testbed.log(third).failures(),
        [ConnectFailure::Refused(CloseCode::Full)]
    );

    let mut config = Config::default();
    config.sessions_per_source_max = 1;
    let mut testbed = Testbed::with(Seed::from_number(10), config, |listen| listen);
    let (client, _) = testbed.join(1);
    testbed.run(100);
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 2, address(SERVER));
    testbed.dial(client, credentials);
    testbed.run(100);
    assert_eq!(
        testbed.log(client).failures(),
        [ConnectFailure::Refused(CloseCode::SourceFull)]
    );
}
