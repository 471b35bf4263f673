//! Outcomes of documents that are offered to a holder, and their counters.

use std::collections::BTreeSet;

use serde::Serialize;

use super::document::{Document, DocumentError};
use super::envelope::EnvelopeError;

/// Outcome of an offered document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is in force: store it, apply it, and send neighbours its version.
    Accepted(Accepted),
    /// It was already in force.
    Known,
    /// It was dropped and counted.
    Refused(Refused),
}

/// A document that came into force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its version.
    pub version: u64,
    /// Its changes.
    pub difference: Difference,
}

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Longer than [`BUNDLE_LEN_MAX`](super::BUNDLE_LEN_MAX).
    TooLarge,
    /// It breaks the format of an envelope.
    Malformed(EnvelopeError),
    /// No admin in force signed it.
    UnknownKey,
    /// Too few admins signed it: of those in force, or of those that it names.
    TooFewSignatures {
        /// The number of signatures.
        found: usize,
        /// The required number.
        needed: usize,
    },
    /// A signature does not match the key next to it.
    BadSignature,
    /// Admins signed something that is no valid document.
    Document(DocumentError),
    /// It is for a network with another name.
    OtherNetwork,
    /// A newer one is in force.
    OldVersion {
        /// The version offered.
        offered: u64,
        /// The version in force.
        held: u64,
    },
    /// Another document with the version in force: admins signed two.
    SameVersionOtherBytes(u64),
    /// It was signed by keys that an earlier change retired.
    RetiredKey {
        /// The version of the document that retired them.
        since: u64,
    },
    /// Its version exceeds the previous one by too much.
    VersionJump {
        /// The version offered.
        offered: u64,
        /// The highest version allowed.
        max: u64,
    },
    /// Its version is below the minimum in the node's file.
    BelowMinimum {
        /// The version offered.
        offered: u64,
        /// The lowest version that this node accepts.
        minimum: u64,
    },
    /// Its version is above the minimum in the node's file, but neither it nor a key change before
    /// it is the document that the minimum names.
    WithoutMinimum(u64),
    /// Its validity has not started.
    NotYetValid,
    /// Its validity has ended.
    Expired,
}

wire::error_text! { Refused {
    Self::TooLarge => "it is larger than a bundle allows",
    Self::Malformed(error) => "{error}",
    Self::UnknownKey => "no admin in force signed it",
    Self::TooFewSignatures { found, needed } => "{found} admins signed it, and {needed} must",
    Self::BadSignature => "a signature is not genuine",
    Self::Document(error) => "{error}",
    Self::OtherNetwork => "it is for another network",
    Self::OldVersion { offered, held } => "its version {offered} is not above {held}",
    Self::SameVersionOtherBytes(version) => "there are two documents of version {version}",
    Self::RetiredKey { since } =>
        "it is signed by admin keys that the document of version {since} retired",
    Self::VersionJump { offered, max } =>
        "its version {offered} is too far above the one before it; at most {max} may follow",
    Self::BelowMinimum { offered, minimum } =>
        "its version {offered} is below the minimum {minimum} of this node's file",
    Self::WithoutMinimum(minimum) =>
        "it does not follow from the document of version {minimum} that this node's file names \
         as its minimum",
    Self::NotYetValid => "its time has not come",
    Self::Expired => "its time is over",
}}

/// Validity of the document in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// There is no document.
    None,
    /// It is valid.
    InForce,
    /// It has expired and there is no newer one; see [`AfterEnd`](super::AfterEnd).
    Expired,
}

/// Counters of offered documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderStats {
    /// Documents that came into force.
    pub accepted: u64,
    /// Documents that were already in force.
    pub known: u64,
    /// Refused as too large.
    pub too_large: u64,
    /// Refused as malformed.
    pub malformed: u64,
    /// Refused because no admin in force signed.
    pub unknown_key: u64,
    /// Refused because of too few signatures.
    pub too_few_signatures: u64,
    /// Refused because of an invalid signature.
    pub bad_signature: u64,
    /// Refused as an invalid document.
    pub bad_document: u64,
    /// Refused as another network's.
    pub other_network: u64,
    /// Refused as older than the document in force.
    pub old_version: u64,
    /// Refused as another document with the version in force.
    pub same_version_other_bytes: u64,
    /// Refused because retired keys signed.
    pub retired_key: u64,
    /// Refused because the version exceeds the previous one by too much.
    pub version_jump: u64,
    /// Refused as below the minimum in the node's file.
    pub below_minimum: u64,
    /// Refused because it does not follow from that minimum.
    pub without_minimum: u64,
    /// Refused as not yet valid.
    pub not_yet_valid: u64,
    /// Refused as too late.
    pub expired: u64,
}

impl HolderStats {
    pub(super) const fn count(&mut self, offered: &Offered) {
        let counter = match offered {
            Offered::Accepted(_) => &mut self.accepted,
            Offered::Known => &mut self.known,
            Offered::Refused(refused) => match refused {
                Refused::TooLarge => &mut self.too_large,
                Refused::Malformed(_) => &mut self.malformed,
                Refused::UnknownKey => &mut self.unknown_key,
                Refused::TooFewSignatures { .. } => &mut self.too_few_signatures,
                Refused::BadSignature => &mut self.bad_signature,
                Refused::Document(_) => &mut self.bad_document,
                Refused::OtherNetwork => &mut self.other_network,
                Refused::OldVersion { .. } => &mut self.old_version,
                Refused::SameVersionOtherBytes(_) => &mut self.same_version_other_bytes,
                Refused::RetiredKey { .. } => &mut self.retired_key,
                Refused::VersionJump { .. } => &mut self.version_jump,
                Refused::BelowMinimum { .. } => &mut self.below_minimum,
                Refused::WithoutMinimum(_) => &mut self.without_minimum,
                Refused::NotYetValid => &mut self.not_yet_valid,
                Refused::Expired => &mut self.expired,
            },
        };
        *counter = counter.saturating_add(1);
    }
}

/// Changes of a new document; a node applies only these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New games.
    pub added: BTreeSet<String>,
    /// Removed games.
    pub removed: BTreeSet<String>,
    /// Games with any change.
    pub changed: BTreeSet<String>,
    /// Games without a change: their ports and flows continue.
    pub unchanged: BTreeSet<String>,
    /// Whether members or their roles changed.
    pub has_other_members: bool,
    /// Whether admins or their threshold changed.
    pub has_other_admins: bool,
}

impl Difference {
    /// Compares `new` with the previous document; without one, all its games are added.
    #[must_use]
    pub fn between(old: Option<&Document>, new: &Document) -> Self {
        let mut difference = Self::default();
        for (name, rule) in &new.games {
            let before = old.and_then(|old| old.games.get(name));
            let list = match before {
                None => &mut difference.added,
                Some(before) if before == rule => &mut difference.unchanged,
                Some(_) => &mut difference.changed,
            };
            list.insert(name.clone());
        }
        if let Some(old) = old {
            let names = old.games.keys();
            let gone = names.filter(|name| !new.games.contains_key(*name));
            difference.removed.extend(gone.cloned());
        }
        difference.has_other_members = old.is_none_or(|old| old.members != new.members);
        difference.has_other_admins = old.is_none_or(|old| old.admins != new.admins);
        difference
    }
}
