//! Snapshots of a node's state for its operator.

use core::net::SocketAddr;
use core::time::Duration;

use wire::NodeId;

use crate::cost::{Cost, LossCode};
use crate::link_state::Roles;
use crate::measure::LinkReport;
use crate::routes::Path;
use crate::signed_config::Protocol;

/// A neighbour with an open session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkView {
    /// The neighbour.
    pub node: NodeId,
    /// Source address of its packets.
    pub address: SocketAddr,
    /// Whether it carries game packets, not only control messages.
    pub carries: bool,
    /// The node that forwards the session's datagrams while the direct path is dead.
    pub detour: Option<NodeId>,
    /// Published delay and loss; `None` before the first report.
    pub report: Option<LinkReport>,
}

/// The mesh as known to one node, and used for its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshView {
    /// All known nodes, ascending by id.
    pub nodes: Vec<NodeView>,
    /// All usable links, each once, ascending by its ends.
    pub links: Vec<EdgeView>,
    /// Edges from exits to game servers, as measured by this node or reported to it.
    pub games: Vec<GameEdgeView>,
}

/// A node of a [`MeshView`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// Its id.
    pub node: NodeId,
    /// Its name; empty if it has not published one.
    pub name: String,
    /// Its roles, as far as they are granted.
    pub roles: Roles,
    /// Its published addresses.
    pub addresses: Vec<SocketAddr>,
    /// Whether it may forward new flows; false while it drains.
    pub may_relay: bool,
}

/// A link of a [`MeshView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeView {
    /// The end with the lower id.
    pub low: NodeId,
    /// The end with the higher id.
    pub high: NodeId,
    /// Cost of delay, jitter and loss.
    pub cost: Cost,
    /// Its loss.
    pub loss: LossCode,
}

/// The edge from an exit to a game's server, as measured by this node or reported to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GameEdgeView {
    /// The game.
    pub game: String,
    /// Its transport protocol.
    pub protocol: Protocol,
    /// The exit; this node if it measures.
    pub exit: NodeId,
    /// The round trip; `None` if the server is unreachable.
    pub cost: Option<Cost>,
}

/// What a draining node still carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draining {
    /// Flows that end at it. They last until their players leave or are idle.
    pub flows: u32,
    /// Labels of other nodes' flows. Labels of moved flows are released, or expire after 30 s.
    pub labels: u32,
}

impl Draining {
    /// Returns whether the node can stop without an effect on players.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.flows == 0 && self.labels == 0
    }
}

/// The path from this node to another end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteView {
    /// The other end.
    pub remote_end: NodeId,
    /// The path in use; `None` before the first is set up.
    pub path: Option<Path>,
    /// Its smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// Recent loss of probes in thousandths, in the direction to the other end.
    pub lost_thousandths: u32,
    /// Recent loss of data in thousandths, as the other end reports; `None` before enough data.
    pub data_lost_thousandths: Option<u32>,
    /// Estimated round trip of data: the probes' round trip plus the delay of data relative to
    /// probes that the other end reports. `None` before the first such report.
    pub data_round_trip: Option<Duration>,
    /// The standby path, which is kept warm.
    pub standby: Option<Path>,
    /// Number of flows on it.
    pub flows: usize,
}
