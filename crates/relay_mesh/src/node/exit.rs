//! Exit side: one upstream socket for each flow.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_side::{Side, Upstream};
use super::flow_table::{Flow, Owner};
use super::proxy_header_sender::HeaderState;
use super::{Node, Pending};
use crate::config::Mode;
use crate::event::{Command, Event, Outcome, TurnedAway};
use crate::exchange::Exchange;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, FlowRefused};
use crate::leg::Leg;
use crate::link::LinkId;
use crate::link_state::Roles;

impl<P: Provider> Node<P> {
    /// Handles an entry's request for a flow.
    pub(super) fn on_flow_open(
        &mut self,
        now: Instant,
        link: LinkId,
        (flow, player, game, mode): (FlowId, SocketAddr, &str, Option<Mode>),
    ) {
        let may_open = self.may_open(now, link);
        if may_open && self.flows.is_share_held(Owner::Entry(link), player) {
            // After a refusal the entry would avoid this exit for its other players too.
            let reason = FlowEnd::Crowded;
            self.tell_close(now, link, (flow, reason));
            self.stats.shares_held = self.stats.shares_held.saturating_add(1);
            let node = self.peers.get(link).map(|peer| peer.node);
            if let Some((game, ..)) = node.and_then(|node| self.admit(node, game)) {
                self.turn_away(now, Some(game), TurnedAway::Share);
            }
            return;
        }
        let outcome = if may_open {
            self.accept_flow(now, link, (flow, player, game, mode))
        } else {
            Err(FlowRefused::Full)
        };
        if let Err(why) = outcome {
            let opened = FlowMessage::Opened {
                flow,
                outcome: Err(why),
            };
            if !self.send_flow_message(now, link, &opened) {
                self.tell_close(now, link, (flow, FlowEnd::Refused));
            }
        }
    }

    /// Whether an entry may open another flow now, for a player or a tunnel. If not, counts it.
    pub(super) fn may_open(&mut self, now: Instant, link: LinkId) -> bool {
        let peer = self.peers.get_mut(link);
        let may_open = peer.is_some_and(|peer| peer.opens.take(now, 1));
        if !may_open {
            self.stats.opens_refused = self.stats.opens_refused.saturating_add(1);
        }
        may_open
    }

    /// Handles the result of opening a flow's upstream socket.
    pub(super) fn on_upstream(
        &mut self,
        now: Instant,
        (index, far, id): (u32, LinkId, FlowId),
        outcome: Outcome,
    ) {
        let is_same = self
            .flows
            .get(index)
            .is_some_and(|flow| flow.far == far && flow.id == id);
        match outcome {
            Outcome::Opened(socket) if is_same && self.flows.set_socket(index, socket) => {
                self.tell_opened(now, (far, id), Ok(()));
                let waiting = self
                    .flows
                    .get_mut(index)
                    .map(|flow| flow.inward.take())
                    .unwrap_or_default();
                for datagram in waiting {
                    self.deliver_to_server(index, &datagram);
                }
            }
            Outcome::Opened(socket) => self.command(Command::Close { socket }, Pending::Close),
            Outcome::Closed | Outcome::Failed | Outcome::Measured(_) | Outcome::NotPermitted => {
                if is_same {
                    self.tell_opened(now, (far, id), Err(FlowRefused::NoSocket));
                    self.end_flow(now, index, FlowEnd::Refused);
                }
            }
        }
    }

    /// Sends a datagram to the game server, or queues it until the socket is open.
    pub(super) fn deliver_to_server(&mut self, index: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let (game, player, entry) = (flow.game, flow.player, flow.far);
        let Some(upstream) = flow.side.upstream_mut() else {
            return;
        };
        let silence = upstream.answered_at.map(|at| self.now.saturating_since(at));
        let (address, serial) = (upstream.server, upstream.serial);
        let Some(socket) = upstream.socket else {
            if !flow.inward.push(datagram) {
                self.stats.early_dropped = self.stats.early_dropped.saturating_add(1);
            }
            return;
        };
        if let Side::Exit { exchange, .. } = &mut flow.side
            && exchange.on_request()
        {
            self.on_proved(index);
        }
        let leg = Leg { socket, address };
        let state = HeaderState {
            player,
            entry,
            serial,
        };
        let game = self.games.get(game);
        let exit = game.and_then(|game| game.exit.as_ref());
        let header = exit.and_then(|exit| exit.header);
        match header.filter(|header| header.is_due(silence, datagram)) {
            Some(header) => self.push_with_header(leg, (header, state), datagram),
            None => self.push_out((leg, None), datagram),
        }
    }

    /// Handles a datagram from an upstream socket.
    pub(super) fn on_server_datagram(&mut self, now: Instant, leg: Leg, datagram: &[u8]) {
        let index = self.flows.of_socket(leg.socket);
        let flow = index.and_then(|index| self.flows.get_mut(index));
        let side = flow.map(|flow| &mut flow.side);
        let is_server = |upstream: &&mut Upstream| upstream.server == leg.address;
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
        (id, player, game, told): (FlowId, SocketAddr, &str, Option<Mode>),
    ) -> Result<(), FlowRefused> {
        let node = self.peers.get(link).map(|peer| peer.node);
        let node = node.ok_or(FlowRefused::Policy)?;
        if !self.takes_new_flows(now) {
            return Err(FlowRefused::Policy);
        }
        let (game, server, mode) = self.admit(node, game).ok_or(FlowRefused::Policy)?;
        // The entry's mode applies to both directions.
        let mode = told.unwrap_or(mode);
        // If the driver does not answer, pending commands must not accumulate.
        if self.has_overdue_sockets() {
            return Err(FlowRefused::Full);
        }
        if !self.ensure_path_set(now, link) {
            return Err(FlowRefused::Policy);
        }
        let is_new = self
            .path_sets
            .get_mut(&link)
            .is_some_and(|path_set| path_set.accept_remote_id(now, id));
        if !is_new {
            return Err(FlowRefused::BadId);
        }
        let keys = self.flow_keys(link, id).ok_or(FlowRefused::Policy)?;
        // Last, since it may end another flow.
        if !self.make_room(now, Owner::Entry(link)) {
            self.turn_away(now, Some(game), TurnedAway::Share);
            return Err(FlowRefused::Full);
        }
        let side = Side::Exit {
            upstream: Upstream::new(server, self.next_command),
            exchange: Exchange::NEW,
        };
        let flow = Flow::new(now, (link, id), (game, player, mode), Some(keys), side);
        let index = self.flows.insert(flow).map_err(|_| FlowRefused::Full)?;
        self.command(Command::Open { server }, Pending::Upstream(index, link, id));
        let game = self.game_name(game);
        self.emit(Event::FlowOpened {
            game,
            player,
            far_end: node,
        });
        self.paths_dirty = true;
        self.deliver_early(now, link, id);
        Ok(())
    }

    /// The game of that name, if this node serves it and `node` may send players.
    pub(super) fn admit(&self, node: NodeId, name: &str) -> Option<(usize, SocketAddr, Mode)> {
        let is_entry = self.config.members.as_ref().is_none_or(|members| {
            members
                .get(&node)
                .is_some_and(|roles| roles.contains(Roles::ENTRY))
        });
        let (index, game) = self
            .games
            .iter()
            .enumerate()
            .find(|(_, game)| game.name == name && game.exit.is_some())?;
        let exit = game.exit.as_ref()?;
        let is_listed = exit
            .entries
            .as_ref()
            .is_none_or(|entries| entries.contains(&node));
        let is_allowed = self.document().is_none_or(|document| {
            document.may_enter(name, &node) && document.may_exit(name, &self.own)
        });
        (is_entry && is_listed && is_allowed).then_some((index, exit.server, game.mode))
    }
}
