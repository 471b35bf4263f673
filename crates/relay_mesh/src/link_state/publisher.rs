//! What a node says of itself, and when.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{Instant, NodeId, UnixTime};

use super::{LinkRecord, NEIGHBOURS_MAX, Network, NodeRecord, Profile, ShortId};
use crate::measure::LinkReport;

/// Signs a node's own records when there is something to say.
///
/// A link record goes out each 30 s; at most once a second where a delay changed by more than
/// max(2 ms, 5 %) or loss by more than 0.5 %; and at most five times a second where a link came up
/// or went down. A node record goes out where the neighbours or the profile changed, and each
/// 5 min; a link record follows it at once, so a digest need not speak of node records.
pub struct Publisher<P: Provider> {
    key: P::SigningKey,
    public: PublicKey,
    network: Network,
    /// What goes into the next node record.
    profile: Profile,
    /// The last version used.
    version: u64,
    /// What the last node record said, in its order, with its hash.
    list: Option<List>,
    /// What the last link record said.
    told: BTreeMap<NodeId, LinkReport>,
    /// When it went out.
    told_at: Instant,
    /// Said by the next link record; the node is about to stop.
    is_leaving: bool,
    /// Something must be said now, whatever was measured.
    is_urgent: bool,
}

/// The neighbours of the last node record.
struct List {
    neighbours: Vec<NodeId>,
    hash: [u8; 32],
    at: Instant,
}

/// Records to put in one's own table and to send to every neighbour, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// A node record, where one is due.
    pub node: Option<Vec<u8>>,
    /// A link record; present whenever a node record is.
    pub links: Option<Vec<u8>>,
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
            list: None,
            told: BTreeMap::new(),
            told_at: Instant::ZERO,
            is_leaving: false,
            is_urgent: false,
        })
    }

    /// Changes what the node says of itself, from the next [`update`](Self::update) on.
    ///
    /// # Errors
    ///
    /// [`InvalidProfile`] where the profile breaks the bounds of a record; the old one stays.
    pub fn set_profile(&mut self, profile: Profile) -> Result<(), InvalidProfile> {
        if !profile.is_valid() {
            return Err(InvalidProfile);
        }
        if self.profile != profile {
            self.profile = profile;
            self.list = None;
        }
        Ok(())
    }

    /// Says, from the next [`update`](Self::update) on, that nothing new shall be routed through.
    pub const fn leave(&mut self) {
        self.is_leaving = true;
        self.is_urgent = true;
    }

    /// Returns whether [`leave`](Self::leave) was called.
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
            let signed = self.sign_links(unix, provider, &links);
            if signed.is_err() {
                // The node record is lost with this publication, so the next one repeats it.
                self.list = None;
            }
            publication.links = Some(signed?);
            self.told = links;
            self.told_at = now;
            self.is_urgent = false;
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
        let age = now.saturating_since(self.told_at);
        let reports = || {
            let told = self.told.iter();
            told.map(|(id, told)| (told, links.get(id).unwrap_or(&LinkReport::DOWN)))
        };
        self.is_urgent
            || age >= LINKS_INTERVAL
            || (age >= FLIP_SPACING && reports().any(|(told, now)| told.is_up() != now.is_up()))
            || (age >= CHANGE_SPACING && reports().any(|(told, now)| has_changed(*told, *now)))
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
        unix: Option<UnixTime>,
        provider: &mut P,
        links: &BTreeMap<NodeId, LinkReport>,
    ) -> Result<Vec<u8>, NoEntropy> {
        let (neighbours, hash) = self
            .list
            .as_ref()
            .map_or((&[][..], [0; 32]), |list| (&list.neighbours, list.hash));
        let reports = neighbours
            .iter()
            .map(|id| links.get(id).copied().unwrap_or(LinkReport::DOWN))
            .collect();
        let record = LinkRecord {
            origin: self.public.node_id(),
            version: self.next_version(unix),
            list: *hash.first_chunk().unwrap_or(&[0; 2]),
            is_leaving: self.is_leaving,
            reports,
        };
        record.sign(provider, &self.key, self.network, &hash)
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

/// Whether a link's costs moved by more than max(2 ms, 5 %) or 5 loss codes.
fn has_changed(told: LinkReport, now: LinkReport) -> bool {
    let margin = (told.delay.units() / 20).max(20);
    told.delay.units().abs_diff(now.delay.units()) > margin || told.loss.0.abs_diff(now.loss.0) > 5
}

/// A node record is renewed that often.
const LIST_INTERVAL: Duration = Duration::from_secs(300);
/// A link record is renewed that often.
const LINKS_INTERVAL: Duration = Duration::from_secs(30);
/// Between link records that say another cost, and between node records.
const CHANGE_SPACING: Duration = Duration::from_secs(1);
/// Between link records that say up or down.
const FLIP_SPACING: Duration = Duration::from_millis(200);
/// UNIX milliseconds past that (year 10,889) are a broken clock's.
const CLOCK_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests;
