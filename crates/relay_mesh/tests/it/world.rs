//! Control planes connected by a queue with delays and loss, without sessions or sockets.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};

use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use relay_mesh::cost::{Cost, CostModel, LossCode};
use relay_mesh::gossip::Gossip;
use relay_mesh::link_state::{
    Digest, LinkStateTable, Message, Network, Profile, Publisher, Roles, TableConfig,
};
use relay_mesh::measure::LinkReport;
use relay_mesh::routes::{Graph, Route, RouteLimits, SourceRoutes};
use wire::{Generator, Instant, NodeId, Seed};

/// A node's control plane, composed as in the node machine.
pub(crate) struct Node<P: Provider> {
    pub(crate) id: NodeId,
    identity: Identity,
    pub(crate) provider: P,
    pub(crate) gossip: Gossip<P>,
    /// Its own measurements.
    pub(crate) links: BTreeMap<NodeId, LinkReport>,
    pub(crate) is_alive: bool,
    /// Received bytes, including all headers.
    pub(crate) received: u64,
}

/// All nodes and the messages in flight.
pub(crate) struct World<P: Provider = SimProvider> {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node<P>>,
    by_id: BTreeMap<NodeId, usize>,
    queue: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    happenings: u64,
    /// One-way delay by both ends: half the round trip of the link's report.
    delays: BTreeMap<(usize, usize), Duration>,
    /// When the newest message from one node to another arrives. Messages stay in order.
    newest: BTreeMap<(usize, usize), Instant>,
    /// Lost datagrams per million. A session retransmits them.
    pub(crate) loss: u32,
    /// Loss in one direction, by both ends, if it is higher.
    pub(crate) losses: BTreeMap<(usize, usize), u32>,
    pub(crate) generator: Generator,
    /// Messages sent so far, by type.
    pub(crate) sent: BTreeMap<u8, u64>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Tick(usize),
    Arrival(usize, usize, Vec<Vec<u8>>),
}

pub(crate) const NETWORK: Network = Network([7; 16]);
const TICK: Duration = Duration::from_millis(100);
/// IPv4, UDP, header and tag of a session's packet.
const DATAGRAM: usize = 28 + 27;
/// What a session adds to a message.
const FRAME: usize = 4;
/// A datagram with only an acknowledgement. Every second datagram is assumed to need one.
const ACK: u64 = 28 + 30;
/// Bytes of messages in a datagram.
const ROOM: usize = 1_200;

impl World {
    /// Creates `count` nodes without links, in ascending order of id.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        Self::with(Seed::from_number(seed), count, SimProvider::new)
    }
}

impl<P: Provider> World<P> {
    pub(crate) fn with(seed: Seed, count: usize, provider: impl Fn(Seed) -> P) -> Self {
        let mut generator = seed.generator(0);
        let mut nodes: Vec<Node<P>> = (0..count)
            .map(|_| Node::new(provider(generator.seed()), &mut generator, Instant::ZERO))
            .collect();
        nodes.sort_by_key(|node| node.id);
        let by_id = nodes.iter().map(|node| node.id).zip(0..).collect();
        let mut world = Self {
            now: Instant::ZERO,
            nodes,
            by_id,
            queue: BinaryHeap::new(),
            happenings: 0,
            delays: BTreeMap::new(),
            newest: BTreeMap::new(),
            loss: 0,
            losses: BTreeMap::new(),
            generator,
            sent: BTreeMap::new(),
        };
        for index in 0..count {
            let spread = Duration::from_micros(world.generator.below(100_000));
            world.at(Instant::ZERO + spread, Happening::Tick(index));
        }
        world
    }

    /// Connects two nodes by a session and a link with a round trip of `millis`.
    pub(crate) fn link(&mut self, a: usize, b: usize, millis: u16) {
        self.measure(a, b, millis);
        self.measure(b, a, millis);
        self.connect(a, b);
    }

    /// Changes what `a` measures to `b`.
    pub(crate) fn measure(&mut self, a: usize, b: usize, millis: u16) {
        let to = self.nodes[b].id;
        self.nodes[a].links.insert(to, up(millis));
    }

    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        let delay = self.nodes[a].links[&self.nodes[b].id].delay.units();
        let delay = Duration::from_micros(u64::from(delay) * 50);
        for (from, to) in [(a, b), (b, a)] {
            self.delays.insert((from, to), delay);
            let peer = self.nodes[to].id;
            self.nodes[from].gossip.on_up(self.now, peer);
            self.drain(from);
        }
    }

    /// Ends a session and drops the messages in flight.
    pub(crate) fn disconnect(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.delays.remove(&(from, to));
            let peer = self.nodes[to].id;
            self.nodes[from].gossip.on_down(&peer);
        }
    }

    /// Removes what `a` measures to `b`.
    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        let to = self.nodes[b].id;
        if let Some(report) = self.nodes[a].links.get_mut(&to) {
            *report = LinkReport::DOWN;
        }
    }

    /// Kills a node. Its neighbours detect that at once.
    pub(crate) fn kill(&mut self, dead: usize) {
        self.nodes[dead].is_alive = false;
        for index in self.neighbours(dead) {
            self.cut(index, dead);
        }
    }

    /// Restarts a node without state or sessions.
    pub(crate) fn restart(&mut self, index: usize) {
        for other in self.neighbours(index) {
            self.disconnect(index, other);
        }
        let draws = self.generator.seed().generator(0);
        let node = &mut self.nodes[index];
        let publisher = publisher(&node.identity, &mut node.provider);
        let table = LinkStateTable::new(TableConfig::default(), NETWORK, node.id);
        node.gossip = Gossip::new(publisher, table, draws, self.now);
        node.is_alive = true;
    }

    /// Adds a new node without links at the end of the list.
    pub(crate) fn bear(&mut self, provider: P) -> usize {
        let node = Node::new(provider, &mut self.generator, self.now);
        let index = self.nodes.len();
        self.by_id.insert(node.id, index);
        self.nodes.push(node);
        self.at(self.now, Happening::Tick(index));
        index
    }

    /// The nodes with which a node has a session.
    pub(crate) fn neighbours(&self, of: usize) -> Vec<usize> {
        let range = self.delays.range((of, 0)..(of + 1, 0));
        range.map(|((_, to), _)| *to).collect()
    }

    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at < end
        {
            let Some(Reverse((at, _, happening))) = self.queue.pop() else {
                break;
            };
            self.now = at;
            match happening {
                Happening::Tick(index) => self.tick(index),
                Happening::Arrival(from, to, batch) => self.deliver(from, to, &batch),
            }
        }
        self.now = end;
    }

    /// Sends a message to a neighbour that the node's control plane would not send.
    pub(crate) fn transmit(&mut self, from: usize, to: usize, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.post(from, to, vec![bytes]);
    }

    /// Gives every table every record, as after half a minute, and opens sessions between nodes
    /// that know all of each other.
    pub(crate) fn settle(&mut self, pairs: &[(usize, usize)]) {
        let count = u64::try_from(self.nodes.len()).unwrap();
        let nobody = NodeId([0; 32]);
        let mut config = TableConfig::default();
        config.verify_burst = u32::MAX;
        let mut all = LinkStateTable::new(config, NETWORK, nobody);
        let mut publishers = Vec::new();
        for (index, node) in (0..).zip(&mut self.nodes) {
            let then = Instant::from_millis(index * 30_000 / count);
            let mut publisher = publisher(&node.identity, &mut node.provider);
            let first = publisher.update(then, None, &mut node.provider, &node.links);
            let first = first.unwrap();
            let (record, links) = (first.node.unwrap(), first.links.unwrap());
            all.accept_node(then, &node.provider, nobody, &record);
            all.accept_links(then, &node.provider, nobody, &links);
            publishers.push(publisher);
        }
        self.run(30_000);
        for (publisher, node) in publishers.into_iter().zip(&mut self.nodes) {
            let table = all.copy_for(node.id);
            let draws = self.generator.seed().generator(0);
            node.gossip = Gossip::new(publisher, table, draws, self.now);
            node.is_alive = true;
        }
        for &(a, b) in pairs {
            for (from, to) in [(a, b), (b, a)] {
                let delay = self.nodes[from].links[&self.nodes[to].id].delay.units();
                let delay = Duration::from_micros(u64::from(delay) * 50);
                self.delays.insert((from, to), delay);
                let (peer, now) = (self.nodes[to].id, self.now);
                let node = &mut self.nodes[from];
                node.gossip.on_up(now, peer);
                let mut dropped = Vec::new();
                while node.gossip.poll_message(&mut dropped).is_some() {
                    dropped.clear();
                }
                let met = (Message::Digest(Digest::default()), 3);
                node.gossip.handle_message(now, &node.provider, peer, met);
            }
        }
    }

    fn at(&mut self, at: Instant, happening: Happening) {
        self.happenings += 1;
        self.queue.push(Reverse((at, self.happenings, happening)));
    }

    fn tick(&mut self, index: usize) {
        let now = self.now;
        self.at(now + TICK, Happening::Tick(index));
        let node = &mut self.nodes[index];
        if node.is_alive {
            let provider = &mut node.provider;
            node.gossip
                .on_tick(now, None, provider, &node.links)
                .unwrap();
            self.drain(index);
        }
    }

    fn deliver(&mut self, from: usize, to: usize, batch: &[Vec<u8>]) {
        let (now, sender) = (self.now, self.nodes[from].id);
        let is_joined = self.delays.contains_key(&(from, to));
        let node = &mut self.nodes[to];
        if !node.is_alive || !is_joined {
            return;
        }
        for bytes in batch {
            let message = (Message::decode(bytes).unwrap(), bytes.len());
            node.gossip
                .handle_message(now, &node.provider, sender, message);
        }
        node.gossip.flush(now);
        self.drain(to);
    }

    /// Sends a node's queued messages, those to one neighbour in as few datagrams as possible.
    fn drain(&mut self, from: usize) {
        let mut batches: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        let mut message = Vec::new();
        while let Some(to) = self.nodes[from].gossip.poll_message(&mut message) {
            let batch = batches.entry(self.by_id[&to]).or_default();
            batch.push(core::mem::take(&mut message));
        }
        for (to, batch) in batches {
            self.post(from, to, batch);
        }
    }

    fn post(&mut self, from: usize, to: usize, batch: Vec<Vec<u8>>) {
        let Some(&delay) = self.delays.get(&(from, to)) else {
            return;
        };
        let mut total = 0;
        for message in &batch {
            *self.sent.entry(message[0]).or_default() += 1;
            total += message.len() + FRAME;
        }
        let datagrams = total.div_ceil(ROOM);
        let one_way = self.losses.get(&(from, to)).copied().unwrap_or(0);
        let loss = self.loss.max(one_way);
        let mut arrival = self.now + delay;
        for _ in 0..datagrams {
            self.receives(to, total / datagrams + DATAGRAM);
            let mut wait = delay * 3 + Duration::from_millis(30);
            let mut sent = self.now + delay;
            while self.generator.chance(loss) {
                // Lost, and retransmitted after a timeout that doubles.
                self.receives(to, total / datagrams + DATAGRAM);
                sent += wait;
                wait *= 2;
            }
            arrival = arrival.max(sent);
            self.nodes[from].received += ACK;
        }
        let newest = self.newest.entry((from, to)).or_insert(arrival);
        *newest = arrival.max(*newest);
        let arrival = *newest;
        self.at(arrival, Happening::Arrival(from, to, batch));
    }

    fn receives(&mut self, to: usize, bytes: usize) {
        self.nodes[to].received += u64::try_from(bytes).unwrap();
    }
}

impl<P: Provider> Node<P> {
    fn new(mut provider: P, generator: &mut Generator, now: Instant) -> Self {
        let identity = Identity::generate(&mut provider).unwrap();
        let publisher = publisher(&identity, &mut provider);
        let table = LinkStateTable::new(TableConfig::default(), NETWORK, identity.node_id());
        let draws = generator.seed().generator(0);
        Self {
            id: identity.node_id(),
            identity,
            provider,
            gossip: Gossip::new(publisher, table, draws, now),
            links: BTreeMap::new(),
            is_alive: true,
            received: 0,
        }
    }

    pub(crate) fn table(&self) -> &LinkStateTable {
        self.gossip.table()
    }

    pub(crate) fn graph(&self) -> Graph {
        self.table().graph(&CostModel::default(), &self.links)
    }

    pub(crate) fn route(&self, to: NodeId) -> Option<Route> {
        let graph = self.graph();
        let (source, to) = (graph.index(&self.id)?, graph.index(&to)?);
        SourceRoutes::compute(&graph, source, RouteLimits::default()).route(&graph, to)
    }
}

fn publisher<P: Provider>(identity: &Identity, provider: &mut P) -> Publisher<P> {
    let key = provider.signing_key(identity).unwrap();
    let profile = Profile {
        roles: Roles::ALL,
        ..Profile::default()
    };
    Publisher::new(key, *identity.public_key(), NETWORK, profile).unwrap()
}

pub(crate) fn up(millis: u16) -> LinkReport {
    LinkReport {
        delay: Cost::from_millis(millis),
        loss: LossCode(0),
    }
}
