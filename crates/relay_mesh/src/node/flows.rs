//! Packets of flows: sealed and sent at one end, opened and delivered at the other.

use core::convert::Infallible;

use crypto::Provider;
use wire::Instant;

use super::flow_table::{FlowOwner, NewSlot, Side, probe_link};
use super::{Node, RELIABLE};
use crate::data_plane::Arrived;
use crate::event::{Event, TurnedAway};
use crate::flow_key::{FlowDrop, FlowId, FlowOpener, FlowSealer, TAG_LEN};
use crate::flow_message::{FlowEnd, FlowMessage, numbers_from};
use crate::hop::Piece;
use crate::link::{End, LinkId};
use crate::outbox::Destination;
use crate::pieces::{WHOLE_MAX, split_over};

/// The keys of a flow's two directions.
pub(super) type FlowKeys<A> = (FlowSealer<A>, FlowOpener<A>);

impl<P: Provider> Node<P> {
    /// Handles a frame with a label that ends at this node.
    pub(super) fn on_arrived(&mut self, now: Instant, mut arrived: Arrived<'_>) {
        if let Some(link) = probe_link(arrived.flow) {
            self.on_probe_frame(now, link, &mut arrived);
            return;
        }
        let index = arrived.flow;
        let Some(flow) = self.flows.get_mut(index) else {
            self.stats.flow_unknown = self.stats.flow_unknown.saturating_add(1);
            return;
        };
        let provider = self.endpoint.provider();
        let Some((_, opener)) = &mut flow.keys else {
            return;
        };
        let payload = match opener.open(provider, now, &arrived.header, arrived.body) {
            Ok(payload) => payload,
            Err(FlowDrop::Duplicate) => {
                self.stats.flow_duplicates = self.stats.flow_duplicates.saturating_add(1);
                // A relay knows the packet numbers, so only an authentic copy counts.
                if opener.verify(provider, now, &arrived.header, arrived.body) {
                    let (remote, packet) = (flow.remote, (flow.id, arrived.header.number));
                    let len = arrived.body.len().saturating_sub(TAG_LEN);
                    self.on_data_arrived(now, (remote, arrived.path), packet, len);
                }
                return;
            }
            Err(FlowDrop::Forged) => {
                self.stats.flow_forged = self.stats.flow_forged.saturating_add(1);
                return;
            }
        };
        let piece = arrived.header.phase.piece;
        if piece == Piece::First && payload.is_empty() {
            // It only keeps the labels of its path alive.
            return;
        }
        let (remote, number) = (flow.remote, arrived.header.number);
        let (packet, len) = ((flow.id, number), payload.len());
        let mut datagram = core::mem::take(&mut self.message);
        datagram.clear();
        let joiner = &mut flow.joiner;
        let is_whole = joiner.add(now, (number, piece), payload, &mut datagram);
        if is_whole {
            flow.used = now;
        }
        self.on_data_arrived(now, (remote, arrived.path), packet, len);
        if is_whole {
            if let Some(path_set) = self.path_sets.get_mut(&remote) {
                path_set.on_used(now);
            }
            self.deliver(now, index, &datagram);
        }
        self.message = datagram;
    }

    /// Sends a datagram of a player or server to the remote end of its flow, or queues it until
    /// there is a path.
    pub(super) fn carry(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        flow.used = now;
        #[cfg(feature = "tcp")]
        if flow.remote == LinkId::OWN {
            return self.forward_local_tunnel(now, index, datagram);
        }
        if !flow.takes(now, self.config.flow_rate, datagram.len()) {
            let game = flow.game;
            self.stats.over_flow_rate = self.stats.over_flow_rate.saturating_add(1);
            self.count_rejected(now, Some(game), TurnedAway::FlowRate);
            return;
        }
        self.carry_taken(now, index, datagram);
    }

    fn carry_taken(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let Some(path_set) = self.path_sets.get_mut(&flow.remote) else {
            return;
        };
        path_set.on_used(now);
        let ways = path_set.paths.packet_paths(now, flow.id, flow.mode);
        let paths = ways.into_iter().flatten();
        let whole_max = paths
            .filter_map(|id| path_set.paths.get(id))
            .map(|path| path.quality.whole_max());
        let whole_max = whole_max.min().unwrap_or(WHOLE_MAX);
        let Some((first, second)) = split_over(datagram, whole_max) else {
            let game = flow.game;
            self.stats.too_big = self.stats.too_big.saturating_add(1);
            self.count_rejected(now, Some(game), TurnedAway::TooLong);
            return;
        };
        if second.is_some() && datagram.len() <= WHOLE_MAX {
            for id in ways.into_iter().flatten() {
                if let Some(path) = path_set.paths.get_mut(id) {
                    path.quality.on_split();
                }
            }
        }
        if ways == [None, None] && self.send_early_by_session(now, index, datagram) {
            self.stats.carried = self.stats.carried.saturating_add(1);
            return;
        }
        if ways == [None, None] {
            let flow = self.flows.get_mut(index);
            let counter = if flow.is_some_and(|flow| flow.unlabelled.push(datagram)) {
                &mut self.stats.waited
            } else {
                &mut self.stats.early_dropped
            };
            *counter = counter.saturating_add(1);
            return;
        }
        self.stats.carried = self.stats.carried.saturating_add(1);
        match second {
            None => self.send_pieces(now, index, (Piece::Whole, first), ways),
            Some(second) => {
                self.send_pieces(now, index, (Piece::First, first), ways);
                self.send_pieces(now, index, (Piece::Second, second), ways);
            }
        }
    }

    /// Seals one payload once, and sends it over up to two paths.
    pub(super) fn send_pieces(
        &mut self,
        now: Instant,
        index: u32,
        piece: (Piece, &[u8]),
        ways: [Option<u8>; 2],
    ) {
        let provider = self.endpoint.provider();
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let Some(path_set) = self.path_sets.get_mut(&flow.remote) else {
            return;
        };
        self.sealed.clear();
        let Some((sealer, _)) = &mut flow.keys else {
            return;
        };
        let Ok(numbered) = sealer.seal(provider, now, piece, &mut self.sealed) else {
            self.close_flow(now, index, FlowEnd::AeadLimitReached);
            return;
        };
        let is_keep_alive = piece == (Piece::First, &[][..]);
        for way in ways.into_iter().flatten() {
            let Some(path) = path_set.paths.get_mut(way) else {
                continue;
            };
            // A packet that this node drops itself is not counted as lost on the path.
            let sealed = (numbered, self.sealed.as_slice());
            let is_sent = path.send(&mut self.plane, provider, now, (flow.id, sealed));
            if is_sent && !is_keep_alive {
                let packet = (flow.id, numbered.number);
                path.quality.on_data_sent(now, packet, piece.1.len());
            }
        }
        if !is_keep_alive && self.config.choice.judges_data {
            path_set.probe_flow.record_sent(piece.1.len());
        }
    }

    pub(super) fn send_early(&mut self, now: Instant, remote: LinkId, flow: FlowId) {
        let Some(index) = self.flows.of_id(remote, flow) else {
            return;
        };
        let flow = self.flows.get_mut(index);
        let waiting = flow.map(|flow| flow.unlabelled.take()).unwrap_or_default();
        for datagram in waiting {
            self.carry_taken(now, index, &datagram);
        }
    }

    pub(super) fn on_flow_message(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        match FlowMessage::decode(message) {
            Ok(FlowMessage::Open {
                flow,
                player,
                game,
                mode,
            }) => self.on_flow_open(now, link, (flow, player, &game, mode)),
            Ok(FlowMessage::OpenMany {
                first,
                game,
                players,
                mode,
            }) => {
                for (flow, player) in numbers_from(first).zip(players) {
                    self.on_flow_open(now, link, (flow, player, &game, mode));
                }
            }
            Ok(FlowMessage::Opened { flow, outcome }) => {
                self.on_opened(now, (link, flow), outcome);
            }
            Ok(FlowMessage::OpenTunnel { flow, mode }) => {
                self.on_tunnel_open(now, link, (flow, mode));
            }
            Ok(FlowMessage::Close { flow, reason }) => {
                if let Some(index) = self.flows.of_id(link, flow) {
                    // An entry that closes a flow reports it itself.
                    let flow = self.flows.get(index);
                    let is_ours = flow.is_some_and(|flow| flow.side.is_opened_here());
                    if is_ours && reason == FlowEnd::Evicted {
                        self.count_rejected_flow(now, index, TurnedAway::Share);
                    }
                    self.end_flow(now, index, reason);
                }
            }
            Err(_) => self.count_malformed(),
        }
    }

    /// Ends a flow, and sends the remote end a close message.
    pub(super) fn close_flow(&mut self, now: Instant, index: u32, reason: FlowEnd) {
        let Some(flow) = self.flows.get(index) else {
            return;
        };
        self.send_close(now, flow.remote, (flow.id, reason));
        self.end_flow(now, index, reason);
    }

    /// Ends the flows that carried nothing for the configured idle time.
    pub(super) fn end_idle_flows(&mut self, now: Instant) {
        let idle = self.config.flow_idle;
        let flows = self.flows.iter();
        let flows = flows.filter(|(_, flow)| now.saturating_since(flow.used) >= idle);
        let indices: Vec<u32> = flows.map(|(index, _)| index).collect();
        for index in indices {
            self.close_flow(now, index, FlowEnd::Idle);
        }
    }

    pub(super) fn end_flows_with(&mut self, now: Instant, remote: LinkId) {
        let indices: Vec<u32> = self.flows.with(remote).map(|(index, _)| index).collect();
        for index in indices {
            self.end_flow(now, index, FlowEnd::SessionLost);
        }
    }

    /// Refuses a tunnel, which this build does not support.
    #[cfg(not(feature = "tcp"))]
    fn on_tunnel_open(
        &mut self,
        now: Instant,
        link: LinkId,
        (flow, _): (FlowId, crate::game::Mode),
    ) {
        let outcome = Err(crate::flow_message::FlowRefused::Policy);
        let refused = FlowMessage::Opened { flow, outcome };
        self.send_flow_message(now, link, &refused);
    }

    pub(super) fn send_flow_message(
        &mut self,
        now: Instant,
        link: LinkId,
        message: &FlowMessage,
    ) -> bool {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.send(now, link, RELIABLE, &bytes)
    }

    pub(super) fn flow_keys(&self, link: LinkId, flow: FlowId) -> Option<FlowKeys<P::Aead>> {
        let session = self.peers.session(link)?;
        let exporter = self.endpoint.exporter(session)?;
        let end = End::from(self.endpoint.role(session)?);
        let provider = self.endpoint.provider();
        Some((
            FlowSealer::new(provider, exporter, flow, end.sends()),
            FlowOpener::new(provider, exporter, flow, end.receives()),
        ))
    }

    pub(super) fn deliver(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        match self.flows.get(index).map(|flow| &flow.side) {
            Some(Side::Entry { .. }) => self.deliver_to_player(now, index, datagram),
            Some(Side::Exit { .. }) => self.deliver_to_server(index, datagram),
            #[cfg(feature = "tcp")]
            Some(Side::Tunnel(_)) => self.deliver_to_tunnel(now, index, datagram),
            // Its datagrams do not use the mesh.
            Some(Side::Local { .. }) | None => {}
        }
    }

    /// Records that a flow's player is proved: the flow gets labels on the spare path too.
    pub(super) fn on_proved(&mut self, index: u32) {
        self.flows.on_proved(index);
        let remote = self.flows.get(index).map(|flow| flow.remote);
        if let Some(path_set) = remote.and_then(|remote| self.path_sets.get_mut(&remote)) {
            path_set.label_search.schedule(self.now);
        }
    }

    /// Makes room for another flow, by ending an unproved one if necessary; false if there is none.
    pub(super) fn make_room(&mut self, now: Instant, owner: FlowOwner) -> bool {
        let place = self.flows.slot_for(owner);
        if let Some(NewSlot::After(oldest)) = place {
            self.count_rejected_flow(now, oldest, TurnedAway::Share);
            self.close_flow(now, oldest, FlowEnd::Evicted);
        }
        place.is_some()
    }

    /// Queues a datagram to a player or a server.
    pub(super) fn push_out(&mut self, destination: Destination, datagram: &[u8]) {
        self.push_written(destination, |out| {
            out.extend_from_slice(datagram);
            Ok::<_, Infallible>(())
        });
    }

    /// Queues what `write` appends as a datagram to a player or a server. It is dropped if the
    /// queue is full, or `write` fails.
    pub(super) fn push_written<E>(
        &mut self,
        destination: Destination,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) {
        let counter = if self.plane.outbox.try_push(destination, write) {
            &mut self.stats.delivered
        } else {
            &mut self.stats.outbox_full
        };
        *counter = counter.saturating_add(1);
    }

    /// Removes a flow, its labels and its socket.
    pub(super) fn end_flow(&mut self, now: Instant, index: u32, reason: FlowEnd) {
        let Some(mut flow) = self.flows.remove(index) else {
            return;
        };
        for label in &flow.labels {
            let leads_here = self.plane.labels.get_mut(*label);
            if leads_here.is_some_and(|label| label.leads_to(index)) {
                self.plane.free(*label);
            }
        }
        self.release_flow(now, flow.remote, flow.id);
        #[cfg(feature = "tcp")]
        if let Side::Tunnel(_) = flow.side {
            self.on_tunnel_ended(index, reason);
            if flow.remote == LinkId::OWN {
                self.end_local_tunnel(now, reason);
            }
            return;
        }
        self.remove_side(&mut flow.side);
        self.emit(Event::FlowClosed {
            game: self.game_name(flow.game),
            player: flow.player,
            reason,
        });
    }

    pub(super) fn game_name(&self, index: usize) -> String {
        let game = self.games.get(index);
        game.map(|game| game.name.clone()).unwrap_or_default()
    }
}
