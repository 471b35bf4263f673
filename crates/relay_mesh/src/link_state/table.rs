//! What a node knows of all others.

mod deltas;
mod entry;

use std::collections::BTreeMap;
use std::sync::Arc;

use crypto::Provider;
use wire::{Instant, NodeId};

pub(super) use self::entry::{Entry, Links};
use self::entry::{Kind, Pace};
use super::publisher::low_half;
use super::verify_budget::VerifyBudget;
use super::{
    Admission, LinkRecord, Network, NodeRecord, Outcome, Profile, Refusal, Roles, ShortId,
    TableConfig, TableStats,
};
use crate::message::{Digest, Message, Request};

/// The records of all nodes, checked.
///
/// Bounded by [`TableConfig::nodes_max`] origins of at most 3 KB each. A check costs one ECDSA
/// verification (about 55 µs), and each neighbour has a budget of them; what is stale, unknown or
/// malformed is refused before any check, and so is what an origin says beyond 5 link records a
/// second, 10 at once, and 1 node record a second, 5 at once.
#[derive(Debug)]
pub struct LinkStateTable {
    config: TableConfig,
    network: Network,
    /// Whose records are taken too, while nodes change over to another secret.
    other_network: Option<Network>,
    /// Ourselves; our own records stand in the table too.
    own: NodeId,
    pub(super) entries: BTreeMap<NodeId, Entry>,
    budget: VerifyBudget,
    /// Hash of a node record of ours that is not the one published; an earlier life's.
    own_before: Option<[u8; 32]>,
    /// No place is left for another origin, not even that of a dead one.
    is_full: bool,
    stats: TableStats,
}

impl LinkStateTable {
    /// Makes an empty table for node `own`.
    #[must_use]
    pub fn new(config: TableConfig, network: Network, own: NodeId) -> Self {
        let budget = VerifyBudget::new(config.verify_burst, config.verify_rate);
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

    /// Returns a table for node `own` that has taken the same records, and shares their bytes.
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

    /// Takes records of `network` too: its nodes change over to another secret, or from one. What
    /// was signed for neither costs its neighbour two checks.
    pub const fn accept_also(&mut self, network: Network) {
        self.other_network = Some(network);
    }

    /// Takes records of these origins from now on, and forgets those of others.
    pub fn set_admission(&mut self, admission: Admission) {
        let own = self.own;
        self.entries
            .retain(|id, _| *id == own || admission.roles(id).is_some());
        self.config.admission = admission;
        self.count_places();
    }

    /// Takes a node record that neighbour `from` sent.
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

    /// Takes a link record that neighbour `from` sent.
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

    /// Takes a record of our own, which needs no check; ignores what is not ours.
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

    /// Ends the life of what is older than [`TableConfig::lifetime`].
    ///
    /// Call it once a second or so; an exact moment is not needed.
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

    /// Returns what is held of the links of all who are alive: records and deltas.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::new(self.entries.iter().filter_map(|(&id, entry)| {
            let links = entry.links.as_ref().filter(|links| links.is_live())?;
            Some((ShortId::from(id), links.state()))
        }))
    }

    /// Returns whose records to ask for, given what a neighbour holds.
    ///
    /// Where the request is full, call it again with the same digest once the answers have come.
    #[must_use]
    pub fn missing(&self, theirs: &Digest) -> Request {
        let entries = theirs.entries().iter();
        let wanted = entries.filter(|(short, version)| self.lacks(*short, *version));
        Request::new(wanted.map(|&(short, _)| (short, self.held(short))))
    }

    /// Whether a neighbour that holds `state` of an origin has something newer, for which there is
    /// room.
    #[must_use]
    pub fn lacks(&self, origin: ShortId, state: u64) -> bool {
        match self.by_short(origin) {
            Some((_, entry)) => entry.state() < state,
            None => self.would_take(origin),
        }
    }

    /// Whether the record of an origin is newer than ours whose version has this low half; a
    /// guess, which a digest puts right where it is wrong.
    pub(crate) fn lacks_record(&self, origin: ShortId, low: u32) -> bool {
        match self.by_short(origin) {
            Some((_, entry)) => {
                let ahead = low.wrapping_sub(low_half(entry.version()));
                ahead.cast_signed() > 0
            }
            None => self.would_take(origin),
        }
    }

    /// The version of the link record held; 0 where there is none, or its list is missing.
    pub(crate) fn held(&self, origin: ShortId) -> u64 {
        self.by_short(origin)
            .map_or(0, |(_, entry)| entry.version())
    }

    /// Returns what answers a request: of each origin what is newer than the asking node holds,
    /// node record before link record before delta.
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

    /// Returns what `id` says of itself and the roles that it is granted of those it claims.
    #[must_use]
    pub fn profile(&self, id: &NodeId) -> Option<(&Profile, Roles)> {
        let profile = &self.entries.get(id)?.profile;
        Some((profile, profile.roles.and(self.config.admission.roles(id)?)))
    }

    /// Returns all origins held, ascending, and whether each is alive.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        self.entries.iter().map(|(&id, entry)| (id, entry.is_live))
    }

    /// Returns what those say of themselves that are alive.
    pub(crate) fn live_profiles(&self) -> impl Iterator<Item = (NodeId, &Profile)> {
        let live = self.entries.iter().filter(|(_, entry)| entry.is_live);
        live.map(|(id, entry)| (*id, &entry.profile))
    }

    /// Returns the counts.
    #[must_use]
    pub const fn stats(&self) -> TableStats {
        self.stats
    }

    /// Returns how many origins are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns ourselves, in short.
    pub(crate) fn own_short(&self) -> ShortId {
        self.own.into()
    }

    /// Returns ourselves.
    pub(crate) const fn own(&self) -> NodeId {
        self.own
    }

    /// Returns the one origin with this short id.
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

    /// Looks at a node record of ours that comes back: an older one too, since link records of an
    /// earlier life hang on its hash.
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

    /// Checks a signature for each network whose records are taken, within the budget of `from`.
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
            if !self.budget.take(now, from) {
                return Err(Refusal::OverBudget);
            }
            if holds(network) {
                return Ok(());
            }
        }
        self.budget.fine(from);
        Err(Refusal::Forged)
    }

    /// Records as they came, to pass on: that of the node, and that of its links.
    pub(crate) fn records(&self, origin: ShortId) -> Option<(&[u8], Option<&[u8]>)> {
        let (_, entry) = self.by_short(origin)?;
        let links = entry.links.as_ref().filter(|links| links.is_live());
        Some((&entry.node_bytes, links.map(Links::bytes)))
    }

    /// Records as they came, even where they have expired: that of the node, and that of its links
    /// where it hangs on the former.
    pub(crate) fn last_records(&self, origin: ShortId) -> Option<(&[u8], Option<&[u8]>)> {
        let (_, entry) = self.by_short(origin)?;
        let links = entry.links.as_ref();
        let links = links.filter(|links| links.version > entry.node_version);
        Some((&entry.node_bytes, links.map(Links::bytes)))
    }

    /// Whether a new origin finds a place, if need be that of one that is dead.
    fn has_room(&self, origin: NodeId) -> bool {
        self.by_short(origin.into()).is_none() && self.has_place()
    }

    /// Whether a record of an origin that is not held would be taken, as far as its short id tells.
    fn would_take(&self, origin: ShortId) -> bool {
        self.config.admission.admits(origin) && self.has_place()
    }

    const fn has_place(&self) -> bool {
        !self.is_full
    }

    /// Whether as many origins are held as may be, and all live; kept, since digests ask for each
    /// origin that they name.
    fn count_places(&mut self) {
        let is_crowded = self.others() >= self.config.nodes_max;
        self.is_full = is_crowded && self.entries.values().all(|entry| entry.is_live);
    }

    /// Origins held besides ourselves.
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

#[cfg(test)]
mod tests;
