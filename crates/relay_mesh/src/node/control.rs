//! Dispatch of neighbours' messages, and periodic publishing to them.

use crypto::Provider;
use wire::{Instant, NodeId};

use super::{Node, RELIABLE};
use crate::flow_message::flow_code;
use crate::gossip::GossipUpdate;
use crate::link::LinkId;
use crate::message::{Message, code};
use crate::routes::Graph;

impl<P: Provider> Node<P> {
    /// Handles one message of a neighbour.
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

    /// Publishes measurements that are due, and sends pending gossip.
    pub(super) fn publish(&mut self, now: Instant) {
        self.measure(now);
        let links = self.list_links(now);
        let unix = self.unix.map(|(at, unix)| unix + now.saturating_since(at));
        let provider = self.endpoint.provider_mut();
        if self.gossip.on_tick(now, unix, provider, &links).is_err() {
            self.stats.no_entropy = self.stats.no_entropy.saturating_add(1);
        }
        self.send_gossip(now);
    }

    /// Sends pending gossip messages over the sessions.
    pub(super) fn send_gossip(&mut self, now: Instant) {
        let mut message = Vec::new();
        while let Some(node) = self.gossip.poll_message(&mut message) {
            if let Some(link) = self.peers.find(&node) {
                // If the session's queue is full, the next digest reveals what is missing.
                self.send(now, link, RELIABLE, &message);
            }
            message.clear();
        }
    }

    /// Builds the graph of all known links.
    ///
    /// A node without a session to this one cannot be a relay in it, since labels are requested
    /// over that session.
    pub(super) fn make_graph(&self) -> Graph {
        let mut graph = self.gossip.table().graph(&self.config.cost, &self.reports);
        let is_open = |node| {
            self.peers
                .find(node)
                .and_then(|link| self.peers.session(link))
        };
        let apart: Vec<_> = graph
            .nodes()
            .iter()
            .filter(|node| is_open(node).is_none())
            .filter_map(|node| graph.index(node))
            .collect();
        for index in apart {
            graph.forbid_relay(index);
        }
        graph
    }

    pub(super) const fn count_malformed(&mut self) {
        self.stats.messages_malformed = self.stats.messages_malformed.saturating_add(1);
    }

    fn on_control(&mut self, now: Instant, link: LinkId, message: (Message<'_>, usize)) {
        let Some(from) = self.peers.get(link).map(|peer| peer.node) else {
            return;
        };
        if !self.gossip.knows(&from) {
            self.gossip.on_up(now, from);
        }
        let provider = self.endpoint.provider();
        match self.gossip.handle_message(now, provider, from, message) {
            GossipUpdate::None => {}
            GossipUpdate::Links => self.known_routes.on_change(),
            GossipUpdate::Node => {
                self.known_routes.on_change();
                // Handled by the next tick, since records arrive by the hundred.
                self.selecting.has_news = true;
            }
        }
    }

    /// Updates the link reports from the probers.
    fn measure(&mut self, now: Instant) {
        let links: Vec<(LinkId, NodeId)> = self
            .peers
            .up()
            .filter(|(_, _, up)| up.carries)
            .map(|(link, peer, _)| (link, peer.node))
            .collect();
        let mut reports = std::collections::BTreeMap::new();
        for (link, node) in links {
            if let Some(up) = self.peers.up_mut(link) {
                reports.insert(node, up.prober.report(now));
            }
        }
        if reports != self.reports {
            let making = (&self.config.cost, self.route_limits());
            self.known_routes
                .on_reports(self.gossip.table(), making, [&self.reports, &reports]);
            self.reports = reports;
        }
    }
}
