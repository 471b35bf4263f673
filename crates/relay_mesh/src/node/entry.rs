//! Entry side: game ports, players, and the PROXY headers that name them.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NetworkKey};

use super::flow_table::{Flow, FlowOwner, PlayerEnd, Side};
use super::{Node, Pending};
use crate::event::{Command, Event, Outcome, TurnedAway};
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowRefused};
use crate::game::Game;
use crate::link::LinkId;
use crate::peer_addr::{PeerAddr, SocketId, is_single_host};
use crate::proxy_header::{HeaderPolicy, LEN_USUAL, TrustedProxies, read_datagram};
use crate::reply_budget::{ProofState, UnprovedLimits};

/// The listening ports of all games.
#[derive(Debug, Default)]
pub(super) struct Ports {
    list: Vec<Port>,
    /// Until when an exit that refused a flow of a game gets no other.
    refused: BTreeMap<(usize, LinkId), Instant>,
    /// When `Event::NoExit` was last emitted for a game; at most one entry per game.
    unreachable: BTreeMap<usize, Instant>,
    /// Id of the newest local flow.
    pub(super) last_local: u64,
}

#[derive(Debug)]
struct Port {
    game: usize,
    address: SocketAddr,
    state: PortState,
    /// Whether the next attempt leaves out IPv4, since another program may hold the port there.
    leaves_ipv4_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortState {
    /// To be opened at this time.
    Closed(Instant),
    /// The driver is opening it.
    Opening,
    Open(SocketId),
    /// The driver is opening it, but no game uses it any more.
    Leaving,
    /// No game uses it; the entry may be reused.
    Gone,
}

impl Ports {
    pub(super) fn new(games: &[Game], now: Instant) -> Self {
        let mut ports = Self::default();
        for (game, of) in games.iter().enumerate() {
            for &address in of.entry.iter().flat_map(|entry| &entry.listen) {
                ports.add(now, game, address);
            }
        }
        ports
    }

    /// Makes `listen` the ports of `game`; returns the sockets to close.
    pub(super) fn set(
        &mut self,
        now: Instant,
        game: usize,
        listen: &[SocketAddr],
    ) -> Vec<SocketId> {
        let mut closed = Vec::new();
        for port in self.list.iter_mut().filter(|port| port.game == game) {
            if listen.contains(&port.address) {
                continue;
            }
            port.state = match port.state {
                PortState::Opening | PortState::Leaving => PortState::Leaving,
                PortState::Closed(_) | PortState::Gone => PortState::Gone,
                PortState::Open(socket) => {
                    closed.push(socket);
                    PortState::Gone
                }
            };
        }
        for &address in listen {
            self.add(now, game, address);
        }
        self.refused.retain(|(of, _), _| *of != game);
        self.unreachable.remove(&game);
        closed
    }

    fn add(&mut self, now: Instant, game: usize, address: SocketAddr) {
        let is_it = |port: &&mut Port| port.game == game && port.address == address;
        if let Some(port) = self.list.iter_mut().find(is_it) {
            match port.state {
                PortState::Leaving => port.state = PortState::Opening,
                PortState::Gone => port.state = PortState::Closed(now),
                PortState::Closed(_) | PortState::Opening | PortState::Open(_) => {}
            }
            return;
        }
        let port = Port {
            game,
            address,
            state: PortState::Closed(now),
            leaves_ipv4_out: false,
        };
        let mut list = self.list.iter_mut();
        match list.find(|port| port.state == PortState::Gone) {
            Some(place) => *place = port,
            None => self.list.push(port),
        }
    }

    pub(super) fn on_opened(
        &mut self,
        now: Instant,
        (game, exit): (usize, LinkId),
        outcome: Result<(), FlowRefused>,
    ) {
        if outcome.is_ok() {
            self.refused.remove(&(game, exit));
        } else {
            // The exit may be gone, or its game.
            self.refused
                .retain(|_, until| now.saturating_since(*until) < REFUSED_KEPT);
            self.refused.insert((game, exit), now + REFUSED);
        }
    }

    /// Whether an exit may be asked for a flow of a game: after a refusal, once per [`REFUSED`].
    pub(super) fn may_ask(&self, now: Instant, game: usize, exit: LinkId) -> bool {
        let refused = self.refused.get(&(game, exit));
        refused.is_none_or(|until| *until <= now)
    }

    /// Records that an exit is asked.
    pub(super) fn on_asked(&mut self, now: Instant, game: usize, exit: LinkId) {
        if let Some(until) = self.refused.get_mut(&(game, exit)) {
            *until = now + REFUSED;
        }
    }

    /// Whether to report now that no exit of a game is reachable. If so, records the time.
    pub(super) fn is_unreachable_news(&mut self, now: Instant, game: usize) -> bool {
        let emitted_at = self.unreachable.get(&game);
        let is_news = emitted_at.is_none_or(|at| *at + NO_EXIT_INTERVAL <= now);
        if is_news {
            self.unreachable.insert(game, now);
        }
        is_news
    }

    /// The game that listens on a socket.
    fn game(&self, socket: SocketId) -> Option<usize> {
        let mut list = self.list.iter();
        let port = list.find(|port| port.state == PortState::Open(socket));
        port.map(|port| port.game)
    }
}

/// Whether a socket bound to `address` also receives IPv4: it is `[::]`, and no IPv4 address in
/// `used` needs the port.
pub(super) fn is_dual(address: SocketAddr, used: &[SocketAddr]) -> bool {
    let is_other = |used: &SocketAddr| used.ip().to_canonical().is_ipv4();
    let mut same_port = used.iter().filter(|used| used.port() == address.port());
    address.is_ipv6() && address.ip().is_unspecified() && !same_port.any(is_other)
}

impl<P: Provider> Node<P> {
    /// Asks the driver to open the ports that are due.
    pub(super) fn open_ports(&mut self, now: Instant) {
        let used = self.ports.list.iter();
        let used: Vec<SocketAddr> = used
            .filter(|port| port.state != PortState::Gone)
            .map(|port| port.address)
            .collect();
        let mut wanted = Vec::new();
        for (index, port) in self.ports.list.iter_mut().enumerate() {
            if matches!(port.state, PortState::Closed(due) if due <= now) {
                port.state = PortState::Opening;
                wanted.push((index, port.address, port.leaves_ipv4_out));
            }
        }
        for (index, address, leaves_ipv4_out) in wanted {
            let is_dual = is_dual(address, &used) && !leaves_ipv4_out;
            self.command(Command::Listen { address, is_dual }, Pending::Port(index));
        }
    }

    pub(super) fn on_port(&mut self, now: Instant, index: usize, outcome: Outcome) {
        let Some(port) = self.ports.list.get_mut(index) else {
            return;
        };
        if matches!(port.state, PortState::Leaving | PortState::Gone) {
            port.state = PortState::Gone;
            if let Outcome::Opened(socket) = outcome {
                self.command(Command::Close { socket }, Pending::Close);
            }
            return;
        }
        let (game, address) = (port.game, port.address);
        if let Outcome::Opened(socket) = outcome {
            port.state = PortState::Open(socket);
            let game = self.game_name(game);
            self.emit(Event::Listening { game, address });
            return;
        }
        port.leaves_ipv4_out = is_dual(address, &[]) && !port.leaves_ipv4_out;
        if port.leaves_ipv4_out {
            port.state = PortState::Closed(now);
            self.open_ports(now);
            return;
        }
        port.state = PortState::Closed(now + LISTEN_AGAIN);
        let game = self.game_name(game);
        self.emit(Event::ListenFailed { game, address });
    }

    /// Handles a datagram from a game port or an upstream socket.
    pub(super) fn on_game_datagram(
        &mut self,
        now: Instant,
        (peer_addr, local): (PeerAddr, Option<IpAddr>),
        datagram: &[u8],
    ) {
        if let Some(game) = self.ports.game(peer_addr.socket) {
            self.on_player_datagram(now, (peer_addr, local), game, datagram);
        } else {
            self.on_server_datagram(now, peer_addr, datagram);
        }
    }

    /// Sends a datagram to a player, if the limits for unproved sources allow it.
    pub(super) fn deliver_to_player(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let flow = self.flows.get_mut(index);
        let Some(player) = flow.and_then(|flow| flow.side.player_mut()) else {
            return;
        };
        if !self.budget.allows(now, &mut player.proof, datagram.len()) {
            self.stats.over_reply_budget = self.stats.over_reply_budget.saturating_add(1);
            return;
        }
        let way = (player.peer_addr, player.local);
        self.push_out(way, datagram);
    }

    pub(super) fn remove_side(&mut self, side: &mut Side) {
        if let Some(player) = side.player_mut() {
            self.budget.on_end(&player.proof);
        }
        let upstream = side.upstream_mut();
        if let Some(socket) = upstream.and_then(|upstream| upstream.socket) {
            self.command(Command::Close { socket }, Pending::Close);
        }
    }

    /// Handles an exit's answer to a flow. Ignores it if this node did not open the flow.
    pub(super) fn on_opened(
        &mut self,
        now: Instant,
        (exit, flow): (LinkId, FlowId),
        outcome: Result<(), FlowRefused>,
    ) {
        let index = self.flows.of_id(exit, flow);
        let flow = index.and_then(|index| self.flows.get(index));
        let is_ours = |flow: &&Flow<_>| flow.side.is_opened_here();
        let (Some(index), Some(flow)) = (index, flow.filter(is_ours)) else {
            return;
        };
        self.ports.on_opened(now, (flow.game, exit), outcome);
        if outcome.is_err() {
            self.count_rejected_flow(now, index, TurnedAway::Refused);
            self.end_flow(now, index, FlowEnd::Refused);
        }
    }

    fn on_player_datagram(
        &mut self,
        now: Instant,
        (peer_addr, local): (PeerAddr, Option<IpAddr>),
        game: usize,
        datagram: &[u8],
    ) {
        let Some(proxied) = self.take_header((&peer_addr, game), datagram) else {
            return;
        };
        let newcomer = (peer_addr, proxied.player, game);
        let open = || self.open_flow(now, newcomer, proxied.named_by);
        let index = proxied.flow.map_or_else(open, Ok);
        if let Err(Some(why)) = index {
            self.count_rejected(now, Some(game), why);
        }
        let index = index.ok();
        let Some((index, flow)) = index.and_then(|index| Some((index, self.flows.get_mut(index)?)))
        else {
            self.stats.refused_players = self.stats.refused_players.saturating_add(1);
            return;
        };
        let is_local = matches!(flow.side, Side::Local { .. });
        if let Some(player) = flow.side.player_mut() {
            player.local = local;
            if self.budget.on_request(&mut player.proof) {
                self.on_proved(index);
            }
        }
        if is_local {
            self.carry_to_server(now, index, proxied.datagram);
        } else {
            self.carry(now, index, proxied.datagram);
        }
    }

    /// Opens a flow for a new player through the cheapest reachable exit. `Err(None)` needs no
    /// report.
    ///
    /// The source address may be forged, so cheap checks come first, and exits are looked up only
    /// while openings are left. All games share the openings.
    fn open_flow(
        &mut self,
        now: Instant,
        (peer_addr, player, game): (PeerAddr, SocketAddr, usize),
        named_by: NamedBy,
    ) -> Result<u32, Option<TurnedAway>> {
        let source = (game, player);
        let is_named = named_by == NamedBy::Proxy;
        if self.flows.is_share_held(FlowOwner::Own, player) {
            return Err(Some(TurnedAway::Share));
        }
        if !is_named && self.budget.is_rate_spent(now, source) {
            return Err(Some(TurnedAway::Ration));
        }
        if !self.takes_new_flows(now) {
            return Err(None);
        }
        if !self.newcomers.holds(now, 1) {
            return Err(Some(TurnedAway::Rate));
        }
        // A missing exit has an event of its own.
        let remote = self.best_exit(now, game).ok_or(None)?;
        let has_way = remote == LinkId::OWN || self.ensure_path_set(now, remote);
        if !has_way {
            return Err(None);
        }
        if !self.newcomers.take(now, 1) {
            return Err(Some(TurnedAway::Rate));
        }
        if !is_named && self.budget.is_full(source) {
            let prefix = NetworkKey::of(player.ip());
            let oldest = self.flows.oldest_unproved(FlowOwner::Own, |flow| {
                flow.game == game && NetworkKey::of(flow.player.ip()) == prefix
            });
            self.close_flow(now, oldest.ok_or(TurnedAway::Ration)?, FlowEnd::Evicted);
            self.count_rejected(now, Some(game), TurnedAway::Ration);
        }
        if !self.make_room(now, FlowOwner::Own) {
            return Err(Some(TurnedAway::Share));
        }
        self.ports.on_asked(now, game, remote);
        let proof = if is_named {
            ProofState::named_by_proxy(now, source)
        } else {
            let limits = self.ration_limits(game);
            let proof = self.budget.admit(now, source, limits);
            proof.ok_or(TurnedAway::Ration)?
        };
        let begun = if remote == LinkId::OWN {
            self.begin_local(now, (peer_addr, player, game), proof)
        } else {
            self.begin_flow(now, remote, (peer_addr, player, game), proof)
        };
        begun.ok_or(None)
    }

    fn ration_limits(&self, game: usize) -> UnprovedLimits {
        let game = self.games.get(game);
        let limits = game.and_then(|game| self.config.unproved_limits.get(&game.name));
        limits.copied().unwrap_or_default()
    }

    fn begin_flow(
        &mut self,
        now: Instant,
        remote: LinkId,
        (peer_addr, player, game): (PeerAddr, SocketAddr, usize),
        proof: ProofState,
    ) -> Option<u32> {
        let mode = self.games.get(game)?.mode;
        let id = self.path_sets.get_mut(&remote)?.take_flow_id(now);
        let keys = self.flow_keys(remote, id);
        let path_set = self.path_sets.get(&remote);
        if keys.is_none() || !path_set.is_some_and(|path_set| path_set.opens.has_room()) {
            self.budget.on_end(&proof);
            return None;
        }
        let side = Side::Entry(PlayerEnd::new(peer_addr, proof));
        let flow = Flow::new(now, (remote, id), (game, player, mode), keys, side);
        let index = self.insert_flow(flow)?;
        if let Some(path_set) = self.path_sets.get_mut(&remote) {
            path_set.opens.push(id);
        }
        self.send_opens(now, remote);
        self.paths_dirty = true;
        Some(index)
    }

    /// Removes the header of a datagram if the game's port is behind proxies; `None` to drop it.
    ///
    /// A proxy must write a header before each datagram, whatever [`HeaderPolicy`] says; otherwise
    /// a player could write one. Each player address at each port of a proxy has its own flow, so
    /// forged datagrams of a proxy neither take over nor block another flow.
    pub(super) fn take_header<'a>(
        &mut self,
        (peer_addr, game): (&PeerAddr, usize),
        datagram: &'a [u8],
    ) -> Option<ProxiedDatagram<'a>> {
        let game = self.games.get(game);
        let trusted = game.and_then(|game| self.config.proxies.get(&game.name));
        let (player, datagram) = match trusted {
            None => (peer_addr.address, datagram),
            Some(trusted) => {
                let proxied = read(trusted, peer_addr.address, datagram);
                if proxied.is_none() {
                    self.stats.headers_refused = self.stats.headers_refused.saturating_add(1);
                }
                proxied?
            }
        };
        Some(ProxiedDatagram {
            flow: self.flows.of_player(*peer_addr, player),
            player,
            named_by: if player == peer_addr.address {
                NamedBy::Source
            } else {
                NamedBy::Proxy
            },
            datagram,
        })
    }
}

/// The source of a player's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    /// The datagram's source address, which can be forged.
    Source,
    /// The header of a trusted proxy; replies go to the proxy.
    Proxy,
}

/// A datagram at a game's port, without its header.
#[derive(Debug)]
pub(super) struct ProxiedDatagram<'a> {
    /// Its flow; `None` for a new one.
    pub(super) flow: Option<u32>,
    pub(super) player: SocketAddr,
    pub(super) named_by: NamedBy,
    pub(super) datagram: &'a [u8],
}

/// The player's address and the payload; `None` if the header is not accepted.
fn read<'a>(
    trusted: &TrustedProxies,
    peer: SocketAddr,
    datagram: &'a [u8],
) -> Option<(SocketAddr, &'a [u8])> {
    let header = read_datagram(datagram, LEN_USUAL).ok()?;
    let judged = trusted.judge_by(HeaderPolicy::Required, peer.ip(), header.as_ref());
    let player = judged.ok()?.map_or(peer, |ends| ends.source);
    let proxied = datagram.get(header.map_or(0, |header| header.len)..)?;
    // The game server receives this address and may send to it.
    is_single_host(player).then_some((player, proxied))
}

/// How long an exit that refused a flow of a game gets no other.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a refusal is kept if the exit is not asked again.
const REFUSED_KEPT: Duration = Duration::from_secs(60);
/// Least time between two `NoExit` events of a game.
const NO_EXIT_INTERVAL: Duration = Duration::from_secs(10);
/// Wait after a port of a game, UDP or TCP, could not be opened: at most twelve reports a minute.
pub(super) const LISTEN_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u1_a_port_on_all_ipv6_addresses_receives_ipv4_unless_ipv4_has_it() {
        let used = [
            "[::]:7",
            "0.0.0.0:8",
            "[::]:8",
            "[::1]:9",
            "192.0.2.1:10",
            "[::]:10",
        ];
        let used = used.map(|address| address.parse().unwrap());
        let are_dual = used.map(|address| is_dual(address, &used));
        assert_eq!(are_dual, [true, false, false, false, false, false]);
    }

    #[test]
    fn refusals_of_exits_are_forgotten_once_unused() {
        let at = Instant::from_millis;
        let mut ports = Ports::new(&[], at(0));
        let refuse = |ports: &mut Ports, millis, exit| {
            let refused = Err(FlowRefused::Policy);
            ports.on_opened(at(millis), (0, LinkId(exit)), refused);
        };
        for exit in 0..100 {
            refuse(&mut ports, 0, exit);
        }
        ports.on_asked(at(50_000), 0, LinkId(7));
        refuse(&mut ports, 61_000, 100);
        assert_eq!(ports.refused.len(), 2);
        assert!(!ports.may_ask(at(61_000), 0, LinkId(100)));
        // One flow a second until the exit accepts one, or was not asked for a minute.
        assert!(ports.may_ask(at(62_000), 0, LinkId(100)));
        ports.on_asked(at(62_000), 0, LinkId(100));
        assert!(!ports.may_ask(at(62_000), 0, LinkId(100)));
    }
}
