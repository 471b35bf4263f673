//! Signed records that every node floods, and the table that holds them.
//!
//! Each node is the *origin* of two records. The **node record** says who it is, where it listens
//! and whom it measures, in order; it changes rarely. The **link record** says what it measured,
//! in that order, each 30 s and on change. Both are signed by the origin's identity key, so a
//! relay of gossip can hold back a record but change none.
//!
//! **Signatures.** ECDSA P-256 with SHA-256, r and s of 32 bytes. Signed bytes, where `body` is
//! all of the record before its signature:
//!
//! ```text
//! node record:  "tw1 node record" 15 ‖ network 16 ‖ body
//! link record:  "tw1 link state" 14 ‖ network 16 ‖ SHA-256(body of the node record) 32 ‖ body
//! ```
//!
//! The network ([`Network`]) keeps records of one network out of another that shares a key. The
//! hash ties a link record to the one list that gives its positions their meaning; the record
//! carries the first 2 bytes of it, so that a missing list is told from a forgery without a check.
//! Nothing is named by a signature, since ECDSA's can be changed without the key.
//!
//! **Versions.** 8 bytes, one sequence for both kinds, strictly ascending for each origin:
//! `max(last + 1, UNIX milliseconds where the clock is known and below 2^48)`. A restarted node
//! whose clock went back, or is unknown, hears its own old records from its neighbours, checks
//! their signature and goes on above them (as OSPF does: RFC 2328, section 13.4). So neither the
//! clock nor a file is needed for correctness; both only save that one exchange.
//!
//! **Life.** A link record counts for 90 s after it was taken, once: its version stays remembered,
//! so a record of a dead node cannot go round and round between tables. A node record lives as
//! long as its link record, and 90 s without one.
//!
//! **Spread.** What [`LinkStateTable`] accepts is sent on to all neighbours but the one it came
//! from; the same version again is stale, so each goes over each link at most once each way.
//! Digests repair the rest.

mod admission;
mod graph;
mod link_delta;
mod link_record;
mod node_record;
mod outcome;
mod publisher;
mod table;
mod verify_budget;

use core::fmt;
use core::ops::{BitOr, RangeInclusive};

use wire::NodeId;

pub use self::admission::{Admission, TableConfig};
pub use self::link_delta::LinkDelta;
pub use self::link_record::{LinkRecord, Urgency};
pub use self::node_record::{NodeRecord, Profile};
pub use self::outcome::{DeltaOutcome, Outcome, Refusal, TableStats};
pub(crate) use self::publisher::low_half;
pub use self::publisher::{InvalidProfile, Publication, Publisher};
pub use self::table::LinkStateTable;

/// Most neighbours of one origin.
pub const NEIGHBOURS_MAX: usize = 64;

/// Which network a record belongs to; derived from the network secret, and itself no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub [u8; 16]);

/// First 8 bytes of a [`NodeId`]; 4 would be short enough to be collided with on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortId(pub [u8; 8]);

impl ShortId {
    /// The ids that begin so.
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

/// What a node does for others; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Players come in here.
    pub const ENTRY: Self = Self(1);
    /// It passes packets between nodes.
    pub const RELAY: Self = Self(2);
    /// Packets leave to game servers here.
    pub const EXIT: Self = Self(4);
    /// Everything.
    pub const ALL: Self = Self(7);

    /// Takes the byte of a record; `None` where it has a bit that means nothing.
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

    /// Returns what both sets have.
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
