//! What is held of one origin.

use std::sync::Arc;

use crypto::PublicKey;
use udp_proto::budget::{Fill, Level};
use wire::{Instant, NodeId};

use super::deltas::Blamed;
use crate::link_state::{LinkDelta, LinkRecord, Outcome, Profile, ShortId};
use crate::measure::LinkReport;

/// One origin.
#[derive(Clone, Debug)]
pub(in crate::link_state) struct Entry {
    pub(super) key: PublicKey,
    pub(super) node_version: u64,
    pub(super) profile: Profile,
    /// Whom it measures, ascending.
    pub(super) list: Arc<[ShortId]>,
    /// The node record as it came, to pass on.
    pub(super) node_bytes: Arc<[u8]>,
    /// What link records are tied to.
    pub(super) hash: [u8; 32],
    /// When the node record was taken.
    pub(super) taken: Instant,
    /// Whether its link record, or in want of one its node record, still counts.
    pub(in crate::link_state) is_live: bool,
    pub(in crate::link_state) links: Option<Links>,
    /// Neighbours that are not believed about it.
    pub(super) blamed: Blamed,
    /// What it may still say.
    pub(super) pace: Pace,
}

/// What an origin measured.
#[derive(Clone, Debug)]
pub(in crate::link_state) struct Links {
    pub(super) version: u64,
    /// As it came, once it has expired too.
    bytes: Arc<[u8]>,
    /// Whether what it says still counts.
    is_live: bool,
    /// When it was taken.
    pub(super) taken: Instant,
    pub(in crate::link_state) is_leaving: bool,
    /// The list of its time, so that a new one does not change its meaning.
    pub(super) list: Arc<[ShortId]>,
    /// What it says now: record and delta.
    reports: Arc<[LinkReport]>,
    /// The newest delta, and which neighbour told it.
    pub(super) delta: Option<HeldDelta>,
}

/// A delta and who is answerable for it.
#[derive(Clone, Debug)]
pub(super) struct HeldDelta {
    pub(super) delta: LinkDelta,
    pub(super) by: NodeId,
}

impl Entry {
    /// Version of the newest link record, alive or not.
    pub(super) fn version(&self) -> u64 {
        self.links.as_ref().map_or(0, |links| links.version)
    }

    /// What becomes of a record of this version that is no newer than what is held.
    pub(super) fn outdated(&self, origin: NodeId, version: u64) -> Outcome {
        let is_live = self.links.as_ref().is_some_and(Links::is_live);
        if !is_live && version < self.node_version.max(self.version()) {
            Outcome::BelowExpired(origin.into())
        } else {
            Outcome::Stale
        }
    }

    /// Version of the newest record or delta.
    pub(super) fn state(&self) -> u64 {
        self.links.as_ref().map_or(0, Links::state)
    }
}

impl Links {
    pub(super) fn new(
        now: Instant,
        list: Arc<[ShortId]>,
        record: &LinkRecord,
        bytes: &[u8],
    ) -> Self {
        Self {
            version: record.version,
            bytes: bytes.into(),
            is_live: true,
            taken: now,
            is_leaving: record.is_leaving,
            list,
            reports: record.reports.as_slice().into(),
            delta: None,
        }
    }

    pub(super) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// Keeps nothing but the version, and the record as its proof.
    pub(super) fn end(&mut self) {
        self.is_live = false;
        self.reports = Arc::default();
        self.delta = None;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn delta(&self) -> Option<&LinkDelta> {
        self.delta.as_ref().map(|told| &told.delta)
    }

    /// Versions of the newest delta above the record.
    pub(super) fn after(&self) -> u16 {
        self.delta().map_or(0, |delta| delta.after)
    }

    pub(super) fn state(&self) -> u64 {
        self.version.saturating_add(self.after().into())
    }

    /// What is said of each neighbour.
    pub(in crate::link_state) fn iter(&self) -> impl Iterator<Item = (ShortId, LinkReport)> {
        self.list.iter().copied().zip(self.reports.iter().copied())
    }

    /// What is said of one neighbour.
    pub(in crate::link_state) fn report(&self, of: ShortId) -> Option<LinkReport> {
        let position = self.list.binary_search(&of).ok()?;
        self.reports.get(position).copied()
    }

    /// What the record says, without any delta.
    pub(super) fn signed(&self) -> Option<Vec<LinkReport>> {
        Some(LinkRecord::decode(&self.bytes).ok()?.reports)
    }

    /// Lets a delta take the place of the one before; false where it names a link that the record
    /// does not have up.
    pub(super) fn apply(&mut self, delta: LinkDelta, by: NodeId) -> bool {
        let Some(mut reports) = self.signed() else {
            return false;
        };
        for (position, report) in &delta.changes {
            match reports.get_mut(usize::from(*position)) {
                Some(signed) if signed.is_up() => *signed = signed.raised_to(*report),
                Some(_) | None => return false,
            }
        }
        self.reports = reports.into();
        self.delta = Some(HeldDelta { delta, by });
        true
    }
}

/// What an origin may still say; only what it signed is taken from it, so that forgeries in its
/// name do not silence it.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    node: Level,
    links: Level,
}

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Links,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            node: Level::full(NODE, now),
            links: Level::full(LINKS, now),
        }
    }

    /// Whether one more would be taken.
    pub(super) fn allows(&self, now: Instant, kind: Kind) -> bool {
        self.clone().take(now, kind)
    }

    /// Takes the place of one record; false where there is none.
    pub(super) fn take(&mut self, now: Instant, kind: Kind) -> bool {
        match kind {
            Kind::Node => self.node.take(NODE, now, 1),
            Kind::Links => self.links.take(LINKS, now, 1),
        }
    }
}

/// Node records: a publisher spaces them by 1 s; those of 5 s may come at once.
const NODE: Fill = Fill { rate: 1, burst: 5 };
/// Link records: a publisher spaces them by 200 ms; those of 2 s may come at once.
const LINKS: Fill = Fill { rate: 5, burst: 10 };
