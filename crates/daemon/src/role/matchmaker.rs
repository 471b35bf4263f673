//! The matchmaker as a process: the machine on its hub link, its allocator, its HTTP edge.

mod application;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::Receiver;
use crypto::{Identity, Ring};
use hub::name::Name;
use hub::role::Role;
use hub::{JoinFile, NodeConfig};
use matchmaker_core::{Config, Game, Matchmaker, Rule};
use servicer::{Clock, StreamHandle};
use wire::NodeId;

use crate::allocator::{CommandSender, LocalProcess, LocalProcessConfig};
use crate::edge::{Edge, EdgeConfig};
use crate::exit::{Exit, Failure};
use crate::link::{self, MATCHMAKER, Member};
use crate::matchmaking;
pub use crate::matchmaking::{
    Load, MatchResult, MatchmakerRequest, MatchmakerRequests, Submitted, TicketAccess,
    UnknownTicket,
};
use crate::trust;
use application::MatchmakerApplication;

/// What a matchmaker process needs.
#[derive(Debug)]
pub struct MatchmakerOptions<'a> {
    /// What it proves; the join file lists it as a matchmaker with the service `matchmaker`.
    pub identity: &'a Identity,
    /// Who the hub is, and who may be a game server.
    pub join_file: &'a JoinFile,
    /// Separates games and builds.
    pub app_id: u64,
    /// Which tickets make a match.
    pub rule: Rule,
    /// Limits and times of the machine.
    pub config: Config,
    /// How game servers are started; `None` where others start them.
    pub pool: Option<LocalProcessConfig>,
    /// How players reach it.
    pub edge: EdgeConfig,
}

/// A running matchmaker. Dropping it ends it, and the game servers that it started.
#[derive(Debug)]
pub struct MatchmakerProcess {
    // In the order in which they end: nobody asks any more, nothing is ordered any more, and then
    // the processes go.
    edge: Edge,
    handle: StreamHandle<MatchmakerRequest>,
    allocator: Option<LocalProcess>,
    fenced: Receiver<()>,
}

impl MatchmakerProcess {
    /// Takes the edge's port, joins the hub, and starts what the pool holds warm.
    ///
    /// # Errors
    ///
    /// One sentence: the join file does not list the matchmaker or a slot, a file is missing, the
    /// port is busy.
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
                "a request may wait for {} s, but a ticket that nobody asks for ends after {} s",
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
        let member = Member {
            identity: options.identity,
            join_file: options.join_file,
            instance,
        };
        let handle = link::attach("matchmaker", member, node, application)?;
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

    /// Returns where the edge listens.
    pub const fn address(&self) -> SocketAddr {
        self.edge.address()
    }

    /// Returns a sender of requests, such as for an edge of another kind.
    pub fn requests(&self) -> MatchmakerRequests {
        self.handle.requests()
    }

    /// Returns the results of matches that end from now on, as their servers say them: each once,
    /// where the matchmaker does not restart in between. Up to 1,024 wait to be taken; those past
    /// that are lost, and the log says so. Whoever asked before hears no more.
    ///
    /// # Errors
    ///
    /// Where the matchmaker's thread is behind or has ended.
    pub fn results(&self) -> Result<Receiver<MatchResult>, Failure> {
        let (subscriber, results) = crossbeam_channel::bounded(RESULTS_MAX);
        let followed = self
            .handle
            .request(MatchmakerRequest::Subscribe(subscriber));
        followed.map_err(|_| Failure::refused("the matchmaker's thread takes no requests"))?;
        Ok(results)
    }

    /// Waits up to `patience` for a reason to end: a thread that stopped, or another matchmaker
    /// with this identity.
    ///
    /// # Errors
    ///
    /// The reason; the process shall then end.
    pub fn wait(&self, timeout: Duration) -> Result<(), Failure> {
        let failure = |what| Err(Failure::new(Exit::CheckFailed, what));
        match self.fenced.recv_timeout(timeout) {
            Ok(()) => failure("a later run of this matchmaker has joined the hub"),
            Err(_) if !self.handle.is_running() => failure("the matchmaker's thread has ended"),
            Err(_) if !self.edge.is_running() => failure("the HTTP edge's thread has ended"),
            Err(_) => Ok(()),
        }
    }

    /// Ends in order: the edge, the hub link, then the game servers; these also where a thread of
    /// the others does not end.
    pub fn shutdown(self, within: Duration) {
        self.edge.shutdown();
        self.handle.shutdown(within);
        if let Some(allocator) = self.allocator {
            allocator.shutdown();
        }
    }
}

/// The nodes of the identity files of a pool.
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

/// The game servers that others start.
fn fleet(join_file: &JoinFile, slots: &[NodeId]) -> BTreeSet<NodeId> {
    let nodes = join_file.with_role(Role::GameNode).map(|grant| grant.node);
    nodes.filter(|node| !slots.contains(node)).collect()
}

/// Results that may wait to be taken; 1 KiB each at most.
const RESULTS_MAX: usize = 1_024;
