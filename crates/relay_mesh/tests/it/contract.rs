//! The contract of machines, kept by nodes.

use netsim::provider::SimProvider;
use netsim::{ContractSubject, Limits, check_contract, test_site};
use relay_mesh::{Command, Leg, Node, Outcome, SocketId};
use wire::{Effect, Generator, Instant, Seed};

use crate::harness::{ENTRY, EXIT, Role, address, bare_node, mesh_address, server};

/// An entry, an exit and a relay; players and a server are played by the script.
struct Trio;

const COUNT: usize = 3;

impl ContractSubject for Trio {
    type Machine = Node<SimProvider>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Node<SimProvider>> {
        (0..COUNT)
            .map(|index| bare_node(seed, index, Role::of(index), now))
            .collect()
    }

    fn route(&self, sender: usize, destination: Leg) -> Option<(usize, Leg)> {
        let to = (0..COUNT).find(|index| mesh_address(*index) == destination.address)?;
        (destination.socket == SocketId::MESH).then(|| (to, Leg::mesh(mesh_address(sender))))
    }

    /// A player's datagram at the entry, a server's at the exit.
    fn poke(
        &self,
        index: usize,
        machine: &mut Node<SimProvider>,
        now: Instant,
        generator: &mut Generator,
    ) {
        let len = usize::try_from(generator.below(1_600)).unwrap();
        let mut datagram = vec![5; len];
        let socket = SocketId(u32::try_from(1 + generator.below(3)).unwrap());
        let from = match index {
            ENTRY => address(["203.0.113.9:5000", "203.0.113.9:5001"][len % 2]),
            EXIT => server(),
            _ => return,
        };
        let leg = Leg {
            socket,
            address: from,
        };
        machine.handle_datagram(now, leg.into(), &mut datagram);
    }

    fn stranger(&self, index: usize, generator: &mut Generator) -> Leg {
        let drawn = usize::try_from(generator.below(5)).unwrap();
        match drawn {
            0..COUNT if drawn != index => Leg::mesh(mesh_address(drawn)),
            _ => Leg::mesh(address("198.18.0.1:1")),
        }
    }

    /// Hop frames that name low labels.
    fn hostile(&self, _index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let len = 48 + usize::try_from(generator.below(100)).unwrap();
        let mut frame = vec![0; len];
        generator.fill(&mut frame[16..]);
        frame[0] = 0x81;
        frame[1] = u8::try_from(generator.below(8)).unwrap();
        frame[7] = u8::try_from(generator.below(4)).unwrap();
        frame[15] = u8::try_from(generator.below(256)).unwrap();
        Some(frame)
    }

    fn outcome(
        &self,
        command: Option<&Command>,
        generator: &mut Generator,
    ) -> Option<<Command as Effect>::Outcome> {
        if generator.chance(100_000) {
            return Some(Outcome::Failed);
        }
        // The contract's driver cannot count; names beyond the first few stand for new sockets.
        let opened = match command {
            Some(Command::Close { .. }) => return Some(Outcome::Closed),
            Some(Command::Listen { .. }) => 1,
            Some(Command::Open { .. }) => 2 + generator.below(2),
            None => 3,
        };
        Some(Outcome::Opened(SocketId(u32::try_from(opened).unwrap())))
    }

    fn memory(&self, machine: &Node<SimProvider>) -> usize {
        machine.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(16 << 20);
        limits.steps = 40;
        limits.settle = core::time::Duration::from_secs(4);
        limits
    }
}

#[test]
fn sim_contract() {
    check_contract(&test_site!(), 6, &Trio);
}
