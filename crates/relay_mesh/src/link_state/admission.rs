//! Whose records a table takes, and how many.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::NodeId;

use super::{Roles, ShortId};

/// Bounds of a [`LinkStateTable`](super::LinkStateTable).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableConfig {
    /// Origins held besides ourselves; 1,023, so that all fit a graph. Each costs up to 4 KB.
    pub nodes_max: usize,
    /// How long a link record counts; 90 s, three times the interval at which it is renewed.
    pub lifetime: Duration,
    /// Signature checks that a neighbour may save up; 256. A newcomer to a large network gets that
    /// many records at once from each neighbour, the rest at the rate.
    pub verify_burst: u32,
    /// Signature checks a second for each neighbour; 100, about half a percent of a core. 1,000
    /// nodes that renew each 30 s need 37.
    pub verify_rate: u32,
    /// Whose records are taken.
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

/// Whose records are taken.
#[derive(Clone, Debug)]
pub enum Admission {
    /// Everybody's, with the roles that they claim. Members can then invent origins until the
    /// table is full, so it is for networks whose members all trust each other.
    Anyone,
    /// Those of the nodes listed, with at most these roles.
    Listed(BTreeMap<NodeId, Roles>),
}

impl Admission {
    /// Returns the roles that `id` may have; `None` where its records are refused.
    #[must_use]
    pub fn roles(&self, id: &NodeId) -> Option<Roles> {
        match self {
            Self::Anyone => Some(Roles::ALL),
            Self::Listed(nodes) => nodes.get(id).copied(),
        }
    }

    /// Whether records are taken of a node with this short id.
    pub(super) fn admits(&self, origin: ShortId) -> bool {
        match self {
            Self::Anyone => true,
            Self::Listed(nodes) => nodes.range(origin.ids()).next().is_some(),
        }
    }
}
