//! When a node publishes its own records, and their contents.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{Instant, NodeId, UnixTime};

use super::{
    LinkDelta, LinkRecord, NEIGHBOURS_MAX, Network, NodeRecord, Profile, ShortId, Urgency,
};
use crate::measure::LinkReport;

/// Signs a node's own records when they are due.
///
/// A link record is published every 30 s, and at most five times a second if a link came up or went
/// down; a [parted](LinkReport::PARTED) link waits for the next record. Between records, a delta is
/// published at most once a second if a delay changed by more than max(2 ms, 5 %) or loss by more
/// than 0.5 %. A node record is published if the neighbours or the profile changed, and every 5
/// min; a link record follows it at once, so digests need not list node records.
///
/// A record after a delta repeats the delta's values, so that a node with both can verify the
/// delta; later changes are published in a new delta.
pub struct Publisher<P: Provider> {
    key: P::SigningKey,
    public: PublicKey,
    network: Network,
    profile: Profile,
    version: u64,
    /// Version of the last link record or delta; 0 before the first.
    published_version: u64,
    /// Neighbours of the last node record, in its order, and its hash.
    list: Option<List>,
    base: Base,
    /// The last published report of each link.
    published: BTreeMap<NodeId, LinkReport>,
    delta_at: Option<Instant>,
    /// Flag of the next link record: the node is about to stop.
    is_leaving: bool,
    /// A record is due now, whatever was measured.
    is_urgent: bool,
    root: Root,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Other,
    Own,
}

struct List {
    neighbours: Vec<NodeId>,
    hash: [u8; 32],
    at: Instant,
}

#[derive(Default)]
struct Base {
    version: u64,
    reports: BTreeMap<NodeId, LinkReport>,
    at: Instant,
}

/// Records to store in the own table and to forward, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// A node record, if one is due.
    pub node: Option<Vec<u8>>,
    /// A link record; present whenever a node record is.
    pub links: Option<Vec<u8>>,
    /// Changes since the last link record; never together with a new one.
    pub delta: Option<LinkDelta>,
}

impl<P: Provider> Publisher<P> {
    /// Creates the publisher of the node with private key `key` and public key `public`.
    ///
    /// # Errors
    ///
    /// [`InvalidProfile`] if the profile exceeds the bounds of a record.
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
            published_version: 0,
            list: None,
            base: Base::default(),
            published: BTreeMap::new(),
            delta_at: None,
            is_leaving: false,
            is_urgent: false,
            root: Root::Other,
        })
    }

    /// Sets the addresses that are published from the next [`update`](Self::update) on. A list that
    /// exceeds the bounds of a record is ignored.
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

    /// Publishes, from the next [`update`](Self::update) on, that the node accepts no new routes.
    pub const fn leave(&mut self) {
        self.is_urgent = self.is_urgent || !self.is_leaving;
        self.is_leaving = true;
    }

    /// Publishes, from the next [`update`](Self::update) on, that the node accepts routes again.
    pub const fn stay(&mut self) {
        self.is_urgent = self.is_urgent || self.is_leaving;
        self.is_leaving = false;
    }

    /// Makes this node the root of [`gossip`](crate::gossip)'s tree: it renews every 3 s.
    pub const fn become_root(&mut self) {
        self.root = Root::Own;
    }

    /// Stops being the root.
    pub const fn step_down(&mut self) {
        self.root = Root::Other;
    }

    /// Returns whether [`leave`](Self::leave) was called without a later [`stay`](Self::stay).
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Continues above `version`, which neighbours hold from an earlier run; see
    /// [`Outcome::OwnFromBefore`](super::Outcome::OwnFromBefore).
    pub fn raise(&mut self, version: u64) {
        if version > self.version {
            self.version = version;
            // Publishes both records again, in order.
            self.list = None;
        }
    }

    /// Returns the last version used; 0 before the first record.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the records that are due for the measured `links`; call it every 100 to 200 ms.
    ///
    /// Only the 64 lowest ids of `links` are used.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails; try again later.
    pub fn update(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<Publication, NoEntropy> {
        let mut publication = Publication::default();
        let lowest = links.iter().take(NEIGHBOURS_MAX);
        let links: BTreeMap<NodeId, LinkReport> = lowest.map(|(id, of)| (*id, *of)).collect();
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
                // The node record is lost with this publication; the next one repeats it.
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
        let is_due = |at| now.saturating_since(at) >= CHANGE_SPACING;
        let mut pairs = self.pairs(links);
        self.delta_at.is_none_or(is_due) && pairs.any(|(old, new)| has_changed(old, new))
    }

    /// Whether a link came up or went down since the last publication. Parted links can wait for
    /// the next record: they carry nothing, and neither end selects them.
    fn has_flipped(&self, links: &BTreeMap<NodeId, LinkReport>) -> bool {
        let is_flip = |(published, now): (LinkReport, LinkReport)| {
            published.is_up() != now.is_up() && now != LinkReport::PARTED
        };
        self.pairs(links).any(is_flip)
    }

    fn pairs(
        &self,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> impl Iterator<Item = (LinkReport, LinkReport)> {
        self.published.iter().map(|(id, published)| {
            (
                *published,
                links.get(id).copied().unwrap_or(LinkReport::DOWN),
            )
        })
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
        let list = self.list.as_ref();
        let (neighbours, hash) =
            list.map_or((&[][..], [0; 32]), |list| (&list.neighbours, list.hash));
        let reports = neighbours.iter().map(|id| (*id, self.restated(id, links)));
        let reports: BTreeMap<NodeId, LinkReport> = reports.collect();
        let version = self.next_version(unix);
        let record = LinkRecord {
            origin: self.public.node_id(),
            version,
            list: *hash.first_chunk().unwrap_or(&[0; 2]),
            is_leaving: self.is_leaving,
            urgency,
            follows: low_half(self.published_version),
            reports: reports.values().copied().collect(),
        };
        let bytes = record.sign(provider, &self.key, self.network, &hash)?;
        self.published_version = version;
        self.published.clone_from(&reports);
        self.base = Base {
            version,
            reports,
            at: now,
        };
        Ok(bytes)
    }

    /// The measured report, or the published one if the two differ so much that a delta follows.
    fn restated(&self, id: &NodeId, links: &BTreeMap<NodeId, LinkReport>) -> LinkReport {
        let now = links.get(id).copied();
        let now = now.filter(|now| *now != LinkReport::PARTED);
        let now = now.unwrap_or(LinkReport::DOWN);
        let published = self.published.get(id).copied();
        published
            .filter(|published| has_changed(*published, now))
            .unwrap_or(now)
    }

    fn make_delta(
        &mut self,
        now: Instant,
        unix: Option<UnixTime>,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Option<LinkDelta> {
        let version = self.next_version(unix);
        let Ok(after) = u16::try_from(version.saturating_sub(self.base.version)) else {
            // The clock jumped: publish a record first, which carries the full version.
            self.is_urgent = true;
            return None;
        };
        for (id, published) in &mut self.published {
            if let Some(now) = links.get(id).filter(|now| has_changed(*published, **now)) {
                *published = *now;
            }
        }
        let pairs = self.base.reports.iter().zip(self.published.values());
        let changes = (0..)
            .zip(pairs)
            .filter_map(|(position, ((_, base), published))| {
                let is_other = base != published && base.is_up() && published.is_up();
                is_other.then_some((position, *published))
            });
        self.published_version = version;
        self.delta_at = Some(now);
        Some(LinkDelta {
            origin: ShortId::from(self.public.node_id()),
            base: low_half(self.base.version),
            after,
            changes: changes.collect(),
        })
    }

    /// Next version of the sequence; a plausible clock can only raise it.
    fn next_version(&mut self, unix: Option<UnixTime>) -> u64 {
        let clock = unix.map_or(0, UnixTime::as_millis);
        let clock = if clock < CLOCK_MAX { clock } else { 0 };
        self.version = self.version.saturating_add(1).max(clock);
        self.version
    }
}

wire::debug_fields!([P: Provider] Publisher<P>, this {
    public: this.public,
    version: this.version,
});

/// A profile exceeds the bounds of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidProfile;

wire::error_text! { InvalidProfile {
    Self => "a name has at most 32 of A-Z a-z 0-9 . _ - and a node at most 4 addresses",
}}

/// Whether a link that was up both times changed by more than max(2 ms, 5 %) or 5 loss codes.
pub(super) fn has_changed(published: LinkReport, now: LinkReport) -> bool {
    let margin = (published.delay.units() / 20).max(20);
    let is_far = published.delay.units().abs_diff(now.delay.units()) > margin
        || published.loss.0.abs_diff(now.loss.0) > 5;
    published.is_up() && now.is_up() && is_far
}

/// Low half of a version, as in deltas.
pub(crate) fn low_half(version: u64) -> u32 {
    u32::try_from(version & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Renewal interval of the node record.
const LIST_INTERVAL: Duration = Duration::from_secs(300);
/// Renewal interval of the link record.
const LINKS_INTERVAL: Duration = Duration::from_secs(30);
/// Renewal interval of the root's link record.
const ROOT_INTERVAL: Duration = Duration::from_secs(3);
/// Minimum interval of deltas, and of node records.
const CHANGE_SPACING: Duration = Duration::from_secs(1);
/// Minimum interval of link records that report a link up or down.
const FLIP_SPACING: Duration = Duration::from_millis(200);
/// Later UNIX times in milliseconds (year 10,889) are treated as a broken clock.
const CLOCK_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests;
