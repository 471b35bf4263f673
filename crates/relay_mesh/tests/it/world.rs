//! Nodes that exchange control messages over links with delay; no sessions, no sockets.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use relay_mesh::cost::{Cost, CostModel, LossCode};
use relay_mesh::link_state::{
    LinkStateTable, Network, Outcome, Profile, Publisher, Roles, TableConfig,
};
use relay_mesh::measure::LinkReport;
use relay_mesh::message::{Message, Request};
use relay_mesh::routes::{Graph, Route, RouteLimits, SourceRoutes};
use wire::{Instant, NodeId, Seed};

/// A node's control plane, as the node machine will compose it.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) provider: SimProvider,
    pub(crate) publisher: Publisher<SimProvider>,
    pub(crate) table: LinkStateTable,
    /// What it measures.
    pub(crate) links: BTreeMap<NodeId, LinkReport>,
    pub(crate) is_alive: bool,
}

/// All nodes and the messages on their way.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    /// When, from, to, bytes; all delays are equal, so the queue is in order.
    wire: VecDeque<(Instant, usize, usize, Vec<u8>)>,
    /// Messages sent so far, by type.
    pub(crate) sent: BTreeMap<u8, u64>,
}

pub(crate) const NETWORK: Network = Network([7; 16]);
const DELAY: Duration = Duration::from_millis(30);
const TICK: Duration = Duration::from_millis(200);

impl World {
    /// Makes `count` nodes without links.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        let mut seeds = Seed::from_number(seed).generator(0);
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::new(seeds.seed())).collect();
        nodes.sort_by_key(|node| node.id);
        Self {
            now: Instant::ZERO,
            nodes,
            wire: VecDeque::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Joins two nodes by a link of `millis`.
    pub(crate) fn link(&mut self, a: usize, b: usize, millis: u16) {
        let report = LinkReport {
            delay: Cost::from_millis(millis),
            loss: LossCode(0),
        };
        let ids = [self.nodes[a].id, self.nodes[b].id];
        self.nodes[a].links.insert(ids[1], report);
        self.nodes[b].links.insert(ids[0], report);
    }

    /// Lets both ends of a new session tell what they hold.
    pub(crate) fn exchange_digests(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let digest = Message::Digest(self.nodes[from].table.digest());
            self.send(from, to, &digest);
        }
    }

    /// Ends a node; its neighbours notice at once.
    pub(crate) fn kill(&mut self, dead: usize) {
        self.nodes[dead].is_alive = false;
        let id = self.nodes[dead].id;
        for node in &mut self.nodes {
            if let Some(report) = node.links.get_mut(&id) {
                *report = LinkReport::DOWN;
            }
        }
    }

    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            for index in 0..self.nodes.len() {
                self.tick(index);
            }
            let tick = self.now + TICK;
            while let Some((at, from, to, bytes)) = self.wire.pop_front_if(|(at, ..)| *at <= tick) {
                self.now = at;
                self.deliver(from, to, &bytes);
            }
            self.now = tick;
        }
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        *self.sent.entry(bytes[0]).or_default() += 1;
        self.wire.push_back((self.now + DELAY, from, to, bytes));
    }

    pub(crate) fn flood(&mut self, from: usize, except: Option<usize>, message: &Message<'_>) {
        let neighbours: BTreeSet<NodeId> = self.nodes[from].links.keys().copied().collect();
        for to in 0..self.nodes.len() {
            if Some(to) != except && neighbours.contains(&self.nodes[to].id) {
                self.send(from, to, message);
            }
        }
    }

    fn tick(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        if !node.is_alive {
            return;
        }
        node.table.expire(now);
        let publication = node
            .publisher
            .update(now, None, &mut node.provider, &node.links)
            .unwrap();
        for bytes in [&publication.node, &publication.links]
            .into_iter()
            .flatten()
        {
            node.table.publish(now, &node.provider, bytes);
        }
        if let Some(bytes) = &publication.node {
            self.flood(index, None, &Message::NodeRecord(bytes));
        }
        if let Some(bytes) = &publication.links {
            self.flood(index, None, &Message::LinkRecord(bytes));
        }
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let now = self.now;
        let sender = self.nodes[from].id;
        let node = &mut self.nodes[to];
        if !node.is_alive {
            return;
        }
        let message = Message::decode(bytes).unwrap();
        let outcome = match &message {
            Message::Hello(record) | Message::NodeRecord(record) => {
                node.table.accept_node(now, &node.provider, sender, record)
            }
            Message::LinkRecord(record) => {
                node.table.accept_links(now, &node.provider, sender, record)
            }
            Message::Digest(digest) => {
                let request = node.table.missing(digest);
                if !request.origins().is_empty() {
                    self.send(to, from, &Message::Request(request));
                }
                return;
            }
            Message::Request(request) => {
                let answers: Vec<Vec<u8>> = node
                    .table
                    .answer(request)
                    .map(|answer| {
                        let mut bytes = Vec::new();
                        answer.encode(&mut bytes);
                        bytes
                    })
                    .collect();
                for bytes in answers {
                    self.send(to, from, &Message::decode(&bytes).unwrap());
                }
                return;
            }
        };
        match outcome {
            Outcome::Accepted => self.flood(to, Some(from), &message),
            Outcome::OwnFromBefore(version) => self.nodes[to].publisher.raise(version),
            Outcome::NeedsNodeRecord(origin) => {
                self.send(to, from, &Message::Request(Request::new([origin])));
            }
            Outcome::Stale | Outcome::Refused(_) => {}
        }
    }
}

impl Node {
    fn new(seed: Seed) -> Self {
        let mut provider = SimProvider::new(seed);
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        let profile = Profile {
            roles: Roles::ALL,
            ..Profile::default()
        };
        let public = *identity.public_key();
        Self {
            id: identity.node_id(),
            provider,
            publisher: Publisher::new(key, public, NETWORK, profile).unwrap(),
            table: LinkStateTable::new(TableConfig::default(), NETWORK, identity.node_id()),
            links: BTreeMap::new(),
            is_alive: true,
        }
    }

    pub(crate) fn graph(&self) -> Graph {
        self.table.graph(&CostModel::default(), &self.links)
    }

    pub(crate) fn route(&self, to: NodeId) -> Option<Route> {
        let graph = self.graph();
        let (source, to) = (graph.index(&self.id)?, graph.index(&to)?);
        SourceRoutes::compute(&graph, source, RouteLimits::default()).route(&graph, to)
    }
}
