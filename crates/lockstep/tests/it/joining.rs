//! Clients that join a running match, and clients that return.

use core::time::Duration;

use lockstep::{LeaveReason, Origin, ServerEvent, StartPolicy, Tick};
use netsim::{for_each_seed, test_site};
use wire::{Seat, Seed};

use crate::world::{Link, World, config, pad};

/// A match of three in which the seat of player 2 is empty.
fn two_of_three(seed: Seed, link: Link) -> World<u16> {
    let mut config = config(3);
    config.start = StartPolicy::ByHand;
    let mut world = World::seeded(seed, config, link, pad);
    world.keep_out(2);
    world.run_for(Duration::from_millis(300));
    world.server.start(world.now).unwrap();
    world
}

/// The tick from which the server counts the inputs of `seat`.
fn entered(world: &World<u16>, seat: Seat) -> Option<Tick> {
    world.server_events.iter().rev().find_map(|event| {
        if let ServerEvent::Entered { seat: who, tick } = event {
            (*who == seat).then_some(*tick)
        } else {
            None
        }
    })
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
    let is_desync = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
    assert!(!world.server_events.iter().any(is_desync));
}

/// Number of gaps longer than a tick between turns of `player`, from its turn `from` on.
fn stalls(world: &World<u16>, player: usize, from: usize) -> usize {
    let at = &world.players[player].turned_at[from..];
    let period = Duration::from_nanos(16_666_667);
    let gaps = at.windows(2).map(|pair| pair[1].saturating_since(pair[0]));
    gaps.filter(|gap| *gap > period).count()
}

#[test]
fn sim_ls_14_a_player_that_joins_a_running_match_catches_up_and_plays() {
    for_each_seed(&test_site!(), 12, |seed| {
        let mut generator = seed.generator(14);
        let percent = u32::try_from(generator.below(11)).unwrap();
        let mut world = two_of_three(seed, Link::lossy(percent));
        let late = u32::try_from(generator.between(20, 700)).unwrap();
        world.run(late);
        world.rejoin(2);
        let joined = world.server.ticks_closed();
        world.run(joined + 300);
        let tick = entered(&world, Seat(2)).unwrap();
        assert!(tick.since(Tick(joined)) < 120, "{joined} {tick}");
        assert_agreement(&world);
        let from = usize::try_from(tick.0).unwrap();
        let own = &world.players[2].own;
        assert!(
            own[..from]
                .iter()
                .all(|(_, origin)| *origin == Origin::Absent)
        );
        assert_eq!(own[from].1, Origin::Confirmed);
        let played = own[from..]
            .iter()
            .filter(|(_, origin)| *origin == Origin::Confirmed);
        assert!(played.count() > 150, "and its inputs come in time");
        // Its hashes are compared like the others'.
        world.players[2].diverges_at = Some(Tick(joined + 400));
        world.run(joined + 500);
        let named = world.server_events.iter().any(|event| {
            // If hashes of the first tick are lost, a later one shows the difference.
            matches!(event, ServerEvent::Desync { tick, seats, .. }
                if (joined + 400..=joined + 408).contains(&tick.0) && *seats == [Seat(2)])
        });
        assert!(named);
    });
}

#[test]
fn ls_14_a_join_stalls_no_player() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(25);
    let mut world = two_of_three(Seed::from_number(3), link);
    world.run(600);
    let from = world.players[0].turned_at.len();
    world.rejoin(2);
    world.run(900);
    assert!(entered(&world, Seat(2)).is_some());
    assert_eq!((stalls(&world, 0, from), stalls(&world, 1, from)), (0, 0));
    assert_agreement(&world);
}

#[test]
fn sim_ls_14_a_player_that_rejoins_within_the_chain_needs_no_snapshot() {
    for_each_seed(&test_site!(), 8, |seed| {
        let mut generator = seed.generator(15);
        let mut world = World::seeded(seed, config(3), Link::lossy(2), pad);
        world.run(1_200);
        world.players[1].is_paused = true;
        let away = Duration::from_millis(generator.between(50, 10_000));
        world.run_for(away);
        world.players[1].is_paused = false;
        world.reconnect(1);
        let (back, closed) = (world.now, world.server.ticks_closed());
        world.run(closed + 200);
        assert_agreement(&world);
        let tick = entered(&world, Seat(1)).unwrap();
        assert!(tick.since(Tick(closed)) < 60, "{closed} {tick}");
        let last = usize::try_from(closed).unwrap() - 1;
        let wait = world.players[1].turned_at[last].saturating_since(back);
        // A round trip, the ticks of the wait at one datagram per tick, and losses.
        assert!(wait < Duration::from_millis(700), "{wait:?}");
        let own = &world.players[1].own[usize::try_from(tick.0).unwrap()..];
        let played = own
            .iter()
            .filter(|(_, origin)| *origin == Origin::Confirmed);
        assert!(played.count() > 80);
    });
}

#[test]
fn a_silent_member_is_removed() {
    let mut world = two_of_three(Seed::from_number(5), Link::perfect());
    world.run(60);
    let now = world.now;
    world
        .server
        .join(now, crate::world::peer(2), Seat(2))
        .unwrap();
    // Welcomes are sent for 30 s; the seat is absent meanwhile.
    world.run_for(Duration::from_millis(29_900));
    let left = |world: &World<u16>| {
        let is_left = |event: &&ServerEvent| {
            matches!(
                event,
                ServerEvent::Left {
                    seat: Seat(2),
                    reason: LeaveReason::NotReady,
                    ..
                }
            )
        };
        world.server_events.iter().filter(is_left).count()
    };
    assert_eq!(left(&world), 0);
    world.run_for(Duration::from_millis(200));
    assert_eq!(left(&world), 1);
    assert!(world.players[0].states.len() > 1_700);
}

#[test]
fn inputs_of_a_seats_former_player_are_not_its_successors() {
    let mut config = config(3);
    config.input_delay = lockstep::InputDelay::fixed(30).unwrap();
    let mut world = World::new(6, config, Link::perfect(), |_, _| 0xffff_u16);
    world.run(200);
    // Thirty inputs of the leaving player have already arrived.
    world.keep_out(2);
    world.run_for(Duration::from_millis(20));
    world.play = |_, _| 0x0101;
    world.rejoin(2);
    world.run(400);
    let tick = entered(&world, Seat(2)).unwrap();
    let from = usize::try_from(tick.0).unwrap();
    let own = &world.players[2].own;
    assert!(own[from..].iter().all(|(input, _)| *input == 0x0101));
    assert_agreement(&world);
}
