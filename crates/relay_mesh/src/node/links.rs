//! Sessions with neighbours: dialing, received messages, probes.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Provider, Role};
use udp_proto::{
    CloseCode, ConnectFailure, Credentials, Event as SessionEvent, Mtu, Proof, ServerIdentity,
    SessionId, Target,
};
use wire::{Instant, NodeId};

use super::dialling::Ending;
use super::peers::{Contact, Up};
use super::{Node, RELIABLE, UNRELIABLE};
use crate::event::Event;
use crate::flow_message::flow_code;
use crate::hop::HopKind;
use crate::link::LinkId;
use crate::link_state::Message;
use crate::link_terms::{LinkTerms, Packing};
use crate::measure::{Echo, Probe, ProbeRate, Prober};
use crate::message::code;
use crate::peer_addr::is_single_host;

impl<P: Provider> Node<P> {
    pub(super) fn register_bootstrap(&mut self, now: Instant) {
        for (node, address) in self.config.bootstrap.nodes.clone() {
            if node == self.own {
                continue;
            }
            if let Some(link) = self.register_peer(now, node)
                && let Some(peer) = self.peers.get_mut(link)
            {
                peer.bootstrap.push(address);
            }
        }
    }

    /// Registers live nodes as peers, and updates addresses from their records.
    pub(super) fn learn_peers(&mut self, now: Instant) {
        self.selecting.has_news = false;
        let live = self.gossip.table().live_profiles();
        let is_unknown = |node: &NodeId| *node != self.own && self.peers.find(node).is_none();
        let new: Vec<NodeId> = live.map(|(node, _)| node).filter(is_unknown).collect();
        for node in new {
            self.register_peer(now, node);
        }
        let own = &self.config.profile.addresses;
        for (node, profile) in self.gossip.table().live_profiles() {
            let Some(link) = self.peers.find(&node) else {
                continue;
            };
            let learned = profile.addresses.iter().copied();
            let learned = || learned.clone().filter(|at| may_be_dialled(own, *at));
            if let Some(peer) = self.peers.get_mut(link)
                && !peer.learned.iter().copied().eq(learned())
            {
                peer.learned = learned().collect();
            }
        }
    }

    /// Handles all session events; returns whether there were any.
    pub(super) fn pump(&mut self, now: Instant) -> bool {
        let mut has_news = false;
        while let Some(event) = self.endpoint.poll_event() {
            has_news = true;
            self.paths_dirty = true;
            match event {
                SessionEvent::Connected { session, peer } => {
                    if let Proof::Node(node) = peer.proof {
                        self.on_connected(now, session, node);
                    } else {
                        self.close(now, session);
                    }
                }
                SessionEvent::Readable { session } => self.on_readable(now, session),
                SessionEvent::MtuChecked { session, mtu } => self.on_size(session, mtu),
                SessionEvent::ConnectFailed { session, failure } => {
                    self.on_failed_dial(now, session, failure);
                }
                SessionEvent::Closed {
                    session, reason, ..
                } => self.on_closed(now, session, reason.into()),
                // The mesh tracks no message, and messages over the rate wait.
                SessionEvent::Settled { .. } | SessionEvent::RateChanged { .. } | _ => {}
            }
        }
        has_news
    }

    /// Sends due probes; returns when the next one is due, at most `latest`.
    pub(super) fn run_probers(&mut self, now: Instant, latest: Instant) -> Instant {
        let mut next = latest;
        let mut ready: Vec<LinkId> = Vec::new();
        for (link, _, up) in self.peers.up() {
            let due = up.prober.poll_timeout();
            if due <= now {
                ready.push(link);
            } else {
                next = next.min(due);
            }
        }
        for link in ready {
            let is_used = self.sends_over(link);
            let Some(up) = self.peers.up_mut(link) else {
                continue;
            };
            let pace = if is_used {
                ProbeRate::InUse
            } else {
                ProbeRate::Idle
            };
            up.prober.set_pace(now, pace);
            up.prober.handle_timeout(now);
            while let Some(probe) = self
                .peers
                .up_mut(link)
                .and_then(|up| up.prober.poll_probe(now))
            {
                self.detours.on_probe(now, link);
                self.send_with(now, link, UNRELIABLE, |message| probe.encode(message));
            }
            if let Some(up) = self.peers.up_mut(link) {
                next = next.min(up.prober.poll_timeout());
            }
        }
        next
    }

    pub(super) fn on_probe(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        self.stats.probes = self.stats.probes.saturating_add(1);
        match Probe::decode(message) {
            Ok(_) if self.detours.is_via_relay(link) => {}
            Ok(probe) => {
                self.detours.pause_relay(now, link);
                self.send_with(now, link, UNRELIABLE, |echo| Echo(probe).encode(echo));
            }
            Err(_) => self.count_malformed(),
        }
    }

    pub(super) fn on_echo(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        self.stats.probes = self.stats.probes.saturating_add(1);
        let (Ok(echo), Some(up)) = (Echo::decode(message), self.peers.up_mut(link)) else {
            self.count_malformed();
            return;
        };
        if !self.detours.is_via_relay(link) {
            up.prober.handle_echo(now, echo);
            self.detours.pause_relay(now, link);
        }
    }

    fn register_peer(&mut self, now: Instant, node: NodeId) -> Option<LinkId> {
        let is_new = self.peers.find(&node).is_none();
        let link = self.peers.intern(now, node)?;
        if is_new
            && node < self.own
            && let Some(peer) = self.peers.get_mut(link)
        {
            // If two nodes learn of each other at once, the one with the lower id dials first.
            peer.next_dial = now + SECOND_DIALLER;
        }
        Some(link)
    }

    pub(super) fn dial(&mut self, now: Instant, link: LinkId) {
        self.stats.dials = self.stats.dials.saturating_add(1);
        let Some(peer) = self.peers.get(link) else {
            return;
        };
        let target = Target {
            addresses: peer.addresses(),
            server: ServerIdentity::Node(peer.node),
            credentials: Credentials::Peer,
        };
        self.on_dial(link);
        match self.endpoint.connect(now, target) {
            Ok(session) => {
                self.peers.set_contact(link, Contact::Dialling(session));
            }
            Err(_) => self.back_off(now, link),
        }
    }

    /// Random delay of a dial, so that nodes that started together do not dial in step.
    pub(super) fn dial_spread(&mut self) -> Duration {
        Duration::from_millis(self.generator.below(250))
    }

    pub(super) fn back_off(&mut self, now: Instant, link: LinkId) {
        let spread = self.dial_spread();
        if let Some(peer) = self.peers.get_mut(link) {
            peer.back_off(now, spread);
        }
    }

    fn on_connected(&mut self, now: Instant, session: SessionId, node: NodeId) {
        // Of two sessions with the node, the endpoint has closed one by now.
        if !self.endpoint.sessions().any(|open| open == session) {
            return;
        }
        if !self.is_member(&node) {
            self.count_non_member(now);
            self.close_with(now, session, CloseCode::PeerIdentity);
            return;
        }
        let Some(link) = self.assign_link(now, node) else {
            self.stats.links_refused = self.stats.links_refused.saturating_add(1);
            self.close_with(now, session, CloseCode::Full);
            return;
        };
        match self.peers.get(link).map(|peer| &peer.contact) {
            Some(Contact::Up(_)) => self.take_down(now, link),
            // An own dial that continued would replace the session.
            Some(&Contact::Dialling(dial)) if dial != session => self.close(now, dial),
            Some(Contact::Dialling(_) | Contact::None) | None => {}
        }
        if !self.make_link(link, session) {
            self.close(now, session);
            return;
        }
        let is_unknown = self.is_unknown(&node);
        let address = self.endpoint.peer_address(session);
        let prober = self.prober_for(now, link, address);
        self.peers.set_contact(
            link,
            Contact::Up(Box::new(Up {
                session,
                since: now,
                chosen_at: is_unknown.then_some(now),
                prober,
                carries: false,
                is_small: false,
            })),
        );
        self.known_routes.on_change();
        let is_ours = self.endpoint.role(session) == Some(Role::Dialler);
        let reached = self.endpoint.peer_address(session).filter(|_| is_ours);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.refused_until = None;
            peer.reached = reached.or(peer.reached);
        }
        if let Some(address) = address {
            self.emit(Event::LinkUp { node, address });
        }
        self.send_first_messages(now, link, node);
    }

    /// The prober of the last session if that ended recently at the same address, or a new one.
    fn prober_for(&mut self, now: Instant, link: LinkId, address: Option<SocketAddr>) -> Prober {
        let peer = self.peers.get_mut(link).zip(address);
        let last = peer.and_then(|(peer, address)| peer.take_prober(now, address));
        last.unwrap_or_else(|| Prober::new(now, self.generator.seed().generator(0)))
    }

    /// Whether no live record of the node is known: it may belong to an unknown part of the mesh.
    fn is_unknown(&self, node: &NodeId) -> bool {
        !self.gossip.table().is_live(node)
    }

    /// The link id of a node that has opened a session; `None` if there is no slot for it.
    fn assign_link(&mut self, now: Instant, node: NodeId) -> Option<LinkId> {
        let known = self.peers.find(&node);
        let has_contact = known
            .and_then(|link| self.peers.get(link))
            .is_some_and(|peer| !matches!(peer.contact, Contact::None));
        if !has_contact && self.is_evicted(now, &node) {
            return None;
        }
        if !has_contact && self.is_full_for(known) && !self.make_slot_for(now, &node) {
            return None;
        }
        self.peers.intern(now, node)
    }

    fn send_first_messages(&mut self, now: Instant, link: LinkId, node: NodeId) {
        let terms = LinkTerms {
            kind: self.kind_of(link),
            packing: Packing::Trunks,
        };
        self.send_with(now, link, RELIABLE, |message| terms.encode(message));
        // In a large mesh the link may be a trial. Then only an end that does not know the other,
        // or that advertises the link, sends a digest first.
        let may_be_trial = self.selecting.is_choosing && self.selecting.advertised.is_settled();
        if self.is_unknown(&node) || !may_be_trial {
            self.gossip.on_up(now, node);
            self.send_gossip(now);
        }
        self.send_version(now, link);
    }

    /// How this node's configuration protects the frames of a neighbour.
    pub(super) fn kind_of(&self, link: LinkId) -> HopKind {
        let node = self.peers.get(link).map(|peer| peer.node);
        let named = node.and_then(|node| self.config.hop_kinds.get(&node));
        named.copied().unwrap_or(self.config.hop_kind)
    }

    pub(super) fn on_terms(&mut self, link: LinkId, message: &[u8]) {
        match (LinkTerms::decode(message), self.gates.get_mut(link)) {
            (Ok(terms), Some(gate)) => {
                gate.terms = terms;
                self.change_link(link, |link| link.packing = terms.packing);
            }
            (Ok(_), None) | (Err(_), _) => self.count_malformed(),
        }
    }

    fn on_size(&mut self, session: SessionId, mtu: Option<Mtu>) {
        let Some(link) = self.peers.of_session(session) else {
            return;
        };
        // A check through a relay does not apply to the direct path.
        let is_direct = self.detours.on_size(link, session);
        if let Some(up) = self.peers.up_mut(link) {
            up.carries = is_direct;
            up.is_small = mtu.is_none();
        }
        if mtu.is_none()
            && let Some(node) = self.peers.get(link).map(|peer| peer.node)
        {
            self.emit(Event::LinkTooSmall { node });
        }
    }

    fn on_failed_dial(&mut self, now: Instant, session: SessionId, failure: ConnectFailure) {
        let ending = Ending::from(failure);
        if ending != Ending::Full
            && let Some(link) = self.peers.of_session(session)
        {
            self.count_failed_dial(now, link, failure);
        }
        self.on_closed(now, session, ending);
    }

    fn on_closed(&mut self, now: Instant, session: SessionId, ending: Ending) {
        let Some(link) = self.peers.of_session(session) else {
            return;
        };
        let is_ours = self.endpoint.role(session) == Some(Role::Dialler);
        if ending == Ending::NotMember && is_ours {
            let failure = ConnectFailure::Refused(CloseCode::PeerIdentity);
            self.count_failed_dial(now, link, failure);
        }
        let since = self.peers.up_mut(link).map(|up| up.since);
        let has_lasted = since.is_some_and(|since| now.saturating_since(since) >= LASTED);
        if self.peers.session(link) == Some(session) {
            if matches!(ending, Ending::Full | Ending::Deselected) {
                self.on_deselected(now, link);
            }
            self.take_down(now, link);
        }
        self.peers.set_contact(link, Contact::None);
        if has_lasted && matches!(ending, Ending::Silent | Ending::Lost) {
            // The peer restarted or lost its path, and may already be reachable again.
            self.dial_again(now, link);
        } else {
            self.back_off_after(now, link, ending);
        }
    }

    pub(super) fn take_down(&mut self, now: Instant, link: LinkId) {
        self.drop_link(link);
        if let Some(peer) = self.peers.get(link) {
            let node = peer.node;
            self.emit(Event::LinkDown { node });
            self.config_news.spread.on_gone(node);
            self.gossip.on_down(&node);
            self.end_path_set(now, link);
            self.on_link_gone(now, link, node);
        }
        let session = self.peers.session(link);
        let address = session.and_then(|session| self.endpoint.peer_address(session));
        self.peers.end_session(now, link, address);
        self.known_routes.on_change();
    }

    fn on_readable(&mut self, now: Instant, session: SessionId) {
        let mut message = core::mem::take(&mut self.message);
        loop {
            message.clear();
            let Some(_) = self.endpoint.receive(now, session, &mut message) else {
                break;
            };
            if let Some(link) = self.peers.of_session(session) {
                self.on_message(now, link, &message);
            } else {
                let late = &mut self.stats.messages_after_end;
                *late = late.saturating_add(1);
            }
        }
        self.message = message;
        self.gossip.flush(now);
        self.send_gossip(now);
        // If the session has migrated, the link's frames use its new address.
        if let (Some(link), Some(remote)) = (
            self.peers.of_session(session),
            self.endpoint.peer_address(session),
        ) {
            let local = self.endpoint.local(session);
            self.move_link(link, (remote, local));
        }
    }

    pub(super) fn on_message(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Some(&kind) = message.first() else {
            self.count_malformed();
            return;
        };
        match kind {
            code::LINK_TERMS => self.on_terms(link, message),
            code::KEY_EPOCH => self.on_key_epoch(now, link, message),
            code::PROBE => self.on_probe(now, link, message),
            code::ECHO => self.on_echo(now, link, message),
            flow_code::PATH_ECHO => self.on_path_echo(now, link, message),
            code::PASS_ON | code::PASSED_ON => self.on_detoured(now, link, message),
            flow_code::DATAGRAM => self.on_flow_datagram(now, link, message),
            code::ROUTE_REQUEST => self.on_route_request(now, link, message),
            code::ROUTE_REPLY => self.on_route_reply(now, link, message),
            code::ROUTE_RELEASE => self.on_route_release(now, link, message),
            flow_code::OPEN
            | flow_code::OPENED
            | flow_code::CLOSE
            | flow_code::OPEN_TUNNEL
            | flow_code::OPEN_MANY => {
                self.on_flow_message(now, link, message);
            }
            flow_code::GAME_EDGES => self.on_game_edges(now, link, message),
            code::CONFIG_VERSION | code::CONFIG_REQUEST | code::CONFIG => {
                self.on_config_message(now, link, message);
            }
            _ => match Message::decode(message) {
                Ok(decoded) => self.on_control(now, link, (decoded, message.len())),
                Err(_) => self.count_malformed(),
            },
        }
    }

    pub(super) const fn count_malformed(&mut self) {
        self.stats.messages_malformed = self.stats.messages_malformed.saturating_add(1);
    }

    pub(super) fn close(&mut self, now: Instant, session: SessionId) {
        self.close_with(now, session, CloseCode::Shutdown);
    }

    pub(super) fn close_with(&mut self, now: Instant, session: SessionId, code: CloseCode) {
        self.endpoint
            .close(now, session, code, &[])
            .unwrap_or_default();
    }
}

/// Whether to dial an address from another node's record, which may name any: only a single host's
/// other than `own`, and loopback only if this node uses it itself.
fn may_be_dialled(own: &[SocketAddr], address: SocketAddr) -> bool {
    // Dual-stack sockets name IPv4 addresses in IPv4-mapped form.
    let plain = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    let (ip, port) = plain(address);
    let is_local = own.iter().any(|own| plain(*own).0.is_loopback());
    is_single_host(address)
        && (is_local || !ip.is_loopback())
        && !own.iter().any(|own| plain(*own) == (ip, port))
}

/// Duration of a session that showed that its remote end is reachable.
const LASTED: Duration = Duration::from_secs(10);
/// Delay of the node with the larger id, if two nodes learn of each other at once.
const SECOND_DIALLER: Duration = Duration::from_millis(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_judged_alike_by_both_of_its_names() {
        let may = |own: &str, address: &str| {
            let own: SocketAddr = own.parse().unwrap();
            may_be_dialled(&[own], address.parse().unwrap())
        };
        for (host, is_node) in [
            ("192.0.2.2", true),
            ("192.0.2.1", false),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            let names = [format!("{host}:9000"), format!("[::ffff:{host}]:9000")];
            for own in ["192.0.2.1:9000", "[::ffff:192.0.2.1]:9000"] {
                assert_eq!(may(own, &names[0]), is_node, "{own} {host}");
                assert_eq!(may(own, &names[1]), is_node, "{own} {host}");
            }
        }
        for own in ["127.0.0.1:9000", "[::ffff:127.0.0.1]:9000"] {
            assert!(may(own, "127.0.0.2:9000") && may(own, "[::ffff:127.0.0.2]:9000"));
        }
    }
}
