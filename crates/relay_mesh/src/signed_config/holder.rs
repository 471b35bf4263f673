//! The document in force, and which documents may follow it.

use core::fmt;

use crypto::Provider;
use wire::{Reader, UnixTime};

use super::document::Document;
use super::envelope::AdminKeys;
use super::envelope::{ENVELOPE_LEN_MAX, Envelope, EnvelopeError};
use super::outcome::{Accepted, Difference, HolderStats, Offered, Refused, Validity};

/// Holds the document in force; accepts newer ones, and never an older one.
///
/// Documents are ordered by the number of changes of the admin keys before them, then by version.
/// So the document that retires a key supersedes everything that this key alone signed, and no
/// document signed only by retired keys supersedes it. Of two changes signed by the same keys, the
/// first accepted stays: the holder of a retired key can create any number of changes, so their
/// number does not decide between the two. A [`Minimum`] does.
///
/// The keys of the node's own file verify the first document; those of the document in force verify
/// the next. A document that changes the keys is kept as a *link*, so that a node that was offline,
/// or knows only the old keys, can follow. Stored are the links in order and then the document in
/// force, at most 9 envelopes, 2.4 MB; a *bundle*, which is sent to others, omits the oldest links
/// above 1 MiB. One offer costs at most 144 signature checks, and none without a signature of an
/// admin in force.
#[derive(Clone, Debug)]
pub struct Holder {
    network: String,
    anchor: AdminKeys,
    minimum: Option<Minimum>,
    /// Documents that changed the keys and the minimum, oldest first; at most [`LINKS_MAX`].
    links: Vec<Link>,
    /// Whether the minimum is the document held, or one before it.
    has_minimum: bool,
    /// Whether a link was dropped, so that the chain no longer starts at `anchor`.
    has_dropped_links: bool,
    held: Option<HeldDocument>,
    stats: HolderStats,
}

#[derive(Clone, Debug)]
struct HeldDocument {
    document: Document,
    envelope: Envelope,
    /// Whether it changed the keys or is the minimum, and so is kept when another follows.
    is_link: bool,
}

struct Opened {
    /// Links from the keys in force to those that signed the document.
    links: Vec<Link>,
    held: HeldDocument,
    has_minimum: bool,
}

impl Holder {
    /// Starts without a document; `anchor` verifies the first.
    #[must_use]
    pub fn new(network: impl Into<String>, anchor: AdminKeys) -> Self {
        Self {
            network: network.into(),
            anchor,
            minimum: None,
            links: Vec::new(),
            has_minimum: false,
            has_dropped_links: false,
            held: None,
            stats: HolderStats::default(),
        }
    }

    /// Accepts only chains that contain `minimum`. Call it before the first document or `load`.
    #[must_use]
    pub const fn with_minimum(mut self, minimum: Minimum) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// [`load`](Self::load) on a new holder.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; none of the bytes is then trusted.
    pub fn restore<P: Provider>(
        network: impl Into<String>,
        anchor: AdminKeys,
        provider: &P,
        stored: &[u8],
    ) -> Result<Self, RestoreError> {
        Self::new(network, anchor).load(provider, stored)
    }

    /// Loads the bytes that an earlier run [`stored`](Self::stored) and verifies them again from
    /// the keys of [`new`](Self::new). Validity times are ignored: a restart never rolls back.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; none of the bytes is then trusted.
    pub fn load<P: Provider>(mut self, provider: &P, stored: &[u8]) -> Result<Self, RestoreError> {
        let bundle = read(stored, STORED_LEN_MAX).map_err(RestoreError)?;
        let opened = self.open(provider, bundle).map_err(RestoreError)?;
        self.take(opened);
        Ok(self)
    }

    /// Handles a bundle or a single envelope from any source.
    pub fn offer<P: Provider>(&mut self, provider: &P, unix: UnixTime, bytes: &[u8]) -> Offered {
        let judged = self.judge(provider, unix, bytes);
        let offered = judged.unwrap_or_else(Offered::Refused);
        self.stats.count(&offered);
        offered
    }

    /// Returns the bytes to store, at most [`STORED_LEN_MAX`]; `None` before the first document.
    #[must_use]
    pub fn stored(&self) -> Option<Vec<u8>> {
        self.chain(STORED_LEN_MAX)
    }

    /// Returns the bytes for others, at most [`BUNDLE_LEN_MAX`]; `None` before the first document.
    #[must_use]
    pub fn bundle(&self) -> Option<Vec<u8>> {
        self.chain(BUNDLE_LEN_MAX)
    }

    fn chain(&self, len_max: usize) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        let links = self.links.iter().map(|link| &link.envelope);
        Some(write_bundle(links, &held.envelope, len_max))
    }

    /// Returns whether the keys changed more than [`LINKS_MAX`] times since the initial ones:
    /// [`restore`](Self::restore) then needs newer keys.
    #[must_use]
    pub const fn has_dropped_links(&self) -> bool {
        self.has_dropped_links
    }

    /// Returns the document in force.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        self.held.as_ref().map(|held| &held.document)
    }

    /// Returns the text of the document in force, as signed.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        self.held.as_ref().map(|held| held.envelope.document())
    }

    /// Returns the version in force; 0 before the first document.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.document().map_or(0, |document| document.version)
    }

    /// Returns the keys that verify the next document.
    #[must_use]
    pub fn admins(&self) -> &AdminKeys {
        self.document()
            .map_or(&self.anchor, |document| &document.admins)
    }

    /// Returns what is advertised to neighbours.
    #[must_use]
    pub fn held_version(&self) -> HeldVersion {
        HeldVersion {
            version: self.version(),
            keys: self.admins().tag(),
        }
    }

    /// Returns whether an advertised version may follow the document in force: a higher version
    /// under the same keys, or any under keys that did not lead here.
    #[must_use]
    pub fn wants(&self, advertised: HeldVersion) -> bool {
        if advertised.version == 0 {
            return false;
        }
        if advertised.keys == self.admins().tag() {
            return advertised.version > self.version();
        }
        self.retired()
            .all(|(admins, _)| admins.tag() != advertised.keys)
    }

    /// Returns the validity of the document in force at `unix`.
    #[must_use]
    pub fn validity(&self, unix: UnixTime) -> Validity {
        self.document()
            .map_or(Validity::None, |document| document.validity(unix))
    }

    /// Returns the counters of offers.
    #[must_use]
    pub const fn stats(&self) -> &HolderStats {
        &self.stats
    }

    fn judge<P: Provider>(
        &mut self,
        provider: &P,
        unix: UnixTime,
        bytes: &[u8],
    ) -> Result<Offered, Refused> {
        let (links, last) = read(bytes, BUNDLE_LEN_MAX)?;
        if self.text() == Some(last.document()) {
            return Ok(Offered::Known);
        }
        let opened = self.open(provider, (links, last))?;
        let document = &opened.held.document;
        if unix < document.not_before {
            return Err(Refused::NotYetValid);
        }
        if unix >= document.not_after {
            return Err(Refused::Expired);
        }
        let accepted = Accepted {
            version: document.version,
            difference: Difference::between(self.document(), document),
        };
        self.take(opened);
        Ok(Offered::Accepted(accepted))
    }

    /// Checks everything but validity times. Of links only signatures, network and order are
    /// checked: an expired one still proves which keys follow.
    fn open<P: Provider>(
        &self,
        provider: &P,
        (candidates, last): (Vec<Envelope>, Envelope),
    ) -> Result<Opened, Refused> {
        let mut tip = self.tip();
        let mut links = Vec::new();
        let retired = self.retired_signer(candidates.iter().chain([&last]));
        for link in candidates {
            // A link that does not continue the chain is unneeded or invalid: the signatures of the
            // last envelope decide, and only verified links are kept.
            let Ok(document) = link.open(provider, &tip.admins) else {
                continue;
            };
            let rank = self.rank(provider, &document, &link);
            let leads_on = document.network == self.network
                && tip.is_link(&document, rank)
                && document.version > tip.floor(&document);
            if !leads_on {
                continue;
            }
            tip.check_jump(&document, (self.minimum.as_ref(), rank))?;
            links.push(Link {
                envelope: link,
                version: document.version,
                admins: document.admins.clone(),
            });
            tip.advance(document, rank);
        }
        let document =
            last.open(provider, &tip.admins)
                .map_err(|refused| match (refused, retired) {
                    (Refused::UnknownKey, Some(since)) => Refused::RetiredKey { since },
                    (refused, _) => refused,
                })?;
        if document.network != self.network {
            return Err(Refused::OtherNetwork);
        }
        let (offered, held) = (document.version, tip.floor(&document));
        if links.is_empty() && document.admins == tip.admins && offered == held {
            return Err(Refused::SameVersionOtherBytes(held));
        }
        if offered <= held {
            return Err(Refused::OldVersion { offered, held });
        }
        let rank = self.rank(provider, &document, &last);
        tip.check_jump(&document, (self.minimum.as_ref(), rank))?;
        let has_minimum = tip.has_minimum || rank == Rank::Minimum;
        if !has_minimum {
            self.refuse_without_minimum(offered)?;
        }
        let held = HeldDocument {
            is_link: tip.is_link(&document, rank),
            document,
            envelope: last,
        };
        Ok(Opened {
            links,
            held,
            has_minimum,
        })
    }

    fn tip(&self) -> Tip {
        let link = self.links.last().map_or(0, |link| link.version);
        let held = self.held.as_ref().filter(|held| held.is_link);
        Tip {
            admins: self.admins().clone(),
            since: held.map_or(link, |held| held.document.version),
            version: self.version(),
            has_minimum: self.has_minimum,
        }
    }

    fn rank<P: Provider>(&self, provider: &P, document: &Document, from: &Envelope) -> Rank {
        match self.minimum {
            Some(Minimum { version, sha256 })
                if version == document.version && sha256 == provider.sha256(&[from.document()]) =>
            {
                Rank::Minimum
            }
            Some(_) | None => Rank::Other,
        }
    }

    /// Returns why a chain without the minimum is refused, if one is required.
    const fn refuse_without_minimum(&self, offered: u64) -> Result<(), Refused> {
        match self.minimum {
            None => Ok(()),
            Some(Minimum { version, .. }) if offered < version => Err(Refused::BelowMinimum {
                offered,
                minimum: version,
            }),
            Some(Minimum { version, .. }) => Err(Refused::WithoutMinimum(version)),
        }
    }

    /// Returns the keys that a document retired, oldest first, with its version.
    fn retired(&self) -> impl Iterator<Item = (&AdminKeys, u64)> {
        let held = self.held.as_ref().filter(|held| held.is_link);
        let held = held.map(|held| (&held.document.admins, held.document.version));
        let links = self.links.iter().map(|link| (&link.admins, link.version));
        let mut before = &self.anchor;
        links.chain(held).filter_map(move |(admins, version)| {
            let retired = core::mem::replace(&mut before, admins);
            (retired != admins).then_some((retired, version))
        })
    }

    /// Returns the version that retired a signer of one of these unverified envelopes.
    fn retired_signer<'a>(&self, envelopes: impl Iterator<Item = &'a Envelope>) -> Option<u64> {
        let is_known = |envelope: &Envelope| {
            let text = envelope.document();
            let mut links = self.links.iter();
            self.text() == Some(text) || links.any(|link| link.envelope.document() == text)
        };
        let unknown = envelopes.filter(|envelope| !is_known(envelope));
        let signers: Vec<_> = unknown.flat_map(Envelope::signers).collect();
        let mut retired = self.retired();
        let (_, since) =
            retired.find(|(admins, _)| signers.iter().any(|signer| admins.contains(signer)))?;
        Some(since)
    }

    fn take(&mut self, opened: Opened) {
        let before = self.held.replace(opened.held);
        let before = before.filter(|held| held.is_link);
        self.links.extend(before.map(|held| Link {
            version: held.document.version,
            admins: held.document.admins,
            envelope: held.envelope,
        }));
        self.links.extend(opened.links);
        let surplus = self.links.len().saturating_sub(LINKS_MAX);
        self.links.drain(..surplus);
        self.has_dropped_links |= surplus > 0;
        self.has_minimum = opened.has_minimum;
    }
}

fn read(bytes: &[u8], len_max: usize) -> Result<(Vec<Envelope>, Envelope), Refused> {
    if bytes.len() > len_max {
        return Err(Refused::TooLarge);
    }
    read_bundle(bytes).map_err(Refused::Malformed)
}

/// Stored bytes that were modified, or are of another network or keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError(pub Refused);

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored configuration is not trusted: {}", self.0)
    }
}

impl core::error::Error for RestoreError {}

/// A document that every chain must contain, as configured in a node's own file.
///
/// Retired keys can still sign, so a node that knows only those cannot distinguish a chain that
/// retires them from a forged one. With a minimum, it accepts only chains that contain this
/// document. Name the document that last changed the admin keys: nodes keep and forward it as long
/// as a document follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Its version; documents with a lower version are refused.
    pub version: u64,
    /// SHA-256 of its text as signed.
    pub sha256: [u8; 32],
}

/// What a node holds, as advertised to neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldVersion {
    /// The document's version; 0 if there is none.
    pub version: u64,
    /// [`AdminKeys::tag`] of the keys that verify the next document.
    pub keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Minimum,
    Other,
}

/// A document that a chain keeps: one that changed the keys, or the minimum.
#[derive(Clone, Debug)]
struct Link {
    envelope: Envelope,
    version: u64,
    /// The keys that verify the next document.
    admins: AdminKeys,
}

#[derive(Clone, Debug)]
struct Tip {
    /// The keys that verify the next document.
    admins: AdminKeys,
    /// The version of the newest link; 0 before the first.
    since: u64,
    /// The version of the newest document; 0 before the first.
    version: u64,
    /// Whether the chain contains the minimum, or needs none.
    has_minimum: bool,
}

impl Tip {
    /// Whether a chain keeps `document`.
    fn is_link(&self, document: &Document, rank: Rank) -> bool {
        rank == Rank::Minimum || document.admins != self.admins
    }

    /// Returns the version that `document` must exceed.
    ///
    /// A change of keys is compared with the previous change, not with later documents: a key that
    /// signs the highest possible version cannot prevent its own retirement.
    fn floor(&self, document: &Document) -> u64 {
        if document.admins == self.admins {
            self.version
        } else {
            self.since
        }
    }

    /// Checks that the version is at most [`VERSION_JUMP_MAX`] above the previous one.
    fn check_jump(
        &self,
        document: &Document,
        (minimum, rank): (Option<&Minimum>, Rank),
    ) -> Result<(), Refused> {
        if rank == Rank::Minimum {
            return Ok(());
        }
        let minimum = minimum.map_or(0, |minimum| minimum.version);
        let before = self.version.max(self.since).max(minimum);
        let max = before.saturating_add(VERSION_JUMP_MAX);
        let offered = document.version;
        if offered > max {
            return Err(Refused::VersionJump { offered, max });
        }
        Ok(())
    }

    fn advance(&mut self, document: Document, rank: Rank) {
        self.since = document.version;
        self.version = document.version;
        self.admins = document.admins;
        self.has_minimum |= rank == Rank::Minimum;
    }
}

/// Largest step between two versions: 2^32. Unix time in seconds fits from the first document on;
/// no single signature exhausts a network's versions.
pub const VERSION_JUMP_MAX: u64 = 1 << 32;

/// Reads one or more concatenated envelopes.
fn read_bundle(bytes: &[u8]) -> Result<(Vec<Envelope>, Envelope), EnvelopeError> {
    let mut reader = Reader::new(bytes);
    let mut links = Vec::new();
    let mut last = Envelope::read(&mut reader)?;
    while !reader.is_empty() {
        if links.len() >= LINKS_MAX {
            return Err(EnvelopeError::TooMany);
        }
        links.push(core::mem::replace(&mut last, Envelope::read(&mut reader)?));
    }
    Ok((links, last))
}

/// Concatenates envelopes into at most `len_max` bytes; omits the oldest links that do not fit.
fn write_bundle<'a>(
    links: impl DoubleEndedIterator<Item = &'a Envelope>,
    last: &Envelope,
    len_max: usize,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    last.encode(&mut bytes);
    let mut room = len_max.saturating_sub(bytes.len());
    let mut written = Vec::new();
    for link in links.rev().take(LINKS_MAX) {
        let mut link_bytes = Vec::new();
        link.encode(&mut link_bytes);
        let Some(left) = room.checked_sub(link_bytes.len()) else {
            break;
        };
        room = left;
        written.push(link_bytes);
    }
    written.reverse();
    written.push(bytes);
    written.concat()
}

/// Most changes of admin keys that a node keeps. A node that was offline for more of them needs
/// newer keys in its own file, and so does this node before it restarts.
pub const LINKS_MAX: usize = 8;
/// Longest bundle, in bytes: 1 MiB.
pub const BUNDLE_LEN_MAX: usize = 1 << 20;
/// Longest stored state, in bytes: all links and the document in force, 2.4 MB. It exceeds the
/// bound of a bundle, since the oldest link is the one that the keys of the node's own file signed.
pub const STORED_LEN_MAX: usize = 9 * ENVELOPE_LEN_MAX;

const _: () = assert!(ENVELOPE_LEN_MAX <= BUNDLE_LEN_MAX);
const _: () = assert!(STORED_LEN_MAX == (LINKS_MAX + 1) * ENVELOPE_LEN_MAX);

#[cfg(test)]
mod tests;
