//! Timeouts of one session among others of the same endpoint.

use core::time::Duration;

use netsim::provider::SimProvider;
use udp_proto::{
    ChannelId, CloseReason, Config, ConnectFailure, Event, IdleTimeout, Keepalive, Message,
    MessageOutcome, NoSession, SessionId, Timeouts,
};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, START, failures, target};
use crate::harness::UNRELIABLE;

fn times(idle_ms: u64, keepalive_ms: u64) -> Timeouts {
    let mut times = Timeouts::of(&Config::default());
    times.idle = IdleTimeout::new(Duration::from_millis(idle_ms)).unwrap();
    times.keepalive = Keepalive::new(Duration::from_millis(keepalive_ms)).unwrap();
    times
}

/// Dials with its own timeouts; returns the client's and the server's session.
fn join(line: &mut Line, player: u64, times: Timeouts) -> (SessionId, SessionId) {
    let credentials = line.token(player);
    let target = target(line, credentials);
    let machine = &mut line.client.machine;
    let session = machine.connect_with(line.now, target, times).unwrap();
    line.run(300);
    (session, *line.server.sessions().last().unwrap())
}

fn sent(endpoint: &Party, session: SessionId) -> u64 {
    endpoint
        .machine
        .session_stats(session)
        .unwrap()
        .packets_sent
}

fn closed(endpoint: &Party) -> Vec<SessionId> {
    let closed = endpoint.events.iter().filter_map(|event| match event {
        Event::Closed {
            session, reason, ..
        } => {
            assert_eq!(*reason, CloseReason::Timeout);
            Some(*session)
        }
        _ => None,
    });
    closed.collect()
}

#[test]
fn u12_each_dial_has_a_handshake_timeout_of_its_own() {
    let mut line = Line::new(40);
    for (player, seconds) in [(1, 2), (2, 5)] {
        let mut times = times(10_000, 1_000);
        times.connect = Duration::from_secs(seconds);
        let credentials = line.token(player);
        let target = target(&line, credentials);
        let machine = &mut line.client.machine;
        machine.connect_with(START, target, times).unwrap();
    }
    for millis in 0..=6_000 {
        let now = START + Duration::from_millis(millis);
        line.client.wake(now);
        // These datagrams are lost.
        line.client.drain(now);
        let failed = usize::from(millis >= 2_000) + usize::from(millis >= 5_000);
        assert_eq!(
            failures(&line.client),
            vec![ConnectFailure::Timeout; failed]
        );
    }
}

#[test]
fn u12_idle_timeout_and_keepalive_can_differ_per_session() {
    let mut line = Line::new(41);
    let (quick, quick_at_server) = join(&mut line, 1, times(3_000, 300));
    let (slow, slow_at_server) = join(&mut line, 2, times(10_000, 3_000));
    line.run(1_000);
    let before = [quick, slow].map(|session| sent(&line.client, session));
    line.run(9_000);
    let after = [quick, slow].map(|session| sent(&line.client, session));
    // One every 240 to 300 ms, and answers to the server's, one per second.
    assert!(
        (30..=60).contains(&(after[0] - before[0])),
        "{after:?} {before:?}"
    );
    assert!(
        (3..=20).contains(&(after[1] - before[1])),
        "{after:?} {before:?}"
    );
    // The client goes silent, and the server times out each session at its own deadline.
    let since = line.now;
    for millis in 0..=10_100 {
        let now = since + Duration::from_millis(millis);
        line.server.wake(now);
        line.server.drain(now);
        let gone = closed(&line.server);
        match millis {
            ..1_900 => assert_eq!(gone, []),
            3_000..6_900 => assert_eq!(gone, [quick_at_server]),
            10_100.. => assert_eq!(gone, [quick_at_server, slow_at_server]),
            _ => {}
        }
    }
}

#[test]
fn u12_a_server_changes_the_times_of_one_session_within_what_was_agreed() {
    let mut line = Line::new(42);
    line.client = Party::new(
        CLIENT,
        Config::default(),
        SimProvider::new(Seed::from_number(9)),
    );
    let (first, first_at_server) = join(&mut line, 1, times(10_000, 1_000));
    let (_, second_at_server) = join(&mut line, 2, times(10_000, 1_000));
    line.run(500);
    let (now, server) = (line.now, &mut line.server.machine);
    let mut set = |idle, keepalive| {
        server
            .set_timeouts(now, first_at_server, &times(idle, keepalive))
            .unwrap()
    };
    let seconds = Duration::from_secs;
    // At most the agreed 10 s and at least three of the peer's keepalives; ours are sent at the
    // announced interval.
    assert_eq!(set(120_000, 20_000), (seconds(10), seconds(1)));
    assert_eq!(set(2_000, 400), (seconds(3), Duration::from_millis(400)));
    assert_eq!(set(4_000, 400), (seconds(4), Duration::from_millis(400)));
    let before = sent(&line.server, first_at_server);
    line.run(10_000);
    let count = sent(&line.server, first_at_server) - before;
    assert!((25..=55).contains(&count), "{count}");
    assert!(closed(&line.server).is_empty());
    let since = line.now;
    for millis in 0..=10_100 {
        let now = since + Duration::from_millis(millis);
        line.server.wake(now);
        line.server.drain(now);
        let gone = closed(&line.server);
        match millis {
            ..2_900 => assert_eq!(gone, []),
            4_000..8_900 => assert_eq!(gone, [first_at_server]),
            10_100.. => assert_eq!(gone, [first_at_server, second_at_server]),
            _ => {}
        }
    }
    let (now, server) = (since + seconds(11), &mut line.server.machine);
    let gone = server.set_timeouts(now, first_at_server, &times(4_000, 400));
    assert_eq!(gone, Err(NoSession));
    let gone = server.set_ttl(first_at_server, UNRELIABLE, seconds(1));
    assert_eq!(gone, Err(NoSession));
    assert!(line.client.machine.session_stats(first).is_some());
}

/// One end has the shortest timeout, both have the longest keepalive interval: neither times out.
#[test]
fn u12_timeouts_changed_by_both_ends_end_no_working_session() {
    let mut line = Line::new(44);
    let (ours, theirs) = join(&mut line, 1, times(10_000, 1_000));
    let now = line.now;
    for (endpoint, session, idle) in [
        (&mut line.client, ours, 10_000),
        (&mut line.server, theirs, 2_000),
    ] {
        let machine = &mut endpoint.machine;
        machine
            .set_timeouts(now, session, &times(idle, 20_000))
            .unwrap();
    }
    line.run(60_000);
    assert!(closed(&line.client).is_empty() && closed(&line.server).is_empty());
}

#[test]
fn u12_each_session_may_have_a_ttl_of_its_own() {
    let mut line = Line::new(43);
    let (brief, _) = join(&mut line, 1, times(10_000, 1_000));
    let (patient, _) = join(&mut line, 2, times(10_000, 1_000));
    let machine = &mut line.client.machine;
    let ttl = Duration::from_millis(30);
    assert_eq!(machine.set_ttl(brief, UNRELIABLE, ttl), Ok(true));
    assert_eq!(machine.set_ttl(brief, ChannelId(9), ttl), Ok(false));
    for session in [brief, patient] {
        let message = Message::new(UNRELIABLE, b"x");
        machine.send_tracked(line.now, session, &message).unwrap();
    }
    // The driver does not run, so nothing is sent.
    line.now += Duration::from_millis(31);
    line.client.wake(line.now);
    line.run(300);
    let settled = line.client.events.iter().filter_map(|event| match event {
        Event::Settled {
            session, outcome, ..
        } => Some((*session, *outcome)),
        _ => None,
    });
    let expected = [
        (brief, MessageOutcome::Expired),
        (patient, MessageOutcome::Delivered),
    ];
    assert_eq!(settled.collect::<Vec<_>>(), expected);
}
