//! Encoding of snapshots of the mail index.
//!
//! Each snapshot is one file. It holds the position of each mail in the segments before one
//! segment, so that a start reads the log from that segment on only. Its records are framed as in
//! the [log](super::format), with the snapshot's number in place of the segment's: one
//! [`SnapshotHead`], lists of [`IndexEntry`]s ordered by player and number, the senders that they
//! name by number, and one [`SnapshotEnd`].
//! Without a valid end, or with a broken record, it is ignored.

use wire::{ClientId, NodeId, Reader, Writer};

use super::format::{self, ReadError};
use super::segment::{SegmentId, SnapshotId};
use crate::field::{DecodeError, LogId, MailSeq};

/// First bytes of a [`SnapshotHead`].
pub const MAGIC: [u8; 8] = *b"TWHUBIDX";

/// Version of this format. In version 1, which is read too, each mail has its own record and priority
/// 0.
pub const VERSION: u16 = 2;

/// Size of an entry, bytes.
pub const ENTRY_BYTES: usize = 32;

/// Most entries of one record.
pub const ENTRIES_MAX: usize = 2_048;

/// Size of an entry with its sender, and of a sender, bytes.
pub const SENT_ENTRY_BYTES: usize = ENTRY_BYTES + 2;

/// Most of these in one record.
pub const SENT_ENTRIES_MAX: usize = 1_920;

const HEAD: u8 = 128;
const ENTRIES: u8 = 129;
const END: u8 = 130;
const KEYS: u8 = 131;
const SENT_ENTRIES: u8 = 132;
const SENDERS: u8 = 133;

/// Size of a key's entry, bytes.
pub const KEY_ENTRY_BYTES: usize = 20;

/// First of a snapshot: `code 1, magic 8, version 2, log 8, segment 8, start checksum 4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The log.
    pub log: LogId,
    /// The snapshot holds mails in the segments before this one.
    pub segment: SegmentId,
    /// Checksum of that segment's first record, so that the snapshot belongs to that segment only.
    pub start_checksum: u32,
}

/// Position of a mail: `player 8, seq 8, segment 4, offset 4, size 4, expires s 4 [, sender 2]`.
///
/// Packed, so that it takes 34 bytes in the index too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct IndexEntry {
    /// The player.
    pub player: ClientId,
    /// Its number in the mailbox.
    pub seq: MailSeq,
    /// Number of its segment.
    pub segment: u32,
    /// Position of its record in the segment, bytes.
    pub offset: u32,
    /// Its size and priority.
    pub size: MailSize,
    /// When it expires, seconds, rounded up; `u32::MAX` if later or never.
    pub expires_s: u32,
    /// Number of its sender in the same index or snapshot; 0 if unknown.
    pub sender: u16,
}

/// Position of a durable key: `sequence 8, segment 4, offset 4, length 4`. The key is in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// Number of the change that set it.
    pub sequence: u64,
    /// Number of its segment.
    pub segment: u32,
    /// Position of its record in the segment, bytes.
    pub offset: u32,
    /// Length of its record, bytes.
    pub len: u32,
}

/// Size and priority of a mail, in 32 bits: `priority 8, share 7, record length 17`.
///
/// Mails to several players share one record. The size of such a mail in its mailbox, as if it were
/// alone, is a part of the record: the share, in 127ths, rounded up. A share of 0 means that the
/// record is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailSize(u32);

/// Records are shorter, see [`format::PAYLOAD_BYTES_MAX`].
const RECORD_LEN_MASK: u32 = (1 << 17) - 1;
const SHARE_MAX: u32 = 127;
const _: () = assert!(format::HEAD_BYTES + format::PAYLOAD_BYTES_MAX < 1 << 17);

impl MailSize {
    /// Creates the size of a mail with a record of its own.
    #[must_use]
    pub const fn own(record_bytes: u32) -> Self {
        Self(record_bytes & RECORD_LEN_MASK)
    }

    /// Creates the size of a mail that would take `mail_bytes` alone, in a record of several.
    #[must_use]
    pub const fn shared(record_bytes: u32, mail_bytes: u32) -> Self {
        let record = record_bytes & RECORD_LEN_MASK;
        let share = match mail_bytes.saturating_mul(SHARE_MAX).checked_div(record) {
            // Rounded up, so that it is never zero.
            Some(share) if share < SHARE_MAX => share.saturating_add(1),
            Some(_) | None => SHARE_MAX,
        };
        Self(record | (share << 17))
    }

    /// Sets the priority.
    #[must_use]
    pub const fn with_priority(self, priority: u8) -> Self {
        Self((self.0 & 0x00ff_ffff) | ((priority as u32) << 24))
    }

    /// Returns the length of its record, bytes.
    #[must_use]
    pub const fn record_bytes(self) -> u32 {
        self.0 & RECORD_LEN_MASK
    }

    /// Returns its size in its mailbox, bytes.
    #[must_use]
    pub const fn mail_bytes(self) -> u32 {
        let share = (self.0 >> 17) & SHARE_MAX;
        if share == 0 {
            return self.record_bytes();
        }
        self.record_bytes()
            .saturating_mul(share)
            .div_ceil(SHARE_MAX)
    }

    /// Returns whether its record has several mails.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        (self.0 >> 17) & SHARE_MAX != 0
    }

    /// Returns its priority.
    #[must_use]
    pub const fn priority(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
}

/// Last of a snapshot: `code 1, entries 8, segment 8, offset 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEnd {
    /// Entries in the snapshot.
    pub entries: u64,
    /// The newest segment when the snapshot was complete.
    pub segment: SegmentId,
    /// The end of the log in that segment, bytes. A log that ends before has lost data that this
    /// snapshot relies on.
    pub offset: u64,
}

/// A record of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotRecord<'a> {
    /// The first.
    Head(SnapshotHead),
    /// Entries, at least one.
    Entries(Entries<'a>),
    /// Entries with their senders, at least one.
    SentEntries(SentEntries<'a>),
    /// Senders, at least one: `(number 2, node 32)...`
    Senders(Senders<'a>),
    /// Keys, at least one.
    Keys(KeyEntries<'a>),
    /// The last.
    End(SnapshotEnd),
}

/// Encoded entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a>(&'a [[u8; ENTRY_BYTES]]);

impl Entries<'_> {
    /// Decodes the entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> {
        self.0.iter().filter_map(IndexEntry::decode)
    }
}

/// Encoded entries with their senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentEntries<'a>(&'a [[u8; SENT_ENTRY_BYTES]]);

impl SentEntries<'_> {
    /// Decodes the entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> {
        self.0.iter().filter_map(|bytes| {
            let (entry, sender) = bytes.split_first_chunk()?;
            let mut entry = IndexEntry::decode(entry)?;
            entry.sender = u16::from_be_bytes(*sender.first_chunk()?);
            Some(entry)
        })
    }
}

/// Encoded senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senders<'a>(&'a [[u8; SENT_ENTRY_BYTES]]);

impl Senders<'_> {
    /// Decodes the senders with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, NodeId)> {
        self.0.iter().filter_map(|bytes| {
            let (number, node) = bytes.split_first_chunk()?;
            Some((u16::from_be_bytes(*number), NodeId(*node.first_chunk()?)))
        })
    }
}

/// Encoded positions of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntries<'a>(&'a [[u8; KEY_ENTRY_BYTES]]);

impl KeyEntries<'_> {
    /// Decodes the entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = KeyEntry> {
        self.0.iter().filter_map(KeyEntry::decode)
    }
}

/// Appends `head` to `out`, encoded for `offset` of `snapshot`.
pub fn encode_head(head: &SnapshotHead, snapshot: SnapshotId, offset: u64, out: &mut Vec<u8>) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        let mut out = Writer::new(out);
        out.fields(&[&HEAD, &MAGIC, &VERSION, &head.log]);
        out.fields(&[&head.segment.0, &head.start_checksum]);
    });
}

/// Appends at most [`ENTRIES_MAX`] `entries` to `out`, encoded for `offset` of `snapshot`.
pub fn encode_entries(
    entries: &[IndexEntry],
    snapshot: SnapshotId,
    offset: u64,
    out: &mut Vec<u8>,
) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        out.push(ENTRIES);
        for entry in entries.iter().take(ENTRIES_MAX) {
            entry.encode(out);
        }
    });
}

/// Appends at most [`SENT_ENTRIES_MAX`] `entries` with their senders to `out`, encoded for `offset` of
/// `snapshot`.
pub fn encode_sent_entries(
    entries: &[IndexEntry],
    snapshot: SnapshotId,
    offset: u64,
    out: &mut Vec<u8>,
) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        out.push(SENT_ENTRIES);
        for entry in entries.iter().take(SENT_ENTRIES_MAX) {
            entry.encode(out);
            out.extend_from_slice(&{ entry.sender }.to_be_bytes());
        }
    });
}

/// Appends at most [`SENT_ENTRIES_MAX`] `senders` to `out`, encoded for `offset` of `snapshot`.
pub fn encode_senders(
    senders: &[(u16, NodeId)],
    snapshot: SnapshotId,
    offset: u64,
    out: &mut Vec<u8>,
) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        out.push(SENDERS);
        for (number, node) in senders.iter().take(SENT_ENTRIES_MAX) {
            out.extend_from_slice(&number.to_be_bytes());
            out.extend_from_slice(&node.0);
        }
    });
}

/// Appends at most [`ENTRIES_MAX`] positions of `keys` to `out`, encoded for `offset` of `snapshot`.
pub fn encode_keys(keys: &[KeyEntry], snapshot: SnapshotId, offset: u64, out: &mut Vec<u8>) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        out.push(KEYS);
        for key in keys.iter().take(ENTRIES_MAX) {
            key.encode(out);
        }
    });
}

/// Appends `end` to `out`, encoded for `offset` of `snapshot`.
pub fn encode_end(end: &SnapshotEnd, snapshot: SnapshotId, offset: u64, out: &mut Vec<u8>) {
    format::frame(SegmentId(snapshot.0), offset, out, |out| {
        Writer::new(out).fields(&[&END, &end.entries, &end.segment.0, &end.offset]);
    });
}

/// Decodes the record at the front of `bytes`, which is at `offset` of `snapshot`; returns its whole
/// length.
///
/// # Errors
///
/// [`ReadError`]. It allocates nothing.
pub fn decode(
    bytes: &[u8],
    snapshot: SnapshotId,
    offset: u64,
) -> Result<(SnapshotRecord<'_>, usize), ReadError> {
    let (payload, whole) = format::check(bytes, SegmentId(snapshot.0), offset)?;
    let record = decode_payload(payload).map_err(ReadError::Unknown)?;
    Ok((record, whole))
}

fn decode_payload(payload: &[u8]) -> Result<SnapshotRecord<'_>, DecodeError> {
    let mut reader = Reader::new(payload);
    let record = match reader.u8()? {
        HEAD => {
            if reader.array()? != MAGIC || !(1..=VERSION).contains(&reader.u16()?) {
                return Err(DecodeError::Code(HEAD));
            }
            SnapshotRecord::Head(SnapshotHead {
                log: LogId(reader.u64()?),
                segment: SegmentId(reader.u64()?),
                start_checksum: reader.u32()?,
            })
        }
        ENTRIES => {
            let (entries, rest) = reader.take_rest().as_chunks();
            if entries.is_empty() || entries.len() > ENTRIES_MAX || !rest.is_empty() {
                return Err(DecodeError::Trailing(rest.len()));
            }
            SnapshotRecord::Entries(Entries(entries))
        }
        SENT_ENTRIES => SnapshotRecord::SentEntries(SentEntries(take_sent(&mut reader)?)),
        SENDERS => SnapshotRecord::Senders(Senders(take_sent(&mut reader)?)),
        KEYS => {
            let (keys, rest) = reader.take_rest().as_chunks();
            if keys.is_empty() || keys.len() > ENTRIES_MAX || !rest.is_empty() {
                return Err(DecodeError::Trailing(rest.len()));
            }
            SnapshotRecord::Keys(KeyEntries(keys))
        }
        END => SnapshotRecord::End(SnapshotEnd {
            entries: reader.u64()?,
            segment: SegmentId(reader.u64()?),
            offset: reader.u64()?,
        }),
        code => return Err(DecodeError::Code(code)),
    };
    reader.finish(DecodeError::Trailing)?;
    Ok(record)
}

const fn take_sent<'a>(
    reader: &mut Reader<'a>,
) -> Result<&'a [[u8; SENT_ENTRY_BYTES]], DecodeError> {
    let (entries, rest) = reader.take_rest().as_chunks();
    if entries.is_empty() || entries.len() > SENT_ENTRIES_MAX || !rest.is_empty() {
        return Err(DecodeError::Trailing(rest.len()));
    }
    Ok(entries)
}

impl IndexEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        let (player, seq, size) = (self.player, self.seq, self.size);
        out.extend_from_slice(&player.0.to_be_bytes());
        out.extend_from_slice(&seq.0.to_be_bytes());
        for field in [self.segment, self.offset, size.0, self.expires_s] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }

    /// Always succeeds; checked once by the compiler instead of once for each field.
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let (player, rest) = bytes.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (segment, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let expires_s = rest.first_chunk()?;
        Some(Self {
            player: ClientId(u64::from_be_bytes(*player)),
            seq: MailSeq(u64::from_be_bytes(*seq)),
            segment: u32::from_be_bytes(*segment),
            offset: u32::from_be_bytes(*offset),
            size: MailSize(u32::from_be_bytes(*size)),
            expires_s: u32::from_be_bytes(*expires_s),
            sender: 0,
        })
    }
}

impl KeyEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sequence.to_be_bytes());
        for field in [self.segment, self.offset, self.len] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }

    /// Always succeeds.
    fn decode(bytes: &[u8; KEY_ENTRY_BYTES]) -> Option<Self> {
        let (sequence, rest) = bytes.split_first_chunk()?;
        let (segment, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let len = rest.first_chunk()?;
        Some(Self {
            sequence: u64::from_be_bytes(*sequence),
            segment: u32::from_be_bytes(*segment),
            offset: u32::from_be_bytes(*offset),
            len: u32::from_be_bytes(*len),
        })
    }
}
