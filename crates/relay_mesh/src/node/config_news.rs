//! Signed configuration: applying it, and exchanging it with neighbours.

use crypto::Provider;
use wire::{Instant, NodeId, UnixTime};

use super::flow_table::Flow;
use super::flow_table::Side;
use super::{Node, RELIABLE};
use crate::event::Event;
use crate::flow_message::FlowEnd;
use crate::game::Game;
use crate::link::LinkId;
use crate::link_state::Admission;
use crate::signed_config::{
    AfterEnd, ConfigMessage, Document, HolderStats, Judged, LeftOut, Offered, Piece, PieceOutcome,
    Spread, Validity,
};

#[derive(Debug, Default)]
pub(super) struct ConfigNews {
    pub(super) spread: Spread,
    bundle: Vec<u8>,
    expired_version: u64,
}

impl<P: Provider> Node<P> {
    /// Offers a signed document of the operator, or a bundle: an envelope as
    /// [`Envelope::encode`](crate::signed_config::Envelope::encode) writes it. If it is accepted,
    /// it takes effect, and its version is sent to all neighbours.
    ///
    /// Returns `None` if the configuration has no administrators, or the wall clock is not known
    /// yet.
    pub fn offer_config(&mut self, now: Instant, bytes: &[u8]) -> Option<Offered> {
        let now = self.advance(now);
        let unix = self.unix_at(now)?;
        let signed = self.config.signed.as_mut()?;
        let offered = signed.holder.offer(self.endpoint.provider(), unix, bytes);
        if let Offered::Accepted(accepted) = &offered {
            let (version, has_dropped_links) =
                (accepted.version, signed.holder.has_dropped_links());
            self.emit(Event::ConfigAccepted(accepted.clone()));
            if has_dropped_links {
                self.emit(Event::ConfigAdrift { version });
            }
            self.apply_document(now);
            let links: Vec<LinkId> = self.peers.up().map(|(link, _, _)| link).collect();
            for link in links {
                self.send_version(now, link);
            }
        }
        Some(offered)
    }

    /// Returns the bytes to store: the document in force with its signatures, and the key changes
    /// before it. [`Holder::restore`](crate::signed_config::Holder::restore) verifies them again.
    #[must_use]
    pub fn stored_config(&self) -> Option<Vec<u8>> {
        self.config.signed.as_ref()?.holder.stored()
    }

    /// Returns the bundle of the signed document in force; [`offer_config`](Self::offer_config)
    /// takes it.
    #[must_use]
    pub fn config_bundle(&self) -> Option<&[u8]> {
        (!self.config_news.bundle.is_empty()).then_some(&self.config_news.bundle)
    }

    /// Returns the signed document in force.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        self.config.signed.as_ref()?.holder.document()
    }

    /// Returns the text of the signed document in force, as it was signed.
    #[must_use]
    pub fn document_text(&self) -> Option<&[u8]> {
        self.config.signed.as_ref()?.holder.text()
    }

    /// Returns the counters of offered documents.
    #[must_use]
    pub fn config_stats(&self) -> Option<&HolderStats> {
        let signed = self.config.signed.as_ref();
        signed.map(|signed| signed.holder.stats())
    }

    pub(super) fn on_config_message(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Some(from) = self.peers.get(link).map(|peer| peer.node) else {
            return;
        };
        match ConfigMessage::decode(message) {
            Ok(ConfigMessage::Version(held)) => {
                self.config_news.spread.on_version(now, from, held);
                self.run_config(now);
            }
            Ok(ConfigMessage::Request { version, offset }) => {
                self.on_config_request(now, link, version, offset);
            }
            Ok(ConfigMessage::Piece(piece)) => self.on_piece(now, (link, from), piece),
            Err(_) => self.count_malformed(),
        }
    }

    pub(super) fn send_version(&mut self, now: Instant, link: LinkId) {
        let signed = self.config.signed.as_ref();
        let held = signed.map(|signed| signed.holder.held_version());
        if let Some(held) = held.filter(|held| held.version > 0) {
            self.send_config(now, link, &ConfigMessage::Version(held));
        }
    }

    /// Requests a newer document if a request is due, and reports an expired one once.
    pub(super) fn run_config(&mut self, now: Instant) {
        let Some(unix) = self.unix_at(now).filter(|_| self.config.signed.is_some()) else {
            return;
        };
        let version = self.version();
        if self.validity(unix) == Validity::Expired && self.config_news.expired_version != version {
            self.config_news.expired_version = version;
            self.emit(Event::ConfigEnded { version });
        }
        let signed = self.config.signed.as_ref();
        let wants = |held| signed.is_some_and(|signed| signed.holder.wants(held));
        if let Some((node, request)) = self.config_news.spread.poll_request(now, wants)
            && let Some(link) = self.peers.find(&node)
        {
            self.send_config(now, link, &request);
        }
    }

    /// Whether new flows are accepted: not while this node drains, nor after the document has
    /// expired if it says so. Without a known wall clock, the document counts as expired.
    pub(super) fn takes_new_flows(&self, now: Instant) -> bool {
        if self.gossip.publisher().is_leaving() {
            return false;
        }
        let unix = self.unix_at(now);
        self.document().is_none_or(|document| {
            let by_time = unix.map(|unix| document.takes_new_flows(unix));
            by_time.unwrap_or(document.after_end == AfterEnd::Serve)
        })
    }

    pub(super) fn apply_document(&mut self, now: Instant) {
        let Some(signed) = &self.config.signed else {
            return;
        };
        let (Some(document), Some(bundle)) = (signed.holder.document(), signed.holder.bundle())
        else {
            return;
        };
        let (games, tcp_games) =
            document.carried((self.own, self.config.profile.roles), &signed.listen);
        let members = document.members.clone();
        self.config_news.bundle = bundle;
        if members != self.config.members {
            let admission = members.clone().map_or(Admission::Anyone, Admission::Listed);
            self.gossip.table_mut().set_admission(admission);
            let nodes = members
                .as_ref()
                .map(|nodes| nodes.keys().copied().collect());
            self.endpoint.set_allowed_nodes(nodes);
            self.config.members = members;
            self.close_non_members(now);
            self.known_routes.on_change();
        }
        self.set_games(now, games);
        self.end_disallowed_flows(now);
        self.free_disallowed_labels();
        self.apply_tcp_games(now, tcp_games);
    }

    #[cfg(not(feature = "tcp"))]
    fn apply_tcp_games(&mut self, _: Instant, games: Vec<Game>) {
        self.report_left_out(games);
    }

    pub(super) fn report_left_out(&mut self, games: Vec<Game>) {
        for game in games {
            let (game, why) = (game.name, LeftOut::Tcp);
            self.emit(Event::GameLeftOut { game, why });
        }
    }

    fn end_disallowed_flows(&mut self, now: Instant) {
        let Some(document) = self.document() else {
            return;
        };
        let is_disallowed = |flow: &Flow<P::Aead>| {
            let remote = self.node_of(flow.remote);
            #[cfg(feature = "tcp")]
            if matches!(flow.side, Side::Tunnel(_)) {
                return false;
            }
            let game = self.games.get(flow.game);
            let (Some(remote), Some(game)) = (remote, game) else {
                return true;
            };
            let is_allowed = match flow.side {
                Side::Entry { .. } => document.may_exit(&game.name, &remote),
                Side::Exit { .. } => document.may_enter(&game.name, &remote),
                Side::Local { .. } => {
                    document.may_enter(&game.name, &remote)
                        && document.may_exit(&game.name, &remote)
                }
                #[cfg(feature = "tcp")]
                Side::Tunnel(_) => true,
            };
            !is_allowed
        };
        let flows = self.flows.iter().filter(|(_, flow)| is_disallowed(flow));
        let flows: Vec<u32> = flows.map(|(index, _)| index).collect();
        for index in flows {
            self.close_flow(now, index, FlowEnd::Local);
        }
    }

    pub(super) fn is_member(&self, node: &NodeId) -> bool {
        let members = self.config.members.as_ref();
        members.is_none_or(|members| members.contains_key(node))
    }

    fn close_non_members(&mut self, now: Instant) {
        let removed: Vec<_> = self
            .peers
            .up()
            .filter(|(_, peer, _)| !self.is_member(&peer.node))
            .map(|(link, _, up)| (link, up.session))
            .collect();
        for (link, session) in removed {
            self.take_down(now, link);
            self.close(now, session);
        }
    }

    fn on_config_request(&mut self, now: Instant, link: LinkId, version: u64, offset: u32) {
        if version != self.version() {
            self.send_version(now, link);
            return;
        }
        let bundle = core::mem::take(&mut self.config_news.bundle);
        if let Some(piece) = Piece::cut(version, &bundle, offset) {
            self.send_config(now, link, &ConfigMessage::Piece(piece));
        }
        self.config_news.bundle = bundle;
    }

    fn on_piece(&mut self, now: Instant, (link, from): (LinkId, NodeId), piece: Piece<'_>) {
        let bundle = match self.config_news.spread.on_piece(now, from, piece) {
            PieceOutcome::More(request) => {
                self.send_config(now, link, &request);
                return;
            }
            PieceOutcome::Whole(bundle) => bundle,
            PieceOutcome::Dropped => return,
        };
        let outcome = match self.offer_config(now, &bundle) {
            Some(Offered::Accepted(_)) => Judged::Accepted,
            Some(Offered::Refused(why)) => {
                self.emit(Event::ConfigRefused { node: from, why });
                Judged::Refused
            }
            Some(Offered::Known) | None => Judged::Refused,
        };
        self.config_news.spread.on_judged(now, from, outcome);
        self.run_config(now);
    }

    fn send_config(&mut self, now: Instant, link: LinkId, message: &ConfigMessage<'_>) {
        self.send_with(now, link, RELIABLE, |bytes| message.encode(bytes));
    }

    fn version(&self) -> u64 {
        let signed = self.config.signed.as_ref();
        signed.map_or(0, |signed| signed.holder.version())
    }

    fn validity(&self, unix: UnixTime) -> Validity {
        let signed = self.config.signed.as_ref();
        signed.map_or(Validity::None, |signed| signed.holder.validity(unix))
    }

    fn unix_at(&self, now: Instant) -> Option<UnixTime> {
        self.unix.map(|(at, unix)| unix + now.saturating_since(at))
    }
}
