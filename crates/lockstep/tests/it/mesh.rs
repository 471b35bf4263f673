//! Equal peers play the same game, whatever the network does.

use core::time::Duration;

use lockstep::{MeshClose, MeshConfig, MeshEvent, Origin, Phase, Tick};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Instant, Seat, Seed};

use crate::mesh_world::{MeshPlayer, MeshWorld, mesh};
use crate::world::{Link, pad, stick};

/// All turns that any two of these returned are the same turns, and led to the same states.
fn assert_agreement<I: Clone + PartialEq + core::fmt::Debug>(players: &[&MeshPlayer<I>]) {
    let first = players.iter().max_by_key(|player| player.states.len()).unwrap();
    for player in players {
        let len = player.states.len();
        assert!(player.states == first.states[..len], "one history");
        assert!(player.turns == first.turns[..len]);
    }
}

fn all<I>(world: &MeshWorld<I>) -> Vec<&MeshPlayer<I>> {
    world.players.iter().collect()
}

fn clean(latency: u64) -> Link {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(latency);
    link
}

#[test]
fn mesh_of_eight_agrees_at_5_percent_loss() {
    let mut world = MeshWorld::new(Seed::from_number(9), &mesh(8), Link::lossy(5), pad);
    world.run(2_000);
    assert_agreement(&all(&world));
    for player in &world.players {
        assert!(player.states.len() >= 2_000, "{}", player.states.len());
        assert_eq!(player.closed(), None);
        eprintln!("{:?} {:?}", player.machine.stats(), player.events);
    }
    eprintln!("{:?}", world.now);
}
