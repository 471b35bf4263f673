//! TCP tunnels of a node, their connections, and the listening ports.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::Instant;

use super::entry::{LISTEN_AGAIN, is_dual};
use super::flow_side::TunnelSide;
use super::tunnel_conns::{Conns, Tenant};
use crate::config::{Game, Mode};
use crate::link::LinkId;
use crate::tcp::{TcpConfig, TcpPort, TcpWork};
use crate::tunnel::{ConnEnd, ConnId, Tunnel, TunnelEnd, TunnelIdentity, TunnelStats};

/// State for TCP games.
pub(super) struct Tunnels {
    /// Its list of games is empty: see `games`.
    pub(super) config: TcpConfig,
    /// TCP games currently configured.
    pub(super) games: Vec<Game>,
    pub(super) identity: TunnelIdentity,
    /// Tunnel ends, keyed by flow.
    pub(super) ends: BTreeMap<u32, End>,
    /// Flows, keyed by tunnel number.
    flows: BTreeMap<u32, u32>,
    /// Connections that the driver has a socket for.
    pub(super) conns: Conns,
    ports: BTreeMap<TcpPort, Port>,
    pub(super) work: VecDeque<TcpWork>,
    /// Flows whose tunnels may have datagrams or events to poll.
    pub(super) touched: BTreeSet<u32>,
    /// Buffer for one datagram.
    pub(super) datagram: Vec<u8>,
    next_tunnel: u32,
    next_port: u32,
    /// Counters of removed tunnels, and counters that are not per tunnel.
    past: TunnelStats,
    /// Next stream number at an exit; unique within this run of the node.
    pub(super) next_stream: u64,
}

/// One end of a tunnel.
#[derive(Debug)]
pub(super) struct End {
    pub(super) tunnel: Tunnel,
    pub(super) far: LinkId,
    pub(super) side: TunnelSide,
    mode: Mode,
    /// Last time it had a connection.
    pub(super) used: Instant,
}

#[derive(Debug)]
struct Port {
    game: String,
    address: SocketAddr,
    state: PortState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortState {
    /// Not open; open it at this time or later.
    Closed(Instant),
    /// The driver was asked to open it.
    Opening,
    Open,
}

impl Tunnels {
    pub(super) fn new(mut config: TcpConfig, identity: TunnelIdentity, now: Instant) -> Self {
        let games = core::mem::take(&mut config.games);
        let mut tunnels = Self {
            conns: Conns::new(&config),
            config,
            games: Vec::new(),
            identity,
            ends: BTreeMap::new(),
            flows: BTreeMap::new(),
            ports: BTreeMap::new(),
            work: VecDeque::new(),
            touched: BTreeSet::new(),
            datagram: Vec::new(),
            next_tunnel: 0,
            next_port: 0,
            past: TunnelStats::default(),
            next_stream: 0,
        };
        tunnels.set_games(now, games);
        tunnels
    }

    /// Adds a tunnel end carried by `flow`. `make` creates the tunnel from its number.
    pub(super) fn add<E>(
        &mut self,
        now: Instant,
        flow: u32,
        (far, side, mode): (LinkId, TunnelSide, Mode),
        make: impl FnOnce(&Self, u32) -> Result<Tunnel, E>,
    ) -> Result<(), E> {
        let number = self.next_tunnel;
        let tunnel = make(self, number)?;
        self.next_tunnel = number.saturating_add(1);
        self.flows.insert(number, flow);
        let end = End {
            tunnel,
            far,
            side,
            mode,
            used: now,
        };
        self.ends.insert(flow, end);
        self.touched.insert(flow);
        Ok(())
    }

    /// Removes the end that `flow` carries. The driver gets [`TcpWork::Ended`] for each of its
    /// connections.
    pub(super) fn remove(&mut self, flow: u32, end: TunnelEnd) {
        let Some(gone) = self.ends.remove(&flow) else {
            return;
        };
        self.past = self.past.plus(gone.tunnel.stats());
        self.touched.remove(&flow);
        let Some(number) = self.number_of(flow) else {
            return;
        };
        self.flows.remove(&number);
        for conn in self.conns.of_tunnel(number) {
            self.end_conn(conn, ConnEnd::Lost(end));
        }
    }

    /// Returns the number of the tunnel that `flow` carries.
    pub(super) fn number_of(&self, flow: u32) -> Option<u32> {
        let number = self.flows.iter().find(|(_, of)| **of == flow);
        number.map(|(number, _)| *number)
    }

    /// Removes a connection and queues [`TcpWork::Ended`] for the driver.
    pub(super) fn end_conn(&mut self, conn: ConnId, end: ConnEnd) {
        if self.conns.remove(conn) {
            self.work.push_back(TcpWork::Ended { conn, end });
        }
    }

    /// Returns whether `tenant` may open another connection. Counts a refusal if not.
    pub(super) fn has_place(&mut self, tenant: Tenant) -> bool {
        let has_place = self.conns.has_place(tenant);
        if !has_place {
            let counter = match tenant {
                Tenant::Prefix(_) => &mut self.past.over_prefix,
                Tenant::Entry(_) => &mut self.past.over_share,
            };
            *counter = counter.saturating_add(1);
        }
        has_place
    }

    /// Returns the counters of all tunnels, including removed ones.
    pub(super) fn stats(&self) -> TunnelStats {
        let ends = self.ends.values();
        ends.fold(self.past, |all, end| all.plus(end.tunnel.stats()))
    }

    /// Returns the tunnel of a known connection, and marks it for polling.
    pub(super) fn of_conn(&mut self, conn: ConnId) -> Option<&mut Tunnel> {
        if !self.conns.contains(conn) {
            return None;
        }
        let flow = *self.flows.get(&conn.tunnel)?;
        self.touched.insert(flow);
        Some(&mut self.ends.get_mut(&flow)?.tunnel)
    }

    /// Returns the tunnel end that a connection belongs to.
    pub(super) fn end_of(&self, conn: ConnId) -> Option<&End> {
        self.ends.get(self.flows.get(&conn.tunnel)?)
    }

    /// Returns the flow of the tunnel to `far` with this side and mode.
    pub(super) fn with(&self, far: LinkId, of: (TunnelSide, Mode)) -> Option<u32> {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| end.far == far && (end.side, end.mode) == of)
            .map(|(flow, _)| *flow)
    }

    /// Returns the earliest timer deadline of all tunnels.
    pub(super) fn due(&self) -> Option<Instant> {
        let dues = self.ends.values().map(|end| end.tunnel.poll_timeout());
        dues.flatten().min()
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for (flow, end) in &mut self.ends {
            if end.tunnel.poll_timeout().is_some_and(|due| due <= now) {
                end.tunnel.handle_timeout(now);
                self.touched.insert(*flow);
            }
        }
    }

    /// Returns the flows of entry-side tunnels that had no connection for `idle`.
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

    /// Returns the flows of all tunnels without a connection, which a draining node closes.
    pub(super) fn empty(&self) -> Vec<u32> {
        let ends = self.ends.iter();
        let empty = ends.filter(|(_, end)| end.tunnel.is_empty());
        empty.map(|(flow, _)| *flow).collect()
    }

    pub(super) fn game(&self, name: &str) -> Option<&Game> {
        self.games.iter().find(|game| game.name == name)
    }

    /// Returns the game of a port.
    pub(super) fn game_of(&self, port: TcpPort) -> Option<&Game> {
        let port = self.ports.get(&port)?;
        self.game(&port.game)
    }

    /// Replaces the games. Ports that both lists contain stay open. Returns the connections to
    /// games that changed or were removed.
    pub(super) fn set_games(&mut self, now: Instant, games: Vec<Game>) -> Vec<ConnId> {
        let old = core::mem::replace(&mut self.games, games);
        let is_wanted = |port: &Port| {
            let game = self.games.iter().find(|game| game.name == port.game);
            let entry = game.and_then(|game| game.entry.as_ref());
            entry.is_some_and(|entry| entry.listen.contains(&port.address))
        };
        let gone = self.ports.iter().filter(|(_, port)| !is_wanted(port));
        let gone: Vec<TcpPort> = gone.map(|(port, _)| *port).collect();
        for port in gone {
            self.ports.remove(&port);
            self.work.push_back(TcpWork::Unlisten { port });
        }
        for game in &self.games {
            for &address in game.entry.iter().flat_map(|entry| &entry.listen) {
                let is_it = |port: &Port| port.game == game.name && port.address == address;
                if self.ports.values().any(is_it) {
                    continue;
                }
                let port = Port {
                    game: game.name.clone(),
                    address,
                    state: PortState::Closed(now),
                };
                self.ports.insert(TcpPort(self.next_port), port);
                self.next_port = self.next_port.saturating_add(1);
            }
        }
        let is_other = |name: &str| {
            let before = old.iter().find(|game| game.name == name);
            self.game(name) != before
        };
        let conns = self.conns.iter().filter(|(_, held)| is_other(&held.game));
        conns.map(|(conn, _)| *conn).collect()
    }

    /// Makes the driver close and reopen all ports, since it may have closed some itself.
    pub(super) fn reopen_ports(&mut self, now: Instant) {
        for (&port, of) in &mut self.ports {
            if !matches!(of.state, PortState::Closed(_)) {
                self.work.push_back(TcpWork::Unlisten { port });
                of.state = PortState::Closed(now);
            }
        }
        self.open_ports(now);
    }

    /// Asks the driver to open each closed port after its retry time.
    pub(super) fn open_ports(&mut self, now: Instant) {
        let used: Vec<SocketAddr> = self.ports.values().map(|port| port.address).collect();
        for (name, port) in &mut self.ports {
            if matches!(port.state, PortState::Closed(due) if due <= now) {
                port.state = PortState::Opening;
                let (port, address) = (*name, port.address);
                self.work.push_back(TcpWork::Listen {
                    port,
                    address,
                    is_dual: is_dual(address, &used),
                });
            }
        }
    }

    /// Records whether the driver could open a port. Returns the port's game and address.
    pub(super) fn on_listening(
        &mut self,
        now: Instant,
        name: TcpPort,
        is_open: Result<(), ()>,
    ) -> Option<(String, SocketAddr)> {
        let port = self.ports.get_mut(&name)?;
        port.state = match is_open {
            Ok(()) => PortState::Open,
            Err(()) => PortState::Closed(now + LISTEN_AGAIN),
        };
        Some((port.game.clone(), port.address))
    }
}
