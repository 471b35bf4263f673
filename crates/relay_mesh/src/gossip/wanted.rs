//! Records that others are known to have.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Generator, Instant, NodeId};

use super::neighbour::Neighbour;
use crate::link_state::{LinkStateTable, ShortId};
use crate::message::Request;

/// Whose records are missing, and which neighbours have them.
///
/// Each neighbour has a list of its own, so what one invents takes no place from what others have.
/// An origin that several have is asked of one at a time.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// At most [`LIST_MAX`] of each neighbour; none is empty.
    lists: BTreeMap<NodeId, BTreeMap<ShortId, Want>>,
    /// Origins that a neighbour was asked for, and until when no other is.
    asked: BTreeMap<ShortId, Instant>,
}

#[derive(Debug)]
struct Want {
    newer: Newer,
    /// When to ask.
    due: Instant,
    /// How often this neighbour was asked.
    asked: u8,
}

/// What a neighbour has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newer {
    /// A record whose version has this low half; it said so over a lazy link.
    Record(u32),
    /// A state, by its digest.
    State(u64),
    /// The list of a link record with this version, which came without it.
    Unlisted(u64),
}

impl Wanted {
    /// Notes what a neighbour has.
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

    /// Forgets what a neighbour has that is gone.
    pub(super) fn forget_source(&mut self, node: &NodeId) {
        self.lists.remove(node);
    }

    /// Returns what to ask of whom, and whether that link is to be eager; at most one request a
    /// second for each neighbour.
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
        // By lot, so that nobody who does not answer is often the first that is asked (Durstenfeld, 1964).
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

    /// Goes through what one neighbour has: forgets what is not missing any more, and asks for what
    /// is due.
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
                // All of it where the list is missing, which may be older than what is held.
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

/// Origins of one neighbour wanted at a time; as many as a digest names.
const LIST_MAX: usize = 1_024;
/// Times that a record is asked for before the next word of it.
const ASKED_MAX: u8 = 3;
/// Between two times that it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two requests to one neighbour: it answers with two records for each origin, and a table
/// checks 100 a second for each neighbour.
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

        /// What is asked of one neighbour.
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

    /// It names what others have too, again and again, and answers nothing.
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
                // It answers.
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
