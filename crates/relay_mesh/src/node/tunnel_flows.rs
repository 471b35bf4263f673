//! The flows that carry TCP tunnels, and their events.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crypto::Provider;
use wire::{Instant, NetworkKey, NodeId, SourceKey};

use super::Node;
use super::exit::{NODE_LEN, NODES_MAX};
use super::flow_table::{Flow, FlowOwner};
use super::flow_table::{Side, TunnelSide};
use super::tunnels::{ConnEntry, ConnOwner, Tunnels};
use crate::event::TurnedAway;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, FlowRefused};
use crate::game::{Game, Mode};
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::tcp::TcpWork;
use crate::tunnel::{
    ConnEnd, ConnId, OpenRecord, OutboundHeader, Refusal, Tunnel, TunnelEnd, TunnelEvent,
};

impl<P: Provider> Node<P> {
    pub(super) fn deliver_to_tunnel(&mut self, now: Instant, flow: u32, datagram: &[u8]) {
        let Some(tunnels) = &mut self.tunnels else {
            return;
        };
        if let Some(end) = tunnels.ends.get_mut(&flow) {
            end.tunnel.handle_datagram(now, datagram);
            tunnels.touched.insert(flow);
        }
    }

    /// Sends datagrams of tunnels and handles their events; returns false if nothing was pending.
    pub(super) fn pump_tunnels(&mut self, now: Instant) -> bool {
        let next = |tunnels: &mut Box<Tunnels>| {
            let flow = tunnels.touched.pop_first()?;
            Some((flow, core::mem::take(&mut tunnels.datagram)))
        };
        let mut has_any = false;
        while let Some((flow, mut datagram)) = self.tunnels.as_mut().and_then(next) {
            has_any = true;
            loop {
                datagram.clear();
                let end = self.end_mut(flow);
                if end
                    .and_then(|end| end.poll_transmit(now, &mut datagram))
                    .is_some()
                {
                    self.carry(now, flow, &datagram);
                } else if let Some(event) = self.end_mut(flow).and_then(Tunnel::poll_event) {
                    self.on_tunnel_event(now, flow, event);
                } else {
                    break;
                }
            }
            if let Some(tunnels) = &mut self.tunnels {
                tunnels.datagram = datagram;
            }
        }
        has_any
    }

    pub(super) fn run_tunnels(&mut self, now: Instant) {
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.handle_timeout(now);
        }
        self.pump_tunnels(now);
    }

    /// Opens due ports and closes unused tunnels; while draining, all without a connection.
    pub(super) fn run_tunnel_ports(&mut self, now: Instant) {
        let idle = self.config.flow_idle;
        let is_leaving = self.gossip.publisher().is_leaving();
        let Some(tunnels) = &mut self.tunnels else {
            return;
        };
        tunnels.open_ports(now);
        let unused = if is_leaving {
            tunnels.empty()
        } else {
            tunnels.unused(now, idle)
        };
        for flow in unused {
            self.close_flow(now, flow, FlowEnd::Idle);
        }
    }

    /// Notifies the tunnels to `remote` that their packets now use another path.
    pub(super) fn on_tunnels_moved(&mut self, now: Instant, remote: LinkId) {
        let Some(tunnels) = &mut self.tunnels else {
            return;
        };
        for (flow, end) in &mut tunnels.ends {
            if end.remote == remote {
                end.tunnel.handle_moved(now);
                tunnels.touched.insert(*flow);
            }
        }
    }

    pub(super) fn on_tunnel_open(
        &mut self,
        now: Instant,
        link: LinkId,
        (id, mode): (FlowId, Mode),
    ) {
        let outcome = if self.may_open(now, link) {
            self.accept_tunnel(now, link, (id, mode))
        } else {
            Err(FlowRefused::Full)
        };
        let opened = FlowMessage::Opened { flow: id, outcome };
        if !self.send_flow_message(now, link, &opened) && outcome.is_err() {
            self.send_close(now, link, (id, FlowEnd::Refused));
        }
    }

    pub(super) fn on_tunnel_ended(&mut self, flow: u32, reason: FlowEnd) {
        let end = match reason {
            FlowEnd::Local => TunnelEnd::Local,
            FlowEnd::SessionLost => TunnelEnd::Silent,
            FlowEnd::Idle | FlowEnd::Refused | FlowEnd::AeadLimitReached | FlowEnd::Evicted => {
                TunnelEnd::Closed
            }
        };
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.remove(flow, end);
        }
    }

    /// Applies new TCP games. Resets connections if their game changed or may no longer be carried.
    pub(super) fn apply_tcp_games(&mut self, now: Instant, games: Vec<Game>) {
        self.on_games_changed();
        let Some(tunnels) = &mut self.tunnels else {
            return self.report_left_out(games);
        };
        let mut over = tunnels.set_games(now, games);
        over.extend(self.disallowed_conns());
        let Some(tunnels) = &mut self.tunnels else {
            return;
        };
        for conn in over {
            if let Some(tunnel) = tunnels.of_conn(conn) {
                tunnel.reset(conn);
            }
            tunnels.end_conn(conn, ConnEnd::Lost(TunnelEnd::Local));
        }
    }

    fn disallowed_conns(&self) -> Vec<ConnId> {
        let (Some(tunnels), Some(document)) = (&self.tunnels, self.document()) else {
            return Vec::new();
        };
        let is_disallowed = |(conn, record): &(&ConnId, &ConnEntry)| {
            let end = tunnels.end_of(**conn);
            let remote = end.and_then(|end| self.node_of(end.remote));
            let (Some(end), Some(remote)) = (end, remote) else {
                return true;
            };
            !match end.side {
                TunnelSide::Entry => document.may_exit(&record.game, &remote),
                TunnelSide::Exit => document.may_enter(&record.game, &remote),
            }
        };
        let conns = tunnels.conns.iter().filter(is_disallowed);
        conns.map(|(conn, _)| *conn).collect()
    }

    fn end_mut(&mut self, flow: u32) -> Option<&mut Tunnel> {
        let end = self.tunnels.as_mut()?.ends.get_mut(&flow)?;
        Some(&mut end.tunnel)
    }

    fn on_tunnel_event(&mut self, now: Instant, flow: u32, event: TunnelEvent) {
        let work = match event {
            TunnelEvent::Asked { conn, open } => return self.on_asked(flow, conn, &open),
            TunnelEvent::Down { .. } => return self.close_flow(now, flow, FlowEnd::Local),
            TunnelEvent::Ended { conn, end } => {
                if let Some(tunnels) = &mut self.tunnels {
                    let record = tunnels.conns.get(conn).filter(|_| end != ConnEnd::Done);
                    let record =
                        record.filter(|record| matches!(record.owner, ConnOwner::Prefix(_)));
                    let game = record.map(|record| record.game.clone());
                    tunnels.end_conn(conn, end);
                    if let Some(game) = game {
                        self.count_rejected_tcp(now, game, TurnedAway::TcpReset);
                    }
                }
                return;
            }
            TunnelEvent::Readable { conn } => TcpWork::Readable { conn },
            TunnelEvent::Writable { conn } => TcpWork::Writable { conn },
            TunnelEvent::Finished { conn } => TcpWork::Finished { conn },
            TunnelEvent::Up | TunnelEvent::Accepted { .. } => return,
        };
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.work.push_back(work);
        }
    }

    /// Asks the driver to dial the game's server, or refuses the connection by policy or limit.
    fn on_asked(&mut self, flow: u32, conn: ConnId, open: &OpenRecord) {
        let remote = self.flows.get(flow).map(|flow| flow.remote);
        let node = remote.and_then(|remote| self.node_of(remote));
        let Some(server) = node.and_then(|node| self.tcp_server(node, &open.game)) else {
            if let Some(entry) = node {
                self.count_refused_game(self.now, entry, &open.game);
            }
            return self.refuse_asked(flow, conn, Refusal::Policy);
        };
        let owner = match remote {
            Some(remote) if remote != LinkId::OWN => ConnOwner::Entry(remote),
            Some(_) | None => ConnOwner::Prefix(NetworkKey::of(open.player.ip())),
        };
        self.reclaim_for(self.now, owner);
        let tunnels = self.tunnels.as_mut();
        if !tunnels.is_some_and(|tunnels| tunnels.has_slot(owner)) {
            return self.refuse_asked(flow, conn, Refusal::LimitReached);
        }
        let outbound_header = self.outbound_header(flow, open);
        if let Some(tunnels) = &mut self.tunnels {
            let record = ConnEntry {
                owner,
                source: SourceKey::of(open.player.ip()),
                game: open.game.clone(),
                outbound_header,
                used: self.now,
                has_sent: false,
            };
            tunnels.conns.insert(conn, record);
            tunnels.work.push_back(TcpWork::Dial { conn, server });
        }
    }

    fn refuse_asked(&mut self, flow: u32, conn: ConnId, why: Refusal) {
        if let Some(tunnel) = self.end_mut(flow) {
            tunnel.refuse(conn, why).ok();
        }
    }

    /// The PROXY header for the server of a stream; empty if the game uses none.
    fn outbound_header(&mut self, flow: u32, open: &OpenRecord) -> Vec<u8> {
        let mut out = Vec::new();
        let remote = self.flows.get(flow).map(|flow| flow.remote);
        let (Some(remote), Some(tunnels)) = (remote, &mut self.tunnels) else {
            return out;
        };
        let game = tunnels.game(&open.game).and_then(|game| game.exit.as_ref());
        let Some(header) = game.and_then(|exit| exit.header) else {
            return out;
        };
        // UDP flows count up from zero, so TCP streams count down from the maximum.
        let stream = u64::MAX.saturating_sub(tunnels.next_stream).to_be_bytes();
        tunnels.next_stream = tunnels.next_stream.saturating_add(1);
        let run = self.config.instance.0.to_be_bytes();
        let mut session = [0; 16];
        let bytes = run.into_iter().chain(stream);
        session
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte);
        let mut nodes = [0; NODES_MAX * NODE_LEN];
        let nodes = self.path_node_ids(remote, &mut nodes);
        let outbound_header = OutboundHeader {
            header,
            session,
            nodes,
        };
        // A record's addresses and 5 nodes do not exceed the header's maximum length.
        outbound_header.write(open, &mut out).ok();
        out
    }

    /// The server of a TCP game, if this node is its exit and accepts players from `node`.
    pub(super) fn tcp_server(&self, node: NodeId, name: &str) -> Option<SocketAddr> {
        let game = self.tunnels.as_ref()?.game(name)?;
        let exit = game.exit.as_ref()?;
        let may_send = self.may_send_players(&node, name, exit.entries.as_ref());
        (may_send && self.takes_new_flows(self.now)).then_some(exit.server)
    }

    fn accept_tunnel(
        &mut self,
        now: Instant,
        link: LinkId,
        (id, mode): (FlowId, Mode),
    ) -> Result<(), FlowRefused> {
        let node = self.peers.get(link).map(|peer| peer.node);
        let node = node.ok_or(FlowRefused::Policy)?;
        let tunnels = self.tunnels.as_ref().ok_or(FlowRefused::Policy)?;
        if !self.may_act_as(&node, &[Roles::ENTRY])
            || !tunnels.games.iter().any(|game| game.exit.is_some())
        {
            return Err(FlowRefused::Policy);
        }
        if tunnels.with(link, (TunnelSide::Exit, mode)).is_some() {
            return Err(FlowRefused::Full);
        }
        if !self.ensure_path_set(now, link) {
            return Err(FlowRefused::Policy);
        }
        let path_set = self.path_sets.get_mut(&link).ok_or(FlowRefused::Policy)?;
        if !path_set.accept_remote_id(now, id) {
            return Err(FlowRefused::BadId);
        }
        if !self.make_room(now, FlowOwner::Entry(link)) {
            return Err(FlowRefused::Full);
        }
        self.add_tunnel(now, (link, id), (TunnelSide::Exit, mode))
            .ok_or(FlowRefused::Full)?;
        self.deliver_early(now, link, id);
        Ok(())
    }

    /// The flow of the tunnel to an exit for games of `mode`; opens one if there is none.
    pub(super) fn tunnel_to(&mut self, now: Instant, remote: LinkId, mode: Mode) -> Option<u32> {
        let mode = if remote == LinkId::OWN {
            LOCAL_MODE
        } else {
            mode
        };
        let of = (TunnelSide::Entry, mode);
        if let Some(flow) = self.tunnels.as_ref()?.with(remote, of) {
            return Some(flow);
        }
        if remote == LinkId::OWN {
            return self.local_tunnel(now);
        }
        if !self.ensure_path_set(now, remote) || !self.make_room(now, FlowOwner::Own) {
            return None;
        }
        // The exit expects flow ids in order, so pending opens are sent first.
        if !self.send_all_opens(now, remote) {
            return None;
        }
        self.ports.on_asked(now, TUNNELS, remote);
        let id = self.path_sets.get_mut(&remote)?.take_flow_id(now);
        let open = FlowMessage::OpenTunnel { flow: id, mode };
        if !self.send_flow_message(now, remote, &open) {
            return None;
        }
        self.add_tunnel(now, (remote, id), of)
    }

    /// Adds a flow with one tunnel end; returns its index.
    pub(super) fn add_tunnel(
        &mut self,
        now: Instant,
        (remote, id): (LinkId, FlowId),
        (side, mode): (TunnelSide, Mode),
    ) -> Option<u32> {
        let (node, keys) = if remote == LinkId::OWN {
            (self.own, None)
        } else {
            let keys = self.flow_keys(remote, id)?;
            (self.peers.get(remote)?.node, Some(keys))
        };
        let of = (TUNNELS, NO_PLAYER, mode);
        let flow = Flow::new(now, (remote, id), of, keys, Side::Tunnel(side));
        let index = self.flows.insert(flow).ok()?;
        // The remote end has a session, so it is authenticated.
        self.on_proved(index);
        let added = self
            .tunnels
            .as_mut()?
            .add(now, index, (remote, side, mode), |all, number| {
                let made = (number, &all.config.tunnel);
                let times = (all.config.epoch, now);
                match side {
                    TunnelSide::Entry => Tunnel::entry(made, &all.identity, node, times),
                    TunnelSide::Exit => Tunnel::exit(made, &all.identity, node, times),
                }
            });
        if added.is_err() {
            self.close_flow(now, index, FlowEnd::Local);
            return None;
        }
        self.paths_dirty = true;
        Some(index)
    }

    /// Creates both ends of the tunnel for TCP players with this node as exit; returns the flow of
    /// the entry side. It is an ordinary tunnel, so that the same limits and close semantics
    /// apply.
    pub(super) fn local_tunnel(&mut self, now: Instant) -> Option<u32> {
        if !self.make_room(now, FlowOwner::Own) {
            return None;
        }
        let exit = self.next_local_id();
        self.add_tunnel(now, (LinkId::OWN, exit), (TunnelSide::Exit, LOCAL_MODE))?;
        let id = self.next_local_id();
        let has_room = self.make_room(now, FlowOwner::Own);
        let entry = has_room
            .then(|| self.add_tunnel(now, (LinkId::OWN, id), (TunnelSide::Entry, LOCAL_MODE)))
            .flatten();
        if entry.is_none() {
            self.end_local_tunnel(now, FlowEnd::Local);
        }
        entry
    }

    pub(super) fn forward_local_tunnel(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let other = match self.flows.get(index).map(|flow| &flow.side) {
            Some(Side::Tunnel(TunnelSide::Entry)) => TunnelSide::Exit,
            Some(Side::Tunnel(TunnelSide::Exit)) => TunnelSide::Entry,
            Some(Side::Entry { .. } | Side::Exit { .. } | Side::Local { .. }) | None => return,
        };
        let tunnels = self.tunnels.as_ref();
        let Some(other) =
            tunnels.and_then(|tunnels| tunnels.with(LinkId::OWN, (other, LOCAL_MODE)))
        else {
            return;
        };
        if let Some(flow) = self.flows.get_mut(other) {
            flow.used = now;
        }
        self.deliver_to_tunnel(now, other, datagram);
    }

    /// Removes both ends: neither works without the other.
    pub(super) fn end_local_tunnel(&mut self, now: Instant, reason: FlowEnd) {
        for side in [TunnelSide::Entry, TunnelSide::Exit] {
            let tunnels = self.tunnels.as_ref();
            if let Some(flow) =
                tunnels.and_then(|tunnels| tunnels.with(LinkId::OWN, (side, LOCAL_MODE)))
            {
                self.end_flow(now, flow, reason);
            }
        }
    }
}

/// Game index of a flow that carries a tunnel, which belongs to no single game.
pub(super) const TUNNELS: usize = usize::MAX;
pub(super) const LOCAL_MODE: Mode = Mode::Shadow;
const NO_PLAYER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
