//! Maximum length and duration of a snapshot, and limits on requests.

use core::time::Duration;

use lockstep::{
    ClientEvent, CloseReason, Config, LeaveReason, Recovery, ServerEvent, SnapshotError,
    SnapshotSource, Tick,
};
use wire::{Seat, Seed};

use crate::snapshots::{Harness, LATE, is_desync};
use crate::world::{Link, config, peer};

/// A match of four with snapshots from `source`, otherwise mostly with defaults.
fn given_by(source: SnapshotSource) -> Config {
    let mut config = config(4);
    config.snapshots = source;
    config
}

#[test]
fn ls_14_the_longest_snapshot_that_defaults_allow_arrives() {
    for source in [SnapshotSource::Server, SnapshotSource::Players] {
        let config = given_by(source);
        let len = usize::try_from(config.snapshot_len_max).unwrap();
        let mut harness = Harness::with_config(Seed::from_number(20), config, Link::lossy(2));
        harness.padding_len = len - 8;
        harness.run(LATE);
        harness.world.rejoin(3);
        harness.run(LATE + 1_100);
        assert!(harness.entered().is_some(), "{source:?}: {len} bytes");
        harness.assert_agreement();
        let wanted = harness.count(|event| *event == ServerEvent::SnapshotWanted);
        assert_eq!(
            wanted,
            usize::from(source == SnapshotSource::Server),
            "once"
        );
        assert_eq!(harness.count(is_desync), 0);
    }
}

#[test]
fn a_snapshot_that_would_come_too_late_is_refused() {
    let mut config = given_by(SnapshotSource::Server);
    config.transfer.rate_bytes_per_s = 100_000;
    let mut harness = Harness::with_config(Seed::from_number(21), config, Link::perfect());
    harness.run(100);
    let now = harness.world.now;
    let server = &mut harness.world.server;
    // 768 ticks are 12.8 s, in which 1.28 MB are sent; one datagram in nine may be lost.
    let long = vec![0; 1_200_000];
    assert_eq!(
        server.offer_snapshot(now, &long),
        Err(SnapshotError::TooLong)
    );
    assert_eq!(server.offer_snapshot(now, &long[..1_000_000]), Ok(()));
}

#[test]
fn a_donor_with_a_too_late_snapshot_is_not_asked_again() {
    let mut config = given_by(SnapshotSource::Players);
    config.transfer.rate_bytes_per_s = 100_000;
    let mut harness = Harness::with_config(Seed::from_number(22), config, Link::perfect());
    harness.padding_len = 1_200_000;
    harness.run(LATE);
    harness.world.rejoin(3);
    // Each of the three is known to be too late from its first chunk.
    harness.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(harness.world.players[3].events.last(), Some(&closed));
}

fn is_behind(event: &ServerEvent) -> bool {
    matches!(
        event,
        ServerEvent::Left {
            seat: Seat(3),
            reason: LeaveReason::Behind,
            ..
        }
    )
}

#[test]
fn ls_14_a_player_that_accepts_no_snapshot_loses_its_seat() {
    let config = given_by(SnapshotSource::Server);
    let mut harness = Harness::with_config(Seed::from_number(23), config, Link::perfect());
    harness.padding_len = 1_000_000;
    harness.run(LATE);
    harness.world.rejoin(3);
    harness.run_for(Duration::from_millis(300));
    harness.world.players[3].is_paused = true;
    harness.run_for(Duration::from_millis(4_500));
    assert_eq!(harness.count(is_behind), 0);
    harness.run_for(Duration::from_secs(1));
    assert_eq!(harness.count(is_behind), 1);
    // Another client takes the seat.
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(4));
    assert!(harness.entered().is_some());
    harness.assert_agreement();
}

#[test]
fn ls_14_a_refused_snapshot_is_requested_again() {
    let mut config = given_by(SnapshotSource::Server);
    config.snapshot_len_max = 10_000;
    let mut harness = Harness::with_config(Seed::from_number(27), config, Link::perfect());
    harness.padding_len = 10_000;
    harness.run(LATE);
    harness.world.rejoin(3);
    harness.run_for(Duration::from_millis(3_500));
    assert_eq!(harness.refused.len(), 4, "each second");
    let mut pairs = harness.refused.windows(2);
    assert!(pairs.all(|pair| pair[1].saturating_since(pair[0]) >= Duration::from_secs(1)));
    assert_eq!(harness.count(is_behind), 0);
    harness.padding_len -= 8;
    harness.run_for(Duration::from_secs(2));
    assert!(harness.entered().is_some());
    // No further snapshot is requested.
    let wanted = |event: &ServerEvent| *event == ServerEvent::SnapshotWanted;
    assert_eq!(harness.count(wanted), 5);
    harness.run_for(Duration::from_secs(25));
    assert_eq!((harness.count(wanted), harness.count(is_behind)), (5, 0));
    harness.refused.clear();
    harness.assert_agreement();
}

#[test]
fn ls_14_a_player_that_gets_no_snapshot_loses_its_seat() {
    let config = given_by(SnapshotSource::Server);
    let mut harness = Harness::with_config(Seed::from_number(28), config, Link::perfect());
    harness.withholds_snapshots = true;
    harness.run(LATE);
    harness.world.rejoin(3);
    harness.run_for(Duration::from_millis(19_900));
    assert_eq!(harness.count(is_behind), 0);
    harness.run_for(Duration::from_millis(300));
    assert_eq!(harness.count(is_behind), 1);
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(harness.world.players[3].events.last(), Some(&closed));
    assert_eq!(
        harness.count(|event| *event == ServerEvent::SnapshotWanted),
        1
    );
    // The seat's new client has its own time limit.
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(5));
    assert_eq!(harness.count(is_behind), 1);
    harness.withholds_snapshots = false;
    harness.world.players[3].is_paused = true;
    harness.world.server.leave(harness.world.now, peer(3));
    harness.run_for(Duration::from_secs(1));
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(2));
    assert!(harness.entered().is_some());
    harness.assert_agreement();
}

#[test]
fn ls_14_each_waits_20_s_for_a_snapshot_even_after_another() {
    for gives in [true, false] {
        let config = given_by(SnapshotSource::Server);
        let mut harness = Harness::with_config(Seed::from_number(29), config, Link::perfect());
        harness.withholds_snapshots = true;
        harness.world.keep_out(2);
        harness.run(LATE);
        harness.world.rejoin(3);
        harness.run_for(Duration::from_millis(19_500));
        harness.world.rejoin(2);
        harness.run_for(Duration::from_millis(300));
        harness.withholds_snapshots = !gives;
        harness.run_for(Duration::from_secs(2));
        let closed = ClientEvent::Closed(CloseReason::Behind);
        assert_eq!(harness.world.players[3].events.last(), Some(&closed));
        assert_ne!(harness.world.players[2].events.last(), Some(&closed));
        // The application is asked again for clients that still wait.
        let wanted = harness.count(|event| *event == ServerEvent::SnapshotWanted);
        assert_eq!(wanted, 2);
        if gives {
            let begun = harness.begun[2];
            let (own, others) = (
                &harness.world.players[2].states,
                &harness.world.players[0].states,
            );
            let len = own.len().min(others.len());
            assert!(begun > 0 && len > begun + 60);
            assert!(own[begun..len] == others[begun..len]);
        } else {
            harness.run_for(Duration::from_secs(17));
            assert_ne!(harness.world.players[2].events.last(), Some(&closed));
            harness.run_for(Duration::from_secs(1));
            assert_eq!(harness.world.players[2].events.last(), Some(&closed));
        }
    }
}

#[test]
fn ls_14_a_snapshot_that_takes_too_long_is_sent_four_times_and_no_more() {
    let mut config = given_by(SnapshotSource::Server);
    config.transfer.rate_bytes_per_s = 100_000;
    let mut harness = Harness::with_config(Seed::from_number(24), config, Link::perfect());
    harness.padding_len = 1_000_000;
    // The whole transfer may take 10 s, and half of the datagrams are lost.
    harness.world.links[3].loss = 500_000;
    harness.run(LATE);
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(50));
    assert_eq!(harness.count(is_behind), 0);
    harness.run_for(Duration::from_secs(4));
    assert_eq!(harness.count(is_behind), 1);
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(harness.world.players[3].events.last(), Some(&closed));
}

#[test]
fn ls_12_a_player_that_diverges_repeatedly_gets_a_state_each_time() {
    let mut config = given_by(SnapshotSource::Players);
    config.recovery = Recovery::Reload;
    let mut harness = Harness::with_config(Seed::from_number(25), config, Link::lossy(1));
    harness.run(200);
    for round in 1..=6 {
        let wrong = harness.world.server.ticks_closed() + 20;
        harness.world.players[1].diverges_at = Some(Tick(wrong));
        harness.run(wrong + 780);
        assert_eq!(harness.count(is_desync), round);
        assert!(
            harness.begun[1] > usize::try_from(wrong).unwrap(),
            "{round}"
        );
    }
    harness.assert_agreement();
}

#[test]
fn a_donor_that_failed_once_is_asked_again_after_another_succeeded() {
    let asked = |harness: &Harness, player: usize| {
        let events = harness.world.players[player].events.iter();
        events
            .filter(|event| **event == ClientEvent::SnapshotWanted)
            .count()
    };
    let config = given_by(SnapshotSource::Players);
    let mut harness = Harness::with_config(Seed::from_number(26), config, Link::perfect());
    // Seat 0 is asked first, because no player has pending turns.
    harness.withholding_seat = Some(0);
    harness.run(LATE);
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(14));
    assert_eq!((asked(&harness, 0), asked(&harness, 1)), (1, 1));
    assert!(harness.entered().is_some());
    harness.run_for(Duration::from_secs(11));
    harness.withholding_seat = None;
    harness.world.server.leave(harness.world.now, peer(3));
    harness.run_for(Duration::from_secs(1));
    harness.world.rejoin(3);
    harness.run_for(Duration::from_secs(4));
    assert_eq!((asked(&harness, 0), asked(&harness, 1)), (2, 1));
    harness.assert_agreement();
}
