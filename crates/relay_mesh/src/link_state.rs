//! Signed records that every node floods, and the table that stores them.
//!
//! Each node is the *origin* of two records. The **node record** has its identity, its addresses
//! and the ordered list of nodes that it measures; it rarely changes. The **link record** has the
//! measurements, in the order of that list, every 30 s and on change. The origin's identity key
//! signs both: a forwarding node can withhold a record but not modify it.
//!
//! **Signatures.** ECDSA P-256 with SHA-256, r and s of 32 bytes. Signed bytes, where `body` is
//! all of the record before its signature:
//!
//! ```text
//! node record:  "tw1 node record" 15 ‖ network 16 ‖ body
//! link record:  "tw1 link state" 14 ‖ network 16 ‖ SHA-256(body of the node record) 32 ‖ body
//! ```
//!
//! The network ([`Network`]) separates networks that share a key. The hash binds a link record to
//! the list that gives its positions their meaning; the record carries the hash's first 2 bytes, so
//! that a missing list is distinguished from a forgery without a signature check. No signature
//! serves as an identity, since ECDSA signatures can be altered without the key.
//!
//! **Versions.** 8 bytes, one sequence for both kinds, strictly ascending per origin:
//! `max(last + 1, UNIX milliseconds if the clock is known and below 2^48)`. If a node restarts with
//! an unknown clock, or one that went back, its neighbours send it its own old records; it verifies
//! their signatures and continues above them (as OSPF does: RFC 2328, section 13.4). Correctness so
//! needs neither a clock nor a file; both only save that exchange.
//!
//! **Lifetime.** A link record counts for 90 s after it was accepted, once: the table keeps its
//! version, so that a dead node's record cannot circulate between tables. A node record lives as
//! long as its link record, and 90 s without one.
//!
//! **Flooding.** A record that [`LinkStateTable`] accepts is sent to all neighbours except its
//! sender. The same version again is stale, so each record crosses each link at most once per
//! direction. Digests repair the rest.

mod graph;
mod link_record;
mod message;
mod node_record;
mod publisher;
mod table;

use core::fmt;
use core::ops::{BitOr, RangeInclusive};

use wire::NodeId;

pub use self::link_record::{LinkDelta, LinkRecord, Urgency};
pub use self::message::{Digest, Have, LINK_DELTAS_MAX, Message, Request};
pub use self::node_record::{NodeRecord, Profile};
pub(crate) use self::publisher::low_half;
pub use self::publisher::{InvalidProfile, Publication, Publisher};
pub use self::table::{
    Admission, DeltaOutcome, LinkStateTable, Outcome, Refusal, TableConfig, TableStats,
};

/// Most neighbours of one origin.
pub const NEIGHBOURS_MAX: usize = 64;

/// Network that a record belongs to; derived from the network secret, and not secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub [u8; 16]);

/// First 8 bytes of a [`NodeId`]; collisions of 4 bytes could be produced on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortId(pub [u8; 8]);

impl ShortId {
    fn ids(self) -> RangeInclusive<NodeId> {
        let [low, high] = [0, 0xff].map(|rest| {
            let mut id = [rest; 32];
            if let Some(head) = id.first_chunk_mut() {
                *head = self.0;
            }
            NodeId(id)
        });
        low..=high
    }
}

impl From<NodeId> for ShortId {
    fn from(id: NodeId) -> Self {
        Self(*id.0.first_chunk().unwrap_or(&[0; 8]))
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Services that a node offers to others; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);
    /// Players connect here.
    pub const ENTRY: Self = Self(1);
    /// Forwards packets between nodes.
    pub const RELAY: Self = Self(2);
    /// Forwards packets to game servers.
    pub const EXIT: Self = Self(4);
    /// All roles.
    pub const ALL: Self = Self(7);

    /// Converts the byte of a record; `None` if an unknown bit is set.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Returns the byte of a record: 1 entry, 2 relay, 4 exit.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the intersection.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Roles {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
