//! Encoding of a batch of records.
//!
//! ```text
//! version 1, record...
//! record = head 1, time, series, [player], value
//! ```
//!
//! Numbers are varints (7 bits a byte, least significant first, in the fewest bytes) unless stated;
//! a signed number is folded (0, -1, 1, -2, ...).
//!
//! | field | encoding |
//! |---|---|
//! | head | bits 0-1 kind: 0 add, 1 set, 2 state, 3 event; bits 2-3 form of the number: 0 integer, 1 float in 4 bytes, 2 in 8; bit 4: has a player; others 0 |
//! | time | milliseconds since the record before, signed; for the first since 1970 |
//! | series | index into the series of this batch, in order of first use; the next index defines one: name, count of dimensions, then name and text of each |
//! | name, text | index, likewise; the next index is followed by the length in 1 byte and the characters |
//! | player | index, likewise; the next index is followed by the player's id in 8 bytes |
//! | value | signed integer, big-endian float, or text |
//!
//! A batch has one encoding: a float takes 8 bytes only if 4 do not hold it, and nothing is defined
//! twice.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use wire::{ClientId, Encode, Reader, Truncated, UnixTime, Writer};

use super::number::{Finite, Number};
use super::record::{Sample, StatKey, StatRecord, StatText};
use super::varint;
use crate::field::Name;
use crate::record::BODY_BYTES_MAX;

/// Version of this format.
pub(super) const VERSION: u8 = 1;

/// Longest batch, bytes: it fits one record of a link.
pub const BATCH_BYTES_MAX: usize = BODY_BYTES_MAX;

const ADD: u8 = 0;
const SET: u8 = 1;
const STATE: u8 = 2;
const EVENT: u8 = 3;
const KIND: u8 = 0b11;

const INT: u8 = 0;
const SHORT_FLOAT: u8 = 0b0100;
const FLOAT: u8 = 0b1000;
const FORM: u8 = 0b1100;

const HAS_PLAYER: u8 = 0b1_0000;

/// Writes records as one batch of at most [`BATCH_BYTES_MAX`] bytes.
///
/// ```
/// use hub::stats::{Batch, BatchWriter, Sample, StatRecord};
/// use hub::Name;
///
/// let record = StatRecord {
///     time: wire::UnixTime::from_secs(1_800_000_000),
///     player: Some(wire::ClientId(42)),
///     key: Name::new("kill")?.into(),
///     sample: Sample::Add(1.into()),
/// };
/// let mut writer = BatchWriter::default();
/// writer.push(&record)?;
/// let batch = Batch::decode(&writer.take())?;
/// assert_eq!(batch.records().next(), Some(record));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    count: usize,
    time: UnixTime,
    series: BTreeMap<StatKey, usize>,
    names: BTreeMap<Name, usize>,
    texts: BTreeMap<StatText, usize>,
    players: BTreeMap<ClientId, usize>,
}

impl BatchWriter {
    /// Longest record: head, time, a series of new names and texts, a new player, a float or text.
    const RECORD_BYTES_MAX: usize = 1
        + 10
        + 3 * 3
        + (2 + Name::LEN_MAX)
        + StatKey::DIMENSIONS_MAX * (6 + Name::LEN_MAX + StatText::LEN_MAX)
        + 11
        + 4
        + StatText::LEN_MAX;

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// [`BatchFull`] if the longest record would no longer fit; the record is not appended.
    pub fn push(&mut self, record: &StatRecord) -> Result<(), BatchFull> {
        self.push_parts(record.time, record.player, &record.key, &record.sample)
    }

    pub(super) fn push_parts(
        &mut self,
        time: UnixTime,
        player: Option<ClientId>,
        key: &StatKey,
        sample: &Sample,
    ) -> Result<(), BatchFull> {
        if self.bytes.len().saturating_add(Self::RECORD_BYTES_MAX) > BATCH_BYTES_MAX {
            return Err(BatchFull);
        }
        let out = &mut Writer::new(&mut self.bytes);
        if self.count == 0 {
            out.u8(VERSION);
        }
        out.u8(head(player, sample));
        // The difference wraps; so does the sum of the reader.
        let step = time.as_millis().wrapping_sub(self.time.as_millis());
        varint::write_signed(i64::from_ne_bytes(step.to_ne_bytes()), out);
        self.time = time;
        self.count = self.count.saturating_add(1);
        if !write_index(&mut self.series, key, out) {
            write_name(&mut self.names, key.name(), out);
            varint::write_len(key.dimensions().len(), out);
            for (name, text) in key.dimensions() {
                write_name(&mut self.names, *name, out);
                write_text(&mut self.texts, text, out);
            }
        }
        if let Some(player) = player
            && !write_index(&mut self.players, &player, out)
        {
            player.encode(out);
        }
        match sample {
            Sample::State(text) => write_text(&mut self.texts, text, out),
            Sample::Add(number) | Sample::Set(number) | Sample::Event(number) => {
                write_number(*number, out);
            }
        }
        Ok(())
    }

    /// Returns the number of records.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no records.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the batch, and starts another. Without records it is empty, and no batch.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(self).bytes
    }
}

/// There is no room for another record in this batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the batch has no room within {BATCH_BYTES_MAX} bytes")
    }
}

impl core::error::Error for BatchFull {}

fn head(player: Option<ClientId>, sample: &Sample) -> u8 {
    let (kind, form) = match sample {
        Sample::Add(number) => (ADD, form(*number)),
        Sample::Set(number) => (SET, form(*number)),
        Sample::State(_) => (STATE, INT),
        Sample::Event(number) => (EVENT, form(*number)),
    };
    let player = player.map_or(0, |_| HAS_PLAYER);
    kind | form | player
}

fn form(number: Number) -> u8 {
    match number {
        Number::Int(_) => INT,
        Number::Float(float) if short(float).is_some() => SHORT_FLOAT,
        Number::Float(_) => FLOAT,
    }
}

/// Returns the value in 4 bytes, if they hold it exactly.
fn short(value: Finite) -> Option<[u8; 4]> {
    let bits = value.get().to_bits();
    let sign = (bits >> 63) << 31;
    let fraction = bits & ((1 << 52) - 1);
    let exponent = (bits >> 52) & 0x7ff;
    let narrow = if bits << 1 == 0 {
        0
    } else {
        // Normal floats of 4 bytes: exponents -126 to 127.
        let exponent = exponent.checked_sub(1_023 - 127)?;
        if exponent == 0 || exponent > 254 || fraction.trailing_zeros() < 29 {
            return None;
        }
        sign | (exponent << 23) | (fraction >> 29)
    };
    u32::try_from(narrow).ok().map(u32::to_be_bytes)
}

fn write_number(number: Number, out: &mut Writer<'_>) {
    match number {
        Number::Int(value) => varint::write_signed(value, out),
        Number::Float(value) => match short(value) {
            Some(bytes) => out.bytes(&bytes),
            None => out.u64(value.get().to_bits()),
        },
    }
}

/// Writes the index of `entry`; returns false if it is new, so that its definition must follow.
fn write_index<T: Ord + Clone>(
    table: &mut BTreeMap<T, usize>,
    entry: &T,
    out: &mut Writer<'_>,
) -> bool {
    let next = table.len();
    let known = table.get(entry).copied();
    if known.is_none() {
        table.insert(entry.clone(), next);
    }
    varint::write_len(known.unwrap_or(next), out);
    known.is_some()
}

fn write_name(table: &mut BTreeMap<Name, usize>, name: Name, out: &mut Writer<'_>) {
    if !write_index(table, &name, out) {
        name.encode(out);
    }
}

fn write_text(table: &mut BTreeMap<StatText, usize>, text: &StatText, out: &mut Writer<'_>) {
    if !write_index(table, text, out) {
        encode_text(text, out);
    }
}

pub(super) fn encode_text(text: &StatText, out: &mut Writer<'_>) {
    let bytes = text.as_str().as_bytes();
    out.u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    out.bytes(bytes);
}

pub(super) fn decode_text(reader: &mut Reader<'_>) -> Result<StatText, BatchError> {
    let len = reader.u8()?;
    let bytes = reader.bytes(usize::from(len))?;
    let text = str::from_utf8(bytes).map_err(|_| BatchError::Text)?;
    StatText::new(text).map_err(|_| BatchError::Text)
}

pub(super) fn decode_name(reader: &mut Reader<'_>) -> Result<Name, BatchError> {
    Name::decode(reader).map_err(|_| BatchError::Name)
}

/// A decoded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    series: Vec<StatKey>,
    entries: Vec<Entry>,
}

/// A record with an index for its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time: UnixTime,
    pub(super) player: Option<ClientId>,
    pub(super) series: usize,
    pub(super) sample: Sample,
}

impl Batch {
    /// Decodes a batch.
    ///
    /// It allocates in proportion to the length of `bytes`, at most [`BATCH_BYTES_MAX`], and never
    /// by a count that they state.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if a field is out of range; nothing of the batch is returned.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() > BATCH_BYTES_MAX {
            return Err(BatchError::Count);
        }
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            VERSION => {}
            version => return Err(BatchError::Version(version)),
        }
        let mut decoder = Decoder::default();
        let mut entries = Vec::new();
        while entries.is_empty() || !reader.is_empty() {
            entries.push(decoder.entry(&mut reader)?);
        }
        decoder.check_players()?;
        Ok(Self {
            series: decoder.series.entries,
            entries,
        })
    }

    /// Returns the records in order.
    pub fn records(&self) -> impl Iterator<Item = StatRecord> {
        self.entries.iter().filter_map(|entry| {
            Some(StatRecord {
                time: entry.time,
                player: entry.player,
                key: self.series.get(entry.series)?.clone(),
                sample: entry.sample.clone(),
            })
        })
    }

    /// Returns the number of records, at least 1.
    pub const fn record_count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn series(&self) -> &[StatKey] {
        &self.series
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Entries in order of definition.
#[derive(Debug)]
struct Table<T> {
    entries: Vec<T>,
    known: BTreeSet<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            known: BTreeSet::new(),
        }
    }
}

impl<T: Ord + Clone> Table<T> {
    /// Reads an index, and returns its entry; `None` if a definition follows.
    fn read(&self, reader: &mut Reader<'_>) -> Result<Option<T>, BatchError> {
        let index = varint::read_len(reader, self.entries.len())?;
        Ok(self.entries.get(index).cloned())
    }

    fn define(&mut self, entry: T) -> Result<T, BatchError> {
        if !self.known.insert(entry.clone()) {
            return Err(BatchError::Repeated);
        }
        self.entries.push(entry.clone());
        Ok(entry)
    }
}

#[derive(Debug, Default)]
struct Decoder {
    time: u64,
    series: Table<StatKey>,
    names: Table<Name>,
    texts: Table<StatText>,
    players: Vec<ClientId>,
}

impl Decoder {
    fn entry(&mut self, reader: &mut Reader<'_>) -> Result<Entry, BatchError> {
        let head = reader.u8()?;
        if head & !(KIND | FORM | HAS_PLAYER) != 0 || head & FORM == FORM {
            return Err(BatchError::Head(head));
        }
        let step = varint::read_signed(reader)?;
        self.time = self
            .time
            .wrapping_add(u64::from_ne_bytes(step.to_ne_bytes()));
        let series = self.series(reader)?;
        let player = if head & HAS_PLAYER == 0 {
            None
        } else {
            Some(self.player(reader)?)
        };
        let sample = match head & KIND {
            STATE if head & FORM == 0 => Sample::State(self.text(reader)?),
            STATE => return Err(BatchError::Head(head)),
            kind => {
                let number = read_number(head & FORM, reader)?;
                match kind {
                    ADD => Sample::Add(number),
                    SET => Sample::Set(number),
                    _ => Sample::Event(number),
                }
            }
        };
        Ok(Entry {
            time: UnixTime::from_millis(self.time),
            player,
            series,
            sample,
        })
    }

    fn series(&mut self, reader: &mut Reader<'_>) -> Result<usize, BatchError> {
        let next = self.series.entries.len();
        let index = varint::read_len(reader, next)?;
        if index < next {
            return Ok(index);
        }
        let name = self.name(reader)?;
        let count = varint::read_len(reader, StatKey::DIMENSIONS_MAX)?;
        let mut dimensions = Vec::new();
        for _ in 0..count {
            dimensions.push((self.name(reader)?, self.text(reader)?));
        }
        let key = StatKey::from_sorted(name, dimensions).ok_or(BatchError::Repeated)?;
        self.series.define(key)?;
        Ok(index)
    }

    fn name(&mut self, reader: &mut Reader<'_>) -> Result<Name, BatchError> {
        match self.names.read(reader)? {
            Some(name) => Ok(name),
            None => self.names.define(decode_name(reader)?),
        }
    }

    fn text(&mut self, reader: &mut Reader<'_>) -> Result<StatText, BatchError> {
        match self.texts.read(reader)? {
            Some(text) => Ok(text),
            None => self.texts.define(decode_text(reader)?),
        }
    }

    fn player(&mut self, reader: &mut Reader<'_>) -> Result<ClientId, BatchError> {
        let index = varint::read_len(reader, self.players.len())?;
        if let Some(player) = self.players.get(index) {
            return Ok(*player);
        }
        let player = ClientId(reader.u64()?);
        self.players.push(player);
        Ok(player)
    }

    /// Refuses players that are defined twice. There may be as many as records, and sorting them once
    /// takes a quarter of the time of a set.
    fn check_players(&mut self) -> Result<(), BatchError> {
        self.players.sort_unstable();
        if self.players.is_sorted_by(|before, after| before < after) {
            Ok(())
        } else {
            Err(BatchError::Repeated)
        }
    }
}

fn read_number(form: u8, reader: &mut Reader<'_>) -> Result<Number, BatchError> {
    if form == INT {
        return Ok(Number::Int(varint::read_signed(reader)?));
    }
    let value = if form == SHORT_FLOAT {
        f64::from(f32::from_bits(reader.u32()?))
    } else {
        f64::from_bits(reader.u64()?)
    };
    let float = decode_float(value)?;
    // The shortest form, or there would be two encodings.
    if self::form(Number::Float(float)) != form {
        return Err(BatchError::Number);
    }
    Ok(Number::Float(float))
}

/// Rejects what [`Finite`] would change.
pub(super) fn decode_float(value: f64) -> Result<Finite, BatchError> {
    let float = Finite::new(value).ok_or(BatchError::Number)?;
    if float.get().to_bits() != value.to_bits() {
        return Err(BatchError::Number);
    }
    Ok(float)
}

/// Why bytes are not a [`Batch`], or a row of [`Rollups`](super::Rollups) does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes end before the last field.
    Truncated,
    /// This many bytes follow the last field.
    Trailing(usize),
    /// This release does not read this version.
    Version(u8),
    /// The kind or form of a record is unknown.
    Head(u8),
    /// A number is out of range, not finite, or not in its shortest form.
    Number,
    /// A name is invalid.
    Name,
    /// A text is invalid.
    Text,
    /// A count or index is over its limit.
    Count,
    /// Something is defined twice, or out of order.
    Repeated,
}

impl From<Truncated> for BatchError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("fewer bytes than the fields need"),
            Self::Trailing(len) => write!(f, "{len} bytes behind the last field"),
            Self::Version(version) => {
                write!(f, "format version {version} is unknown")
            }
            Self::Head(head) => write!(f, "no record begins with {head:#04x}"),
            Self::Number => f.write_str("a number out of range, or not in its shortest form"),
            Self::Name => f.write_str("an invalid name"),
            Self::Text => f.write_str("an invalid text"),
            Self::Count => f.write_str("a count or index over its limit"),
            Self::Repeated => f.write_str("a definition twice, or out of order"),
        }
    }
}

impl core::error::Error for BatchError {}
