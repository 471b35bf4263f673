//! Flows of this node: of players at an entry, of upstream sockets at an exit.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use wire::token_bucket::{Fill, Level};
use wire::{Generator, Instant, Lookup, NetworkKey};

use super::datagram_queue::{DatagramQueue, QUEUED_BYTES_MAX, UnlabelledDatagrams};
use super::path_labels::LabelRetry;
use crate::flow_key::{FlowId, FlowOpener, FlowSealer};
use crate::game::Mode;
use crate::hop::LabelName;
use crate::link::LinkId;
use crate::peer_addr::{PeerAddr, SocketId};
use crate::pieces::Joiner;
use crate::reply_budget::{Exchange, ProofState};

#[derive(Debug)]
pub(super) struct Flow<A> {
    pub(super) id: FlowId,
    /// The other end.
    pub(super) remote: LinkId,
    pub(super) game: usize,
    /// The player's address as the entry sees it.
    pub(super) player: SocketAddr,
    pub(super) mode: Mode,
    /// `None` if both ends are this node.
    pub(super) keys: Option<(FlowSealer<A>, FlowOpener<A>)>,
    pub(super) joiner: Joiner,
    pub(super) side: Side,
    /// Datagrams for the remote end while the flow has no label.
    pub(super) unlabelled: UnlabelledDatagrams,
    pub(super) labels: Vec<LabelName>,
    /// When a datagram last passed in either direction.
    pub(super) used: Instant,
    /// Limiter of bytes to the remote end, or to the server of a local flow; `None` if full.
    pub(super) rate: Option<Level>,
    /// When labels may be requested for it.
    pub(super) label_retry: LabelRetry,
    /// Its position among the unproved flows, set by the table; `None` once the player is proved.
    pub(super) unproved: Option<u64>,
}

impl<A> Flow<A> {
    pub(super) fn new(
        now: Instant,
        (remote, id): (LinkId, FlowId),
        (game, player, mode): (usize, SocketAddr, Mode),
        keys: Option<(FlowSealer<A>, FlowOpener<A>)>,
        side: Side,
    ) -> Self {
        Self {
            id,
            remote,
            game,
            player,
            mode,
            keys,
            joiner: Joiner::new(),
            side,
            unlabelled: UnlabelledDatagrams::new(now),
            labels: Vec::new(),
            used: now,
            rate: None,
            label_retry: LabelRetry::new(now),
            unproved: None,
        }
    }

    /// Whether a datagram to the remote end is within `rate` bytes a second; if so, counts it.
    /// Tunnels are limited by their label's rate.
    pub(super) fn takes(&mut self, now: Instant, rate: u32, len: usize) -> bool {
        #[cfg(feature = "tcp")]
        if matches!(self.side, Side::Tunnel(_)) {
            return true;
        }
        take_bytes(&mut self.rate, now, rate, len)
    }

    /// The same for a datagram of a local flow's server.
    pub(super) fn takes_from_server(&mut self, now: Instant, rate: u32, len: usize) -> bool {
        let upstream = self.side.upstream_mut();
        upstream.is_some_and(|upstream| take_bytes(&mut upstream.rate_to_player, now, rate, len))
    }

    const fn owner(&self) -> FlowOwner {
        if self.side.is_opened_here() {
            FlowOwner::Own
        } else {
            FlowOwner::Entry(self.remote)
        }
    }

    /// The network of its player; `None` if it carries many players.
    fn prefix(&self) -> Option<NetworkKey> {
        let is_of_player = self.side.is_of_player();
        is_of_player.then(|| NetworkKey::of(self.player.ip()))
    }

    pub(super) const fn is_proved(&self) -> bool {
        self.unproved.is_none()
    }
}

/// Takes `len` bytes from a limiter of `rate` bytes a second, with a burst of 250 ms.
fn take_bytes(level: &mut Option<Level>, now: Instant, rate: u32, len: usize) -> bool {
    let burst = rate / 4;
    let fill = Fill { rate, burst };
    let level = level.get_or_insert_with(|| Level::full(fill, now));
    level.take(fill, now, u32::try_from(len).unwrap_or(u32::MAX))
}

/// Where the player of a flow is: owners share the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlowOwner {
    /// This node's game ports.
    Own,
    /// Another entry; this node is the exit.
    Entry(LinkId),
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowCounts {
    flows: u32,
    unproved: usize,
}

/// Where a new flow gets its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewSlot {
    Free,
    /// After this unproved flow has ended.
    After(u32),
}

/// Flows by index, player, socket and id.
pub(super) struct FlowTable<A> {
    slots: Vec<Option<Flow<A>>>,
    free: VecDeque<u32>,
    taken: u32,
    max: u32,
    /// By socket, remote address and player: a proxy may send for several players from one port.
    by_player: Lookup<(PeerAddr, SocketAddr), u32>,
    by_socket: Lookup<SocketId, u32>,
    by_id: BTreeMap<(LinkId, FlowId), u32>,
    /// Unproved flows by owner, the oldest first.
    unproved: BTreeMap<(FlowOwner, u64), u32>,
    /// At most one entry per neighbour, and one for this node.
    held: BTreeMap<FlowOwner, FlowCounts>,
    /// Flows by owner and network of the player; no entry is 0. Another entry may forge addresses.
    prefixes: BTreeMap<(FlowOwner, NetworkKey), u32>,
    next_unproved: u64,
    unproved_max: usize,
}

impl<A> FlowTable<A> {
    pub(super) fn new((max, unproved_max): (u32, u32), generator: &mut Generator) -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            taken: 0,
            // The upper half of the indices is for probe flows.
            max: max.min(PROBE_FLOWS),
            by_player: Lookup::new(generator),
            by_socket: Lookup::new(generator),
            by_id: BTreeMap::new(),
            unproved: BTreeMap::new(),
            held: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            next_unproved: 0,
            unproved_max: usize::try_from(unproved_max.min(max)).unwrap_or(usize::MAX),
        }
    }

    /// Adds a flow; returns it if the table is full.
    pub(super) fn insert(&mut self, mut flow: Flow<A>) -> Result<u32, Box<Flow<A>>> {
        if self.taken >= self.max {
            return Err(Box::new(flow));
        }
        let next = || u32::try_from(self.slots.len()).ok();
        let Some(index) = self.free.pop_front().or_else(next) else {
            return Err(Box::new(flow));
        };
        let owner = flow.owner();
        flow.unproved = Some(self.next_unproved);
        self.unproved.insert((owner, self.next_unproved), index);
        let held = self.held.entry(owner).or_default();
        held.flows = held.flows.saturating_add(1);
        held.unproved = held.unproved.saturating_add(1);
        self.next_unproved = self.next_unproved.saturating_add(1);
        self.by_id.insert((flow.remote, flow.id), index);
        if let Some(prefix) = flow.prefix() {
            let held = self.prefixes.entry((owner, prefix)).or_default();
            *held = held.saturating_add(1);
        }
        if let Some(player) = flow.side.player_mut() {
            self.by_player
                .insert((player.peer_addr, flow.player), index);
        }
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        if place == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(flow);
        }
        self.taken = self.taken.saturating_add(1);
        Ok(index)
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Flow<A>> {
        let mut flow = self.slots.get_mut(usize::try_from(index).ok()?)?.take()?;
        self.by_id.remove(&(flow.remote, flow.id));
        let owner = flow.owner();
        if let Some(place) = flow.unproved {
            self.remove_unproved(owner, place);
        }
        if let Some(prefix) = flow.prefix() {
            self.remove_prefix(owner, prefix);
        }
        if let Some(held) = self.held.get_mut(&owner) {
            held.flows = held.flows.saturating_sub(1);
            if held.flows == 0 {
                self.held.remove(&owner);
            }
        }
        if let Some(player) = flow.side.player_mut() {
            self.by_player.remove(&(player.peer_addr, flow.player));
        }
        let upstream = flow.side.upstream_mut();
        if let Some(socket) = upstream.and_then(|upstream| upstream.socket) {
            self.by_socket.remove(&socket);
        }
        self.free.push_back(index);
        self.taken = self.taken.saturating_sub(1);
        Some(flow)
    }

    pub(super) fn on_proved(&mut self, index: u32) {
        let Some(flow) = self.get_mut(index) else {
            return;
        };
        if let (owner, Some(place)) = (flow.owner(), flow.unproved.take()) {
            self.remove_unproved(owner, place);
        }
    }

    fn remove_unproved(&mut self, owner: FlowOwner, place: u64) {
        self.unproved.remove(&(owner, place));
        if let Some(held) = self.held.get_mut(&owner) {
            held.unproved = held.unproved.saturating_sub(1);
        }
    }

    pub(super) fn oldest_unproved(
        &self,
        owner: FlowOwner,
        holds: impl Fn(&Flow<A>) -> bool,
    ) -> Option<u32> {
        let unproved = self.unproved.range((owner, 0)..=(owner, u64::MAX));
        let mut unproved = unproved.map(|(_, index)| *index);
        unproved.find(|index| self.get(*index).is_some_and(&holds))
    }

    fn remove_prefix(&mut self, owner: FlowOwner, prefix: NetworkKey) {
        if let Some(held) = self.prefixes.get_mut(&(owner, prefix)) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.prefixes.remove(&(owner, prefix));
            }
        }
    }

    /// Whether a new player must be rejected: at least half of the slots are taken, and the
    /// player's network has its share of them.
    pub(super) fn is_share_held(&self, owner: FlowOwner, player: SocketAddr) -> bool {
        let held = self.prefixes.get(&(owner, NetworkKey::of(player.ip())));
        let share = (self.max / OTHERS_SHARE).max(PREFIX_MIN);
        self.taken >= self.max / 2 && held.is_some_and(|held| *held >= share)
    }

    /// The slot for another flow of `owner`; `None` if it must be rejected.
    ///
    /// Another entry gets at most seven eighths of all slots; beyond that, its own oldest unproved
    /// flow has to end. If all slots, or all slots of unproved flows, are taken, that of the owner
    /// with the most unproved flows has to end.
    pub(super) fn slot_for(&self, owner: FlowOwner) -> Option<NewSlot> {
        let held = |owner| self.held.get(&owner).copied().unwrap_or_default();
        let is_over_share = owner != FlowOwner::Own
            && held(owner).flows >= self.max.saturating_sub(self.max / OTHERS_SHARE);
        let is_full = self.taken >= self.max || self.unproved.len() >= self.unproved_max;
        let evicted = if is_over_share {
            owner
        } else if is_full {
            let with_newcomer = |of| {
                let newcomer = usize::from(of == owner);
                held(of).unproved.saturating_add(newcomer)
            };
            let owners = self.held.iter().filter(|(_, held)| held.unproved > 0);
            let most = owners.map(|(of, _)| (with_newcomer(*of), *of == owner, *of));
            most.max().map(|(_, _, of)| of)?
        } else {
            return Some(NewSlot::Free);
        };
        self.oldest_unproved(evicted, |_| true).map(NewSlot::After)
    }

    /// Whether packets move to another path only after this flow has a label there.
    pub(super) fn is_wanted_everywhere(&self, now: Instant, remote: LinkId, id: FlowId) -> bool {
        let flow = self.of_id(remote, id).and_then(|index| self.get(index));
        id == FlowId::PROBE
            || flow.is_some_and(|flow| flow.is_proved() && flow.label_retry.from() <= now)
    }

    /// Sets the upstream socket of a flow; returns false if the flow has ended or already has one.
    pub(super) fn set_socket(&mut self, index: u32, opened: SocketId) -> bool {
        let flow = self.get_mut(index);
        let Some(upstream) = flow.and_then(|flow| flow.side.upstream_mut()) else {
            return false;
        };
        if upstream.socket.is_some() {
            return false;
        }
        upstream.socket = Some(opened);
        self.by_socket.insert(opened, index);
        true
    }

    pub(super) fn get(&self, index: u32) -> Option<&Flow<A>> {
        self.slots.get(usize::try_from(index).ok()?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Flow<A>> {
        self.slots.get_mut(usize::try_from(index).ok()?)?.as_mut()
    }

    pub(super) fn of_player(&self, peer_addr: PeerAddr, player: SocketAddr) -> Option<u32> {
        self.by_player.get(&(peer_addr, player)).copied()
    }

    pub(super) fn of_socket(&self, socket: SocketId) -> Option<u32> {
        self.by_socket.get(&socket).copied()
    }

    pub(super) fn by_id_mut(&mut self, remote: LinkId, id: FlowId) -> Option<&mut Flow<A>> {
        self.get_mut(self.of_id(remote, id)?)
    }

    pub(super) fn of_id(&self, remote: LinkId, id: FlowId) -> Option<u32> {
        self.by_id.get(&(remote, id)).copied()
    }

    /// Whether a flow has not ended; probe flows never end.
    pub(super) fn is_alive(&self, remote: LinkId, id: FlowId) -> bool {
        id == FlowId::PROBE || self.by_id.contains_key(&(remote, id))
    }

    /// The flows with one remote end, by id, and their indices.
    pub(super) fn with(&self, remote: LinkId) -> impl Iterator<Item = (u32, &Flow<A>)> {
        let flows = self
            .by_id
            .range((remote, FlowId(0))..=(remote, FlowId(u64::MAX)));
        flows.filter_map(|(_, index)| Some((*index, self.get(*index)?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Flow<A>)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(index, slot)| slot.as_ref().map(|flow| (index, flow)))
    }

    pub(super) const fn len(&self) -> u32 {
        self.taken
    }

    pub(super) fn memory(&self) -> usize {
        let taken = usize::try_from(self.taken).unwrap_or(usize::MAX);
        let parts = [
            (self.slots.capacity(), size_of::<Option<Flow<A>>>()),
            (self.held.len(), size_of::<(FlowOwner, FlowCounts)>()),
            (
                self.prefixes.len(),
                size_of::<(FlowOwner, NetworkKey, u32)>(),
            ),
            (taken, FLOW_HEAP),
        ];
        let bytes = parts.map(|(count, each)| count.saturating_mul(each));
        bytes.into_iter().fold(0, usize::saturating_add)
    }
}

/// The index that the labels of a remote end's probe flow lead to.
pub(super) const fn probe_flow(remote: LinkId) -> u32 {
    PROBE_FLOWS | remote.0 as u32
}

/// The remote end of the probe flow that a label leads to; `None` for any other flow.
pub(super) fn probe_link(index: u32) -> Option<LinkId> {
    let link = u16::try_from(index & !PROBE_FLOWS).ok().map(LinkId);
    link.filter(|_| index & PROBE_FLOWS != 0)
}

/// What a flow leads to at this node.
#[derive(Debug)]
pub(super) enum Side {
    Entry(PlayerEnd),
    /// A game server.
    Exit {
        upstream: Upstream,
        /// Requests and replies so far, which can prove that the player receives.
        exchange: Exchange,
    },
    /// A player and a game server: the flow is local and does not use the mesh.
    Local {
        player: PlayerEnd,
        upstream: Upstream,
    },
    /// A tunnel, which carries the TCP games of both nodes.
    #[cfg(feature = "tcp")]
    Tunnel(TunnelSide),
}

/// An entry's state for a flow's player.
#[derive(Debug)]
pub(super) struct PlayerEnd {
    /// The game's socket and the player's address.
    pub(super) peer_addr: PeerAddr,
    /// The local address that the player last sent to.
    pub(super) local: Option<IpAddr>,
    pub(super) proof: ProofState,
}

impl PlayerEnd {
    pub(super) const fn new(peer_addr: PeerAddr, proof: ProofState) -> Self {
        Self {
            peer_addr,
            local: None,
            proof,
        }
    }
}

impl Side {
    /// The player, if it is at this end.
    pub(super) const fn player_mut(&mut self) -> Option<&mut PlayerEnd> {
        match self {
            Self::Entry(player) | Self::Local { player, .. } => Some(player),
            Self::Exit { .. } => None,
            #[cfg(feature = "tcp")]
            Self::Tunnel(_) => None,
        }
    }

    /// The connection to the game server, if it is at this end.
    pub(super) const fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match self {
            Self::Exit { upstream, .. } | Self::Local { upstream, .. } => Some(upstream),
            Self::Entry { .. } => None,
            #[cfg(feature = "tcp")]
            Self::Tunnel(_) => None,
        }
    }

    /// Whether the flow belongs to one player; false for a tunnel.
    #[cfg_attr(
        not(feature = "tcp"),
        expect(clippy::unused_self, reason = "every flow is")
    )]
    pub(super) const fn is_of_player(&self) -> bool {
        #[cfg(feature = "tcp")]
        if let Self::Tunnel(_) = self {
            return false;
        }
        true
    }

    /// Whether this end opened the flow.
    pub(super) const fn is_opened_here(&self) -> bool {
        match self {
            Self::Entry { .. } | Self::Local { .. } => true,
            Self::Exit { .. } => false,
            #[cfg(feature = "tcp")]
            Self::Tunnel(side) => matches!(side, TunnelSide::Entry),
        }
    }
}

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) server: SocketAddr,
    /// `None` until the driver has opened it.
    pub(super) socket: Option<SocketId>,
    /// When the server last sent a datagram.
    pub(super) answered_at: Option<Instant>,
    /// Identifies the flow while this node runs: the number of the command that opens its socket.
    pub(super) serial: u64,
    /// Datagrams that wait for the socket.
    pub(super) waiting: DatagramQueue,
    /// Limiter of bytes to the player of a local flow; `None` if full.
    rate_to_player: Option<Level>,
}

impl Upstream {
    pub(super) fn new(server: SocketAddr, serial: u64) -> Self {
        Self {
            server,
            socket: None,
            answered_at: None,
            serial,
            waiting: DatagramQueue::default(),
            rate_to_player: None,
        }
    }
}

/// Which end of a tunnel this node is.
#[cfg(feature = "tcp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelSide {
    /// Players connect here.
    Entry,
    /// Connections to game servers leave here.
    Exit,
}

/// Labels that may lead to one flow, on its current and earlier paths.
pub(super) const FLOW_LABELS_MAX: usize = 32;
/// An exit keeps one eighth of its flow slots, and of its TCP connections, for other entries than
/// the largest one.
pub(super) const OTHERS_SHARE: u32 = 8;
/// Flows that one network may have in any case: a household, or a small provider.
const PREFIX_MIN: u32 = 64;
/// Set in the indices of probe flows.
const PROBE_FLOWS: u32 = 1 << 31;
/// Heap of a flow in the worst case: queued datagrams, pieces, keys, tables.
const FLOW_HEAP: usize = 2 * QUEUED_BYTES_MAX + (8 << 10) + (8 << 10);
