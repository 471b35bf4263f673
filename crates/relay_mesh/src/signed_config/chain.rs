//! The order of documents: changes of the admin keys first, then versions.

use wire::Reader;

use super::admin_keys::AdminKeys;
use super::document::Document;
use super::envelope::{ENVELOPE_LEN_MAX, Envelope, EnvelopeError};
use super::outcome::Refused;

/// A document that every chain has to contain, as a node's own file names it.
///
/// Keys that were retired can still sign, so a node that knows only those cannot tell a chain that
/// retires them from a forged one. With a minimum, it takes no chain that does not contain this
/// document. Name the document that last changed the admin keys: nodes keep it, and pass it on, for
/// as long as a document follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Its version; a document of a lower version is refused.
    pub version: u64,
    /// SHA-256 of its text, byte for byte as it was signed.
    pub sha256: [u8; 32],
}

/// What a node holds, as it tells its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldVersion {
    /// The version of the document; 0 where there is none.
    pub version: u64,
    /// [`AdminKeys::tag`] of the keys that judge the next document.
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
    /// The keys that judge what follows it.
    pub(super) admins: AdminKeys,
}

/// The end of a chain: what the next document is compared with.
#[derive(Clone, Debug)]
pub(super) struct Tip {
    /// The keys that judge the next document.
    pub(super) admins: AdminKeys,
    /// The version of the newest link; 0 before the first.
    pub(super) since: u64,
    /// The version of the newest document; 0 before the first.
    pub(super) version: u64,
    /// Whether the chain contains the minimum, or has none to contain.
    pub(super) has_minimum: bool,
}

impl Tip {
    /// Returns whether `document` is one that a chain keeps.
    pub(super) fn is_link(&self, document: &Document, rank: Rank) -> bool {
        rank == Rank::Minimum || document.admins != self.admins
    }

    /// Returns the version above which `document` has to be.
    ///
    /// A change of keys is compared with the change before it and not with the documents since: a key
    /// that signs the highest version there is keeps nobody from retiring it.
    pub(super) fn floor(&self, document: &Document) -> u64 {
        if document.admins == self.admins {
            self.version
        } else {
            self.since
        }
    }

    /// Checks that the version is at most [`VERSION_JUMP_MAX`] above the one before it.
    pub(super) fn check_jump(
        &self,
        document: &Document,
        (minimum, rank): (Option<&Minimum>, Rank),
    ) -> Result<(), Refused> {
        // The node's file names it.
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

    /// Goes on to a link of the chain.
    pub(super) fn advance(&mut self, document: Document, rank: Rank) {
        self.since = document.version;
        self.version = document.version;
        self.admins = document.admins;
        self.has_minimum |= rank == Rank::Minimum;
    }
}

/// Most that one version may be above the one before it: 2^32. Unix time in seconds fits, from the first
/// document on; no single signature uses up the versions of a network.
pub const VERSION_JUMP_MAX: u64 = 1 << 32;

/// Reads envelopes that stand one after the other, at least one.
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

/// Writes envelopes one after the other, at most `len_max` bytes; leaves out the oldest links that
/// find no room.
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

/// Most changes of admin keys that a node keeps: whoever was away for more of them needs newer keys in
/// its own file, and so does the node itself before it is started again.
pub const LINKS_MAX: usize = 8;
/// Longest bundle, in bytes: 1 MiB.
pub const BUNDLE_LEN_MAX: usize = 1 << 20;
/// Longest that a node stores for itself, in bytes: all links and the document in force, 2.4 MB. Were it
/// a bundle's bound, a node could not start with what it stored: a few long documents that changed the
/// keys fill that, and the oldest link is the one that its own file's keys signed.
pub const STORED_LEN_MAX: usize = 9 * ENVELOPE_LEN_MAX;

const _: () = assert!(ENVELOPE_LEN_MAX <= BUNDLE_LEN_MAX);
const _: () = assert!(STORED_LEN_MAX == (LINKS_MAX + 1) * ENVELOPE_LEN_MAX);
