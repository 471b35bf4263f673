//! TCP games on real sockets: what does what [`TcpWork`] asks.
//!
//! All sockets are read and written on the node's own thread, between its turns, straight from and
//! into what the node has; a second thread waits for them and wakes the first. So nothing is locked
//! but the list of sockets that something happened to, and no byte is copied between threads.
//!
//! - A player's bytes are read once the node takes them: a game server that is slow stops the player.
//! - Bytes for a socket are taken from the node once the socket takes them: a player who is slow stops
//!   its game server.
//! - A connection ends by a reset unless both its halves were closed, also where this process is killed.

mod connection;
mod dialling;
mod inbound;
mod listener;
mod readiness;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crypto::Ring;
use mio::net::TcpStream;
use mio::{Interest, Poll, Registry, Token};
use relay_mesh::proxy_header::TrustedProxies;
use relay_mesh::tunnel::{ConnEnd, ConnId};
use relay_mesh::{Node, TcpConfig, TcpPort, TcpRefused, TcpWork};
use serde::Serialize;
use wire::Instant;
use wire::address::canonical;

use connection::{Connection, READ_MAX, Stage, TransferResult};
use inbound::PendingHeaders;
use listener::{Listeners, PortListener};
use readiness::{ReadySet, SocketEvents};

pub(super) use listener::is_in_progress;
pub(super) use readiness::PollThread;

/// What a node's TCP sockets may do.
#[derive(Clone, Debug)]
pub struct TcpSetup {
    /// Connections at a time, of players and to game servers together; 1,024. Who comes beyond it waits
    /// at the door until one ends.
    pub connections_max: u32,
    /// Proxies before the ports of games, by the games' names: what they send begins with a header of the
    /// PROXY protocol that says who the player is. A quarter of the places may wait for the headers of one
    /// proxy's address; the oldest gives way to the next, and to any newcomer once all places are taken.
    pub proxies: BTreeMap<String, TrustedProxies>,
}

impl Default for TcpSetup {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            proxies: BTreeMap::new(),
        }
    }
}

impl TcpSetup {
    /// How many connections of one proxy's address may wait for their header.
    fn pending_headers_max(&self) -> u32 {
        TcpConfig::prefix_share(self.connections_max).max(1)
    }
}

/// The TCP sockets of a node.
pub(super) struct TcpSockets {
    setup: TcpSetup,
    /// The address that connections to game servers leave from.
    upstream: Option<IpAddr>,
    registry: Registry,
    ready: Arc<ReadySet>,
    /// What was taken from there, while it is looked at.
    ready_batch: BTreeMap<usize, SocketEvents>,
    listeners: Listeners,
    connections: BTreeMap<usize, Connection>,
    by_conn: BTreeMap<ConnId, usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Those that wait for a proxy's header.
    pending_headers: PendingHeaders,
    /// When players are let in again; `None` where they are now.
    accept_at: Option<Instant>,
    /// Who was accepted and has no place yet; nobody else is accepted meanwhile.
    pending_accept: Option<AcceptedStream>,
    /// When an idle connection is next looked for that gives way to the newcomer.
    reclaim_at: Option<Instant>,
    /// Whether the newcomer waits for want of a place.
    is_full: bool,
    /// Token of the next socket; none is used twice.
    next: usize,
    /// What is read at a time.
    read_buffer: Vec<u8>,
    stats: TcpStats,
}

/// Who was accepted.
#[derive(Debug)]
struct AcceptedStream {
    port: TcpPort,
    stream: TcpStream,
    peer: SocketAddr,
}

/// What sockets are waited for with, until the thread for it is started.
#[derive(Debug)]
pub(super) struct PendingPoller {
    poll: Poll,
    ready: Arc<ReadySet>,
}

impl PendingPoller {
    /// Starts the thread, which wakes `node`.
    pub(super) fn start(self, wake: impl Fn() + Send + 'static) -> io::Result<PollThread> {
        PollThread::start(self.poll, self.ready, wake)
    }
}

impl TcpSockets {
    pub(super) fn new(
        setup: TcpSetup,
        upstream: Option<IpAddr>,
    ) -> io::Result<(Self, PendingPoller)> {
        let poll = Poll::new()?;
        let ready = Arc::new(ReadySet::default());
        let sockets = Self {
            setup,
            upstream,
            registry: poll.registry().try_clone()?,
            ready: Arc::clone(&ready),
            ready_batch: BTreeMap::new(),
            listeners: Listeners::default(),
            connections: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            pending_headers: PendingHeaders::default(),
            accept_at: None,
            pending_accept: None,
            reclaim_at: None,
            is_full: false,
            next: 0,
            read_buffer: vec![0; READ_MAX],
            stats: TcpStats::default(),
        };
        Ok((sockets, PendingPoller { poll, ready }))
    }

    /// Does what the node asks, and what sockets have come to; false where there was nothing.
    pub(super) fn pump(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        let mut has_any = false;
        while let Some(work) = node.poll_tcp() {
            has_any = true;
            self.handle_work(now, node, work);
        }
        let mut ready_batch = std::mem::take(&mut self.ready_batch);
        self.ready.take(&mut ready_batch);
        while let Some((token, ready)) = ready_batch.pop_first() {
            has_any = true;
            self.on_ready(now, node, token, ready);
        }
        self.ready_batch = ready_batch;
        if self.listeners.len() > 0 && node.draining().is_some() {
            self.close_listeners();
        }
        has_any | self.accept(now, node)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        [deadline, self.accept_at, self.reclaim_at]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, node: &mut Node<Ring>) {
        while let Some(&(deadline, token)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.on_deadline(now, node, token);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.accept(now, node);
        }
        if self.reclaim_at.is_some_and(|at| at <= now) {
            self.reclaim_at = None;
            self.accept(now, node);
        }
    }

    pub(super) fn counted(&self) -> TcpCounted {
        TcpCounted {
            stats: self.stats,
            connections: self.connections.len(),
            ports: self.listeners.len(),
        }
    }

    fn handle_work(&mut self, now: Instant, node: &mut Node<Ring>, work: TcpWork) {
        match work {
            TcpWork::Listen {
                port,
                address,
                is_dual,
            } => {
                let opened = self.open_listener(port, (address, is_dual));
                if opened.is_err() {
                    count(&mut self.stats.listens_failed);
                }
                node.tcp_listening(now, port, opened.map_err(drop));
            }
            TcpWork::Unlisten { port } => self.listeners.close(port),
            TcpWork::Dial { conn, server } => self.dial(now, node, conn, server),
            TcpWork::Readable { conn } => self.transfer(now, node, conn, Transfer::ToSocket),
            TcpWork::Writable { conn } => self.transfer(now, node, conn, Transfer::ToNode),
            TcpWork::Finished { conn } => self.transfer(now, node, conn, Transfer::CloseWrite),
            TcpWork::Ended { conn, end } => self.on_ended(conn, end),
            // A driver of an earlier version knows nothing to do.
            _ => {}
        }
    }

    fn open_listener(&mut self, port: TcpPort, at: (SocketAddr, bool)) -> io::Result<()> {
        let mut io = listener::listen(at)?;
        let token = self.token();
        self.registry
            .register(&mut io, Token(token), Interest::READABLE)?;
        let listener = PortListener {
            io,
            port,
            may_have_pending: true,
        };
        self.listeners.insert(token, listener);
        Ok(())
    }

    /// Lets nobody in any more.
    fn close_listeners(&mut self) {
        self.listeners.clear();
        self.is_full = false;
        self.pending_accept = None;
        self.accept_at = None;
        self.reclaim_at = None;
    }

    /// Lets in who stands at the doors; returns whether anybody did.
    fn accept(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        let mut has_any = false;
        for _ in 0..ACCEPTS_MAX {
            if self.accept_at.is_some() {
                return has_any;
            }
            if self.pending_accept.is_none() {
                let Some(token) = self.listeners.next() else {
                    return has_any;
                };
                has_any |= self.accept_on(now, token);
            }
            let Some(pending_accept) = self.pending_accept.take() else {
                continue;
            };
            if self.has_capacity() || self.evict_oldest_pending(now, node) {
                self.is_full = false;
                self.on_accepted(now, node, pending_accept);
                continue;
            }
            let port = pending_accept.port;
            self.pending_accept = Some(pending_accept);
            if self.reclaim(now, node) {
                // There is a place once the node's word of it was obeyed.
                return true;
            }
            if !self.is_full {
                count(&mut self.stats.pauses);
                node.tcp_full(now, port);
            }
            self.is_full = true;
            return has_any;
        }
        // The rest once others had their turn.
        self.accept_at = Some(now + ACCEPT_PAUSE);
        has_any
    }

    /// Has the node end an idle connection for the newcomer; false where there is none, or was none a
    /// moment ago.
    fn reclaim(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        if self.reclaim_at.is_some() {
            return false;
        }
        let has_any = node.tcp_reclaim(now);
        if !has_any {
            self.reclaim_at = Some(now + RECLAIM_INTERVAL);
        }
        has_any
    }

    fn accept_on(&mut self, now: Instant, token: usize) -> bool {
        let Some(listener) = self.listeners.take_turn(token) else {
            return false;
        };
        let port = listener.port;
        match listener.io.accept() {
            Ok((stream, player)) => {
                count(&mut self.stats.accepted);
                self.pending_accept = Some(AcceptedStream {
                    port,
                    stream,
                    peer: canonical(player),
                });
                true
            }
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock {
                    listener.may_have_pending = false;
                } else if !ACCEPT_RETRY_KINDS.contains(&error.kind()) {
                    // What is wanting, such as a descriptor, seldom comes at once.
                    count(&mut self.stats.accept_errors);
                    self.accept_at = Some(now + ACCEPT_BACKOFF);
                }
                false
            }
        }
    }

    /// Gives a player's connection, whose first bytes are `rest`, to the node.
    fn admit(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        (token, port): (usize, TcpPort),
        (ends, rest): ((SocketAddr, SocketAddr), Vec<u8>),
    ) {
        let admitted = node.tcp_accept(now, port, ends);
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        match admitted {
            Ok(conn) => {
                connection.open(conn, rest);
                self.by_conn.insert(conn, token);
                self.transfer(now, node, conn, Transfer::ToNode);
            }
            Err(why) => {
                count(if why == TcpRefused::Crowded {
                    &mut self.stats.crowded
                } else {
                    &mut self.stats.no_exit
                });
                self.remove(token);
            }
        }
    }

    fn on_ready(&mut self, now: Instant, node: &mut Node<Ring>, token: usize, ready: SocketEvents) {
        if let Some(listener) = self.listeners.get_mut(token) {
            listener.may_have_pending = true;
            return;
        }
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.set_ready();
        match &connection.stage {
            Stage::Accepted => {}
            Stage::ProxyHeader { .. } => self.on_header_bytes(now, node, token),
            Stage::Dialling(_) => self.on_dialling(now, node, token),
            Stage::Open(conn) => {
                let conn = *conn;
                // A reset is told even where nothing is to be read or written now.
                let is_broken =
                    ready.has_error && !matches!(connection.stream.take_error(), Ok(None));
                if is_broken {
                    self.on_broken(node, token);
                    return;
                }
                self.transfer(now, node, conn, Transfer::ToSocket);
                self.transfer(now, node, conn, Transfer::ToNode);
            }
        }
    }

    fn transfer(&mut self, now: Instant, node: &mut Node<Ring>, conn: ConnId, way: Transfer) {
        let Some(&token) = self.by_conn.get(&conn) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let passed = match way {
            Transfer::ToSocket => connection.write_to_socket(node, &mut self.stats),
            Transfer::ToNode => {
                connection.write_to_node(node, &mut self.read_buffer, &mut self.stats)
            }
            Transfer::CloseWrite => connection.close_write(),
        };
        match passed {
            TransferResult::Done => {}
            TransferResult::Broken | TransferResult::UnknownConn => self.on_broken(node, token),
            TransferResult::ProxyHeader(port) => self.reject_header(now, node, (token, port)),
        }
    }

    /// Resets a connection that its other end has reset, or that is of no more use.
    fn on_broken(&mut self, node: &mut Node<Ring>, token: usize) {
        count(&mut self.stats.broken);
        if let Some(conn) = self.remove(token).and_then(|connection| connection.conn()) {
            node.tcp_reset(conn);
        }
    }

    fn on_ended(&mut self, conn: ConnId, end: ConnEnd) {
        let Some(&token) = self.by_conn.get(&conn) else {
            return;
        };
        let Some(connection) = self.remove(token) else {
            return;
        };
        if end == ConnEnd::Done {
            listener::close_gracefully(&connection.stream);
            count(&mut self.stats.done);
        } else {
            count(&mut self.stats.lost);
        }
    }

    fn on_deadline(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.deadline = None;
        match &connection.stage {
            Stage::ProxyHeader { .. } => self.on_header_timeout(now, node, token),
            Stage::Dialling(_) => self.on_dial_timeout(now, node, token),
            Stage::Accepted | Stage::Open(_) => {}
        }
    }

    /// Waits for a connection's socket, and returns its token.
    fn add(&mut self, mut connection: Connection) -> io::Result<usize> {
        let token = self.token();
        let both = Interest::READABLE | Interest::WRITABLE;
        let stream = &mut connection.stream;
        self.registry.register(stream, Token(token), both)?;
        if let Some(deadline) = connection.deadline {
            self.deadlines.insert((deadline, token));
        }
        self.connections.insert(token, connection);
        Ok(token)
    }

    /// Forgets a connection, which is reset once it is dropped.
    fn remove(&mut self, token: usize) -> Option<Connection> {
        let mut connection = self.connections.remove(&token)?;
        // Where the system does not know it any more, closing it is all there is to do.
        self.registry.deregister(&mut connection.stream).ok();
        self.cancel_deadline(token, connection.deadline);
        if let Some(conn) = connection.conn() {
            self.by_conn.remove(&conn);
        }
        if let Stage::ProxyHeader { proxy, .. } = &connection.stage {
            self.pending_headers.remove(token, *proxy);
        }
        Some(connection)
    }

    fn cancel_deadline(&mut self, token: usize, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, token));
        }
    }

    fn has_capacity(&self) -> bool {
        let max = usize::try_from(self.setup.connections_max).unwrap_or(usize::MAX);
        self.connections.len() < max
    }

    const fn token(&mut self) -> usize {
        let token = self.next;
        self.next = self.next.wrapping_add(1);
        token
    }
}

/// Listens on `port` for a moment.
pub(super) fn check_port(port: SocketAddr) -> io::Result<()> {
    listener::listen((port, false)).map(drop)
}

impl fmt::Debug for TcpSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSockets")
            .field("doors", &self.listeners.len())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

/// Which bytes are to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    ToSocket,
    ToNode,
    /// No more bytes: shut down the write half of the socket.
    CloseWrite,
}

/// Somebody left before being let in, or a signal came; accept(2).
const ACCEPT_RETRY_KINDS: [ErrorKind; 2] = [ErrorKind::ConnectionAborted, ErrorKind::Interrupted];
/// Connections taken in a row.
const ACCEPTS_MAX: usize = 64;
/// Pause after so many.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
/// Pause between two looks for an idle connection while all places are taken.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after an accept that failed.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What a node's TCP sockets count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TcpStats {
    /// Connections taken from players.
    pub accepted: u64,
    /// Game servers dialled.
    pub dialled: u64,
    /// Connections whose two halves were closed, at this node's socket.
    pub done: u64,
    /// Connections reset by the player or the game server.
    pub broken: u64,
    /// Connections reset because the far end, or the way to it, is gone or refused.
    pub lost: u64,
    /// Players reset because no exit of their game can be reached, or the node takes no more.
    pub no_exit: u64,
    /// Players reset because a limit is reached: of their address, of its /24 or /48, or of a second.
    pub crowded: u64,
    /// Players reset for what they began with: a header that they may not send, a bad one, or none
    /// where one must be.
    pub bad_greetings: u64,
    /// Connections of proxies reset before their header came, to make room for newcomers.
    pub greetings_crowded: u64,
    /// Dials that a game server, or the network, refused.
    pub dials_refused: u64,
    /// Dials that a game server did not answer in time.
    pub dials_slow: u64,
    /// Dials not made: as many connections as there may be, or no descriptor left.
    pub dials_crowded: u64,
    /// Times that nobody was let in for a while: all places were taken, and no connection was idle.
    pub pauses: u64,
    /// Failed accepts, such as for want of a descriptor; a pause follows each.
    pub accept_errors: u64,
    /// Ports that could not be opened.
    pub listens_failed: u64,
    /// Bytes taken from sockets.
    pub bytes_in: u64,
    /// Bytes given to sockets.
    pub bytes_out: u64,
}

/// The counters, and what stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpCounted {
    /// What was counted.
    pub stats: TcpStats,
    /// Sockets of players and to game servers that are open now.
    pub connections: usize,
    /// Ports that are listened on now.
    pub ports: usize,
}

const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
