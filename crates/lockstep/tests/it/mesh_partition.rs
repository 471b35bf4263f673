//! Peers leave, fall silent and are cut off; the remaining ones continue one match.

use core::time::Duration;

use lockstep::{LeaveReason, MeshClose, MeshEvent, Origin, Phase, Tick};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Seat, Seed};

use crate::mesh_world::{MeshPlayer, MeshWorld, all, assert_agreement, mesh};
use crate::world::{Link, pad, seat};

/// Peers with a running match.
fn playing(world: &MeshWorld<u16>) -> Vec<&MeshPlayer<u16>> {
    let is_on =
        |player: &&MeshPlayer<u16>| player.machine.phase() == Phase::Running && !player.is_paused;
    world.players.iter().filter(is_on).collect()
}

/// All remaining peers have the same history, agree on removals, and wait for no peer. An excluded
/// peer shares the history up to the tick at which it was excluded, except for inputs that were
/// lost with peers that left later.
fn assert_one_match(world: &MeshWorld<u16>) {
    let on = playing(world);
    let Some(first) = on.iter().max_by_key(|player| player.states.len()) else {
        return;
    };
    assert_agreement(&on);
    for player in &on {
        assert_eq!(player.left(), first.left());
        let desync = |event: &&MeshEvent| matches!(event, MeshEvent::Desync { .. });
        assert_eq!(player.events.iter().find(desync), None);
        let near = first.states.len() - player.states.len();
        assert!(near < 60, "{near} ticks behind");
    }
    for (index, player) in world.players.iter().enumerate() {
        if let Some(MeshClose::Excluded { tick }) = player.closed() {
            let is_absent = |turn: &Vec<(u16, Origin)>| turn[index].1 == Origin::Absent;
            let cut = first.turns.iter().position(is_absent).unwrap_or(usize::MAX);
            let reported = usize::try_from(tick.0).unwrap();
            let shared = reported.min(cut).min(player.states.len());
            assert!(player.turns[..shared] == first.turns[..shared]);
        }
    }
}

/// Ticks of each peer in the next second.
fn progress(world: &mut MeshWorld<u16>) -> Vec<usize> {
    let ticks = |world: &MeshWorld<u16>| -> Vec<_> {
        world
            .players
            .iter()
            .map(|player| player.states.len())
            .collect()
    };
    let before = ticks(world);
    world.run_for(Duration::from_secs(1));
    ticks(world)
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

/// Cuts `index` off from the others. Each direction of each link is cut at a random time within
/// `span` milliseconds, so that they hold different amounts of its inputs.
fn cut_off(world: &mut MeshWorld<u16>, generator: &mut Generator, index: usize, span: u64) {
    let end = world.now + Duration::from_secs(1_000);
    for other in (0..world.players.len()).filter(|other| *other != index) {
        for (from, to) in [(index, other), (other, index)] {
            let start = world.now + Duration::from_millis(generator.below(span));
            world.outages.push((from, to, start, end));
        }
    }
}

#[test]
fn sim_ls_1_mesh_survivors_agree_on_the_inputs_of_a_lost_peer() {
    for_each_seed(&test_site!(), 40, |seed| {
        let mut generator = seed.generator(20);
        let mut config = mesh(u16::try_from(generator.between(3, 6)).unwrap());
        config.window = u8::try_from(generator.below(2) * 6).unwrap();
        let mut world = MeshWorld::new(seed, &config, Link::lossy(5), pad);
        world.run_for(Duration::from_secs(2));
        let gone = usize::try_from(generator.below(config.seats.into())).unwrap();
        cut_off(&mut world, &mut generator, gone, 400);
        world.run_for(Duration::from_secs(6));
        assert_one_match(&world);
        assert_eq!(playing(&world).len(), world.players.len() - 1);
        assert_eq!(world.players[gone].closed(), Some(MeshClose::TooFew));
        let first = playing(&world)[0];
        let [(left, tick)] = first.left()[..] else {
            panic!("one left: {:?}", first.events);
        };
        assert_eq!(left, seat(gone));
        // Its inputs count up to that tick, it is absent from there on, and its own history agrees.
        let tick = usize::try_from(tick.0).unwrap();
        for (index, turn) in first.turns.iter().enumerate() {
            let origin = turn[gone].1;
            assert_eq!(origin == Origin::Absent, index >= tick, "{index} {tick}");
        }
        let theirs = &world.players[gone].turns;
        let shared = theirs.len().min(tick);
        assert!(theirs[..shared] == first.turns[..shared]);
        assert!(progress(&mut world).iter().sum::<usize>() >= (world.players.len() - 1) * 58);
    });
}

#[test]
fn sim_ls_1_mesh_two_peers_leave_at_once_or_during_the_others_removal() {
    for_each_seed(&test_site!(), 40, |seed| {
        let mut generator = seed.generator(21);
        let config = mesh(u16::try_from(generator.between(5, 7)).unwrap());
        let mut world = MeshWorld::new(seed, &config, Link::lossy(5), pad);
        world.run_for(Duration::from_secs(2));
        let one = usize::try_from(generator.below(config.seats.into())).unwrap();
        let other = (one + 1) % world.players.len();
        cut_off(&mut world, &mut generator, one, 300);
        // The timeout is 2 s: sometimes the second leaves while the first is being removed.
        if generator.chance(700_000) {
            world.run_for(Duration::from_millis(generator.between(1_800, 2_500)));
        }
        cut_off(&mut world, &mut generator, other, 100);
        world.run_for(Duration::from_secs(8));
        assert_one_match(&world);
        assert_eq!(playing(&world).len(), world.players.len() - 2);
        for index in [one, other] {
            assert_eq!(world.players[index].closed(), Some(MeshClose::TooFew));
        }
        let made = progress(&mut world);
        assert!(
            made.iter().sum::<usize>() >= (world.players.len() - 2) * 58,
            "{made:?}"
        );
    });
}

#[test]
fn sim_ls_1_mesh_a_partition_leaves_one_match() {
    for_each_seed(&test_site!(), 30, |seed| {
        let mut generator = seed.generator(22);
        let count = usize::try_from(generator.between(2, 7)).unwrap();
        let config = mesh(u16::try_from(count).unwrap());
        let mut world = MeshWorld::new(seed, &config, Link::lossy(3), pad);
        world.run_for(Duration::from_secs(2));
        let part = generator.between(1, (1 << count) - 2);
        let (one, other): (Vec<_>, Vec<_>) = (0..count).partition(|index| part >> index & 1 == 1);
        world.part(&one, &other, Duration::from_secs(20));
        world.run_for(Duration::from_secs(8));
        let is_first = one.len() > other.len() || (one.len() == other.len() && one.contains(&0));
        let (on, out) = if is_first { (one, other) } else { (other, one) };
        assert_one_match(&world);
        for index in &out {
            assert_eq!(world.players[*index].closed(), Some(MeshClose::TooFew));
        }
        assert_eq!(playing(&world).len(), on.len());
        let made = progress(&mut world);
        assert!(on.iter().all(|index| made[*index] >= 58), "{made:?}");
        assert!(out.iter().all(|index| made[*index] == 0));
        // The partition heals, which changes nothing.
        world.run_for(Duration::from_secs(15));
        assert_one_match(&world);
        assert_eq!(playing(&world).len(), on.len());
    });
}

#[test]
fn mesh_of_two_pairs_the_one_with_the_lowest_seat_continues() {
    let mut world = MeshWorld::new(Seed::from_number(1), &mesh(4), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(2));
    world.part(&[1, 3], &[0, 2], Duration::from_secs(60));
    world.run_for(Duration::from_secs(5));
    assert_one_match(&world);
    for (index, player) in world.players.iter().enumerate() {
        let is_out = index % 2 == 1;
        assert_eq!(player.closed(), is_out.then_some(MeshClose::TooFew));
    }
    let members: Vec<_> = world.players[0].machine.members().collect();
    assert_eq!(members, [Seat(0), Seat(2)]);
}

#[test]
fn sim_ls_1_mesh_one_way_outages_never_make_two_matches() {
    for_each_seed(&test_site!(), 80, |seed| {
        let mut generator = seed.generator(23);
        let count = usize::try_from(generator.between(3, 6)).unwrap();
        let mut config = mesh(u16::try_from(count).unwrap());
        config.window = u8::try_from(generator.below(2) * 8).unwrap();
        let mut world = MeshWorld::new(seed, &config, Link::lossy(5), pad);
        world.run_for(Duration::from_secs(1));
        for _ in 0..generator.between(2, 14) {
            let mut any = || usize::try_from(generator.below(count as u64)).unwrap();
            let (from, to) = (any(), any());
            let start = world.now + Duration::from_millis(generator.below(4_000));
            let end = start + Duration::from_millis(generator.between(500, 9_000));
            world.outages.push((from, to, start, end));
            if generator.chance(500_000) {
                world.outages.push((to, from, start, end));
            }
        }
        if generator.chance(300_000) {
            let index = usize::try_from(generator.below(count as u64)).unwrap();
            world.run_for(Duration::from_millis(generator.below(3_000)));
            let now = world.local(index);
            world.players[index].machine.leave(now);
        }
        world.run_for(Duration::from_secs(22));
        assert_one_match(&world);
        let made = progress(&mut world);
        for (made, player) in made.iter().zip(&world.players) {
            let is_on = player.machine.phase() == Phase::Running;
            assert_eq!(*made >= 55, is_on, "{made} {:?}", player.events);
        }
    });
}

#[test]
fn mesh_a_player_that_leaves_is_removed_at_once() {
    for windowed in [0, 8] {
        let mut config = mesh(3);
        config.window = windowed;
        let mut world = MeshWorld::new(Seed::from_number(6), &config, Link::lossy(2), pad);
        world.run_for(Duration::from_secs(2));
        let now = world.local(1);
        world.players[1].machine.leave(now);
        let ticks = world.players[0].states.len();
        world.run_for(Duration::from_secs(1));
        assert!(
            world.players[0].states.len() - ticks >= 50,
            "hardly a stall"
        );
        assert_one_match(&world);
        let is_left = |event: &&MeshEvent| {
            matches!(
                event,
                MeshEvent::Left {
                    seat: Seat(1),
                    reason: LeaveReason::Quit,
                    ..
                }
            )
        };
        for index in [0, 2] {
            assert_eq!(
                world.players[index].events.iter().filter(is_left).count(),
                1
            );
        }
        assert_eq!(world.players[1].machine.phase(), Phase::Closed);
        // The next leave leaves one peer, which continues although its seat is the higher.
        let now = world.local(0);
        world.players[0].machine.leave(now);
        world.run_for(Duration::from_secs(1));
        assert!(progress(&mut world)[2] >= 58);
        assert_eq!(
            world.players[2].machine.members().collect::<Vec<_>>(),
            [Seat(2)]
        );
    }
}

#[test]
fn mesh_a_peer_paused_too_long_learns_its_last_common_tick() {
    let mut config = mesh(3);
    config.peer_timeout = Duration::from_millis(700);
    let mut world = MeshWorld::new(Seed::from_number(7), &config, Link::lossy(1), pad);
    world.run_for(Duration::from_secs(2));
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    world.players[0].is_paused = false;
    world.run_for(Duration::from_secs(2));
    let [(left, tick)] = world.players[1].left()[..] else {
        panic!("{:?}", world.players[1].events);
    };
    assert_eq!(left, Seat(0));
    assert_eq!(
        world.players[0].closed(),
        Some(MeshClose::Excluded { tick })
    );
    assert_one_match(&world);
    assert!(tick > Tick(60));
    assert_eq!(all(&world).len(), 3);
}

#[test]
fn mesh_the_application_removes_peers_lost_by_the_transport() {
    let mut world = MeshWorld::new(Seed::from_number(9), &mesh(4), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(1));
    world.players[3].is_paused = true;
    world.run_for(Duration::from_millis(100));
    let now = world.local(1);
    world.players[1].machine.remove(now, Seat(3));
    world.run_for(Duration::from_millis(500));
    for player in &world.players[..3] {
        assert_eq!(player.left().len(), 1, "long before patience ends");
    }
    assert_one_match(&world);
}
