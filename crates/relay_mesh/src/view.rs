//! What a node shows to its operator.

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
    /// Who it is.
    pub node: NodeId,
    /// Where its packets come from.
    pub address: SocketAddr,
    /// Whether it carries packets of games, or control only.
    pub carries: bool,
    /// Who passes on what the session says, where its direct path is dead.
    pub detour: Option<NodeId>,
    /// Delay and loss as told to others; `None` before the first report.
    pub report: Option<LinkReport>,
}

/// The whole mesh as one node knows it: what it would compute its routes on now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshView {
    /// All nodes that are heard of, ascending by id.
    pub nodes: Vec<NodeView>,
    /// All links that carry, each once, ascending by its ends.
    pub links: Vec<EdgeView>,
    /// Ways from exits to game servers, as far as this node measures them or is told of them.
    pub games: Vec<GameEdgeView>,
}

/// A node of a [`MeshView`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// Who it is.
    pub node: NodeId,
    /// What it calls itself; empty where it has not said so yet.
    pub name: String,
    /// What it does, as far as it may.
    pub roles: Roles,
    /// Where others reach it.
    pub addresses: Vec<SocketAddr>,
    /// Whether packets of others may pass it now: not where it drains.
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
    /// What it costs: delay and jitter, and the price of its loss.
    pub cost: Cost,
    /// What it loses.
    pub loss: LossCode,
}

/// The way from an exit to a game's server, as this node measures it or was told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GameEdgeView {
    /// The game.
    pub game: String,
    /// Over what it is played.
    pub protocol: Protocol,
    /// The exit; this node itself where it measures.
    pub exit: NodeId,
    /// The round trip; `None` where the server is not reached.
    pub cost: Option<Cost>,
}

/// What a node that drains still carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draining {
    /// Flows of which it is an end. They last as long as their players, or until they are idle.
    pub flows: u32,
    /// Labels of others' flows. Those of flows that went another way are given back, or last 30 s.
    pub labels: u32,
}

impl Draining {
    /// Returns whether nobody is disturbed where the node ends now.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.flows == 0 && self.labels == 0
    }
}

/// The way that packets of this node take to another end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteView {
    /// The other end.
    pub far_end: NodeId,
    /// The path in use; `None` before the first is set up.
    pub path: Option<Path>,
    /// Its smoothed round trip.
    pub round_trip: Option<Duration>,
    /// Probes that did not arrive over it lately, in thousandths; the way back does not count.
    pub lost_thousandths: u32,
    /// Data that did not arrive over it lately, in thousandths, as the other end reports; `None` before there was
    /// enough.
    pub data_lost_thousandths: Option<u32>,
    /// What the data's round trip is, if it comes back as fast as answers to probes: their round trip, and by how much
    /// later than probes the other end says that data arrives. `None` before a report told of any.
    pub data_round_trip: Option<Duration>,
    /// The path that is kept warm.
    pub standby: Option<Path>,
    /// Flows that take it.
    pub flows: usize,
}
