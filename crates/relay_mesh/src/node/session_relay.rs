//! Sessions with nodes that are not reached directly: a neighbour relays their datagrams (a
//! detour).
//!
//! The endpoint does not notice. Datagrams to such a node are sent directly and by the detour, and
//! those received by the detour are attributed to the node's address. The session drops the second
//! copy. Only the prober distinguishes them: its probes test the direct path alone. Once they are
//! answered, the detour ends.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::Provider;
use udp_proto::SessionId;
use wire::{Arrival, Instant, NodeId, Transmit};

use super::detours::DETOURS_MAX;
use super::peers::{Contact, Peer};
use super::{Node, UNRELIABLE};
use crate::detour::{DetourLeg, Detoured};
use crate::hop::HopHeader;
use crate::link::LinkId;
use crate::measure::Health;

impl<P: Provider> Node<P> {
    /// Also sends datagrams for an address over the paths and detours of the nodes there. Returns
    /// whether to send them directly as well.
    pub(super) fn send_via_relay(
        &mut self,
        now: Instant,
        transmit: &Transmit<SocketAddr>,
        buf: &[u8],
    ) -> bool {
        let to = transmit.destination;
        let detours = self.detours.list.iter();
        let found =
            detours.filter(|(far, detour)| detour.address == to && !self.owned_by_other(**far, to));
        let found: Vec<LinkId> = found.map(|(far, _)| *far).collect();
        let cost = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let mut may_go = true;
        for far in found {
            let node = self.peers.get(far).map(|peer| peer.node);
            let path = self.path_for_session(now, far);
            let (Some(node), Some(detour)) = (node, self.detours.list.get_mut(&far)) else {
                continue;
            };
            may_go &= detour.may_go_directly(now, cost);
            let (relay, ways) = (detour.relay, detour.ways(now, cost, path));
            for datagram in transmit.datagrams(buf) {
                if let Some(path) = ways.path {
                    self.send_session_over(now, (far, path), datagram);
                }
                if ways.relay {
                    self.pass(now, relay, (DetourLeg::First, node, datagram));
                }
            }
        }
        may_go
    }

    /// Whether an address belongs to a relay of detours, or to another neighbour that is reached.
    /// It then uses no detour, which could loop. A node record may contain any address.
    fn owned_by_other(&self, far: LinkId, address: SocketAddr) -> bool {
        let is_relay = |link| {
            let mut detours = self.detours.list.values();
            detours.any(|detour| detour.relay == link)
        };
        self.peers.up().any(|(link, _, up)| {
            let is_reached = link != far && self.detours.relay(link).is_none();
            (is_reached || is_relay(link))
                && self.endpoint.peer_address(up.session) == Some(address)
        })
    }

    /// Handles a detour message: forwards it, or receives it.
    pub(super) fn on_detoured(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok(detoured) = Detoured::decode(message) else {
            self.count_malformed();
            return;
        };
        let is_done = match detoured.leg {
            DetourLeg::First => self.pass_on(now, link, detoured),
            DetourLeg::Second => self.recv_via_relay(now, link, detoured),
        };
        if !is_done {
            self.stats.detours_refused = self.stats.detours_refused.saturating_add(1);
        }
    }

    /// Forwards a datagram to a neighbour. Returns false if this node may not.
    fn pass_on(&mut self, now: Instant, from: LinkId, detoured: Detoured<'_>) -> bool {
        let is_relay = self.is_relay() && !self.gossip.publisher().is_leaving();
        let Some(to) = self.peers.find(&detoured.node).filter(|to| *to != from) else {
            return false;
        };
        // A detour uses no further detour: nothing is forwarded twice.
        let is_direct = |link| self.is_reached(link) && self.detours.relay(link).is_none();
        if !is_relay || !is_direct(from) || !is_direct(to) {
            return false;
        }
        let cost = u32::try_from(detoured.datagram.len()).unwrap_or(u32::MAX);
        let Some(peer) = self.peers.get_mut(from) else {
            return false;
        };
        if !peer.detoured.take(now, cost) {
            return false;
        }
        let source = peer.node;
        self.pass(now, to, (DetourLeg::Second, source, detoured.datagram));
        self.stats.detoured = self.stats.detoured.saturating_add(1);
        true
    }

    /// Receives a relayed datagram of a remote node. Returns false if it is rejected.
    fn recv_via_relay(&mut self, now: Instant, relay: LinkId, detoured: Detoured<'_>) -> bool {
        let first = detoured.datagram.first();
        let is_frame = first.is_none_or(|first| HopHeader::claims(*first));
        let far = self.peers.find(&detoured.node).filter(|far| *far != relay);
        let far = far.filter(|_| self.is_member(&detoured.node));
        let (Some(far), None, false) = (far, self.detours.taking, is_frame) else {
            return false;
        };
        if !self.may_come(now, far, (relay, detoured.datagram)) {
            return false;
        }
        let address = if let Some(detour) = self.detours.list.get(&far) {
            detour.address
        } else {
            let address = self.peers.get(far).and_then(|peer| self.address_of(peer));
            let may_begin = self.detours.may_begin(now, (far, relay)) && !self.is_reached(far);
            let Some(address) = address.filter(|_| may_begin) else {
                return false;
            };
            self.detours.begin(now, far, (relay, address));
            address
        };
        let mut datagram = detoured.datagram.to_vec();
        let before = self.packets_of(far);
        self.detours.taking = Some(far);
        let arrival = Arrival::from(address);
        self.endpoint.handle_datagram(now, arrival, &mut datagram);
        if self.packets_of(far) > before
            && let Some(detour) = self.detours.list.get_mut(&far)
        {
            // The remote node chose that relay; with different relays, both could be dead.
            (detour.relay, detour.heard, detour.is_proved) = (relay, now, true);
        }
        self.pump(now);
        self.detours.taking = None;
        true
    }

    /// Whether a relayed datagram is within its limit: each detour has one, and each neighbour has
    /// one for datagrams that belong to none of its detours.
    fn may_come(&mut self, now: Instant, far: LinkId, (relay, datagram): (LinkId, &[u8])) -> bool {
        let len = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let detour = self.detours.list.get_mut(&far);
        match detour.filter(|detour| detour.relay == relay) {
            Some(detour) => detour.may_come(now, len),
            None => self
                .peers
                .get_mut(relay)
                .is_some_and(|peer| peer.passed.take(now, len)),
        }
    }

    /// Number of packets of a session that were decrypted.
    fn packets_of(&self, far: LinkId) -> Option<u64> {
        let stats = self.endpoint.session_stats(self.peers.session(far)?)?;
        Some(stats.packets_received)
    }

    fn pass(
        &mut self,
        now: Instant,
        link: LinkId,
        (leg, node, datagram): (DetourLeg, NodeId, &[u8]),
    ) {
        let mut message = Vec::with_capacity(datagram.len().saturating_add(64));
        let detoured = Detoured {
            leg,
            node,
            datagram,
        };
        detoured.encode(&mut message);
        self.send(now, link, UNRELIABLE, &message);
    }

    /// Begins and ends detours, and replaces relays that are gone.
    pub(super) fn run_detours(&mut self, now: Instant) {
        let wanted = self.far_ends();
        self.detours
            .missing
            .retain(|far, since| wanted.contains(far) || now < *since);
        if wanted.iter().any(|far| !self.is_reached(*far)) {
            self.renew_routes(now);
        }
        for far in wanted.iter().copied() {
            if self.is_reached(far) {
                self.detours.missing.remove(&far);
                continue;
            }
            // A node that is not being dialled may be full rather than unreachable.
            let patience = match self.peers.get(far).map(|peer| &peer.contact) {
                None | Some(Contact::None) => continue,
                Some(Contact::Dialling(_)) => PATIENCE_DIAL,
                Some(Contact::Up(_)) => PATIENCE,
            };
            let since = *self.detours.missing.entry(far).or_insert(now);
            let is_due = now.saturating_since(since) >= patience;
            if is_due && self.detours.relay(far).is_none() {
                self.begin_detour(now, far);
            }
        }
        self.renew_blind(now);
        let standing: Vec<LinkId> = self.detours.list.keys().copied().collect();
        for far in standing {
            let heard = self.detours.list.get(&far).map(|detour| detour.heard);
            let silence = heard.map_or(Duration::ZERO, |heard| now.saturating_since(heard));
            let is_forgotten = !wanted.contains(&far) && silence >= FORGOTTEN;
            if is_forgotten || self.is_reached(far) {
                self.detours.list.remove(&far);
            } else {
                if self.peers.session(far).is_some() {
                    self.on_dial(far);
                }
                self.mend_detour(now, far, silence);
            }
        }
    }

    /// Replaces a relay over which nothing arrives.
    fn mend_detour(&mut self, now: Instant, far: LinkId, silence: Duration) {
        let relay = self.detours.relay(far);
        let is_alive = relay.is_some_and(|relay| self.is_reached(relay));
        if (silence >= SILENT || !is_alive)
            && let Some(other) = self.choose_relay(far, relay)
            && let Some(detour) = self.detours.list.get_mut(&far)
        {
            (detour.relay, detour.heard) = (other, now);
        }
    }

    fn begin_detour(&mut self, now: Instant, far: LinkId) {
        let address = self.peers.get(far).and_then(|peer| self.address_of(peer));
        if self.detours.list.len() < DETOURS_MAX
            && let Some(address) = address
            && let Some(relay) = self.choose_relay(far, None)
        {
            self.detours.begin(now, far, (relay, address));
            if let Some(peer) = self.peers.get_mut(far) {
                peer.next_dial = peer.next_dial.min(now);
            }
        }
    }

    /// Updates a detour's address to that of the dial or session.
    pub(super) fn on_dial(&mut self, far: LinkId) {
        let address = self.peers.get(far).and_then(|peer| self.address_of(peer));
        if let Some(detour) = self.detours.list.get_mut(&far)
            && let Some(address) = address
        {
            detour.address = address;
        }
    }

    /// Ends sessions that began over a detour, once the remote node is reached and no flow needs
    /// them. The next session checks what the direct path carries.
    fn renew_blind(&mut self, now: Instant) {
        let blind: Vec<(LinkId, SessionId)> = self
            .detours
            .blind
            .iter()
            .map(|(far, session)| (*far, *session))
            .collect();
        for (far, session) in blind {
            let is_idle = self.flows.with(far).count() == 0 && !self.is_passed(far);
            if self.peers.session(far) != Some(session) {
                self.detours.blind.remove(&far);
            } else if is_idle && self.detours.relay(far).is_none() {
                self.detours.blind.remove(&far);
                self.take_down(now, far);
                self.close(now, session);
                // The next session must not use a detour.
                self.detours.missing.insert(far, now + RENEWING);
            }
        }
    }

    /// Whether a node is a relay of a path to another.
    fn is_passed(&self, link: LinkId) -> bool {
        let node = self.peers.get(link).map(|peer| peer.node);
        let others = self.path_sets.iter().filter(|(far, _)| **far != link);
        let mut paths = others.flat_map(|(_, path_set)| &path_set.paths);
        paths.any(|path| node.is_some_and(|node| path.path.relays.contains(&node)))
    }

    /// The other ends of flows, and the exits that this node's players may use.
    ///
    /// A document may allow many exits, so they are collected once a second, and when the games
    /// change.
    fn far_ends(&mut self) -> BTreeSet<LinkId> {
        if !self.detours.knows_exits || self.ticks.is_multiple_of(10) {
            self.detours.knows_exits = true;
            let exits = self.target_exits().into_iter();
            self.detours.exits = exits.filter_map(|exit| self.peers.find(&exit)).collect();
        }
        let flows = self.path_sets.keys().copied();
        flows.chain(self.detours.exits.iter().copied()).collect()
    }

    /// Whether the direct path to a node answers; before that is known, whether it has no detour.
    fn is_reached(&self, link: LinkId) -> bool {
        let contact = self.peers.get(link).map(|peer| &peer.contact);
        let Some(Contact::Up(up)) = contact else {
            return false;
        };
        match up.prober.health() {
            Health::Up | Health::Degraded => true,
            Health::New => self.detours.relay(link).is_none(),
            Health::Dead => false,
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
    fn choose_relay(&self, far: LinkId, but: Option<LinkId>) -> Option<LinkId> {
        let node = self.peers.get(far)?.node;
        let graph = &self.known_routes.newest()?.graph;
        let (own, end) = (graph.index(&self.own)?, graph.index(&node)?);
        let path_set = self.path_sets.get(&far);
        let in_use = path_set.and_then(|path_set| path_set.path(path_set.current?));
        let neighbours = self.peers.up().filter_map(|(link, peer, _)| {
            let index = graph.index(&peer.node)?;
            let cost = graph.link(own, index).plus(graph.link(index, end));
            let is_fit = link != far
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

/// How long the direct path of a session may be dead before its detour begins.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a dial may stay unanswered before a detour begins: two round trips over the longest
/// path.
const PATIENCE_DIAL: Duration = Duration::from_secs(3);
/// How long a session may take to restart before a detour begins.
const RENEWING: Duration = Duration::from_secs(10);
/// Silence of a detour after which it takes another relay.
const SILENT: Duration = Duration::from_secs(3);
/// Silence after which a detour that this node does not need ends.
const FORGOTTEN: Duration = Duration::from_secs(10);
