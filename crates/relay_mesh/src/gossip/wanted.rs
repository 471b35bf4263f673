//! Records that others are known to have.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use super::neighbour::Neighbour;
use crate::link_state::{LinkStateTable, ShortId};
use crate::message::Request;

/// Whose records are missing, and which neighbour has them.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeMap<ShortId, Want>);

#[derive(Debug)]
struct Want {
    from: NodeId,
    newer: Newer,
    /// When to ask.
    due: Instant,
    asked: u8,
}

/// What a neighbour has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newer {
    /// A record whose version has this low half; it said so over a lazy link.
    Record(u32),
    /// A state, by its digest.
    State(u64),
    /// The list of a link record that came without it.
    Unlisted,
}

impl Wanted {
    /// Notes what a neighbour has. Who is asked already is asked first.
    pub(super) fn add(&mut self, origin: ShortId, from: NodeId, newer: Newer, due: Instant) {
        if self.0.len() >= WANTED_MAX && !self.0.contains_key(&origin) {
            return;
        }
        let want = Want {
            from,
            newer,
            due,
            asked: 0,
        };
        let held = self.0.entry(origin).or_insert(want);
        if held.asked > 0 || newer == Newer::Unlisted {
            // The one asked did not answer yet; this one is next.
            held.from = from;
            held.newer = newer;
            held.due = held.due.min(due);
        }
    }

    /// Forgets what only a neighbour that is gone was known to have.
    pub(super) fn forget_source(&mut self, node: &NodeId) {
        self.0.retain(|_, want| want.from != *node);
    }

    /// Returns what to ask of whom, and whether that link is to be eager; at most one request a
    /// second for each neighbour.
    pub(super) fn due(
        &mut self,
        now: Instant,
        table: &LinkStateTable,
        neighbours: &mut BTreeMap<NodeId, Neighbour>,
    ) -> BTreeMap<NodeId, (Request, bool)> {
        let mut lists: BTreeMap<NodeId, (Vec<(ShortId, u64)>, bool)> = BTreeMap::new();
        self.0.retain(|&origin, want| {
            let is_missing = match want.newer {
                Newer::Record(low) => table.lacks_record(origin, low),
                Newer::State(state) => table.lacks(origin, state),
                Newer::Unlisted => want.asked == 0,
            };
            if !is_missing || want.asked >= ASKED_MAX {
                return false;
            }
            let Some(neighbour) = neighbours.get(&want.from) else {
                return false;
            };
            let (list, does_graft) = lists.entry(want.from).or_default();
            if want.due <= now && neighbour.next_request <= now && list.len() < Request::ORIGINS_MAX
            {
                // All of it where the list is missing, which may be older than what is held.
                let is_unlisted = want.newer == Newer::Unlisted;
                let held = if is_unlisted { 0 } else { table.held(origin) };
                list.push((origin, held));
                *does_graft |= matches!(want.newer, Newer::Record(_));
                want.asked = want.asked.saturating_add(1);
                want.due = now + PATIENCE;
            }
            true
        });
        lists.retain(|_, (list, _)| !list.is_empty());
        for node in lists.keys() {
            if let Some(neighbour) = neighbours.get_mut(node) {
                neighbour.next_request = now + REQUEST_SPACING;
            }
        }
        lists
            .into_iter()
            .map(|(node, (list, does_graft))| (node, (Request::new(list), does_graft)))
            .collect()
    }
}

/// Origins wanted at a time; as many as a digest names.
const WANTED_MAX: usize = 1_024;
/// Times that a record is asked for before the next word of it.
const ASKED_MAX: u8 = 3;
/// Between two times that it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two requests to one neighbour: it answers with two records for each origin, and a table
/// checks 100 a second for each neighbour.
const REQUEST_SPACING: Duration = Duration::from_secs(1);
