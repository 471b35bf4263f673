//! The exit's side: one upstream socket for each flow.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::asking::Asking;
use super::flow_table::{Early, Flow, Owner, Side};
use super::telling::Told;
use super::{Node, Pending};
use crate::event::{Command, Event, Outcome};
use crate::exchange::Exchange;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, FlowRefused};
use crate::leg::Leg;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::pieces::Joiner;

impl<P: Provider> Node<P> {
    /// Takes an entry's wish for a flow.
    pub(super) fn on_flow_open(
        &mut self,
        now: Instant,
        link: LinkId,
        (flow, player, game): (FlowId, SocketAddr, &str),
    ) {
        let outcome = self.accept_flow(now, link, (flow, player, game));
        if let Err(why) = outcome {
            let opened = FlowMessage::Opened {
                flow,
                outcome: Err(why),
            };
            self.send_flow_message(now, link, &opened);
        }
    }

    /// Takes the socket of a flow, or its failure.
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
                let opened = FlowMessage::Opened {
                    flow: id,
                    outcome: Ok(()),
                };
                self.send_flow_message(now, far, &opened);
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
                    let opened = FlowMessage::Opened {
                        flow: id,
                        outcome: Err(FlowRefused::NoSocket),
                    };
                    self.send_flow_message(now, far, &opened);
                    self.end_flow(now, index, FlowEnd::Refused);
                }
            }
        }
    }

    /// Hands a datagram to the game server, or lets it wait for the socket.
    pub(super) fn deliver_to_server(&mut self, index: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        match &mut flow.side {
            Side::Exit {
                server,
                socket: Some(socket),
                exchange,
                answered_at,
                serial,
            } => {
                let silence = answered_at.map(|at| self.now.saturating_since(at));
                let leg = Leg {
                    socket: *socket,
                    address: *server,
                };
                let game = flow.game;
                let told = Told {
                    player: flow.player,
                    entry: flow.far,
                    serial: *serial,
                };
                if exchange.on_request() {
                    self.on_proved(index);
                }
                let game = self.config.games.get(game);
                let exit = game.and_then(|game| game.exit.as_ref());
                let header = exit.and_then(|exit| exit.header);
                match header.filter(|header| header.is_due(silence, datagram)) {
                    Some(header) => self.push_told(leg, (header, told), datagram),
                    None => self.push_out((leg, None), datagram),
                }
            }
            Side::Exit { socket: None, .. } => {
                if !flow.inward.push(datagram) {
                    self.stats.early_dropped = self.stats.early_dropped.saturating_add(1);
                }
            }
            Side::Entry { .. } => {}
            #[cfg(feature = "tcp")]
            Side::Tunnel(_) => {}
        }
    }

    /// Takes a datagram of an upstream socket.
    pub(super) fn on_server_datagram(&mut self, now: Instant, leg: Leg, datagram: &[u8]) {
        let index = self.flows.of_socket(leg.socket);
        let flow = index.and_then(|index| self.flows.get_mut(index));
        match (index, flow.map(|flow| &mut flow.side)) {
            (
                Some(index),
                Some(Side::Exit {
                    server,
                    exchange,
                    answered_at,
                    ..
                }),
            ) if *server == leg.address => {
                exchange.on_reply();
                *answered_at = Some(now);
                self.carry(now, index, datagram);
            }
            _ => self.stats.strangers = self.stats.strangers.saturating_add(1),
        }
    }

    fn accept_flow(
        &mut self,
        now: Instant,
        link: LinkId,
        (id, player, game): (FlowId, SocketAddr, &str),
    ) -> Result<(), FlowRefused> {
        let node = self.peers.get(link).map(|peer| peer.node);
        let node = node.ok_or(FlowRefused::Policy)?;
        if !self.takes_new_flows(now) {
            return Err(FlowRefused::Policy);
        }
        let (game, server, mode) = self.admit(node, game).ok_or(FlowRefused::Policy)?;
        // A driver that does not answer must not make us remember more and more.
        let is_overdue =
            self.pending.len() >= 2 * usize::try_from(self.config.flows_max).unwrap_or(usize::MAX);
        if is_overdue {
            return Err(FlowRefused::Full);
        }
        if !self.ensure_course(now, link) {
            return Err(FlowRefused::Policy);
        }
        let is_new = self
            .courses
            .get_mut(&link)
            .is_some_and(|course| course.take_foreign_id(now, id));
        if !is_new {
            return Err(FlowRefused::BadId);
        }
        let (sealer, opener) = self.flow_keys(link, id).ok_or(FlowRefused::Policy)?;
        // Last, since it may end another flow.
        if !self.make_room(now, Owner::Entry(link)) {
            return Err(FlowRefused::Full);
        }
        let flow = Flow {
            id,
            far: link,
            game,
            player,
            mode,
            sealer,
            opener,
            joiner: Joiner::new(),
            side: Side::Exit {
                server,
                socket: None,
                exchange: Exchange::NEW,
                answered_at: None,
                serial: self.next_command,
            },
            outward: Early::default(),
            inward: Early::default(),
            labels: Vec::new(),
            used: now,
            asking: Asking::new(now),
            unproved: None,
        };
        let index = self.flows.insert(flow).map_err(|_| FlowRefused::Full)?;
        self.command(Command::Open { server }, Pending::Upstream(index, link, id));
        let game = self.game_name(game);
        self.tell(Event::FlowOpened {
            game,
            player,
            far_end: node,
        });
        self.is_untended = true;
        Ok(())
    }

    /// The game of that name, where we serve it and `node` may send us players.
    pub(super) fn admit(
        &self,
        node: NodeId,
        name: &str,
    ) -> Option<(usize, SocketAddr, crate::config::Mode)> {
        let is_entry = self.config.members.as_ref().is_none_or(|members| {
            members
                .get(&node)
                .is_some_and(|roles| roles.contains(Roles::ENTRY))
        });
        let (index, game) = self
            .config
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
