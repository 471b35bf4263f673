//! The contract of machines, kept by nodes.

use core::cell::Cell;

use netsim::{ContractSubject, Limits, Reached, check_contract, test_site};
use relay_mesh::{Command, FrameStats, Leg, Node, Outcome, SocketId};
use wire::{Effect, Generator, Instant, Seed};

use crate::harness::{ENTRY, EXIT, RELAY, address, bare_nodes, mesh_address, server};
use crate::memo::{Known, Memo};

/// An entry, an exit and a relay; players and a server are played by the script.
#[derive(Default)]
struct Trio {
    /// Signatures of one seed's runs.
    known: Known,
    seed: Cell<Option<Seed>>,
}

const COUNT: usize = 3;

impl ContractSubject for Trio {
    type Machine = Node<Memo>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Node<Memo>> {
        if self.seed.replace(Some(seed)) != Some(seed) {
            self.known.clear();
        }
        bare_nodes(seed, now, |provider| Memo::new(provider, &self.known))
    }

    fn route(&self, sender: usize, destination: Leg) -> Option<(usize, Leg)> {
        let to = (0..COUNT).find(|index| mesh_address(*index) == destination.address)?;
        (destination.socket == SocketId::MESH).then(|| (to, Leg::mesh(mesh_address(sender))))
    }

    /// A player's datagram at the entry, a server's at the exit.
    fn poke(
        &self,
        index: usize,
        machine: &mut Node<Memo>,
        now: Instant,
        generator: &mut Generator,
    ) {
        let len = usize::try_from(generator.below(1_600)).unwrap();
        let mut datagram = vec![5; len];
        let drawn = SocketId(u32::try_from(1 + generator.below(3)).unwrap());
        let is_usual = generator.chance(800_000);
        let (socket, from) = match index {
            ENTRY => {
                let player = address(["203.0.113.9:5000", "203.0.113.9:5001"][len % 2]);
                (if is_usual { SocketId(1) } else { drawn }, player)
            }
            EXIT => (drawn, server()),
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
        frame[0] = 0x80 + u8::try_from(generator.below(3)).unwrap();
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
            Some(Command::Measure { .. }) => {
                let millis = generator.below(3_000);
                return Some(Outcome::Measured(core::time::Duration::from_millis(millis)));
            }
            None => 3,
        };
        Some(Outcome::Opened(SocketId(u32::try_from(opened).unwrap())))
    }

    fn memory(&self, machine: &Node<Memo>) -> usize {
        machine.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(16 << 20);
        limits.steps = 100;
        limits.settle = core::time::Duration::from_secs(4);
        limits
    }

    fn observe(&self, machines: &[Node<Memo>], reached: &mut Reached) {
        let stats = |index: usize| (machines[index].stats(), machines[index].frame_stats());
        let (entry, entry_frames) = stats(ENTRY);
        let (exit, exit_frames) = stats(EXIT);
        let (_, relay_frames) = stats(RELAY);
        let frames = [entry_frames, exit_frames, relay_frames];
        let all = |count: fn(&FrameStats) -> u64| frames.iter().copied().map(count).sum::<u64>();
        let is_meshed = machines
            .iter()
            .all(|node| node.links().filter(|link| link.carries).count() == COUNT - 1);
        for (point, times) in [
            ("all linked", is_meshed.into()),
            ("player to server", exit.delivered),
            ("server to player", entry.delivered),
            ("relay passes on", relay_frames.sealed),
            ("flows move", entry.route_changes.saturating_sub(1)),
            ("too big", entry.too_big + exit.too_big),
            ("duplicate", entry.flow_duplicates + exit.flow_duplicates),
            ("stranger at an upstream socket", exit.strangers),
            ("stray completion", entry.stray_completions),
            ("truncated frame", all(|frames| frames.truncated)),
            ("unknown kind of frame", all(|frames| frames.unknown_kind)),
            ("bad trunk", all(|frames| frames.bad_trunk)),
            ("malformed frame", all(|frames| frames.malformed)),
            ("tag-only frame", all(|frames| frames.tag_only)),
            ("unknown label", all(|frames| frames.unknown_label)),
            ("wrong link", all(|frames| frames.wrong_link)),
            ("replayed frame", all(|frames| frames.replayed)),
            ("wrong tag", all(|frames| frames.wrong_tag)),
        ] {
            reached.note(point, times);
        }
    }
}

#[test]
fn sim_contract() {
    check_contract(&test_site!(), 200, &Trio::default());
}
