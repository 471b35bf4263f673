//! A host pauses the match only while too few players follow it.

use core::time::Duration;

use lockstep::{ClosePolicy, LeaveReason, Tick};
use wire::{Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::world::{Link, pad};

#[test]
fn ls_16_a_paused_host_that_all_players_left_continues_alone() {
    // Datagrams stay in order: after a player's leave, its other datagrams are ignored.
    let link = Link {
        latency: Duration::from_millis(20),
        ..Link::perfect()
    };
    let mut world = HostedWorld::new(Seed::from_number(20), &hosted(2, 1), link, pad);
    world.run_for(Duration::from_secs(2));
    // Player 0 receives the host all the time.
    let back = world.now + Duration::from_millis(1_500);
    world.outages.push((0, 1, world.now, back));
    world.run_for(Duration::from_millis(1_480));
    assert!(world.players[1].machine.stats().holds > 0, "it stands");
    // The first of three leaves is lost; the host receives only the others.
    let now = world.local(0);
    world.players[0].machine.leave(now, LeaveReason::Quit);
    world.run_for(Duration::from_secs(1));
    let members: Vec<_> = world.players[1].machine.members().collect();
    assert_eq!(members, [Seat(1)]);
    world.assert_progress(&[1]);
}

/// A host of four that waits for all loses contact with the other players. Returns the ticks that
/// it closes between 1.4 s and 1.8 s later. One player is received again after 1.5 s, two after
/// `others`.
fn closed_meanwhile(others: Duration) -> u32 {
    let mut config = hosted(4, 1);
    config.server.close = ClosePolicy::WaitAll {
        cap: Duration::from_secs(5),
    };
    let near = Link {
        latency: Duration::from_millis(5),
        ..Link::perfect()
    };
    let mut world = HostedWorld::new(Seed::from_number(21), &config, near, pad);
    // Its inputs arrive last, so ticks wait for them.
    let remote_latency = Duration::from_millis(60);
    (world.links[2][1].latency, world.links[1][2].latency) = (remote_latency, remote_latency);
    world.run_for(Duration::from_secs(3));
    let now = world.now;
    let back = now + Duration::from_millis(1_500);
    world.outages.push((2, 1, now, back));
    for from in [0, 3] {
        world.outages.push((from, 1, now, now + others));
    }
    world.run_for(Duration::from_millis(1_400));
    let closed = |world: &HostedWorld<u16>| {
        let server = world.players[1].machine.server().unwrap();
        Tick(server.ticks_closed())
    };
    let before = closed(&world);
    world.run_for(Duration::from_millis(400));
    assert_eq!(world.players[1].machine.epoch(), 0);
    closed(&world).since(before)
}

#[test]
fn ls_16_a_paused_host_closes_no_waiting_tick() {
    let ticks = closed_meanwhile(Duration::from_secs(3));
    assert_eq!(ticks, 0, "two of four without the first are too few");
    let ticks = closed_meanwhile(Duration::from_millis(1_500));
    assert!(ticks >= 5, "{ticks}");
}
