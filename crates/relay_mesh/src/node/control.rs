//! Messages of neighbours, and what is told to them.

use crypto::Provider;
use wire::{Instant, NodeId};

use super::{Node, RELIABLE};
use crate::flow_message::flow_code;
use crate::link::LinkId;
use crate::link_state::{Outcome as RecordOutcome, ShortId};
use crate::message::{Message, Request, code};
use crate::routes::Graph;

impl<P: Provider> Node<P> {
    /// Takes one message of a neighbour.
    pub(super) fn on_message(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Some(&kind) = message.first() else {
            self.count_malformed();
            return;
        };
        match kind {
            code::LINK_TERMS => self.on_terms(link, message),
            code::PROBE => self.on_probe(now, link, message),
            code::ECHO => self.on_echo(now, link, message),
            flow_code::PATH_ECHO => self.on_path_echo(now, link, message),
            code::ROUTE_REQUEST => self.on_route_request(now, link, message),
            code::ROUTE_REPLY => self.on_route_reply(now, link, message),
            flow_code::OPEN | flow_code::OPENED | flow_code::CLOSE | flow_code::OPEN_TUNNEL => {
                self.on_flow_message(now, link, message);
            }
            code::CONFIG_VERSION | code::CONFIG_REQUEST | code::CONFIG => {
                self.on_config_message(now, link, message);
            }
            _ => match Message::decode(message) {
                Ok(message) => self.on_control(now, link, message),
                Err(_) => self.count_malformed(),
            },
        }
    }

    /// Says what was measured, where that is due.
    pub(super) fn publish(&mut self, now: Instant) {
        self.measure(now);
        let unix = self.unix.map(|(at, unix)| unix + now.saturating_since(at));
        let publication =
            self.publisher
                .update(now, unix, self.endpoint.provider_mut(), &self.reports);
        let Ok(publication) = publication else {
            self.stats.no_entropy = self.stats.no_entropy.saturating_add(1);
            return;
        };
        if let Some(record) = publication.node {
            self.table.publish(now, self.endpoint.provider(), &record);
            self.flood(now, None, &Message::NodeRecord(&record));
            self.own_record = record;
        }
        if let Some(record) = publication.links {
            self.table.publish(now, self.endpoint.provider(), &record);
            self.flood(now, None, &Message::LinkRecord(&record));
        }
    }

    /// Tells one neighbour, drawn by lot, which records we hold.
    pub(super) fn compare_tables(&mut self, now: Instant) {
        let links: Vec<LinkId> = self.peers.up().map(|(link, _, _)| link).collect();
        let count = u64::try_from(links.len()).unwrap_or(0);
        let drawn = usize::try_from(self.generator.below(count)).unwrap_or(0);
        if let Some(&link) = links.get(drawn) {
            self.send_digest(now, link);
        }
    }

    pub(super) fn send_digest(&mut self, now: Instant, link: LinkId) {
        let mut message = Vec::new();
        Message::Digest(self.table.digest()).encode(&mut message);
        self.send(now, link, RELIABLE, &message);
    }

    /// Makes the graph of all links known.
    ///
    /// A relay is asked for labels over a session of ours, so that without one it is none for us.
    pub(super) fn make_graph(&self) -> Graph {
        let mut graph = self.table.graph(&self.config.cost, &self.reports);
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

    fn on_control(&mut self, now: Instant, link: LinkId, message: Message<'_>) {
        let Some(from) = self.peers.get(link).map(|peer| peer.node) else {
            return;
        };
        match message {
            Message::Hello(record) | Message::NodeRecord(record) => {
                let provider = self.endpoint.provider();
                let outcome = self.table.accept_node(now, provider, from, record);
                self.on_record(now, (link, outcome), &Message::NodeRecord(record));
            }
            Message::LinkRecord(record) => {
                let provider = self.endpoint.provider();
                let outcome = self.table.accept_links(now, provider, from, record);
                self.on_record(now, (link, outcome), &Message::LinkRecord(record));
            }
            Message::Digest(digest) => {
                let request = self.table.missing(&digest);
                self.request(now, link, request);
            }
            Message::Request(request) => self.answer(now, link, &request),
        }
    }

    fn on_record(
        &mut self,
        now: Instant,
        (link, outcome): (LinkId, RecordOutcome),
        message: &Message<'_>,
    ) {
        match outcome {
            RecordOutcome::Accepted => {
                self.known_routes.on_change();
                self.flood(now, Some(link), message);
                if matches!(message, Message::NodeRecord(_)) {
                    self.learn_peers(now);
                }
            }
            RecordOutcome::OwnFromBefore(version) => self.publisher.raise(version),
            RecordOutcome::NeedsNodeRecord(origin) => self.ask_for(now, link, origin),
            RecordOutcome::Stale | RecordOutcome::Refused(_) => {}
        }
    }

    fn ask_for(&mut self, now: Instant, link: LinkId, origin: ShortId) {
        self.request(now, link, Request::new([origin]));
    }

    fn request(&mut self, now: Instant, link: LinkId, request: Request) {
        if request.origins().is_empty() {
            return;
        }
        let mut message = Vec::new();
        Message::Request(request).encode(&mut message);
        self.send(now, link, RELIABLE, &message);
    }

    fn answer(&mut self, now: Instant, link: LinkId, request: &Request) {
        let Some(session) = self.peers.session(link) else {
            return;
        };
        let mut message = Vec::new();
        for record in self.table.answer(request) {
            message.clear();
            record.encode(&mut message);
            // What finds no room now is asked for again after the next digest.
            if self
                .endpoint
                .send(now, session, RELIABLE, &message)
                .is_err()
            {
                self.stats.messages_unsent = self.stats.messages_unsent.saturating_add(1);
                return;
            }
        }
    }

    /// Sends a message to every neighbour but one.
    fn flood(&mut self, now: Instant, except: Option<LinkId>, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let links: Vec<LinkId> = self
            .peers
            .up()
            .map(|(link, _, _)| link)
            .filter(|link| Some(*link) != except)
            .collect();
        for link in links {
            self.send(now, link, RELIABLE, &bytes);
        }
    }

    /// Takes down what the probers say.
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
                .on_reports(&self.table, making, [&self.reports, &reports]);
            self.reports = reports;
        }
    }
}
