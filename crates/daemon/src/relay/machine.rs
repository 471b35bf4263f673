//! A node and its TCP sockets as one machine.

use std::ops::{Deref, DerefMut};
use std::sync::mpsc;
use std::time::Duration;

use crypto::Ring;
use relay_mesh::gossip::GossipStats;
use relay_mesh::link_state::TableStats;
use relay_mesh::signed_config::HolderStats;
use relay_mesh::tunnel::TunnelStats;
use relay_mesh::{Command, Event, FrameStats, Node, NodeStats, Outcome, PeerAddr};
use servicer::{Counters, Requests};
use tokio::sync::oneshot;
use udp_proto::EndpointStats;
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

use super::forwarder_threads::{ForwarderStats, StrayStats};
use super::tcp::{TcpReport, TcpSockets};

/// A node, and its TCP sockets if it carries TCP games.
///
/// The sockets run whenever the node has nothing to send.
#[derive(Debug)]
pub(super) struct NodeMachine {
    node: Node<Ring>,
    sockets: Option<Box<TcpSockets>>,
}

impl NodeMachine {
    pub(super) fn new(node: Node<Ring>, sockets: Option<TcpSockets>) -> Self {
        Self {
            node,
            sockets: sockets.map(Box::new),
        }
    }

    pub(super) fn tcp(&self) -> Option<TcpReport> {
        self.sockets.as_ref().map(|sockets| sockets.report())
    }
}

impl Deref for NodeMachine {
    type Target = Node<Ring>;

    fn deref(&self) -> &Node<Ring> {
        &self.node
    }
}

impl DerefMut for NodeMachine {
    fn deref_mut(&mut self) -> &mut Node<Ring> {
        &mut self.node
    }
}

impl Machine for NodeMachine {
    type Peer = PeerAddr;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerAddr>, datagram: &mut [u8]) {
        self.node.handle_datagram(now, arrival, datagram);
    }

    fn may_wait(&self, datagram: &[u8]) -> bool {
        Machine::may_wait(&self.node, datagram)
    }

    fn is_stray(&self, datagram: &[u8]) -> bool {
        Machine::is_stray(&self.node, datagram)
    }

    fn for_each_peer(&self, tell: &mut dyn FnMut(PeerAddr)) {
        Machine::for_each_peer(&self.node, tell);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        if let Some(sockets) = &mut self.sockets {
            sockets.handle_timeout(now, &mut self.node);
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.node.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        Machine::set_unix_time(&mut self.node, now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        loop {
            let transmit = self.node.poll_transmit(now, buf);
            let sockets = self.sockets.as_mut().filter(|_| transmit.is_none());
            if !sockets.is_some_and(|sockets| sockets.pump(now, &mut self.node)) {
                return transmit;
            }
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.node.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sockets = self.sockets.as_ref();
        let sockets = sockets.and_then(|sockets| sockets.poll_timeout());
        match (self.node.poll_timeout(), sockets) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

type Action = dyn FnOnce(Instant, &mut NodeMachine) + Send;

pub(super) struct NodeRequest(Box<Action>);

impl NodeRequest {
    pub(super) fn new(action: impl FnOnce(Instant, &mut NodeMachine) + Send + 'static) -> Self {
        Self(Box::new(action))
    }

    pub(super) fn run(self, now: Instant, node: &mut NodeMachine) {
        (self.0)(now, node);
    }
}

wire::opaque_debug!(NodeRequest);

#[derive(Clone, Debug)]
pub(super) struct NodeClient {
    node: Requests<NodeRequest>,
    forwarders: ForwarderStats,
}

impl NodeClient {
    pub(super) const fn new(node: Requests<NodeRequest>, forwarders: ForwarderStats) -> Self {
        Self { node, forwarders }
    }

    /// Blocks up to `timeout` for the result; `None` if the node does not answer.
    pub(super) fn call_blocking<T: Send + 'static>(
        &self,
        timeout: Duration,
        query: impl FnOnce(Instant, &mut NodeMachine) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply_sender, reply) = mpsc::sync_channel(1);
        self.send(move |now, node| {
            // The caller may have timed out.
            reply_sender.try_send(query(now, node)).ok();
        })?;
        reply.recv_timeout(timeout).ok()
    }

    /// Waits up to `timeout` for the result; `None` if the node does not answer.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        timeout: Duration,
        query: impl FnOnce(Instant, &mut NodeMachine) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply_sender, reply) = oneshot::channel();
        self.send(move |now, node| {
            reply_sender.send(query(now, node)).ok();
        })?;
        tokio::time::timeout(timeout, reply).await.ok()?.ok()
    }

    fn send(&self, call: impl FnOnce(Instant, &mut NodeMachine) + Send + 'static) -> Option<()> {
        self.node.send(NodeRequest::new(call)).ok()
    }

    /// Returns the driver counters of each shard, the node's own first.
    pub(super) fn shards(&self) -> Vec<Counters> {
        let own = self.node.counters();
        core::iter::once(own)
            .chain(self.forwarders.drivers())
            .collect()
    }

    fn counters(&self) -> Counters {
        let own = self.node.counters();
        self.forwarders.drivers().fold(own, Counters::plus)
    }
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Hop frames.
    pub frames: FrameStats,
    /// Everything else of the mesh.
    pub node: NodeStats,
    /// Received link-state records and deltas.
    pub records: TableStats,
    /// Gossip of link state.
    pub gossip: GossipStats,
    /// Datagrams at the mesh socket other than hop frames.
    pub endpoint: EndpointStats,
    /// Signed documents offered; `None` if the node uses none.
    pub config: Option<HolderStats>,
    /// TCP sockets; `None` if the node carries no TCP games.
    pub tcp: Option<TcpReport>,
    /// Tunnels of TCP games since the start; `None` if the node carries none.
    pub tunnels: Option<TunnelStats>,
    /// Labels in use.
    pub labels: u32,
    /// Sockets and threads of all shards.
    pub driver: Counters,
    /// Datagrams that arrived at another shard's socket.
    pub strays: StrayStats,
}

impl Stats {
    pub(super) fn of(node: &NodeMachine, client: &NodeClient) -> Self {
        Self {
            frames: node.frame_stats(),
            node: *node.stats(),
            records: node.table_stats(),
            gossip: *node.gossip_stats(),
            endpoint: *node.endpoint_stats(),
            config: node.config_stats().copied(),
            tcp: node.tcp(),
            tunnels: node.tunnel_stats(),
            labels: node.labels(),
            driver: client.counters(),
            strays: client.forwarders.strays(),
        }
    }

    /// Returns the number of dropped hop frames, for all reasons.
    #[must_use]
    pub fn frames_dropped(&self) -> u64 {
        let frames = &self.frames;
        let dropped = [
            frames.dropped(),
            frames.no_link,
            frames.not_sealed,
            frames.outbox_full,
        ];
        dropped.into_iter().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_dropped_sums_every_drop_counter() {
        let drops: [fn(&mut FrameStats) -> &mut u64; 19] = [
            |frames| &mut frames.truncated,
            |frames| &mut frames.oversize,
            |frames| &mut frames.unknown_kind,
            |frames| &mut frames.bad_trunk,
            |frames| &mut frames.malformed,
            |frames| &mut frames.tag_only,
            |frames| &mut frames.not_tag_only,
            |frames| &mut frames.unknown_label,
            |frames| &mut frames.expired,
            |frames| &mut frames.wrong_link,
            |frames| &mut frames.not_bound,
            |frames| &mut frames.replayed,
            |frames| &mut frames.wrong_tag,
            |frames| &mut frames.over_rate,
            |frames| &mut frames.over_owner_rate,
            |frames| &mut frames.hops_spent,
            |frames| &mut frames.no_link,
            |frames| &mut frames.not_sealed,
            |frames| &mut frames.outbox_full,
        ];
        let mut stats = Stats {
            frames: FrameStats::default(),
            node: NodeStats::default(),
            records: TableStats::default(),
            gossip: GossipStats::default(),
            endpoint: EndpointStats::default(),
            config: None,
            tcp: None,
            tunnels: None,
            labels: 0,
            driver: Counters::default(),
            strays: StrayStats::default(),
        };
        // Every counter except `sealed` and `arrived` must be listed above.
        let fields = format!("{:?}", stats.frames).matches(": ").count();
        assert_eq!(fields, drops.len() + 2);
        for (drop, expected) in drops.into_iter().zip(1..) {
            *drop(&mut stats.frames) = 1;
            assert_eq!(stats.frames_dropped(), expected);
        }
        stats.frames.sealed = 1;
        stats.frames.arrived = 1;
        assert_eq!(stats.frames_dropped(), 19);
    }
}
