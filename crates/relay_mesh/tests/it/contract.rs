//! The machine contract, checked on nodes and their forwarders.

use core::cell::Cell;

use netsim::provider::SimProvider;
use netsim::{ContractSubject, Limits, Reached, check_contract, test_site};
use relay_mesh::hop::ShardId;
use relay_mesh::{Command, Event, Forwarder, FrameStats, Node, Outcome, PeerAddr, SocketId};
use wire::{Arrival, CommandId, Effect, Generator, Instant, Machine, Seed, Transmit, UnixTime};

use crate::harness::{ENTRY, EXIT, RELAY, address, bare_nodes, mesh_address, server};
use crate::memo::{Known, Memo};

/// A node with its forwarders, and a kernel that sometimes delivers a datagram to the wrong socket.
struct Sharded {
    node: Node<Memo>,
    forwarders: Vec<Forwarder<Memo>>,
    /// Datagrams that arrived at the wrong socket.
    strays: u64,
}

impl Sharded {
    fn new(node: Node<Memo>, provider: impl Fn(u8) -> Memo) -> Self {
        let forwarders = (1..).map_while(|place| node.forwarder(place, provider(place)));
        Self {
            forwarders: forwarders.collect(),
            node,
            strays: 0,
        }
    }

    /// Frames forwarded by the forwarders.
    fn passed(&self) -> u64 {
        let stats = self.forwarders.iter().map(Forwarder::frame_stats);
        stats.map(|stats| stats.sealed).sum()
    }

    fn hand_back(&mut self, now: Instant) {
        for forwarder in &mut self.forwarders {
            while let Some(mut stray) = forwarder.poll_event() {
                self.strays += 1;
                let arrival = stray.arrival;
                self.node.handle_datagram(now, arrival, &mut stray.datagram);
            }
        }
    }
}

impl Machine for Sharded {
    type Peer = PeerAddr;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerAddr>, datagram: &mut [u8]) {
        let own = usize::from(ShardId::of_datagram(datagram).place());
        let is_mistaken = datagram.len() % 16 == 3;
        let place = (own + usize::from(is_mistaken)) % (self.forwarders.len() + 1);
        let place = place.checked_sub(1);
        let place = place.filter(|_| arrival.peer.socket == SocketId::MESH);
        match place.and_then(|place| self.forwarders.get_mut(place)) {
            Some(forwarder) => forwarder.handle_datagram(now, arrival, datagram),
            None => self.node.handle_datagram(now, arrival, datagram),
        }
        self.hand_back(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.node.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.node.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        let mut forwarders = self.forwarders.iter_mut();
        forwarders
            .find_map(|forwarder| forwarder.poll_transmit(now, buf))
            .or_else(|| self.node.poll_transmit(now, buf))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.node.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }
}

/// An entry, an exit and a relay. The script plays the players and the server.
#[derive(Default)]
struct Trio {
    /// Signatures shared by the runs of one seed.
    known: Known,
    seed: Cell<Option<Seed>>,
}

const COUNT: usize = 3;

impl ContractSubject for Trio {
    type Machine = Sharded;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Sharded> {
        if self.seed.replace(Some(seed)) != Some(seed) {
            self.known.clear();
        }
        let provider = |provider| Memo::new(provider, &self.known);
        let nodes = bare_nodes(seed, now, |_, config, _| config.shards = 3, provider);
        let provider = |_| Memo::new(SimProvider::new(seed), &self.known);
        nodes
            .into_iter()
            .map(|node| Sharded::new(node, provider))
            .collect()
    }

    fn route(&self, sender: usize, destination: PeerAddr) -> Option<(usize, PeerAddr)> {
        let to = (0..COUNT).find(|index| mesh_address(*index) == destination.address)?;
        (destination.socket == SocketId::MESH).then(|| (to, PeerAddr::mesh(mesh_address(sender))))
    }

    /// A player's datagram at the entry, or a server's at the exit.
    fn poke(&self, index: usize, machine: &mut Sharded, now: Instant, generator: &mut Generator) {
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
        let peer_addr = PeerAddr {
            socket,
            address: from,
        };
        machine.handle_datagram(now, peer_addr.into(), &mut datagram);
    }

    fn unknown_peer(&self, index: usize, generator: &mut Generator) -> PeerAddr {
        let drawn = usize::try_from(generator.below(5)).unwrap();
        match drawn {
            0..COUNT if drawn != index => PeerAddr::mesh(mesh_address(drawn)),
            _ => PeerAddr::mesh(address("198.18.0.1:1")),
        }
    }

    /// Hop frames with low label slots.
    fn hostile(&self, _index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let len = 48 + usize::try_from(generator.below(100)).unwrap();
        let mut frame = vec![0; len];
        generator.fill(&mut frame[16..]);
        frame[0] = 0x80 + u8::try_from(generator.below(3)).unwrap();
        frame[1] = u8::try_from(generator.below(8)).unwrap();
        frame[4] = u8::try_from(generator.below(4)).unwrap() << 5;
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
        // The contract's driver does not number sockets: names beyond the first few stand for new
        // ones.
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

    fn memory(&self, machine: &Sharded) -> usize {
        machine.node.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(16 << 20);
        limits.steps = 100;
        limits.settle = core::time::Duration::from_secs(4);
        limits
    }

    fn observe(&self, machines: &[Sharded], reached: &mut Reached) {
        let stats = |index: usize| {
            (
                machines[index].node.stats(),
                machines[index].node.frame_stats(),
            )
        };
        let (entry, entry_frames) = stats(ENTRY);
        let (exit, exit_frames) = stats(EXIT);
        let (_, relay_frames) = stats(RELAY);
        let frames = [entry_frames, exit_frames, relay_frames];
        let all = |count: fn(&FrameStats) -> u64| frames.iter().map(count).sum::<u64>();
        let is_meshed = machines
            .iter()
            .all(|machine| machine.node.links().filter(|link| link.carries).count() == COUNT - 1);
        for (point, times) in [
            ("all linked", is_meshed.into()),
            ("player to server", exit.delivered),
            ("server to player", entry.delivered),
            ("relay passes on", relay_frames.sealed),
            ("forwarder passes on", machines[RELAY].passed()),
            ("stray", machines.iter().map(|machine| machine.strays).sum()),
            ("flows move", entry.route_changes.saturating_sub(1)),
            ("too big", entry.too_big + exit.too_big),
            ("duplicate", entry.flow_duplicates + exit.flow_duplicates),
            ("unknown peer at an upstream socket", exit.strangers),
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
