//! Tunnels of a node, the connections in them, and its TCP ports.

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

/// All that a node has of TCP games.
pub(super) struct Tunnels {
    /// Of games, none: see `games`.
    pub(super) config: TcpConfig,
    /// The games over TCP in force.
    pub(super) games: Vec<Game>,
    pub(super) identity: TunnelIdentity,
    /// By the flow that carries each.
    pub(super) ends: BTreeMap<u32, End>,
    /// Flows by the numbers of their tunnels.
    flows: BTreeMap<u32, u32>,
    /// Connections that the driver knows of.
    pub(super) conns: Conns,
    ports: BTreeMap<TcpPort, Port>,
    pub(super) work: VecDeque<TcpWork>,
    /// Flows whose tunnels may have something to say.
    pub(super) touched: BTreeSet<u32>,
    /// One datagram.
    pub(super) datagram: Vec<u8>,
    next_tunnel: u32,
    next_port: u32,
    /// What tunnels counted that are no more, and what is counted for all of them.
    past: TunnelStats,
    /// Names a stream in this run of the node, at an exit.
    pub(super) next_stream: u64,
}

/// One end of a tunnel.
#[derive(Debug)]
pub(super) struct End {
    pub(super) tunnel: Tunnel,
    pub(super) far: LinkId,
    pub(super) side: TunnelSide,
    mode: Mode,
    /// When it last had a connection.
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
    /// To be opened from then on.
    Closed(Instant),
    /// The driver was asked.
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

    /// Adds one end, carried by `flow`; `make` is given its number.
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

    /// Forgets the end that `flow` carried, and has the driver told of its connections.
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

    /// The number of the tunnel that `flow` carries.
    pub(super) fn number_of(&self, flow: u32) -> Option<u32> {
        let number = self.flows.iter().find(|(_, of)| **of == flow);
        number.map(|(number, _)| *number)
    }

    /// Forgets a connection, and has the driver told.
    pub(super) fn end_conn(&mut self, conn: ConnId, end: ConnEnd) {
        if self.conns.remove(conn) {
            self.work.push_back(TcpWork::Ended { conn, end });
        }
    }

    /// Whether `tenant` may have a connection more; counted where it may not.
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

    /// What all have counted, those that are no more among them.
    pub(super) fn stats(&self) -> TunnelStats {
        let ends = self.ends.values();
        ends.fold(self.past, |all, end| all.plus(end.tunnel.stats()))
    }

    /// The tunnel of a connection that the driver knows of, which is about to have something to say.
    pub(super) fn of_conn(&mut self, conn: ConnId) -> Option<&mut Tunnel> {
        if !self.conns.contains(conn) {
            return None;
        }
        let flow = *self.flows.get(&conn.tunnel)?;
        self.touched.insert(flow);
        Some(&mut self.ends.get_mut(&flow)?.tunnel)
    }

    /// The end that a connection belongs to.
    pub(super) fn end_of(&self, conn: ConnId) -> Option<&End> {
        self.ends.get(self.flows.get(&conn.tunnel)?)
    }

    /// The flow of the tunnel with `far` that players of one mode come in by here, or go out by.
    pub(super) fn with(&self, far: LinkId, of: (TunnelSide, Mode)) -> Option<u32> {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| end.far == far && (end.side, end.mode) == of)
            .map(|(flow, _)| *flow)
    }

    /// When a timer of a tunnel is next due.
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

    /// The flows of tunnels to exits that nobody has used for `idle`.
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

    /// The flows of all tunnels without a connection, for who takes its leave.
    pub(super) fn empty(&self) -> Vec<u32> {
        let ends = self.ends.iter();
        let empty = ends.filter(|(_, end)| end.tunnel.is_empty());
        empty.map(|(flow, _)| *flow).collect()
    }

    pub(super) fn game(&self, name: &str) -> Option<&Game> {
        self.games.iter().find(|game| game.name == name)
    }

    /// The game of an open port.
    pub(super) fn game_of(&self, port: TcpPort) -> Option<&Game> {
        let port = self.ports.get(&port)?;
        self.game(&port.game)
    }

    /// Carries these games from now on. Ports that are in both stay open; connections of a game that is
    /// another, or gone, are returned.
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

    /// Has the driver open all ports again, whatever it has shut since it was asked.
    pub(super) fn reopen_ports(&mut self, now: Instant) {
        for (&port, of) in &mut self.ports {
            if !matches!(of.state, PortState::Closed(_)) {
                self.work.push_back(TcpWork::Unlisten { port });
                of.state = PortState::Closed(now);
            }
        }
        self.open_ports(now);
    }

    /// Asks for the ports that are not open.
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

    /// Takes word of a port; returns its game and address.
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
