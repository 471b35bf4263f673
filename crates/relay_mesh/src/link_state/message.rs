//! Messages that spread records: hello, records, deltas, digests, requests and lazy push.

use wire::{Reader, Truncated, Writer};

use super::{LinkDelta, LinkRecord, NodeRecord, ShortId};
use crate::message::{DecodeError, at_most, code, whole};

/// Maximum number of deltas per message.
pub const LINK_DELTAS_MAX: usize = 64;
/// A control message. Records stay encoded, since their signature covers those bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// First message of a session; carries the sender's node record.
    Hello(&'a [u8]),
    /// An unverified node record; at most [`NodeRecord::LEN_MAX`] bytes.
    NodeRecord(&'a [u8]),
    /// An unverified link record; at most [`LinkRecord::LEN_MAX`] bytes.
    LinkRecord(&'a [u8]),
    /// Link records that the sender holds.
    Digest(Digest),
    /// Origins that the sender requests records of.
    Request(Request),
    /// Changes since link records; at most [`LINK_DELTAS_MAX`].
    LinkDeltas(Vec<LinkDelta>),
    /// Link records that the sender holds and does not push.
    Have(Have),
    /// Requests records as soon as they arrive (eager push).
    Graft,
    /// Requests announcements of records only (lazy push).
    Prune,
    /// Requests neither records nor announcements.
    Part,
}

impl<'a> Message<'a> {
    /// Longest message of these types, in bytes: deltas that all name 64 links.
    pub const LEN_MAX: usize = 1 + LINK_DELTAS_MAX * LinkDelta::LEN_MAX;
    /// Version byte of a hello.
    pub const VERSION: u8 = 1;

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match self {
            Self::Hello(record) => {
                writer.u8(code::HELLO);
                writer.u8(Self::VERSION);
                writer.bytes(record);
            }
            Self::NodeRecord(record) => {
                writer.u8(code::NODE_RECORD);
                writer.bytes(record);
            }
            Self::LinkRecord(record) => {
                writer.u8(code::LINK_RECORD);
                writer.bytes(record);
            }
            Self::Digest(digest) => {
                writer.u8(code::DIGEST);
                write(&mut writer, digest.entries(), Writer::u64);
            }
            Self::Request(request) => {
                writer.u8(code::REQUEST);
                write(&mut writer, request.origins(), Writer::u64);
            }
            Self::LinkDeltas(deltas) => {
                writer.u8(code::LINK_DELTA);
                for delta in deltas.iter().take(LINK_DELTAS_MAX) {
                    delta.write(&mut writer);
                }
            }
            Self::Have(have) => {
                writer.u8(code::HAVE);
                write(&mut writer, have.entries(), Writer::u32);
            }
            Self::Graft => writer.u8(code::GRAFT),
            Self::Prune => writer.u8(code::PRUNE),
            Self::Part => writer.u8(code::PART),
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break. Types of other modules are unknown
    /// here: check the type byte first.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            code::HELLO => {
                let version = reader.u8()?;
                if version != Self::VERSION {
                    return Err(DecodeError::UnknownVersion(version));
                }
                bounded(reader, NodeRecord::LEN_MAX).map(Self::Hello)
            }
            code::NODE_RECORD => bounded(reader, NodeRecord::LEN_MAX).map(Self::NodeRecord),
            code::LINK_RECORD => bounded(reader, LinkRecord::LEN_MAX).map(Self::LinkRecord),
            code::DIGEST => read(reader, Digest::ENTRIES_MAX, Reader::u64)
                .map(|entries| Self::Digest(Digest(entries))),
            code::REQUEST => read(reader, Request::ORIGINS_MAX, Reader::u64)
                .map(|origins| Self::Request(Request(origins))),
            code::LINK_DELTA => link_deltas(reader).map(Self::LinkDeltas),
            code::HAVE => read(reader, Have::ENTRIES_MAX, Reader::u32)
                .map(|entries| Self::Have(Have(entries))),
            code::GRAFT => whole(&reader, Self::Graft),
            code::PRUNE => whole(&reader, Self::Prune),
            code::PART => whole(&reader, Self::Part),
            other => Err(DecodeError::UnknownType(other)),
        }
    }
}

/// Returns the rest as a record of at most `max` bytes.
fn bounded(reader: Reader<'_>, max: usize) -> Result<&[u8], DecodeError> {
    let record = reader.rest();
    at_most(record.len(), max)?;
    Ok(record)
}

fn link_deltas(mut reader: Reader<'_>) -> Result<Vec<LinkDelta>, DecodeError> {
    let mut deltas = vec![LinkDelta::read(&mut reader)?];
    while !reader.is_empty() {
        at_most(deltas.len().saturating_add(1), LINK_DELTAS_MAX)?;
        deltas.push(LinkDelta::read(&mut reader)?);
    }
    Ok(deltas)
}

/// States that a node holds: origins and versions, ascending by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest(Vec<(ShortId, u64)>);

impl Digest {
    /// Maximum number of entries.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Takes entries in ascending order of origin; drops those out of order or over the bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u64)] {
        &self.0
    }
}

/// Origins that a node requests records of, with the link record versions that it holds; ascending by
/// origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request(Vec<(ShortId, u64)>);

impl Request {
    /// Maximum number of origins; their records have at most 68 KB, within a session's credit.
    pub const ORIGINS_MAX: usize = 64;

    /// Takes origins, ascending, and the versions held; drops those out of order or over the bound.
    pub fn new(origins: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(origins, Self::ORIGINS_MAX))
    }

    /// Returns the origins and the versions held, ascending.
    #[must_use]
    pub fn origins(&self) -> &[(ShortId, u64)] {
        &self.0
    }
}

/// Link records that a node holds and does not push: origins and low halves of versions, ascending
/// by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have(Vec<(ShortId, u32)>);

impl Have {
    /// Maximum number of entries.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Takes entries in ascending order of origin; drops those out of order or over the bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u32)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u32)] {
        &self.0
    }
}

fn ascending<T>(entries: impl IntoIterator<Item = (ShortId, T)>, max: usize) -> Vec<(ShortId, T)> {
    let mut held: Vec<(ShortId, T)> = Vec::new();
    for entry in entries {
        if held.len() < max && held.last().is_none_or(|last| last.0 < entry.0) {
            held.push(entry);
        }
    }
    held
}

/// Writes a count and the entries; [`ascending`] keeps the count in range.
fn write<'a, T: Copy>(
    writer: &mut Writer<'a>,
    entries: &[(ShortId, T)],
    value: impl Fn(&mut Writer<'a>, T),
) {
    writer.u16(u16::try_from(entries.len()).unwrap_or(u16::MAX));
    for (origin, entry) in entries {
        writer.bytes(&origin.0);
        value(writer, *entry);
    }
}

/// Bytes of the shortest entry: an origin, and half of a version.
const ENTRY_LEN_MIN: usize = 12;

/// Reads a count of at most `max` and the entries, ascending by origin.
fn read<'a, T>(
    mut reader: Reader<'a>,
    max: usize,
    value: impl Fn(&mut Reader<'a>) -> Result<T, Truncated>,
) -> Result<Vec<(ShortId, T)>, DecodeError> {
    let count = at_most(reader.u16()?.into(), max)?;
    // The peer chose the count: allocate no more than what it sent can hold.
    let mut entries: Vec<(ShortId, T)> =
        Vec::with_capacity(count.min(reader.len() / ENTRY_LEN_MIN));
    for _ in 0..count {
        let entry = (ShortId(reader.array()?), value(&mut reader)?);
        if entries.last().is_some_and(|last| last.0 >= entry.0) {
            return Err(DecodeError::Unordered);
        }
        entries.push(entry);
    }
    whole(&reader, entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short(number: u64) -> ShortId {
        ShortId(number.to_be_bytes())
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut out = Vec::new();
        Message::Digest(Digest::new([(short(1), 2), (short(3), 4)])).encode(&mut out);
        let expected = [
            &[4, 0, 2][..],
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2],
            &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
        ];
        assert_eq!(out, expected.concat());
        out.clear();
        Message::Request(Request::new([(short(1), 9)])).encode(&mut out);
        assert_eq!(
            out,
            [5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]
        );
        out.clear();
        Message::Have(Have::new([(short(1), 9)])).encode(&mut out);
        assert_eq!(out, [17, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
        out.clear();
        Message::Graft.encode(&mut out);
        Message::Prune.encode(&mut out);
        Message::Part.encode(&mut out);
        assert_eq!(out, [18, 19, 20]);
        out.clear();
        Message::Hello(&[7]).encode(&mut out);
        assert_eq!(out, [1, 1, 7]);
    }

    #[test]
    fn every_rule_is_kept() {
        use DecodeError::{OverLimit, Trailing, Truncated, UnknownType, UnknownVersion, Unordered};
        let twice = [&[5, 0, 2][..], &[0; 32]].concat();
        let delta = [&[0; 13][..], &[1, 0]].concat();
        let many = [vec![code::LINK_DELTA], delta.repeat(65)].concat();
        let long = vec![code::NODE_RECORD; NodeRecord::LEN_MAX + 2];
        for (bytes, error) in [
            (&[][..], Truncated),
            (&[4, 0], Truncated),
            (
                &[4, 4, 1],
                OverLimit {
                    found: 1_025,
                    max: 1_024,
                },
            ),
            (&[5, 0, 65], OverLimit { found: 65, max: 64 }),
            (&[5, 0, 1, 0], Truncated),
            (&[5, 0, 0, 0], Trailing),
            (&twice, Unordered),
            (&[1, 2], UnknownVersion(2)),
            (&[code::LINK_DELTA], Truncated),
            (&[code::GRAFT, 0], Trailing),
            (
                &[code::HAVE, 4, 1],
                OverLimit {
                    found: 1_025,
                    max: 1_024,
                },
            ),
            (&many, OverLimit { found: 65, max: 64 }),
            (&[code::ROUTE_REQUEST], UnknownType(code::ROUTE_REQUEST)),
            (
                &long,
                OverLimit {
                    found: NodeRecord::LEN_MAX + 1,
                    max: NodeRecord::LEN_MAX,
                },
            ),
        ] {
            assert_eq!(Message::decode(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn constructors_keep_order_and_bounds() {
        let digest = Digest::new((0..2_000).map(|number| (short(number), 0)));
        assert_eq!(digest.entries().len(), Digest::ENTRIES_MAX);
        let mut out = Vec::new();
        Message::Digest(digest.clone()).encode(&mut out);
        assert!(out.len() <= Message::LEN_MAX);
        assert_eq!(Message::decode(&out), Ok(Message::Digest(digest)));
        let request = Request::new([2, 1, 3].map(|number| (short(number), 7)));
        assert_eq!(request.origins(), [(short(2), 7), (short(3), 7)]);
        let many = (0..99).map(|number| (short(number), 0));
        assert_eq!(Request::new(many).origins().len(), 64);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            kind in prop_oneof![0_u8..8, 16_u8..21, any::<u8>()],
            count in 0_u16..4,
            body: Vec<u8>,
        ) {
            let mut bytes = vec![kind];
            if matches!(kind, code::DIGEST | code::REQUEST | code::HAVE) {
                bytes.extend(count.to_be_bytes());
            }
            bytes.extend(&body);
            if let Ok(message) = Message::decode(&bytes) {
                let mut out = Vec::new();
                message.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
