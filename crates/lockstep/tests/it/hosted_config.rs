//! Invalid configurations of a hosted match, and minimum timeouts.

use core::time::Duration;

use lockstep::{HostedConfigError, HostedPeer, PeerId, StartPolicy, Tick, TickRate};
use wire::{Instant, Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::mesh_world::peers;
use crate::world::{Link, MATCH, pad};

#[test]
fn a_hosted_match_that_cannot_be_played_is_refused() {
    let now = Instant::from_millis(1);
    let new = |config, own, peers: &[(Seat, PeerId)]| {
        let made = HostedPeer::<u16>::new(config, (MATCH, own), peers, Seed::from_number(1), now);
        made.err()
    };
    let three = peers(0, 3);
    assert_eq!(new(hosted(3, 0), Seat(0), &three), None);
    for seats in [1, 17] {
        let peers = peers(0, usize::from(seats));
        let error = new(hosted(seats, 0), Seat(0), &peers);
        assert_eq!(error, Some(HostedConfigError::Seats));
    }
    assert_eq!(
        new(hosted(3, 3), Seat(0), &three),
        Some(HostedConfigError::Host)
    );
    let twice = [(Seat(1), PeerId(7)), (Seat(2), PeerId(7))];
    let ours = [(Seat(1), PeerId(7)), (Seat(2), PeerId(u32::MAX))];
    let again = [(Seat(1), PeerId(7)), (Seat(1), PeerId(8))];
    for peers in [&twice[..], &ours, &again, &twice[..1]] {
        let error = new(hosted(3, 0), Seat(0), peers);
        assert_eq!(error, Some(HostedConfigError::Peers));
    }
    let mut config = hosted(3, 0);
    config.server.start = StartPolicy::ByHand;
    let error = new(config, Seat(0), &three);
    assert_eq!(error, Some(HostedConfigError::Start));
    let mut config = hosted(3, 0);
    config.server.datagram_len_max = 9;
    let error = new(config, Seat(0), &three);
    assert!(matches!(error, Some(HostedConfigError::Server(_))));
    // The host timeout is at least 8 ticks, and the player timeout twice that.
    let mut config = hosted(3, 0);
    config.host_timeout = Duration::ZERO;
    config.player_timeout = Duration::ZERO;
    let mut world = HostedWorld::new(Seed::from_number(1), &config, Link::perfect(), pad);
    world.run_for(Duration::from_secs(2));
    world.assert_progress(&[0, 1, 2]);
    assert!(world.players[0].machine.ticks_confirmed() > Tick(100).0);
}

#[test]
fn ls_16_a_lost_message_is_no_silence_at_any_tick_rate() {
    // Eight ticks are 33 ms.
    let mut config = hosted(3, 0);
    config.server.tick_rate = TickRate::new(240).unwrap();
    config.host_timeout = Duration::ZERO;
    let link = Link {
        latency: Duration::from_millis(5),
        ..Link::perfect()
    };
    let mut world = HostedWorld::new(Seed::from_number(2), &config, link, pad);
    world.run_for(Duration::from_secs(1));
    for _ in 0..10 {
        world.part(&[0], &[1, 2], Duration::from_millis(150));
        world.run_for(Duration::from_millis(500));
    }
    world.assert_progress(&[0, 1, 2]);
    assert_eq!(world.players[0].machine.epoch(), 0);
}
