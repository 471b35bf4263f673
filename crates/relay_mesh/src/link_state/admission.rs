//! Which nodes' records a table accepts, and its bounds.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::NodeId;

use super::{Roles, ShortId};

/// Bounds of a [`LinkStateTable`](super::LinkStateTable).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableConfig {
    /// Origins besides this node; default 1,023, so that all fit a graph. Each uses up to 4 KB.
    pub nodes_max: usize,
    /// Lifetime of a link record; default 90 s, three renewal intervals.
    pub lifetime: Duration,
    /// Burst of signature checks per neighbour; default 256. A node that joins a large network
    /// receives as many records at once from each neighbour, and the rest at the rate.
    pub verify_burst: u32,
    /// Signature checks per second and neighbour; default 100, about half a percent of a core.
    /// 1,000 nodes that renew every 30 s need 37.
    pub verify_rate: u32,
    /// Nodes whose records are accepted.
    pub admission: Admission,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            nodes_max: 1_023,
            lifetime: Duration::from_secs(90),
            verify_burst: 256,
            verify_rate: 100,
            admission: Admission::Anyone,
        }
    }
}

/// Nodes whose records are accepted.
#[derive(Clone, Debug)]
pub enum Admission {
    /// All nodes, with the roles that they claim. A member can then invent origins until the table
    /// is full, so use it only for networks whose members trust each other.
    Anyone,
    /// The listed nodes, with at most these roles.
    Listed(BTreeMap<NodeId, Roles>),
}

impl Admission {
    /// Returns the roles that `id` may have; `None` if its records are refused.
    #[must_use]
    pub fn roles(&self, id: &NodeId) -> Option<Roles> {
        match self {
            Self::Anyone => Some(Roles::ALL),
            Self::Listed(nodes) => nodes.get(id).copied(),
        }
    }

    /// Whether a node with this short id may be admitted.
    pub(super) fn admits(&self, origin: ShortId) -> bool {
        match self {
            Self::Anyone => true,
            Self::Listed(nodes) => nodes.range(origin.ids()).next().is_some(),
        }
    }
}
