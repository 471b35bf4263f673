//! Matches beyond tick 65,536, where the 16-bit tick numbers in datagrams wrap.
//!
//! A match starts with tick 0, so each test first plays 18 minutes. Links have no loss then,
//! because these simulate fastest.

use core::time::Duration;

use lockstep::{
    Config, InputDelay, MeshConfig, MeshEvent, Origin, PeerId, ServerEvent, SpectatorRelayConfig,
};
use wire::{Instant, Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::mesh_commit::committing;
use crate::mesh_world::{MeshWorld, all, assert_agreement, mesh};
use crate::tree::{SERVER, Tree};
use crate::world::{Link, World, config, pad, peer, seat};

/// First tick whose low 16 bits repeat.
const WRAP: u32 = 65_536;

/// Latest end of each test; a match that stops fails.
const END: Instant = Instant::from_millis(19 * 60 * 1_000);

/// Tick from which links lose datagrams.
const NEAR: u32 = WRAP - 300;

fn places(tick: u32) -> usize {
    usize::try_from(tick).unwrap()
}

fn quiet() -> Link {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(15);
    link
}

fn lossy() -> Link {
    let mut link = Link::lossy(5);
    link.latency = Duration::from_millis(30);
    link
}

/// A match of two shortly before the wrap.
fn world(config: Config) -> World<u16> {
    let mut world = World::new(1, config, quiet(), pad);
    while world.server.ticks_closed() < NEAR {
        assert!(world.now < END);
        world.step();
    }
    world.links.fill(lossy());
    world
}

/// Both saw the same far beyond the wrap, and their latest inputs counted.
fn assert_went_on(world: &World<u16>) {
    let [one, other] = &world.players[..] else {
        panic!("two play");
    };
    let len = one.states.len().min(other.states.len());
    assert!(len > places(WRAP + 300), "{len}");
    assert!(one.states[..len] == other.states[..len]);
    assert!(one.logs[..len] == other.logs[..len]);
    for player in [one, other] {
        let own = player.own[len - 60..len].iter();
        let confirmed = own.filter(|(_, origin)| *origin == Origin::Confirmed);
        assert!(confirmed.count() > 50);
    }
    let is_bad = |event: &&ServerEvent| {
        matches!(
            event,
            ServerEvent::Desync { .. } | ServerEvent::Silent { .. }
        )
    };
    assert_eq!(world.server_events.iter().find(is_bad), None);
    let stats = world.server.stats();
    assert_eq!((stats.dropped_malformed, stats.hashes_refused), (0, 0));
}

#[test]
fn ls_1_an_outage_and_a_new_session_across_tick_65_536_change_nothing() {
    let mut config = config(2);
    config.forward_inputs = true;
    let mut world = world(config);
    // One player receives nothing from before the wrap until after it, and recovers from turns
    // alone.
    let from = world.now + Duration::from_secs(4);
    world
        .outages
        .push((0, from, from + Duration::from_millis(1_500)));
    while world.server.ticks_closed() < WRAP - 20 {
        assert!(world.now < END);
        world.step();
    }
    // The other player loses its session at several ticks around the wrap.
    for _ in 0..5 {
        world.reconnect(1);
        world.run_for(Duration::from_millis(150));
    }
    world.run_for(Duration::from_secs(6));
    assert_went_on(&world);
}

#[test]
fn ls_14_a_player_that_rejoins_at_tick_65_536_catches_up() {
    let mut config = config(2);
    config.input_delay = InputDelay::adaptive(2, 20).unwrap();
    let mut world = world(config);
    // Leaves 300 ticks before the wrap, and returns with its state shortly after it.
    world.server.leave(world.now, peer(1));
    world.players[1].is_paused = true;
    while world.server.ticks_closed() < WRAP + 10 {
        assert!(world.now < END);
        world.step();
    }
    world.players[1].is_paused = false;
    world.server.join(world.now, peer(1), seat(1)).unwrap();
    world.players[1].machine.reconnect(world.now, PeerId(9_999));
    world.run_for(Duration::from_secs(8));
    assert_went_on(&world);
}

#[test]
fn ls_1_relays_and_late_spectators_see_tick_65_536_unchanged() {
    let mut config = config(1);
    config.spectator_delay = 30;
    let mut tree = Tree::new(Seed::from_number(2), config, quiet());
    let run = |tree: &mut Tree, ticks: u32| {
        while tree.server.ticks_closed() < ticks {
            assert!(tree.now < END);
            tree.step();
        }
    };
    run(&mut tree, NEAR - 1_100);
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let early = tree.watch(root);
    run(&mut tree, NEAR);
    tree.link = lossy();
    let node = tree.watch(SERVER);
    run(&mut tree, WRAP - 10);
    let back = tree.now + Duration::from_secs(1);
    tree.outages.push((root, tree.now, back));
    let late = tree.watch(root);
    run(&mut tree, WRAP + 400);
    for node in [early, node, late] {
        tree.assert_saw(node, WRAP + 330);
    }
}

#[test]
fn ls_16_a_host_that_is_killed_at_tick_65_536_is_replaced() {
    let mut world = HostedWorld::new(Seed::from_number(5), &hosted(3, 0), quiet(), pad);
    let run_until = |world: &mut HostedWorld<u16>, tick: u32| {
        while world.players[1].states.len() < places(tick) {
            assert!(world.now < END);
            world.step();
        }
    };
    run_until(&mut world, NEAR);
    world
        .links
        .iter_mut()
        .flatten()
        .for_each(|link| *link = lossy());
    // One of the remaining players is cut off for a while first.
    run_until(&mut world, WRAP - 150);
    world.part(&[0], &[2], Duration::from_millis(800));
    run_until(&mut world, WRAP - 5);
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(5));
    world.assert_progress(&[1, 2]);
    let [(host, tick)] = world.players[1].hosts()[..] else {
        panic!("one takes over");
    };
    assert_eq!(host, Seat(1));
    assert!(tick.0.abs_diff(WRAP) < 20, "{tick}");
    assert!(world.players[1].states.len() > places(WRAP + 150));
    assert!(!world.players[1].has_desync());
}

/// A mesh of three passes the wrap with an outage between two peers, and loses the third peer
/// there.
fn mesh_across(config: &MeshConfig) {
    let mut world = MeshWorld::new(Seed::from_number(1), config, quiet(), pad);
    let run_until = |world: &mut MeshWorld<u16>, tick: u32| {
        while world.players[0].states.len() < places(tick) {
            assert!(world.now < END);
            world.step();
        }
    };
    run_until(&mut world, NEAR);
    world
        .links
        .iter_mut()
        .flatten()
        .for_each(|link| *link = lossy());
    run_until(&mut world, WRAP - 100);
    world.part(&[0], &[1], Duration::from_millis(700));
    run_until(&mut world, WRAP - 10);
    world.part(&[0, 1], &[2], Duration::from_mins(1));
    world.run_for(Duration::from_secs(8));
    assert_agreement(&all(&world));
    for player in &world.players[..2] {
        let [(seat, tick)] = player.left()[..] else {
            panic!("one leaves: {:?}", player.left());
        };
        assert_eq!(seat, Seat(2));
        assert!(tick.0.abs_diff(WRAP) < 30, "{tick}");
        assert!(player.states.len() > places(WRAP + 150));
        let is_bad = |event: &&MeshEvent| {
            matches!(
                event,
                MeshEvent::Desync { .. }
                    | MeshEvent::CommitViolation { .. }
                    | MeshEvent::Silent { .. }
            )
        };
        assert_eq!(player.events.iter().find(is_bad), None);
    }
}

#[test]
fn ls_1_a_mesh_passes_tick_65_536_and_loses_a_peer_there() {
    let mut config = mesh(3);
    config.window = 4;
    mesh_across(&config);
}

#[test]
fn mesh_commit_a_mesh_passes_tick_65_536_and_loses_a_peer_there() {
    let mut config = committing(3);
    config.window = 4;
    mesh_across(&config);
}
