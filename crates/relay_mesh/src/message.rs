//! Control messages between nodes, on the reliable ordered channel of their session.
//!
//! A message is a type byte and a body that fills the rest. All numbers are big-endian. Decoders
//! are strict: they refuse everything that is not specified here, and the node counts it.
//!
//! | type | message | body |
//! |---|---|---|
//! | 0x01 | hello, first on every session | version 1 (= 1), node record of the sender |
//! | 0x02 | node record | as in [`NodeRecord`] |
//! | 0x03 | link record | as in [`LinkRecord`] |
//! | 0x04 | digest | count 2 (≤ 1,024), count × (short id 8, state 8), ascending |
//! | 0x05 | request | count 2 (≤ 64), count × (short id 8, link record version held 8), ascending |
//! | 0x10 | link deltas | 1 to 64 of [`LinkDelta`] |
//! | 0x11 | have | count 2 (≤ 1,024), count × (short id 8, low half of the link record's version 4), ascending |
//! | 0x12 | graft | nothing |
//! | 0x13 | prune | nothing |
//! | 0x14 | part | nothing |
//!
//! The state of an origin is the version of its link record, or of the newest delta to it. The
//! answer to a request has, for each origin named, everything newer than the version held: node
//! record, link record, delta. [`gossip`](crate::gossip) uses have, graft, prune and part.
//!
//! Other messages of a session have type bytes of the same range. Their own modules decode them,
//! and [`Message::decode`] refuses them:
//!
//! | type | message | channel |
//! |---|---|---|
//! | 0x06 | [`LinkTerms`](crate::link_terms::LinkTerms) | reliable |
//! | 0x07 | [`KeyEpoch`](crate::key_epoch::KeyEpoch) | reliable |
//! | 0x20, 0x21 | [`RouteRequest`](crate::route_request::RouteRequest), [`RouteReply`](crate::route_request::RouteReply) | reliable |
//! | 0x22 | [`RouteRelease`](crate::route_request::RouteRelease) | reliable |
//! | 0x28 to 0x2B | [`FlowMessage`](crate::flow_message::FlowMessage): open, opened, close, open a tunnel | reliable |
//! | 0x2C | [`GameEdge`](crate::game_edge::GameEdge)s | reliable |
//! | 0x2D | [`FlowMessage::OpenMany`](crate::flow_message::FlowMessage::OpenMany) | reliable |
//! | 0x30 to 0x32 | [`ConfigMessage`](crate::signed_config::ConfigMessage) | reliable |
//! | 0x80, 0x81 | [`Probe`](crate::measure::Probe), [`Echo`](crate::measure::Echo) | unreliable |
//! | 0x84 | [`PathProbe`](crate::path_probe::PathProbe) | none: in the probe flow of its path |
//! | 0x85 | [`PathEcho`](crate::path_probe::PathEcho) | unreliable, and in the probe flow |
//! | 0x86 | a datagram of the session ([`SESSION_DATAGRAM`](crate::flow_message::flow_code::SESSION_DATAGRAM)) | none: in the probe flow of a path |
//! | 0x87 | [`PathPadding`](crate::path_probe::PathPadding) | none: in the probe flow of its path |
//! | 0x88, 0x89 | [`Detoured`](crate::detour::Detoured): request to forward, forwarded | unreliable |
//! | 0x8A | [`FlowDatagram`](crate::flow_message::FlowDatagram) | unreliable |
//!
//! All other type bytes are unassigned, and refused.

use core::fmt;

use wire::{Reader, Truncated, Writer};

use crate::link_state::{LinkDelta, LinkRecord, NodeRecord, ShortId};

/// Maximum number of deltas per message.
pub const LINK_DELTAS_MAX: usize = 64;

/// Type bytes.
pub mod code {
    /// First message of a session, from both sides.
    pub const HELLO: u8 = 0x01;
    /// Identity, profile and neighbours of an origin.
    pub const NODE_RECORD: u8 = 0x02;
    /// Measurements of an origin.
    pub const LINK_RECORD: u8 = 0x03;
    /// Link records that a node holds.
    pub const DIGEST: u8 = 0x04;
    /// Origins whose records a node requests.
    pub const REQUEST: u8 = 0x05;
    /// Frames that a node accepts; see [`LinkTerms`](crate::link_terms::LinkTerms).
    pub const LINK_TERMS: u8 = 0x06;
    /// Key epoch of a shard; see [`KeyEpoch`](crate::key_epoch::KeyEpoch).
    pub const KEY_EPOCH: u8 = 0x07;
    /// Changes between link records, authenticated hop by hop.
    pub const LINK_DELTA: u8 = 0x10;
    /// Records held, for lazy push.
    pub const HAVE: u8 = 0x11;
    /// Requests eager push.
    pub const GRAFT: u8 = 0x12;
    /// Declines eager push.
    pub const PRUNE: u8 = 0x13;
    /// Ends gossip over a link.
    pub const PART: u8 = 0x14;
    /// Reserves or binds labels; see [`RouteRequest`](crate::route_request::RouteRequest).
    pub const ROUTE_REQUEST: u8 = 0x20;
    /// The labels, or the reason for a refusal.
    pub const ROUTE_REPLY: u8 = 0x21;
    /// Releases labels; see [`RouteRelease`](crate::route_request::RouteRelease).
    pub const ROUTE_RELEASE: u8 = 0x22;
    /// Version of the signed configuration that a node holds.
    pub const CONFIG_VERSION: u8 = 0x30;
    /// Requests a piece of it.
    pub const CONFIG_REQUEST: u8 = 0x31;
    /// A piece of it.
    pub const CONFIG: u8 = 0x32;
    /// A probe; unreliable channel.
    pub const PROBE: u8 = 0x80;
    /// The answer to a probe; unreliable channel.
    pub const ECHO: u8 = 0x81;
    /// A datagram to forward; unreliable channel; see [`Detoured`](crate::detour::Detoured).
    pub const PASS_ON: u8 = 0x88;
    /// A forwarded datagram; unreliable channel.
    pub const PASSED_ON: u8 = 0x89;
}

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
    /// Origins whose records the sender requests.
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
                writer.u16(count(digest.entries().len()));
                for (origin, version) in digest.entries() {
                    writer.bytes(&origin.0);
                    writer.u64(*version);
                }
            }
            Self::Request(request) => {
                writer.u8(code::REQUEST);
                writer.u16(count(request.origins().len()));
                for (origin, held) in request.origins() {
                    writer.bytes(&origin.0);
                    writer.u64(*held);
                }
            }
            Self::LinkDeltas(deltas) => {
                writer.u8(code::LINK_DELTA);
                for delta in deltas.iter().take(LINK_DELTAS_MAX) {
                    delta.write(&mut writer);
                }
            }
            Self::Have(have) => {
                writer.u8(code::HAVE);
                writer.u16(count(have.entries().len()));
                for (origin, low) in have.entries() {
                    writer.bytes(&origin.0);
                    writer.u32(*low);
                }
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
            code::DIGEST => Digest::decode(reader).map(Self::Digest),
            code::REQUEST => Request::decode(reader).map(Self::Request),
            code::LINK_DELTA => link_deltas(reader).map(Self::LinkDeltas),
            code::HAVE => Have::decode(reader).map(Self::Have),
            code::GRAFT => whole(&reader, Self::Graft),
            code::PRUNE => whole(&reader, Self::Prune),
            code::PART => whole(&reader, Self::Part),
            other => Err(DecodeError::UnknownType(other)),
        }
    }
}

/// Why bytes are not a valid message or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end within a field.
    Truncated,
    /// Bytes follow the last field.
    Trailing,
    /// No message has this type.
    UnknownType(u8),
    /// A hello of another version.
    UnknownVersion(u8),
    /// A count or length is over its limit.
    OverLimit {
        /// The value found.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// Entries are not in strictly ascending order.
    Unordered,
    /// A field has an undefined value.
    BadValue,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end within a field"),
            Self::Trailing => f.write_str("bytes follow the last field"),
            Self::UnknownType(kind) => write!(f, "no message has the type {kind:#04x}"),
            Self::UnknownVersion(version) => {
                write!(f, "hello has version {version}, expected 1")
            }
            Self::OverLimit { found, max } => write!(f, "{found} is over the limit of {max}"),
            Self::Unordered => f.write_str("entries are not in ascending order"),
            Self::BadValue => f.write_str("a field has an unknown value"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Returns the rest as a record of at most `max` bytes.
const fn bounded(mut reader: Reader<'_>, max: usize) -> Result<&[u8], DecodeError> {
    let record = reader.take_rest();
    if record.len() > max {
        let found = record.len();
        return Err(DecodeError::OverLimit { found, max });
    }
    Ok(record)
}

fn link_deltas(mut reader: Reader<'_>) -> Result<Vec<LinkDelta>, DecodeError> {
    let mut deltas = vec![LinkDelta::read(&mut reader)?];
    while !reader.is_empty() {
        if deltas.len() >= LINK_DELTAS_MAX {
            let max = LINK_DELTAS_MAX;
            return Err(DecodeError::OverLimit {
                found: max.saturating_add(1),
                max,
            });
        }
        deltas.push(LinkDelta::read(&mut reader)?);
    }
    Ok(deltas)
}

/// Starts to read a message of type `kind`.
pub(crate) fn of_type(kind: u8, bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        found if found == kind => Ok(reader),
        found => Err(DecodeError::UnknownType(found)),
    }
}

/// Returns a message that was read, if no bytes follow.
pub(crate) fn whole<T>(reader: &Reader<'_>, message: T) -> Result<T, DecodeError> {
    if reader.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError::Trailing)
    }
}

/// Reads a count and checks that exactly that many entries of `len` bytes follow.
fn counted(reader: &mut Reader<'_>, max: usize, len: usize) -> Result<usize, DecodeError> {
    let found = usize::from(reader.u16()?);
    if found > max {
        return Err(DecodeError::OverLimit { found, max });
    }
    match reader.len().cmp(&found.saturating_mul(len)) {
        core::cmp::Ordering::Less => Err(DecodeError::Truncated),
        core::cmp::Ordering::Equal => Ok(found),
        core::cmp::Ordering::Greater => Err(DecodeError::Trailing),
    }
}

/// Converts `len` to a count field; the types above keep it in range.
fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// States that a node holds: origins and versions, ascending by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest(Vec<(ShortId, u64)>);

impl Digest {
    /// Maximum number of entries.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Creates one from entries in ascending order of origin; drops those out of order or over the
    /// bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u64)] {
        &self.0
    }

    fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
        read(reader, (Self::ENTRIES_MAX, 16), |reader| Ok(reader.u64()?)).map(Self)
    }
}

/// Origins whose records a node requests, with the link record versions that it holds; ascending by
/// origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request(Vec<(ShortId, u64)>);

impl Request {
    /// Maximum number of origins; their records have at most 68 KB, within a session's credit.
    pub const ORIGINS_MAX: usize = 64;

    /// Creates one from origins in ascending order and the versions held, 0 for none; drops those
    /// out of order or over the bound.
    pub fn new(origins: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(origins, Self::ORIGINS_MAX))
    }

    /// Returns the origins and the versions held, ascending.
    #[must_use]
    pub fn origins(&self) -> &[(ShortId, u64)] {
        &self.0
    }

    fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
        read(reader, (Self::ORIGINS_MAX, 16), |reader| Ok(reader.u64()?)).map(Self)
    }
}

/// Link records that a node holds and does not push: origins and low halves of versions, ascending
/// by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have(Vec<(ShortId, u32)>);

impl Have {
    /// Maximum number of entries.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Creates one from entries in ascending order of origin; drops those out of order or over the
    /// bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u32)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u32)] {
        &self.0
    }

    fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
        read(reader, (Self::ENTRIES_MAX, 12), |reader| Ok(reader.u32()?)).map(Self)
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

/// Reads a count of at most `max` and entries of `len` bytes, ascending by origin.
fn read<T>(
    mut reader: Reader<'_>,
    (max, len): (usize, usize),
    value: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<(ShortId, T)>, DecodeError> {
    let count = counted(&mut reader, max, len)?;
    let mut entries: Vec<(ShortId, T)> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = (ShortId(reader.array()?), value(&mut reader)?);
        if entries.last().is_some_and(|last| last.0 >= entry.0) {
            return Err(DecodeError::Unordered);
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link_state::ShortId;

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
