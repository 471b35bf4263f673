//! Records that neighbours have and this node lacks.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Generator, Instant, NodeId};

use super::neighbour::Neighbour;
use crate::link_state::{LinkStateTable, ShortId};
use crate::message::Request;

/// Missing records by neighbour.
///
/// Each neighbour has its own list, so that invented origins of one displace nothing of another. An
/// origin that several have is requested from one at a time.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// At most [`LIST_MAX`] per neighbour; none is empty.
    lists: BTreeMap<NodeId, BTreeMap<ShortId, Want>>,
    /// Requested origins, and until when no other neighbour is asked.
    asked: BTreeMap<ShortId, Instant>,
}

#[derive(Debug)]
struct Want {
    newer: Newer,
    /// When to request it.
    due: Instant,
    /// Number of requests to this neighbour.
    asked: u8,
}

/// What a neighbour has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newer {
    /// A record with this low half of its version, advertised over a lazy link.
    Record(u32),
    /// A state, named in a digest.
    State(u64),
    /// The list that belongs to a link record of this version, which arrived without it.
    Unlisted(u64),
}

impl Wanted {
    /// Notes a record that a neighbour has.
    pub(super) fn add(&mut self, origin: ShortId, from: NodeId, newer: Newer, due: Instant) {
        let list = self.lists.entry(from).or_default();
        if list.len() >= LIST_MAX && !list.contains_key(&origin) {
            return;
        }
        let asked = 0;
        let held = list.entry(origin).or_insert(Want { newer, due, asked });
        if held.asked > 0 || matches!(newer, Newer::Unlisted(_)) {
            held.newer = newer;
            held.due = held.due.min(due);
        }
    }

    /// Removes a neighbour that is gone.
    pub(super) fn forget_source(&mut self, node: &NodeId) {
        self.lists.remove(node);
    }

    /// Returns due requests, and whether each grafts the link; at most one per second and
    /// neighbour.
    pub(super) fn due(
        &mut self,
        now: Instant,
        table: &LinkStateTable,
        neighbours: &mut BTreeMap<NodeId, Neighbour>,
        generator: &mut Generator,
    ) -> Vec<(NodeId, Request, bool)> {
        self.asked.retain(|_, until| *until > now);
        let may_ask = |id: &&NodeId| {
            let neighbour = neighbours.get(id);
            neighbour.is_some_and(|neighbour| neighbour.next_request <= now)
        };
        let mut free: Vec<NodeId> = self.lists.keys().filter(may_ask).copied().collect();
        // Shuffled (Durstenfeld, 1964), so that a silent neighbour is not always asked first.
        for place in (1..free.len()).rev() {
            let among = u64::try_from(place).unwrap_or(0).saturating_add(1);
            free.swap(place, usize::try_from(generator.below(among)).unwrap_or(0));
        }
        let mut due = Vec::new();
        for id in free {
            let Some((request, does_graft)) = self.ask(now, table, id) else {
                continue;
            };
            if let Some(neighbour) = neighbours.get_mut(&id) {
                neighbour.next_request = now + REQUEST_SPACING;
                due.push((id, request, does_graft));
            }
        }
        due
    }

    /// Drops a neighbour's records that are no longer missing, and returns those to request.
    fn ask(
        &mut self,
        now: Instant,
        table: &LinkStateTable,
        from: NodeId,
    ) -> Option<(Request, bool)> {
        let list = self.lists.get_mut(&from)?;
        let (mut origins, mut does_graft) = (Vec::new(), false);
        list.retain(|&origin, want| {
            if !want.is_missing(origin, table) || want.asked >= ASKED_MAX {
                return false;
            }
            let has_room = origins.len() < Request::ORIGINS_MAX;
            if want.due <= now && has_room && !self.asked.contains_key(&origin) {
                // Everything, if the list is missing: it may be older than the record held.
                let is_unlisted = matches!(want.newer, Newer::Unlisted(_));
                let held = if is_unlisted { 0 } else { table.held(origin) };
                origins.push((origin, held));
                does_graft |= matches!(want.newer, Newer::Record(_));
                want.asked = want.asked.saturating_add(1);
                want.due = now + PATIENCE;
                self.asked.insert(origin, want.due);
            }
            true
        });
        if list.is_empty() {
            self.lists.remove(&from);
        }
        (!origins.is_empty()).then(|| (Request::new(origins), does_graft))
    }
}

impl Want {
    fn is_missing(&self, origin: ShortId, table: &LinkStateTable) -> bool {
        match self.newer {
            Newer::Record(low) => table.lacks_record(origin, low),
            Newer::State(state) => table.lacks(origin, state),
            Newer::Unlisted(version) => self.asked == 0 && table.held(origin) < version,
        }
    }
}

/// Missing origins per neighbour; as many as a digest names.
const LIST_MAX: usize = 1_024;
/// Requests for a record until it is advertised again.
const ASKED_MAX: u8 = 3;
/// Interval of requests for one record.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of requests to one neighbour: it answers with two records per origin, and a table
/// checks 100 signatures per second and neighbour.
const REQUEST_SPACING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_state::{Network, TableConfig};
    use wire::Seed;

    const LIAR: NodeId = NodeId([1; 32]);
    const HONEST: NodeId = NodeId([2; 32]);

    struct Rig {
        wanted: Wanted,
        table: LinkStateTable,
        neighbours: BTreeMap<NodeId, Neighbour>,
        generator: Generator,
    }

    impl Rig {
        fn new() -> Self {
            let own = NodeId([0; 32]);
            let new = |id| (id, Neighbour::new(Instant::ZERO));
            Self {
                wanted: Wanted::default(),
                table: LinkStateTable::new(TableConfig::default(), Network([9; 16]), own),
                neighbours: [LIAR, HONEST].map(new).into(),
                generator: Seed::from_number(1).generator(0),
            }
        }

        fn name(&mut self, from: NodeId, now: Instant, origins: impl Iterator<Item = u64>) {
            for origin in origins {
                self.wanted
                    .add(short(origin), from, Newer::State(u64::MAX), now);
            }
        }

        /// Returns what is requested from one neighbour.
        fn asked(&mut self, now: Instant, of: NodeId) -> Vec<ShortId> {
            let (neighbours, generator) = (&mut self.neighbours, &mut self.generator);
            let due = self.wanted.due(now, &self.table, neighbours, generator);
            let request = due.into_iter().find(|(node, ..)| *node == of);
            let origins = request.map(|(_, request, _)| request.origins().to_vec());
            let origins = origins.unwrap_or_default().into_iter();
            origins.map(|(short, _)| short).collect()
        }
    }

    fn short(number: u64) -> ShortId {
        ShortId(number.to_be_bytes())
    }

    #[test]
    fn mesh_a1_what_one_neighbour_invents_takes_nothing_from_what_others_have() {
        let mut rig = Rig::new();
        rig.name(LIAR, Instant::ZERO, 0..5_000);
        let real = 9_000..9_064;
        rig.name(HONEST, Instant::ZERO, real.clone());
        assert_eq!(rig.wanted.lists[&LIAR].len(), LIST_MAX, "it has its share");
        let asked = rig.asked(Instant::ZERO, HONEST);
        assert_eq!(asked, real.map(short).collect::<Vec<_>>());
    }

    /// It names every record that others have, repeatedly, and answers no request.
    #[test]
    fn mesh_a1_who_names_all_and_answers_nothing_holds_nothing_up_for_long() {
        let mut rig = Rig::new();
        let mut missing: std::collections::BTreeSet<u64> = (0..500).collect();
        for second in 0..40 {
            let now = Instant::from_millis(second * 1_000);
            rig.name(LIAR, now, 0..500);
            if second % 10 == 0 {
                rig.name(HONEST, now, missing.iter().copied());
            }
            for origin in rig.asked(now, HONEST) {
                // This one answers.
                missing.remove(&u64::from_be_bytes(origin.0));
                if let Some(list) = rig.wanted.lists.get_mut(&HONEST) {
                    list.remove(&origin);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn an_origin_is_asked_of_one_neighbour_at_a_time_and_of_each_three_times() {
        let mut rig = Rig::new();
        let (mut times, mut last) = (0, None);
        for tick in 0..200 {
            let now = Instant::from_millis(tick * 100);
            if tick == 0 {
                rig.name(LIAR, now, 0..1);
                rig.name(HONEST, now, 0..1);
            }
            let (neighbours, generator) = (&mut rig.neighbours, &mut rig.generator);
            let due = rig.wanted.due(now, &rig.table, neighbours, generator);
            assert!(due.len() <= 1);
            if !due.is_empty() {
                assert!(last.is_none_or(|last| now.saturating_since(last) >= PATIENCE));
                (times, last) = (times + 1, Some(now));
            }
        }
        assert_eq!(times, 2 * ASKED_MAX);
        assert!(rig.wanted.lists.is_empty() && rig.wanted.asked.is_empty());
    }
}
