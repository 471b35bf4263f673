//! Link state of all nodes.

mod deltas;
mod entry;

use std::collections::BTreeMap;
use std::sync::Arc;

use crypto::Provider;
use wire::token_bucket::Fill;
use wire::{Instant, NodeId, SourceRates};

pub(super) use self::entry::{Entry, Links};
use self::entry::{Kind, Pace};
use super::publisher::low_half;
use super::{
    Admission, LinkRecord, Network, NodeRecord, Outcome, Profile, Refusal, Roles, ShortId,
    TableConfig, TableStats,
};
use crate::message::{Digest, Message, Request};

/// The verified records of all nodes.
///
/// Bounded by [`TableConfig::nodes_max`] origins of at most 3 KB each. A check costs one ECDSA
/// verification (about 55 µs), and each neighbour has a budget of them. Stale, unknown and
/// malformed records are refused before any check; so are an origin's records beyond 5 link records
/// per second (burst 10) and 1 node record per second (burst 5).
#[derive(Debug)]
pub struct LinkStateTable {
    config: TableConfig,
    network: Network,
    /// The second accepted network, while nodes change to another secret.
    other_network: Option<Network>,
    /// This node; its own records are in the table too.
    own: NodeId,
    pub(super) entries: BTreeMap<NodeId, Entry>,
    budget: SourceRates<NodeId>,
    /// Hash of this node's own node record of an earlier run.
    own_before: Option<[u8; 32]>,
    /// Whether no further origin fits, not even in place of a dead one.
    is_full: bool,
    stats: TableStats,
}

impl LinkStateTable {
    /// Creates an empty table for node `own`.
    #[must_use]
    pub fn new(config: TableConfig, network: Network, own: NodeId) -> Self {
        let fill = Fill {
            rate: config.verify_rate,
            burst: config.verify_burst,
        };
        let budget = SourceRates::new(fill, BUCKETS_MAX);
        Self {
            is_full: config.nodes_max == 0,
            config,
            network,
            other_network: None,
            own,
            entries: BTreeMap::new(),
            budget,
            own_before: None,
            stats: TableStats::default(),
        }
    }

    /// Returns a table for node `own` with the same records; their bytes are shared.
    #[must_use]
    pub fn copy_for(&self, own: NodeId) -> Self {
        let config = self.config.clone();
        let mut copy = Self {
            entries: self.entries.clone(),
            other_network: self.other_network,
            ..Self::new(config, self.network, own)
        };
        copy.count_places();
        copy
    }

    /// Also accepts records of `network`, while its nodes change to another secret. A record signed
    /// for neither costs its neighbour two checks.
    pub const fn accept_also(&mut self, network: Network) {
        self.other_network = Some(network);
    }

    /// Sets the admitted origins and removes the records of others.
    pub fn set_admission(&mut self, admission: Admission) {
        let own = self.own;
        self.entries
            .retain(|id, _| *id == own || admission.roles(id).is_some());
        self.config.admission = admission;
        self.count_places();
    }

    /// Handles a node record from neighbour `from`.
    pub fn accept_node<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Outcome {
        let outcome = self.judge_node(now, provider, from, bytes);
        self.count(outcome)
    }

    /// Handles a link record from neighbour `from`.
    pub fn accept_links<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Outcome {
        let outcome = self.judge_links(now, provider, from, bytes);
        self.count(outcome)
    }

    /// Stores a record of this node, without a check; ignores others.
    pub fn publish<P: Provider>(&mut self, now: Instant, provider: &P, record: &[u8]) {
        if let Ok(node) = NodeRecord::decode(record)
            && node.origin() == self.own
        {
            self.insert_node(now, node, NodeRecord::hash(provider, record), record);
        } else if let Ok(links) = LinkRecord::decode(record)
            && links.origin == self.own
        {
            self.insert_links(now, &links, record);
        }
    }

    /// Expires records older than [`TableConfig::lifetime`].
    ///
    /// Call it about once a second; the exact time does not matter.
    pub fn expire(&mut self, now: Instant) {
        let lifetime = self.config.lifetime;
        for entry in self.entries.values_mut() {
            let is_over = |taken| now.saturating_since(taken) >= lifetime;
            if let Some(links) = &mut entry.links
                && is_over(links.taken)
            {
                links.end();
            }
            let has_links = entry.links.as_ref().is_some_and(Links::is_live);
            entry.is_live = has_links || !is_over(entry.taken);
        }
        self.budget.forget_full(now);
        self.count_places();
    }

    /// Returns the digest of all live origins' links: records and deltas.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::new(self.entries.iter().filter_map(|(&id, entry)| {
            let links = entry.links.as_ref().filter(|links| links.is_live())?;
            Some((ShortId::from(id), links.state()))
        }))
    }

    /// Returns which records to request from a neighbour with this digest.
    ///
    /// If the request is full, call it again with the same digest after the answers.
    #[must_use]
    pub fn missing(&self, theirs: &Digest) -> Request {
        let entries = theirs.entries().iter();
        let wanted = entries.filter(|(short, version)| self.lacks(*short, *version));
        Request::new(wanted.map(|&(short, _)| (short, self.held(short))))
    }

    /// Whether a neighbour that holds `state` of an origin has something newer that fits the table.
    #[must_use]
    pub fn lacks(&self, origin: ShortId, state: u64) -> bool {
        match self.by_short(origin) {
            Some((_, entry)) => entry.state() < state,
            None => self.would_take(origin),
        }
    }

    /// Whether an origin's record with this low half of its version is probably newer than the one
    /// held; digests correct a wrong guess.
    pub(crate) fn lacks_record(&self, origin: ShortId, low: u32) -> bool {
        match self.by_short(origin) {
            Some((_, entry)) => {
                let ahead = low.wrapping_sub(low_half(entry.version()));
                ahead.cast_signed() > 0
            }
            None => self.would_take(origin),
        }
    }

    /// Version of the link record held; 0 if there is none, or its list is missing.
    pub(crate) fn held(&self, origin: ShortId) -> u64 {
        self.by_short(origin)
            .map_or(0, |(_, entry)| entry.version())
    }

    /// Answers a request: per origin everything newer than the requester holds, node record before
    /// link record before delta.
    pub fn answer<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = Message<'a>> + use<'a> {
        request.origins().iter().flat_map(|&(short, held)| {
            let entry = self.by_short(short).map(|(_, entry)| entry);
            let node = entry.filter(|entry| entry.node_version > held);
            let links =
                entry.and_then(|entry| entry.links.as_ref().filter(|links| links.is_live()));
            let delta = links.and_then(|links| links.delta());
            let newer = links.filter(|links| links.version > held);
            let node = node.map(|entry| Message::NodeRecord(&entry.node_bytes));
            let links = newer.map(|links| Message::LinkRecord(links.bytes()));
            let delta = delta.map(|delta| Message::LinkDeltas(vec![delta.clone()]));
            node.into_iter().chain(links).chain(delta)
        })
    }

    /// Returns the profile of `id`, and those of its claimed roles that are granted.
    #[must_use]
    pub fn profile(&self, id: &NodeId) -> Option<(&Profile, Roles)> {
        let profile = &self.entries.get(id)?.profile;
        Some((profile, profile.roles.and(self.config.admission.roles(id)?)))
    }

    /// Returns all origins, ascending, and whether each is live.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        self.entries.iter().map(|(&id, entry)| (id, entry.is_live))
    }

    /// Returns the profiles of live origins.
    pub(crate) fn live_profiles(&self) -> impl Iterator<Item = (NodeId, &Profile)> {
        let live = self.entries.iter().filter(|(_, entry)| entry.is_live);
        live.map(|(id, entry)| (*id, &entry.profile))
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> TableStats {
        self.stats
    }

    /// Returns the number of origins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no origin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns this node's short id.
    pub(crate) fn own_short(&self) -> ShortId {
        self.own.into()
    }

    /// Returns this node's id.
    pub(crate) const fn own(&self) -> NodeId {
        self.own
    }

    /// Returns the origin with this short id.
    pub(super) fn by_short(&self, short: ShortId) -> Option<(&NodeId, &Entry)> {
        self.entries.range(short.ids()).next()
    }

    fn judge_node<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Outcome {
        let Ok(record) = NodeRecord::decode(bytes) else {
            return Outcome::Refused(Refusal::Malformed);
        };
        let origin = record.origin();
        if origin == self.own {
            return self.judge_own_node(now, provider, from, (&record, bytes));
        }
        if self.config.admission.roles(&origin).is_none() {
            return Outcome::Refused(Refusal::NotAdmitted);
        }
        match self.entries.get(&origin) {
            Some(held) if *held.node_bytes == *bytes => return Outcome::Stale,
            Some(held) if held.node_version >= record.version => {
                return held.outdated(origin, record.version);
            }
            Some(held) if !held.pace.allows(now, Kind::Node) => {
                return Outcome::Refused(Refusal::TooOften);
            }
            None if !self.has_room(origin) => return Outcome::Refused(Refusal::NoRoom),
            Some(_) | None => {}
        }
        let holds = |network| record.verify(provider, network, bytes);
        if let Err(why) = self.check(now, from, holds) {
            return Outcome::Refused(why);
        }
        let hash = NodeRecord::hash(provider, bytes);
        self.insert_node(now, record, hash, bytes);
        Outcome::Accepted
    }

    /// Classifies a node record of this node that returns from a neighbour. Older ones count too:
    /// link records of an earlier run depend on their hash.
    fn judge_own_node<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        (record, bytes): (&NodeRecord, &[u8]),
    ) -> Outcome {
        let held = self.entries.get(&self.own);
        let is_newer = held.is_none_or(|entry| entry.node_version < record.version);
        let hash = NodeRecord::hash(provider, bytes);
        if held.is_some_and(|entry| entry.hash == hash) || self.own_before == Some(hash) {
            return Outcome::Stale;
        }
        let holds = |network| record.verify(provider, network, bytes);
        if let Err(why) = self.check(now, from, holds) {
            return Outcome::Refused(why);
        }
        self.own_before = Some(hash);
        if is_newer {
            Outcome::OwnFromBefore(record.version)
        } else {
            Outcome::Stale
        }
    }

    fn judge_links<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Outcome {
        let Ok(record) = LinkRecord::decode(bytes) else {
            return Outcome::Refused(Refusal::Malformed);
        };
        let origin = record.origin;
        if self.config.admission.roles(&origin).is_none() && origin != self.own {
            return Outcome::Refused(Refusal::NotAdmitted);
        }
        let Some(entry) = self.entries.get(&origin) else {
            return Outcome::NeedsNodeRecord(origin.into());
        };
        if entry.version() >= record.version {
            return entry.outdated(origin, record.version);
        }
        let held = Some(entry.hash).filter(|_| entry.list.len() == record.reports.len());
        let before = self.own_before.filter(|_| origin == self.own);
        let list = [held, before].into_iter().flatten();
        let Some(list) = list.into_iter().find(|hash| hash.starts_with(&record.list)) else {
            return Outcome::NeedsNodeRecord(origin.into());
        };
        if origin != self.own && !entry.pace.allows(now, Kind::Links) {
            return Outcome::Refused(Refusal::TooOften);
        }
        let key = entry.key;
        let holds = |network| LinkRecord::verify(provider, &key, network, &list, bytes);
        if let Err(why) = self.check(now, from, holds) {
            return Outcome::Refused(why);
        }
        if origin == self.own {
            return Outcome::OwnFromBefore(record.version);
        }
        self.compare(now, &record);
        self.insert_links(now, &record, bytes);
        Outcome::Accepted
    }

    /// Verifies a signature for each accepted network, within the budget of `from`.
    fn check(
        &mut self,
        now: Instant,
        from: NodeId,
        holds: impl Fn(Network) -> bool,
    ) -> Result<(), Refusal> {
        for network in [Some(self.network), self.other_network]
            .into_iter()
            .flatten()
        {
            if self.budget.take(now, from).is_err() {
                return Err(Refusal::OverBudget);
            }
            if holds(network) {
                return Ok(());
            }
        }
        self.budget.charge(now, from, FORGERY_COST);
        Err(Refusal::Forged)
    }

    /// Returns an origin's node record and link record as received, to forward them.
    pub(crate) fn records(&self, origin: ShortId) -> Option<(&[u8], Option<&[u8]>)> {
        let (_, entry) = self.by_short(origin)?;
        let links = entry.links.as_ref().filter(|links| links.is_live());
        Some((&entry.node_bytes, links.map(Links::bytes)))
    }

    /// Returns an origin's records as received, even if expired; the link record only if it belongs
    /// to the node record.
    pub(crate) fn last_records(&self, origin: ShortId) -> Option<(&[u8], Option<&[u8]>)> {
        let (_, entry) = self.by_short(origin)?;
        let links = entry.links.as_ref();
        let links = links.filter(|links| links.version > entry.node_version);
        Some((&entry.node_bytes, links.map(Links::bytes)))
    }

    /// Whether a new origin fits, if necessary in place of a dead one.
    fn has_room(&self, origin: NodeId) -> bool {
        self.by_short(origin.into()).is_none() && self.has_place()
    }

    /// Whether a record of an unknown origin might be accepted, by its short id.
    fn would_take(&self, origin: ShortId) -> bool {
        self.config.admission.admits(origin) && self.has_place()
    }

    const fn has_place(&self) -> bool {
        !self.is_full
    }

    /// Updates whether the table is full of live origins; cached, since digests test each origin.
    fn count_places(&mut self) {
        let is_crowded = self.others() >= self.config.nodes_max;
        self.is_full = is_crowded && self.entries.values().all(|entry| entry.is_live);
    }

    /// Number of origins besides this node.
    fn others(&self) -> usize {
        let own = usize::from(self.entries.contains_key(&self.own));
        self.entries.len().saturating_sub(own)
    }

    fn insert_node(&mut self, now: Instant, node: NodeRecord, hash: [u8; 32], bytes: &[u8]) {
        let origin = node.origin();
        let before = self.entries.get_mut(&origin);
        let mut pace = before
            .as_ref()
            .map_or_else(|| Pace::new(now), |held| held.pace.clone());
        pace.take(now, Kind::Node);
        let (links, blamed) = before
            .map(|held| (held.links.take(), core::mem::take(&mut held.blamed)))
            .unwrap_or_default();
        if origin != self.own
            && !self.entries.contains_key(&origin)
            && self.others() >= self.config.nodes_max
        {
            let mut dead = self.entries.iter().filter(|(_, entry)| !entry.is_live);
            let first = dead.next();
            let oldest = dead.fold(
                first,
                |a, b| if b.1.taken < a?.1.taken { Some(b) } else { a },
            );
            if let Some(id) = oldest.map(|(&id, _)| id) {
                self.entries.remove(&id);
            }
        }
        let entry = Entry {
            key: node.key,
            node_version: node.version,
            profile: node.profile,
            list: node.neighbours.into(),
            node_bytes: bytes.into(),
            hash,
            taken: now,
            is_live: true,
            links,
            blamed,
            pace,
        };
        self.entries.insert(origin, entry);
        self.count_places();
    }

    fn insert_links(&mut self, now: Instant, record: &LinkRecord, bytes: &[u8]) {
        if let Some(entry) = self.entries.get_mut(&record.origin) {
            entry.is_live = true;
            entry.pace.take(now, Kind::Links);
            entry.links = Some(Links::new(now, Arc::clone(&entry.list), record, bytes));
        }
        self.count_places();
    }

    const fn count(&mut self, outcome: Outcome) -> Outcome {
        self.stats.count(outcome);
        outcome
    }
}

/// Checks that a forged record costs its neighbour in addition to its own. A neighbour forwards
/// only records that it has verified, so it made the record itself.
const FORGERY_COST: u32 = 31;
/// Most neighbours with a bucket that is not full. Sessions bound neighbours far below.
const BUCKETS_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
