//! When ticks close: by the clock, with all inputs, or with a quorum.

use core::time::Duration;

use lockstep::{
    ClientEvent, ClosePolicy, CloseReason, LeaveReason, Origin, ServerEvent, SlowCause, SlowPolicy,
    StallCause, SubmitError, Tick,
};
use netsim::{for_each_seed, test_site};
use wire::{Seat, Seed};

use crate::world::{Link, World, config, pad};

const CAP: Duration = Duration::from_millis(200);

fn world(seed: Seed, close: ClosePolicy, percent: u32) -> World<u16> {
    let mut config = config(4);
    config.close = close;
    World::seeded(seed, config, Link::lossy(percent), pad)
}

fn assert_agreement(world: &World<u16>) {
    let longest = world
        .players
        .iter()
        .max_by_key(|player| player.states.len());
    let longest = &longest.unwrap().states;
    for player in &world.players {
        assert_eq!(player.states, longest[..player.states.len()]);
    }
}

fn substituted(world: &World<u16>, player: usize) -> usize {
    // Substitutes before a player's first input do not count.
    let own = world.players[player].own.iter();
    own.skip_while(|(_, origin)| *origin == Origin::Substituted)
        .filter(|(_, origin)| *origin == Origin::Substituted)
        .count()
}

fn missed(world: &World<u16>) -> Vec<Seat> {
    let seats = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Missed { seat, .. } = event {
            Some(*seat)
        } else {
            None
        }
    });
    seats.collect()
}

#[test]
fn sim_ls_4_with_close_policy_all_no_input_is_substituted() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut world = world(
            seed,
            ClosePolicy::WaitAll {
                cap: Duration::from_secs(2),
            },
            10,
        );
        world.run(400);
        assert_agreement(&world);
        assert_eq!(missed(&world), []);
        for player in 0..4 {
            assert_eq!(substituted(&world, player), 0, "{player}");
        }
        assert!(world.server.stats().ticks_delayed > 0);
    });
}

#[test]
fn ls_5_one_outage_costs_the_others_one_cap() {
    let mut world = world(Seed::from_number(5), ClosePolicy::WaitAll { cap: CAP }, 0);
    world.run(120);
    let (from, before) = (world.now, world.server.ticks_closed());
    world.outages.push((3, from, from + Duration::from_secs(3)));
    world.run_for(Duration::from_secs(3));
    let closed = world.server.ticks_closed() - before;
    // 180 less the 12 of the cap, and the inputs in flight.
    assert!((164..=172).contains(&closed), "{closed}");
    assert_eq!(missed(&world), [Seat(3)]);
    world.run_for(Duration::from_secs(2));
    let own = &world.players[3].own;
    let tail = &own[own.len() - 60..];
    assert!(
        tail.iter().all(|(_, origin)| *origin == Origin::Confirmed),
        "waited for again"
    );
    assert_agreement(&world);
}

#[test]
fn a_tick_that_waited_moves_all_later_ones() {
    let mut world = world(Seed::from_number(6), ClosePolicy::WaitAll { cap: CAP }, 0);
    world.run(120);
    world
        .outages
        .push((3, world.now, world.now + Duration::from_secs(1)));
    let from = world.players[0].turned_at.len();
    world.run_for(Duration::from_secs(1));
    let at = &world.players[0].turned_at[from..];
    let gaps = at.windows(2).map(|pair| pair[1].saturating_since(pair[0]));
    // One gap of the cap, and then no burst of turns: jitter is 10 ms.
    let quick = gaps
        .clone()
        .filter(|gap| *gap < Duration::from_millis(5))
        .count();
    assert!(quick < at.len() / 4, "{quick} of {}", at.len());
    assert_eq!(gaps.filter(|gap| *gap > CAP / 2).count(), 1);
}

#[test]
fn a_quorum_waits_for_its_number_of_inputs_only() {
    let close = ClosePolicy::Quorum { seats: 3, cap: CAP };
    let mut world = world(Seed::from_number(7), close, 0);
    world.run(120);
    // One player is cut off: the other three are a quorum.
    world
        .outages
        .push((3, world.now, world.now + Duration::from_secs(60)));
    let before = (
        world.server.ticks_closed(),
        world.server.stats().ticks_delayed,
    );
    world.run_for(Duration::from_secs(2));
    let closed = world.server.ticks_closed() - before.0;
    assert!((118..=121).contains(&closed), "{closed}");
    assert_eq!(missed(&world), []);
    // Two are cut off: each remaining tick waits for them until each was missed once.
    world
        .outages
        .push((2, world.now, world.now + Duration::from_secs(60)));
    world.run_for(Duration::from_secs(2));
    assert_eq!(missed(&world), [Seat(2), Seat(3)]);
    let closed = world.server.ticks_closed() - before.0 - closed;
    assert!((104..=112).contains(&closed), "{closed}");
    assert_agreement(&world);
}

#[test]
fn a_player_that_leaves_is_not_waited_for() {
    let mut world = world(
        Seed::from_number(8),
        ClosePolicy::WaitAll { cap: Duration::MAX },
        0,
    );
    world.run(120);
    world
        .outages
        .push((3, world.now, world.now + Duration::from_secs(60)));
    world.run_for(Duration::from_secs(1));
    let closed = world.server.ticks_closed();
    world.run_for(Duration::from_secs(1));
    assert_eq!(
        world.server.ticks_closed(),
        closed,
        "without a cap all wait"
    );
    let now = world.now;
    world.server.leave(now, crate::world::peer(3));
    assert_eq!(world.server.ticks_closed(), closed + 1, "at once");
    world.run_for(Duration::from_secs(1));
    assert!(world.server.ticks_closed() > closed + 55);
    assert_agreement(&world);
    let left = Tick(closed);
    assert!(world.server_events.iter().any(|event| matches!(
        event,
        ServerEvent::Left { seat: Seat(3), tick, .. } if *tick == left
    )));
}

/// The stall causes reported to a player.
fn stalls(world: &World<u16>, player: usize) -> Vec<StallCause> {
    let events = world.players[player].events.iter();
    let causes = events.filter_map(|event| {
        if let ClientEvent::Stalled { cause, .. } = event {
            Some(*cause)
        } else {
            None
        }
    });
    causes.collect()
}

fn resumed(world: &World<u16>, player: usize) -> Vec<Duration> {
    let events = world.players[player].events.iter();
    let spans = events.filter_map(|event| {
        if let ClientEvent::Resumed { late, .. } = event {
            Some(*late)
        } else {
            None
        }
    });
    spans.collect()
}

#[test]
fn a_stall_is_attributed_to_link_or_server() {
    let mut world = world(Seed::from_number(9), ClosePolicy::WaitAll { cap: CAP }, 0);
    world.run(120);
    let outage = Duration::from_millis(500);
    world.outages.push((3, world.now, world.now + outage));
    world.run_for(Duration::from_secs(2));
    // The others learn that the server waits; the player that is cut off receives nothing.
    for player in 0..3 {
        assert_eq!(stalls(&world, player), [StallCause::Server]);
        let [late] = resumed(&world, player)[..] else {
            panic!("told once");
        };
        assert!(late > CAP / 2 && late < CAP * 2, "{late:?}");
    }
    assert_eq!(stalls(&world, 3), [StallCause::Link]);
    let [late] = resumed(&world, 3)[..] else {
        panic!("told once");
    };
    assert!(late > outage / 2 && late < outage * 2, "{late:?}");
}

/// Slow seats with the cause, and `None` when they keep up again.
fn slow(world: &World<u16>) -> Vec<(Seat, Option<SlowCause>)> {
    let events = world.server_events.iter();
    let slow = events.filter_map(|event| {
        if let ServerEvent::Slow { seat, cause, .. } = event {
            Some((*seat, Some(*cause)))
        } else if let ServerEvent::Recovered { seat, .. } = event {
            Some((*seat, None))
        } else {
            None
        }
    });
    slow.collect()
}

#[test]
fn a_player_that_ticks_wait_for_is_reported_as_slow() {
    let mut world = world(Seed::from_number(14), ClosePolicy::WaitAll { cap: CAP }, 0);
    // Each of its ticks is longer than the server's, by more than it can correct.
    world.players[3].drift_ppm = -60_000;
    world.links[3].jitter = Duration::ZERO;
    world.run_for(Duration::from_secs(13));
    assert!(world.server.stats().ticks_delayed > 400);
    assert_eq!(missed(&world), []);
    assert_eq!(slow(&world), [(Seat(3), Some(SlowCause::Link))]);
}

#[test]
fn a_silent_player_is_named_even_if_ticks_wait_without_limit() {
    let close = ClosePolicy::WaitAll { cap: Duration::MAX };
    let mut world = world(Seed::from_number(15), close, 0);
    world.run(120);
    let outage = Duration::from_secs(6);
    world.outages.push((3, world.now, world.now + outage));
    world.run_for(Duration::from_millis(900));
    assert_eq!(slow(&world), []);
    world.run_for(Duration::from_millis(400));
    let named = (Seat(3), Some(SlowCause::Link));
    assert_eq!(slow(&world), [named], "no tick closes, and it is named");
    let closed = world.server.ticks_closed();
    world.run_for(Duration::from_secs(4));
    assert_eq!(world.server.ticks_closed(), closed);
    assert_eq!(slow(&world), [named], "once");
    // Then the match continues, and the player keeps up.
    world.run_for(Duration::from_secs(13));
    assert!(world.server.ticks_closed() > closed + 700);
    assert_eq!(slow(&world), [named, (Seat(3), None)]);
    assert_agreement(&world);
}

#[test]
fn a_slow_player_is_reported_with_the_cause() {
    let clock = ClosePolicy::Clock {
        grace: Duration::ZERO,
    };
    let mut world = world(Seed::from_number(10), clock, 0);
    world.run(120);
    world.players[1].is_frozen = true;
    world.run_for(Duration::from_secs(20));
    let simulation = Some(SlowCause::Simulation);
    assert_eq!(slow(&world), [(Seat(1), simulation)]);
    world.players[1].is_frozen = false;
    world.run_for(Duration::from_secs(20));
    assert_eq!(slow(&world), [(Seat(1), simulation), (Seat(1), None)]);
    // A player cut off for a second is reported at once.
    world
        .outages
        .push((2, world.now, world.now + Duration::from_millis(1_500)));
    world.run_for(Duration::from_secs(20));
    assert_eq!(
        slow(&world)[2..],
        [(Seat(2), Some(SlowCause::Link)), (Seat(2), None)]
    );
}

#[test]
fn a_player_with_a_slow_simulation_is_removed_if_configured() {
    let mut config = config(3);
    config.slow = SlowPolicy::Kick;
    let mut world = World::new(11, config, Link::perfect(), pad);
    world.run(120);
    world.players[1].is_frozen = true;
    world.run_for(Duration::from_secs(21));
    world.players[1].is_frozen = false;
    world.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Slow);
    assert_eq!(world.players[1].events.last(), Some(&closed));
    assert!(world.players[0].states.len() > 1_300);
}

#[test]
fn a_player_with_a_slow_simulation_becomes_a_spectator_if_configured() {
    for percent in [0, 5] {
        let mut config = config(3);
        config.slow = SlowPolicy::Demote;
        let mut world = World::new(12, config, Link::lossy(percent), pad);
        world.run(120);
        world.players[1].is_frozen = true;
        world.run_for(Duration::from_secs(11));
        assert_eq!(world.server.spectator_count(), 1);
        world.players[1].is_frozen = false;
        world.run_for(Duration::from_secs(2));
        let player = &mut world.players[1];
        assert!(player.machine.is_spectator());
        let refused = player.machine.submit(world.now, &1);
        assert_eq!(refused, Err(SubmitError::Spectator));
        let is_watching = |event: &&ClientEvent| matches!(event, ClientEvent::Watching { .. });
        assert_eq!(player.events.iter().filter(is_watching).count(), 1);
        let is_left = |event: &&ServerEvent| {
            matches!(
                event,
                ServerEvent::Left {
                    seat: Seat(1),
                    reason: LeaveReason::Slow,
                    ..
                }
            )
        };
        assert_eq!(world.server_events.iter().filter(is_left).count(), 1);
        // It sees the others' inputs, its own seat is absent, and it is asked for no hashes.
        let len = world.players[1].states.len();
        assert!(len > 760, "{len}");
        assert_eq!(world.players[1].states, world.players[0].states[..len]);
        assert_eq!(world.players[1].own.last().unwrap().1, Origin::Absent);
        assert_eq!(world.server.stats().spectators.dropped_malformed, 0);
    }
}

#[test]
fn a_slow_player_is_removed_if_spectators_are_not_allowed() {
    for (most, delay) in [(0, 0), (8, 60)] {
        let mut config = config(3);
        config.slow = SlowPolicy::Demote;
        config.spectators_max = most;
        config.spectator_delay = delay;
        let mut world = World::new(13, config, Link::perfect(), pad);
        world.run(120);
        world.players[1].is_frozen = true;
        world.run_for(Duration::from_secs(21));
        world.players[1].is_frozen = false;
        world.run_for(Duration::from_secs(1));
        let closed = ClientEvent::Closed(CloseReason::Slow);
        assert_eq!(world.players[1].events.last(), Some(&closed));
        assert_eq!(world.server.spectator_count(), 0);
    }
}
