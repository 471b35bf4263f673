//! The document in force, and which ones may follow it.

use core::fmt;

use crypto::Provider;
use wire::UnixTime;

use super::admin_keys::AdminKeys;
use super::bundle::{self, BUNDLE_LEN_MAX, LINKS_MAX, STORED_LEN_MAX};
use super::difference::Difference;
use super::document::Document;
use super::envelope::Envelope;
use super::outcome::{Accepted, HolderStats, Offered, Refused, Standing};

/// Holds the document in force; takes newer ones, and never an older one.
///
/// The first document is judged by the keys of the node's own file, each later one by those of the
/// document in force. A document that names other keys is kept as a *link*, so that a node that was
/// away, or knows only the old keys, can follow: what is stored is the links in order and then the
/// document in force, at most 9 envelopes, 2.4 MB; what is passed on is a *bundle*, the same without
/// the oldest links where it were longer than 1 MiB. One offer costs at most 144 signature checks, and without a signature of an admin in force
/// none.
#[derive(Clone, Debug)]
pub struct Holder {
    network: String,
    anchor: AdminKeys,
    /// Documents that changed the keys, oldest first; at most [`LINKS_MAX`].
    links: Vec<Envelope>,
    /// Whether a link had to go, so that `anchor` leads nowhere any more.
    is_adrift: bool,
    held: Option<Held>,
    stats: HolderStats,
}

#[derive(Clone, Debug)]
struct Held {
    document: Document,
    envelope: Envelope,
    /// Whether other keys had to sign it than those that it names.
    is_link: bool,
}

/// What a bundle came to.
struct Opened {
    /// Links that lead from the keys in force to those that signed the document.
    links: Vec<Envelope>,
    held: Held,
}

impl Holder {
    /// Starts without a document; `anchor` judges the first.
    #[must_use]
    pub fn new(network: impl Into<String>, anchor: AdminKeys) -> Self {
        Self {
            network: network.into(),
            anchor,
            links: Vec::new(),
            is_adrift: false,
            held: None,
            stats: HolderStats::default(),
        }
    }

    /// Starts with what [`stored`](Self::stored) gave in an earlier life, checked again from
    /// `anchor` on. Its time is not looked at: what was in force stays so, that no restart rolls
    /// back.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing of the bytes is then trusted.
    pub fn restore<P: Provider>(
        network: impl Into<String>,
        anchor: AdminKeys,
        provider: &P,
        stored: &[u8],
    ) -> Result<Self, RestoreError> {
        let mut holder = Self::new(network, anchor);
        let bundle = read(stored, STORED_LEN_MAX).map_err(RestoreError)?;
        let opened = holder.open(provider, bundle).map_err(RestoreError)?;
        holder.take(opened);
        Ok(holder)
    }

    /// Takes a bundle or a single envelope, from whoever it is.
    pub fn offer<P: Provider>(&mut self, provider: &P, unix: UnixTime, bytes: &[u8]) -> Offered {
        let offered = self.judge(provider, unix, bytes);
        self.stats.count(&offered);
        offered
    }

    /// Returns the bytes to store, at most [`STORED_LEN_MAX`]; `None` before the first document.
    #[must_use]
    pub fn stored(&self) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        Some(bundle::write(&self.links, &held.envelope, STORED_LEN_MAX))
    }

    /// Returns the bytes to pass on, at most [`BUNDLE_LEN_MAX`]; `None` before the first document.
    #[must_use]
    pub fn bundle(&self) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        Some(bundle::write(&self.links, &held.envelope, BUNDLE_LEN_MAX))
    }

    /// Returns whether the keys changed more than [`LINKS_MAX`] times since those that this began with:
    /// [`restore`](Self::restore) then needs newer ones than these.
    #[must_use]
    pub const fn is_adrift(&self) -> bool {
        self.is_adrift
    }

    /// Returns the document in force.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        self.held.as_ref().map(|held| &held.document)
    }

    /// Returns the text of the document in force, as it was signed.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        self.held.as_ref().map(|held| held.envelope.document())
    }

    /// Returns the version in force; 0 before the first document.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.document().map_or(0, |document| document.version)
    }

    /// Returns the keys that judge the next document.
    #[must_use]
    pub fn admins(&self) -> &AdminKeys {
        self.document()
            .map_or(&self.anchor, |document| &document.admins)
    }

    /// Returns how it stands with the document in force at `unix`.
    #[must_use]
    pub fn standing(&self, unix: UnixTime) -> Standing {
        self.document()
            .map_or(Standing::None, |document| document.standing(unix))
    }

    /// Returns what was offered, counted.
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

    /// Checks all but the time. Of links only signatures, network and order count: one whose time
    /// is over still says which keys came next.
    fn open<P: Provider>(
        &self,
        provider: &P,
        (candidates, last): (Vec<Envelope>, Envelope),
    ) -> Result<Opened, Refused> {
        let mut admins = self.admins().clone();
        let mut version = self.version();
        let mut links = Vec::new();
        for link in candidates {
            // One that does not lead on is one that we need not, or nonsense: what signed the last
            // envelope decides, and no link is kept that was not opened.
            let Ok(document) = link.open(provider, &admins) else {
                continue;
            };
            let follows = document.network == self.network && document.version > version;
            if follows && document.admins != admins {
                version = document.version;
                admins = document.admins;
                links.push(link);
            }
        }
        let document = last.open(provider, &admins)?;
        if document.network != self.network {
            return Err(Refused::OtherNetwork);
        }
        let (offered, held) = (document.version, self.version());
        if offered == held {
            return Err(Refused::SameVersionOtherBytes(held));
        }
        if offered <= version {
            let held = version;
            return Err(Refused::OldVersion { offered, held });
        }
        let held = Held {
            is_link: document.admins != admins,
            document,
            envelope: last,
        };
        Ok(Opened { links, held })
    }

    fn take(&mut self, opened: Opened) {
        let before = self.held.replace(opened.held);
        let before = before.filter(|held| held.is_link);
        self.links.extend(before.map(|held| held.envelope));
        self.links.extend(opened.links);
        let surplus = self.links.len().saturating_sub(LINKS_MAX);
        self.links.drain(..surplus);
        self.is_adrift |= surplus > 0;
    }
}

fn read(bytes: &[u8], len_max: usize) -> Result<(Vec<Envelope>, Envelope), Refused> {
    if bytes.len() > len_max {
        return Err(Refused::TooLarge);
    }
    bundle::read(bytes).map_err(Refused::Malformed)
}

/// Stored bytes are not what this node may trust: they were changed, or its own file names a network
/// or keys that they do not lead from.
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
