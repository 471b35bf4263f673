//! TCP tunnels of a node, their connections, and the listening ports.

use core::cmp::Reverse;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::tls::TlsIdentity;
use wire::{Instant, NetworkKey, SourceKey};

use super::entry::{LISTEN_AGAIN, is_dual};
use super::flow_table::OTHERS_SHARE;
use super::flow_table::TunnelSide;
use crate::game::{Game, Mode};
use crate::link::LinkId;
use crate::tcp::{TcpConfig, TcpPort, TcpWork};
use crate::tunnel::{ConnEnd, ConnId, Tunnel, TunnelConfig, TunnelEnd, TunnelStats};

pub(super) struct Tunnels {
    /// Without its games.
    pub(super) config: TcpConfig,
    pub(super) games: Vec<Game>,
    pub(super) identity: TlsIdentity,
    /// By flow.
    pub(super) ends: BTreeMap<u32, End>,
    /// Flows, by tunnel number.
    flows: BTreeMap<u32, u32>,
    pub(super) conns: Conns,
    ports: BTreeMap<TcpPort, Port>,
    pub(super) work: VecDeque<TcpWork>,
    /// Flows whose tunnels may have datagrams or events to poll.
    pub(super) touched: BTreeSet<u32>,
    pub(super) datagram: Vec<u8>,
    next_tunnel: u32,
    next_port: u32,
    /// Counters of removed tunnels, and those that are not per tunnel.
    past: TunnelStats,
    /// Next stream number at an exit; unique within this run of the node.
    pub(super) next_stream: u64,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) number: u32,
    pub(super) tunnel: Tunnel,
    pub(super) far: LinkId,
    pub(super) side: TunnelSide,
    mode: Mode,
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
    /// Not open; to be opened at this time.
    Closed(Instant),
    Opening,
    Open,
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

    /// Adds a tunnel end carried by `flow`; `make` creates the tunnel from its number.
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
            number,
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

    /// Removes the end that `flow` carries; the driver gets [`TcpWork::Ended`] for its connections.
    pub(super) fn remove(&mut self, flow: u32, end: TunnelEnd) {
        let Some(gone) = self.ends.remove(&flow) else {
            return;
        };
        self.past = self.past.plus(gone.tunnel.stats());
        self.touched.remove(&flow);
        self.flows.remove(&gone.number);
        for conn in self.conns.of_tunnel(gone.number) {
            self.end_conn(conn, ConnEnd::Lost(end));
        }
    }

    /// Removes a connection and queues [`TcpWork::Ended`].
    pub(super) fn end_conn(&mut self, conn: ConnId, end: ConnEnd) {
        if self.conns.remove(conn) {
            self.work.push_back(TcpWork::Ended { conn, end });
        }
    }

    /// Whether `tenant` may open another connection; counts a refusal if not.
    pub(super) fn has_slot(&mut self, tenant: Tenant) -> bool {
        if self.conns.has_slot(tenant) {
            return true;
        }
        let counter = match tenant {
            Tenant::Prefix(_) => &mut self.past.over_prefix,
            Tenant::Entry(_) => &mut self.past.over_share,
        };
        *counter = counter.saturating_add(1);
        false
    }

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

    pub(super) fn end_of(&self, conn: ConnId) -> Option<&End> {
        self.ends.get(self.flows.get(&conn.tunnel)?)
    }

    /// The flow of the tunnel to `far` with this side and mode.
    pub(super) fn with(&self, far: LinkId, of: (TunnelSide, Mode)) -> Option<u32> {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| end.far == far && (end.side, end.mode) == of)
            .map(|(flow, _)| *flow)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let dues = self.ends.values().map(|end| end.tunnel.poll_timeout());
        dues.flatten().min()
    }

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
        let port = self.ports.get(&port)?;
        self.game(&port.game)
    }

    /// Replaces the games; ports that both lists contain stay open. Returns the connections to
    /// games that changed or were removed.
    pub(super) fn set_games(&mut self, now: Instant, games: Vec<Game>) -> Vec<ConnId> {
        let old = core::mem::replace(&mut self.games, games);
        self.ports.retain(|&port, of| {
            let game = self.games.iter().find(|game| game.name == of.game);
            let entry = game.and_then(|game| game.entry.as_ref());
            let is_wanted = entry.is_some_and(|entry| entry.listen.contains(&of.address));
            if !is_wanted {
                self.work.push_back(TcpWork::Unlisten { port });
            }
            is_wanted
        });
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

    /// Records whether the driver could open a port; returns the port's game and address.
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

#[derive(Debug)]
pub(super) struct Conns {
    held: BTreeMap<ConnId, Held>,
    /// Slots in use by each tenant; none is zero, and they sum to `held.len()`.
    slots: BTreeMap<Tenant, u32>,
    max: u32,
    per_prefix_max: u32,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) tenant: Tenant,
    pub(super) source: SourceKey,
    pub(super) game: String,
    /// The rest of the PROXY header for the server, sent before the player's first byte.
    pub(super) outbound_header: Vec<u8>,
    /// When bytes last passed, or when the connection was accepted.
    pub(super) used: Instant,
    /// Whether the socket's peer has sent any byte.
    pub(super) has_sent: bool,
}

impl Held {
    fn is_idle(&self, now: Instant) -> bool {
        let after = if self.has_sent { IDLE } else { SILENT };
        now.saturating_since(self.used) >= after
    }
}

/// Tenants share the slots, each a socket of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tenant {
    /// Local players in this /24 or /48. If this node is also their exit, a connection uses two
    /// slots.
    Prefix(NetworkKey),
    /// Players of another entry, which states their addresses unverified.
    Entry(LinkId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleScope {
    Players,
    Tenant(Tenant),
    /// Those of one source in the tunnel with this number.
    Source(u32, SourceKey),
}

impl Conns {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let max = config.connections_max.min(TunnelConfig::PLAYERS_MAX);
        // A single address can always use its full limit.
        let of_an_address = config.tunnel.per_address_max.saturating_mul(2);
        Self {
            held: BTreeMap::new(),
            slots: BTreeMap::new(),
            max,
            per_prefix_max: TcpConfig::prefix_share(max).max(of_an_address),
        }
    }

    pub(super) fn has_slot(&self, tenant: Tenant) -> bool {
        let max = match tenant {
            Tenant::Prefix(_) => self.per_prefix_max,
            Tenant::Entry(_) => self.max.saturating_sub(self.max / OTHERS_SHARE),
        };
        self.slots.get(&tenant).is_none_or(|held| *held < max)
    }

    /// Whether at least three quarters of the slots are in use, so that idle connections are
    /// evicted.
    pub(super) fn is_scarce(&self) -> bool {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        held >= self.max.saturating_sub(self.max / 4)
    }

    /// The idle connection to evict: the oldest one of the tenant, or of another entry's source,
    /// with the most slots. Takes time linear in all connections.
    pub(super) fn idle(&self, now: Instant, of: IdleScope) -> Option<ConnId> {
        let is_meant = |conn: &ConnId, held: &Held| match of {
            IdleScope::Players => matches!(held.tenant, Tenant::Prefix(_)),
            IdleScope::Tenant(tenant) => held.tenant == tenant,
            IdleScope::Source(tunnel, source) => conn.tunnel == tunnel && held.source == source,
        };
        let mut by_source: BTreeMap<SourceKey, u32> = BTreeMap::new();
        if let IdleScope::Tenant(tenant @ Tenant::Entry(_)) = of {
            for held in self.held.values().filter(|held| held.tenant == tenant) {
                let count = by_source.entry(held.source).or_default();
                *count = count.saturating_add(1);
            }
        }
        let slots = |held: &Held| {
            let of_source = by_source.get(&held.source).copied();
            of_source.unwrap_or_else(|| self.slots.get(&held.tenant).copied().unwrap_or(0))
        };
        let held = self.held.iter();
        let idle = held.filter(|(conn, held)| is_meant(conn, held) && held.is_idle(now));
        let first = idle.min_by_key(|(conn, held)| (Reverse(slots(held)), held.used, **conn));
        first.map(|(conn, _)| *conn)
    }

    pub(super) fn on_delivered(&mut self, now: Instant, conn: ConnId) {
        if let Some(held) = self.held.get_mut(&conn) {
            held.used = now;
        }
    }

    pub(super) fn on_peer_data(&mut self, now: Instant, conn: ConnId) {
        if let Some(held) = self.held.get_mut(&conn) {
            (held.used, held.has_sent) = (now, true);
        }
    }

    pub(super) fn insert(&mut self, conn: ConnId, held: Held) {
        let slots = self.slots.entry(held.tenant).or_default();
        *slots = slots.saturating_add(1);
        let before = self.held.insert(conn, held);
        debug_assert!(before.is_none(), "a name that was given before");
    }

    /// Removes a connection; returns false if it is unknown.
    pub(super) fn remove(&mut self, conn: ConnId) -> bool {
        let Some(gone) = self.held.remove(&conn) else {
            return false;
        };
        if let Some(slots) = self.slots.get_mut(&gone.tenant) {
            *slots = slots.saturating_sub(1);
            if *slots == 0 {
                self.slots.remove(&gone.tenant);
            }
        }
        true
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Held> {
        self.held.get(&conn)
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Held> {
        self.held.get_mut(&conn)
    }

    pub(super) fn of_tunnel(&self, tunnel: u32) -> Vec<ConnId> {
        let conn = |number| ConnId { tunnel, number };
        let held = self.held.range(conn(0)..=conn(u64::MAX));
        held.map(|(conn, _)| *conn).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ConnId, &Held)> {
        self.held.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

/// Idle time after which a connection that has sent bytes may be evicted: longer than pauses during
/// play, in which clients send keepalives.
const IDLE: Duration = Duration::from_secs(60);
/// The same for a connection that has sent no bytes.
const SILENT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
