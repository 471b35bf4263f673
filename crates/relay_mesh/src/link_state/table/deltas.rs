//! Deltas: what is taken of them, and what becomes of a neighbour that told a false one.

use core::time::Duration;

use wire::{Instant, NodeId};

use super::LinkStateTable;
use crate::link_state::publisher::{has_changed, low_half};
use crate::link_state::{DeltaOutcome, LinkDelta, LinkRecord, ShortId};

/// Neighbours whose deltas in an origin's name are not taken, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Blamed(Vec<(NodeId, Instant)>);

impl Blamed {
    /// Where there are too many already, the one whose time is over first is forgotten.
    fn add(&mut self, now: Instant, neighbour: NodeId) {
        self.0.retain(|(held, _)| *held != neighbour);
        if self.0.len() >= BLAMED_MAX {
            self.0.remove(0);
        }
        self.0.push((neighbour, now));
    }

    fn holds(&self, now: Instant, neighbour: &NodeId) -> bool {
        let mut held = self.0.iter();
        held.any(|(held, since)| held == neighbour && now.saturating_since(*since) < BLAME)
    }
}

impl LinkStateTable {
    /// Takes a delta that neighbour `from` told.
    ///
    /// It is not signed. It counts until the origin's next record, which shows whether the origin
    /// said it. A neighbour that told one which the origin did not say is not believed about that
    /// origin for 10 min; about others it is. For the neighbour may have been lied to, or the
    /// origin have said it and then the contrary: were all its deltas ignored, one liar could make
    /// all honest nodes blame each other.
    pub fn accept_delta(&mut self, now: Instant, from: NodeId, delta: LinkDelta) -> DeltaOutcome {
        let outcome = self.judge_delta(now, from, delta);
        self.stats.count_delta(outcome);
        outcome
    }

    /// Takes a delta of our own.
    pub(crate) fn publish_delta(&mut self, delta: LinkDelta) {
        let own = self.own;
        if let Some(links) = self
            .entries
            .get_mut(&own)
            .and_then(|entry| entry.links.as_mut())
        {
            links.apply(delta, own);
        }
    }

    /// The newest delta of an origin.
    pub(crate) fn delta(&self, origin: ShortId) -> Option<&LinkDelta> {
        self.by_short(origin)?.1.links.as_ref()?.delta()
    }

    /// Returns whether deltas of an origin are not taken from a neighbour.
    #[must_use]
    pub fn is_blamed(&self, now: Instant, neighbour: &NodeId, origin: &NodeId) -> bool {
        let entry = self.entries.get(origin);
        entry.is_some_and(|entry| entry.blamed.holds(now, neighbour))
    }

    fn judge_delta(&mut self, now: Instant, from: NodeId, delta: LinkDelta) -> DeltaOutcome {
        let Some(id) = self.by_short(delta.origin).map(|(id, _)| *id) else {
            return DeltaOutcome::Unfit;
        };
        let is_own = id == self.own;
        let Some(entry) = self.entries.get_mut(&id) else {
            return DeltaOutcome::Unfit;
        };
        if entry.blamed.holds(now, &from) {
            return DeltaOutcome::Ignored;
        }
        let Some(links) = entry.links.as_mut().filter(|links| links.is_live()) else {
            return DeltaOutcome::Unfit;
        };
        if delta.base != low_half(links.version) {
            return DeltaOutcome::Unfit;
        }
        if delta.after <= links.after() {
            return DeltaOutcome::Stale;
        }
        // We know best what we said.
        if is_own || !links.apply(delta, from) {
            entry.blamed.add(now, from);
            return DeltaOutcome::Forged;
        }
        DeltaOutcome::Accepted
    }

    /// Compares a genuine new record with the delta held for the one before.
    pub(super) fn compare(&mut self, now: Instant, record: &LinkRecord) {
        let links = self
            .entries
            .get(&record.origin)
            .and_then(|entry| entry.links.as_ref());
        let Some((links, told)) = links.and_then(|links| Some((links, links.delta.as_ref()?)))
        else {
            return;
        };
        let held = low_half(links.state());
        let distance = record.follows.wrapping_sub(held).cast_signed();
        let is_of_base = record
            .follows
            .wrapping_sub(low_half(links.version))
            .cast_signed()
            >= 0;
        let changes = || {
            told.delta.changes.iter().filter_map(|(position, told)| {
                let short = links.list.get(usize::from(*position))?;
                Some((short, *told))
            })
        };
        let is_false = match distance {
            // The origin's last word was an older one.
            ..0 => is_of_base,
            0 => {
                let entry = self.entries.get(&record.origin);
                let list = entry.map(|entry| &entry.list);
                changes().any(|(short, told)| {
                    let position = list.and_then(|list| list.binary_search(short).ok());
                    let said = position.and_then(|position| record.reports.get(position));
                    said.is_some_and(|said| has_changed(told, *said))
                })
            }
            // We missed some.
            _ => false,
        };
        if is_false {
            let by = told.by;
            if let Some(entry) = self.entries.get_mut(&record.origin) {
                entry.blamed.add(now, by);
            }
            self.stats.count_delta(DeltaOutcome::Forged);
        }
    }
}

/// How long a neighbour that told a false delta is not believed.
const BLAME: Duration = Duration::from_secs(600);
/// Neighbours blamed at a time for one origin; as many as gossip with a node.
const BLAMED_MAX: usize = 16;
