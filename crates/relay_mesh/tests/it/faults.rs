//! A sequence of random faults in virtual time, like `cargo xtask soak mesh` for processes.

use core::time::Duration;

use crypto::Secret32;
use netsim::{Chance, Loss, for_each_seed, test_site};
use wire::{Generator, Instant};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, link, ms, shape};
use crate::player::Player;

/// A fault of a node, with its duration in ms.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Stop(usize, u64),
    Kill(usize, u64),
    /// Nothing from the first node arrives at the second.
    OneWayLoss(usize, usize, u64),
}

impl Fault {
    fn draw(generator: &mut Generator) -> Self {
        let mut below = |count: u64| generator.below(count);
        let (kind, node, step) = (below(3), below(NODES), 1 + below(NODES - 1));
        let [node, other] =
            [node, (node + step) % NODES].map(|index| usize::try_from(index).unwrap());
        match kind {
            0 => Self::Stop(node, 1_000 + below(14_000)),
            1 => Self::Kill(node, 500 + below(7_500)),
            _ => Self::OneWayLoss(node, other, 1_000 + below(11_000)),
        }
    }

    /// Runs the fault to its end. `life` numbers the restarts.
    fn happen(self, mesh: &mut Mesh, life: u64) {
        match self {
            Self::Stop(node, span) => {
                let handle = mesh.nodes[node];
                mesh.world.stall(handle, ms(span));
                mesh.run(span);
            }
            Self::Kill(node, span) => {
                mesh.kill(node);
                mesh.run(span);
                mesh.restart(node, life);
            }
            Self::OneWayLoss(from, to, span) => {
                let (from, to) = (mesh.nodes[from], mesh.nodes[to]);
                let whole = mesh.world.link(from, to);
                let lossy = link(10).with_loss(Loss::Bernoulli(Chance::percent(100)));
                mesh.world.set_link(from, to, lossy);
                mesh.run(span);
                mesh.world.set_link(from, to, whole);
            }
        }
    }
}

/// Time until the first answer to a datagram that the player sent after `end`.
fn service(player: &Player, end: Instant) -> Duration {
    let late = player
        .answers
        .iter()
        .rev()
        .take_while(|answer| answer.2 >= end);
    let served = late.filter(|answer| answer.1 >= end).map(|answer| answer.2);
    served
        .min()
        .map_or(Duration::MAX, |at| at.saturating_since(end))
}

/// An entry, an exit and three relays, each with a secret for stateless resets. A player is served
/// within 3 s of the end of every fault.
#[test]
fn sim_mesh_players_are_served_within_3_s_of_the_end_of_each_fault() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(
            seed,
            &shape(|index, config, _| {
                let number = u8::try_from(index).unwrap();
                config.reset_secret = Some(Secret32::new([number; 32]));
            }),
        );
        mesh.run(10_000);
        let mut generator = mesh.world.generator(77);
        for life in 1..=10 {
            let fault = Fault::draw(&mut generator);
            fault.happen(&mut mesh, life);
            let end = mesh.now();
            mesh.run(4_000);
            let took = service(mesh.player(), end);
            assert!(took <= ms(3_000), "{took:?} after {fault:?}, number {life}");
        }
        assert_eq!(mesh.player().faults, 0);
    });
}

const NODES: u64 = 5;
const _: () = assert!(ENTRY == 0 && EXIT == 1 && RELAY == 2);
