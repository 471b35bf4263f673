//! The life of a connect token.

use core::time::Duration;

use netsim::{Handle, LinkConfig};
use udp_proto::{CloseCode, CloseReason, Config, ConnectFailure, Credentials};
use wire::{InstanceId, Seed};

use crate::harness::{INSTANCE, Peer, SERVER, Scene, address, server_host};

fn again(credentials: &Credentials) -> Credentials {
    match credentials {
        Credentials::Token { token, psk } => Credentials::Token {
            token: token.clone(),
            psk: psk.clone(),
        },
        _ => panic!("a token"),
    }
}

fn expect_refusal(scene: &mut Scene, client: Handle<Peer>, code: CloseCode) {
    scene.run(1_100);
    assert!(scene.log(client).sessions().is_empty());
    let expected = ConnectFailure::RefusedUnproved(code);
    assert_eq!(scene.log(client).failures(), [expected]);
}

#[test]
fn twp_k7_a_token_used_twice_opens_one_session_from_any_address() {
    let mut scene = Scene::new(Seed::from_number(1));
    let first = scene.client();
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, address(SERVER));
    let copy = again(&credentials);
    let session = scene.dial(first, again(&credentials));
    scene.run(100);
    assert_eq!(scene.log(first).sessions(), [session]);

    // The same address, after the session has ended.
    scene.world.apply(first, |host, now| {
        host.machine
            .close(now, session, CloseCode::App, b"")
            .unwrap();
    });
    scene.run(1_000);
    scene.dial(first, credentials);
    scene.run(1_100);
    assert_eq!(scene.log(first).sessions().len(), 1);
    let used = ConnectFailure::RefusedUnproved(CloseCode::TokenUsed);
    assert_eq!(scene.log(first).failures(), [used]);
    // Another address.
    let second = scene.client();
    scene.dial(second, copy);
    expect_refusal(&mut scene, second, CloseCode::TokenUsed);
    let stats = *scene.peer(scene.server).machine.stats();
    assert!(stats.dropped_token_used >= 2);
    assert_eq!(stats.sessions_opened, 1);
}

#[test]
fn twp_k7_a_token_opens_nothing_after_a_restart_or_at_a_second_instance() {
    let mut scene = Scene::new(Seed::from_number(2));
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, address(SERVER));
    let seed = scene.seed;
    // A new process: another instance id and, in production, another token key. Here the key is the
    // same, so that only the instance id can cause the rejection.
    let keys = crate::harness::Keys::new(seed);
    scene.world.restart(scene.server, |now| {
        server_host(
            seed,
            (Config::default(), InstanceId(INSTANCE.0 + 1)),
            &keys,
            |listen| listen,
            now,
        )
    });
    let client = scene.client();
    scene.dial(client, credentials);
    expect_refusal(&mut scene, client, CloseCode::TokenInvalid);
    assert!(scene.peer(scene.server).machine.stats().dropped_token > 0);
}

#[test]
fn a_token_of_a_key_that_was_removed_is_refused() {
    let mut scene = Scene::new(Seed::from_number(7));
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, address(SERVER));
    let id = scene.keys.token_key.id();
    let server = scene.server;
    let world = &mut scene.world;
    let mut remove = |id| world.apply(server, |host, _| host.machine.remove_token_key(id));
    assert!(!remove(id + 1));
    assert!(remove(id));
    assert!(!remove(id), "it is gone");
    let client = scene.client();
    scene.dial(client, credentials);
    expect_refusal(&mut scene, client, CloseCode::Mode);
    assert_eq!(scene.peer(server).machine.sessions().count(), 0);
}

#[test]
fn tokens_are_refused_when_expired_or_without_a_wall_clock() {
    let mut scene = Scene::new(Seed::from_number(3));
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token_for(
        unix,
        unix + Duration::from_secs(5),
        1,
        (INSTANCE, address(SERVER)),
    );
    scene.run(15_000);
    let client = scene.client();
    scene.dial(client, credentials);
    expect_refusal(&mut scene, client, CloseCode::TokenExpired);
    assert!(
        scene
            .peer(scene.server)
            .machine
            .stats()
            .dropped_token_expired
            > 0
    );
}

#[test]
fn a_token_with_one_bit_flipped_is_dropped_and_counted() {
    let mut scene = Scene::new(Seed::from_number(4));
    let unix = scene.world.unix_now();
    let good = scene.keys.token(unix, 1, address(SERVER));
    let Credentials::Token { token, psk } = good else {
        panic!("a token");
    };
    let mut refused = 0;
    for byte in 0..token.len() {
        let mut token = token.clone();
        token[byte] ^= 1 << (byte % 8);
        let client = scene.client();
        scene.dial(
            client,
            Credentials::Token {
                token,
                psk: psk.clone(),
            },
        );
        scene.run(100);
        assert!(scene.log(client).sessions().is_empty(), "byte {byte}");
        scene.world.kill(client);
        refused += 1;
    }
    let stats = *scene.peer(scene.server).machine.stats();
    // A flipped bit of the expiry moves it to the past or the future.
    let dropped = stats.dropped_token + stats.dropped_token_expired + stats.dropped_token_clock;
    assert!(dropped >= refused);
    assert_eq!(stats.sessions_opened, 0);
}

#[test]
fn a_stolen_token_without_its_key_opens_and_consumes_nothing() {
    let mut scene = Scene::new(Seed::from_number(5));
    let unix = scene.world.unix_now();
    let good = scene.keys.token(unix, 1, address(SERVER));
    let Credentials::Token { token, .. } = again(&good) else {
        panic!("a token");
    };
    let attacker = scene.client();
    scene.dial(
        attacker,
        Credentials::Token {
            token,
            psk: crypto::Secret32::new([1; 32]),
        },
    );
    scene.run(200);
    assert!(scene.log(attacker).sessions().is_empty());
    assert!(scene.peer(scene.server).machine.stats().dropped_psk > 0);
    let owner = scene.client();
    let session = scene.dial(owner, good);
    scene.run(200);
    assert_eq!(scene.log(owner).sessions(), [session]);
}

#[test]
fn twp_t7_a_crashed_player_returns_with_a_new_token() {
    let mut scene = Scene::new(Seed::from_number(6));
    scene
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (first, _) = scene.join(7);
    scene.run(500);
    scene.world.kill(first);
    scene.run(500);
    let (second, session) = scene.join(7);
    scene.run(80);
    assert_eq!(scene.log(second).sessions(), [session]);
    scene.run(40);
    let server = scene.log(scene.server);
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
    let mut scene = Scene::new(Seed::from_number(7));
    let unix = scene.world.unix_now();
    let old = scene.keys.token(unix, 7, address(SERVER));
    scene.run(1_000);
    let (first, session) = scene.join(7);
    scene.run(100);
    let second = scene.client();
    scene.dial(second, old);
    scene.run(100);
    assert_eq!(
        scene.log(second).failures(),
        [ConnectFailure::Refused(CloseCode::Replaced)]
    );
    assert_eq!(scene.log(first).sessions(), [session]);
    assert!(scene.log(first).closes().is_empty());
}

#[test]
fn a_full_token_cache_refuses_new_tokens_and_keeps_valid_ones() {
    let mut config = Config::default();
    config.token_cache_max = 2;
    let mut scene = Scene::with(Seed::from_number(8), config, |listen| listen);
    let (a, _) = scene.join(1);
    let (b, _) = scene.join(2);
    scene.run(100);
    let (c, _) = scene.join(3);
    scene.run(100);
    assert_eq!(scene.log(a).sessions().len(), 1);
    assert_eq!(scene.log(b).sessions().len(), 1);
    assert!(scene.log(c).sessions().is_empty());
    assert!(scene.peer(scene.server).machine.stats().dropped_overload > 0);
}

#[test]
fn sessions_max_and_sessions_per_source_max_refuse_by_name() {
    let mut config = Config::default();
    config.sessions_max = 2;
    let mut scene = Scene::with(Seed::from_number(9), config, |listen| listen);
    scene.join(1);
    scene.join(2);
    scene.run(100);
    let (third, _) = scene.join(3);
    scene.run(100);
    assert_eq!(
        scene.log(third).failures(),
        [ConnectFailure::Refused(CloseCode::Full)]
    );

    let mut config = Config::default();
    config.sessions_per_source_max = 1;
    let mut scene = Scene::with(Seed::from_number(10), config, |listen| listen);
    let (client, _) = scene.join(1);
    scene.run(100);
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 2, address(SERVER));
    scene.dial(client, credentials);
    scene.run(100);
    assert_eq!(
        scene.log(client).failures(),
        [ConnectFailure::Refused(CloseCode::SourceFull)]
    );
}
