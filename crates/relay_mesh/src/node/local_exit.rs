//! Flows whose exit is their own entry: forwarded from the game's port to its server on this node.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_side::{Side, Upstream};
use super::flow_table::Flow;
use super::{Node, Pending};
use crate::event::{Command, Event, TurnedAway};
use crate::flow_key::FlowId;
use crate::flow_message::{FlowMessage, FlowRefused};
use crate::leg::Leg;
use crate::link::LinkId;
use crate::pieces::DATAGRAM_MAX;
use crate::ration::ProofState;

impl<P: Provider> Node<P> {
    /// Opens a flow from a local player to a local server.
    pub(super) fn begin_here(
        &mut self,
        now: Instant,
        (leg, player, game): (Leg, SocketAddr, usize),
        proof: ProofState,
    ) -> Option<u32> {
        let name = self.game_name(game);
        let admitted = self.admit(self.own, &name);
        let Some((_, server, mode)) = admitted.filter(|_| !self.has_overdue_sockets()) else {
            self.ration.on_end(&proof);
            return None;
        };
        let id = self.next_here_id();
        let upstream = Upstream::new(server, self.next_command);
        let side = Side::Here {
            leg,
            local: None,
            proof,
            upstream,
        };
        let flow = Flow::new(now, (LinkId::OWN, id), (game, player, mode), None, side);
        let index = match self.flows.insert(flow) {
            Ok(index) => index,
            Err(flow) => {
                self.leave_side(&flow.side);
                return None;
            }
        };
        self.command(
            Command::Open { server },
            Pending::Upstream(index, LinkId::OWN, id),
        );
        self.emit(Event::FlowOpened {
            game: name,
            player,
            far_end: self.own,
        });
        Some(index)
    }

    /// The node at the other end of a flow; this node for a local flow.
    pub(super) fn node_of(&self, far: LinkId) -> Option<NodeId> {
        if far == LinkId::OWN {
            return Some(self.own);
        }
        self.peers.get(far).map(|peer| peer.node)
    }

    /// Allocates the id of a local flow.
    pub(super) const fn next_here_id(&mut self) -> FlowId {
        let next = &mut self.ports.next_here;
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
        let rate = self.config.flow_rate;
        let is_within = |flow: &mut Flow<P::Aead>| flow.takes(now, rate, datagram.len());
        if self.touch_here(now, index, datagram.len(), is_within) {
            self.deliver_to_server(index, datagram);
        }
    }

    /// Forwards a datagram of a server to a local player.
    pub(super) fn carry_to_player(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let rate = self.config.flow_rate;
        let is_within =
            |flow: &mut Flow<P::Aead>| flow.takes_from_server(now, rate, datagram.len());
        if self.touch_here(now, index, datagram.len(), is_within) {
            self.deliver_to_player(now, index, datagram);
        }
    }

    /// Reports the outcome of opening a flow's socket to its entry, or to this node.
    pub(super) fn tell_opened(
        &mut self,
        now: Instant,
        (far, id): (LinkId, FlowId),
        outcome: Result<(), FlowRefused>,
    ) {
        if far == LinkId::OWN {
            let index = self.flows.of_id(far, id);
            if let Some(game) = index.and_then(|index| Some(self.flows.get(index)?.game)) {
                self.ports.on_opened(now, (game, far), outcome);
            }
        } else {
            let opened = FlowMessage::Opened { flow: id, outcome };
            let is_sent = self.send_flow_message(now, far, &opened);
            if !is_sent && outcome.is_err() {
                self.tell_close(now, far, (id, crate::flow_message::FlowEnd::Refused));
            }
        }
    }

    /// Whether a datagram is within the flow's rate and the mesh's maximum length.
    fn touch_here(
        &mut self,
        now: Instant,
        index: u32,
        len: usize,
        is_within: impl FnOnce(&mut Flow<P::Aead>) -> bool,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        flow.used = now;
        let game = Some(flow.game);
        if !is_within(flow) {
            self.stats.over_flow_rate = self.stats.over_flow_rate.saturating_add(1);
            self.turn_away(now, game, TurnedAway::FlowRate);
            return false;
        }
        let fits = len <= DATAGRAM_MAX;
        if !fits {
            self.stats.too_big = self.stats.too_big.saturating_add(1);
            self.turn_away(now, game, TurnedAway::TooLong);
        }
        fits
    }
}
