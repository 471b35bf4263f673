//! Spreads link state: who is told what at once, who is told that there is something, and how what
//! was missed is found.
//!
//! **Tree.** Each node chooses 3 of its neighbours by lot and is chosen by others: with these it
//! *gossips*. Each such link is *eager* at first: what is new goes over it as soon as it comes.
//! Whoever gets the newest record of the *root* over a second link makes that link *lazy* both ways
//! by `prune`: from then on only word of new records ([`Have`]) goes over it, each 2 s. Who hears
//! of a record and does not get it within 2 s asks for it and grafts the link: it is eager again.
//! So the eager links become a tree over which each record comes once, and the lazy ones mend it
//! (Plumtree: Leitão, Pereira, Rodrigues, SRDS 2007). The records of one origin decide alone, since
//! those of many, on their way at once, cut the tree in pieces; the root, the node with the lowest
//! id, signs its own each 3 s. One that lies can spoil the tree, and what it spoils is found by
//! [`Have`] and digests. Who finds by its probes that a link is dead parts from it, chooses
//! another, and makes its lazy links eager.
//!
//! Each minute a node draws another in the place of one whose link is lazy: so parts of a network
//! that were cut off from each other, and chose among themselves, grow together again.
//!
//! **Pace.** Records that say up or down, and new lists, are passed on as they come. Renewals and
//! deltas go on as they come where a neighbour was told nothing for a moment, and else wait for it to
//! be over, so that several go in one datagram: 200 ms in networks of 33 to 256 nodes, 100 ms in
//! others.
//!
//! **Repair.** Two nodes that meet, or begin to gossip, exchange digests and fetch what they lack. Each 10 s a node sends
//! its digest to one neighbour drawn by lot; what that one still lacks a second later it fetches.
//! What is to be fetched is looked through by the timer alone, so that no message costs more than
//! it is long. Digests leave out whose records have expired. Whoever gets a record below such a one
//! shows the sender what it holds: so a node whose clock was ahead, or that has none, learns after a
//! restart how far it had counted.
//!
//! **Bounds.** For each neighbour: 256 KiB of these messages a second and 1 MiB at once, 128 KiB a
//! second of answers and digests and 256 KiB at once, one digest a second, one request of 64
//! origins a second, 1,024 origins that it has and we lack, the expired records of 4 origins a second
//! and of 64 at once, and the signature checks of the table. What waits to be told is a set of
//! origins, told as it then stands; so nothing grows past the number of origins.

mod neighbour;
mod repair;
mod root;
#[cfg(test)]
mod tests;
mod tree;
mod wanted;

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::{NoEntropy, Provider};
use serde::Serialize;
use wire::{Generator, Instant, NodeId, UnixTime};

use self::neighbour::{Neighbour, PushMode, RecordParts};
use self::root::Root;
use self::wanted::{Newer, Wanted};
use crate::link_state::{
    DeltaOutcome, LinkDelta, LinkRecord, LinkStateTable, NodeRecord, Outcome, Publisher, Urgency,
};
use crate::measure::LinkReport;
#[cfg(doc)]
use crate::message::Have;
use crate::message::Message;

/// A node's share in spreading link state: its own records, those of all others, and its
/// neighbours.
///
/// Sans-IO: messages of neighbours come by [`handle_message`](Self::handle_message), those to them
/// leave by [`poll_message`](Self::poll_message), and [`on_tick`](Self::on_tick) runs each 100 ms.
/// Messages are to arrive whole, in order and once, or not at all: sessions see to that.
pub struct Gossip<P: Provider> {
    publisher: Publisher<P>,
    table: LinkStateTable,
    /// Our node record, as last published.
    own_record: Vec<u8>,
    neighbours: BTreeMap<NodeId, Neighbour>,
    wanted: Wanted,
    root: Root,
    generator: Generator,
    outbox: VecDeque<(NodeId, Vec<u8>)>,
    /// When to tell what is held, to one all of it, and to choose another neighbour.
    have_at: Instant,
    compare_at: Instant,
    change_at: Instant,
    expire_at: Instant,
    stats: GossipStats,
}

/// What came of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GossipUpdate {
    /// Nothing that routes depend on.
    None,
    /// The links of a node are others.
    Links,
    /// A node is new, or says something else of itself.
    Node,
}

impl<P: Provider> Gossip<P> {
    /// Starts with what `table` holds; `generator` draws neighbours.
    #[must_use]
    pub fn new(
        publisher: Publisher<P>,
        table: LinkStateTable,
        mut generator: Generator,
        now: Instant,
    ) -> Self {
        // Those that start together do not change together.
        let change_at = now + Duration::from_millis(generator.below(CHANGE_INTERVAL_MS));
        Self {
            publisher,
            table,
            own_record: Vec::new(),
            neighbours: BTreeMap::new(),
            wanted: Wanted::default(),
            root: Root::new(now),
            generator,
            outbox: VecDeque::new(),
            have_at: now + HAVE_INTERVAL,
            compare_at: now + COMPARE_INTERVAL,
            change_at,
            expire_at: now,
            stats: GossipStats::default(),
        }
    }

    /// Returns what is known of all nodes.
    #[must_use]
    pub const fn table(&self) -> &LinkStateTable {
        &self.table
    }

    /// Returns the table, to change whose records it takes.
    pub(crate) const fn table_mut(&mut self) -> &mut LinkStateTable {
        &mut self.table
    }

    /// Returns the publisher of our own records.
    #[must_use]
    pub const fn publisher(&self) -> &Publisher<P> {
        &self.publisher
    }

    /// Returns the publisher, to tell it what it is to say.
    pub const fn publisher_mut(&mut self) -> &mut Publisher<P> {
        &mut self.publisher
    }

    /// Returns what was counted.
    #[must_use]
    pub const fn stats(&self) -> &GossipStats {
        &self.stats
    }

    /// Returns the neighbours that are told of records as they come, ascending.
    pub fn eager(&self) -> impl Iterator<Item = NodeId> {
        let neighbours = self.neighbours.iter();
        neighbours
            .filter(|(_, neighbour)| neighbour.push_mode == PushMode::Eager)
            .map(|(&id, _)| id)
    }

    /// Begins to speak with a neighbour whose session is up; an earlier one is over.
    pub fn on_up(&mut self, now: Instant, node: NodeId) {
        self.neighbours.insert(node, Neighbour::new(now));
        if !self.own_record.is_empty() {
            self.send_hello(node);
        }
        self.send_digest(now, node);
    }

    /// Returns whether [`on_up`](Self::on_up) was called for a neighbour that is not down since.
    #[must_use]
    pub fn knows(&self, node: &NodeId) -> bool {
        self.neighbours.contains_key(node)
    }

    /// Ends what was begun with a neighbour.
    pub fn on_down(&mut self, node: &NodeId) {
        let gone = self.neighbours.remove(node);
        self.wanted.forget_source(node);
        if gone.is_some_and(|gone| gone.push_mode == PushMode::Eager) {
            self.make_lazy_eager();
        }
    }

    /// Takes one message of a neighbour.
    pub fn handle_message(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        (message, len): (Message<'_>, usize),
    ) -> GossipUpdate {
        let Some(neighbour) = self.neighbours.get_mut(&from) else {
            return GossipUpdate::None;
        };
        if !neighbour.admit(now, len) {
            self.stats.over_rate = self.stats.over_rate.saturating_add(1);
            return GossipUpdate::None;
        }
        match message {
            Message::Hello(record) | Message::NodeRecord(record) => {
                let outcome = self.table.accept_node(now, provider, from, record);
                self.on_node(now, from, record, outcome)
            }
            Message::LinkRecord(record) => {
                let outcome = self.table.accept_links(now, provider, from, record);
                self.on_links(now, from, record, outcome)
            }
            Message::LinkDeltas(deltas) => self.on_deltas(now, from, deltas),
            Message::Digest(digest) => self.on_digest(now, from, &digest),
            Message::Request(request) => self.on_request(now, from, &request),
            Message::Have(have) => self.on_have(now, from, &have),
            Message::Graft => self.on_graft(now, from),
            Message::Prune => self.on_prune(from),
            Message::Part => self.on_part(from),
        }
    }

    /// Publishes what is due of `links`, which is what this node measures, and runs all timers;
    /// call it each 100 ms.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] where the provider's source of randomness fails: nothing was published.
    pub fn on_tick(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<(), NoEntropy> {
        if now >= self.change_at {
            self.change_at = now + Duration::from_millis(CHANGE_INTERVAL_MS);
            self.change_one();
        }
        self.choose(now, links);
        self.start_election(now);
        let published = self.publish(now, unix, provider, links);
        self.fetch(now);
        self.send_owed(now);
        if now >= self.expire_at {
            self.expire_at = now + EXPIRE_INTERVAL;
            self.table.expire(now);
        }
        self.flush(now);
        if now >= self.have_at {
            self.have_at = now + HAVE_INTERVAL;
            self.send_haves();
        }
        if now >= self.compare_at {
            self.compare_at = now + COMPARE_INTERVAL;
            self.compare(now);
        }
        published
    }

    /// Appends the next message and returns whom it is for.
    pub fn poll_message(&mut self, out: &mut Vec<u8>) -> Option<NodeId> {
        let (to, message) = self.outbox.pop_front()?;
        out.extend_from_slice(&message);
        Some(to)
    }

    fn publish(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<(), NoEntropy> {
        let publication = self.publisher.update(now, unix, provider, links)?;
        let own = self.table.own_short();
        if let Some(record) = publication.node {
            self.table.publish(now, provider, &record);
            let is_first = self.own_record.is_empty();
            self.own_record = record;
            if is_first {
                let all: Vec<NodeId> = self.neighbours.keys().copied().collect();
                for node in all {
                    self.send_hello(node);
                }
            }
            self.spread(None, own, RecordParts::NODE);
        }
        if let Some(record) = publication.links {
            self.table.publish(now, provider, &record);
            self.spread(None, own, RecordParts::LINKS);
            if LinkRecord::decode(&record).is_ok_and(|record| record.urgency != Urgency::None) {
                self.hurry(now);
            }
        }
        if let Some(delta) = publication.delta {
            self.table.publish_delta(delta);
            self.spread(None, own, RecordParts::DELTA);
        }
        Ok(())
    }

    /// Becomes the root of the tree, or resigns.
    fn start_election(&mut self, now: Instant) {
        let own = self.table.own();
        let lower = self.table.nodes().take_while(|(id, _)| *id < own);
        let lower = lower.filter(|(_, is_live)| *is_live);
        let below = lower.take(Root::CANDIDATES).count();
        if self.root.is_due(now, own, below) {
            self.root.on_record(now, own);
            self.publisher.become_root();
        } else {
            self.publisher.step_down();
        }
    }

    fn on_node(
        &mut self,
        now: Instant,
        from: NodeId,
        record: &[u8],
        outcome: Outcome,
    ) -> GossipUpdate {
        if outcome != Outcome::Accepted {
            return self.on_outcome(now, from, outcome);
        }
        if let Ok(record) = NodeRecord::decode(record) {
            self.spread(Some(from), record.origin().into(), RecordParts::NODE);
        }
        GossipUpdate::Node
    }

    fn on_links(
        &mut self,
        now: Instant,
        from: NodeId,
        record: &[u8],
        outcome: Outcome,
    ) -> GossipUpdate {
        let Ok(decoded) = LinkRecord::decode(record) else {
            return GossipUpdate::None;
        };
        if outcome == Outcome::Accepted {
            if decoded.urgency.is_root() {
                self.root.on_record(now, decoded.origin);
            }
            self.spread(Some(from), decoded.origin.into(), RecordParts::LINKS);
            if decoded.urgency != Urgency::None {
                self.hurry(now);
            }
            return GossipUpdate::Links;
        }
        let is_newest = self.table.held(decoded.origin.into()) == decoded.version;
        if outcome == Outcome::Stale && is_newest && self.root.is(&decoded.origin) {
            // It came over another link before.
            self.prune(from);
        }
        if let Outcome::NeedsNodeRecord(origin) = outcome {
            let unlisted = Newer::Unlisted(decoded.version);
            self.wanted.add(origin, from, unlisted, now);
        }
        self.on_outcome(now, from, outcome)
    }

    fn on_outcome(&mut self, now: Instant, from: NodeId, outcome: Outcome) -> GossipUpdate {
        match outcome {
            Outcome::OwnFromBefore(version) => self.publisher.raise(version),
            Outcome::BelowExpired(origin) => self.send_expired(now, from, origin),
            Outcome::Accepted
            | Outcome::Stale
            | Outcome::NeedsNodeRecord(_)
            | Outcome::Refused(_) => {}
        }
        GossipUpdate::None
    }

    fn on_deltas(&mut self, now: Instant, from: NodeId, deltas: Vec<LinkDelta>) -> GossipUpdate {
        let mut heard = GossipUpdate::None;
        for delta in deltas {
            let origin = delta.origin;
            match self.table.accept_delta(now, from, delta) {
                DeltaOutcome::Accepted => {
                    self.spread(Some(from), origin, RecordParts::DELTA);
                    heard = GossipUpdate::Links;
                }
                DeltaOutcome::Stale
                | DeltaOutcome::Unfit
                | DeltaOutcome::Ignored
                | DeltaOutcome::Forged => {}
            }
        }
        heard
    }

    fn send_hello(&mut self, node: NodeId) {
        let record = core::mem::take(&mut self.own_record);
        self.send(node, &Message::Hello(&record));
        self.own_record = record;
    }

    fn send(&mut self, to: NodeId, message: &Message<'_>) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.stats.unsent = self.stats.unsent.saturating_add(1);
            return;
        }
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.outbox.push_back((to, bytes));
    }

    pub(super) fn flush_interval(&self) -> Duration {
        if MEDIUM.contains(&self.table.len()) {
            FLUSH_MEDIUM
        } else {
            FLUSH
        }
    }
}

impl<P: Provider> fmt::Debug for Gossip<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gossip")
            .field("neighbours", &self.neighbours.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Between two times at which what waits is told: small networks have little to say, and large ones
/// fill a datagram by then.
const FLUSH: Duration = Duration::from_millis(100);
/// The same in [`MEDIUM`] networks, where datagrams would be many and near empty.
const FLUSH_MEDIUM: Duration = Duration::from_millis(200);
const MEDIUM: core::ops::RangeInclusive<usize> = 33..=256;
/// Between two words of what is held.
const HAVE_INTERVAL: Duration = Duration::from_secs(2);
/// Between two digests.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);
/// Between two choices of another neighbour, in milliseconds.
const CHANGE_INTERVAL_MS: u64 = 60_000;
/// Between two looks at what is too old.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// Messages that wait to be polled; the driver polls after each input.
const OUTBOX_MAX: usize = 8_192;

/// What became of gossip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GossipStats {
    /// Messages dropped because their neighbour said more than it may.
    pub over_rate: u64,
    /// Requests answered in part, or not, because their neighbour asked for more than it may.
    pub unanswered: u64,
    /// Messages not sent because too many wait.
    pub unsent: u64,
    /// Links made eager because a record did not come over another.
    pub grafts: u64,
    /// Links made lazy because a record came over another before.
    pub prunes: u64,
    /// Neighbours that wanted to gossip with us when as many did as may.
    pub crowded: u64,
    /// Times that all that is wanted was gone through; once for each `tend`, whatever comes.
    pub looks: u64,
}
