//! Exit side: an upstream socket for each flow, and PROXY headers to game servers. Also flows
//! that enter at this node.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_table::{Flow, FlowOwner, PlayerEnd, Side, Upstream};
use super::{Node, Pending};
use crate::event::{Command, Event, Outcome, TurnedAway};
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, FlowRefused};
use crate::game::{HeaderExtras, HeaderTiming, Mode, ServerHeader};
use crate::link::LinkId;
use crate::link_state::{Roles, ShortId};
use crate::peer_addr::PeerAddr;
use crate::pieces::DATAGRAM_MAX;
use crate::proxy_header::{
    Ends, Subject, Tlv, TlvKind, Transport, WriteError, is_like, write_block,
};
use crate::reply_budget::{Exchange, ProofState};

impl<P: Provider> Node<P> {
    pub(super) fn on_flow_open(
        &mut self,
        now: Instant,
        link: LinkId,
        (flow, player, game, mode): (FlowId, SocketAddr, &str, Option<Mode>),
    ) {
        let may_open = self.may_open(now, link);
        if may_open && self.flows.is_share_held(FlowOwner::Entry(link), player) {
            // After a refusal the entry would avoid this exit for its other players too.
            let reason = FlowEnd::Evicted;
            self.send_close(now, link, (flow, reason));
            self.stats.shares_held = self.stats.shares_held.saturating_add(1);
            let node = self.node_of(link);
            if let Some((game, ..)) = node.and_then(|node| self.admit(node, game)) {
                self.count_rejected(now, Some(game), TurnedAway::Share);
            }
            return;
        }
        let outcome = if may_open {
            self.accept_flow(now, link, (flow, player, game, mode))
        } else {
            Err(FlowRefused::Full)
        };
        if outcome.is_err() {
            self.report_opened(now, (link, flow), outcome);
        }
    }

    /// Whether an entry may open another flow now, for a player or a tunnel. If not, counts it.
    pub(super) fn may_open(&mut self, now: Instant, link: LinkId) -> bool {
        let peer = self.peers.get_mut(link);
        let may_open = peer.is_some_and(|peer| peer.limits.opens.take(now, 1));
        if !may_open {
            self.stats.opens_refused = self.stats.opens_refused.saturating_add(1);
        }
        may_open
    }

    /// Handles the result of opening a flow's upstream socket.
    pub(super) fn on_upstream(
        &mut self,
        now: Instant,
        (index, remote, id): (u32, LinkId, FlowId),
        outcome: Outcome,
    ) {
        let flow = self.flows.get(index);
        let is_same = flow.is_some_and(|flow| flow.remote == remote && flow.id == id);
        let Outcome::Opened(socket) = outcome else {
            if is_same {
                self.report_opened(now, (remote, id), Err(FlowRefused::NoSocket));
                self.end_flow(now, index, FlowEnd::Refused);
            }
            return;
        };
        if !is_same || !self.flows.set_socket(index, socket) {
            self.command(Command::Close { socket }, Pending::Close);
            return;
        }
        self.report_opened(now, (remote, id), Ok(()));
        let flow = self.flows.get_mut(index);
        let upstream = flow.and_then(|flow| flow.side.upstream_mut());
        let waiting = upstream.map(|upstream| upstream.waiting.take());
        for datagram in waiting.into_iter().flatten() {
            self.deliver_to_server(index, &datagram);
        }
    }

    /// Sends a datagram to the game server, or queues it until the socket is open.
    pub(super) fn deliver_to_server(&mut self, index: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let (game, player, entry) = (flow.game, flow.player, flow.remote);
        let Some(upstream) = flow.side.upstream_mut() else {
            return;
        };
        let silence = upstream.answered_at.map(|at| self.now.saturating_since(at));
        let (address, serial) = (upstream.server, upstream.serial);
        let Some(socket) = upstream.socket else {
            if !upstream.waiting.push(datagram) {
                self.stats.early_dropped = self.stats.early_dropped.saturating_add(1);
            }
            return;
        };
        if let Side::Exit { exchange, .. } = &mut flow.side
            && exchange.on_request()
        {
            self.on_proved(index);
        }
        let peer_addr = PeerAddr { socket, address };
        let state = HeaderState {
            player,
            entry,
            serial,
        };
        let game = self.games.get(game);
        let exit = game.and_then(|game| game.exit.as_ref());
        let header = exit.and_then(|exit| exit.header);
        match header.filter(|header| header.is_due(silence, datagram)) {
            Some(header) => self.push_with_header(peer_addr, (header, state), datagram),
            None => self.push_out((peer_addr, None), datagram),
        }
    }

    /// Handles a datagram from an upstream socket.
    pub(super) fn on_server_datagram(
        &mut self,
        now: Instant,
        peer_addr: PeerAddr,
        datagram: &[u8],
    ) {
        let index = self.flows.of_socket(peer_addr.socket);
        let flow = index.and_then(|index| self.flows.get_mut(index));
        let side = flow.map(|flow| &mut flow.side);
        let is_server = |upstream: &&mut Upstream| upstream.server == peer_addr.address;
        let upstream = side.and_then(Side::upstream_mut).filter(is_server);
        let (Some(index), Some(upstream)) = (index, upstream) else {
            self.stats.strangers = self.stats.strangers.saturating_add(1);
            return;
        };
        upstream.answered_at = Some(now);
        match self.flows.get_mut(index).map(|flow| &mut flow.side) {
            Some(Side::Exit { exchange, .. }) => {
                exchange.on_reply();
                self.carry(now, index, datagram);
            }
            _ => self.carry_to_player(now, index, datagram),
        }
    }

    fn accept_flow(
        &mut self,
        now: Instant,
        link: LinkId,
        (id, player, game, mode_of_entry): (FlowId, SocketAddr, &str, Option<Mode>),
    ) -> Result<(), FlowRefused> {
        let node = self.node_of(link).ok_or(FlowRefused::Policy)?;
        if !self.takes_new_flows(now) {
            return Err(FlowRefused::Policy);
        }
        let Some((game, server, mode)) = self.admit(node, game) else {
            self.count_refused_game(now, node, game);
            return Err(FlowRefused::Policy);
        };
        // The entry's mode applies to both directions.
        let mode = mode_of_entry.unwrap_or(mode);
        // If the driver does not answer, pending commands must not accumulate.
        if self.has_overdue_sockets() {
            return Err(FlowRefused::Full);
        }
        if !self.ensure_path_set(now, link) {
            return Err(FlowRefused::Policy);
        }
        let path_set = self.path_sets.get_mut(&link);
        if !path_set.is_some_and(|path_set| path_set.accept_remote_id(now, id)) {
            return Err(FlowRefused::BadId);
        }
        let keys = self.flow_keys(link, id).ok_or(FlowRefused::Policy)?;
        // Last, since it may end another flow.
        if !self.make_room(now, FlowOwner::Entry(link)) {
            self.count_rejected(now, Some(game), TurnedAway::Share);
            return Err(FlowRefused::Full);
        }
        let side = Side::Exit {
            upstream: Upstream::new(server, self.next_command),
            exchange: Exchange::NEW,
        };
        let flow = Flow::new(now, (link, id), (game, player, mode), Some(keys), side);
        let index = self.insert_flow(flow).ok_or(FlowRefused::Full)?;
        self.command(Command::Open { server }, Pending::Upstream(index, link, id));
        self.paths_dirty = true;
        self.deliver_early(now, link, id);
        Ok(())
    }

    /// The game of that name, if this node serves it and `node` may send players.
    pub(super) fn admit(&self, node: NodeId, name: &str) -> Option<(usize, SocketAddr, Mode)> {
        let mut games = self.games.iter().enumerate();
        let (index, game) = games.find(|(_, game)| game.name == name && game.exit.is_some())?;
        let exit = game.exit.as_ref()?;
        let may_send = self.may_send_players(&node, name, exit.entries.as_ref());
        may_send.then_some((index, exit.server, game.mode))
    }

    /// Whether `node` may send players of a game to this node, which accepts only `entries`.
    pub(super) fn may_send_players(
        &self,
        node: &NodeId,
        game: &str,
        entries: Option<&BTreeSet<NodeId>>,
    ) -> bool {
        self.may_act_as(node, &[Roles::ENTRY])
            && entries.is_none_or(|entries| entries.contains(node))
            && self.document().is_none_or(|document| {
                document.may_enter(game, node) && document.may_exit(game, &self.own)
            })
    }

    /// Opens a flow from a local player to a local server.
    pub(super) fn begin_local(
        &mut self,
        now: Instant,
        (peer_addr, player, game): (PeerAddr, SocketAddr, usize),
        proof: ProofState,
    ) -> Option<u32> {
        let admitted = self.admit(self.own, &self.game_name(game));
        let Some((_, server, mode)) = admitted.filter(|_| !self.has_overdue_sockets()) else {
            self.budget.on_end(&proof);
            return None;
        };
        let id = self.next_local_id();
        let upstream = Upstream::new(server, self.next_command);
        let player_end = PlayerEnd::new(peer_addr, proof);
        let side = Side::Local {
            player: player_end,
            upstream,
        };
        let flow = Flow::new(now, (LinkId::OWN, id), (game, player, mode), None, side);
        let index = self.insert_flow(flow)?;
        let pending = Pending::Upstream(index, LinkId::OWN, id);
        self.command(Command::Open { server }, pending);
        Some(index)
    }

    /// Adds a flow and reports it. If there is no room, releases what its end holds.
    pub(super) fn insert_flow(&mut self, flow: Flow<P::Aead>) -> Option<u32> {
        let (remote, game, player) = (flow.remote, flow.game, flow.player);
        let index = self.flows.insert(flow);
        let index = index
            .map_err(|mut flow| self.remove_side(&mut flow.side))
            .ok()?;
        if let Some(remote_end) = self.node_of(remote) {
            let game = self.game_name(game);
            self.emit(Event::FlowOpened {
                game,
                player,
                remote_end,
            });
        }
        Some(index)
    }

    /// The node at the other end of a flow; this node for a local flow.
    pub(super) fn node_of(&self, remote: LinkId) -> Option<NodeId> {
        if remote == LinkId::OWN {
            return Some(self.own);
        }
        self.peers.get(remote).map(|peer| peer.node)
    }

    pub(super) const fn next_local_id(&mut self) -> FlowId {
        let next = &mut self.ports.last_local;
        *next = next.saturating_add(1);
        FlowId(*next)
    }

    /// Whether too many sockets are pending. This bounds memory if the driver does not answer.
    pub(super) fn has_overdue_sockets(&self) -> bool {
        let flows = usize::try_from(self.config.flows_max).unwrap_or(usize::MAX);
        self.pending.len() >= flows.saturating_mul(2)
    }

    /// Forwards a datagram of a player to a local server.
    pub(super) fn carry_to_server(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        if self.takes_local(now, index, datagram.len(), Flow::takes) {
            self.deliver_to_server(index, datagram);
        }
    }

    /// Forwards a datagram of a server to a local player.
    pub(super) fn carry_to_player(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        if self.takes_local(now, index, datagram.len(), Flow::takes_from_server) {
            self.deliver_to_player(now, index, datagram);
        }
    }

    /// Reports the outcome of opening a flow's socket to its entry, or to this node.
    pub(super) fn report_opened(
        &mut self,
        now: Instant,
        (remote, id): (LinkId, FlowId),
        outcome: Result<(), FlowRefused>,
    ) {
        if remote == LinkId::OWN {
            let index = self.flows.of_id(remote, id);
            if let Some(game) = index.and_then(|index| Some(self.flows.get(index)?.game)) {
                self.ports.on_opened(now, (game, remote), outcome);
            }
        } else {
            let opened = FlowMessage::Opened { flow: id, outcome };
            let is_sent = self.send_flow_message(now, remote, &opened);
            if !is_sent && outcome.is_err() {
                self.send_close(now, remote, (id, FlowEnd::Refused));
            }
        }
    }

    /// Whether a datagram is within the flow's rate and the mesh's maximum length.
    fn takes_local(
        &mut self,
        now: Instant,
        index: u32,
        len: usize,
        takes: fn(&mut Flow<P::Aead>, Instant, u32, usize) -> bool,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        flow.used = now;
        let game = Some(flow.game);
        if !takes(flow, now, self.config.flow_rate, len) {
            self.stats.over_flow_rate = self.stats.over_flow_rate.saturating_add(1);
            self.count_rejected(now, game, TurnedAway::FlowRate);
            return false;
        }
        let fits = len <= DATAGRAM_MAX;
        if !fits {
            self.stats.too_big = self.stats.too_big.saturating_add(1);
            self.count_rejected(now, game, TurnedAway::TooLong);
        }
        fits
    }

    /// Queues a datagram to a server, with a header before it.
    pub(super) fn push_with_header(
        &mut self,
        peer_addr: PeerAddr,
        (header, state): (ServerHeader, HeaderState),
        datagram: &[u8],
    ) {
        let subject = Subject::Flow(Ends {
            transport: Transport::Datagram,
            source: state.player,
            destination: peer_addr.address,
        });
        let run = self.config.instance.0.to_be_bytes();
        let session = [run, state.serial.to_be_bytes()];
        let mut nodes = [0; NODES_MAX * NODE_LEN];
        let mut tlvs = [Tlv {
            kind: TlvKind::NOOP,
            value: &[],
        }; 2];
        let mut count: usize = 0;
        let mut add = |kind, value| {
            if let Some(place) = tlvs.get_mut(count) {
                *place = Tlv { kind, value };
                count = count.saturating_add(1);
            }
        };
        if header.extras.contains(HeaderExtras::SESSION_ID) {
            add(TlvKind::SESSION_ID, session.as_flattened());
        }
        if header.extras.contains(HeaderExtras::NODES) {
            add(TlvKind::NODES, self.path_node_ids(state.entry, &mut nodes));
        }
        let tlvs = tlvs.get(..count).unwrap_or_default();
        self.push_written((peer_addr, None), |out| {
            write_block(&subject, tlvs, header.extras.checksum(), out)?;
            out.extend_from_slice(datagram);
            Ok::<_, WriteError>(())
        });
    }

    /// Writes the short ids of the nodes between a player and this exit, the entry first.
    pub(super) fn path_node_ids<'a>(
        &self,
        entry: LinkId,
        place: &'a mut [u8; NODES_MAX * NODE_LEN],
    ) -> &'a [u8] {
        let path_set = self.path_sets.get(&entry);
        let path = path_set.and_then(|path_set| path_set.paths.active());
        let relays: &[NodeId] = path.map_or(&[], |path| &path.path.relays);
        let first = self.peers.get(entry).map(|peer| peer.node);
        // The local path leads from this exit to the entry.
        let nodes = first
            .into_iter()
            .chain(relays.iter().rev().copied().take(NODES_MAX - 2))
            .chain([self.own]);
        let mut len: usize = 0;
        for (place, node) in place.chunks_exact_mut(NODE_LEN).zip(nodes) {
            place.copy_from_slice(&ShortId::from(node).0);
            len = len.saturating_add(NODE_LEN);
        }
        place.get(..len).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderState {
    /// The player's address at the entry.
    pub(super) player: SocketAddr,
    pub(super) entry: LinkId,
    pub(super) serial: u64,
}

impl ServerHeader {
    /// Whether `datagram` needs a header. `silence` is the time since the server's last datagram,
    /// `None` before the first.
    pub(super) fn is_due(self, silence: Option<Duration>, datagram: &[u8]) -> bool {
        match self.timing {
            HeaderTiming::Each => true,
            // A player's data that looks like a header must not be the first that the server reads.
            HeaderTiming::First => {
                silence.is_none_or(|silence| silence > SERVER_SILENCE) || is_like(datagram)
            }
        }
    }
}

/// Silence after which a server may have forgotten a flow's player.
const SERVER_SILENCE: Duration = Duration::from_secs(2);
/// Entry, three relays, exit.
pub(super) const NODES_MAX: usize = 5;
/// Bytes of each node id.
pub(super) const NODE_LEN: usize = 8;
