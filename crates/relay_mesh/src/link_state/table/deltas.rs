//! Deltas: acceptance, and penalties for neighbours that sent a false one.

use core::time::Duration;

use wire::{Instant, NodeId};

use super::LinkStateTable;
use crate::link_state::publisher::{has_changed, low_half};
use crate::link_state::{DeltaOutcome, LinkDelta, LinkRecord, ShortId};

/// Neighbours whose deltas of an origin are temporarily ignored.
#[derive(Clone, Debug, Default)]
pub(super) struct Blamed(Vec<Blame>);

#[derive(Clone, Debug)]
struct Blame {
    neighbour: NodeId,
    since: Instant,
    span: Duration,
}

impl Blamed {
    /// Adds a penalty; if the list is full, it replaces the one that expires first.
    fn add(&mut self, now: Instant, neighbour: NodeId) {
        let mut held = self.0.iter();
        let place = held.position(|held| held.neighbour == neighbour);
        let span = place
            .map(|place| self.0.swap_remove(place))
            .map_or(BLAME, |last| last.next_span(now));
        if self.0.len() >= BLAMED_MAX {
            let places = self.0.iter().enumerate();
            let first = places.min_by_key(|(_, held)| held.left(now));
            if let Some((place, _)) = first {
                self.0.swap_remove(place);
            }
        }
        self.0.push(Blame {
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

impl Blame {
    const fn left(&self, now: Instant) -> Duration {
        self.span.saturating_sub(now.saturating_since(self.since))
    }

    /// Duration of the next penalty; it does not grow for deltas sent before this one.
    fn next_span(&self, now: Instant) -> Duration {
        let good = now.saturating_since(self.since).saturating_sub(self.span);
        if !self.left(now).is_zero() {
            self.span
        } else if good < BLAME_MAX {
            self.span.saturating_mul(2).min(BLAME_MAX)
        } else {
            BLAME
        }
    }
}

impl LinkStateTable {
    /// Handles a delta from neighbour `from`.
    ///
    /// It is not signed, and counts until the origin's next record, which verifies it. If it was
    /// false, deltas of that origin from this neighbour are ignored for 30 s, and each further time
    /// for twice as long, up to 10 min; those of other origins are still accepted. The neighbour
    /// may be honest: it may have been deceived, or the origin sent contradictory values. A longer
    /// or a general penalty would let one liar stop deltas between all honest nodes.
    pub fn accept_delta(&mut self, now: Instant, from: NodeId, delta: LinkDelta) -> DeltaOutcome {
        let outcome = self.judge_delta(now, from, delta);
        self.stats.count_delta(outcome);
        outcome
    }

    /// Stores a delta of this node.
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

    /// Returns the newest delta of an origin.
    pub(crate) fn delta(&self, origin: ShortId) -> Option<&LinkDelta> {
        self.by_short(origin)?.1.links.as_ref()?.delta()
    }

    /// Returns whether deltas of an origin are ignored from a neighbour.
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
        // A newer delta in the name of this node is not its own.
        if is_own || !links.apply(delta, from) {
            entry.blamed.add(now, from);
            return DeltaOutcome::Forged;
        }
        DeltaOutcome::Accepted
    }

    /// Verifies the held delta of the previous record against a genuine new record.
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
            // The origin's last publication was an older one.
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
            // Some were missed.
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

/// Duration of the first penalty: as long as a delta can have counted, until the origin's next
/// record.
const BLAME: Duration = Duration::from_secs(30);
/// Longest penalty; after as long without a false delta, the next one starts from `BLAME`.
const BLAME_MAX: Duration = Duration::from_secs(600);
/// Penalties per origin; as many as a node has gossip neighbours.
const BLAMED_MAX: usize = 16;
