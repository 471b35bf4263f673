//! How connections and tunnels end: reset, refused, abandoned, and timed out.

use core::time::Duration;

use relay_mesh::tunnel::{ConnEnd, Gone, OpenError, Refusal, TunnelConfig, TunnelEnd};
use wire::Seed;

use super::pair::{Answer, Closes, Faces, Pair, calm, quiet, record};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn pg8_a_reset_at_either_end_resets_the_other() {
    for is_entry in [true, false] {
        for closes in [Closes::Never, Closes::Behind] {
            let mut pair = quiet();
            pair.open("203.0.113.9:4000", b"hello", closes).unwrap();
            pair.run(SECOND);
            let (conns, ends) = (
                [pair.entry.conn(), pair.exit.conn()],
                [&mut pair.entry, &mut pair.exit],
            );
            let [entry, exit] = ends;
            let (near, remote) = if is_entry {
                (entry, exit)
            } else {
                (exit, entry)
            };
            let conn = conns[usize::from(!is_entry)];
            near.tunnel.reset(conn);
            assert_eq!(near.tunnel.write(conn, b"x"), Err(Gone));
            assert!(near.tunnel.readable(conn).is_empty());
            assert!(remote.talk().end.is_none());
            pair.run(SECOND);
            let remote = if is_entry {
                &mut pair.exit
            } else {
                &mut pair.entry
            };
            assert_eq!(remote.talk().end, Some(ConnEnd::Reset));
            assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
            assert_eq!(pair.exit.tunnel.stats().reset, 1);
            assert_eq!(pair.entry.tunnel.stats().reset, 1);
        }
    }
}

#[test]
fn pg8_a_player_that_leaves_during_the_dial_of_its_server_is_dropped() {
    let mut pair = quiet();
    pair.exit.answer = Answer::Silence;
    let conn = pair
        .open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND);
    assert!(pair.exit.talk().open.is_some());
    pair.entry.tunnel.reset(conn);
    pair.run(SECOND);
    assert_eq!(pair.exit.talk().end, Some(ConnEnd::Reset));
    let server = pair.exit.conn();
    assert_eq!(pair.exit.tunnel.accept(server), Err(Gone));
    assert!(pair.exit.tunnel.is_empty());
}

#[test]
fn pg8_a_refused_player_gets_the_reason() {
    let all = [
        Refusal::Policy,
        Refusal::LimitReached,
        Refusal::Server,
        Refusal::Slow,
        Refusal::Malformed,
    ];
    for why in all {
        let mut pair = quiet();
        pair.exit.answer = Answer::Refuse(why);
        pair.open("203.0.113.9:4000", b"hello", Closes::Never)
            .unwrap();
        pair.run(SECOND);
        assert_eq!(pair.entry.talk().end, Some(ConnEnd::Refused(why)));
        assert!(!pair.entry.talk().is_accepted);
        assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
        assert_eq!(pair.entry.tunnel.stats().refused, 1);
    }
}

#[test]
fn pg8_an_unresponsive_driver_holds_no_slot_forever() {
    let mut pair = quiet();
    pair.exit.answer = Answer::Silence;
    pair.open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND * 14);
    assert!(pair.exit.talk().end.is_none() && pair.entry.talk().end.is_none());
    pair.run(SECOND * 2);
    assert_eq!(pair.exit.talk().end, Some(ConnEnd::Unanswered));
    let slow = ConnEnd::Refused(Refusal::Slow);
    assert_eq!(pair.entry.talk().end, Some(slow));
    assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
}

#[test]
fn pg8_an_exit_silent_from_the_start_delays_no_player() {
    let mut pair = Pair::new(
        Seed::from_number(1),
        &TunnelConfig::default(),
        calm().with_down(),
    );
    pair.open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND * 21);
    let end = pair.entry.talk().end;
    let silent = ConnEnd::Lost(TunnelEnd::Silent);
    assert!(
        [Some(ConnEnd::Unanswered), Some(silent)].contains(&end),
        "{end:?}"
    );
    assert!(pair.entry.tunnel.is_empty());
}

#[test]
fn pg8_an_exit_that_falls_silent_resets_all_its_players() {
    let mut pair = quiet();
    for player in 0..50 {
        let player = format!("203.0.113.{player}:4000");
        pair.open(&player, b"hello", Closes::Never).unwrap();
    }
    pair.run(SECOND);
    pair.set_links(calm().with_down());
    pair.run(SECOND * 30);
    for end in [&pair.entry, &pair.exit] {
        assert_eq!(end.down, Some(TunnelEnd::Silent));
        let lost = Some(ConnEnd::Lost(TunnelEnd::Silent));
        assert!(end.talks.values().all(|talk| talk.end == lost));
        assert!(end.tunnel.is_empty());
    }
    let late = pair.open("203.0.113.1:1", b"", Closes::Never);
    assert_eq!(late, Err(OpenError::Closed));
    assert_eq!(
        pair.entry.tunnel.poll_timeout(),
        None,
        "nothing is left to be done"
    );
}

#[test]
fn an_idle_tunnel_still_works_after_an_hour() {
    let mut pair = quiet();
    pair.run(SECOND * 3_600);
    assert_eq!(pair.entry.down, None);
    pair.open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND);
    assert_eq!(pair.exit.talk().got, b"hello");
}

#[test]
fn a_tunnel_that_is_closed_ends_the_other_end_too() {
    let mut pair = quiet();
    pair.open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND);
    pair.exit.tunnel.close(pair.now);
    pair.run(SECOND);
    assert_eq!(pair.exit.talk().end, Some(ConnEnd::Lost(TunnelEnd::Local)));
    assert_eq!(
        pair.entry.talk().end,
        Some(ConnEnd::Lost(TunnelEnd::Closed))
    );
    assert_eq!(pair.entry.down, Some(TunnelEnd::Closed));
}

#[test]
fn pg11_another_nodes_key_is_refused_at_either_end() {
    for faces in [Faces::OtherEntry, Faces::OtherExit] {
        let config = TunnelConfig::default();
        let seed = Seed::from_number(1);
        let mut pair = Pair::between(seed, [&config, &config], calm(), faces);
        pair.open("203.0.113.9:4000", b"secret", Closes::Never)
            .unwrap();
        pair.run(SECOND);
        assert_eq!(pair.entry.down, Some(TunnelEnd::Identity));
        assert_eq!(pair.exit.down, Some(TunnelEnd::Identity));
        let lost = ConnEnd::Lost(TunnelEnd::Identity);
        assert_eq!(pair.entry.talk().end, Some(lost));
        assert!(
            pair.exit.talks.is_empty(),
            "the exit was asked by a stranger"
        );
    }
}

#[test]
fn an_end_refuses_calls_for_the_other_end_or_another_connection() {
    let mut pair = quiet();
    pair.run(SECOND);
    let refused = pair.exit.tunnel.open(pair.now, &record("203.0.113.9:4000"));
    assert_eq!(refused, Err(OpenError::Closed));
    let conn = pair.open("203.0.113.9:4000", b"", Closes::Never).unwrap();
    assert_eq!(pair.entry.tunnel.accept(conn), Err(Gone));
    pair.run(SECOND);
    let server = pair.exit.conn();
    assert_eq!(pair.exit.tunnel.accept(server), Err(Gone), "a second time");
    assert_eq!(pair.exit.tunnel.finish(conn), Err(Gone), "another tunnel's");
}
