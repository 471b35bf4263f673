//! The document in force, and which documents may follow it.

use core::fmt;

use crypto::Provider;
use wire::UnixTime;

use super::admin_keys::AdminKeys;
use super::chain::{BUNDLE_LEN_MAX, LINKS_MAX, STORED_LEN_MAX, read_bundle, write_bundle};
use super::chain::{HeldVersion, Link, Minimum, Rank, Tip};
use super::document::Document;
use super::envelope::Envelope;
use super::outcome::Difference;
use super::outcome::{Accepted, HolderStats, Offered, Refused, Validity};

/// Holds the document in force; accepts newer ones, and never an older one.
///
/// Documents are ordered by the number of changes of the admin keys before them, then by version.
/// The document that retires a key so supersedes everything that this key alone signed, whatever
/// the versions, and no document signed only by retired keys supersedes it. Of two changes signed
/// by the same keys, the first accepted stays: the holder of a retired key can create any number of
/// changes, so their number does not decide between the two. A [`Minimum`] does.
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
    is_adrift: bool,
    held: Option<Held>,
    stats: HolderStats,
}

#[derive(Clone, Debug)]
struct Held {
    document: Document,
    envelope: Envelope,
    /// Whether it changed the keys or is the minimum, and so is kept when another follows.
    is_link: bool,
}

/// A verified bundle.
struct Opened {
    /// Links from the keys in force to those that signed the document.
    links: Vec<Link>,
    held: Held,
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
            is_adrift: false,
            held: None,
            stats: HolderStats::default(),
        }
    }

    /// Accepts only chains that contain `minimum`. Call it before the first document, and before
    /// [`load`](Self::load).
    #[must_use]
    pub const fn with_minimum(mut self, minimum: Minimum) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// Starts from the bytes that an earlier run [`stored`](Self::stored); [`load`](Self::load) on
    /// a new holder.
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
        let offered = self.judge(provider, unix, bytes);
        self.stats.count(&offered);
        offered
    }

    /// Returns the bytes to store, at most [`STORED_LEN_MAX`]; `None` before the first document.
    #[must_use]
    pub fn stored(&self) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        let links = self.links.iter().map(|link| &link.envelope);
        Some(write_bundle(links, &held.envelope, STORED_LEN_MAX))
    }

    /// Returns the bytes to send to others, at most [`BUNDLE_LEN_MAX`]; `None` before the first
    /// document.
    #[must_use]
    pub fn bundle(&self) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        let links = self.links.iter().map(|link| &link.envelope);
        Some(write_bundle(links, &held.envelope, BUNDLE_LEN_MAX))
    }

    /// Returns whether the keys changed more than [`LINKS_MAX`] times since the initial ones:
    /// [`restore`](Self::restore) then needs newer keys.
    #[must_use]
    pub const fn is_adrift(&self) -> bool {
        self.is_adrift
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
    pub fn wants(&self, told: HeldVersion) -> bool {
        if told.version == 0 {
            return false;
        }
        if told.keys == self.admins().tag() {
            return told.version > self.version();
        }
        self.retired().all(|(admins, _)| admins.tag() != told.keys)
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

    fn judge<P: Provider>(&mut self, provider: &P, unix: UnixTime, bytes: &[u8]) -> Offered {
        let (links, last) = match read(bytes, BUNDLE_LEN_MAX) {
            Ok(bundle) => bundle,
            Err(refused) => return Offered::Refused(refused),
        };
        if self.text() == Some(last.document()) {
            return Offered::Known;
        }
        let opened = match self.open(provider, (links, last)) {
            Ok(opened) => opened,
            Err(refused) => return Offered::Refused(refused),
        };
        let document = &opened.held.document;
        if unix < document.not_before {
            return Offered::Refused(Refused::NotYetValid);
        }
        if unix >= document.not_after {
            return Offered::Refused(Refused::Expired);
        }
        let accepted = Accepted {
            version: document.version,
            difference: Difference::between(self.document(), document),
        };
        self.take(opened);
        Offered::Accepted(accepted)
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
        let held = Held {
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

    /// The end of the chain held.
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
        let is_minimum = self.minimum.is_some_and(|minimum| {
            minimum.version == document.version
                && minimum.sha256 == provider.sha256(&[from.document()])
        });
        if is_minimum {
            Rank::Minimum
        } else {
            Rank::Other
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

    /// Returns the version that retired a signer of one of these envelopes, without verifying
    /// signatures.
    fn retired_signer<'a>(&self, envelopes: impl Iterator<Item = &'a Envelope>) -> Option<u64> {
        let is_known = |envelope: &Envelope| {
            let text = envelope.document();
            let mut links = self.links.iter();
            self.text() == Some(text) || links.any(|link| link.envelope.document() == text)
        };
        let strange = envelopes.filter(|envelope| !is_known(envelope));
        let signers: Vec<_> = strange.flat_map(Envelope::signers).collect();
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
        self.is_adrift |= surplus > 0;
        self.has_minimum = opened.has_minimum;
    }
}

fn read(bytes: &[u8], len_max: usize) -> Result<(Vec<Envelope>, Envelope), Refused> {
    if bytes.len() > len_max {
        return Err(Refused::TooLarge);
    }
    read_bundle(bytes).map_err(Refused::Malformed)
}

/// Stored bytes that this node cannot trust: they were modified, or its own file names another
/// network or keys that they do not start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError(pub Refused);

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored configuration is not trusted: {}", self.0)
    }
}

impl core::error::Error for RestoreError {}

#[cfg(test)]
mod tests;
