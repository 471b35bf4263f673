//! A player that lies to the others of a hosted match may end the match for some, but cannot split
//! it in two.

use core::time::Duration;

use lockstep::HostedClose;
use lockstep::message::VERSION;
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Generator, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::mesh_world::peer;
use crate::world::{Link, pad};

/// A random membership message of player `byzantine`, in a match of `count` and in any view.
fn lie(generator: &mut Generator, epoch: u8, members: u16, byzantine: usize) -> Vec<u8> {
    let ours = 1 << byzantine;
    let any = u16::try_from(generator.below(1 << 6)).unwrap() & members;
    let [high, low] = members.to_be_bytes();
    let ticks = |out: &mut Vec<u8>, generator: &mut Generator, seats: u32| {
        for _ in 0..seats {
            out.extend_from_slice(&u32::try_from(generator.below(1_000)).unwrap().to_be_bytes());
        }
    };
    let out = |staying: u16| 6 - staying.count_ones();
    match generator.below(6) {
        0 => vec![0x50, VERSION, epoch, high, low, 1],
        1 | 2 => {
            let [suspects_high, suspects] = (any & !ours).to_be_bytes();
            let mut message = vec![0x52, epoch, high, low, suspects_high, suspects, 0, 0];
            ticks(&mut message, generator, out(members & !any | ours));
            message
        }
        3 | 4 => {
            let next = any | ours;
            let [next_high, next_low] = next.to_be_bytes();
            let mut message = vec![0x53, epoch + 1, high, low, next_high, next_low, 0, 0];
            ticks(&mut message, generator, out(next));
            message
        }
        // Four ticks without changes from some host, forwarded.
        _ => {
            let mut message = vec![0x55, 0, 0];
            message.extend_from_slice(&u16::try_from(generator.below(500)).unwrap().to_be_bytes());
            message.extend_from_slice(&[0x20; 4]);
            message
        }
    }
}

#[test]
fn sim_ls_16_a_player_that_lies_about_membership_never_splits_the_match() {
    let (mut seeds, mut believed, mut survived) = (0, 0, 0);
    for_each_seed(&test_site!(), 60, |seed| {
        let mut generator = seed.generator(50);
        let host = u16::try_from(generator.below(6)).unwrap();
        let mut world = HostedWorld::new(seed, &hosted(6, host), Link::lossy(3), pad);
        world.run_for(Duration::from_secs(2));
        let byzantine = usize::try_from(generator.below(6)).unwrap();
        let is_affected = generator.chance(500_000);
        if is_affected {
            let host = world.host();
            world.players[host].is_paused = host != byzantine;
        }
        for _ in 0..generator.between(1, 40) {
            let machine = &world.players[byzantine].machine;
            let members = machine.members().fold(0, |all, seat| all | 1 << seat.0);
            let message = lie(&mut generator, machine.epoch(), members, byzantine);
            let to = usize::try_from(generator.below(6)).unwrap();
            if to != byzantine {
                world.send(byzantine, to, &message);
            }
            world.run_for(Duration::from_millis(generator.below(150)));
        }
        world.run_for(Duration::from_secs(25));
        // A continuing player is with more than half of some view, and so with all other continuing
        // ones. The byzantine node may see anything.
        let honest: Vec<_> = world
            .on()
            .into_iter()
            .filter(|on| *on != byzantine)
            .collect();
        let before: Vec<_> = honest
            .iter()
            .map(|on| world.players[*on].states.len())
            .collect();
        world.run_for(Duration::from_secs(1));
        let moving: Vec<_> = honest
            .iter()
            .zip(before)
            .filter(|(on, before)| world.players[**on].states.len() > *before)
            .map(|(on, _)| *on)
            .collect();
        seeds += 1;
        survived += u32::from(!moving.is_empty());
        // If no player stopped, all changes result from lies.
        let is_changed = |index: &usize| {
            let player = &world.players[*index];
            player.machine.epoch() > 0 || player.closed().is_some()
        };
        let is_believed = (0..6)
            .filter(|index| *index != byzantine)
            .any(|index| is_changed(&index));
        believed += u32::from(!is_affected && is_believed);
        for on in &moving {
            let (one, other) = (&world.players[moving[0]], &world.players[*on]);
            assert_eq!(one.machine.host(), other.machine.host());
            let len = one.states.len().min(other.states.len());
            assert!(one.turns[..len] == other.turns[..len]);
        }
    });
    eprintln!("of {seeds} matches {believed} changed by lies alone, {survived} went on");
    assert!(
        believed * 10 >= seeds || seeds < 20,
        "{believed} of {seeds}"
    );
    assert!(survived * 4 >= seeds || seeds < 20, "{survived} of {seeds}");
}

#[test]
fn ls_16_the_suspicion_of_one_player_evicts_no_host() {
    let mut world = HostedWorld::new(Seed::from_number(3), &hosted(4, 0), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(1));
    for _ in 0..200 {
        for to in [0, 1, 2] {
            world.send(3, to, &[0x50, VERSION, 0, 0, 0x0f, 1]);
        }
        world.run_for(Duration::from_millis(20));
    }
    world.assert_progress(&[0, 1, 2, 3]);
    assert_eq!(world.players[1].machine.epoch(), 0);
}

#[test]
fn ls_16_a_former_hosts_ticks_are_dropped_and_counted() {
    let mut world = HostedWorld::new(Seed::from_number(4), &hosted(3, 0), Link::perfect(), pad);
    world.run_for(Duration::from_secs(1));
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    let before = *world.players[2].machine.stats();
    let end = world.players[2].machine.ticks_confirmed();
    let [_, _, high, low] = end.to_be_bytes();
    let now = world.local(2);
    // Four ticks in which seat 0 presses a button, and the same from a player that never hosted.
    let mut turns = [0x82, 0, 0, 0x80, high, low, 0x20, 0x20, 0x20, 0x20];
    let machine = &mut world.players[2].machine;
    machine.handle_datagram(now, Arrival::from(peer(0)), &mut turns);
    assert_eq!(machine.ticks_confirmed(), end);
    let stats = machine.stats();
    assert_eq!(stats.dropped_unknown_peer, before.dropped_unknown_peer + 1);
    let mut turns = [0x82, 0, 0, 0x80, high, low, 0x20, 0x20, 0x20, 0x20];
    let machine = &mut world.players[1].machine;
    machine.handle_datagram(now, Arrival::from(peer(2)), &mut turns);
    world.run_for(Duration::from_secs(1));
    world.assert_progress(&[1, 2]);
    assert_ne!(world.players[1].closed(), Some(HostedClose::Unserved));
}
