//! The matchmaker as a process: hub link, allocator and HTTP edge.

mod application;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::Receiver;
use crypto::{Identity, Ring};
use hub::{JoinFile, Name, NodeConfig, Role};
use matchmaker_core::{Config, Game, Matchmaker, Rule};
use servicer::{Clock, HubNode, StreamHandle};
use wire::NodeId;

use crate::allocator::{CommandSender, LocalProcess, LocalProcessConfig};
use crate::edge::EdgeConfig;
use crate::exit::{Exit, Failure};
use crate::http::Server;
use crate::link::MATCHMAKER;
use crate::matchmaking;
pub use crate::matchmaking::{
    Answer, Load, MatchResult, MatchmakerRequest, MatchmakerRequests, Submitted, TicketAccess,
    UnknownTicket,
};
use crate::trust;
use application::MatchmakerApplication;

/// Options of a matchmaker process.
#[derive(Debug)]
pub struct MatchmakerOptions<'a> {
    /// Its identity; the join file lists it as a matchmaker with the service `matchmaker`.
    pub identity: &'a Identity,
    /// The join file.
    pub join_file: &'a JoinFile,
    /// Id of the game and its build.
    pub app_id: u64,
    /// Which tickets form a match.
    pub rule: Rule,
    /// Limits and timeouts of the matchmaker.
    pub config: Config,
    /// How game servers are started; `None` if they are started by others.
    pub pool: Option<LocalProcessConfig>,
    /// The HTTP edge.
    pub edge: EdgeConfig,
}

/// A running matchmaker. Dropping it ends it, and the game servers that it started.
#[derive(Debug)]
pub struct MatchmakerProcess {
    // In the order of their ends: no more requests, no more commands, then the game servers.
    edge: Server,
    handle: StreamHandle<MatchmakerRequest>,
    allocator: Option<LocalProcess>,
    fenced: Receiver<()>,
}

impl MatchmakerProcess {
    /// Opens the edge's port, joins the hub, and starts warm game servers.
    ///
    /// # Errors
    ///
    /// One sentence: the join file does not list the matchmaker or a slot, a file is missing, or
    /// the port is in use.
    pub fn start(options: MatchmakerOptions<'_>) -> Result<Self, Failure> {
        let node_id = options.identity.node_id();
        let service = Name::new(MATCHMAKER).map_err(Failure::usage)?;
        let grant = options.join_file.grant(node_id, Role::Matchmaker);
        if grant.is_none_or(|grant| !grant.services.contains(&service)) {
            return Err(Failure::usage(format_args!(
                "the join file does not list node {node_id} as a matchmaker with \
                 service={MATCHMAKER}"
            )));
        }
        if options.edge.wait_max >= options.config.ask_timeout {
            return Err(Failure::usage(format_args!(
                "a request may wait for {} s, but a ticket that is not polled expires after {} s",
                options.edge.wait_max.as_secs(),
                options.config.ask_timeout.as_secs()
            )));
        }
        let slots = match &options.pool {
            Some(pool) => slots(&pool.identities, options.join_file)?,
            None => Vec::new(),
        };
        let game = Game {
            app_id: options.app_id,
            rule: options.rule,
            fleet: fleet(options.join_file, &slots),
            slots,
        };
        let edge = options.edge.bind()?;

        let now = Clock::new().now();
        let mut ring = Ring::new();
        let instance = trust::random_instance(&mut ring)?;
        let mut matchmaker =
            Matchmaker::new(options.config, game, ring, now).map_err(|_| trust::no_entropy())?;
        matchmaker.handle_link_down(now);
        let mut node = NodeConfig::default();
        node.role = Role::Matchmaker;
        node.services = vec![service];
        node.watch_nodes = false;
        let (commands, queue) = CommandSender::new();
        let (fence, fenced) = crossbeam_channel::bounded(1);
        let application = MatchmakerApplication::new(matchmaker, commands, fence);
        let member = HubNode {
            identity: options.identity,
            join_file: options.join_file,
            instance,
        };
        let handle = member.spawn("matchmaker", node, application)?;
        let allocator = match options.pool {
            Some(pool) => {
                let requests = handle.requests();
                let report = move |report| matchmaking::forward_report(&requests, report);
                Some(LocalProcess::start(pool, queue, report)?)
            }
            None => None,
        };
        let edge = edge.start(handle.requests())?;
        Ok(Self {
            edge,
            handle,
            allocator,
            fenced,
        })
    }

    /// Returns the edge's address.
    pub const fn address(&self) -> SocketAddr {
        self.edge.address()
    }

    /// Returns a sender of requests, for example for another kind of edge.
    pub fn requests(&self) -> MatchmakerRequests {
        self.handle.requests()
    }

    /// Subscribes to the results of matches that end from now on, each at most once. Up to 1,024
    /// are queued; further ones are dropped and logged. An earlier subscription ends.
    ///
    /// # Errors
    ///
    /// If the matchmaker's queue is full or its thread has ended.
    pub fn results(&self) -> Result<Receiver<MatchResult>, Failure> {
        let (subscriber, results) = crossbeam_channel::bounded(RESULTS_MAX);
        let followed = self
            .handle
            .request(MatchmakerRequest::Subscribe(subscriber));
        followed.map_err(|_| Failure::refused("the matchmaker's thread takes no requests"))?;
        Ok(results)
    }

    /// Waits up to `timeout` for a failure: of a thread, or a later run with the same identity.
    ///
    /// # Errors
    ///
    /// The failure; the process must end.
    pub fn wait(&self, timeout: Duration) -> Result<(), Failure> {
        let failure = |what| Err(Failure::new(Exit::CheckFailed, what));
        match self.fenced.recv_timeout(timeout) {
            Ok(()) => failure("a later run of this matchmaker has joined the hub"),
            Err(_) if !self.handle.is_running() => failure("the matchmaker's thread has ended"),
            Err(_) if !self.edge.is_running() => failure("the HTTP edge's thread has ended"),
            Err(_) => Ok(()),
        }
    }

    /// Ends the edge, the hub link, and then the game servers, which end even if another thread
    /// does not.
    pub fn shutdown(self, within: Duration) {
        drop(self.edge);
        self.handle.shutdown(within);
        if let Some(allocator) = self.allocator {
            allocator.shutdown();
        }
    }
}

fn slots(identities: &[PathBuf], join_file: &JoinFile) -> Result<Vec<NodeId>, Failure> {
    let mut slots = Vec::with_capacity(identities.len());
    for path in identities {
        let node = trust::read_identity(path)?.node_id();
        if join_file.grant(node, Role::GameNode).is_none() {
            return Err(Failure::usage(format_args!(
                "{}: the join file does not list node {node} as a game-node",
                path.display()
            )));
        }
        if slots.contains(&node) {
            return Err(Failure::usage(format_args!(
                "{}: another slot has this identity",
                path.display()
            )));
        }
        slots.push(node);
    }
    Ok(slots)
}

fn fleet(join_file: &JoinFile, slots: &[NodeId]) -> BTreeSet<NodeId> {
    let nodes = join_file.with_role(Role::GameNode).map(|grant| grant.node);
    nodes.filter(|node| !slots.contains(node)).collect()
}

const RESULTS_MAX: usize = 1_024;
