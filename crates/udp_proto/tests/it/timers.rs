//! Each timer of [`Config`] fires on time and not before.

use core::time::Duration;

use netsim::provider::SimProvider;
use udp_proto::{CloseCode, CloseReason, Config, ConnectFailure, IdleTimeout, Keepalive};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, START, config, failures};
use crate::harness::RELIABLE;

#[test]
fn linger_ends_an_unanswered_close() {
    let brief = config(|config| config.linger = Duration::from_millis(300));
    let mut line = Line::with(9, brief, |listen| listen);
    let (session, _) = line.join(1);
    line.run(100);
    let begin = line.now;
    line.client
        .machine
        .send(begin, session, RELIABLE, b"never acknowledged")
        .unwrap();
    line.client
        .machine
        .close(begin, session, CloseCode::App, b"")
        .unwrap();
    let mut ended_at = None;
    for millis in 0..1_000 {
        let now = begin + Duration::from_millis(millis);
        line.client.wake(now);
        line.client.drain(now);
        if ended_at.is_none() && !line.client.closes().is_empty() {
            ended_at = Some(millis);
        }
    }
    assert_eq!(ended_at, Some(300));
    assert_eq!(line.client.closes(), [CloseReason::Local(CloseCode::App)]);
}

#[test]
fn connect_timeout_ends_a_dial_on_time() {
    let brief = config(|config| config.connect_timeout = Duration::from_secs(3));
    let mut line = Line::with(10, brief, |listen| listen);
    let credentials = line.token(1);
    line.client.dial(START, &line.keys, credentials);
    let mut hellos = 0;
    for millis in 0..=3_000 {
        let now = START + Duration::from_millis(millis);
        line.client.wake(now);
        hellos += line.client.drain(now).len();
        assert_eq!(failures(&line.client).is_empty(), millis < 3_000);
    }
    assert!((4..=8).contains(&hellos), "{hellos}");
    assert_eq!(failures(&line.client), [ConnectFailure::Timeout]);
    assert_eq!(line.client.machine.session_count(), 0);
}

#[test]
fn keepalive_is_the_interval_of_an_idle_session() {
    let quick = config(|config| {
        config.keepalive = Keepalive::new(Duration::from_millis(300)).unwrap();
    });
    let mut line = Line::with(12, quick, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let sent = |line: &Line| {
        let stats = line.client.machine.session_stats(session);
        stats.unwrap().packets_sent
    };
    let before = sent(&line);
    line.run(3_000);
    let count = sent(&line) - before;
    // 3 s in steps of 240 to 300 ms, and at most as many answers.
    assert!((10..=26).contains(&count), "{count}");
}

#[test]
fn keepalive_is_capped_at_a_third_of_the_effective_idle_timeout() {
    // One end has a short timeout, and neither sends keepalives often enough by its own setting.
    let of = |idle, keepalive| {
        config(|config| {
            config.idle_timeout = IdleTimeout::new(Duration::from_secs(idle)).unwrap();
            config.keepalive = Keepalive::new(Duration::from_secs(keepalive)).unwrap();
        })
    };
    let mut line = Line::with(19, of(120, 20), |listen| listen);
    line.client = Party::new(CLIENT, of(2, 20), SimProvider::new(Seed::from_number(20)));
    let (session, theirs) = line.join(1);
    line.run(60_000);
    assert!(line.client.closes().is_empty() && line.server.closes().is_empty());
    let packets = |endpoint: &Party, session| {
        let stats = endpoint.machine.session_stats(session);
        stats.unwrap().packets_sent
    };
    // Every 667 ms or up to a fifth sooner, and an acknowledgement for each of the peer's.
    for count in [
        packets(&line.client, session),
        packets(&line.server, theirs),
    ] {
        assert!((90..=230).contains(&count), "{count}");
    }
}

#[test]
fn idle_timeout_is_the_smaller_of_both_ends() {
    let quick = config(|config| {
        config.idle_timeout = IdleTimeout::new(Duration::from_secs(2)).unwrap();
    });
    let seed = Seed::from_number(13);
    let mut line = Line::with(13, Config::default(), |listen| listen);
    line.client = Party::new(CLIENT, quick, SimProvider::new(seed));
    line.join(1);
    line.run(500);
    let silent_since = line.now;
    for millis in 0..=2_100 {
        let now = silent_since + Duration::from_millis(millis);
        line.server.wake(now);
        line.server.drain(now);
        // The client's last keepalive may have arrived up to a second ago.
        assert!(
            millis >= 1_000 || line.server.closes().is_empty(),
            "{millis}"
        );
    }
    assert_eq!(line.server.closes(), [CloseReason::Timeout]);
}
