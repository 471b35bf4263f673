//! Limits of a tunnel, each with a peer that reaches it.

use core::time::Duration;

use relay_mesh::tunnel::{ConnEnd, OpenError, Refusal, TunnelConfig};
use wire::Seed;

use super::pair::{Answer, Closes, Faces, Pair, Reading, calm, quiet, words};

const SECOND: Duration = Duration::from_secs(1);

/// A pair with an entry that allows more than its exit, like an attacker.
fn greedy(exit: &TunnelConfig) -> Pair {
    let entry = with(|config| {
        config.players_max = 10_000;
        config.per_address_max = 10_000;
        config.open_rate = 10_000;
    });
    Pair::between(Seed::from_number(1), [&entry, exit], calm(), Faces::Honest)
}

fn with(change: impl FnOnce(&mut TunnelConfig)) -> TunnelConfig {
    let mut config = TunnelConfig::default();
    change(&mut config);
    config
}

/// Players that do not read fill at most the allowed windows: 128 of 150 connections stay, and a
/// player that reads is not blocked.
#[test]
fn mesh_a5_memory_for_stalled_readers_is_bounded() {
    let mut pair = quiet();
    let mut conns = Vec::new();
    for player in 0..150 {
        let player = format!("203.0.113.{player}:4000");
        conns.push(pair.open(&player, b"GET /", Closes::Behind).unwrap());
    }
    pair.run(SECOND);
    for conn in &conns {
        pair.entry.talks.get_mut(conn).unwrap().reading = Reading::Nothing;
    }
    let flood = words(64 << 10, 3);
    let servers: Vec<_> = pair.exit.talks.keys().copied().collect();
    for server in servers {
        pair.exit.transmit(server, &flood, Closes::Behind);
    }
    pair.run(SECOND * 3);
    assert_eq!(pair.entry.tunnel.stats().stalled, 0, "a pause is no stall");
    let there = words(1 << 20, 9);
    let reader = pair.open("198.51.100.1:1", &there, Closes::Behind).unwrap();
    pair.run(SECOND * 10);
    let stalled = pair.entry.tunnel.stats().stalled;
    assert_eq!(stalled, 150 - 128);
    let ends = pair.entry.talks.values().filter_map(|talk| talk.end);
    assert_eq!(ends.collect::<Vec<_>>(), [ConnEnd::Reset; 150 - 128]);
    assert!(pair.entry.talks[&reader].to_write.is_empty());
    // The remaining connections get all data once they read.
    for conn in &conns {
        if pair.entry.talks[conn].end.is_none() {
            pair.entry.read_from_now_on(*conn);
        }
    }
    pair.run(SECOND * 10);
    let talks = conns.iter().map(|conn| &pair.entry.talks[conn]);
    let whole = talks.filter(|talk| talk.got == flood);
    assert_eq!(whole.count(), 128);
}

#[test]
fn players_max_holds_at_the_entry() {
    let config = with(|config| config.players_max = 3);
    let mut pair = Pair::new(Seed::from_number(1), &config, calm());
    for player in 1..=3 {
        let player = format!("203.0.113.{player}:4000");
        pair.open(&player, b"x", Closes::Never).unwrap();
    }
    let over = pair.open("203.0.113.4:4000", b"x", Closes::Never);
    assert_eq!(over, Err(OpenError::Players));
    assert_eq!(pair.entry.tunnel.stats().over_players, 1);
    let first = *pair.entry.talks.keys().next().unwrap();
    pair.entry.tunnel.reset(first);
    pair.open("203.0.113.4:4000", b"x", Closes::Never).unwrap();
}

#[test]
fn players_max_holds_at_the_exit_and_a_free_slot_goes_to_a_waiting_player() {
    let mut pair = greedy(&with(|config| config.players_max = 3));
    pair.run(SECOND);
    let conns: Vec<_> = (0..5)
        .map(|player| {
            pair.open(&format!("203.0.113.{player}:4000"), b"x", Closes::Never)
                .unwrap()
        })
        .collect();
    pair.run(SECOND * 5);
    assert_eq!(pair.exit.tunnel.len(), 3);
    pair.entry.tunnel.reset(conns[0]);
    pair.run(SECOND);
    assert_eq!(pair.exit.tunnel.len(), 3);
    assert!(
        pair.entry.talks[&conns[3]].is_accepted,
        "the oldest that waited"
    );
    pair.run(SECOND * 20);
    assert_eq!(pair.entry.talks[&conns[4]].end, Some(ConnEnd::Unanswered));
    assert_eq!(pair.entry.tunnel.len(), 3);
}

#[test]
fn players_max_slots_of_ended_players_are_reused_at_once() {
    let mut pair = greedy(&with(|config| config.players_max = 64));
    let open = |pair: &mut Pair, player: u8| {
        let player = format!("203.0.113.{player}:4000");
        pair.open(&player, b"x", Closes::Never).unwrap()
    };
    let conns: Vec<_> = (0..64).map(|player| open(&mut pair, player)).collect();
    pair.run(SECOND);
    assert_eq!(pair.exit.tunnel.len(), 64);
    // Fewer than QUIC reports to the entry: it has regained none of their streams.
    for &conn in &conns[..5] {
        pair.entry.tunnel.reset(conn);
    }
    pair.run(SECOND);
    let later: Vec<_> = (64..70).map(|player| open(&mut pair, player)).collect();
    pair.run(SECOND);
    assert_eq!(pair.exit.tunnel.len(), 64, "and no more than that");
    let accepted = |conn| pair.entry.talks[conn].is_accepted;
    assert_eq!(later.iter().filter(|conn| accepted(conn)).count(), 5);
}

#[test]
fn per_address_max_holds_at_both_ends() {
    let mut pair = quiet();
    for port in 1..=64 {
        let player = format!("203.0.113.9:{port}");
        pair.open(&player, b"x", Closes::Never).unwrap();
    }
    let over = pair.open("203.0.113.9:65", b"x", Closes::Never);
    assert_eq!(over, Err(OpenError::Address));
    pair.open("203.0.113.10:65", b"x", Closes::Never).unwrap();
    assert_eq!(pair.entry.tunnel.stats().over_address, 1);

    let mut pair = greedy(&TunnelConfig::default());
    for port in 1..=68 {
        let player = format!("203.0.113.9:{port}");
        pair.open(&player, b"x", Closes::Never).unwrap();
    }
    pair.run(SECOND);
    assert_eq!(pair.exit.tunnel.len(), 64);
    assert_eq!(pair.exit.tunnel.stats().over_address, 4);
    let crowded = Some(ConnEnd::Refused(Refusal::LimitReached));
    let refused = pair.entry.talks.values().filter(|talk| talk.end == crowded);
    assert_eq!(refused.count(), 4);
}

#[test]
fn open_rate_holds_at_both_ends() {
    let config = with(|config| config.open_rate = 2);
    let mut pair = Pair::new(Seed::from_number(1), &config, calm());
    let opens = |pair: &mut Pair| {
        (0..20)
            .filter(|player| {
                let player = format!("203.0.113.{player}:4000");
                pair.open(&player, b"x", Closes::Never).is_ok()
            })
            .count()
    };
    assert_eq!(opens(&mut pair), 8, "four times as many at once");
    pair.run(SECOND);
    assert_eq!(opens(&mut pair), 2);
    assert_eq!(pair.entry.tunnel.stats().over_rate, 30);

    let mut pair = greedy(&config);
    assert_eq!(opens(&mut pair), 20);
    pair.run(SECOND);
    assert_eq!(pair.exit.tunnel.len(), 8);
    assert_eq!(pair.exit.tunnel.stats().over_rate, 12);
}

#[test]
fn what_is_unacknowledged_is_bounded_over_all_connections() {
    let mut pair = quiet();
    for player in 0..100 {
        let player = format!("203.0.113.{player}:4000");
        pair.open(&player, b"x", Closes::Never).unwrap();
    }
    pair.run(SECOND);
    pair.set_links(calm().with_down());
    let conns: Vec<_> = pair.entry.talks.keys().copied().collect();
    let flood = words(1 << 20, 1);
    for conn in conns {
        pair.entry.transmit(conn, &flood, Closes::Never);
    }
    let written: usize = pair.entry.talks.values().map(|talk| talk.written).sum();
    assert!((3 << 20..=(4 << 20) + 100).contains(&written), "{written}");
}

#[test]
fn an_exit_without_acknowledgements_gets_at_most_a_window() {
    let mut pair = quiet();
    pair.exit.answer = Answer::Silence;
    let flood = words(1 << 20, 1);
    pair.open("203.0.113.9:4000", &flood, Closes::Never)
        .unwrap();
    pair.run(SECOND * 10);
    let written = pair.entry.talk().written;
    assert!(written <= 512 << 10, "{written}");
    assert!(pair.exit.talk().got.is_empty());
}

#[test]
fn mesh_a1_junk_in_a_tunnel_is_counted_and_ends_nothing() {
    let mut pair = quiet();
    pair.open("203.0.113.9:4000", b"hello", Closes::Never)
        .unwrap();
    pair.run(SECOND);
    let mut sent = 0;
    for len in 0..1_300_usize {
        let junk = words(len, len.to_le_bytes()[0]);
        for end in [&mut pair.entry, &mut pair.exit] {
            end.tunnel.handle_datagram(pair.now, &junk);
            end.take_events();
            let mut answer = Vec::new();
            while end.tunnel.poll_transmit(pair.now, &mut answer).is_some() {}
            sent += answer.len();
        }
    }
    assert_eq!(sent, 0, "answers to junk");
    assert!(pair.exit.tunnel.stats().junk > 1_000);
    let conn = pair.entry.conn();
    pair.entry.transmit(conn, b" again", Closes::Never);
    pair.run(SECOND);
    assert_eq!(pair.exit.talk().got, b"hello again");
}
