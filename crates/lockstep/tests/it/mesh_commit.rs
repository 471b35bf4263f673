//! A mesh with commitments.

use core::time::Duration;

use lockstep::bundle::Shape;
use lockstep::message::{MeshMessage, decode_mesh};
use lockstep::{CommitSecret, MeshConfig, MeshEvent, MeshPeer, PeerId, Phase, Step, Tick, Width};
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::alloc::held;
use crate::mesh_world::{MeshWorld, all, assert_agreement, mesh, peer, peers};
use crate::world::{Link, MATCH, pad, seat};

/// A mesh with commitments, and a delay that covers 50 ms twice.
pub(crate) fn committing(seats: u16) -> MeshConfig {
    let mut config = mesh(seats);
    config.commit = Some(CommitSecret::new([0x5a; 32]));
    config.input_delay = 9;
    config
}

fn shape(seats: u16) -> Shape {
    Shape {
        seats,
        width: Width::bits::<16>(),
    }
}

/// First tick that a datagram does not commit to, and the end of the ticks that it reveals; both
/// near `about`.
pub(crate) fn ends(datagram: &[u8], seats: u16, about: Tick) -> Option<(Tick, Tick)> {
    let Ok(MeshMessage::Committed(commitment, play)) = decode_mesh(datagram, shape(seats)) else {
        return None;
    };
    let first = about.widen_near(play.head.first_low)?;
    let shown = Tick(first.0 + play.bundles.len());
    Some((about.widen_near(commitment.end_low)?, shown))
}

/// No input was revealed for a tick before a commitment to it had arrived from all others.
fn assert_no_peer_saw_first(world: &MeshWorld<u16>, seats: u16, delay: u8) {
    let begin = Tick(delay.into());
    let count = usize::from(seats);
    // By sender and receiver: first tick without a commitment in the datagrams so far.
    let mut committed = vec![vec![begin; count]; count];
    let mut shown = vec![begin; count];
    let record = world.record.as_ref().unwrap();
    for (from, to, datagram) in record {
        let Some((end, reveal)) = ends(datagram, seats, committed[*from][*to]) else {
            continue;
        };
        committed[*from][*to] = committed[*from][*to].max(end);
        if reveal > shown[*from] {
            shown[*from] = reveal;
            for other in (0..count).filter(|other| other != from) {
                assert!(
                    committed[other][*from] >= reveal,
                    "seat {from} showed all before {reveal}, seat {other} had not committed to that"
                );
            }
        }
        let end = committed[*from][*to];
        assert!(end >= reveal, "what is shown was committed to");
    }
    assert!(shown.iter().all(|end| end.0 > 100), "{shown:?}");
}

#[test]
fn sim_mesh_commit_no_peer_sees_an_input_before_committing_to_its_own() {
    for_each_seed(&test_site!(), 12, |seed| {
        let mut generator = seed.generator(9);
        let seats = 2 + u16::try_from(generator.below(4)).unwrap();
        let mut link = Link::perfect();
        link.latency = Duration::from_millis(10 + generator.below(40));
        link.jitter = Duration::from_millis(generator.below(15));
        link.loss = u32::try_from(generator.below(100_000)).unwrap();
        link.duplicate = 20_000;
        let mut config = committing(seats);
        config.input_delay = u8::try_from(generator.below(12)).unwrap();
        config.window = u8::try_from(generator.below(9)).unwrap();
        let mut world = MeshWorld::new(seed, &config, link, pad);
        world.record = Some(Vec::new());
        world.run(300);
        assert_agreement(&all(&world));
        assert_no_peer_saw_first(&world, seats, config.input_delay);
        for player in &world.players {
            let breach = |event: &MeshEvent| matches!(event, MeshEvent::CommitViolation { .. });
            assert!(!player.events.iter().any(breach), "{:?}", player.events);
            // All submitted inputs count.
            for (tick, turn) in (0..).map(Tick).zip(&player.turns) {
                for (own, (input, _)) in world.players.iter().zip(turn) {
                    if let Some(submitted) = own.submitted.get(&tick) {
                        assert_eq!(input, submitted);
                    }
                }
            }
        }
    });
}

#[test]
fn sim_mesh_commit_remaining_peers_agree_when_one_is_cut_off() {
    for_each_seed(&test_site!(), 8, |seed| {
        let mut link = Link::perfect();
        link.latency = Duration::from_millis(30);
        link.loss = 50_000;
        let mut world = MeshWorld::new(seed, &committing(4), link, pad);
        world.run_for(Duration::from_secs(2));
        world.part(&[2], &[0, 1, 3], Duration::from_secs(60));
        world.run_for(Duration::from_secs(6));
        let stay: Vec<_> = [0, 1, 3].map(|index| &world.players[index]).into();
        assert_agreement(&stay);
        for player in stay {
            assert_eq!(player.left().len(), 1, "{:?}", player.events);
            assert!(player.states.len() > 250, "{}", player.states.len());
        }
    });
}

#[test]
fn mesh_commit_costs_one_more_one_way_delay_and_no_ticks() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(50);
    // Twice the latency is 6 ticks. Stamping and revealing each wait for a boundary.
    let mut config = committing(4);
    config.input_delay = 8;
    let mut world = MeshWorld::new(Seed::from_number(1), &config, link, pad);
    world.run_for(Duration::from_secs(11));
    for player in &world.players {
        let steps: Vec<_> = player.stepped_at.iter().skip(60).collect();
        let longest = steps
            .windows(2)
            .map(|pair| pair[1].saturating_since(*pair[0]))
            .max();
        assert!(longest <= Some(Duration::from_millis(25)), "{longest:?}");
        assert!(steps.len() > 500, "{}", steps.len());
    }
    // Without commitments, one latency suffices: a delay of 8 is four more than needed.
    config.commit = None;
    config.input_delay = 4;
    let mut world = MeshWorld::new(Seed::from_number(1), &config, link, pad);
    world.run_for(Duration::from_secs(11));
    let stats = world.players[0].machine.stats();
    assert_eq!(stats.holds, 0);
}

/// Stops seat 0 of three, and commits in its name to inputs other than those revealed later.
fn breach() -> MeshWorld<u16> {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(20);
    let mut world = MeshWorld::new(Seed::from_number(3), &committing(3), link, pad);
    world.run_for(Duration::from_secs(2));
    world.players[0].is_paused = true;
    forge(&mut world, &[1, 2]);
    world
}

/// Reveals inputs to `players` that seat 0 did not commit to, under a forged chain head.
fn forge(world: &mut MeshWorld<u16>, players: &[usize]) {
    for &to in players {
        let first = Tick(world.players[to].machine.ticks_confirmed());
        let (count, end) = (30_u16, Tick(first.0 + 30));
        let mut datagram = vec![0x47];
        datagram.extend(end.low().to_be_bytes());
        datagram.extend([0x77; 16]);
        datagram.extend(count.to_be_bytes());
        datagram.extend(vec![0; usize::from(count) * 8]);
        let low = first.low().to_be_bytes();
        datagram.extend([0x41, 0, low[0], low[1], 0, 0, 0, 0x80, 0]);
        datagram.extend(low);
        // A button that the player does not press.
        datagram.push(0b0100_0111);
        datagram.extend(vec![0x20; usize::from(count) - 1]);
        inject(world, to, peer(0), datagram);
    }
}

pub(crate) fn inject(world: &mut MeshWorld<u16>, to: usize, from: PeerId, mut datagram: Vec<u8>) {
    let now = world.local(to);
    let machine = &mut world.players[to].machine;
    machine.handle_datagram(now, Arrival::from(from), &mut datagram);
}

#[test]
fn mesh_commit_a_peer_that_shows_other_inputs_is_excluded() {
    let mut world = breach();
    let known = world.players[1].machine.ticks_confirmed();
    world.run_for(Duration::from_secs(1));
    for player in &world.players[1..] {
        let breach = player.events.iter().find_map(|event| {
            if let MeshEvent::CommitViolation { seat, tick } = event {
                Some((*seat, *tick))
            } else {
                None
            }
        });
        let (seat, tick) = breach.expect("a breach is told");
        assert_eq!(seat, Seat(0));
        // The forged input does not count: the seat is absent from there on.
        assert!(player.left() == [(Seat(0), tick)], "{:?}", player.events);
        assert!(tick.0 <= known + 12, "{tick}");
        assert!(player.states.len() > usize::try_from(known).unwrap() + 40);
    }
    assert_agreement(&[&world.players[1], &world.players[2]]);
}

#[test]
fn mesh_commit_a_withheld_commitment_reveals_nothing_and_is_reported() {
    let mut world = MeshWorld::new(Seed::from_number(5), &committing(3), Link::perfect(), pad);
    world.run_for(Duration::from_secs(2));
    // From now on seat 2 receives everything and sends nothing.
    let now = world.now;
    for to in [0, 1] {
        world
            .outages
            .push((2, to, now, now + Duration::from_secs(60)));
    }
    world.record = Some(Vec::new());
    let committed = world.players[2].machine.boundary() + 9;
    world.run_for(Duration::from_secs(1));
    let about = Tick(committed);
    for (from, _, datagram) in world.record.as_ref().unwrap() {
        if let Some((_, shown)) = ends(datagram, 3, about).filter(|_| *from < 2) {
            assert!(shown <= Tick(committed + 1), "seat {from} showed {shown}");
        }
    }
    for player in &world.players[..2] {
        let stall = player.events.iter().find_map(|event| {
            if let MeshEvent::Stalled { seat, .. } = event {
                Some(*seat)
            } else {
                None
            }
        });
        assert_eq!(stall, Some(Seat(2)), "{:?}", player.events);
    }
}

#[test]
fn mesh_commit_a_long_outage_stalls_no_peer_for_good() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(30);
    // The heads of the peer that commits furthest ahead are lost for as long as the others' clocks
    // are stopped.
    for (delay, window) in [(14, 0), (9, 8), (9, 0), (4, 0)] {
        let mut world = MeshWorld::new(Seed::from_number(8), &committing(3), link, pad);
        let mut config = committing(3);
        (config.input_delay, config.window) = (delay, window);
        world.replace(0, &config);
        world.run_for(Duration::from_secs(2));
        let now = world.now;
        for to in [1, 2] {
            let end = now + Duration::from_secs(1);
            world.outages.push((0, to, now, end));
        }
        world.run_for(Duration::from_secs(4));
        for player in &world.players {
            assert!(player.states.len() > 200, "{}", player.states.len());
        }
        assert_agreement(&all(&world));
    }
}

#[test]
fn mesh_commit_all_peers_commit_or_none() {
    let mut world = MeshWorld::new(Seed::from_number(6), &committing(2), Link::perfect(), pad);
    world.replace(1, &mesh(2));
    world.run_for(Duration::from_secs(1));
    for (player, other) in world.players.iter().zip([1, 0]) {
        assert!(player.states.is_empty());
        let seat = Seat(other);
        assert!(player.events.contains(&MeshEvent::Mismatch { seat }));
    }
    // Play without commitments is rejected as well.
    let mut world = MeshWorld::new(Seed::from_number(6), &committing(2), Link::perfect(), pad);
    world.run_for(Duration::from_secs(1));
    inject(
        &mut world,
        1,
        peer(0),
        vec![0x41, 0, 0, 9, 0, 0, 0, 0x80, 0, 0, 9, 0x20],
    );
    assert_eq!(world.players[1].machine.stats().dropped_malformed, 1);
}

/// A match of two with commitments, until it ends or for 200 turns. Each datagram is delivered
/// mutated and then unchanged. Returns how much its memory grew, in bytes, and whether it ended.
fn hostile_match(generator: &mut Generator) -> (i64, bool) {
    let now = Instant::from_millis(1);
    let machine = |index: usize| {
        let own = (MATCH, seat(index));
        let seed = Seed::from_number(9);
        MeshPeer::<u16>::new(committing(2), own, &peers(index, 2), seed, now).unwrap()
    };
    let mut pair = [machine(0), machine(1)];
    let (mut datagram, mut out) = (Vec::with_capacity(2_000), Vec::with_capacity(2_000));
    let before = held();
    for turn in 0..200 {
        let now = Instant::from_millis(2 + turn * 4);
        for sender in 0..2 {
            let machine = &mut pair[sender];
            let input = u16::try_from(generator.below(65_536)).unwrap();
            machine.submit(now, &input).ok();
            machine.handle_timeout(now);
            while let Step::Advance { turn, .. } = machine.next_step(now) {
                let tick = turn.tick();
                machine.report(tick, 1).unwrap();
            }
            while pair[sender].poll_transmit(now, &mut out).is_some() {
                datagram.clone_from(&out);
                if generator.chance(20_000) {
                    crate::hostile::mutate(generator, &mut datagram);
                }
                for bytes in [&mut datagram, &mut out] {
                    pair[1 - sender].handle_datagram(now, Arrival::from(peer(sender)), bytes);
                }
                out.clear();
            }
            while pair[sender].poll_event().is_some() {}
        }
    }
    let is_over = pair.iter().any(|machine| machine.phase() == Phase::Closed);
    (held() - before, is_over)
}

#[test]
fn l8_ls_10_mesh_commit_mutated_datagrams_never_panic_or_grow_a_machine() {
    let mut generator = Seed::from_number(2).generator(0);
    let mut over = 0;
    for _ in 0..150 {
        let (bytes, is_over) = hostile_match(&mut generator);
        // The first tick makes allocations that every match makes.
        assert!(bytes <= 64, "{bytes}");
        over += u32::from(is_over);
    }
    // Some mutations were detected, and some had no effect.
    assert!((1..150).contains(&over), "{over}");
}
