//! The tunnel for TCP players whose exit is their entry: both ends are in this node.
//!
//! It is an ordinary tunnel, so the same limits and close semantics apply. The cost is sealing and
//! opening datagrams that never leave the node.

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::flow_side::{Side, TunnelSide};
use super::flow_table::Owner;
use super::tunnel_flows::HERE;
use crate::flow_message::FlowEnd;
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Creates both ends. Returns the flow of the entry side.
    pub(super) fn local_tunnel(&mut self, now: Instant) -> Option<u32> {
        if !self.make_room(now, Owner::Own) {
            return None;
        }
        let exit = self.next_here_id();
        self.add_tunnel(now, (LinkId::OWN, exit), (TunnelSide::Exit, HERE))?;
        let id = self.next_here_id();
        let has_room = self.make_room(now, Owner::Own);
        let entry = has_room
            .then(|| self.add_tunnel(now, (LinkId::OWN, id), (TunnelSide::Entry, HERE)))
            .flatten();
        if entry.is_none() {
            self.end_local_tunnel(now, FlowEnd::Local);
        }
        entry
    }

    /// Passes a datagram from one end to the other.
    pub(super) fn forward_local_tunnel(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let other = match self.flows.get(index).map(|flow| &flow.side) {
            Some(Side::Tunnel(TunnelSide::Entry)) => TunnelSide::Exit,
            Some(Side::Tunnel(TunnelSide::Exit)) => TunnelSide::Entry,
            Some(Side::Entry { .. } | Side::Exit { .. } | Side::Here { .. }) | None => return,
        };
        let tunnels = self.tunnels.as_ref();
        let Some(other) = tunnels.and_then(|tunnels| tunnels.with(LinkId::OWN, (other, HERE)))
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
            if let Some(flow) = tunnels.and_then(|tunnels| tunnels.with(LinkId::OWN, (side, HERE)))
            {
                self.end_flow(now, flow, reason);
            }
        }
    }
}
