//! A seeded world in virtual time: one hub on a failing disk, nodes, and streams between them that
//! delay, close and lose data in flight.

mod process;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hub::join_file::{Grant, NetworkSecret};
use hub::log::MemorySegments;
use hub::{
    DialError, HubConfig, HubEvent, JoinFile, Name, Node, NodeCommand, NodeConfig, NodeEvent,
    Outcome, Role, StoreConfig,
};
use wire::{
    CommandId, ConnectionId, Generator, InstanceId, Instant, NodeId, Seed, StreamMachine, UnixTime,
};

pub(crate) use process::{HubProcess, Power};
use stream::{End, Stream};

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) generator: Generator,
    pub(crate) hub_config: HubConfig,
    pub(crate) store_config: StoreConfig,
    pub(crate) hub: Option<HubProcess>,
    /// The hub's disk while the hub is down.
    disk: Option<MemorySegments>,
    /// The disk of its statistics while the hub is down.
    stats_disk: Option<MemorySegments>,
    /// Whether the hub goes on if the disk of its statistics fails.
    pub(crate) keep_failed_stats: bool,
    pub(crate) nodes: Vec<Option<Node>>,
    instances: u64,
    streams: BTreeMap<ConnectionId, Stream>,
    agenda: BTreeMap<(Instant, u64), Action>,
    last_action: u64,
    last_connection: u32,
    /// Maximum one-way delay of a record.
    pub(crate) delay_ms_max: u64,
    /// Events of the hub, and of the nodes.
    pub(crate) hub_events: Vec<HubEvent>,
    pub(crate) events: Vec<(usize, NodeEvent)>,
    pub(crate) hub_starts: u64,
    /// The reading of the hub's wall clock at time zero, in ms.
    pub(crate) unix_ms: u64,
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
            stats_disk: Some(MemorySegments::new(1 << 30)),
            keep_failed_stats: false,
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

    /// A world with the hub up and all nodes joined.
    pub(crate) fn joined(seed: u64, nodes: usize) -> Self {
        Self::joined_with(seed, nodes, |_| ())
    }

    /// The same, with a configuration that `set` changes.
    pub(crate) fn joined_with(seed: u64, nodes: usize, set: impl FnOnce(&mut Self)) -> Self {
        let mut world = Self::new(seed, nodes);
        set(&mut world);
        world.start_hub();
        for index in 0..nodes {
            world.start_node(index, NodeConfig::default());
        }
        world.run_ms(1_500);
        assert!(world.nodes.iter().flatten().all(Node::is_joined));
        world
    }

    /// The current wall-clock time.
    pub(crate) fn unix(&self) -> UnixTime {
        UnixTime::from_millis(self.unix_ms + self.now.as_millis())
    }

    /// Reports the wall-clock time to the hub.
    pub(crate) fn read_clock(&mut self) {
        let (now, unix) = (self.now, self.unix());
        self.hub().machine.set_unix_time(now, unix);
        self.drain_hub();
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

    pub(crate) fn node(&mut self, index: usize) -> &mut Node {
        self.nodes[index].as_mut().expect("the node is up")
    }

    pub(crate) fn hub(&mut self) -> &mut HubProcess {
        self.hub.as_mut().expect("the hub is up")
    }

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

    pub(crate) fn drain_all(&mut self) {
        self.drain_hub();
        for index in 0..self.nodes.len() {
            self.drain_node(index);
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

/// Seeds of a simulation: the one in `SEED`, or as many as `SEEDS` says.
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

pub(crate) fn server(name: &str) -> NodeConfig {
    let mut config = NodeConfig::default();
    config.role = Role::Matchmaker;
    config.services = vec![Name::new(name).unwrap()];
    config
}

pub(crate) fn topic() -> Name {
    Name::new("news").unwrap()
}

pub(crate) fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn set<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    values.into_iter().collect()
}
