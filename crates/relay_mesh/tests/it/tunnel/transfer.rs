//! Bytes through a tunnel: intact, in both directions, with closed halves, over changing paths.

use core::time::Duration;

use netsim::{LinkConfig, for_each_seed, test_site};
use relay_mesh::tunnel::{ConnEnd, TunnelConfig, WINDOW};
use wire::Seed;

use super::pair::{Closes, Pair, Reading, calm, lossy, quiet, record, words};

#[test]
fn sim_pg8_eight_mib_pass_intact_both_ways_under_loss() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut pair = Pair::new(seed, &TunnelConfig::default(), lossy(20));
        let (there, back) = (words(8 << 20, 1), words(8 << 20, 2));
        pair.open("203.0.113.9:4000", &there, Closes::Behind)
            .unwrap();
        pair.run_until_or(Duration::from_secs(5), |pair| !pair.exit.talks.is_empty());
        let conn = pair.exit.conn();
        pair.exit.transmit(conn, &back, Closes::Behind);
        let is_over = pair.run_until_or(Duration::from_secs(600), |pair| {
            pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty()
        });
        assert!(is_over, "never done");
        assert!(pair.exit.talk().got == there, "changed on the way there");
        assert!(pair.entry.talk().got == back, "changed on the way back");
        for end in [&mut pair.entry, &mut pair.exit] {
            assert_eq!(end.talk().end, Some(ConnEnd::Done));
            assert_eq!(end.tunnel.stats().done, 1);
        }
    });
}

#[test]
fn pg8_a_half_that_is_closed_leaves_the_other_open() {
    let mut pair = quiet();
    let conn = pair
        .open("203.0.113.9:4000", b"GET /", Closes::Behind)
        .unwrap();
    pair.run(Duration::from_secs(1));
    assert!(pair.exit.talk().has_all, "the server sees the end");
    assert_eq!(pair.exit.talk().got, b"GET /");
    assert_eq!(pair.exit.talk().open, Some(record("203.0.113.9:4000")));
    assert!(pair.entry.talk().is_accepted);
    assert!(
        pair.entry.tunnel.write(conn, b"x").is_err(),
        "this half is closed"
    );

    pair.run(Duration::from_secs(60));
    let server = pair.exit.conn();
    let answer = words(300_000, 7);
    pair.exit.transmit(server, &answer, Closes::Never);
    pair.run(Duration::from_secs(2));
    assert!(pair.entry.talk().got == answer);
    assert!(!pair.entry.talk().has_all, "the other half is open");

    pair.exit.transmit(server, b"", Closes::Behind);
    pair.run(Duration::from_secs(1));
    assert!(pair.entry.talk().has_all);
    assert_eq!(pair.entry.talk().end, Some(ConnEnd::Done));
    assert_eq!(pair.exit.talk().end, Some(ConnEnd::Done));
    assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
}

#[test]
fn pg8_a_half_close_before_the_servers_answer_is_passed_on() {
    let mut pair = quiet();
    pair.open("203.0.113.9:4000", b"", Closes::Behind).unwrap();
    pair.run(Duration::from_secs(1));
    assert!(pair.exit.talk().has_all && pair.exit.talk().got.is_empty());
    let server = pair.exit.conn();
    pair.exit.transmit(server, b"bye", Closes::Behind);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.entry.talk().got, b"bye");
    assert_eq!(pair.entry.talk().end, Some(ConnEnd::Done));
}

#[test]
fn pg8_a_slow_reader_stops_the_sender_within_the_window() {
    let bound = usize::try_from(WINDOW).unwrap() + (16 << 10);
    let mut pair = quiet();
    let conn = pair.open("203.0.113.9:4000", b"", Closes::Never).unwrap();
    pair.entry.talk().reading = Reading::Nothing;
    pair.run(Duration::from_secs(1));
    let server = pair.exit.conn();
    pair.exit.talk().reading = Reading::Nothing;

    let there = words(4 << 20, 1);
    pair.entry.transmit(conn, &there, Closes::Behind);
    pair.exit.transmit(server, &there, Closes::Behind);
    pair.run(Duration::from_secs(60));
    for end in [&mut pair.entry, &mut pair.exit] {
        let written = end.talk().written;
        assert!((bound / 2..=bound).contains(&written), "{written}");
    }

    pair.exit.read_from_now_on(server);
    pair.entry.read_from_now_on(conn);
    pair.run(Duration::from_secs(20));
    assert!(pair.exit.talk().got == there && pair.entry.talk().got == there);
    assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
}

/// A window of 128 KiB limited it to 80 Mbit/s.
#[test]
fn mesh_a5_a_connection_alone_gets_200_megabits_a_second_at_12_7_ms() {
    let line = LinkConfig::default().with_delay(Duration::from_micros(6_350));
    let mut pair = Pair::new(Seed::from_number(2), &TunnelConfig::default(), line);
    let there = words(32 << 20, 5);
    pair.open("203.0.113.9:4000", b"GET /", Closes::Behind)
        .unwrap();
    pair.run(Duration::from_secs(1));
    let (server, begins) = (pair.exit.conn(), pair.now);
    pair.exit.transmit(server, &there, Closes::Behind);
    let is_over = pair.run_until_or(Duration::from_secs(10), |pair| {
        pair.entry
            .talks
            .values()
            .all(|talk| talk.got.len() == there.len())
    });
    assert!(is_over);
    let micros = pair.now.saturating_since(begins).as_micros();
    let megabits = (u128::from(32_u32 << 20) * 8) / micros;
    eprintln!("one connection at 12.7 ms: {megabits} Mbit/s");
    assert!(megabits >= 200, "{megabits} Mbit/s");
}

#[test]
fn pg8_blocked_readers_delay_no_other() {
    let mut pair = quiet();
    let flood = words(1 << 20, 3);
    for player in 0..100 {
        let player = format!("203.0.113.{player}:4000");
        pair.open(&player, &flood, Closes::Behind).unwrap();
    }
    pair.run_until_or(Duration::from_secs(5), |pair| pair.exit.talks.len() == 100);
    for talk in pair.exit.talks.values_mut() {
        talk.reading = Reading::Nothing;
    }
    pair.run(Duration::from_secs(30));
    let there = words(1 << 20, 9);
    let last = pair.open("198.51.100.1:1", &there, Closes::Behind).unwrap();
    pair.run(Duration::from_secs(10));
    let talk = &pair.entry.talks[&last];
    assert!(
        talk.to_write.is_empty(),
        "{} bytes were taken",
        talk.written
    );
    let got = pair.exit.talks.values().any(|talk| talk.got == there);
    assert!(got, "not all of it arrived");
}

#[test]
fn pg8_a_thousand_players_on_one_entry_leave_no_state() {
    let config = TunnelConfig::default();
    let mut pair = Pair::new(Seed::from_number(1), &config, calm());
    for round in 0..2_u8 {
        for player in 0..1_000_u16 {
            let [high, low] = player.to_be_bytes();
            let player = format!("203.0.{high}.{low}:4000");
            let said = words(500, high ^ low ^ round);
            pair.open(&player, &said, Closes::Behind).unwrap();
        }
        pair.run(Duration::from_secs(3));
        assert_eq!(pair.entry.tunnel.len(), 1_000);
        assert_eq!(pair.exit.talks.len(), 1_000);
        let servers: Vec<_> = pair.exit.talks.keys().copied().collect();
        for server in servers {
            let echo = pair.exit.talks[&server].got.clone();
            assert_eq!(echo.len(), 500);
            pair.exit.transmit(server, &echo, Closes::Behind);
        }
        pair.run(Duration::from_secs(10));
        for talk in pair.entry.talks.values() {
            assert_eq!(talk.end, Some(ConnEnd::Done));
            assert_eq!(talk.got.len(), 500);
        }
        assert!(pair.entry.tunnel.is_empty() && pair.exit.tunnel.is_empty());
        pair.entry.talks.clear();
        pair.exit.talks.clear();
    }
    assert_eq!(pair.exit.tunnel.stats().done, 2_000);
}

#[test]
fn pgx3_a_stream_with_much_in_flight_survives_an_outage_of_its_path() {
    for silence in [300, 1_000, 3_000, 10_000] {
        let mut pair = quiet();
        let there = words(64 << 20, 1);
        pair.open("203.0.113.9:4000", &there, Closes::Behind)
            .unwrap();
        pair.run(Duration::from_millis(700));
        pair.set_links(calm().with_down());
        pair.run(Duration::from_millis(silence));
        let before = pair.exit.talk().got.len();
        assert!(before < there.len(), "over before its path was cut");
        pair.set_links(calm().with_delay(Duration::from_millis(80)));
        for tunnel in [&mut pair.entry.tunnel, &mut pair.exit.tunnel] {
            tunnel.handle_moved(pair.now);
        }
        // A round trip of 160 ms.
        let goes_on = pair.run_until_or(Duration::from_millis(500), |pair| {
            pair.exit.talks.values().any(|talk| talk.got.len() > before)
        });
        assert!(goes_on, "nothing came after a silence of {silence} ms");
    }
}

#[test]
fn sim_pgx3_a_stream_survives_an_outage_of_its_path() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut pair = Pair::new(seed, &TunnelConfig::default(), lossy(5));
        let there = words(4 << 20, 1);
        pair.open("203.0.113.9:4000", &there, Closes::Behind)
            .unwrap();
        pair.run(Duration::from_secs(1));
        for silence in [1_000, 3_000, 300] {
            pair.set_links(calm().with_down());
            pair.run(Duration::from_millis(silence));
            let before = pair.exit.talk().got.len();
            assert!(before < there.len(), "over before its path was cut");
            let delay = Duration::from_millis(20 + silence / 50);
            pair.set_links(lossy(5).with_delay(delay));
            for tunnel in [&mut pair.entry.tunnel, &mut pair.exit.tunnel] {
                tunnel.handle_moved(pair.now);
            }
            let goes_on = pair.run_until_or(Duration::from_secs(1), |pair| {
                pair.exit.talks.values().any(|talk| talk.got.len() > before)
            });
            assert!(
                goes_on,
                "nothing came for a second after a silence of {silence} ms"
            );
        }
        let is_over = pair.run_until_or(Duration::from_secs(120), |pair| {
            pair.exit.talks.values().all(|talk| talk.has_all)
        });
        assert!(is_over && pair.exit.talk().got == there);
    });
}
