//! A server, its players, and a tree of relays and spectators, over lossy links, in virtual time.

use core::time::Duration;
use std::collections::BTreeMap;

use lockstep::bundle::Shape;
use lockstep::message::{Down, decode_down};
use lockstep::{
    ClientConfig, ClientEvent, ClientPeer, Config, Input, MatchServer, PeerId, ServerEvent,
    SpectatorRelay, SpectatorRelayConfig, SpectatorRelayEvent, StateHasher, Tick, Turn,
};
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::world::{Link, MATCH, pad};

/// Every node's id for its parent.
pub(crate) const UP: PeerId = PeerId(99_999);

/// A machine, and its parent.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) role: Role,
    pub(crate) parent: usize,
    /// If set, it neither receives datagrams nor handles timeouts.
    pub(crate) is_paused: bool,
}

#[derive(Debug)]
pub(crate) enum Role {
    Client(Box<Viewer>),
    Relay(Box<SpectatorRelay>, Vec<SpectatorRelayEvent>),
}

/// A client with its game.
#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) machine: ClientPeer<u16>,
    pub(crate) state: u64,
    /// State after each tick that it simulated.
    pub(crate) states: BTreeMap<u32, u64>,
    pub(crate) events: Vec<ClientEvent>,
    held: u16,
}

/// A match with spectators. Node 0 is a placeholder for the server.
pub(crate) struct Tree {
    pub(crate) now: Instant,
    pub(crate) server: MatchServer<u16>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) events: Vec<ServerEvent>,
    /// The server's own state after each tick.
    pub(crate) truth: Vec<u64>,
    pub(crate) link: Link,
    /// Periods in which a node's uplink drops everything.
    pub(crate) outages: Vec<(usize, Instant, Instant)>,
    /// Size of a snapshot without the state, bytes.
    pub(crate) padding_len: usize,
    /// Bytes sent by each node; the server is 0.
    pub(crate) sent_bytes: BTreeMap<usize, usize>,
    /// A relay that forges the inputs that it forwards.
    pub(crate) byzantine: Option<usize>,
    /// Whether the server offers no snapshots.
    pub(crate) withholds_snapshots: bool,
    state: u64,
    owes_snapshot: bool,
    delay: u32,
    shape: Shape,
    network: Generator,
    seeds: Generator,
    in_flight: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    count: u64,
    next_frame: Instant,
}

/// The server's node number.
pub(crate) const SERVER: usize = 0;

impl Tree {
    pub(crate) fn new(seed: Seed, config: Config, link: Link) -> Self {
        let mut seeds = seed.generator(7);
        let now = Instant::from_millis(1_000);
        let (seats, delay) = (config.seats, config.spectator_delay.into());
        let server = MatchServer::new(config, MATCH, seeds.seed(), now).unwrap();
        let mut tree = Self {
            now,
            server,
            nodes: Vec::new(),
            events: Vec::new(),
            truth: Vec::new(),
            link,
            outages: Vec::new(),
            padding_len: 5_000,
            sent_bytes: BTreeMap::new(),
            byzantine: None,
            withholds_snapshots: false,
            state: 0,
            owes_snapshot: false,
            delay,
            shape: Shape {
                seats,
                width: u16::WIDTH,
            },
            network: seed.generator(8),
            seeds,
            in_flight: BTreeMap::new(),
            count: 0,
            next_frame: now,
        };
        // The server's placeholder.
        tree.add_client(SERVER);
        tree.nodes[SERVER].is_paused = true;
        for index in 0..seats {
            let node = tree.add_client(SERVER);
            tree.server.join(now, peer(node), Seat(index)).unwrap();
        }
        tree
    }

    /// Adds a spectator below `parent`.
    pub(crate) fn watch(&mut self, parent: usize) -> usize {
        let node = self.add_client(parent);
        self.let_watch(parent, node);
        node
    }

    /// Adds a spectator relay below `parent`.
    pub(crate) fn relay(&mut self, parent: usize, config: SpectatorRelayConfig) -> usize {
        let relay = SpectatorRelay::new(config, UP, self.seeds.seed(), self.now);
        let node = self.add(Role::Relay(Box::new(relay), Vec::new()), parent);
        self.let_watch(parent, node);
        node
    }

    pub(crate) fn let_watch(&mut self, parent: usize, node: usize) {
        let (now, peer) = (self.now, peer(node));
        let is_relay = matches!(self.nodes[node].role, Role::Relay(..));
        if parent == SERVER && is_relay {
            self.server.watch_as_relay(now, peer).unwrap();
        } else if parent == SERVER {
            self.server.watch(now, peer).unwrap();
        } else if is_relay {
            self.as_relay(parent).watch_as_relay(now, peer).unwrap();
        } else {
            self.as_relay(parent).watch(now, peer).unwrap();
        }
    }

    fn add_client(&mut self, parent: usize) -> usize {
        let config = ClientConfig::default();
        let machine = ClientPeer::new(config, UP, self.seeds.seed(), self.now);
        let viewer = Viewer {
            machine,
            state: 0,
            states: BTreeMap::new(),
            events: Vec::new(),
            held: 0,
        };
        self.add(Role::Client(Box::new(viewer)), parent)
    }

    fn add(&mut self, role: Role, parent: usize) -> usize {
        self.nodes.push(Node {
            role,
            parent,
            is_paused: false,
        });
        self.nodes.len() - 1
    }

    pub(crate) fn viewer(&mut self, node: usize) -> &mut Viewer {
        match &mut self.nodes[node].role {
            Role::Client(viewer) => viewer,
            Role::Relay(..) => panic!("{node} is a relay"),
        }
    }

    pub(crate) fn as_relay(&mut self, node: usize) -> &mut SpectatorRelay {
        match &mut self.nodes[node].role {
            Role::Client(_) => panic!("{node} is no relay"),
            Role::Relay(relay, _) => relay,
        }
    }

    pub(crate) fn run(&mut self, ticks: u32) {
        while self.server.ticks_closed() < ticks {
            self.step();
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Every client saw the server's states without a gap, from its first tick up to `lag` ticks
    /// before the newest shown one.
    pub(crate) fn assert_all_saw(&mut self, lag: u32) {
        let closed = self.server.ticks_closed();
        for node in 1..self.nodes.len() {
            if matches!(self.nodes[node].role, Role::Client(_)) && !self.nodes[node].is_paused {
                let least = closed.saturating_sub(lag);
                self.assert_saw(node, least);
            }
        }
    }

    /// The client of `node` saw the server's states without a gap, at least all before `end`.
    pub(crate) fn assert_saw(&mut self, node: usize, end: u32) {
        let truth = self.truth.clone();
        let viewer = self.viewer(node);
        let (first, _) = viewer.states.first_key_value().expect("it saw something");
        let (last, _) = viewer.states.last_key_value().unwrap();
        let count = usize::try_from(last - first + 1).unwrap();
        assert_eq!(viewer.states.len(), count, "{node} has no gap");
        assert!(*last + 1 >= end, "{node} saw {last} of {end}");
        for (tick, state) in &viewer.states {
            let tick = usize::try_from(*tick).unwrap();
            assert_eq!(*state, truth[tick], "{node} at {tick}");
        }
    }

    pub(crate) fn step(&mut self) {
        let timers = self.nodes.iter().filter(|node| !node.is_paused);
        let timers = timers.filter_map(|node| match &node.role {
            Role::Client(viewer) => viewer.machine.poll_timeout(),
            Role::Relay(relay, _) => relay.poll_timeout(),
        });
        let timers = timers.chain(self.server.poll_timeout());
        let arrivals = self.in_flight.keys().next().map(|(at, _)| *at);
        let next = timers.chain(arrivals).chain([self.next_frame]).min();
        self.now = next.unwrap().max(self.now);
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, mut datagram) = entry.remove();
            self.arrive(from, to, &mut datagram);
        }
        if self.now >= self.next_frame {
            self.next_frame = self.now + Duration::from_nanos(16_666_667);
            self.read_pads();
        }
        self.run_timers();
        self.drain();
        self.play();
    }

    fn arrive(&mut self, from: usize, to: usize, datagram: &mut [u8]) {
        let now = self.now;
        if to == SERVER {
            let arrival = Arrival::from(peer(from));
            self.server.handle_datagram(now, arrival, datagram);
            return;
        }
        let node = &mut self.nodes[to];
        let source = if node.parent == from { UP } else { peer(from) };
        match &mut node.role {
            _ if node.is_paused => {}
            Role::Client(viewer) => {
                let arrival = Arrival::from(source);
                viewer.machine.handle_datagram(now, arrival, datagram);
            }
            Role::Relay(relay, _) => relay.handle_datagram(now, Arrival::from(source), datagram),
        }
    }

    fn read_pads(&mut self) {
        for node in &mut self.nodes {
            if let Role::Client(viewer) = &mut node.role
                && !node.is_paused
            {
                viewer.held = pad(&mut self.network, &viewer.held);
                let submitted = viewer.machine.submit(self.now, &viewer.held);
                let is_refused = submitted == Err(lockstep::SubmitError::Spectator);
                assert_eq!(is_refused, viewer.machine.is_spectator());
            }
        }
    }

    fn run_timers(&mut self) {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.server.poll_timeout()) {
            self.server.handle_timeout(now);
        }
        for node in self.nodes.iter_mut().filter(|node| !node.is_paused) {
            match &mut node.role {
                Role::Client(viewer) if is_due(viewer.machine.poll_timeout()) => {
                    viewer.machine.handle_timeout(now);
                }
                Role::Relay(relay, _) if is_due(relay.poll_timeout()) => relay.handle_timeout(now),
                Role::Client(_) | Role::Relay(..) => {}
            }
        }
    }

    fn drain(&mut self) {
        let (now, mut buf) = (self.now, Vec::new());
        while let Some(transmit) = self.server.poll_transmit(now, &mut buf) {
            let to = usize::try_from(transmit.destination.0).unwrap();
            self.assert_delayed(to, &buf);
            self.send(SERVER, to, &buf);
            buf.clear();
        }
        while let Some(event) = self.server.poll_event() {
            self.owes_snapshot |= event == ServerEvent::SnapshotWanted;
            self.events.push(event);
        }
        for index in 0..self.nodes.len() {
            loop {
                let node = &mut self.nodes[index];
                let sent = match &mut node.role {
                    _ if node.is_paused => None,
                    Role::Client(viewer) => viewer.machine.poll_transmit(now, &mut buf),
                    Role::Relay(relay, _) => relay.poll_transmit(now, &mut buf),
                };
                let Some(sent) = sent else {
                    break;
                };
                let to = if sent.destination == UP {
                    node.parent
                } else {
                    usize::try_from(sent.destination.0).unwrap()
                };
                if self.byzantine == Some(index) && self.nodes[to].parent == index {
                    forge(&mut buf, self.shape);
                }
                self.send(index, to, &buf);
                buf.clear();
            }
            match &mut self.nodes[index].role {
                Role::Client(viewer) => {
                    viewer
                        .events
                        .extend(core::iter::from_fn(|| viewer.machine.poll_event()));
                }
                Role::Relay(relay, events) => {
                    events.extend(core::iter::from_fn(|| relay.poll_event()));
                }
            }
        }
    }

    /// No spectator is sent a tick younger than the delay. After the end, that depends on time.
    fn assert_delayed(&self, to: usize, datagram: &[u8]) {
        let is_over = self.server.phase() == lockstep::Phase::Closed;
        let is_player = to <= usize::from(self.shape.seats) || is_over;
        let Ok(Down::Turns(turns)) = decode_down(datagram, Some(self.shape)) else {
            return;
        };
        let closed = Tick(self.server.ticks_closed());
        let first = closed.widen_near(turns.first_low).unwrap();
        let count = u32::try_from(turns.bundles.iter().count()).unwrap();
        if !is_player && count > 0 {
            assert!(first.plus(count + self.delay) <= closed, "too young");
        }
    }

    fn send(&mut self, from: usize, to: usize, datagram: &[u8]) {
        assert!(datagram.len() <= 1_100);
        *self.sent_bytes.entry(from).or_default() += datagram.len();
        let now = self.now;
        let lower = from.max(to);
        let is_out = |(node, begin, end): &(usize, Instant, Instant)| {
            (*node == lower || *node == from.min(to)) && *begin <= now && now < *end
        };
        let is_lost = self.network.chance(self.link.loss) || self.outages.iter().any(is_out);
        let copies = 1 + u32::from(self.network.chance(self.link.duplicate));
        let jitter = u64::try_from(self.link.jitter.as_nanos()).unwrap();
        for _ in 0..copies {
            let delay = self.link.latency + Duration::from_nanos(self.network.below(jitter.max(1)));
            self.count += 1;
            if !is_lost {
                let at = (now + delay, self.count);
                self.in_flight.insert(at, (from, to, datagram.to_vec()));
            }
        }
    }

    /// Runs all games, the server's own included.
    fn play(&mut self) {
        let now = self.now;
        while let Some(turn) = self.server.poll_turn() {
            let tick = turn.tick();
            self.state = step(self.state, &turn);
            self.truth.push(self.state);
            self.server.report(tick, self.state).unwrap();
        }
        if !self.truth.is_empty()
            && !self.withholds_snapshots
            && core::mem::take(&mut self.owes_snapshot)
        {
            let mut bytes = self.state.to_be_bytes().to_vec();
            bytes.resize(self.padding_len + 8, 0x5a);
            self.server.offer_snapshot(now, &bytes).unwrap();
        }
        for node in self.nodes.iter_mut().filter(|node| !node.is_paused) {
            let Role::Client(viewer) = &mut node.role else {
                continue;
            };
            if let Some(bytes) = viewer.machine.take_snapshot() {
                assert_eq!(bytes.len(), self.padding_len + 8);
                viewer.state = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                viewer.states.clear();
            }
            while let Some(turn) = viewer.machine.poll_turn(now) {
                let tick = turn.tick();
                viewer.state = step(viewer.state, &turn);
                viewer.states.insert(tick.0, viewer.state);
                viewer.machine.report(tick, viewer.state).unwrap();
            }
        }
    }
}

/// Game state; it depends on all inputs and on their order.
fn step(state: u64, turn: &Turn<'_, u16>) -> u64 {
    let mut hasher = StateHasher::new(MATCH);
    hasher.u64(state);
    for (seat, _, origin) in turn.inputs() {
        hasher.u8(origin.code());
        hasher.bytes(turn.bits(seat));
    }
    hasher.finish()
}

/// Flips a bit so that a tick's contents change but the datagram still decodes.
fn forge(datagram: &mut [u8], shape: Shape) {
    let is_sound = |datagram: &[u8]| matches!(decode_down(datagram, Some(shape)), Ok(Down::Turns(turns)) if turns.bundles.iter().count() > 0);
    if !is_sound(datagram) {
        return;
    }
    for at in (6..datagram.len()).rev() {
        for bit in 0..8 {
            datagram[at] ^= 1 << bit;
            if is_sound(datagram) {
                return;
            }
            datagram[at] ^= 1 << bit;
        }
    }
}

/// A parent's id for its child `node`.
pub(crate) fn peer(node: usize) -> PeerId {
    PeerId(u32::try_from(node).unwrap())
}
