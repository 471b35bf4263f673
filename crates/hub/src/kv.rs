//! The key-value store: keys, revisions, entries, and why a request fails.

pub(crate) mod owners;

use core::fmt;

use bytes::Bytes;
use wire::{Encode, NodeId, Reader, Writer};

use crate::field::{DecodeError, Epoch, Redacted};

/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1_024;

/// Most entries of one page of a range.
pub const PAGE_ENTRIES_MAX: u16 = 1_024;

/// A key: 1 to 255 of the characters `a-z`, `A-Z`, `0-9`, `.`, `_`, `-`, `/` and `=`. A dot is neither
/// the first nor the last character, and two dots are never adjacent.
///
/// Encoding: one length byte, then the characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KvKey(Bytes);

impl KvKey {
    /// Longest key, bytes.
    pub const LEN_MAX: usize = 255;

    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`KvKeyError`] if the length or a character is invalid.
    pub fn new(text: &str) -> Result<Self, KvKeyError> {
        Self::check(text.as_bytes())?;
        Ok(Self(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        // A key is always ASCII, so this never falls back.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the first `len` characters.
    pub(crate) fn prefix(&self, len: usize) -> KvPrefix {
        KvPrefix(self.0.slice(..len.min(self.0.len())))
    }

    /// Returns whether the key begins with `prefix`.
    pub fn starts_with(&self, prefix: &KvPrefix) -> bool {
        self.0.starts_with(&prefix.0)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.u8()?;
        let text = reader.bytes(usize::from(len))?;
        Self::check(text).map_err(|_| DecodeError::Name)?;
        Ok(Self(Bytes::copy_from_slice(text)))
    }

    fn check(text: &[u8]) -> Result<(), KvKeyError> {
        if text.is_empty() || text.len() > Self::LEN_MAX {
            return Err(KvKeyError::Length(text.len()));
        }
        let has_loose_dot =
            text.first() == Some(&b'.') || text.last() == Some(&b'.') || has_adjacent_dots(text);
        if has_loose_dot || !text.iter().copied().all(is_allowed) {
            return Err(KvKeyError::Character);
        }
        Ok(())
    }
}

impl core::borrow::Borrow<[u8]> for KvKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Encode for KvKey {
    fn encode(&self, out: &mut Writer<'_>) {
        encode_short(&self.0, out);
    }
}

impl fmt::Display for KvKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for KvKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl core::str::FromStr for KvKey {
    type Err = KvKeyError;

    fn from_str(text: &str) -> Result<Self, KvKeyError> {
        Self::new(text)
    }
}

/// The first characters of keys: up to 255 of those that a key may have. The empty one matches all keys.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KvPrefix(Bytes);

impl KvPrefix {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`KvKeyError`] if it is longer than 255 bytes, or a character is invalid.
    pub fn new(text: &str) -> Result<Self, KvKeyError> {
        Self::check(text.as_bytes())?;
        Ok(Self(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        // A prefix is always ASCII, so this never falls back.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.u8()?;
        let text = reader.bytes(usize::from(len))?;
        Self::check(text).map_err(|_| DecodeError::Name)?;
        Ok(Self(Bytes::copy_from_slice(text)))
    }

    fn check(text: &[u8]) -> Result<(), KvKeyError> {
        if text.len() > KvKey::LEN_MAX {
            return Err(KvKeyError::Length(text.len()));
        }
        if text.first() == Some(&b'.') || has_adjacent_dots(text) {
            return Err(KvKeyError::Character);
        }
        if text.iter().copied().all(is_allowed) {
            Ok(())
        } else {
            Err(KvKeyError::Character)
        }
    }
}

impl Encode for KvPrefix {
    fn encode(&self, out: &mut Writer<'_>) {
        encode_short(&self.0, out);
    }
}

impl fmt::Debug for KvPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

fn has_adjacent_dots(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"..")
}

const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b'=')
}

/// Writes at most 255 bytes after their length.
fn encode_short(bytes: &[u8], out: &mut Writer<'_>) {
    out.u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    out.bytes(bytes);
}

/// Why a text is not a key or a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvKeyError {
    /// Its length in bytes; 1 to 255 are allowed, for a prefix also 0.
    Length(usize),
    /// A character is not allowed, or a dot is not between two other characters.
    Character,
}

impl fmt::Display for KvKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "a key has {len} bytes; 1 to 255 are allowed"),
            Self::Character => f.write_str("a key has a character that is not allowed there"),
        }
    }
}

impl core::error::Error for KvKeyError {}

/// Keys from `from`, up to and without `to`, in order of their bytes.
///
/// Encoding: each bound as one length byte and its bytes; an empty `to` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvRange {
    from: Bytes,
    to: Bytes,
}

impl KvRange {
    /// Returns the range of all keys.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the range of the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &KvPrefix) -> Self {
        let mut to = prefix.0.to_vec();
        // The characters are ASCII, so the last one has a successor.
        if let Some(last) = to.last_mut() {
            *last = last.saturating_add(1);
        }
        Self {
            from: prefix.0.clone(),
            to: to.into(),
        }
    }

    /// Returns the range from `from`, up to and without `to`; `None` for no bound.
    #[must_use]
    pub fn between(from: Option<&KvKey>, to: Option<&KvKey>) -> Self {
        let bytes = |key: Option<&KvKey>| key.map(|key| key.0.clone()).unwrap_or_default();
        Self {
            from: bytes(from),
            to: bytes(to),
        }
    }

    /// Returns the rest of this range after `key`, for the next page.
    #[must_use]
    pub fn after(&self, key: &KvKey) -> Self {
        let from = if key.0.len() < KvKey::LEN_MAX {
            // No key has a byte of zero.
            [&key.0[..], &[0]].concat()
        } else {
            // No longer key exists, so the next one is larger in one of its bytes.
            let mut next = key.0.to_vec();
            if let Some(last) = next.last_mut() {
                *last = last.saturating_add(1);
            }
            next
        };
        Self {
            from: from.into(),
            to: self.to.clone(),
        }
    }

    /// Returns whether `key` is in the range.
    pub fn contains(&self, key: &KvKey) -> bool {
        key.as_bytes() >= self.from() && !self.has_passed(key.as_bytes())
    }

    pub(crate) fn from(&self) -> &[u8] {
        &self.from
    }

    pub(crate) fn has_passed(&self, key: &[u8]) -> bool {
        !self.to.is_empty() && key >= &self.to[..]
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut bound = || {
            let len = reader.u8()?;
            let bytes = reader.bytes(usize::from(len))?;
            Ok::<_, DecodeError>(Bytes::copy_from_slice(bytes))
        };
        Ok(Self {
            from: bound()?,
            to: bound()?,
        })
    }
}

impl Encode for KvRange {
    fn encode(&self, out: &mut Writer<'_>) {
        encode_short(&self.from, out);
        encode_short(&self.to, out);
    }
}

/// Orders all changes of a hub's keys: each change has a larger revision than all changes before it,
/// also across restarts of the hub.
///
/// The upper 40 bits count durable changes and starts of the hub; the lower 24 bits the changes in memory
/// since. So the order of revisions is the order in which changes become visible, and no change waits for
/// the disk because of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// No revision. As the expected revision of a write: the key must not exist.
    pub const NONE: Self = Self(0);

    /// Bits that count changes in memory.
    pub const MEMORY_BITS: u32 = 24;

    /// Returns the revision of the durable change with number `sequence`.
    #[must_use]
    pub const fn durable(sequence: u64) -> Self {
        Self(sequence << Self::MEMORY_BITS)
    }

    /// Returns the number of the last durable change or start of the hub up to this revision.
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.0 >> Self::MEMORY_BITS
    }

    /// Returns the durability of the change with this revision.
    #[must_use]
    pub const fn durability(self) -> Durability {
        if self.sequence() << Self::MEMORY_BITS == self.0 {
            Durability::Disk
        } else {
            Durability::Memory
        }
    }
}

impl Encode for Revision {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.0);
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a key survives a restart of the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The change is on disk before it is answered and visible.
    #[default]
    Disk,
    /// The change is answered at once, and lost when the hub restarts.
    Memory,
}

/// The run of a node that holds a lease. Its leased keys are deleted when the node leaves, is
/// disconnected for longer than the hub's lease time, or joins with a later epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KvLease {
    /// The node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
}

impl KvLease {
    pub(crate) fn decode_option(reader: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        match reader.u8()? {
            0 => Ok(None),
            1 => Ok(Some(Self {
                node: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
            })),
            flag => Err(DecodeError::Choice(flag)),
        }
    }

    /// Encoding: `present 1 [, node 32, epoch 4]`.
    pub(crate) fn encode_option(lease: Option<&Self>, out: &mut Writer<'_>) {
        match lease {
            Some(lease) => out.fields(&[&1_u8, &lease.node, &lease.epoch]),
            None => out.u8(0),
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEntry {
    /// The key.
    pub key: KvKey,
    /// The revision of the last change.
    pub revision: Revision,
    /// The run whose end deletes the key, if any.
    pub lease: Option<KvLease>,
    /// The value.
    pub value: Redacted<Bytes>,
}

/// A key to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPut {
    /// The key.
    pub key: KvKey,
    /// The value, at most 64 KiB.
    pub value: Redacted<Bytes>,
    /// Whether the key survives a restart of the hub. A key that exists keeps its durability.
    pub durability: Durability,
    /// Whether the key is deleted when the run of the writing node ends.
    pub lease: bool,
    /// The revision that the key must have; [`Revision::NONE`] if it must not exist. `None` for any.
    pub expected: Option<Revision>,
}

impl KvPut {
    /// Sets `key` to `value`: durable, without a lease or a condition.
    #[must_use]
    pub fn new(key: KvKey, value: impl Into<Bytes>) -> Self {
        Self {
            key,
            value: Redacted(value.into()),
            durability: Durability::Disk,
            lease: false,
            expected: None,
        }
    }

    /// Keeps the key in memory only.
    #[must_use]
    pub const fn in_memory(mut self) -> Self {
        self.durability = Durability::Memory;
        self
    }

    /// Deletes the key when the run of the writing node ends.
    #[must_use]
    pub const fn with_lease(mut self) -> Self {
        self.lease = true;
        self
    }

    /// Sets the key only if it has this revision.
    #[must_use]
    pub const fn expecting(mut self, revision: Revision) -> Self {
        self.expected = Some(revision);
        self
    }
}

/// A write of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvWrite {
    /// Sets it.
    Put(KvPut),
    /// Deletes it.
    Delete {
        /// The key.
        key: KvKey,
        /// The revision that the key must have, if any.
        expected: Option<Revision>,
    },
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvChange {
    /// The key.
    pub key: KvKey,
    /// The revision of the change.
    pub revision: Revision,
    /// The value with its lease; `None` if the key was deleted.
    pub value: Option<(Redacted<Bytes>, Option<KvLease>)>,
}

/// Why a request was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvError {
    /// The key has another revision than expected.
    Conflict {
        /// Its revision; [`Revision::NONE`] if it does not exist.
        current: Revision,
    },
    /// The key does not exist.
    NotFound,
    /// There is no room for another key or value, in memory or on the disk.
    Full,
    /// The keys of this node, or of all nodes of its role, have the [share](crate::SenderShare) that the
    /// hub permits.
    OverShare,
    /// Too many requests are in flight, or the store has no room now. Retry later.
    Busy,
    /// The value exceeds 64 KiB.
    TooLarge,
    /// The key exists with the other [`Durability`]. Delete it first.
    OtherDurability,
    /// The request was not sent, since no link to the hub is up or it closed before; or a later run of
    /// this node has joined. It was not executed.
    HubDown,
    /// The link closed before the answer arrived. The write may have been executed. A write with an
    /// expected revision can be repeated: if it was executed, the repetition ends with
    /// [`Conflict`](Self::Conflict).
    Unknown,
}

impl KvError {
    /// Encoding: `code 1, current 8`; `current` is zero except for a conflict.
    pub(crate) fn encode(self, out: &mut Writer<'_>) {
        let code = match self {
            Self::Conflict { .. } => 1_u8,
            Self::NotFound => 2,
            Self::Full => 3,
            Self::Busy => 4,
            Self::TooLarge => 5,
            Self::OtherDurability => 6,
            Self::HubDown => 7,
            Self::Unknown => 8,
            Self::OverShare => 9,
        };
        let current = if let Self::Conflict { current } = self {
            current
        } else {
            Revision::NONE
        };
        out.fields(&[&code, &current]);
    }

    pub(crate) const fn from_code(code: u8, current: Revision) -> Result<Self, DecodeError> {
        if code != 1 && current.0 != 0 {
            return Err(DecodeError::Choice(code));
        }
        Ok(match code {
            1 => Self::Conflict { current },
            2 => Self::NotFound,
            3 => Self::Full,
            4 => Self::Busy,
            5 => Self::TooLarge,
            6 => Self::OtherDurability,
            7 => Self::HubDown,
            8 => Self::Unknown,
            9 => Self::OverShare,
            code => return Err(DecodeError::Choice(code)),
        })
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { current } => write!(f, "the key has revision {current}"),
            Self::NotFound => f.write_str("the key does not exist"),
            Self::Full => f.write_str("there is no room for another key or value"),
            Self::OverShare => f.write_str("the keys of this node or role have their share"),
            Self::Busy => f.write_str("too many requests are in flight"),
            Self::TooLarge => f.write_str("the value exceeds 64 KiB"),
            Self::OtherDurability => f.write_str("the key exists with the other durability"),
            Self::HubDown => f.write_str("no link to the hub is up"),
            Self::Unknown => f.write_str("the link closed before the answer arrived"),
        }
    }
}

impl core::error::Error for KvError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kv_keys_have_1_to_255_characters_and_no_loose_dot() {
        for valid in ["a", "Match/7.state", "x=1_2-3", &"k".repeat(255)] {
            assert_eq!(KvKey::new(valid).unwrap().as_str(), valid);
        }
        for (invalid, error) in [
            ("", KvKeyError::Length(0)),
            (&"k".repeat(256), KvKeyError::Length(256)),
            ("a b", KvKeyError::Character),
            ("a..b", KvKeyError::Character),
            (".a", KvKeyError::Character),
            ("a.", KvKeyError::Character),
            ("\u{e4}", KvKeyError::Character),
        ] {
            assert_eq!(KvKey::new(invalid), Err(error), "{invalid}");
        }
        assert!(KvPrefix::new("a.").is_ok(), "a key may continue it");
        assert_eq!(KvPrefix::new("a b"), Err(KvKeyError::Character));
    }

    #[test]
    fn kv_a_revision_orders_memory_changes_before_the_next_durable_one() {
        let first = Revision::durable(7);
        let memory = Revision(first.0 + 1);
        assert!(first < memory && memory < Revision::durable(8));
        assert_eq!(first.durability(), Durability::Disk);
        assert_eq!(memory.durability(), Durability::Memory);
        assert_eq!(memory.sequence(), 7);
    }

    #[test]
    fn kv_the_rest_of_a_range_begins_after_the_last_key() {
        let range = KvRange::prefix(&KvPrefix::new("a/").unwrap());
        assert!(range.from() == b"a/" && range.has_passed(b"a0") && !range.has_passed(b"a/z"));
        let long = KvKey::new(&"b".repeat(255)).unwrap();
        for key in [KvKey::new("a/b").unwrap(), long] {
            let rest = range.after(&key);
            assert!(rest.from() > key.as_bytes());
            assert_eq!(rest.from().len().min(255), rest.from().len());
        }
        assert!(KvRange::all().after(&KvKey::new("a").unwrap()).from() < &b"a-"[..]);
    }
}
