//! A hub and its nodes in this process, and waiting for what the nodes report.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use daemon::role::hub::{HubOptions, HubProcess};
use hub::join_file::{Grant, JoinFile, NetworkSecret};
use hub::{ClaimId, Node, NodeConfig, NodeEvent, PlayerMessage, Role};
use tickwire::crypto::{Identity, Provider as _, Ring};
use tickwire::servicer::{Clock, HubApplication, HubNode, StreamHandle};
use wire::Instant;

use crate::Outcome;

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// The node that may kick players.
pub(crate) const OPERATOR: usize = 3;

/// What a node reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// An event of the hub's link.
    Event(NodeEvent),
    /// A live message for a player.
    Message(ClaimId, PlayerMessage),
}

type Ask = Box<dyn FnOnce(Instant, &mut Node) + Send>;

/// A game server's part of the game: it runs what the script asks for, and reports all events.
struct GameServer {
    at: usize,
    reports: Sender<(usize, Report)>,
}

impl GameServer {
    fn report(&self, report: Report) {
        // Fails if the program is already ending.
        self.reports.send((self.at, report)).ok();
    }
}

impl HubApplication for GameServer {
    type Request = Ask;

    fn apply_request(&mut self, now: Instant, node: &mut Node, ask: Ask) -> ControlFlow<()> {
        ask(now, node);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::MessageReady(claim) = event {
            while let Some(message) = node.next_message(claim) {
                self.report(Report::Message(claim, message));
            }
        } else {
            self.report(Report::Event(event));
        }
    }
}

/// One hub or several, three game servers and an operator's node.
pub(crate) struct Cluster {
    hubs: Vec<HubProcess>,
    /// Identity and folder of each hub.
    homes: Vec<(Identity, PathBuf)>,
    join_file: JoinFile,
    nodes: Vec<StreamHandle<Ask>>,
    reports: Receiver<(usize, Report)>,
    clock: Clock,
}

impl Cluster {
    /// Starts all of them, and waits until the nodes have joined.
    pub(crate) fn start(folder: &Path, shards: u8) -> Outcome<Self> {
        let mut random = Ring::new();
        let mut secret = [0; 32];
        random.random(&mut secret)?;
        let mut join_file = JoinFile::new(NetworkSecret::new(secret));
        let mut homes = Vec::new();
        let mut ports = Vec::new();
        for shard in 0..shards {
            let identity = Identity::generate(&mut random)?;
            let port = std::net::TcpListener::bind("127.0.0.1:0")?;
            let address = port.local_addr()?.to_string();
            let grant = Grant::new(Role::Hub, identity.node_id()).with_address(&address);
            join_file.grants.push(grant);
            homes.push((identity, folder.join(shard.to_string())));
            ports.push(port);
        }
        drop(ports);
        let mut identities = Vec::new();
        for role in [Role::GameNode, Role::GameNode, Role::GameNode, Role::Admin] {
            let identity = Identity::generate(&mut random)?;
            join_file.grants.push(Grant::new(role, identity.node_id()));
            identities.push((role, identity));
        }
        let (sender, reports) = mpsc::channel();
        let mut cluster = Self {
            hubs: Vec::new(),
            homes,
            join_file,
            nodes: Vec::new(),
            reports,
            clock: Clock::new(),
        };
        cluster.start_hub()?;
        for (at, (role, identity)) in identities.iter().enumerate() {
            let mut config = NodeConfig::default();
            config.role = *role;
            config.watch_players = at == OPERATOR;
            let node = HubNode {
                identity,
                join_file: &cluster.join_file,
                instance: random.random_instance()?,
            };
            let server = GameServer {
                at,
                reports: sender.clone(),
            };
            cluster
                .nodes
                .push(node.spawn(&format!("node {at}"), config, server)?);
        }
        let mut missing = usize::from(shards).saturating_mul(cluster.nodes.len());
        cluster.wait("all nodes have joined all hubs", |_, report| {
            if let Report::Event(NodeEvent::Joined { .. } | NodeEvent::ShardJoined { .. }) = report
            {
                missing = missing.saturating_sub(1);
            }
            missing == 0
        })?;
        Ok(cluster)
    }

    /// Starts each hub on its folder.
    pub(crate) fn start_hub(&mut self) -> Outcome<()> {
        for (identity, folder) in &self.homes {
            let join_file = JoinFile::parse(&self.join_file.to_text())?;
            let options = HubOptions::new(identity, join_file, folder);
            let hub = HubProcess::start(options).map_err(|error| error.to_string())?;
            self.hubs.push(hub);
        }
        Ok(())
    }

    /// Stops the hubs. The nodes keep their players, and redial.
    pub(crate) fn stop_hub(&mut self) -> Outcome<()> {
        for hub in self.hubs.drain(..) {
            hub.shutdown(Duration::from_secs(2))
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Runs `ask` on the thread of node `at`, and returns its result.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        at: usize,
        ask: impl FnOnce(Instant, &mut Node) -> T + Send + 'static,
    ) -> Outcome<T> {
        let (sender, result) = mpsc::channel();
        let ask: Ask = Box::new(move |now, node| drop(sender.send(ask(now, node))));
        let node = self.nodes.get(at).ok_or("no such node")?;
        node.request(ask).map_err(|_| "the node is busy")?;
        Ok(result.recv_timeout(PATIENCE)?)
    }

    /// Takes reports until `done` returns true.
    pub(crate) fn wait(
        &self,
        what: &str,
        mut done: impl FnMut(usize, &Report) -> bool,
    ) -> Outcome<()> {
        let end = self.clock.now() + PATIENCE;
        loop {
            let left = end.saturating_since(self.clock.now());
            let (at, report) = self
                .reports
                .recv_timeout(left)
                .map_err(|_| format!("within {PATIENCE:?}: {what}"))?;
            if done(at, &report) {
                return Ok(());
            }
        }
    }

    /// Ends all nodes and the hub.
    pub(crate) fn shutdown(mut self) -> Outcome<()> {
        for node in self.nodes.drain(..) {
            node.shutdown(Duration::from_secs(1));
        }
        self.stop_hub()
    }
}
