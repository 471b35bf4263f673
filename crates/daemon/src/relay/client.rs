//! Requests from other threads to a running node, and the node's counters.

use std::sync::mpsc;
use std::time::Duration;

use relay_mesh::gossip::GossipStats;
use relay_mesh::link_state::TableStats;
use relay_mesh::signed_config::HolderStats;
use relay_mesh::tunnel::TunnelStats;
use relay_mesh::{FrameStats, NodeStats};
use servicer::{Counters, Requests};
use tokio::sync::oneshot;
use udp_proto::EndpointStats;
use wire::Instant;

use super::forwarder_threads::{ForwarderStats, StrayStats};
use super::machine::{NodeMachine, NodeRequest};
use super::tcp::TcpReport;

/// Sends requests to a node from another thread.
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

    /// Returns the sum of the driver counters.
    pub(super) fn counters(&self) -> Counters {
        let own = self.node.counters();
        self.forwarders.drivers().fold(own, Counters::plus)
    }

    /// Returns the counters of datagrams that arrived at another shard's socket.
    pub(super) fn strays(&self) -> StrayStats {
        self.forwarders.strays()
    }
}

/// Counters that the node itself holds.
pub(super) struct NodeCounters {
    frames: FrameStats,
    node: NodeStats,
    records: TableStats,
    gossip: GossipStats,
    endpoint: EndpointStats,
    config: Option<HolderStats>,
    tcp: Option<TcpReport>,
    tunnels: Option<TunnelStats>,
    labels: u32,
}

impl NodeCounters {
    pub(super) fn of(node: &NodeMachine) -> Self {
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
        }
    }

    pub(super) const fn with(self, driver: &Counters, strays: StrayStats) -> Stats {
        Stats {
            frames: self.frames,
            node: self.node,
            records: self.records,
            gossip: self.gossip,
            endpoint: self.endpoint,
            config: self.config,
            tcp: self.tcp,
            tunnels: self.tunnels,
            labels: self.labels,
            driver: *driver,
            strays,
        }
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
