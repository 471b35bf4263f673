//! Records of one origin, and its deltas with the penalties for false ones.

use core::time::Duration;
use std::sync::Arc;

use crypto::PublicKey;
use wire::token_bucket::{Fill, Level};
use wire::{Instant, NodeId};

use super::LinkStateTable;
use crate::link_state::publisher::{has_changed, low_half};
use crate::link_state::{DeltaOutcome, LinkDelta, LinkRecord, Outcome, Profile, ShortId};
use crate::measure::LinkReport;

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
    pub(super) taken: Instant,
    /// Whether its link record, or without one its node record, is live.
    pub(in crate::link_state) is_live: bool,
    pub(in crate::link_state) links: Option<Links>,
    /// Neighbours that sent false deltas of this origin: this node ignores further ones from them.
    pub(super) penalties: Penalties,
    /// Rate limits of its records.
    pub(super) pace: RecordLimiter,
}

/// Measurements of an origin.
#[derive(Clone, Debug)]
pub(in crate::link_state) struct Links {
    pub(super) version: u64,
    /// The record as received; kept after it has expired.
    bytes: Arc<[u8]>,
    /// Whether it still counts.
    pub(super) is_live: bool,
    /// When it was accepted.
    pub(super) taken: Instant,
    pub(in crate::link_state) is_leaving: bool,
    /// The list that it was made for, so that a newer one does not change its meaning.
    pub(super) list: Arc<[ShortId]>,
    /// Current reports: record and delta.
    reports: Arc<[LinkReport]>,
    pub(super) delta: Option<HeldDelta>,
}

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

    pub(super) fn live_links(&self) -> Option<&Links> {
        self.links.as_ref().filter(|links| links.is_live)
    }

    /// Returns the outcome of a record with this version, which is no newer than what is held.
    pub(super) fn outdated(&self, origin: NodeId, version: u64) -> Outcome {
        if self.live_links().is_none() && version < self.node_version.max(self.version()) {
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
        self.delta.as_ref().map(|held| &held.delta)
    }

    /// Number of versions by which the newest delta exceeds the record.
    pub(super) fn after(&self) -> u16 {
        self.delta().map_or(0, |delta| delta.after)
    }

    pub(super) fn state(&self) -> u64 {
        self.version.saturating_add(self.after().into())
    }

    pub(in crate::link_state) fn iter(&self) -> impl Iterator<Item = (ShortId, LinkReport)> {
        self.list.iter().copied().zip(self.reports.iter().copied())
    }

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

/// Rate limits of an origin's records; only genuine records consume them.
#[derive(Clone, Debug)]
pub(super) struct RecordLimiter {
    node: Level,
    links: Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Links,
}

impl RecordLimiter {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            node: Level::full(NODE, now),
            links: Level::full(LINKS, now),
        }
    }

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

/// Neighbours that deltas of an origin are temporarily not accepted from.
#[derive(Clone, Debug, Default)]
pub(super) struct Penalties(Vec<Penalty>);

#[derive(Clone, Debug)]
struct Penalty {
    neighbour: NodeId,
    since: Instant,
    span: Duration,
}

impl Penalties {
    /// Adds a penalty; if the list is full, it replaces the one that expires first.
    fn add(&mut self, now: Instant, neighbour: NodeId) {
        let place = self.0.iter().position(|held| held.neighbour == neighbour);
        let last = place.map(|place| self.0.swap_remove(place));
        let span = last.map_or(PENALTY, |last| last.next_span(now));
        if self.0.len() >= PENALTIES_MAX {
            let held = self.0.iter().enumerate();
            if let Some((place, _)) = held.min_by_key(|(_, held)| held.left(now)) {
                self.0.swap_remove(place);
            }
        }
        self.0.push(Penalty {
            neighbour,
            since: now,
            span,
        });
    }

    fn holds(&self, now: Instant, neighbour: &NodeId) -> bool {
        let mut held = self.0.iter();
        held.any(|held| held.neighbour == *neighbour && !held.left(now).is_zero())
    }
}

impl Penalty {
    const fn left(&self, now: Instant) -> Duration {
        self.span.saturating_sub(now.saturating_since(self.since))
    }

    /// Duration of the next penalty; it does not grow for deltas sent before this one.
    fn next_span(&self, now: Instant) -> Duration {
        let good = now.saturating_since(self.since).saturating_sub(self.span);
        if !self.left(now).is_zero() {
            self.span
        } else if good < PENALTY_MAX {
            self.span.saturating_mul(2).min(PENALTY_MAX)
        } else {
            PENALTY
        }
    }
}

impl LinkStateTable {
    /// Handles a delta from neighbour `from`.
    ///
    /// It is not signed, and counts until the origin's next record, which verifies it. If it was
    /// false, deltas of that origin from this neighbour are ignored for 30 s, and each further time
    /// for twice as long, up to 10 min. The neighbour may be honest, and deceived itself: a longer
    /// or a general penalty would let one byzantine node stop deltas between all honest nodes.
    pub fn accept_delta(&mut self, now: Instant, from: NodeId, delta: LinkDelta) -> DeltaOutcome {
        let outcome = self.judge_delta(now, from, delta);
        self.stats.count_delta(outcome);
        outcome
    }

    pub(crate) fn publish_delta(&mut self, delta: LinkDelta) {
        let own = self.entries.get_mut(&self.own);
        if let Some(links) = own.and_then(|entry| entry.links.as_mut()) {
            links.apply(delta, self.own);
        }
    }

    pub(crate) fn delta(&self, origin: ShortId) -> Option<&LinkDelta> {
        self.by_short(origin)?.1.links.as_ref()?.delta()
    }

    /// Returns whether deltas of an origin are ignored from a neighbour.
    #[must_use]
    pub fn is_blamed(&self, now: Instant, neighbour: &NodeId, origin: &NodeId) -> bool {
        let entry = self.entries.get(origin);
        entry.is_some_and(|entry| entry.penalties.holds(now, neighbour))
    }

    fn judge_delta(&mut self, now: Instant, from: NodeId, delta: LinkDelta) -> DeltaOutcome {
        let Some(id) = self.by_short(delta.origin).map(|(id, _)| *id) else {
            return DeltaOutcome::Unfit;
        };
        let is_own = id == self.own;
        let Some(entry) = self.entries.get_mut(&id) else {
            return DeltaOutcome::Unfit;
        };
        if entry.penalties.holds(now, &from) {
            return DeltaOutcome::Ignored;
        }
        let Some(links) = entry.links.as_mut().filter(|links| links.is_live) else {
            return DeltaOutcome::Unfit;
        };
        if delta.base != low_half(links.version) {
            return DeltaOutcome::Unfit;
        }
        if delta.after <= links.after() {
            return DeltaOutcome::Stale;
        }
        // A newer delta in the name of this node is not its own.
        if is_own || !links.apply(delta, from) {
            entry.penalties.add(now, from);
            return DeltaOutcome::Forged;
        }
        DeltaOutcome::Accepted
    }

    /// Verifies the held delta of the previous record against a genuine new record.
    pub(super) fn compare(&mut self, now: Instant, record: &LinkRecord) {
        let Some(entry) = self.entries.get_mut(&record.origin) else {
            return;
        };
        let links = entry.links.as_ref();
        let Some((links, held)) = links.and_then(|links| Some((links, links.delta.as_ref()?)))
        else {
            return;
        };
        let ahead_of = |version| record.follows.wrapping_sub(low_half(version)).cast_signed();
        let is_false = match ahead_of(links.state()) {
            // The origin's last publication was an older one.
            ..0 => ahead_of(links.version) >= 0,
            0 => held.delta.changes.iter().any(|(position, claimed)| {
                let short = links.list.get(usize::from(*position));
                let position = short.and_then(|short| entry.list.binary_search(short).ok());
                let signed = position.and_then(|position| record.reports.get(position));
                signed.is_some_and(|signed| has_changed(*claimed, *signed))
            }),
            // Some were missed.
            _ => false,
        };
        if is_false {
            let by = held.by;
            entry.penalties.add(now, by);
            self.stats.count_delta(DeltaOutcome::Forged);
        }
    }
}

/// Duration of the first penalty: as long as a delta can have counted.
const PENALTY: Duration = Duration::from_secs(30);
/// Longest penalty; after as long without a false delta, the next one starts from `PENALTY`.
const PENALTY_MAX: Duration = Duration::from_secs(600);
/// Penalties per origin; as many as a node has gossip neighbours.
const PENALTIES_MAX: usize = 16;
