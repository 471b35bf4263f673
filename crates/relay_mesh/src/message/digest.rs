//! Lists of what a node holds, wants and has.

use wire::Reader;

use super::{DecodeError, counted};
use crate::link_state::ShortId;

/// What a node holds of whom: origins and states, ascending by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest(Vec<(ShortId, u64)>);

impl Digest {
    /// Most entries of one digest.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Takes entries in ascending order of origin; drops what is out of order or past the bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u64)] {
        &self.0
    }

    pub(super) fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
        read(reader, (Self::ENTRIES_MAX, 16), |reader| Ok(reader.u64()?)).map(Self)
    }
}

/// Whose records a node wants, and the version of the link record that it holds; ascending by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request(Vec<(ShortId, u64)>);

impl Request {
    /// Most origins of one request; their records are at most 68 KB, within a session's credit.
    pub const ORIGINS_MAX: usize = 64;

    /// Takes origins in ascending order and the versions held, 0 for none; drops what is out of
    /// order or past the bound.
    pub fn new(origins: impl IntoIterator<Item = (ShortId, u64)>) -> Self {
        Self(ascending(origins, Self::ORIGINS_MAX))
    }

    /// Returns the origins and the versions held, ascending.
    #[must_use]
    pub fn origins(&self) -> &[(ShortId, u64)] {
        &self.0
    }

    pub(super) fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
        read(reader, (Self::ORIGINS_MAX, 16), |reader| Ok(reader.u64()?)).map(Self)
    }
}

/// Which link records a node holds and does not push: origins and low halves of versions,
/// ascending by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have(Vec<(ShortId, u32)>);

impl Have {
    /// Most entries of one message.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Takes entries in ascending order of origin; drops what is out of order or past the bound.
    pub fn new(entries: impl IntoIterator<Item = (ShortId, u32)>) -> Self {
        Self(ascending(entries, Self::ENTRIES_MAX))
    }

    /// Returns the entries, ascending by origin.
    #[must_use]
    pub fn entries(&self) -> &[(ShortId, u32)] {
        &self.0
    }

    pub(super) fn decode(reader: Reader<'_>) -> Result<Self, DecodeError> {
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
