//! Two honest endpoints.

use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};
use udp_proto::{CloseCode, CloseReason, Config, Credentials, Event, Mtu, Proof};
use wire::{ClientId, MatchId, Seat, Seed, Team};

use crate::harness::{RELIABLE, SERVER, Scene, UNRELIABLE, address};

#[test]
fn connects_with_a_token_in_one_round_trip_and_echoes() {
    let mut scene = Scene::new(Seed::from_number(1));
    scene
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (client, session) = scene.join(42);
    scene.run(41);
    assert_eq!(scene.log(client).sessions(), [session], "1 RTT, no RETRY");
    scene.run(20);
    let Some(Event::Connected { peer, .. }) = scene.log(scene.server).events.first() else {
        panic!("the server has a session");
    };
    let Proof::Token(grant) = &peer.proof else {
        panic!("by token");
    };
    assert_eq!(
        (grant.client_id, grant.match_id, grant.seat, grant.team),
        (ClientId(42), MatchId([7; 16]), Seat(3), Team(1))
    );
    assert_eq!(grant.user, b"hat=red");

    scene.send(client, session, UNRELIABLE, b"soon");
    scene.send(client, session, RELIABLE, b"surely");
    scene.run(45);
    let back: Vec<_> = scene
        .log(client)
        .messages
        .iter()
        .map(|(.., m)| m.as_slice())
        .collect();
    assert_eq!(back, [&b"soon"[..], b"surely"]);
    let stats = scene.peer(client).machine.session_stats(session).unwrap();
    assert_eq!(stats.rtt_min, Duration::from_millis(40));
}

#[test]
fn open_mode_requires_a_cookie_first() {
    let mut scene = Scene::with(Seed::from_number(2), Config::default(), |listen| {
        listen.with_open_mode()
    });
    let client = scene.client();
    let session = scene.dial(client, Credentials::Open);
    scene.run(10);
    assert_eq!(scene.log(client).sessions(), [session]);
    let stats = *scene.peer(scene.server).machine.stats();
    assert_eq!((stats.retried, stats.accepted), (1, 1));
}

#[test]
fn speaks_over_ipv6() {
    let seed = Seed::from_number(3);
    let mut scene = Scene::new(seed);
    let server = address("[2001:db8::1]:7777");
    scene.world.bind_address(scene.server, server);
    let client = scene.client();
    scene
        .world
        .bind_address(client, address("[2001:db8::2]:4000"));
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, server);
    let mut target = scene.target(credentials);
    target.addresses = vec![server];
    scene
        .world
        .apply(client, |host, now| host.machine.connect(now, target))
        .unwrap();
    scene.run(10);
    assert_eq!(scene.log(client).sessions().len(), 1);
}

#[test]
fn tries_the_next_address_after_2_5_s() {
    let mut scene = Scene::new(Seed::from_number(4));
    let client = scene.client();
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, address(SERVER));
    let mut target = scene.target(credentials);
    target.addresses.insert(0, address("192.0.2.99:1"));
    scene
        .world
        .apply(client, |host, now| host.machine.connect(now, target))
        .unwrap();
    scene.run(2_400);
    assert!(scene.log(client).sessions().is_empty());
    scene.run(200);
    assert_eq!(scene.log(client).sessions().len(), 1);
}

#[test]
fn a_message_of_64_kib_arrives_whole() {
    let mut scene = Scene::new(Seed::from_number(5));
    scene.world.set_default_link(
        LinkConfig::default()
            .with_delay(Duration::from_millis(10))
            .with_loss(Loss::Bernoulli(Chance::percent(5))),
    );
    let (client, session) = scene.join(1);
    scene.run(3_000);
    let message: Vec<u8> = (0..65_536_u32).map(|i| i.to_le_bytes()[0]).collect();
    scene.send(client, session, RELIABLE, &message);
    scene.run(4_000);
    let server = scene.log(scene.server);
    assert_eq!(server.messages.len(), 1);
    assert_eq!(server.messages[0].2, message);
    assert_eq!(scene.log(client).messages[0].2, message);
}

#[test]
fn a_graceful_close_flushes_and_is_reported_once_on_both_sides() {
    let mut scene = Scene::new(Seed::from_number(6));
    scene
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (client, session) = scene.join(1);
    scene.run(100);
    scene.send(client, session, RELIABLE, b"last words");
    scene.world.apply(client, |host, now| {
        host.machine
            .close(now, session, CloseCode::App, b"bye")
            .unwrap();
    });
    scene.run(2_000);
    assert_eq!(scene.log(scene.server).messages[0].2, b"last words");
    assert_eq!(
        scene.log(client).closes(),
        [(session, CloseReason::Local(CloseCode::App))]
    );
    let closes = scene.log(scene.server).closes();
    assert_eq!(closes.len(), 1);
    assert_eq!(closes[0].1, CloseReason::Peer(CloseCode::App));
    assert_eq!(scene.peer(client).machine.session_count(), 0);
    assert_eq!(scene.peer(scene.server).machine.session_count(), 0);
}

#[test]
fn twp_t3_a_dead_peer_is_reported_within_the_idle_timeout() {
    let mut scene = Scene::new(Seed::from_number(7));
    let (client, session) = scene.join(1);
    scene.run(1_000);
    scene.world.kill(client);
    scene.run(9_900 - 1_000);
    assert!(scene.log(scene.server).closes().is_empty());
    scene.run(1_200);
    assert_eq!(scene.log(scene.server).closes()[0].1, CloseReason::Timeout);
    assert_eq!(scene.peer(scene.server).machine.session_count(), 0);
    let _ = session;
}

#[test]
fn twp_t2_a_server_paused_for_10_s_times_out_no_client() {
    let mut scene = Scene::new(Seed::from_number(8));
    let joined: Vec<_> = (1..=64).map(|player| scene.join(player)).collect();
    scene.run(1_000);
    scene.world.stall(scene.server, Duration::from_secs(10));
    for _ in 0..100 {
        for (client, session) in &joined {
            // The queue of a stalled peer may be full, which this test does not check.
            scene.world.apply(*client, |host, now| {
                host.machine.send(now, *session, UNRELIABLE, b"tick").ok();
            });
        }
        scene.run(100);
    }
    scene.run(2_000);
    assert!(scene.log(scene.server).closes().is_empty());
}

#[test]
fn twp_a5_two_idle_endpoints_exchange_only_keepalives() {
    let mut scene = Scene::new(Seed::from_number(9));
    let (client, session) = scene.join(1);
    scene.run(2_000);
    let before = scene.peer(client).machine.session_stats(session).unwrap();
    scene.run(10_000);
    let after = scene.peer(client).machine.session_stats(session).unwrap();
    let sent = after.packets_sent - before.packets_sent;
    assert!((10..=25).contains(&sent), "{sent} in 10 s");
}

#[test]
fn an_mtu_of_1_452_is_used_where_both_ends_take_it() {
    let mut config = Config::default();
    config.mtu = Mtu::MAX;
    let mut scene = Scene::with(Seed::from_number(10), config.clone(), |listen| listen);
    let client = scene.client_with(config);
    let tap = scene.world.tap(client, scene.server, 1_000);
    let unix = scene.world.unix_now();
    let credentials = scene.keys.token(unix, 1, address(SERVER));
    let session = scene.dial(client, credentials);
    scene.run(100);
    for _ in 0..40 {
        scene.send(client, session, UNRELIABLE, &[7; 100]);
    }
    scene.run(10);
    let longest = scene
        .world
        .captured(tap)
        .iter()
        .map(|captured| captured.datagram.bytes.len())
        .max();
    assert!(
        longest > Some(1_200) && longest <= Some(1_452),
        "{longest:?}"
    );
}

#[test]
fn shutdown_notifies_all_peers() {
    let mut scene = Scene::new(Seed::from_number(11));
    let joined: Vec<_> = (1..=5).map(|player| scene.join(player)).collect();
    scene.run(100);
    scene
        .world
        .apply(scene.server, |host, now| host.machine.shutdown(now));
    scene.run(1_000);
    for (client, session) in joined {
        assert_eq!(
            scene.log(client).closes(),
            [(session, CloseReason::Peer(CloseCode::Shutdown))]
        );
    }
}
