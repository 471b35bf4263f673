//! Finds and fetches missed records.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::Provider;
use wire::{Generator, Instant, NodeId};

use super::neighbour::{DigestState, Neighbour};
use super::{Gossip, OUTBOX_MAX, draw_index};
use crate::link_state::{Digest, LinkStateTable, Message, Request, ShortId};

impl<P: Provider> Gossip<P> {
    /// Records which records a neighbour has. The next `on_tick` requests what is missing.
    pub(super) fn on_digest(&mut self, now: Instant, from: NodeId, digest: &Digest) {
        let neighbour = self.neighbours.get_mut(&from);
        let is_first = neighbour.is_some_and(Neighbour::is_first_digest);
        // Records in flight arrive without a request.
        let due = if is_first { now } else { now + IN_FLIGHT };
        for &(origin, state) in digest.entries() {
            if self.table.lacks(origin, state) {
                self.wanted.add(origin, from, Newer::State(state), due);
            }
        }
    }

    /// Answers as far as the reply limit allows; the rest is requested again after the next digest.
    pub(super) fn on_request(&mut self, now: Instant, from: NodeId, request: &Request) {
        let Some(neighbour) = self.neighbours.get_mut(&from) else {
            return;
        };
        let outbox = &mut self.outbox;
        let mut answer = self.table.answer(request);
        if !answer.all(|message| reply(neighbour, outbox, now, (from, &message))) {
            self.stats.unanswered = self.stats.unanswered.saturating_add(1);
        }
    }

    /// Sends a digest to one random neighbour.
    pub(super) fn compare(&mut self, now: Instant) {
        let drawn = draw_index(&mut self.generator, self.neighbours.len());
        if let Some(&node) = self.neighbours.keys().nth(drawn) {
            self.send_digest(now, node);
        }
    }

    /// Sends a digest, or defers it if one was sent recently or the reply limit is reached.
    pub(super) fn send_digest(&mut self, now: Instant, to: NodeId) {
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        neighbour.digest = DigestState::Pending;
        if neighbour.next_digest > now {
            return;
        }
        let digest = Message::Digest(self.table.digest());
        if reply(neighbour, &mut self.outbox, now, (to, &digest)) {
            neighbour.digest = DigestState::Sent;
            neighbour.next_digest = now + DIGEST_SPACING;
        }
    }

    pub(super) fn send_pending_digests(&mut self, now: Instant) {
        let pending = self
            .neighbours
            .iter()
            .filter(|(_, held)| held.digest == DigestState::Pending && held.next_digest <= now);
        let pending: Vec<NodeId> = pending.map(|(id, _)| *id).collect();
        for node in pending {
            self.send_digest(now, node);
        }
    }

    pub(super) fn fetch(&mut self, now: Instant) {
        self.stats.looks = self.stats.looks.saturating_add(1);
        let (neighbours, generator) = (&mut self.neighbours, &mut self.generator);
        let due = self.wanted.due(now, &self.table, neighbours, generator);
        for (node, request, does_graft) in due {
            if does_graft {
                self.graft(node);
            }
            self.send(node, &Message::Request(request));
        }
    }

    /// Sends the last records of an expired origin to a neighbour that sent an older one.
    pub(super) fn send_expired(&mut self, now: Instant, to: NodeId, origin: ShortId) {
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        let Some((node, links)) = self.table.last_records(origin) else {
            return;
        };
        if !neighbour.may_send_expired(now) {
            return;
        }
        let outbox = &mut self.outbox;
        let links = links.map(Message::LinkRecord);
        let records = [Some(Message::NodeRecord(node)), links];
        let mut records = records.into_iter().flatten();
        if !records.all(|record| reply(neighbour, outbox, now, (to, &record))) {
            self.stats.unanswered = self.stats.unanswered.saturating_add(1);
        }
    }
}

/// Queues a reply or digest; returns false if a limit is reached.
fn reply(
    neighbour: &mut Neighbour,
    outbox: &mut VecDeque<(NodeId, Vec<u8>)>,
    now: Instant,
    (to, message): (NodeId, &Message<'_>),
) -> bool {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let may_send = neighbour.may_reply(now, bytes.len()) && outbox.len() < OUTBOX_MAX;
    if may_send {
        outbox.push_back((to, bytes));
    }
    may_send
}

const IN_FLIGHT: Duration = Duration::from_secs(1);
/// Interval of digests to one neighbour: one of 1,000 nodes has 16 KB, and two bytes request it.
const DIGEST_SPACING: Duration = Duration::from_secs(1);

/// Missing records by neighbour. Each has its own list, so that invented origins of one
/// displace nothing of another. An origin that several have is requested from one at a time.
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
    due: Instant,
    asked: u8,
}

/// What a neighbour has that is newer.
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

    pub(super) fn forget_source(&mut self, node: &NodeId) {
        self.lists.remove(node);
    }

    /// Due requests, and whether each grafts the link; at most one per second and neighbour.
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
            free.swap(place, draw_index(generator, place.saturating_add(1)));
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
                want.due = now + REQUEST_TIMEOUT;
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
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of requests to one neighbour; a table checks 100 signatures per second of it.
const REQUEST_SPACING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use wire::Seed;

    use super::*;
    use crate::link_state::{Network, TableConfig};

    const LIAR: NodeId = NodeId([1; 32]);
    const HONEST: NodeId = NodeId([2; 32]);

    struct Harness {
        wanted: Wanted,
        table: LinkStateTable,
        neighbours: BTreeMap<NodeId, Neighbour>,
        generator: Generator,
    }

    impl Harness {
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
        let mut harness = Harness::new();
        harness.name(LIAR, Instant::ZERO, 0..5_000);
        let real = 9_000..9_064;
        harness.name(HONEST, Instant::ZERO, real.clone());
        assert_eq!(
            harness.wanted.lists[&LIAR].len(),
            LIST_MAX,
            "it has its share"
        );
        let asked = harness.asked(Instant::ZERO, HONEST);
        assert_eq!(asked, real.map(short).collect::<Vec<_>>());
    }

    /// It names every record that others have, repeatedly, and answers no request.
    #[test]
    fn mesh_a1_a_silent_node_that_names_all_others_delays_little() {
        let mut harness = Harness::new();
        let mut missing: std::collections::BTreeSet<u64> = (0..500).collect();
        for second in 0..40 {
            let now = Instant::from_millis(second * 1_000);
            harness.name(LIAR, now, 0..500);
            if second % 10 == 0 {
                harness.name(HONEST, now, missing.iter().copied());
            }
            for origin in harness.asked(now, HONEST) {
                // This one answers.
                missing.remove(&u64::from_be_bytes(origin.0));
                if let Some(list) = harness.wanted.lists.get_mut(&HONEST) {
                    list.remove(&origin);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn an_origin_is_asked_of_one_neighbour_at_a_time_and_of_each_three_times() {
        let mut harness = Harness::new();
        let (mut times, mut last) = (0, None);
        for tick in 0..200 {
            let now = Instant::from_millis(tick * 100);
            if tick == 0 {
                harness.name(LIAR, now, 0..1);
                harness.name(HONEST, now, 0..1);
            }
            let (neighbours, generator) = (&mut harness.neighbours, &mut harness.generator);
            let due = harness
                .wanted
                .due(now, &harness.table, neighbours, generator);
            assert!(due.len() <= 1);
            if !due.is_empty() {
                assert!(last.is_none_or(|last| now.saturating_since(last) >= REQUEST_TIMEOUT));
                (times, last) = (times + 1, Some(now));
            }
        }
        assert_eq!(times, 2 * ASKED_MAX);
        assert!(harness.wanted.lists.is_empty() && harness.wanted.asked.is_empty());
    }
}
