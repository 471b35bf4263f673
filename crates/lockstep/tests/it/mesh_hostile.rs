//! Datagrams that no honest mesh peer sends.

use core::time::Duration;

use lockstep::bundle::{self, Shape};
use lockstep::message::{MeshMessage, decode_mesh};
use lockstep::{
    MeshClose, MeshConfigError, MeshEvent, MeshPeer, Origin, PeerId, Step, Tick, Width,
};
use proptest::prelude::*;
use wire::{Arrival, Instant, Seat, Seed};

use crate::alloc::{allocations, held};
use crate::mesh_world::{MeshWorld, all, assert_agreement, mesh, peer, peers};
use crate::world::{Link, MATCH, pad};

/// A running match of three; seat 0 is hostile.
fn world() -> MeshWorld<u16> {
    let mut world = MeshWorld::new(Seed::from_number(1), &mesh(3), Link::perfect(), pad);
    world.run_for(Duration::from_secs(2));
    world
}

fn inject(world: &mut MeshWorld<u16>, to: usize, from: PeerId, mut datagram: Vec<u8>) {
    let now = world.local(to);
    let machine = &mut world.players[to].machine;
    machine.handle_datagram(now, Arrival::from(from), &mut datagram);
}

/// A play datagram whose bundles start at tick `first`.
fn play(next: u32, first: u32, bundles: &[u8]) -> Vec<u8> {
    let [_, _, next_high, next_low] = next.to_be_bytes();
    let [_, _, first_high, first_low] = first.to_be_bytes();
    let mut datagram = vec![0x41, 0, next_high, next_low, 0, 0, 0, 0x80, 0];
    datagram.extend_from_slice(&[first_high, first_low]);
    datagram.extend_from_slice(bundles);
    datagram
}

/// Three peers: seat 1 announces to seat 0 at once that ticks begin in `starts_in` microseconds,
/// and seat 0 receives seat 2 only after `late`. Returns the number of ticks within 4 s.
fn ticks_before_start(starts_in: i32, late: Duration) -> usize {
    let mut near = Link::perfect();
    near.latency = Duration::from_millis(20);
    let mut world = MeshWorld::new(Seed::from_number(2), &mesh(3), near, pad);
    world.outages.push((2, 0, world.now, world.now + late));
    world.record = Some(Vec::new());
    world.run_for(Duration::from_millis(50));
    let record = world.record.take().unwrap();
    let hello = record.iter().rfind(|(from, to, _)| (*from, *to) == (1, 0));
    let (_, _, mut hello) = hello.unwrap().clone();
    assert_eq!(hello[0], 0x40);
    let tail = hello.len() - 4;
    hello[tail..].copy_from_slice(&starts_in.to_be_bytes());
    inject(&mut world, 0, peer(1), hello);
    world.run_for(Duration::from_secs(4));
    assert_agreement(&all(&world));
    let ticks = world.players.iter().map(|player| player.states.len());
    ticks.min().unwrap()
}

#[test]
fn mesh_no_peer_begins_too_early_or_too_late() {
    for starts_in in [i32::MIN + 1, 0, 1_800_000_000] {
        for late in [Duration::ZERO, Duration::from_millis(500)] {
            let ticks = ticks_before_start(starts_in, late);
            assert!(ticks > 150, "{starts_in} {late:?}: {ticks}");
        }
    }
}

#[test]
fn ls_11_mesh_no_peer_plays_another_seat() {
    let mut world = world();
    let end = world.players[2].machine.ticks_confirmed() + 1;
    // Seat 0 presses an undefined button ten ticks ahead and sends the same for seat 1; an unknown
    // peer does so too.
    let mut bundles = vec![0x20; 10];
    bundles.push(0b0100_0000);
    let mut forward = vec![0x46, 1];
    forward.extend_from_slice(&end.to_be_bytes());
    forward.extend_from_slice(&bundles);
    inject(&mut world, 2, peer(0), forward);
    inject(&mut world, 2, PeerId(77), play(end, end, &bundles));
    assert_eq!(world.players[2].machine.stats().dropped_unknown_peer, 1);
    world.run_for(Duration::from_secs(1));
    assert_agreement(&all(&world));
    for (tick, turn) in (0..).map(Tick).zip(&world.players[2].turns) {
        let (input, origin) = turn[1];
        assert_eq!(origin, Origin::Confirmed);
        if let Some(submitted) = world.players[1].submitted.get(&tick) {
            assert_eq!(input, *submitted);
        }
        assert_eq!(
            turn[0].0 & 0x8000,
            0,
            "nor was its own word taken from a stranger"
        );
    }
}

#[test]
fn mesh_a_peer_that_sends_different_inputs_to_peers_is_found() {
    let mut world = world();
    let end = world.players[1].machine.ticks_confirmed();
    world.players[0].is_paused = true;
    let stamped = end + 30;
    let first = end.saturating_sub(4);
    // One peer gets no press, the other a pressed button.
    let quiet = vec![0x20; usize::try_from(stamped - first).unwrap()];
    let mut pressed = quiet.clone();
    pressed[20] = 0b0100_0111;
    inject(&mut world, 1, peer(0), play(end, first, &quiet));
    inject(&mut world, 2, peer(0), play(end, first, &pressed));
    // Its hashes are awaited until it is removed.
    world.run_for(Duration::from_secs(4));
    for player in &world.players[1..] {
        let is_desync = |event: &MeshEvent| matches!(event, MeshEvent::Desync { .. });
        assert!(player.events.iter().any(is_desync), "{:?}", player.events);
    }
}

#[test]
fn mesh_numbers_outside_every_window_are_counted_and_dropped() {
    let mut world = world();
    let before = *world.players[1].machine.stats();
    let end = world.players[1].machine.boundary() + 6;
    // An acknowledgement of future ticks, which is taken for an old one.
    inject(&mut world, 1, peer(0), play(end + 9, end, &[]));
    // Inputs 600 ticks ahead.
    inject(&mut world, 1, peer(0), play(end, end + 600, &[0x20; 8]));
    // A decision without statements, one of another view, and statements of other views.
    let decision = |members: u8, next: u8| vec![0x44, 0, members, 0, next, 0, 0, 0, 0, 0, 9];
    inject(&mut world, 1, peer(0), decision(7, 3));
    inject(&mut world, 1, peer(0), decision(3, 1));
    inject(
        &mut world,
        1,
        peer(0),
        vec![0x43, 0, 3, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
    );
    // No peer has left, so there is nothing to request or forward.
    inject(&mut world, 1, peer(0), vec![0x45, 2, 0, 0, 0, 0]);
    let after = *world.players[1].machine.stats();
    assert_eq!(after.bundles_early, before.bundles_early + 8);
    assert!(after.dropped_window > before.dropped_window);
    assert_eq!(after.forwards_sent, 0);
    world.run_for(Duration::from_secs(1));
    assert_agreement(&all(&world));
    let rates: Vec<_> = world
        .players
        .iter()
        .map(|player| player.states.len())
        .collect();
    assert!(
        rates.iter().all(|ticks| *ticks > 160),
        "the match goes on: {rates:?}"
    );
    assert!(world.players.iter().all(|player| player.left().is_empty()));
}

#[test]
fn mesh_unanswered_input_requests_end_the_match() {
    // Seat 0 claims to hold inputs of seat 2 that no peer has; both are silent otherwise.
    let mut config = mesh(3);
    config.peer_timeout = Duration::from_millis(500);
    let mut world = MeshWorld::new(Seed::from_number(3), &config, Link::perfect(), pad);
    world.run_for(Duration::from_secs(1));
    world.players[2].is_paused = true;
    world.players[0].is_paused = true;
    let later = world.players[1].machine.ticks_confirmed() + 400;
    let mut statement = vec![0x43, 0, 7, 0, 4, 0, 0];
    statement.extend_from_slice(&later.to_be_bytes());
    for _ in 0..60 {
        world.run_for(Duration::from_millis(50));
        inject(&mut world, 1, peer(0), statement.clone());
    }
    assert_eq!(world.players[1].closed(), Some(MeshClose::Unserved));
}

#[test]
fn mesh_impossible_configurations_are_refused() {
    let refusal = |change: fn(&mut lockstep::MeshConfig), seats: usize| {
        let mut config = mesh(u16::try_from(seats).unwrap());
        change(&mut config);
        let own = (MATCH, Seat(0));
        let seed = Seed::from_number(1);
        MeshPeer::<u16>::new(config, own, &peers(0, seats), seed, Instant::ZERO).err()
    };
    assert_eq!(refusal(|_| {}, 2), None);
    assert_eq!(refusal(|_| {}, 16), None);
    assert_eq!(refusal(|_| {}, 1), Some(MeshConfigError::Seats));
    assert_eq!(refusal(|_| {}, 17), Some(MeshConfigError::Seats));
    assert_eq!(
        refusal(|config| config.seats = 3, 2),
        Some(MeshConfigError::Peers)
    );
    let delay = refusal(|config| config.input_delay = 61, 2);
    assert_eq!(delay, Some(MeshConfigError::DelayOutOfRange));
    let window = refusal(|config| config.window = 33, 2);
    assert_eq!(window, Some(MeshConfigError::WindowOutOfRange));
    let short = refusal(|config| config.datagram_len_max = 199, 2);
    assert_eq!(short, Some(MeshConfigError::DatagramTooShort));
}

#[test]
fn l8_ls_10_mesh_mutated_datagrams_never_panic_or_grow_a_machine() {
    let now = Instant::from_millis(1);
    let machine = |index: usize| {
        let own = (MATCH, crate::world::seat(index));
        let seed = Seed::from_number(9);
        MeshPeer::<u16>::new(mesh(2), own, &peers(index, 2), seed, now).unwrap()
    };
    let mut pair = [machine(0), machine(1)];
    let mut generator = Seed::from_number(2).generator(0);
    let mut datagram = Vec::with_capacity(2_000);
    let mut out = Vec::with_capacity(2_000);
    let mut bytes = held();
    for round in 0..40_000_u64 {
        let now = Instant::from_millis(2 + round * 4);
        for sender in 0..2 {
            let [one, other] = &mut pair;
            let (from, to) = if sender == 0 {
                (one, other)
            } else {
                (other, one)
            };
            from.submit(now, &u16::try_from(generator.below(65_536)).unwrap())
                .ok();
            from.handle_timeout(now);
            loop {
                match from.next_step(now) {
                    Step::Wait { .. } => break,
                    Step::Advance { turn, .. } => {
                        let tick = turn.tick();
                        from.report(tick, 1).unwrap();
                    }
                    Step::Save(_) | Step::Load(_) | Step::Settled(_) => panic!("lockstep"),
                }
            }
            while from.poll_transmit(now, &mut out).is_some() {
                assert!(out.len() <= 1_100);
                datagram.clone_from(&out);
                crate::hostile::mutate(&mut generator, &mut datagram);
                let arrival = Arrival::from(peer(sender));
                // A forged leave or statement would end the run; other tests cover them.
                if !matches!(datagram.first(), Some(0x42..0x45)) {
                    to.handle_datagram(now, arrival, &mut datagram);
                }
                to.handle_datagram(now, arrival, &mut out);
                out.clear();
            }
            while from.poll_event().is_some() {}
        }
        if round == 5_000 {
            bytes = held();
        }
    }
    assert!(held() <= bytes, "{} more", held() - bytes);
    let [one, _] = &pair;
    assert!(one.stats().dropped_malformed > 1_000, "{:?}", one.stats());
    assert!(one.ticks_confirmed() > 5_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn l8_ls_10_mesh_any_bytes_decode_or_do_not(kind in 0x3f_u8..0x49, tail: Vec<u8>, bits in 1_u16..300, seats in 2_u16..=16) {
        let mut datagram = vec![kind];
        datagram.extend(tail);
        let width = Width::new(bits).unwrap();
        let shape = Shape { seats, width };
        let before = allocations();
        let message = decode_mesh(&datagram, shape);
        let bundles = match message {
            Ok(MeshMessage::Play(play)) => {
                assert!(play.hashes.iter().count() <= 16);
                Some(play.bundles)
            }
            Ok(MeshMessage::Forward { bundles, .. }) => Some(bundles),
            _ => None,
        };
        if let Some(bundles) = bundles {
            let lane = Shape { seats: 1, width };
            let mut len = 0;
            for bundle in bundles.iter() {
                assert!(!bundle.is_empty() && bundle.len() <= lane.bundle_len_max());
                assert!(bundle::check(bundle, lane) == Ok(bundle.len()));
                len += bundle.len();
            }
            assert!(len < datagram.len());
        }
        prop_assert_eq!(allocations() - before, 0);
    }
}
