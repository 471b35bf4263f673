//! Records of one origin.

use std::sync::Arc;

use crypto::PublicKey;
use wire::token_bucket::{Fill, Level};
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
    /// Nodes that it measures, ascending.
    pub(super) list: Arc<[ShortId]>,
    /// The node record as received, to forward it.
    pub(super) node_bytes: Arc<[u8]>,
    /// The hash that link records are bound to.
    pub(super) hash: [u8; 32],
    /// When the node record was accepted.
    pub(super) taken: Instant,
    /// Whether its link record, or without one its node record, is live.
    pub(in crate::link_state) is_live: bool,
    pub(in crate::link_state) links: Option<Links>,
    /// Neighbours whose deltas of this origin are not accepted.
    pub(super) blamed: Blamed,
    /// Rate limits of its records.
    pub(super) pace: Pace,
}

/// Measurements of an origin.
#[derive(Clone, Debug)]
pub(in crate::link_state) struct Links {
    pub(super) version: u64,
    /// The record as received; kept after it has expired.
    bytes: Arc<[u8]>,
    /// Whether it still counts.
    is_live: bool,
    /// When it was accepted.
    pub(super) taken: Instant,
    pub(in crate::link_state) is_leaving: bool,
    /// The list that it was made for, so that a newer one does not change its meaning.
    pub(super) list: Arc<[ShortId]>,
    /// Current reports: record and delta.
    reports: Arc<[LinkReport]>,
    /// The newest delta and its sender.
    pub(super) delta: Option<HeldDelta>,
}

/// A delta and the neighbour that sent it.
#[derive(Clone, Debug)]
pub(super) struct HeldDelta {
    pub(super) delta: LinkDelta,
    pub(super) by: NodeId,
}

impl Entry {
    /// Version of the newest link record, live or not.
    pub(super) fn version(&self) -> u64 {
        self.links.as_ref().map_or(0, |links| links.version)
    }

    /// Returns the outcome of a record with this version, which is no newer than what is held.
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

    /// Keeps only the version, and the record as its proof.
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

    /// Number of versions by which the newest delta exceeds the record.
    pub(super) fn after(&self) -> u16 {
        self.delta().map_or(0, |delta| delta.after)
    }

    pub(super) fn state(&self) -> u64 {
        self.version.saturating_add(self.after().into())
    }

    /// Returns the reports of all neighbours.
    pub(in crate::link_state) fn iter(&self) -> impl Iterator<Item = (ShortId, LinkReport)> {
        self.list.iter().copied().zip(self.reports.iter().copied())
    }

    /// Returns the report of one neighbour.
    pub(in crate::link_state) fn report(&self, of: ShortId) -> Option<LinkReport> {
        let position = self.list.binary_search(&of).ok()?;
        self.reports.get(position).copied()
    }

    /// Returns the reports of the record, without deltas.
    pub(super) fn signed(&self) -> Option<Vec<LinkReport>> {
        Some(LinkRecord::decode(&self.bytes).ok()?.reports)
    }

    /// Replaces the delta; returns false if it names a link that is not up in the record.
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

/// Rate limits of an origin's records. Only genuine records consume them, so that forgeries do not
/// block the origin.
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

    /// Whether another record would be accepted.
    pub(super) fn allows(&self, now: Instant, kind: Kind) -> bool {
        self.clone().take(now, kind)
    }

    /// Consumes one record's share; returns false if there is none.
    pub(super) fn take(&mut self, now: Instant, kind: Kind) -> bool {
        match kind {
            Kind::Node => self.node.take(NODE, now, 1),
            Kind::Links => self.links.take(LINKS, now, 1),
        }
    }
}

/// Node records: publishers space them by 1 s; the burst covers 5 s.
const NODE: Fill = Fill { rate: 1, burst: 5 };
/// Link records: publishers space them by 200 ms; the burst covers 2 s.
const LINKS: Fill = Fill { rate: 5, burst: 10 };
