//! Several hubs and their nodes in virtual time, with streams that delay, close and lose data in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use hub::join_file::{Grant, NetworkSecret};
use hub::log::MemorySegments;
use hub::{
    Command, DialError, Hub, HubConfig, JoinFile, LogId, Node, NodeCommand, NodeConfig, NodeEvent,
    Outcome, Role, Shard, Store, StoreConfig,
};
use wire::{
    CloseCause, CommandId, ConnectionId, Generator, InstanceId, Instant, NodeId, Outbound,
    PeerIdentity, Seed, StreamMachine, UnixTime,
};

use crate::world::{Power, node_id};

pub(super) struct Net {
    pub(super) now: Instant,
    pub(super) generator: Generator,
    pub(super) hub_config: HubConfig,
    pub(super) store_config: StoreConfig,
    pub(super) hubs: Vec<HubSite>,
    pub(super) nodes: Vec<Option<Node>>,
    instances: u64,
    streams: BTreeMap<ConnectionId, Stream>,
    agenda: BTreeMap<(Instant, u64), Action>,
    last_action: u64,
    last_connection: u32,
    pub(super) events: Vec<(usize, NodeEvent)>,
}

/// A hub, and its disk while it is down.
pub(super) struct HubSite {
    pub(super) up: Option<HubUp>,
    disk: Option<MemorySegments>,
    starts: u64,
}

pub(super) struct HubUp {
    pub(super) machine: Hub,
    pub(super) store: Store<MemorySegments>,
    commands: Vec<(CommandId, Command)>,
    store_runs: bool,
    start: u64,
}

struct Stream {
    hub: usize,
    node: usize,
    /// When the last record of each direction arrives: to the hub, to the node.
    arrives: [Instant; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Hub,
    Node,
}

enum Action {
    Record(ConnectionId, End, Vec<u8>),
    Credit(ConnectionId, End, usize),
    Open(ConnectionId),
    Closed(ConnectionId, End),
    Dialled(usize, CommandId, Result<(), DialError>),
    StoreRun(usize, u64),
    Completed(usize, u64, CommandId, Box<Outcome>),
    HubUp(usize),
}

const WINDOW: usize = 256 * 1_024;

pub(super) fn hub_id(hub: usize) -> NodeId {
    NodeId([0xa0 + u8::try_from(hub).unwrap(); 32])
}

/// A join file of these hubs, in this order, and of nodes.
pub(super) fn join_file(hubs: impl IntoIterator<Item = usize>, nodes: usize) -> JoinFile {
    let mut file = JoinFile::new(NetworkSecret::new([9; 32]));
    for hub in hubs {
        let address = format!("hub-{hub}.test:7400");
        let grant = Grant::new(Role::Hub, hub_id(hub)).with_address(&address);
        file.grants.push(grant);
    }
    for node in 0..nodes {
        file.grants.push(Grant::new(Role::GameNode, node_id(node)));
        let service = "matchmaker".parse().unwrap();
        let grant = Grant::new(Role::Matchmaker, node_id(node)).with_service(service);
        file.grants.push(grant);
    }
    file
}

impl Net {
    /// Hubs that are up, and places for nodes.
    pub(super) fn new(seed: u64, hubs: usize, nodes: usize) -> Self {
        let mut store_config = StoreConfig::default();
        store_config.segment_bytes = 0;
        let mut net = Self {
            now: Instant::from_millis(1),
            generator: Seed::from_number(seed).generator(11),
            hub_config: HubConfig::default(),
            store_config,
            hubs: Vec::new(),
            nodes: Vec::new(),
            instances: 0,
            streams: BTreeMap::new(),
            agenda: BTreeMap::new(),
            last_action: 0,
            last_connection: 0,
            events: Vec::new(),
        };
        net.nodes.resize_with(nodes, || None);
        for hub in 0..hubs {
            net.hubs.push(HubSite {
                up: None,
                disk: Some(MemorySegments::new(1 << 30)),
                starts: 0,
            });
            net.start_hub(hub, hubs);
        }
        net
    }

    /// Hubs that are up, and nodes that have joined them all.
    pub(super) fn joined(seed: u64, hubs: usize, nodes: usize, config: &NodeConfig) -> Self {
        let mut net = Self::new(seed, hubs, nodes);
        for node in 0..nodes {
            net.start_node(node, config.clone());
        }
        net.run_ms(1_500);
        net
    }

    fn start_hub(&mut self, hub: usize, hubs: usize) {
        let shard = Shard::new(u8::try_from(hub).unwrap(), u8::try_from(hubs).unwrap()).unwrap();
        let site = &mut self.hubs[hub];
        let disk = site.disk.take().expect("the hub is down");
        site.starts += 1;
        let mut store_config = self.store_config;
        store_config.shard = Some(shard);
        let log = LogId(self.generator.next_u64());
        let store = Store::open(disk, store_config, log).unwrap();
        let mut config = self.hub_config.clone();
        config.shard = shard;
        let file = join_file(0..hubs, self.nodes.len());
        let mut machine = Hub::new(config, file, self.now);
        let unix = UnixTime::from_millis(1_700_000_000_000 + self.now.as_millis());
        machine.set_unix_time(self.now, unix);
        site.up = Some(HubUp {
            machine,
            store,
            commands: Vec::new(),
            store_runs: false,
            start: site.starts,
        });
        self.drain_hub(hub);
    }

    pub(super) fn start_node(&mut self, node: usize, config: NodeConfig) {
        let file = join_file(0..self.hubs.len(), self.nodes.len());
        self.start_node_with(node, config, &file);
    }

    pub(super) fn start_node_with(&mut self, node: usize, config: NodeConfig, file: &JoinFile) {
        self.instances += 1;
        let instance = InstanceId(self.instances);
        let seed = Seed::from_number(self.instances);
        self.nodes[node] = Node::new(config, file, instance, seed, self.now);
    }

    pub(super) fn node(&mut self, node: usize) -> &mut Node {
        self.nodes[node].as_mut().expect("the node is up")
    }

    pub(super) fn take_events(&mut self) -> Vec<(usize, NodeEvent)> {
        std::mem::take(&mut self.events)
    }

    /// Ends the process of a hub; it starts again after `down`, if that is given.
    pub(super) fn crash_hub(&mut self, hub: usize, power: Power, down: Option<Duration>) {
        let Some(up) = self.hubs[hub].up.take() else {
            return;
        };
        let mut disk = up.store.into_files();
        match power {
            Power::Cut => disk.power_cut(&mut self.generator),
            Power::Stays => disk.kill(),
        }
        self.hubs[hub].disk = Some(disk);
        let streams = self.streams.iter();
        let own = streams.filter(|(_, stream)| stream.hub == hub);
        let own: Vec<_> = own.map(|(id, _)| *id).collect();
        for id in own {
            self.break_stream(id);
        }
        if let Some(down) = down {
            self.after(down, Action::HubUp(hub));
        }
    }

    /// Starts a hub that is down.
    pub(super) fn restart_hub(&mut self, hub: usize) {
        if self.hubs[hub].up.is_none() {
            self.start_hub(hub, self.hubs.len());
        }
    }

    /// Resets one stream and drops its data in flight.
    pub(super) fn reset_some_stream(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let at = self.generator.below(self.streams.len() as u64);
        let id = self.streams.keys().nth(usize::try_from(at).unwrap());
        self.break_stream(*id.unwrap());
    }

    pub(super) fn run_ms(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        self.drain_all();
        loop {
            let action = self.agenda.keys().next().map(|(at, _)| *at);
            let nodes = self.nodes.iter().flatten().map(StreamMachine::poll_timeout);
            let hubs = self.hubs.iter().filter_map(|hub| hub.up.as_ref());
            let hubs = hubs.map(|hub| hub.machine.poll_timeout());
            match nodes.chain(hubs).flatten().chain(action).min() {
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
        for hub in 0..self.hubs.len() {
            if let Some(up) = &mut self.hubs[hub].up
                && is_due(up.machine.poll_timeout())
            {
                up.machine.handle_timeout(now);
                self.drain_hub(hub);
            }
        }
        for node in 0..self.nodes.len() {
            if let Some(machine) = &mut self.nodes[node]
                && is_due(machine.poll_timeout())
            {
                machine.handle_timeout(now);
                assert!(!is_due(machine.poll_timeout()), "node {node} spins");
                self.drain_node(node);
            }
        }
    }

    fn act(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Record(id, end, record) => {
                let len = record.len();
                self.at_end(id, end, |machine| match machine {
                    Machine::Hub(hub) => hub.handle_frame(now, id, &record),
                    Machine::Node(node) => node.handle_frame(now, id, &record),
                });
                let sender = match end {
                    End::Hub => End::Node,
                    End::Node => End::Hub,
                };
                let delay = self.delay();
                self.after(delay, Action::Credit(id, sender, len));
            }
            Action::Credit(id, end, bytes) => self.at_end(id, end, |machine| match machine {
                Machine::Hub(hub) => hub.handle_credit(now, id, bytes),
                Machine::Node(node) => node.handle_credit(now, id, bytes),
            }),
            Action::Open(id) => self.open(id),
            Action::Closed(id, end) => self.close(id, end),
            Action::Dialled(node, id, outcome) => {
                if let Some(machine) = &mut self.nodes[node] {
                    machine.handle_completed(now, id, outcome);
                    self.drain_node(node);
                }
            }
            Action::StoreRun(hub, start) => self.run_store(hub, start),
            Action::Completed(hub, start, id, outcome) => {
                let up = self.hubs[hub].up.as_mut();
                if let Some(up) = up.filter(|up| up.start == start) {
                    up.machine.handle_completed(now, id, *outcome);
                    self.drain_hub(hub);
                }
            }
            Action::HubUp(hub) => self.restart_hub(hub),
        }
    }

    fn at_end(&mut self, id: ConnectionId, end: End, call: impl FnOnce(Machine<'_>)) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (hub, node) = (stream.hub, stream.node);
        match end {
            End::Hub => {
                if let Some(up) = &mut self.hubs[hub].up {
                    call(Machine::Hub(&mut up.machine));
                    self.drain_hub(hub);
                }
            }
            End::Node => {
                if let Some(machine) = &mut self.nodes[node] {
                    call(Machine::Node(machine));
                    self.drain_node(node);
                }
            }
        }
    }

    fn open(&mut self, id: ConnectionId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, hub, node) = (self.now, stream.hub, stream.node);
        let (Some(up), Some(machine)) = (&mut self.hubs[hub].up, &mut self.nodes[node]) else {
            self.break_stream(id);
            return;
        };
        let peer = PeerIdentity::Node(node_id(node));
        up.machine.handle_opened(now, id, &peer);
        up.machine.handle_credit(now, id, WINDOW);
        machine.handle_opened(now, id, &PeerIdentity::Node(hub_id(hub)));
        machine.handle_credit(now, id, WINDOW);
        self.drain_hub(hub);
        self.drain_node(node);
    }

    fn close(&mut self, id: ConnectionId, end: End) {
        let now = self.now;
        self.at_end(id, end, |machine| match machine {
            Machine::Hub(hub) => hub.handle_closed(now, id, CloseCause::Failed),
            Machine::Node(node) => node.handle_closed(now, id, CloseCause::Failed),
        });
    }

    fn break_stream(&mut self, id: ConnectionId) {
        self.close(id, End::Hub);
        self.close(id, End::Node);
        self.streams.remove(&id);
    }

    fn run_store(&mut self, hub: usize, start: u64) {
        let up = self.hubs[hub].up.as_mut();
        let Some(up) = up.filter(|up| up.start == start) else {
            return;
        };
        up.store_runs = false;
        let commands = std::mem::take(&mut up.commands);
        let mut outcomes = Vec::new();
        up.store.execute(commands, &mut outcomes);
        while up.store.tidy() {}
        for (id, outcome) in outcomes {
            let delay = Duration::from_micros(self.generator.below(2_000));
            self.after(delay, Action::Completed(hub, start, id, Box::new(outcome)));
        }
    }

    fn drain_all(&mut self) {
        for hub in 0..self.hubs.len() {
            self.drain_hub(hub);
        }
        for node in 0..self.nodes.len() {
            self.drain_node(node);
        }
    }

    fn drain_hub(&mut self, hub: usize) {
        let Some(mut up) = self.hubs[hub].up.take() else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(outbound) = up.machine.poll_outbound(self.now, &mut buf) {
            let record = std::mem::take(&mut buf);
            self.transmit(outbound, End::Node, record);
        }
        while let Some(command) = up.machine.poll_command() {
            up.commands.push(command);
        }
        while up.machine.poll_event().is_some() {}
        if !up.commands.is_empty() && !up.store_runs {
            up.store_runs = true;
            let delay = Duration::from_micros(self.generator.below(3_000));
            self.after(delay, Action::StoreRun(hub, up.start));
        }
        self.hubs[hub].up = Some(up);
    }

    fn drain_node(&mut self, node: usize) {
        let Some(mut machine) = self.nodes[node].take() else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(outbound) = machine.poll_outbound(self.now, &mut buf) {
            let record = std::mem::take(&mut buf);
            self.transmit(outbound, End::Hub, record);
        }
        while let Some((id, NodeCommand::Dial { hub, address })) = machine.poll_command() {
            let index = (0..self.hubs.len()).find(|index| hub_id(*index) == hub);
            let index = index.expect("a hub of the join file");
            assert_eq!(address, format!("hub-{index}.test:7400"));
            self.dial(index, node, id);
        }
        while let Some(event) = machine.poll_event() {
            self.events.push((node, event));
        }
        self.nodes[node] = Some(machine);
    }

    fn dial(&mut self, hub: usize, node: usize, command: CommandId) {
        let delay = self.delay();
        let is_up = self.hubs[hub].up.is_some();
        let outcome = if is_up { Ok(()) } else { Err(DialError) };
        if is_up {
            self.last_connection += 1;
            let id = ConnectionId(self.last_connection);
            let arrives = [self.now; 2];
            let stream = Stream { hub, node, arrives };
            self.streams.insert(id, stream);
            self.after(delay, Action::Open(id));
        }
        self.after(delay, Action::Dialled(node, command, outcome));
    }

    fn transmit(&mut self, outbound: Outbound, to: End, record: Vec<u8>) {
        let id = outbound.connection;
        let delay = self.delay();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
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
        Duration::from_micros(self.generator.below(20_001))
    }

    fn after(&mut self, delay: Duration, action: Action) {
        self.at(self.now + delay, action);
    }

    fn at(&mut self, at: Instant, action: Action) {
        self.last_action += 1;
        self.agenda.insert((at, self.last_action), action);
    }
}

enum Machine<'a> {
    Hub(&'a mut Hub),
    Node(&'a mut Node),
}
