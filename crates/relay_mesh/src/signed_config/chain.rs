//! Order of documents: changes of the admin keys first, then versions.

use wire::Reader;

use super::admin_keys::AdminKeys;
use super::document::Document;
use super::envelope::{ENVELOPE_LEN_MAX, Envelope, EnvelopeError};
use super::outcome::Refused;

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

/// Whether a document is the minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Minimum,
    Other,
}

/// A document that a chain keeps: one that changed the keys, or the minimum.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) envelope: Envelope,
    pub(super) version: u64,
    /// The keys that verify the next document.
    pub(super) admins: AdminKeys,
}

/// The end of a chain, which the next document is compared with.
#[derive(Clone, Debug)]
pub(super) struct Tip {
    /// The keys that verify the next document.
    pub(super) admins: AdminKeys,
    /// The version of the newest link; 0 before the first.
    pub(super) since: u64,
    /// The version of the newest document; 0 before the first.
    pub(super) version: u64,
    /// Whether the chain contains the minimum, or needs none.
    pub(super) has_minimum: bool,
}

impl Tip {
    /// Returns whether a chain keeps `document`.
    pub(super) fn is_link(&self, document: &Document, rank: Rank) -> bool {
        rank == Rank::Minimum || document.admins != self.admins
    }

    /// Returns the version that `document` must exceed.
    ///
    /// A change of keys is compared with the previous change, not with later documents: a key that
    /// signs the highest possible version cannot prevent its own retirement.
    pub(super) fn floor(&self, document: &Document) -> u64 {
        if document.admins == self.admins {
            self.version
        } else {
            self.since
        }
    }

    /// Checks that the version is at most [`VERSION_JUMP_MAX`] above the previous one.
    pub(super) fn check_jump(
        &self,
        document: &Document,
        (minimum, rank): (Option<&Minimum>, Rank),
    ) -> Result<(), Refused> {
        // The node's own file names it.
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

    /// Advances to a link of the chain.
    pub(super) fn advance(&mut self, document: Document, rank: Rank) {
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
pub(super) fn read_bundle(bytes: &[u8]) -> Result<(Vec<Envelope>, Envelope), EnvelopeError> {
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
pub(super) fn write_bundle<'a>(
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
/// Longest stored state, in bytes: all links and the document in force, 2.4 MB. With the bundle's
/// bound a node might not restart from its own state: a few long documents that change the keys
/// exceed it, and the oldest link is the one that the keys of the node's own file signed.
pub const STORED_LEN_MAX: usize = 9 * ENVELOPE_LEN_MAX;

const _: () = assert!(ENVELOPE_LEN_MAX <= BUNDLE_LEN_MAX);
const _: () = assert!(STORED_LEN_MAX == (LINKS_MAX + 1) * ENVELOPE_LEN_MAX);
