//! Peers that try to see inputs before they commit, to have two histories, or to stop a mesh with
//! commitments.

use core::time::Duration;

use lockstep::{MeshConfig, MeshEvent, Origin, Tick};
use netsim::{for_each_seed, test_site};
use wire::{Seat, Seed};

use crate::mesh_commit::{committing, ends, inject};
use crate::mesh_world::{MeshWorld, all, assert_agreement, peer};
use crate::world::{Link, pad};

/// A link with this latency and without loss.
fn link(millis: u64) -> Link {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(millis);
    link
}

/// First tick that `from` has not committed to in its recorded datagrams to `to`.
fn committed_end(world: &MeshWorld<u16>, from: usize, to: usize, seats: u16) -> Tick {
    let about = Tick(world.players[to].machine.ticks_confirmed());
    let record = world.record.as_ref().unwrap().iter();
    let ends = record
        .filter(|(a, b, _)| (*a, *b) == (from, to))
        .filter_map(|(_, _, datagram)| Some(ends(datagram, seats, about)?.0));
    ends.max().unwrap()
}

/// A commitment to the ticks before `end` that no input matches, without inputs.
fn empty_promise(end: Tick, next: Tick) -> Vec<u8> {
    let mut datagram = vec![0x47];
    datagram.extend(end.low().to_be_bytes());
    datagram.extend([0x77; 16]);
    datagram.extend([0, 0]);
    let [high, low] = next.low().to_be_bytes();
    datagram.extend([0x41, 0, high, low, 0, 0, 0, 0x80, 0, high, low]);
    datagram
}

/// Ticks that seat 1 revealed before seat 0 had committed to them in datagrams to seat 1.
fn shown_early(world: &MeshWorld<u16>, begin: Tick) -> Vec<u32> {
    let (mut committed, mut shown) = (begin, begin);
    let mut early = Vec::new();
    for (from, to, datagram) in world.record.as_ref().unwrap() {
        let Some((end, reveal)) = ends(datagram, 3, committed) else {
            continue;
        };
        if (*from, *to) == (0, 1) {
            committed = committed.max(end);
        } else if *from == 1 {
            early.extend(committed.max(shown).0..reveal.0);
            shown = shown.max(reveal);
        }
    }
    early
}

#[test]
fn mesh_commit_a_peer_that_cannot_reveal_is_removed() {
    for ahead in [1, 3, 6, 40, 400] {
        let mut config = committing(3);
        config.input_delay = 12;
        let mut world = MeshWorld::new(Seed::from_number(4), &config, link(20), pad);
        // Seat 0 commits later than the others, which wait for it.
        config.input_delay = 0;
        world.replace(0, &config);
        world.record = Some(Vec::new());
        world.run_for(Duration::from_secs(3));
        let before: Vec<_> = [1, 2].map(|to| committed_end(&world, 0, to, 3)).into();
        world.record = Some(Vec::new());
        for (to, end) in [1, 2].into_iter().zip(&before) {
            let next = Tick(world.players[to].machine.ticks_confirmed());
            inject(
                &mut world,
                to,
                peer(0),
                empty_promise(end.plus(ahead), next),
            );
        }
        world.run_for(Duration::from_secs(12));
        let early = shown_early(&world, before[0]);
        for player in &world.players[1..] {
            for tick in &early {
                let turn = player.turns.get(usize::try_from(*tick).unwrap());
                let counts = turn.is_some_and(|turn| turn[0].1 == Origin::Confirmed);
                assert!(
                    !counts,
                    "{ahead}: seat 0 saw tick {tick} first, and plays it"
                );
            }
            // A commitment too far ahead is ignored.
            assert_eq!(player.left().len(), usize::from(ahead < 40), "{ahead}");
            assert_eq!(early.is_empty(), ahead >= 40, "{ahead}");
            assert!(
                player.states.len() > 300,
                "{ahead}: {}",
                player.states.len()
            );
        }
        assert_agreement(&[&world.players[1], &world.players[2]]);
    }
}

#[test]
fn mesh_commit_unproved_inputs_of_a_removed_peer_are_discarded() {
    let mut world = MeshWorld::new(Seed::from_number(8), &committing(3), link(20), pad);
    world.run_for(Duration::from_secs(2));
    // Seat 1 receives more of seat 2 than seat 0 does.
    let now = world.now;
    let minute = Duration::from_mins(1);
    world.outages.push((2, 0, now, now + minute));
    world.run_for(Duration::from_millis(150));
    world.players[2].is_paused = true;
    world.run_for(Duration::from_millis(100));
    // Seat 0 receives inputs in its own name that it never committed to.
    let known = Tick(world.players[0].machine.ticks_confirmed());
    let count = 30_u16;
    let mut datagram = vec![0x47];
    datagram.extend(known.plus(8).low().to_be_bytes());
    datagram.extend([0x77; 16]);
    datagram.extend(count.to_be_bytes());
    datagram.extend(vec![0; usize::from(count) * 8]);
    let [high, low] = known.low().to_be_bytes();
    datagram.extend([0x41, 0, high, low, 0, 0, 0, 0x80, 0, high, low]);
    // A button that no pad has.
    datagram.extend(vec![0b0100_0000; usize::from(count)]);
    inject(&mut world, 0, peer(2), datagram);
    world.run_for(Duration::from_secs(3));
    let (one, other) = (&world.players[0], &world.players[1]);
    let breach =
        |event: &MeshEvent| matches!(event, MeshEvent::CommitViolation { seat: Seat(2), .. });
    assert!(one.events.iter().any(breach), "{:?}", one.events);
    assert_eq!(one.left(), other.left());
    assert!(one.left()[0].1 > known, "the other one had more");
    let desync = |event: &MeshEvent| matches!(event, MeshEvent::Desync { .. });
    for player in [one, other] {
        assert!(!player.events.iter().any(desync), "{:?}", player.events);
        assert!(player.states.len() > 200);
    }
    assert_agreement(&[one, other]);
}

/// The smallest number of final ticks of any player.
fn fewest(world: &MeshWorld<u16>) -> usize {
    let ticks = world.players.iter().map(|player| player.states.len());
    ticks.min().unwrap()
}

#[test]
fn mesh_commit_a_raised_delay_delays_no_peer_for_ever() {
    for (seats, window) in [(2, 0), (4, 0), (3, 8)] {
        let mut config = committing(seats);
        config.window = window;
        let mut world = MeshWorld::new(Seed::from_number(11), &config, link(30), pad);
        world.run_for(Duration::from_secs(2));
        for delay in [60, 0, 30, 9] {
            let now = world.local(0);
            world.players[0].machine.set_input_delay(now, delay);
            let before = fewest(&world);
            world.run_for(Duration::from_secs(3));
            assert!(
                fewest(&world) > before + 60,
                "{delay}: {before} {}",
                fewest(&world)
            );
        }
        assert_agreement(&all(&world));
    }
}

#[test]
fn sim_mesh_commit_continues_after_any_outage_with_any_delay_and_window() {
    for_each_seed(&test_site!(), 16, |seed| {
        let mut generator = seed.generator(9);
        let seats = 2 + u16::try_from(generator.below(3)).unwrap();
        let mut one = link(5 + generator.below(40));
        one.loss = u32::try_from(generator.below(50_000)).unwrap();
        one.jitter = Duration::from_millis(generator.below(30));
        let mut world = MeshWorld::new(seed, &committing(seats), one, pad);
        for player in 0..usize::from(seats) {
            let mut config: MeshConfig = committing(seats);
            config.input_delay = u8::try_from(generator.below(61)).unwrap();
            config.window = u8::try_from(generator.below(2) * generator.below(33)).unwrap();
            world.replace(player, &config);
        }
        world.run_for(Duration::from_secs(2));
        for _ in 0..4 {
            let from = usize::try_from(generator.below(seats.into())).unwrap();
            for to in (0..usize::from(seats)).filter(|to| *to != from) {
                let span = Duration::from_millis(generator.below(900));
                world.outages.push((from, to, world.now, world.now + span));
            }
            world.run_for(Duration::from_secs(3));
            let before = fewest(&world);
            world.run_for(Duration::from_secs(2));
            assert!(fewest(&world) > before + 50, "{before} {}", fewest(&world));
        }
        assert_agreement(&all(&world));
        for player in &world.players {
            assert!(player.left().is_empty(), "{:?}", player.events);
        }
    });
}
