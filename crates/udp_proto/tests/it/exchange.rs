//! Two honest endpoints.

use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};
use udp_proto::{CloseCode, CloseReason, Config, Credentials, Event, Mtu, Proof};
use wire::{ClientId, MatchId, Seat, Seed, Team};

use crate::harness::{RELIABLE, SERVER, Testbed, UNRELIABLE, address};

#[test]
fn connects_with_a_token_in_one_round_trip_and_echoes() {
    let mut testbed = Testbed::new(Seed::from_number(1));
    testbed
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (client, session) = testbed.join(42);
    testbed.run(41);
    assert_eq!(testbed.log(client).sessions(), [session], "1 RTT, no RETRY");
    testbed.run(20);
    let Some(Event::Connected { peer, .. }) = testbed.log(testbed.server).events.first() else {
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

    testbed.send(client, session, UNRELIABLE, b"soon");
    testbed.send(client, session, RELIABLE, b"surely");
    testbed.run(45);
    let back: Vec<_> = testbed
        .log(client)
        .messages
        .iter()
        .map(|(.., m)| m.as_slice())
        .collect();
    assert_eq!(back, [&b"soon"[..], b"surely"]);
    let stats = testbed.peer(client).machine.session_stats(session).unwrap();
    assert_eq!(stats.rtt_min, Duration::from_millis(40));
}

#[test]
fn open_mode_requires_a_cookie_first() {
    let mut testbed = Testbed::with(Seed::from_number(2), Config::default(), |listen| {
        listen.with_open_mode()
    });
    let client = testbed.client();
    let session = testbed.dial(client, Credentials::Open);
    testbed.run(10);
    assert_eq!(testbed.log(client).sessions(), [session]);
    let stats = *testbed.peer(testbed.server).machine.stats();
    assert_eq!((stats.retried, stats.accepted), (1, 1));
}

#[test]
fn speaks_over_ipv6() {
    let seed = Seed::from_number(3);
    let mut testbed = Testbed::new(seed);
    let server = address("[2001:db8::1]:7777");
    testbed.world.bind_address(testbed.server, server);
    let client = testbed.client();
    testbed
        .world
        .bind_address(client, address("[2001:db8::2]:4000"));
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, server);
    let mut target = testbed.target(credentials);
    target.addresses = vec![server];
    testbed
        .world
        .apply(client, |host, now| host.machine.connect(now, target))
        .unwrap();
    testbed.run(10);
    assert_eq!(testbed.log(client).sessions().len(), 1);
}

#[test]
fn tries_the_next_address_after_2_5_s() {
    let mut testbed = Testbed::new(Seed::from_number(4));
    let client = testbed.client();
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let mut target = testbed.target(credentials);
    target.addresses.insert(0, address("192.0.2.99:1"));
    testbed
        .world
        .apply(client, |host, now| host.machine.connect(now, target))
        .unwrap();
    testbed.run(2_400);
    assert!(testbed.log(client).sessions().is_empty());
    testbed.run(200);
    assert_eq!(testbed.log(client).sessions().len(), 1);
}

#[test]
fn a_message_of_64_kib_arrives_whole() {
    let mut testbed = Testbed::new(Seed::from_number(5));
    testbed.world.set_default_link(
        LinkConfig::default()
            .with_delay(Duration::from_millis(10))
            .with_loss(Loss::Bernoulli(Chance::percent(5))),
    );
    let (client, session) = testbed.join(1);
    testbed.run(3_000);
    let message: Vec<u8> = (0..65_536_u32).map(|i| i.to_le_bytes()[0]).collect();
    testbed.send(client, session, RELIABLE, &message);
    testbed.run(4_000);
    let server = testbed.log(testbed.server);
    assert_eq!(server.messages.len(), 1);
    assert_eq!(server.messages[0].2, message);
    assert_eq!(testbed.log(client).messages[0].2, message);
}

#[test]
fn a_graceful_close_flushes_and_is_reported_once_on_both_sides() {
    let mut testbed = Testbed::new(Seed::from_number(6));
    testbed
        .world
        .set_default_link(LinkConfig::default().with_delay(Duration::from_millis(20)));
    let (client, session) = testbed.join(1);
    testbed.run(100);
    testbed.send(client, session, RELIABLE, b"last words");
    testbed.world.apply(client, |host, now| {
        host.machine
            .close(now, session, CloseCode::App, b"bye")
            .unwrap();
    });
    testbed.run(2_000);
    assert_eq!(testbed.log(testbed.server).messages[0].2, b"last words");
    assert_eq!(
        testbed.log(client).closes(),
        [(session, CloseReason::Local(CloseCode::App))]
    );
    let closes = testbed.log(testbed.server).closes();
    assert_eq!(closes.len(), 1);
    assert_eq!(closes[0].1, CloseReason::Peer(CloseCode::App));
    assert_eq!(testbed.peer(client).machine.session_count(), 0);
    assert_eq!(testbed.peer(testbed.server).machine.session_count(), 0);
}

#[test]
fn twp_t3_a_dead_peer_is_reported_within_the_idle_timeout() {
    let mut testbed = Testbed::new(Seed::from_number(7));
    let (client, session) = testbed.join(1);
    testbed.run(1_000);
    testbed.world.kill(client);
    testbed.run(9_900 - 1_000);
    assert!(testbed.log(testbed.server).closes().is_empty());
    testbed.run(1_200);
    assert_eq!(
        testbed.log(testbed.server).closes()[0].1,
        CloseReason::Timeout
    );
    assert_eq!(testbed.peer(testbed.server).machine.session_count(), 0);
    let _ = session;
}

#[test]
fn twp_t2_a_server_paused_for_10_s_times_out_no_client() {
    let mut testbed = Testbed::new(Seed::from_number(8));
    let joined: Vec<_> = (1..=64).map(|player| testbed.join(player)).collect();
    testbed.run(1_000);
    testbed.world.stall(testbed.server, Duration::from_secs(10));
    for _ in 0..100 {
        for (client, session) in &joined {
            // The queue of a stalled peer may be full, which this test does not check.
            testbed.world.apply(*client, |host, now| {
                host.machine.send(now, *session, UNRELIABLE, b"tick").ok();
            });
        }
        testbed.run(100);
    }
    testbed.run(2_000);
    assert!(testbed.log(testbed.server).closes().is_empty());
}

#[test]
fn twp_a5_two_idle_endpoints_exchange_only_keepalives() {
    let mut testbed = Testbed::new(Seed::from_number(9));
    let (client, session) = testbed.join(1);
    testbed.run(2_000);
    let before = testbed.peer(client).machine.session_stats(session).unwrap();
    testbed.run(10_000);
    let after = testbed.peer(client).machine.session_stats(session).unwrap();
    let sent = after.packets_sent - before.packets_sent;
    assert!((10..=25).contains(&sent), "{sent} in 10 s");
}

#[test]
fn an_mtu_of_1_452_is_used_where_both_ends_take_it() {
    let mut config = Config::default();
    config.mtu = Mtu::MAX;
    let mut testbed = Testbed::with(Seed::from_number(10), config.clone(), |listen| listen);
    let client = testbed.client_with(config);
    let tap = testbed.world.tap(client, testbed.server, 1_000);
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let session = testbed.dial(client, credentials);
    testbed.run(100);
    for _ in 0..40 {
        testbed.send(client, session, UNRELIABLE, &[7; 100]);
    }
    testbed.run(10);
    let longest = testbed
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
    let mut testbed = Testbed::new(Seed::from_number(11));
    let joined: Vec<_> = (1..=5).map(|player| testbed.join(player)).collect();
    testbed.run(100);
    testbed
        .world
        .apply(testbed.server, |host, now| host.machine.shutdown(now));
    testbed.run(1_000);
    for (client, session) in joined {
        assert_eq!(
            testbed.log(client).closes(),
            [(session, CloseReason::Peer(CloseCode::Shutdown))]
        );
    }
}
