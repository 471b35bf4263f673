//! Link state of all nodes: acceptance of records, within bounds.

mod entry;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use crypto::Provider;
use serde::Serialize;
use wire::token_bucket::Fill;
use wire::{Instant, NodeId, SourceRates};

pub(super) use self::entry::{Entry, Links};
use self::entry::{Kind, RecordLimiter};
use super::publisher::low_half;
use super::{Digest, LinkRecord, Message, Network, NodeRecord, Profile, Request, Roles, ShortId};

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
        let judged = self.judge_node(now, provider, from, bytes);
        self.count(judged)
    }

    /// Handles a link record from neighbour `from`.
    pub fn accept_links<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Outcome {
        let judged = self.judge_links(now, provider, from, bytes);
        self.count(judged)
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

    /// Expires records older than [`TableConfig::lifetime`]; call it about once a second.
    pub fn expire(&mut self, now: Instant) {
        let lifetime = self.config.lifetime;
        for entry in self.entries.values_mut() {
            let is_over = |taken| now.saturating_since(taken) >= lifetime;
            if let Some(links) = &mut entry.links
                && is_over(links.taken)
            {
                links.end();
            }
            entry.is_live = entry.live_links().is_some() || !is_over(entry.taken);
        }
        self.budget.forget_full(now);
        self.count_places();
    }

    /// Returns the digest of all live origins' links: records and deltas.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::new(
            self.entries
                .iter()
                .filter_map(|(&id, entry)| Some((ShortId::from(id), entry.live_links()?.state()))),
        )
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
            None => self.would_accept(origin),
        }
    }

    /// Whether a record with this low half of its version is probably newer than the one held.
    pub(crate) fn lacks_record(&self, origin: ShortId, low: u32) -> bool {
        match self.by_short(origin) {
            Some((_, entry)) => {
                let ahead = low.wrapping_sub(low_half(entry.version()));
                ahead.cast_signed() > 0
            }
            None => self.would_accept(origin),
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
            let links = entry.and_then(Entry::live_links);
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

    pub(crate) const fn own(&self) -> NodeId {
        self.own
    }

    pub(super) fn by_short(&self, short: ShortId) -> Option<(&NodeId, &Entry)> {
        self.entries.range(short.ids()).next()
    }

    fn judge_node<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<Outcome, Refusal> {
        let record = NodeRecord::decode(bytes).map_err(|_| Refusal::Malformed)?;
        let origin = record.origin();
        if origin == self.own {
            return self.judge_own_node(now, provider, from, (&record, bytes));
        }
        if self.config.admission.roles(&origin).is_none() {
            return Err(Refusal::NotAdmitted);
        }
        match self.entries.get(&origin) {
            Some(held) if *held.node_bytes == *bytes => return Ok(Outcome::Stale),
            Some(held) if held.node_version >= record.version => {
                return Ok(held.outdated(origin, record.version));
            }
            Some(held) if !held.pace.allows(now, Kind::Node) => {
                return Err(Refusal::TooOften);
            }
            None if !self.has_room(origin) => return Err(Refusal::NoRoom),
            Some(_) | None => {}
        }
        let holds = |network| record.verify(provider, network, bytes);
        self.check(now, from, holds)?;
        let hash = NodeRecord::hash(provider, bytes);
        self.insert_node(now, record, hash, bytes);
        Ok(Outcome::Accepted)
    }

    /// Classifies a node record of this node that returns from a neighbour. Older ones count too:
    /// link records of an earlier run depend on their hash.
    fn judge_own_node<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        (record, bytes): (&NodeRecord, &[u8]),
    ) -> Result<Outcome, Refusal> {
        let held = self.entries.get(&self.own);
        let is_newer = held.is_none_or(|entry| entry.node_version < record.version);
        let hash = NodeRecord::hash(provider, bytes);
        if held.is_some_and(|entry| entry.hash == hash) || self.own_before == Some(hash) {
            return Ok(Outcome::Stale);
        }
        let holds = |network| record.verify(provider, network, bytes);
        self.check(now, from, holds)?;
        self.own_before = Some(hash);
        Ok(if is_newer {
            Outcome::OwnFromBefore(record.version)
        } else {
            Outcome::Stale
        })
    }

    fn judge_links<P: Provider>(
        &mut self,
        now: Instant,
        provider: &P,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<Outcome, Refusal> {
        let record = LinkRecord::decode(bytes).map_err(|_| Refusal::Malformed)?;
        let origin = record.origin;
        if self.config.admission.roles(&origin).is_none() && origin != self.own {
            return Err(Refusal::NotAdmitted);
        }
        let Some(entry) = self.entries.get(&origin) else {
            return Ok(Outcome::NeedsNodeRecord(origin.into()));
        };
        if entry.version() >= record.version {
            return Ok(entry.outdated(origin, record.version));
        }
        let held = Some(entry.hash).filter(|_| entry.list.len() == record.reports.len());
        let before = self.own_before.filter(|_| origin == self.own);
        let list = [held, before].into_iter().flatten();
        let Some(list) = list.into_iter().find(|hash| hash.starts_with(&record.list)) else {
            return Ok(Outcome::NeedsNodeRecord(origin.into()));
        };
        if origin != self.own && !entry.pace.allows(now, Kind::Links) {
            return Err(Refusal::TooOften);
        }
        let key = entry.key;
        let holds = |network| LinkRecord::verify(provider, &key, network, &list, bytes);
        self.check(now, from, holds)?;
        if origin == self.own {
            return Ok(Outcome::OwnFromBefore(record.version));
        }
        self.compare(now, &record);
        self.insert_links(now, &record, bytes);
        Ok(Outcome::Accepted)
    }

    /// Verifies a signature for each accepted network, within the budget of `from`.
    fn check(
        &mut self,
        now: Instant,
        from: NodeId,
        holds: impl Fn(Network) -> bool,
    ) -> Result<(), Refusal> {
        let networks = [Some(self.network), self.other_network];
        for network in networks.into_iter().flatten() {
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
        Some((&entry.node_bytes, entry.live_links().map(Links::bytes)))
    }

    /// Returns the last records, even if expired; links only if they belong to the node record.
    pub(crate) fn last_records(&self, origin: ShortId) -> Option<(&[u8], Option<&[u8]>)> {
        let (_, entry) = self.by_short(origin)?;
        let links = entry.links.as_ref();
        let links = links.filter(|links| links.version > entry.node_version);
        Some((&entry.node_bytes, links.map(Links::bytes)))
    }

    /// Whether a new origin fits, if necessary in place of a dead one.
    fn has_room(&self, origin: NodeId) -> bool {
        self.by_short(origin.into()).is_none() && !self.is_full
    }

    /// Whether a record of an unknown origin might be accepted, by its short id.
    fn would_accept(&self, origin: ShortId) -> bool {
        self.config.admission.admits(origin) && !self.is_full
    }

    /// Updates whether the table is full of live origins; cached, since digests test each origin.
    fn count_places(&mut self) {
        let has_no_room = self.others() >= self.config.nodes_max;
        self.is_full = has_no_room && self.entries.values().all(|entry| entry.is_live);
    }

    fn others(&self) -> usize {
        let own = usize::from(self.entries.contains_key(&self.own));
        self.entries.len().saturating_sub(own)
    }

    fn insert_node(&mut self, now: Instant, node: NodeRecord, hash: [u8; 32], bytes: &[u8]) {
        let origin = node.origin();
        let before = self.entries.get_mut(&origin);
        let mut pace = before
            .as_ref()
            .map_or_else(|| RecordLimiter::new(now), |held| held.pace.clone());
        pace.take(now, Kind::Node);
        let (links, penalties) = before
            .map(|held| (held.links.take(), core::mem::take(&mut held.penalties)))
            .unwrap_or_default();
        if origin != self.own
            && !self.entries.contains_key(&origin)
            && self.others() >= self.config.nodes_max
        {
            let dead = self.entries.iter().filter(|(_, entry)| !entry.is_live);
            let oldest = dead.min_by_key(|(_, entry)| entry.taken);
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
            penalties,
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

    fn count(&mut self, judged: Result<Outcome, Refusal>) -> Outcome {
        let outcome = judged.unwrap_or_else(Outcome::Refused);
        self.stats.count(outcome);
        outcome
    }
}

/// Checks that a forged record costs in addition: neighbours verify what they forward.
const FORGERY_COST: u32 = 31;
/// Most neighbours with a bucket that is not full. Sessions bound neighbours far below.
const BUCKETS_MAX: usize = 1_024;

#[cfg(test)]
mod tests;

/// Outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new and genuine: forward it unchanged to every neighbour except its sender.
    Accepted,
    /// Its version or a newer one is known.
    Stale,
    /// It is older than the origin's last record, which has expired after its
    /// [`lifetime`](TableConfig::lifetime): send the held record back, so that the origin
    /// continues above it.
    BelowExpired(ShortId),
    /// It is this node's own genuine record of an earlier run, newer than those published: continue
    /// above its version ([`Publisher::raise`](super::Publisher::raise)) and publish.
    OwnFromBefore(u64),
    /// The link record needs a node record that is not held: request both from the sender.
    NeedsNodeRecord(ShortId),
    /// It was dropped and counted.
    Refused(Refusal),
}

/// Outcome of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// It is new: forward it.
    Accepted,
    /// It, or a newer one, is known.
    Stale,
    /// Its base record is not the one held; the next record includes it.
    Unfit,
    /// Deltas of this origin are currently not accepted from this neighbour.
    Ignored,
    /// The origin did not send it; deltas of the origin are refused from the neighbour for a while.
    Forged,
}

/// Why a record was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is malformed.
    Malformed,
    /// Its origin is not admitted.
    NotAdmitted,
    /// The table is full of live origins, or another origin has the same short id.
    NoRoom,
    /// The neighbour's budget of signature checks is exhausted.
    OverBudget,
    /// Its origin publishes more often than the intervals allow.
    TooOften,
    /// The signature is not the origin's.
    Forged,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    /// Accepted records.
    pub accepted: u64,
    /// Records that were known.
    pub stale: u64,
    /// Link records whose node record was missing.
    pub unlisted: u64,
    /// This node's records of an earlier run.
    pub own_from_before: u64,
    /// Records refused as malformed.
    pub malformed: u64,
    /// Records refused because their origin is not admitted.
    pub not_admitted: u64,
    /// Records refused because the table is full.
    pub no_room: u64,
    /// Records refused because of the neighbour's budget.
    pub over_budget: u64,
    /// Records refused because their origin publishes too often.
    pub too_often: u64,
    /// Records refused as forged.
    pub forged: u64,
    /// Accepted deltas.
    pub deltas_accepted: u64,
    /// Deltas that were known.
    pub deltas_stale: u64,
    /// Deltas whose base record is not held.
    pub deltas_unfit: u64,
    /// Deltas of neighbours that are currently not accepted.
    pub deltas_ignored: u64,
    /// Deltas that the origin's next record disproved.
    pub deltas_forged: u64,
}

impl TableStats {
    const fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Stale | Outcome::BelowExpired(_) => &mut self.stale,
            Outcome::OwnFromBefore(_) => &mut self.own_from_before,
            Outcome::NeedsNodeRecord(_) => &mut self.unlisted,
            Outcome::Refused(Refusal::Malformed) => &mut self.malformed,
            Outcome::Refused(Refusal::NotAdmitted) => &mut self.not_admitted,
            Outcome::Refused(Refusal::NoRoom) => &mut self.no_room,
            Outcome::Refused(Refusal::OverBudget) => &mut self.over_budget,
            Outcome::Refused(Refusal::TooOften) => &mut self.too_often,
            Outcome::Refused(Refusal::Forged) => &mut self.forged,
        };
        *counter = counter.saturating_add(1);
    }

    pub(super) const fn count_delta(&mut self, outcome: DeltaOutcome) {
        let counter = match outcome {
            DeltaOutcome::Accepted => &mut self.deltas_accepted,
            DeltaOutcome::Stale => &mut self.deltas_stale,
            DeltaOutcome::Unfit => &mut self.deltas_unfit,
            DeltaOutcome::Ignored => &mut self.deltas_ignored,
            DeltaOutcome::Forged => &mut self.deltas_forged,
        };
        *counter = counter.saturating_add(1);
    }
}

/// Bounds of a [`LinkStateTable`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableConfig {
    /// Origins besides this node; default 1,023, so that all fit a graph. Each uses up to 4 KB.
    pub nodes_max: usize,
    /// Lifetime of a link record; default 90 s, three renewal intervals.
    pub lifetime: Duration,
    /// Burst of signature checks per neighbour; default 256.
    pub verify_burst: u32,
    /// Signature checks per second and neighbour; default 100, about half a percent of a core.
    pub verify_rate: u32,
    /// Which nodes may have records.
    pub admission: Admission,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            nodes_max: 1_023,
            lifetime: Duration::from_secs(90),
            verify_burst: 256,
            verify_rate: 100,
            admission: Admission::Anyone,
        }
    }
}

/// Which nodes may have records.
#[derive(Clone, Debug)]
pub enum Admission {
    /// All nodes, with the roles that they claim. A member can then invent origins until the table
    /// is full, so use it only if all members trust each other.
    Anyone,
    /// The listed nodes, with at most these roles.
    Listed(BTreeMap<NodeId, Roles>),
}

impl Admission {
    /// Returns the roles that `id` may have; `None` if its records are refused.
    #[must_use]
    pub fn roles(&self, id: &NodeId) -> Option<Roles> {
        match self {
            Self::Anyone => Some(Roles::ALL),
            Self::Listed(nodes) => nodes.get(id).copied(),
        }
    }

    /// Whether a node with this short id may be admitted.
    fn admits(&self, origin: ShortId) -> bool {
        match self {
            Self::Anyone => true,
            Self::Listed(nodes) => nodes.range(origin.ids()).next().is_some(),
        }
    }
}
