//! What a node says of itself, and when.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{Instant, NodeId, UnixTime};

use super::{
    LinkDelta, LinkRecord, NEIGHBOURS_MAX, Network, NodeRecord, Profile, ShortId, Urgency,
};
use crate::measure::LinkReport;

/// Signs a node's own records when there is something to say.
///
/// A link record goes out each 30 s, and at most five times a second where a link came up or went
/// down; that ends [parted](LinkReport::PARTED) has time until the next. Between
/// records, where a delay changed by more than max(2 ms, 5 %) or loss by more than 0.5 %, a delta
/// goes out, at most once a second. A node record goes out where the neighbours or the profile
/// changed, and each 5 min; a link record follows it at once, so a digest need not speak of node
/// records.
///
/// A record that follows a delta repeats it: what changed in between goes into a delta behind it.
/// So whoever holds both knows whether the delta was ours.
pub struct Publisher<P: Provider> {
    key: P::SigningKey,
    public: PublicKey,
    network: Network,
    /// What goes into the next node record.
    profile: Profile,
    /// The last version used.
    version: u64,
    /// The version of the last record or delta of links; 0 before the first.
    told_version: u64,
    /// What the last node record said, in its order, with its hash.
    list: Option<List>,
    /// What the last link record said, which deltas are told against.
    base: Base,
    /// What records and deltas said last.
    told: BTreeMap<NodeId, LinkReport>,
    /// When the last delta went out.
    delta_at: Option<Instant>,
    /// Said by the next link record; the node is about to stop.
    is_leaving: bool,
    /// Something must be said now, whatever was measured.
    is_urgent: bool,
    /// The node is the root of the tree, and renews its record more often.
    root: Root,
}

/// Whether a node is the root of the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Other,
    Own,
}

/// The neighbours of the last node record.
struct List {
    neighbours: Vec<NodeId>,
    hash: [u8; 32],
    at: Instant,
}

/// The last link record.
#[derive(Default)]
struct Base {
    version: u64,
    reports: BTreeMap<NodeId, LinkReport>,
    at: Instant,
}

/// Records to put in one's own table and to send on, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// A node record, where one is due.
    pub node: Option<Vec<u8>>,
    /// A link record; present whenever a node record is.
    pub links: Option<Vec<u8>>,
    /// What changed since the last link record; never beside a new one.
    pub delta: Option<LinkDelta>,
}

impl<P: Provider> Publisher<P> {
    /// Makes the publisher of the node that holds `key`, whose public half is `public`.
    ///
    /// # Errors
    ///
    /// [`InvalidProfile`] where the profile breaks the bounds of a record.
    pub fn new(
        key: P::SigningKey,
        public: PublicKey,
        network: Network,
        profile: Profile,
    ) -> Result<Self, InvalidProfile> {
        if !profile.is_valid() {
            return Err(InvalidProfile);
        }
        Ok(Self {
            key,
            public,
            network,
            profile,
            version: 0,
            told_version: 0,
            list: None,
            base: Base::default(),
            told: BTreeMap::new(),
            delta_at: None,
            is_leaving: false,
            is_urgent: false,
            root: Root::Other,
        })
    }

    /// Says, from the next [`update`](Self::update) on, that this node is reached at `addresses`. More than
    /// a record holds change nothing.
    pub fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        let profile = Profile {
            addresses,
            ..self.profile.clone()
        };
        if profile.is_valid() {
            self.profile = profile;
            self.list = None;
        }
    }

    /// Says, from the next [`update`](Self::update) on, that nothing new shall be routed through.
    pub const fn leave(&mut self) {
        self.is_urgent = self.is_urgent || !self.is_leaving;
        self.is_leaving = true;
    }

    /// Says, from the next [`update`](Self::update) on, that routes may lead through again.
    pub const fn stay(&mut self) {
        self.is_urgent = self.is_urgent || self.is_leaving;
        self.is_leaving = false;
    }

    /// Is the root of the tree of [`gossip`](crate::gossip) from now on: renews its record each 3 s.
    pub const fn become_root(&mut self) {
        self.root = Root::Own;
    }

    /// Is the root no more.
    pub const fn step_down(&mut self) {
        self.root = Root::Other;
    }

    /// Returns whether [`leave`](Self::leave) was called, and [`stay`](Self::stay) not since.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Goes on above `version`, which neighbours hold from an earlier life; see
    /// [`Outcome::OwnFromBefore`](super::Outcome::OwnFromBefore).
    pub fn raise(&mut self, version: u64) {
        if version > self.version {
            self.version = version;
            // Both records are published anew, in order.
            self.list = None;
        }
    }

    /// Returns the last version used; 0 before the first record.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the records that are due, given the links measured now; call it each 100 to 200 ms.
    ///
    /// `links` past the bound of 64 are left out, the highest ids first.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] where the provider's source of randomness fails; try again later.
    pub fn update(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<Publication, NoEntropy> {
        let mut publication = Publication::default();
        let links: BTreeMap<NodeId, LinkReport> = links
            .iter()
            .take(NEIGHBOURS_MAX)
            .map(|(&id, &report)| (id, report))
            .collect();
        if self.needs_list(now, &links) {
            publication.node = Some(self.sign_node(now, unix, provider, &links)?);
        }
        if publication.node.is_some() || self.needs_links(now, &links) {
            let has_news = publication.node.is_some() || self.is_urgent || self.has_flipped(&links);
            let urgency = match (has_news, self.root == Root::Own) {
                (false, false) => Urgency::None,
                (true, false) => Urgency::News,
                (false, true) => Urgency::Root,
                (true, true) => Urgency::RootNews,
            };
            let signed = self.sign_links((now, unix), provider, &links, urgency);
            if signed.is_err() {
                // The node record is lost with this publication, so the next one repeats it.
                self.list = None;
            }
            publication.links = Some(signed?);
            self.is_urgent = false;
        } else if self.needs_delta(now, &links) {
            publication.delta = self.make_delta(now, unix, &links);
        }
        Ok(publication)
    }

    fn needs_list(&self, now: Instant, links: &BTreeMap<NodeId, LinkReport>) -> bool {
        let Some(list) = &self.list else {
            return true;
        };
        let age = now.saturating_since(list.at);
        age >= LIST_INTERVAL || (age >= CHANGE_SPACING && !links.keys().eq(&list.neighbours))
    }

    fn needs_links(&self, now: Instant, links: &BTreeMap<NodeId, LinkReport>) -> bool {
        let age = now.saturating_since(self.base.at);
        let interval = match self.root {
            Root::Other => LINKS_INTERVAL,
            Root::Own => ROOT_INTERVAL,
        };
        self.is_urgent || age >= interval || (age >= FLIP_SPACING && self.has_flipped(links))
    }

    fn needs_delta(&self, now: Instant, links: &BTreeMap<NodeId, LinkReport>) -> bool {
        let may_be = self
            .delta_at
            .is_none_or(|at| now.saturating_since(at) >= CHANGE_SPACING);
        may_be && self.pairs(links).any(|(told, now)| has_changed(told, now))
    }

    /// Whether a link came up or went down since it was told. Those that ends parted from are not asked for any
    /// more by who chose others, and who carries something over a link does not part: their news can wait.
    fn has_flipped(&self, links: &BTreeMap<NodeId, LinkReport>) -> bool {
        let is_flip = |(told, now): (LinkReport, LinkReport)| {
            told.is_up() != now.is_up() && now != LinkReport::PARTED
        };
        self.pairs(links).any(is_flip)
    }

    /// What was told of each link, and what is measured.
    fn pairs(
        &self,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> impl Iterator<Item = (LinkReport, LinkReport)> {
        self.told
            .iter()
            .map(|(id, told)| (*told, links.get(id).copied().unwrap_or(LinkReport::DOWN)))
    }

    fn sign_node(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<Vec<u8>, NoEntropy> {
        let record = NodeRecord {
            key: self.public,
            version: self.next_version(unix),
            profile: self.profile.clone(),
            neighbours: links.keys().map(|&id| ShortId::from(id)).collect(),
        };
        let bytes = record.sign(provider, &self.key, self.network)?;
        self.list = Some(List {
            neighbours: links.keys().copied().collect(),
            hash: NodeRecord::hash(provider, &bytes),
            at: now,
        });
        Ok(bytes)
    }

    fn sign_links(
        &mut self,
        (now, unix): (Instant, Option<UnixTime>),
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
        urgency: Urgency,
    ) -> Result<Vec<u8>, NoEntropy> {
        let (neighbours, hash) = self
            .list
            .as_ref()
            .map_or((&[][..], [0; 32]), |list| (&list.neighbours, list.hash));
        let reports: BTreeMap<NodeId, LinkReport> = neighbours
            .iter()
            .map(|id| (*id, self.restated(id, links)))
            .collect();
        let version = self.next_version(unix);
        let record = LinkRecord {
            origin: self.public.node_id(),
            version,
            list: *hash.first_chunk().unwrap_or(&[0; 2]),
            is_leaving: self.is_leaving,
            urgency,
            follows: low_half(self.told_version),
            reports: reports.values().copied().collect(),
        };
        let bytes = record.sign(provider, &self.key, self.network, &hash)?;
        self.told_version = version;
        self.told.clone_from(&reports);
        self.base = Base {
            version,
            reports,
            at: now,
        };
        Ok(bytes)
    }

    /// What a record says of a link: what is measured, but where it is far from what was told last
    /// that is repeated, and a delta follows.
    fn restated(&self, id: &NodeId, links: &BTreeMap<NodeId, LinkReport>) -> LinkReport {
        let now = links.get(id).copied();
        let now = now.filter(|now| *now != LinkReport::PARTED);
        let now = now.unwrap_or(LinkReport::DOWN);
        let told = self.told.get(id).copied();
        told.filter(|told| has_changed(*told, now)).unwrap_or(now)
    }

    fn make_delta(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Option<LinkDelta> {
        let version = self.next_version(unix);
        let Ok(after) = u16::try_from(version.saturating_sub(self.base.version)) else {
            // The clock jumped: a record first, which states the version anew.
            self.is_urgent = true;
            return None;
        };
        for (id, told) in &mut self.told {
            if let Some(now) = links.get(id).filter(|now| has_changed(*told, **now)) {
                *told = *now;
            }
        }
        let pairs = self.base.reports.iter().zip(self.told.values());
        let changes = (0..)
            .zip(pairs)
            .filter_map(|(position, ((_, base), told))| {
                let is_other = base != told && base.is_up() && told.is_up();
                is_other.then_some((position, *told))
            });
        self.told_version = version;
        self.delta_at = Some(now);
        Some(LinkDelta {
            origin: ShortId::from(self.public.node_id()),
            base: low_half(self.base.version),
            after,
            changes: changes.collect(),
        })
    }

    /// The next of the sequence; the clock only lifts it, and only where it may be right.
    fn next_version(&mut self, unix: Option<UnixTime>) -> u64 {
        let clock = unix.map_or(0, UnixTime::as_millis);
        let clock = if clock < CLOCK_MAX { clock } else { 0 };
        self.version = self.version.saturating_add(1).max(clock);
        self.version
    }
}

impl<P: Provider> fmt::Debug for Publisher<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("public", &self.public)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A profile breaks the bounds of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidProfile;

impl fmt::Display for InvalidProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name has at most 32 of A-Z a-z 0-9 . _ - and a node at most 4 addresses")
    }
}

impl core::error::Error for InvalidProfile {}

/// Whether a link that is up both times moved by more than max(2 ms, 5 %) or 5 loss codes.
pub(super) fn has_changed(told: LinkReport, now: LinkReport) -> bool {
    let margin = (told.delay.units() / 20).max(20);
    let is_far = told.delay.units().abs_diff(now.delay.units()) > margin
        || told.loss.0.abs_diff(now.loss.0) > 5;
    told.is_up() && now.is_up() && is_far
}

/// The half of a version that deltas name.
pub(crate) fn low_half(version: u64) -> u32 {
    u32::try_from(version & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// A node record is renewed that often.
const LIST_INTERVAL: Duration = Duration::from_secs(300);
/// A link record is renewed that often.
const LINKS_INTERVAL: Duration = Duration::from_secs(30);
/// The root renews its record that often.
const ROOT_INTERVAL: Duration = Duration::from_secs(3);
/// Between deltas, and between node records.
const CHANGE_SPACING: Duration = Duration::from_secs(1);
/// Between link records that say up or down.
const FLIP_SPACING: Duration = Duration::from_millis(200);
/// UNIX milliseconds past that (year 10,889) are a broken clock's.
const CLOCK_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests;
