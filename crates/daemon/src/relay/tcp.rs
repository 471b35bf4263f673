//! TCP games on real sockets: executes the node's [`TcpWork`].
//!
//! The node's own thread reads and writes all sockets, straight from and into the node's buffers. A
//! second thread polls the sockets and wakes the first. So only the set of ready sockets is locked,
//! and no byte is copied between threads.
//!
//! - A player's socket is read only while the node accepts bytes: a slow game server slows the
//!   player down.
//! - Bytes leave the node only while the socket accepts them: a slow player slows its game server
//!   down.
//! - A connection ends with a reset unless both halves were closed; also if the process is killed.

mod connection;
mod listener;
mod opening;
mod readiness;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
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
use servicer::tcp::socket::{self, ACCEPT_BACKOFF, ACCEPTS_MAX};
use wire::Instant;

use connection::{Connection, READ_MAX, SocketState, TransferResult};
use listener::{Listeners, PortListener};
use opening::PendingHeaders;
use readiness::{Poller, ReadySet, SocketEvents};

pub(super) use listener::is_in_progress;
pub(super) use readiness::PollThread;

/// Settings of a node's TCP sockets.
#[derive(Clone, Debug)]
pub struct TcpSetup {
    /// Open connections, of players and to game servers together; 1,024. Further players wait in
    /// the listen backlog.
    pub connections_max: u32,
    /// Trusted proxies in front of the ports of games, by game name. What they send begins with a
    /// PROXY header that names the player. At most a quarter of all connections may wait for a
    /// header from one proxy address. If a limit is reached, the oldest waiting connection is
    /// reset.
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
    /// Connections of one proxy address that may wait for their header.
    fn pending_headers_max(&self) -> u32 {
        TcpConfig::prefix_share(self.connections_max).max(1)
    }
}

pub(super) struct TcpSockets {
    setup: TcpSetup,
    upstream: Option<IpAddr>,
    registry: Registry,
    ready: Arc<ReadySet>,
    /// Ready sockets being processed; kept for its allocation.
    ready_batch: BTreeMap<usize, SocketEvents>,
    listeners: Listeners,
    connections: BTreeMap<usize, Connection>,
    by_conn: BTreeMap<ConnId, usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    pending_headers: PendingHeaders,
    accepting: Accepting,
    /// Token of the next socket; never reused.
    next: usize,
    read_buffer: Vec<u8>,
    stats: TcpStats,
}

#[derive(Debug, Default)]
struct Accepting {
    /// When it resumes; `None` if it is not paused.
    resume_at: Option<Instant>,
    /// A connection without a slot; no other is accepted meanwhile.
    pending: Option<AcceptedStream>,
    /// When an idle connection is next searched for eviction.
    reclaim_at: Option<Instant>,
    /// Whether `pending` waits for a slot.
    is_full: bool,
}

#[derive(Debug)]
struct AcceptedStream {
    port: TcpPort,
    stream: TcpStream,
    peer: SocketAddr,
}

impl TcpSockets {
    pub(super) fn new(setup: TcpSetup, upstream: Option<IpAddr>) -> io::Result<(Self, Poller)> {
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
            accepting: Accepting::default(),
            next: 0,
            read_buffer: vec![0; READ_MAX],
            stats: TcpStats::default(),
        };
        Ok((sockets, Poller { poll, ready }))
    }

    /// Runs the node's work and the ready sockets; returns false if there was nothing to do.
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
        [
            deadline,
            self.accepting.resume_at,
            self.accepting.reclaim_at,
        ]
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
        if self.accepting.resume_at.is_some_and(|at| at <= now) {
            self.accepting.resume_at = None;
            self.accept(now, node);
        }
        if self.accepting.reclaim_at.is_some_and(|at| at <= now) {
            self.accepting.reclaim_at = None;
            self.accept(now, node);
        }
    }

    pub(super) fn report(&self) -> TcpReport {
        TcpReport {
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
            // Work that a later version of relay_mesh adds.
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

    fn close_listeners(&mut self) {
        self.listeners.clear();
        self.accepting = Accepting::default();
    }

    fn accept(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        let mut has_any = false;
        for _ in 0..ACCEPTS_MAX {
            if self.accepting.resume_at.is_some() {
                return has_any;
            }
            if self.accepting.pending.is_none() {
                let Some(token) = self.listeners.next() else {
                    return has_any;
                };
                has_any |= self.accept_on(now, token);
            }
            let Some(accepted) = self.accepting.pending.take() else {
                continue;
            };
            if self.has_capacity() || self.evict_oldest_pending(now, node) {
                self.accepting.is_full = false;
                self.on_accepted(now, node, accepted);
                continue;
            }
            let port = accepted.port;
            self.accepting.pending = Some(accepted);
            if self.reclaim(now, node) {
                // The slot is free after the node's next work.
                return true;
            }
            if !self.accepting.is_full {
                count(&mut self.stats.pauses);
                node.tcp_full(now, port);
            }
            self.accepting.is_full = true;
            return has_any;
        }
        self.accepting.resume_at = Some(now + ACCEPT_PAUSE);
        has_any
    }

    /// Asks the node to end an idle connection; false if none is idle, or none was within
    /// [`RECLAIM_INTERVAL`].
    fn reclaim(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        if self.accepting.reclaim_at.is_some() {
            return false;
        }
        let has_any = node.tcp_reclaim(now);
        if !has_any {
            self.accepting.reclaim_at = Some(now + RECLAIM_INTERVAL);
        }
        has_any
    }

    fn accept_on(&mut self, now: Instant, token: usize) -> bool {
        let Some(listener) = self.listeners.take_turn(token) else {
            return false;
        };
        let port = listener.port;
        match socket::accept(&listener.io) {
            Ok(Some((stream, peer))) => {
                count(&mut self.stats.accepted);
                self.accepting.pending = Some(AcceptedStream { port, stream, peer });
                true
            }
            Ok(None) => {
                listener.may_have_pending = false;
                false
            }
            Err(_) => {
                count(&mut self.stats.accept_errors);
                self.accepting.resume_at = Some(now + ACCEPT_BACKOFF);
                false
            }
        }
    }

    /// Passes a player's connection to the node; `remainder` are its first bytes.
    fn admit(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        (token, port): (usize, TcpPort),
        (ends, remainder): ((SocketAddr, SocketAddr), Vec<u8>),
    ) {
        let admitted = node.tcp_accept(now, port, ends);
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        match admitted {
            Ok(conn) => {
                connection.open(conn, remainder);
                self.by_conn.insert(conn, token);
                self.transfer(now, node, conn, Transfer::ToNode);
            }
            Err(why) => {
                count(if why == TcpRefused::LimitReached {
                    &mut self.stats.limited
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
            SocketState::Accepted => {}
            SocketState::ProxyHeader { .. } => self.on_header_bytes(now, node, token),
            SocketState::Dialling(_) => self.on_dialling(now, node, token),
            SocketState::Open(conn) => {
                let conn = *conn;
                // A reset is handled even if nothing is to be read or written.
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

    fn transfer(&mut self, now: Instant, node: &mut Node<Ring>, conn: ConnId, kind: Transfer) {
        let Some(&token) = self.by_conn.get(&conn) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let result = match kind {
            Transfer::ToSocket => connection.write_to_socket(node, &mut self.stats),
            Transfer::ToNode => {
                connection.write_to_node(node, &mut self.read_buffer, &mut self.stats)
            }
            Transfer::CloseWrite => connection.close_write(),
        };
        match result {
            TransferResult::Done => {}
            TransferResult::Broken | TransferResult::UnknownConn => self.on_broken(node, token),
            TransferResult::ProxyHeader(port) => self.reject_header(now, node, (token, port)),
        }
    }

    /// Resets a connection that is broken or unknown to the node.
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
            SocketState::ProxyHeader { .. } => self.on_header_timeout(now, node, token),
            SocketState::Dialling(_) => self.on_dial_timeout(now, node, token),
            SocketState::Accepted | SocketState::Open(_) => {}
        }
    }

    /// Registers a connection's socket; returns its token.
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

    /// Removes a connection; dropping it sends a reset.
    fn remove(&mut self, token: usize) -> Option<Connection> {
        let mut connection = self.connections.remove(&token)?;
        // Fails if the poll no longer knows the socket, which is closed in any case.
        self.registry.deregister(&mut connection.stream).ok();
        self.cancel_deadline(token, connection.deadline);
        if let Some(conn) = connection.conn() {
            self.by_conn.remove(&conn);
        }
        if let SocketState::ProxyHeader { proxy, .. } = &connection.stage {
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

pub(super) fn check_port(port: SocketAddr) -> io::Result<()> {
    listener::listen((port, false)).map(drop)
}

wire::debug_fields!(
    TcpSockets,
    this {
        listeners: this.listeners.len(),
        connections: this.connections.len(),
    }
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    ToSocket,
    ToNode,
    CloseWrite,
}

/// Pause after [`ACCEPTS_MAX`] connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// Counters of a node's TCP sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TcpStats {
    /// Connections accepted from players.
    pub accepted: u64,
    /// Connections started to game servers.
    pub dialled: u64,
    /// Connections of which both halves were closed.
    pub done: u64,
    /// Connections reset by the player or the game server.
    pub broken: u64,
    /// Connections reset because the remote end or the path to it failed or refused.
    pub lost: u64,
    /// Players reset because no exit of the game is reachable, or the node is draining.
    pub no_exit: u64,
    /// Players reset by a limit: per address, per /24 or /48, or per second.
    pub limited: u64,
    /// Players reset because of a PROXY header that is forbidden, malformed, or missing.
    pub invalid_headers: u64,
    /// Connections of proxies reset before their header arrived, to free a slot.
    pub headers_evicted: u64,
    /// Connections that a game server or the network refused.
    pub dials_refused: u64,
    /// Connections that a game server did not accept in time.
    pub dials_slow: u64,
    /// Connections not started because all slots or descriptors were in use.
    pub dials_limited: u64,
    /// Times that accepting paused because all slots were in use and no connection was idle.
    pub pauses: u64,
    /// Failed accepts; accepting pauses after each.
    pub accept_errors: u64,
    /// Ports that could not be opened.
    pub listens_failed: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpReport {
    /// The counters.
    pub stats: TcpStats,
    /// Open sockets of players and to game servers.
    pub connections: usize,
    /// Open ports.
    pub ports: usize,
}

const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
