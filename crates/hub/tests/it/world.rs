//! A seeded world: one hub on a disk that breaks, nodes, and streams between them that delay, end
//! and lose what was under way. Virtual time; nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hub::id::LogId;
use hub::join_file::{Grant, NetworkSecret};
use hub::log::MemorySegments;
use hub::role::Role;
use hub::{
    Command, DialError, Hub, HubConfig, HubEvent, JoinFile, Node, NodeCommand, NodeConfig,
    NodeEvent, Outcome, Store, StoreConfig,
};
use wire::{
    CloseCause, CommandId, ConnectionId, Generator, InstanceId, Instant, NodeId, Outbound,
    PeerIdentity, Seed, StreamMachine, UnixTime,
};

/// Bytes under way in one direction of a stream.
const WINDOW: usize = 256 * 1_024;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) generator: Generator,
    pub(crate) hub_config: HubConfig,
    pub(crate) store_config: StoreConfig,
    pub(crate) hub: Option<HubProcess>,
    /// The hub's disk while the hub is down.
    disk: Option<MemorySegments>,
    pub(crate) nodes: Vec<Option<Node>>,
    instances: u64,
    streams: BTreeMap<ConnectionId, Stream>,
    agenda: BTreeMap<(Instant, u64), Action>,
    last_action: u64,
    last_connection: u32,
    /// Longest delay of one record, one way.
    pub(crate) delay_ms_max: u64,
    /// What the hub told, and what the nodes told.
    pub(crate) hub_events: Vec<HubEvent>,
    pub(crate) events: Vec<(usize, NodeEvent)>,
    pub(crate) hub_starts: u64,
    /// What the hub's wall clock reads at time zero when it starts, milliseconds.
    pub(crate) unix_ms: u64,
}

pub(crate) struct HubProcess {
    pub(crate) machine: Hub,
    pub(crate) store: Store<MemorySegments>,
    commands: Vec<(CommandId, Command)>,
    store_runs: bool,
    /// Which start of the hub this is.
    start: u64,
}

struct Stream {
    node: usize,
    /// When the last record of each direction arrives: to the hub, to the node.
    arrives: [Instant; 2],
}

/// Whether a process that ends takes the machine with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    Stays,
    Cut,
}

impl Power {
    pub(crate) fn draw(generator: &mut Generator) -> Self {
        if generator.chance(500_000) {
            Self::Cut
        } else {
            Self::Stays
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Hub,
    Node,
}

enum Action {
    Record(ConnectionId, End, Vec<u8>),
    Credit(ConnectionId, End, usize),
    Open(ConnectionId),
    Closed(ConnectionId, End),
    Dialled(usize, CommandId, Result<(), DialError>),
    StoreRun(u64),
    Completed(u64, CommandId, Outcome),
    HubUp,
}

pub(crate) fn node_id(index: usize) -> NodeId {
    NodeId([u8::try_from(index + 1).unwrap(); 32])
}

pub(crate) const HUB: NodeId = NodeId([0xaa; 32]);

pub(crate) fn join_file(nodes: usize) -> JoinFile {
    let mut file = JoinFile::new(NetworkSecret::new([9; 32]));
    file.grants
        .push(Grant::new(Role::Hub, HUB).with_address("hub.test:7400"));
    for index in 0..nodes {
        file.grants.push(Grant::new(Role::GameNode, node_id(index)));
        let service = "matchmaker".parse().unwrap();
        file.grants
            .push(Grant::new(Role::Matchmaker, node_id(index)).with_service(service));
    }
    file
}

impl World {
    pub(crate) fn new(seed: u64, nodes: usize) -> Self {
        let mut store_config = StoreConfig::default();
        store_config.segment_bytes = 0;
        let mut world = Self {
            now: Instant::from_millis(1),
            generator: Seed::from_number(seed).generator(7),
            hub_config: HubConfig::default(),
            store_config,
            hub: None,
            disk: Some(MemorySegments::new(1 << 30)),
            nodes: Vec::new(),
            instances: 0,
            streams: BTreeMap::new(),
            agenda: BTreeMap::new(),
            last_action: 0,
            last_connection: 0,
            delay_ms_max: 20,
            hub_events: Vec::new(),
            events: Vec::new(),
            hub_starts: 0,
            unix_ms: 1_700_000_000_000,
        };
        world.nodes.resize_with(nodes, || None);
        world
    }

    /// A world whose hub and nodes are up and joined.
    pub(crate) fn joined(seed: u64, nodes: usize) -> Self {
        let mut world = Self::new(seed, nodes);
        world.start_hub();
        for index in 0..nodes {
            world.start_node(index, NodeConfig::default());
        }
        world.run_ms(1_500);
        assert!(world.nodes.iter().flatten().all(Node::is_joined));
        world
    }

    pub(crate) fn start_hub(&mut self) {
        let disk = self.disk.take().expect("the hub is down");
        self.hub_starts += 1;
        let log = LogId(self.generator.next_u64());
        let store = match Store::open(disk, self.store_config, log) {
            Ok(store) => store,
            Err(mut failure) => {
                // It died while it recovered, and goes on from there.
                failure.files.power_cut(&mut self.generator);
                self.disk = Some(failure.files);
                self.after(Duration::from_millis(50), Action::HubUp);
                return;
            }
        };
        let file = join_file(self.nodes.len());
        let mut machine = Hub::new(self.hub_config.clone(), file, self.now);
        machine.set_unix_time(self.now, self.unix());
        self.hub = Some(HubProcess {
            machine,
            store,
            commands: Vec::new(),
            store_runs: false,
            start: self.hub_starts,
        });
        self.drain_hub();
    }

    /// What a wall clock reads now.
    pub(crate) fn unix(&self) -> UnixTime {
        UnixTime::from_millis(self.unix_ms + self.now.as_millis())
    }

    /// The hub's wall clock steps, or is read.
    pub(crate) fn read_clock(&mut self) {
        let (now, unix) = (self.now, self.unix());
        self.hub().machine.set_unix_time(now, unix);
        self.drain_hub();
    }

    /// Ends the hub's process, with or without the power, and starts it again after `down`.
    pub(crate) fn crash_hub(&mut self, power: Power, down: Duration) {
        let Some(process) = self.hub.take() else {
            return;
        };
        let mut disk = process.store.into_files();
        if power == Power::Cut {
            disk.power_cut(&mut self.generator);
        } else {
            disk.kill();
        }
        self.disk = Some(disk);
        let open: Vec<_> = self.streams.keys().copied().collect();
        for id in open {
            self.break_stream(id);
        }
        self.after(down, Action::HubUp);
    }

    /// The hub's machine burns down; another takes its place, with an empty disk.
    pub(crate) fn replace_disk(&mut self) {
        self.crash_hub(Power::Stays, Duration::from_millis(500));
        self.disk = Some(MemorySegments::new(1 << 30));
    }

    pub(crate) fn start_node(&mut self, index: usize, config: NodeConfig) {
        self.instances += 1;
        let node = Node::new(
            config,
            &join_file(self.nodes.len()),
            InstanceId(self.instances),
            Seed::from_number(self.instances),
            self.now,
        );
        self.nodes[index] = node;
    }

    pub(crate) fn crash_node(&mut self, index: usize) {
        self.nodes[index] = None;
        let own: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.node == index)
            .map(|(id, _)| *id)
            .collect();
        for id in own {
            self.break_stream(id);
        }
    }

    /// Resets one stream, with all that was under way on it.
    pub(crate) fn reset_some_stream(&mut self) {
        let count = self.streams.len() as u64;
        let at = usize::try_from(self.generator.below(count)).unwrap();
        if let Some(id) = self.streams.keys().nth(at).copied() {
            self.break_stream(id);
        }
    }

    pub(crate) fn node(&mut self, index: usize) -> &mut Node {
        self.nodes[index].as_mut().expect("the node is up")
    }

    pub(crate) fn hub(&mut self) -> &mut HubProcess {
        self.hub.as_mut().expect("the hub is up")
    }

    /// Takes what the nodes told.
    pub(crate) fn take_events(&mut self) -> Vec<(usize, NodeEvent)> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn run_ms(&mut self, millis: u64) {
        self.run_until(self.now + Duration::from_millis(millis));
    }

    pub(crate) fn run_until(&mut self, end: Instant) {
        self.drain_all();
        loop {
            let action = self.agenda.keys().next().map(|(at, _)| *at);
            let timers = self.nodes.iter().flatten().map(StreamMachine::poll_timeout);
            let hub = self.hub.as_ref().map(|hub| hub.machine.poll_timeout());
            let next = timers.chain(hub).flatten().chain(action).min();
            match next {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            while let Some(entry) = self.agenda.first_entry()
                && entry.key().0 <= self.now
            {
                let action = entry.remove();
                self.act(action);
            }
            self.run_timers();
        }
        self.now = end;
    }

    fn run_timers(&mut self) {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Some(hub) = &mut self.hub
            && is_due(hub.machine.poll_timeout())
        {
            hub.machine.handle_timeout(now);
            assert!(!is_due(hub.machine.poll_timeout()), "the hub spins");
            self.drain_hub();
        }
        for index in 0..self.nodes.len() {
            if let Some(node) = &mut self.nodes[index]
                && is_due(node.poll_timeout())
            {
                node.handle_timeout(now);
                assert!(!is_due(node.poll_timeout()), "node {index} spins");
                self.drain_node(index);
            }
        }
    }

    fn act(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Record(id, end, record) => self.arrive(id, end, &record),
            Action::Credit(id, end, bytes) => self.credit(id, end, bytes),
            Action::Open(id) => self.open(id),
            Action::Closed(id, end) => self.tell_closed(id, end),
            Action::Dialled(index, id, outcome) => {
                if let Some(node) = &mut self.nodes[index] {
                    node.handle_completed(now, id, outcome);
                    self.drain_node(index);
                }
            }
            Action::StoreRun(start) => self.run_store(start),
            Action::Completed(start, id, outcome) => {
                if let Some(hub) = self.hub.as_mut().filter(|hub| hub.start == start) {
                    hub.machine.handle_completed(now, id, outcome);
                    self.drain_hub();
                }
            }
            Action::HubUp => {
                if self.hub.is_none() && self.disk.is_some() {
                    self.start_hub();
                }
            }
        }
    }

    fn arrive(&mut self, id: ConnectionId, end: End, record: &[u8]) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        match end {
            End::Hub => {
                if let Some(hub) = &mut self.hub {
                    hub.machine.handle_frame(now, id, record);
                    self.drain_hub();
                }
            }
            End::Node => {
                if let Some(node) = &mut self.nodes[index] {
                    node.handle_frame(now, id, record);
                    self.drain_node(index);
                }
            }
        }
        let sender = match end {
            End::Hub => End::Node,
            End::Node => End::Hub,
        };
        let delay = self.delay();
        self.after(delay, Action::Credit(id, sender, record.len()));
    }

    fn credit(&mut self, id: ConnectionId, end: End, bytes: usize) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        if end == End::Hub {
            if let Some(hub) = &mut self.hub {
                hub.machine.handle_credit(now, id, bytes);
                self.drain_hub();
            }
        } else if let Some(node) = &mut self.nodes[index] {
            node.handle_credit(now, id, bytes);
            self.drain_node(index);
        }
    }

    fn open(&mut self, id: ConnectionId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        let (Some(hub), Some(node)) = (&mut self.hub, &mut self.nodes[index]) else {
            self.break_stream(id);
            return;
        };
        hub.machine
            .handle_opened(now, id, &PeerIdentity::Node(node_id(index)));
        hub.machine.handle_credit(now, id, WINDOW);
        node.handle_opened(now, id, &PeerIdentity::Node(HUB));
        node.handle_credit(now, id, WINDOW);
        self.drain_hub();
        self.drain_node(index);
    }

    /// Ends a stream at both ends; what is under way is lost.
    pub(crate) fn break_stream(&mut self, id: ConnectionId) {
        self.tell_closed(id, End::Hub);
        self.tell_closed(id, End::Node);
        self.streams.remove(&id);
    }

    fn tell_closed(&mut self, id: ConnectionId, end: End) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        if end == End::Hub {
            if let Some(hub) = &mut self.hub {
                hub.machine.handle_closed(now, id, CloseCause::Failed);
                self.drain_hub();
            }
        } else if let Some(node) = &mut self.nodes[index] {
            node.handle_closed(now, id, CloseCause::Failed);
            self.drain_node(index);
        }
    }

    fn run_store(&mut self, start: u64) {
        let Some(hub) = self.hub.as_mut().filter(|hub| hub.start == start) else {
            return;
        };
        hub.store_runs = false;
        let commands = std::mem::take(&mut hub.commands);
        let mut outcomes = Vec::new();
        hub.store.execute(commands, &mut outcomes);
        while hub.store.tidy() {}
        if hub.store.files_mut().is_stopped() {
            // The process died in the middle of it.
            let power = Power::draw(&mut self.generator);
            self.crash_hub(power, Duration::from_millis(200));
            return;
        }
        for (id, outcome) in outcomes {
            let delay = Duration::from_micros(self.generator.below(2_000));
            self.after(delay, Action::Completed(start, id, outcome));
        }
    }

    pub(crate) fn drain_all(&mut self) {
        self.drain_hub();
        for index in 0..self.nodes.len() {
            self.drain_node(index);
        }
    }

    fn drain_hub(&mut self) {
        let Some(mut hub) = self.hub.take() else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(outbound) = hub.machine.poll_outbound(self.now, &mut buf) {
            let record = std::mem::take(&mut buf);
            self.transmit(outbound, End::Node, record);
        }
        while let Some(command) = hub.machine.poll_command() {
            hub.commands.push(command);
        }
        if !hub.commands.is_empty() && !hub.store_runs {
            hub.store_runs = true;
            let delay = Duration::from_micros(self.generator.below(3_000));
            self.after(delay, Action::StoreRun(hub.start));
        }
        let mut is_failed = false;
        while let Some(event) = hub.machine.poll_event() {
            is_failed |= event == HubEvent::StoreFailed;
            self.hub_events.push(event);
        }
        self.hub = Some(hub);
        if is_failed {
            self.crash_hub(Power::Stays, Duration::from_millis(300));
        }
    }

    fn drain_node(&mut self, index: usize) {
        let Some(mut node) = self.nodes[index].take() else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(outbound) = node.poll_outbound(self.now, &mut buf) {
            let record = std::mem::take(&mut buf);
            self.transmit(outbound, End::Hub, record);
        }
        while let Some((id, NodeCommand::Dial { hub, .. })) = node.poll_command() {
            assert_eq!(hub, HUB);
            self.dial(index, id);
        }
        while let Some(event) = node.poll_event() {
            self.events.push((index, event));
        }
        self.nodes[index] = Some(node);
    }

    fn dial(&mut self, index: usize, command: CommandId) {
        let delay = self.delay();
        let reached = self.hub.is_some();
        let outcome = if reached { Ok(()) } else { Err(DialError) };
        if reached {
            self.last_connection += 1;
            let id = ConnectionId(self.last_connection);
            let stream = Stream {
                node: index,
                arrives: [self.now; 2],
            };
            self.streams.insert(id, stream);
            self.after(delay, Action::Open(id));
        }
        self.after(delay, Action::Dialled(index, command, outcome));
    }

    fn transmit(&mut self, outbound: Outbound, to: End, record: Vec<u8>) {
        let id = outbound.connection;
        let delay = self.delay();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        // A stream keeps order.
        let last = &mut stream.arrives[usize::from(to == End::Node)];
        let at = (self.now + delay).max(*last);
        *last = at;
        if !record.is_empty() {
            self.at(at, Action::Record(id, to, record));
        }
        if outbound.close {
            self.at(at, Action::Closed(id, to));
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.generator.below(self.delay_ms_max * 1_000 + 1))
    }

    fn after(&mut self, delay: Duration, action: Action) {
        self.at(self.now + delay, action);
    }

    fn at(&mut self, at: Instant, action: Action) {
        self.last_action += 1;
        self.agenda.insert((at, self.last_action), action);
    }
}

/// Seeds of a simulation: one that `SEED` names, or as many as `SEEDS` says.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(default),
    }
}

pub(crate) fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// All of `values` once.
pub(crate) fn set<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    values.into_iter().collect()
}
