//! The TCP tunnels of a node.
//!
//! A tunnel is one QUIC connection between an entry and an exit, with a stream for each player's
//! TCP connection. Its datagrams are the payloads of a flow. Each tunnel has a number, and is found
//! by the index of its flow.

mod conns;
mod ports;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::tls::TlsIdentity;
use wire::Instant;

use self::ports::Ports;
use super::flow_table::TunnelSide;
use crate::game::{Game, Mode};
use crate::link::LinkId;
use crate::tcp::{TcpConfig, TcpPort, TcpWork};
use crate::tunnel::{ConnEnd, ConnId, Tunnel, TunnelEnd, TunnelStats};

pub(super) use self::conns::{ConnEntry, ConnOwner, Conns, IdleScope};

/// This node's end of a tunnel.
#[derive(Debug)]
pub(super) struct LocalEnd {
    /// The tunnel's number, which the ids of its connections contain.
    pub(super) number: u32,
    pub(super) tunnel: Tunnel,
    /// The node at the other end.
    pub(super) remote: LinkId,
    /// Whether this end is the entry or the exit.
    pub(super) side: TunnelSide,
    /// The mode of its flow, and of the games that it carries.
    mode: Mode,
    /// When [`Tunnels::unused`] last found a connection, or when one was opened.
    pub(super) used: Instant,
}

/// The tunnels that end here, their connections, and the ports at which players connect.
pub(super) struct Tunnels {
    /// Without its games, which `games` holds.
    pub(super) config: TcpConfig,
    /// The TCP games in force.
    pub(super) games: Vec<Game>,
    /// Authenticates this node to the other end of each tunnel.
    pub(super) identity: TlsIdentity,
    /// By the index of the flow that carries the tunnel.
    pub(super) ends: BTreeMap<u32, LocalEnd>,
    /// The flow of each tunnel, by tunnel number.
    flows: BTreeMap<u32, u32>,
    pub(super) conns: Conns,
    ports: Ports,
    /// Actions for the driver, oldest first.
    pub(super) work: VecDeque<TcpWork>,
    /// Flows with a tunnel that may have datagrams or events to poll.
    pub(super) touched: BTreeSet<u32>,
    /// Buffer for one datagram of a tunnel.
    pub(super) datagram: Vec<u8>,
    /// The number of the next tunnel; none is used twice.
    next_tunnel: u32,
    /// Counters of removed tunnels, and those that are not per tunnel.
    past: TunnelStats,
    /// Next stream number at an exit; unique within this run of the node.
    pub(super) next_stream: u64,
}

impl Tunnels {
    pub(super) fn new(mut config: TcpConfig, identity: TlsIdentity, now: Instant) -> Self {
        let games = core::mem::take(&mut config.games);
        let mut tunnels = Self {
            conns: Conns::new(&config),
            config,
            games: Vec::new(),
            identity,
            ends: BTreeMap::new(),
            flows: BTreeMap::new(),
            ports: Ports::default(),
            work: VecDeque::new(),
            touched: BTreeSet::new(),
            datagram: Vec::new(),
            next_tunnel: 0,
            past: TunnelStats::default(),
            next_stream: 0,
        };
        tunnels.set_games(now, games);
        tunnels
    }

    /// Adds a tunnel end carried by `flow`; `make` creates the tunnel from its number.
    pub(super) fn add<E>(
        &mut self,
        now: Instant,
        flow: u32,
        (remote, side, mode): (LinkId, TunnelSide, Mode),
        make: impl FnOnce(&Self, u32) -> Result<Tunnel, E>,
    ) -> Result<(), E> {
        let number = self.next_tunnel;
        let tunnel = make(self, number)?;
        self.next_tunnel = number.saturating_add(1);
        self.flows.insert(number, flow);
        let end = LocalEnd {
            number,
            tunnel,
            remote,
            side,
            mode,
            used: now,
        };
        self.ends.insert(flow, end);
        self.touched.insert(flow);
        Ok(())
    }

    /// Removes the end that `flow` carries; the driver gets [`TcpWork::Ended`] for its connections.
    pub(super) fn remove(&mut self, flow: u32, end: TunnelEnd) {
        let Some(removed) = self.ends.remove(&flow) else {
            return;
        };
        self.past = self.past.plus(removed.tunnel.stats());
        self.touched.remove(&flow);
        self.flows.remove(&removed.number);
        for conn in self.conns.of_tunnel(removed.number) {
            self.end_conn(conn, ConnEnd::Lost(end));
        }
    }

    /// Removes a connection and queues [`TcpWork::Ended`].
    pub(super) fn end_conn(&mut self, conn: ConnId, end: ConnEnd) {
        if self.conns.remove(conn) {
            self.work.push_back(TcpWork::Ended { conn, end });
        }
    }

    /// Whether `owner` may open another connection; counts a refusal if not.
    pub(super) fn has_slot(&mut self, owner: ConnOwner) -> bool {
        if self.conns.has_slot(owner) {
            return true;
        }
        let counter = match owner {
            ConnOwner::Prefix(_) => &mut self.past.over_prefix,
            ConnOwner::Entry(_) => &mut self.past.over_share,
        };
        *counter = counter.saturating_add(1);
        false
    }

    /// Counters of all tunnels so far.
    pub(super) fn stats(&self) -> TunnelStats {
        let ends = self.ends.values();
        ends.fold(self.past, |all, end| all.plus(end.tunnel.stats()))
    }

    /// The tunnel of a known connection, which is marked for polling.
    pub(super) fn of_conn(&mut self, conn: ConnId) -> Option<&mut Tunnel> {
        self.conns.get(conn)?;
        let flow = *self.flows.get(&conn.tunnel)?;
        self.touched.insert(flow);
        Some(&mut self.ends.get_mut(&flow)?.tunnel)
    }

    /// The end of the tunnel that carries a connection.
    pub(super) fn end_of(&self, conn: ConnId) -> Option<&LocalEnd> {
        self.ends.get(self.flows.get(&conn.tunnel)?)
    }

    /// The flow of the tunnel to `remote` with this side and mode.
    pub(super) fn with(&self, remote: LinkId, kind: (TunnelSide, Mode)) -> Option<u32> {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| end.remote == remote && (end.side, end.mode) == kind)
            .map(|(flow, _)| *flow)
    }

    /// The next deadline of all tunnels.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.ends.values();
        ends.filter_map(|end| end.tunnel.poll_timeout()).min()
    }

    /// Handles the tunnels with a deadline that has passed, and marks them for polling.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for (flow, end) in &mut self.ends {
            if end.tunnel.poll_timeout().is_some_and(|due| due <= now) {
                end.tunnel.handle_timeout(now);
                self.touched.insert(*flow);
            }
        }
    }

    /// Flows of entry-side tunnels without a connection for `idle`.
    pub(super) fn unused(&mut self, now: Instant, idle: Duration) -> Vec<u32> {
        let mut unused = Vec::new();
        for (flow, end) in &mut self.ends {
            if !end.tunnel.is_empty() {
                end.used = now;
            } else if end.side == TunnelSide::Entry && now.saturating_since(end.used) >= idle {
                unused.push(*flow);
            }
        }
        unused
    }

    /// Flows of all tunnels without a connection, which a draining node closes.
    pub(super) fn empty(&self) -> Vec<u32> {
        let ends = self.ends.iter();
        let empty = ends.filter(|(_, end)| end.tunnel.is_empty());
        empty.map(|(flow, _)| *flow).collect()
    }

    pub(super) fn game(&self, name: &str) -> Option<&Game> {
        self.games.iter().find(|game| game.name == name)
    }

    pub(super) fn game_of(&self, port: TcpPort) -> Option<&Game> {
        self.game(self.ports.game(port)?)
    }

    /// Replaces the games; ports that both lists contain stay open. Returns the connections to
    /// games that changed or were removed.
    pub(super) fn set_games(&mut self, now: Instant, games: Vec<Game>) -> Vec<ConnId> {
        self.ports.set_games(now, &games, &mut self.work);
        let old = core::mem::replace(&mut self.games, games);
        let has_changed = |name: &str| {
            let before = old.iter().find(|game| game.name == name);
            self.game(name) != before
        };
        let conns = self.conns.iter();
        let conns = conns.filter(|(_, record)| has_changed(&record.game));
        conns.map(|(conn, _)| *conn).collect()
    }

    /// Makes the driver close and reopen all ports, since it may have closed some itself.
    pub(super) fn reopen_ports(&mut self, now: Instant) {
        self.ports.reopen(now, &mut self.work);
    }

    /// Makes the driver open the ports that are due.
    pub(super) fn open_ports(&mut self, now: Instant) {
        self.ports.open_due(now, &mut self.work);
    }

    /// Records whether the driver could open a port; returns the port's game and address.
    pub(super) fn on_listening(
        &mut self,
        now: Instant,
        port: TcpPort,
        is_open: Result<(), ()>,
    ) -> Option<(String, SocketAddr)> {
        self.ports.on_listening(now, port, is_open)
    }
}
