//! Envelopes in a row: changes of keys that came before, and the document in force.

use wire::Reader;

use super::envelope::{ENVELOPE_LEN_MAX, Envelope, EnvelopeError};

/// Reads envelopes that stand one after the other, at least one.
pub(super) fn read(bytes: &[u8]) -> Result<(Vec<Envelope>, Envelope), EnvelopeError> {
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
pub(super) fn write<'a>(
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
