//! How long a snapshot may be and may take, and how often it is given.

use core::time::Duration;

use lockstep::{Config, SnapshotError, SnapshotSource};
use wire::Seed;

use crate::snapshots::{Crowd, LATE, is_desync};
use crate::world::{Link, config};

/// A match of four whose snapshots come from `source`, and as few things as can be set otherwise.
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
        let mut crowd = Crowd::with_config(Seed::from_number(20), config, Link::lossy(2));
        crowd.ballast = len - 8;
        crowd.run(LATE);
        crowd.world.join_anew(3);
        crowd.run(LATE + 1_100);
        assert!(crowd.entered().is_some(), "{source:?}: {len} bytes");
        crowd.assert_agreement();
        let wanted = crowd.count(|event| *event == lockstep::ServerEvent::SnapshotWanted);
        assert_eq!(wanted, usize::from(source == SnapshotSource::Server), "once");
        assert_eq!(crowd.count(is_desync), 0);
    }
}

#[test]
fn a_snapshot_that_would_come_too_late_is_refused() {
    let mut config = given_by(SnapshotSource::Server);
    config.transfer.rate_bytes_per_s = 100_000;
    let mut crowd = Crowd::with_config(Seed::from_number(21), config, Link::perfect());
    crowd.run(100);
    let now = crowd.world.now;
    let server = &mut crowd.world.server;
    // 768 ticks are 12.8 s, in which 1.28 MB go out; one datagram in nine may be lost.
    let long = vec![0; 1_200_000];
    assert_eq!(server.offer_snapshot(now, &long), Err(SnapshotError::TooLong));
    assert_eq!(server.offer_snapshot(now, &long[..1_000_000]), Ok(()));
}

#[test]
fn a_player_whose_snapshot_would_come_too_late_is_asked_no_longer() {
    let mut config = given_by(SnapshotSource::Players);
    config.transfer.rate_bytes_per_s = 100_000;
    let mut crowd = Crowd::with_config(Seed::from_number(22), config, Link::perfect());
    crowd.ballast = 1_200_000;
    crowd.run(LATE);
    crowd.world.join_anew(3);
    // All three are known to be of no use with the first piece of each.
    crowd.run_for(Duration::from_secs(1));
    let closed = lockstep::ClientEvent::Closed(lockstep::CloseReason::Behind);
    assert_eq!(crowd.world.players[3].events.last(), Some(&closed));
}
