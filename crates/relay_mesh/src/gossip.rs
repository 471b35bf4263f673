//! Gossips link state: pushes new records over a spanning tree, advertises them over the other
//! links, and repairs what was missed.
//!
//! **Tree.** Each node chooses 3 random neighbours, and others choose it: it *gossips* with these.
//! Each such link starts *eager*: new records are pushed over it at once. A node that receives the
//! newest record of the *root* over a second link makes that link *lazy* in both directions with
//! `prune`: from then on it carries only advertisements of new records
//! ([`Have`](crate::link_state::Have)), every 2 s. A node that does not receive an advertised
//! record within 2 s requests it and grafts the link, which becomes eager again. The eager links so
//! form a tree that delivers each record once, and the lazy ones repair it (Plumtree: Leitão,
//! Pereira, Rodrigues, SRDS 2007). Only the root's records prune, since concurrent records of many
//! origins would cut the tree; the root, the node with the lowest id, signs its own every 3 s. A
//! dishonest root can damage the tree; advertisements and digests then find what is missing. If
//! probes show that a link is dead, the node stops gossiping over it, chooses another neighbour,
//! and makes its lazy links eager.
//!
//! Once a minute a node replaces one neighbour on a lazy link with a random one. This
//! reconnects parts of a network that chose neighbours only among themselves.
//!
//! **Pace.** Records that report a link up or down, and new lists, are forwarded at once. Renewals
//! and deltas wait for the flush interval if something was sent to the neighbour recently, so that
//! one datagram carries several: 200 ms in networks of 33 to 256 nodes, 100 ms in others.
//!
//! **Repair.** When a session comes up or gossip starts, both nodes exchange digests and request
//! what they lack. Every 10 s a node sends its digest to one random neighbour, which requests what
//! is still missing a second later. Only the timer searches for missing records, so that the cost
//! of a message is bounded by its length. Digests omit expired origins. A node that receives a
//! record older than an expired one sends the expired one back: so a restarted node without a
//! clock, or with a clock that was ahead, learns its last version.
//!
//! **Bounds.** Per neighbour: 256 KiB/s of messages with a burst of 1 MiB; 128 KiB/s of replies and
//! digests with a burst of 256 KiB; one digest per second; one request of 64 origins per second;
//! 1,024 origins that it has and this node lacks; the expired records of 4 origins per second with
//! a burst of 64; and the table's signature checks. Pending pushes are a set of origins, encoded
//! when they are sent, so nothing grows past the number of origins.

mod neighbour;
mod repair;
#[cfg(test)]
mod tests;
mod tree;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::{NoEntropy, Provider};
use serde::Serialize;
use wire::{Generator, Instant, NodeId, UnixTime};

use self::neighbour::{Neighbour, PushMode, RecordParts};
use self::repair::{Newer, Wanted};
use self::tree::Root;
use crate::link_state::{
    DeltaOutcome, LinkDelta, LinkRecord, LinkStateTable, Message, NodeRecord, Outcome, Publisher,
    Urgency,
};
use crate::measure::LinkReport;

/// A node's part in gossip: its own records, those of all others, and its neighbours.
///
/// Sans-I/O: pass neighbours' messages to [`handle_message`](Self::handle_message), send those of
/// [`poll_message`](Self::poll_message), and call [`on_tick`](Self::on_tick) every 100 ms. Each
/// message must arrive whole, in order and at most once; sessions ensure that.
pub struct Gossip<P: Provider> {
    publisher: Publisher<P>,
    table: LinkStateTable,
    /// This node's node record, as last published.
    own_record: Vec<u8>,
    neighbours: BTreeMap<NodeId, Neighbour>,
    wanted: Wanted,
    root: Root,
    generator: Generator,
    outbox: VecDeque<(NodeId, Vec<u8>)>,
    /// When to advertise versions, send a digest, replace a neighbour, and expire records.
    have_at: Instant,
    compare_at: Instant,
    change_at: Instant,
    expire_at: Instant,
    stats: GossipStats,
}

/// The effect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GossipUpdate {
    /// Nothing that routes depend on.
    None,
    /// A node's links have changed.
    Links,
    /// A node is new, or its node record has changed.
    Node,
}

impl<P: Provider> Gossip<P> {
    /// Starts with the records of `table`; `generator` draws neighbours.
    #[must_use]
    pub fn new(
        publisher: Publisher<P>,
        table: LinkStateTable,
        mut generator: Generator,
        now: Instant,
    ) -> Self {
        // Spreads the changes of nodes that start together.
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

    /// Returns the link state of all nodes.
    #[must_use]
    pub const fn table(&self) -> &LinkStateTable {
        &self.table
    }

    pub(crate) const fn table_mut(&mut self) -> &mut LinkStateTable {
        &mut self.table
    }

    /// Returns the publisher of this node's records.
    #[must_use]
    pub const fn publisher(&self) -> &Publisher<P> {
        &self.publisher
    }

    /// Returns the publisher, to set what it publishes.
    pub const fn publisher_mut(&mut self) -> &mut Publisher<P> {
        &mut self.publisher
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &GossipStats {
        &self.stats
    }

    /// Returns the neighbours with eager links, ascending.
    pub fn eager(&self) -> impl Iterator<Item = NodeId> {
        self.with_mode(PushMode::Eager)
    }

    fn with_mode(&self, mode: PushMode) -> impl Iterator<Item = NodeId> {
        let all = self.neighbours.iter();
        all.filter(move |(_, held)| held.push_mode == mode)
            .map(|(id, _)| *id)
    }

    /// Adds a neighbour with a session; replaces an earlier session.
    pub fn on_up(&mut self, now: Instant, node: NodeId) {
        self.neighbours.insert(node, Neighbour::new(now));
        if !self.own_record.is_empty() {
            self.send_hello(node);
        }
        self.send_digest(now, node);
    }

    /// Returns whether the neighbour's session is up.
    #[must_use]
    pub fn knows(&self, node: &NodeId) -> bool {
        self.neighbours.contains_key(node)
    }

    /// Removes a neighbour.
    pub fn on_down(&mut self, node: &NodeId) {
        let gone = self.neighbours.remove(node);
        self.wanted.forget_source(node);
        if gone.is_some_and(|gone| gone.push_mode == PushMode::Eager) {
            self.make_lazy_eager();
        }
    }

    /// Handles one message of a neighbour.
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
                return self.on_node(now, from, record, outcome);
            }
            Message::LinkRecord(record) => {
                let outcome = self.table.accept_links(now, provider, from, record);
                return self.on_links(now, from, record, outcome);
            }
            Message::LinkDeltas(deltas) => return self.on_deltas(now, from, deltas),
            Message::Digest(digest) => self.on_digest(now, from, &digest),
            Message::Request(request) => self.on_request(now, from, &request),
            Message::Have(have) => self.on_have(now, from, &have),
            Message::Graft => self.on_graft(now, from),
            Message::Prune => {
                neighbour.make_lazy();
            }
            Message::Part => neighbour.part(),
        }
        GossipUpdate::None
    }

    /// Publishes due changes of `links`, this node's measurements, and runs all timers. Call it
    /// every 100 ms.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails: nothing was published.
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
        self.send_pending_digests(now);
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

    /// Appends the next message to `out` and returns its receiver.
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
        let own = self.table.own().into();
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
                self.expedite(now);
            }
        }
        if let Some(delta) = publication.delta {
            self.table.publish_delta(delta);
            self.spread(None, own, RecordParts::DELTA);
        }
        Ok(())
    }

    fn start_election(&mut self, now: Instant) {
        let own = self.table.own();
        let lower = self.table.nodes().take_while(|(id, _)| *id < own);
        let live = lower.filter(|(_, is_live)| *is_live);
        let below = live.take(Root::CANDIDATES).count();
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
                self.expedite(now);
            }
            return GossipUpdate::Links;
        }
        let is_newest = self.table.held(decoded.origin.into()) == decoded.version;
        if outcome == Outcome::Stale && is_newest && self.root.is(&decoded.origin) {
            // Another link delivered it first.
            self.prune(from);
        }
        if let Outcome::NeedsNodeRecord(origin) = outcome {
            let unlisted = Newer::Unlisted(decoded.version);
            self.wanted.add(origin, from, unlisted, now);
        }
        self.on_outcome(now, from, outcome)
    }

    fn on_outcome(&mut self, now: Instant, from: NodeId, outcome: Outcome) -> GossipUpdate {
        if let Outcome::OwnFromBefore(version) = outcome {
            self.publisher.raise(version);
        } else if let Outcome::BelowExpired(origin) = outcome {
            self.send_expired(now, from, origin);
        }
        GossipUpdate::None
    }

    fn on_deltas(&mut self, now: Instant, from: NodeId, deltas: Vec<LinkDelta>) -> GossipUpdate {
        let mut update = GossipUpdate::None;
        for delta in deltas {
            let origin = delta.origin;
            if self.table.accept_delta(now, from, delta) == DeltaOutcome::Accepted {
                self.spread(Some(from), origin, RecordParts::DELTA);
                update = GossipUpdate::Links;
            }
        }
        update
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

    fn flush_interval(&self) -> Duration {
        if MEDIUM.contains(&self.table.len()) {
            FLUSH_MEDIUM
        } else {
            FLUSH
        }
    }
}

wire::debug_fields!([P: Provider] Gossip<P>, this {
    neighbours: this.neighbours.len(),
    stats: this.stats,
});

/// Draws an index below `len`, or 0; consumes one number in either case.
fn draw_index(generator: &mut Generator, len: usize) -> usize {
    let drawn = generator.below(u64::try_from(len).unwrap_or(0));
    usize::try_from(drawn).unwrap_or(0)
}

/// Flush interval: small networks send little, and large ones fill a datagram within it.
const FLUSH: Duration = Duration::from_millis(100);
/// Flush interval in [`MEDIUM`] networks. After only [`FLUSH`], their datagrams would be nearly
/// empty.
const FLUSH_MEDIUM: Duration = Duration::from_millis(200);
const MEDIUM: core::ops::RangeInclusive<usize> = 33..=256;
const HAVE_INTERVAL: Duration = Duration::from_secs(2);
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of neighbour replacements, in milliseconds.
const CHANGE_INTERVAL_MS: u64 = 60_000;
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// Queued messages; the driver polls after each input.
const OUTBOX_MAX: usize = 8_192;

/// Counters of gossip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GossipStats {
    /// Messages dropped because the neighbour exceeded its rate.
    pub over_rate: u64,
    /// Requests not answered, or only in part, because of the reply limit.
    pub unanswered: u64,
    /// Messages not sent because the queue was full.
    pub unsent: u64,
    /// Links made eager because a record did not arrive over another.
    pub grafts: u64,
    /// Links made lazy because another delivered a record first.
    pub prunes: u64,
    /// Neighbours refused because the gossip limit was reached.
    #[serde(rename = "crowded")]
    pub neighbours_refused: u64,
    /// Searches for missing records: one per tick.
    pub looks: u64,
}
