//! Sessions with nodes that are not reached directly: a neighbour relays their datagrams (a
//! detour).
//!
//! Datagrams to such a node are sent both directly and over the detour, and those received over it
//! are attributed to the node's address. The session drops the second copy. Probes test the direct
//! path alone; once they are answered, the detour ends.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Provider;
use udp_proto::SessionId;
use wire::{Arrival, Instant, NodeId, TokenBucket, Transmit};

use super::peers::{Contact, DETOUR_RATE, Peer};
use super::{Node, UNRELIABLE};
use crate::detour::{Detoured, ForwardHop};
use crate::hop::HopHeader;
use crate::link::LinkId;
use crate::measure::Health;

#[derive(Debug, Default)]
pub(super) struct Detours {
    pub(super) list: BTreeMap<LinkId, Detour>,
    /// Far ends that are needed and were dialed without success, and since when; in the future
    /// while a session restarts.
    pub(super) missing: BTreeMap<LinkId, Instant>,
    pub(super) exits: Vec<LinkId>,
    pub(super) exits_known: bool,
    /// Sessions that began over a detour, so that the packet size of their direct path is unknown.
    pub(super) unmeasured: BTreeMap<LinkId, SessionId>,
    /// The remote end of the relayed datagram that is being handled.
    pub(super) receiving_from: Option<LinkId>,
}

#[derive(Debug)]
pub(super) struct Detour {
    pub(super) relay: LinkId,
    /// Address of the remote end, as reported and unverified.
    pub(super) address: SocketAddr,
    /// When a packet of the remote end's session last arrived over it, or when it began.
    pub(super) received_at: Instant,
    pub(super) is_proved: bool,
    /// Bytes sent directly, since the address is unverified.
    direct: TokenBucket,
    /// Bytes sent over the relay.
    outbound: TokenBucket,
    /// Bytes sent over the relay while a path also carries the session.
    copies: TokenBucket,
    over_path: TokenBucket,
    /// Bytes received over the relay: twice the burst, since packets may have queued.
    inbound: TokenBucket,
    /// When the current or last pause of the relay began.
    paused_since: Instant,
    /// Nothing is sent over the relay until then.
    pub(super) paused_until: Instant,
    probes: u32,
}

impl Detours {
    /// Whether the datagram being handled is from `remote` and arrived over its detour.
    pub(super) fn is_via_relay(&self, remote: LinkId) -> bool {
        self.receiving_from == Some(remote)
    }

    pub(super) fn relay(&self, remote: LinkId) -> Option<LinkId> {
        self.list.get(&remote).map(|detour| detour.relay)
    }

    /// Restarts the silence timers after a stall of this node, in which packets waited for it.
    pub(super) fn on_stall(&mut self, now: Instant) {
        for detour in self.list.values_mut() {
            detour.received_at = now;
        }
    }

    /// Records the packet size check of a session; returns whether it measured the direct path.
    pub(super) fn on_size(&mut self, remote: LinkId, session: SessionId) -> bool {
        let is_direct = self
            .list
            .get(&remote)
            .is_none_or(|detour| !detour.is_proved);
        if !is_direct {
            self.unmeasured.insert(remote, session);
        }
        is_direct
    }

    /// Whether a detour uses this link or is being set up for it.
    pub(super) fn refers_to(&self, link: LinkId) -> bool {
        let mut list = self.list.iter();
        list.any(|(remote, detour)| *remote == link || detour.relay == link)
            || self.missing.contains_key(&link)
            || self.unmeasured.contains_key(&link)
    }

    /// Pauses the relay: its copies could hide that the direct path answers.
    pub(super) fn pause_relay(&mut self, now: Instant, remote: LinkId) {
        if let Some(detour) = self.list.get_mut(&remote) {
            detour.pause_relay(now, PAUSE);
        }
    }

    /// Whether the relay is paused, so that packets to `remote` may be lost.
    pub(super) fn is_paused(&self, now: Instant, remote: LinkId) -> bool {
        let detour = self.list.get(&remote);
        detour.is_some_and(|detour| now < detour.paused_until)
    }

    /// Counts a probe to a remote end; every fifth is sent only directly.
    pub(super) fn on_probe(&mut self, now: Instant, remote: LinkId) {
        if let Some(detour) = self.list.get_mut(&remote) {
            detour.probes = detour.probes.wrapping_add(1);
            if detour.probes.is_multiple_of(DIRECT_PROBE_EVERY) {
                detour.pause_relay(now, DIRECT_PROBE_PAUSE);
            }
        }
    }

    /// Whether a detour may start because a neighbour forwarded a packet. The neighbour can forge
    /// this, so half of the detours are reserved for remote ends needed here, and each neighbour
    /// may start few of the others.
    pub(super) fn may_start(&self, now: Instant, (remote, relay): (LinkId, LinkId)) -> bool {
        let is_renewing = self.missing.get(&remote).is_some_and(|since| now < *since);
        let unproved = self.list.values();
        let unproved = unproved.filter(|detour| detour.relay == relay && !detour.is_proved);
        !is_renewing && self.list.len() < DETOURS_MAX / 2 && unproved.count() < UNPROVED_MAX
    }

    pub(super) fn start(
        &mut self,
        now: Instant,
        remote: LinkId,
        (relay, address): (LinkId, SocketAddr),
    ) {
        let detour = Detour {
            relay,
            address,
            received_at: now,
            is_proved: false,
            direct: TokenBucket::new(DIRECT_RATE, DIRECT_RATE, now),
            outbound: TokenBucket::new(DETOUR_RATE, DETOUR_RATE, now),
            copies: TokenBucket::new(COPY_RATE, COPY_RATE * 2, now),
            over_path: TokenBucket::new(PATH_RATE, PATH_BURST, now),
            inbound: TokenBucket::new(DETOUR_RATE, DETOUR_RATE * 2, now),
            paused_since: now,
            paused_until: now,
            probes: 0,
        };
        self.list.insert(remote, detour);
    }
}

/// How a datagram of a session with a detour is sent, besides directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendVia {
    pub(super) path: Option<u8>,
    pub(super) relay: bool,
}

impl Detour {
    /// Chooses how `len` bytes are sent besides directly, and charges them.
    pub(super) fn send_via(&mut self, now: Instant, len: u32, path: Option<u8>) -> SendVia {
        let is_copy_due = path.is_none() || self.copies.take(now, len);
        let is_paused = now < self.paused_until;
        SendVia {
            path: path.filter(|_| !is_paused && self.over_path.take(now, len)),
            relay: is_copy_due && self.may_relay(now, len),
        }
    }

    pub(super) fn may_relay(&mut self, now: Instant, len: u32) -> bool {
        now >= self.paused_until && self.outbound.take(now, len)
    }

    /// Pauses the relay for `span`, at most 2.5 s of every 3.5 s.
    fn pause_relay(&mut self, now: Instant, span: Duration) {
        let is_paused = now < self.paused_until;
        if !is_paused && now.saturating_since(self.paused_until) >= PAUSE_GAP {
            self.paused_since = now;
        }
        if now.saturating_since(self.paused_since) < PAUSE_MAX {
            self.paused_until = self.paused_until.max(now + span);
        }
    }
}

impl<P: Provider> Node<P> {
    /// Also sends datagrams for an address over the paths and detours of the nodes there; returns
    /// whether to send them directly as well.
    pub(super) fn send_via_relay(
        &mut self,
        now: Instant,
        transmit: &Transmit<SocketAddr>,
        buf: &[u8],
    ) -> bool {
        let to = transmit.destination;
        let detours = self.detours.list.iter();
        let found = detours
            .filter(|(remote, detour)| detour.address == to && !self.owned_by_other(**remote, to));
        let found: Vec<LinkId> = found.map(|(remote, _)| *remote).collect();
        let cost = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let mut may_send = true;
        for remote in found {
            let node = self.peers.get(remote).map(|peer| peer.node);
            let path = self.path_for_session(now, remote);
            let (Some(node), Some(detour)) = (node, self.detours.list.get_mut(&remote)) else {
                continue;
            };
            may_send &= detour.direct.take(now, cost);
            let (relay, send_via) = (detour.relay, detour.send_via(now, cost, path));
            for datagram in transmit.datagrams(buf) {
                if let Some(path) = send_via.path {
                    self.send_session_over(now, (remote, path), datagram);
                }
                if send_via.relay {
                    self.relay_to(now, relay, (ForwardHop::First, node, datagram));
                }
            }
        }
        may_send
    }

    /// Whether an address belongs to a relay of detours, or to another neighbour that is reached. A
    /// node record may contain any address, and a detour to such a one could loop.
    fn owned_by_other(&self, remote: LinkId, address: SocketAddr) -> bool {
        let is_relay = |link| {
            let mut detours = self.detours.list.values();
            detours.any(|detour| detour.relay == link)
        };
        self.peers.up().any(|(link, _, up)| {
            let is_reached = link != remote && self.detours.relay(link).is_none();
            (is_reached || is_relay(link))
                && self.endpoint.peer_address(up.session) == Some(address)
        })
    }

    pub(super) fn on_detoured(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok(detoured) = Detoured::decode(message) else {
            self.count_malformed();
            return;
        };
        let is_done = match detoured.hop {
            ForwardHop::First => self.forward(now, link, detoured),
            ForwardHop::Second => self.recv_via_relay(now, link, detoured),
        };
        if !is_done {
            self.stats.detours_refused = self.stats.detours_refused.saturating_add(1);
        }
    }

    /// Forwards a datagram to a neighbour; returns false if this node may not.
    fn forward(&mut self, now: Instant, from: LinkId, detoured: Detoured<'_>) -> bool {
        let is_relay = self.is_relay() && !self.gossip.publisher().is_leaving();
        let Some(to) = self.peers.find(&detoured.node).filter(|to| *to != from) else {
            return false;
        };
        // Nothing is forwarded twice.
        let is_direct = |link| self.is_reached(link) && self.detours.relay(link).is_none();
        if !is_relay || !is_direct(from) || !is_direct(to) {
            return false;
        }
        let cost = u32::try_from(detoured.datagram.len()).unwrap_or(u32::MAX);
        let Some(peer) = self.peers.get_mut(from) else {
            return false;
        };
        if !peer.limits.relayed.take(now, cost) {
            return false;
        }
        let source = peer.node;
        self.relay_to(now, to, (ForwardHop::Second, source, detoured.datagram));
        self.stats.detoured = self.stats.detoured.saturating_add(1);
        true
    }

    /// Receives a relayed datagram of a remote node; returns false if it is rejected.
    fn recv_via_relay(&mut self, now: Instant, relay: LinkId, detoured: Detoured<'_>) -> bool {
        let first = detoured.datagram.first();
        let is_frame = first.is_none_or(|first| HopHeader::claims(*first));
        let remote = self
            .peers
            .find(&detoured.node)
            .filter(|remote| *remote != relay);
        let remote = remote.filter(|_| self.is_member(&detoured.node));
        let (Some(remote), None, false) = (remote, self.detours.receiving_from, is_frame) else {
            return false;
        };
        if !self.may_receive(now, remote, (relay, detoured.datagram)) {
            return false;
        }
        let address = if let Some(detour) = self.detours.list.get(&remote) {
            detour.address
        } else {
            let address = self
                .peers
                .get(remote)
                .and_then(|peer| self.address_of(peer));
            let may_start =
                self.detours.may_start(now, (remote, relay)) && !self.is_reached(remote);
            let Some(address) = address.filter(|_| may_start) else {
                return false;
            };
            self.detours.start(now, remote, (relay, address));
            address
        };
        let mut datagram = detoured.datagram.to_vec();
        let before = self.packets_received_from(remote);
        self.detours.receiving_from = Some(remote);
        let arrival = Arrival::from(address);
        self.endpoint.handle_datagram(now, arrival, &mut datagram);
        if self.packets_received_from(remote) > before
            && let Some(detour) = self.detours.list.get_mut(&remote)
        {
            // The remote node chose that relay; with different relays, both could be dead.
            (detour.relay, detour.received_at, detour.is_proved) = (relay, now, true);
        }
        self.pump(now);
        self.detours.receiving_from = None;
        true
    }

    /// Whether a relayed datagram is within the limit of its detour, or of the neighbour if it
    /// belongs to none of the neighbour's detours.
    fn may_receive(
        &mut self,
        now: Instant,
        remote: LinkId,
        (relay, datagram): (LinkId, &[u8]),
    ) -> bool {
        let len = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let detour = self.detours.list.get_mut(&remote);
        match detour.filter(|detour| detour.relay == relay) {
            Some(detour) => detour.inbound.take(now, len),
            None => self
                .peers
                .get_mut(relay)
                .is_some_and(|peer| peer.limits.received.take(now, len)),
        }
    }

    fn packets_received_from(&self, remote: LinkId) -> Option<u64> {
        let stats = self.endpoint.session_stats(self.peers.session(remote)?)?;
        Some(stats.packets_received)
    }

    fn relay_to(
        &mut self,
        now: Instant,
        link: LinkId,
        (hop, node, datagram): (ForwardHop, NodeId, &[u8]),
    ) {
        let detoured = Detoured {
            hop,
            node,
            datagram,
        };
        self.send_with(now, link, UNRELIABLE, |message| detoured.encode(message));
    }

    pub(super) fn run_detours(&mut self, now: Instant) {
        let wanted = self.remote_ends();
        self.detours
            .missing
            .retain(|remote, since| wanted.contains(remote) || now < *since);
        if wanted.iter().any(|remote| !self.is_reached(*remote)) {
            self.renew_routes(now);
        }
        for remote in wanted.iter().copied() {
            if self.is_reached(remote) {
                self.detours.missing.remove(&remote);
                continue;
            }
            // A node that is not being dialed may be full rather than unreachable.
            let delay = match self.peers.get(remote).map(|peer| &peer.contact) {
                None | Some(Contact::None) => continue,
                Some(Contact::Dialling(_)) => UNANSWERED_FOR,
                Some(Contact::Up(_)) => DEAD_FOR,
            };
            let since = *self.detours.missing.entry(remote).or_insert(now);
            let is_due = now.saturating_since(since) >= delay;
            if is_due && self.detours.relay(remote).is_none() {
                self.start_detour(now, remote);
            }
        }
        self.restart_unmeasured(now);
        let remote_ends: Vec<LinkId> = self.detours.list.keys().copied().collect();
        for remote in remote_ends {
            let received_at = self
                .detours
                .list
                .get(&remote)
                .map(|detour| detour.received_at);
            let silence = received_at.map_or(Duration::ZERO, |received_at| {
                now.saturating_since(received_at)
            });
            let is_forgotten = !wanted.contains(&remote) && silence >= FORGOTTEN;
            if is_forgotten || self.is_reached(remote) {
                self.detours.list.remove(&remote);
            } else {
                if self.peers.session(remote).is_some() {
                    self.on_dial(remote);
                }
                self.replace_relay(now, remote, silence);
            }
        }
    }

    fn replace_relay(&mut self, now: Instant, remote: LinkId, silence: Duration) {
        let relay = self.detours.relay(remote);
        let is_alive = relay.is_some_and(|relay| self.is_reached(relay));
        if (silence >= SILENT || !is_alive)
            && let Some(other) = self.choose_relay(remote, relay)
            && let Some(detour) = self.detours.list.get_mut(&remote)
        {
            (detour.relay, detour.received_at) = (other, now);
        }
    }

    fn start_detour(&mut self, now: Instant, remote: LinkId) {
        let address = self
            .peers
            .get(remote)
            .and_then(|peer| self.address_of(peer));
        if self.detours.list.len() < DETOURS_MAX
            && let Some(address) = address
            && let Some(relay) = self.choose_relay(remote, None)
        {
            self.detours.start(now, remote, (relay, address));
            if let Some(peer) = self.peers.get_mut(remote) {
                peer.next_dial = peer.next_dial.min(now);
            }
        }
    }

    pub(super) fn on_dial(&mut self, remote: LinkId) {
        let address = self
            .peers
            .get(remote)
            .and_then(|peer| self.address_of(peer));
        if let Some(detour) = self.detours.list.get_mut(&remote)
            && let Some(address) = address
        {
            detour.address = address;
        }
    }

    /// Restarts idle sessions that began over a detour, to measure the direct path once it answers.
    fn restart_unmeasured(&mut self, now: Instant) {
        let unmeasured: Vec<(LinkId, SessionId)> = self
            .detours
            .unmeasured
            .iter()
            .map(|(remote, session)| (*remote, *session))
            .collect();
        for (remote, session) in unmeasured {
            let is_idle = self.flows.with(remote).count() == 0 && !self.is_path_relay(remote);
            if self.peers.session(remote) != Some(session) {
                self.detours.unmeasured.remove(&remote);
            } else if is_idle && self.detours.relay(remote).is_none() {
                self.detours.unmeasured.remove(&remote);
                self.take_down(now, remote);
                self.close(now, session);
                self.detours.missing.insert(remote, now + RESTART_TIME);
            }
        }
    }

    fn is_path_relay(&self, link: LinkId) -> bool {
        let node = self.peers.get(link).map(|peer| peer.node);
        let others = self.path_sets.iter().filter(|(remote, _)| **remote != link);
        let mut paths = others.flat_map(|(_, path_set)| path_set.paths.iter());
        paths.any(|path| node.is_some_and(|node| path.path.relays.contains(&node)))
    }

    /// The remote ends of flows, and the exits that this node's players may use, which are
    /// collected once a second.
    fn remote_ends(&mut self) -> BTreeSet<LinkId> {
        if !self.detours.exits_known || self.ticks.is_multiple_of(10) {
            self.detours.exits_known = true;
            let exits = self.target_exits().into_iter();
            self.detours.exits = exits.filter_map(|exit| self.peers.find(&exit)).collect();
        }
        let flows = self.path_sets.keys().copied();
        flows.chain(self.detours.exits.iter().copied()).collect()
    }

    /// Whether the direct path to a node answers; before that is known, whether it has no detour.
    fn is_reached(&self, link: LinkId) -> bool {
        match self.peers.up_of(link).map(|up| up.prober.health()) {
            Some(Health::Up | Health::Degraded) => true,
            Some(Health::New) => self.detours.relay(link).is_none(),
            Some(Health::Dead) | None => false,
        }
    }

    fn address_of(&self, peer: &Peer) -> Option<SocketAddr> {
        match &peer.contact {
            Contact::Up(up) => self.endpoint.peer_address(up.session),
            Contact::None | Contact::Dialling(_) => peer.addresses().first().copied(),
        }
    }

    /// The neighbour with the lowest cost to a remote node. Relays of the active path are the last
    /// choice, so that the session does not fail with them.
    fn choose_relay(&self, remote: LinkId, but: Option<LinkId>) -> Option<LinkId> {
        let node = self.peers.get(remote)?.node;
        let graph = &self.known_routes.newest()?.graph;
        let (own, end) = (graph.index(&self.own)?, graph.index(&node)?);
        let path_set = self.path_sets.get(&remote);
        let in_use = path_set.and_then(|path_set| path_set.paths.active());
        let neighbours = self.peers.up().filter_map(|(link, peer, _)| {
            let index = graph.index(&peer.node)?;
            let cost = graph.link(own, index).plus(graph.link(index, end));
            let is_fit = link != remote
                && Some(link) != but
                && self.detours.relay(link).is_none()
                && graph.may_relay(index)
                && self.is_reached(link)
                && graph.link(own, index).is_routable()
                && graph.link(index, end).is_routable();
            let is_in_use = in_use.is_some_and(|path| path.path.relays.contains(&peer.node));
            is_fit.then_some((is_in_use, cost, peer.node, link))
        });
        neighbours.min().map(|(.., link)| link)
    }
}

/// Bytes per second over the relay while a path carries the session, to keep the detour verified.
const COPY_RATE: u32 = 8 << 10;
/// Bytes per second of a session over a path, and the burst: half of what a relay forwards for a
/// label by default, so that probes in the same flow are not dropped.
const PATH_RATE: u32 = 512 << 10;
const PATH_BURST: u32 = 96 << 10;
/// Bytes per second sent directly to a remote end during a detour; probes take a tenth of it.
const DIRECT_RATE: u32 = 16 << 10;
const UNPROVED_MAX: usize = 4;
pub(super) const DETOURS_MAX: usize = 64;
/// A round trip and one tick.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum duration of repeated pauses. With a final [`PAUSE`], it is less than [`SILENT`].
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Minimum time between two pauses: enough to send [`DETOUR_RATE`] bytes.
const PAUSE_GAP: Duration = Duration::from_secs(1);
/// Pause for a probe that may get no answer; later packets are not delayed.
const DIRECT_PROBE_PAUSE: Duration = Duration::from_millis(50);
const DIRECT_PROBE_EVERY: u32 = 5;
/// How long the direct path of a session may be dead before its detour begins.
const DEAD_FOR: Duration = Duration::from_secs(1);
/// The same for an unanswered dial: two round trips over the longest path.
const UNANSWERED_FOR: Duration = Duration::from_secs(3);
/// How long a session may take to restart before a detour begins.
const RESTART_TIME: Duration = Duration::from_secs(10);
/// Silence after which a detour takes another relay.
const SILENT: Duration = Duration::from_secs(3);
/// Silence after which a detour that this node does not need ends.
const FORGOTTEN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: LinkId = LinkId(1);

    fn begun(detours: &mut Detours, remote: u16, relay: u16) -> bool {
        let way = (LinkId(remote), LinkId(relay));
        let may = detours.may_start(Instant::ZERO, way);
        if may {
            let address = SocketAddr::from(([192, 0, 2, 1], remote));
            detours.start(Instant::ZERO, way.0, (way.1, address));
        }
        may
    }

    /// Returns how many bytes pass if `offered` bytes are tried in each of 1,000 ms.
    fn passed(mut may: impl FnMut(Instant, u32) -> bool, offered: u32) -> u32 {
        let passes = |ms: &u64| may(Instant::from_millis(*ms), offered);
        let times = (0..1_000).filter(passes).count();
        u32::try_from(times).unwrap() * offered
    }

    #[test]
    fn mesh_a1_bytes_over_a_detour_and_directly_meanwhile_are_limited() {
        let mut detours = Detours::default();
        assert!(begun(&mut detours, 1, 2));
        let detour = detours.list.get_mut(&FAR).unwrap();
        let direct = passed(|now, len| detour.direct.take(now, len), 1_000);
        assert!((31_000..=32_768).contains(&direct), "{direct}");
        let outbound = passed(|now, len| detour.may_relay(now, len), 1_000);
        assert!((128_000..=131_072).contains(&outbound), "{outbound}");
        let over_path = passed(
            |now, len| detour.send_via(now, len, Some(1)).path.is_some(),
            1_000,
        );
        assert!((600_000..=622_592).contains(&over_path), "{over_path}");
        let copies = |now, len| detour.send_via(now + PAUSE, len, Some(1)).relay;
        let copied = passed(copies, 1_000);
        assert!(copied <= 24_576, "{copied}");
        let inbound = passed(|now, len| detour.inbound.take(now, len), 1_000);
        assert!((193_000..=196_608).contains(&inbound), "{inbound}");
    }

    #[test]
    fn mesh_a1_a_detour_is_used_for_1_s_of_3500_ms_whatever_arrives() {
        let mut detours = Detours::default();
        assert!(begun(&mut detours, 1, 2));
        let detour = detours.list.get_mut(&FAR).unwrap();
        let carries = (10_000..45_000).filter(|ms| {
            let now = Instant::from_millis(*ms);
            detour.pause_relay(now, PAUSE);
            now >= detour.paused_until
        });
        let carries = carries.count();
        assert!((9_000..=10_020).contains(&carries), "{carries}");
    }

    #[test]
    fn mesh_a1_a_neighbours_forgeries_start_four_detours_and_all_start_half() {
        let mut detours = Detours::default();
        let begun_by = |detours: &mut Detours, relay: u16| {
            let remote = |number| relay * 100 + number;
            let begun = (0..10).filter(|number| begun(detours, remote(*number), relay));
            begun.count()
        };
        let counts: Vec<usize> = (1..12).map(|relay| begun_by(&mut detours, relay)).collect();
        assert_eq!(counts, [4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0]);
        assert_eq!(detours.list.len(), DETOURS_MAX / 2);
    }
}
