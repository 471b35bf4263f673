//! Operator queries about this node.

use core::time::Duration;

use crypto::Provider;
use wire::NodeId;

use super::Node;
use crate::cost::Loss;
use crate::gossip::GossipStats;
use crate::link::LinkId;
use crate::link_state::TableStats;
use crate::routes::Path;
use crate::view::{LinkView, RouteView};

impl<P: Provider> Node<P> {
    /// Returns the ID of this node.
    pub const fn node_id(&self) -> NodeId {
        self.own
    }

    /// Returns the counters of received records and deltas.
    pub const fn table_stats(&self) -> TableStats {
        self.gossip.table().stats()
    }

    /// Returns the gossip counters.
    pub const fn gossip_stats(&self) -> &GossipStats {
        self.gossip.stats()
    }

    /// Returns the neighbours with an open session, in the order in which they became known.
    pub fn links(&self) -> impl Iterator<Item = LinkView> {
        self.peers.up().filter_map(|(link, peer, up)| {
            let relay = self.detours.relay(link);
            let relay = relay.and_then(|relay| self.peers.get(relay));
            Some(LinkView {
                node: peer.node,
                address: self.endpoint.peer_address(up.session)?,
                carries: up.carries,
                detour: relay.map(|relay| relay.node),
                report: self.reports.get(&peer.node).copied(),
            })
        })
    }

    /// Returns the paths to the far ends of this node's flows. Includes this node itself if it is
    /// the exit of its own players.
    pub fn routes(&self) -> impl Iterator<Item = RouteView> {
        let path_sets = self.path_sets.iter().filter_map(|(&link, path_set)| {
            let path = |id: Option<u8>| id.and_then(|id| path_set.path(id));
            let current = path(path_set.current);
            Some(RouteView {
                far_end: self.peers.get(link)?.node,
                path: current.map(|path| path.path.clone()),
                round_trip: current.and_then(|path| path.watch.round_trip()),
                lost_thousandths: current.map_or(0, |path| {
                    let (lost, decided) = path.watch.lost(self.now);
                    Loss::of(lost, decided).ppm() / 1_000
                }),
                data_lost_thousandths: current
                    .and_then(|path| path.quality.figures().lost_thousandths()),
                data_round_trip: current.and_then(|path| {
                    let trip = path.watch.round_trip()?;
                    Some(trip.saturating_add(path.quality.figures().later()?))
                }),
                standby: path(path_set.standby).map(|path| path.path.clone()),
                flows: self.flows.with(link).count(),
            })
        });
        let flows = self.flows.with(LinkId::OWN).count();
        let here = (flows > 0).then(|| RouteView {
            far_end: self.own,
            path: Some(Path {
                relays: Vec::new(),
                destination: self.own,
            }),
            round_trip: Some(Duration::ZERO),
            lost_thousandths: 0,
            data_lost_thousandths: None,
            data_round_trip: None,
            standby: None,
            flows,
        });
        path_sets.chain(here)
    }
}
