//! A partition of a hosted match: one side continues, the other is notified.

use core::time::Duration;

use lockstep::{HostedClose, HostedEvent, LeaveReason};
use netsim::{for_each_seed, test_site};
use wire::{Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted, others};
use crate::migration::{any_world, is_enough};
use crate::world::{Link, pad};

#[test]
fn sim_ls_16_a_partition_leaves_one_match() {
    for_each_seed(&test_site!(), 40, |seed| {
        let mut generator = seed.generator(34);
        let count = usize::try_from(generator.between(2, 7)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(Duration::from_secs(2));
        let host = world.host();
        let part = generator.between(1, (1 << count) - 2);
        let (one, other): (Vec<_>, Vec<_>) = (0..count).partition(|index| part >> index & 1 == 1);
        world.part(&one, &other, Duration::from_secs(25));
        let (on, out) = if is_enough(&one, count) {
            (one, other)
        } else {
            (other, one)
        };
        // The side that is large enough continues within seconds, at 60 ticks per second.
        world.run_for(Duration::from_secs(14));
        for index in &on {
            let player = &world.players[*index];
            assert!(player.is_on() && player.states.len() > 600, "{index}");
        }
        // A player that still receives a paused host drops it ten seconds after its last turn. That
        // turn may be ten seconds later than the start of the partition.
        world.run_for(Duration::from_secs(10));
        let has_moved = out.contains(&host);
        world.assert_progress(&on);
        for index in &on {
            let hosts = world.players[*index].hosts();
            assert_eq!(hosts.len(), usize::from(has_moved), "{hosts:?}");
        }
        // The partition heals, which changes nothing.
        world.run_for(Duration::from_secs(10));
        world.assert_progress(&on);
        for index in &out {
            let closed = world.players[*index].closed();
            assert!(closed.is_some(), "{index}");
        }
    });
}

#[test]
fn ls_16_a_host_that_resigns_notifies_reachable_peers() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(25);
    let mut world = HostedWorld::new(Seed::from_number(5), &hosted(5, 4), link, pad);
    world.run_for(Duration::from_secs(2));
    let (out, on) = ([3, 4], [0, 1, 2]);
    world.part(&out, &on, Duration::from_mins(1));
    world.run_for(Duration::from_secs(11));
    for index in out {
        let closed = world.players[index].closed();
        assert_eq!(closed, Some(HostedClose::TooFew), "{index}");
    }
    let lost = HostedEvent::HostLost { host: Seat(4) };
    let events = &world.players[3].events;
    assert!(
        events.contains(&lost),
        "its word, not its silence: {events:?}"
    );
    world.assert_progress(&on);
}

#[test]
fn sim_ls_16_a_short_partition_costs_no_player_the_match() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut generator = seed.generator(35);
        let count = usize::try_from(generator.between(4, 6)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(Duration::from_secs(2));
        let host = world.host();
        // Too few players to elect a host are cut off for longer than the timeout, and return.
        let away: Vec<_> = others(count, host)
            .into_iter()
            .take((count - 1) / 2)
            .collect();
        let rest: Vec<_> = (0..count).filter(|index| !away.contains(index)).collect();
        world.part(&away, &rest, Duration::from_secs(4));
        world.run_for(Duration::from_secs(7));
        let all: Vec<_> = (0..count).collect();
        world.assert_progress(&all);
        assert_eq!(world.players[away[0]].machine.epoch(), 0);
    });
}

#[test]
fn ls_16_a_player_evicted_by_its_host_is_notified() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(25);
    let mut world = HostedWorld::new(Seed::from_number(7), &hosted(3, 2), link, pad);
    world.run_for(Duration::from_secs(2));
    // Player 1 receives player 0 but not the reverse: as far as it knows, both are enough to
    // continue.
    let now = world.now;
    world
        .outages
        .push((1, 0, now, now + Duration::from_secs(6)));
    let local = world.local(2);
    world.players[2].machine.leave(local, LeaveReason::Quit);
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.players[1].hosts().len(), 1, "both, for all it knows");
    world.run_for(Duration::from_secs(6));
    let closed = world.players[1].closed();
    assert!(
        matches!(closed, Some(HostedClose::Excluded { .. })),
        "{closed:?}"
    );
    world.assert_progress(&[0]);
}
