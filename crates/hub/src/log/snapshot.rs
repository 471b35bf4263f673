//! Snapshots of the index of mails and keys: writes them in bounded steps, and loads the newest valid one.
//!
//! A snapshot may mix states of the index between its first and its last step. It holds mails in
//! segments before `segment` only, and a start reads the log from `segment` on again: what happened
//! to a mail since is applied once more, with the same result. So mails can be stored, acknowledged
//! and copied while a snapshot is written, and no second copy of the index is needed. The same holds for
//! keys.

use super::Log;
use super::format::{self, HEAD_BYTES, LogRecord};
use super::index::Place;
use super::kv::KvTable;
use super::mails::{Key, Loader, Mails};
use super::segment::{FileError, SegmentFile, SegmentId, SnapshotId};
use super::snapshot_format::{
    self, ENTRIES_MAX, ENTRY_BYTES, KeyEntry, SENT_ENTRIES_MAX, SnapshotEnd, SnapshotHead,
    SnapshotRecord,
};
use crate::field::MailSeq;
use crate::kv::KvKey;
use wire::ClientId;

/// Snapshots on the disk, and the one that is being written.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// Least `since` of a new one.
    after: u64,
    /// Bytes of log from the segment on that the last one has reached.
    pub(super) since: u64,
    /// The segment that the last one, also one that failed, has reached.
    segment: SegmentId,
    next: SnapshotId,
    /// The newest complete one.
    complete: Option<SnapshotId>,
    writing: Option<Writing>,
    written: u64,
    failed: u64,
}

#[derive(Debug)]
struct Writing {
    id: SnapshotId,
    segment: SegmentId,
    /// The next mail has this key or a later one.
    cursor: Key,
    /// Whether all mails are written; keys follow.
    has_mails: bool,
    /// The last key written.
    last_key: Option<KvKey>,
    entries: u64,
    /// Size of the file, bytes.
    len: u64,
    unsynced: usize,
}

/// Entries that one step reads at most.
const STEP_ENTRIES: usize = 4 * SENT_ENTRIES_MAX;

/// Bytes that are written between syncs: a sync of more would delay acknowledgements.
const SYNC_BYTES: usize = 1 << 20;

impl Snapshots {
    pub(super) const fn new(after: u64) -> Self {
        Self {
            after,
            since: 0,
            segment: SegmentId(0),
            next: SnapshotId(1),
            complete: None,
            writing: None,
            written: 0,
            failed: 0,
        }
    }

    /// Returns how many snapshots were completed, and how many were dropped.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.written, self.failed)
    }
}

impl<F: SegmentFile> Log<F> {
    /// Does one step of writing a snapshot, if one is due; returns whether there is more to do.
    /// Nothing is pending, so the index has nothing that is not on disk.
    pub(super) fn write_snapshot(&mut self) -> bool {
        let result = match self.snapshots.writing.take() {
            Some(writing) => self.continue_snapshot(writing),
            None if self.is_snapshot_due() => self.begin_snapshot(),
            None => return false,
        };
        if result.is_err() {
            // The log does not need it.
            self.drop_unfinished();
        }
        true
    }

    /// Removes all snapshots, to free room; returns whether there was one.
    pub(super) fn drop_snapshots(&mut self) -> bool {
        let unfinished = self.snapshots.writing.take().is_some();
        if unfinished {
            self.drop_unfinished();
        }
        let complete = self.snapshots.complete.take();
        if let Some(id) = complete {
            self.snapshots.failed = self.snapshots.failed.saturating_add(1);
            self.files.remove_snapshot(id).unwrap_or_default();
        }
        unfinished || complete.is_some()
    }

    fn is_snapshot_due(&self) -> bool {
        let bytes = self.index.mail_count().saturating_mul(ENTRY_BYTES) as u64;
        let oldest = self.segments.first_key_value();
        let newest = self.newest();
        // All snapshots together are at most as large as the log that was written meanwhile.
        self.snapshots.since >= self.snapshots.after.max(bytes)
            && newest > self.snapshots.segment
            && oldest.is_some_and(|(oldest, _)| *oldest < newest)
    }

    fn begin_snapshot(&mut self) -> Result<(), FileError> {
        let segment = self.newest();
        let id = self.snapshots.next;
        self.snapshots.next = id.next();
        self.snapshots.segment = segment;
        self.snapshots.since = self.end;
        let start_checksum = self.start_checksum(segment).ok_or(FileError::Failed)?;
        let head = SnapshotHead {
            log: self.index.log,
            segment,
            start_checksum,
        };
        let mut bytes = Vec::new();
        snapshot_format::encode_head(&head, id, 0, &mut bytes);
        self.files.append_snapshot(id, &bytes)?;
        self.snapshots.writing = Some(Writing {
            id,
            segment,
            cursor: (ClientId(0), MailSeq(0)),
            has_mails: false,
            last_key: None,
            entries: 0,
            len: bytes.len() as u64,
            unsynced: bytes.len(),
        });
        Ok(())
    }

    fn continue_snapshot(&mut self, mut writing: Writing) -> Result<(), FileError> {
        let mut bytes = Vec::new();
        let is_last = self.encode_step(&mut writing, &mut bytes);
        self.files.append_snapshot(writing.id, &bytes)?;
        writing.len = writing.len.saturating_add(bytes.len() as u64);
        writing.unsynced = writing.unsynced.saturating_add(bytes.len());
        if is_last || writing.unsynced >= SYNC_BYTES {
            self.files.sync_snapshot(writing.id)?;
            writing.unsynced = 0;
        }
        if is_last {
            let before = self.snapshots.complete.replace(writing.id);
            // One that is left is removed by the next start.
            before.map(|before| self.files.remove_snapshot(before));
            self.snapshots.written = self.snapshots.written.saturating_add(1);
        } else {
            self.snapshots.writing = Some(writing);
        }
        Ok(())
    }

    /// Encodes the next entries, and the end after the last; returns whether it did.
    fn encode_step(&self, writing: &mut Writing, bytes: &mut Vec<u8>) -> bool {
        if !writing.has_mails {
            self.encode_mails(writing, bytes);
            if !writing.has_mails || self.index.kv.len() > 0 {
                return false;
            }
        } else if !self.encode_keys(writing, bytes) {
            return false;
        }
        // Behind all entries, so that each sender of one is known.
        let senders: Vec<_> = self.index.mails.senders().all().collect();
        for senders in senders.chunks(SENT_ENTRIES_MAX) {
            let offset = writing.len.saturating_add(bytes.len() as u64);
            snapshot_format::encode_senders(senders, writing.id, offset, bytes);
        }
        let end = SnapshotEnd {
            entries: writing.entries,
            segment: self.newest(),
            offset: self.end,
        };
        let offset = writing.len.saturating_add(bytes.len() as u64);
        snapshot_format::encode_end(&end, writing.id, offset, bytes);
        true
    }

    fn encode_mails(&self, writing: &mut Writing, bytes: &mut Vec<u8>) {
        let mut entries = Vec::with_capacity(STEP_ENTRIES);
        let mut all = self.index.mails.entries_from(writing.cursor);
        for entry in all.by_ref().take(STEP_ENTRIES) {
            writing.cursor = (entry.player, MailSeq(entry.seq.0.saturating_add(1)));
            // Later mails are in the part of the log that a start reads.
            if u64::from(entry.segment) < writing.segment.0 {
                entries.push(*entry);
            }
        }
        writing.has_mails = all.next().is_none();
        let (id, len) = (writing.id, writing.len);
        for entries in entries.chunks(SENT_ENTRIES_MAX) {
            let offset = len.saturating_add(bytes.len() as u64);
            snapshot_format::encode_sent_entries(entries, id, offset, bytes);
        }
        writing.entries = writing.entries.saturating_add(entries.len() as u64);
    }

    /// Encodes the next keys; returns whether it has reached the last.
    fn encode_keys(&self, writing: &mut Writing, bytes: &mut Vec<u8>) -> bool {
        let mut keys = Vec::new();
        let mut last = None;
        let after = writing.last_key.take();
        let mut all = self.index.kv.after(after.as_ref());
        for (key, entry) in all.by_ref().take(ENTRIES_MAX) {
            last = Some(key);
            let fields = (
                entry.place.segment.0.try_into(),
                entry.place.offset.try_into(),
            );
            if let (Ok(segment), Ok(offset)) = fields
                && entry.place.segment < writing.segment
            {
                keys.push(KeyEntry {
                    sequence: entry.sequence,
                    segment,
                    offset,
                    len: entry.len,
                });
            }
        }
        let is_last = all.next().is_none();
        writing.last_key = last.cloned();
        if !keys.is_empty() {
            let offset = writing.len.saturating_add(bytes.len() as u64);
            snapshot_format::encode_keys(&keys, writing.id, offset, bytes);
        }
        writing.entries = writing.entries.saturating_add(keys.len() as u64);
        is_last
    }

    /// Counts and removes the snapshot that has the last number.
    fn drop_unfinished(&mut self) {
        self.snapshots.failed = self.snapshots.failed.saturating_add(1);
        let id = SnapshotId(self.snapshots.next.0.saturating_sub(1));
        self.files.remove_snapshot(id).unwrap_or_default();
    }

    /// Returns the checksum of the first record of `segment`, if it is its start.
    fn start_checksum(&mut self, segment: SegmentId) -> Option<u32> {
        let mut bytes = [0; format::START_BYTES];
        self.files.read(segment, 0, &mut bytes).ok()?;
        match format::decode(&bytes, segment, 0) {
            Ok((LogRecord::Start(_), _)) => Some(u32::from_be_bytes(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// Loads the newest snapshot that fits the log in `segments`, which ends at `end`, and removes
    /// all others. Returns the segment that it has reached, and how many were ignored.
    pub(super) fn load_snapshot(
        &mut self,
        segments: &[SegmentId],
        end: Place,
    ) -> Result<(Option<SegmentId>, u64), FileError> {
        let mut loaded = None;
        let mut ignored = 0_u64;
        for id in self.files.list_snapshots()?.into_iter().rev() {
            self.snapshots.next = self.snapshots.next.max(id.next());
            if loaded.is_none() {
                if let Some((segment, mails, kv)) = self.read_snapshot(id, segments, end) {
                    self.index.mails = mails;
                    self.index.kv = kv;
                    self.snapshots.complete = Some(id);
                    self.snapshots.segment = segment;
                    loaded = Some(segment);
                    continue;
                }
                ignored = ignored.saturating_add(1);
            }
            // One that is left is ignored again.
            self.files.remove_snapshot(id).unwrap_or_default();
        }
        Ok((loaded, ignored))
    }

    fn read_snapshot(
        &mut self,
        id: SnapshotId,
        segments: &[SegmentId],
        log_end: Place,
    ) -> Option<(SegmentId, Mails, KvTable)> {
        let mut reader = SnapshotReader::new(id);
        let SnapshotRecord::Head(head) = reader.next(&mut self.files)? else {
            return None;
        };
        let oldest = *segments.first()?;
        if !segments.contains(&head.segment)
            || self.start_checksum(head.segment) != Some(head.start_checksum)
        {
            return None;
        }
        // The log before is not read now: at least each file must be in its place.
        for segment in segments.iter().filter(|segment| **segment < head.segment) {
            self.start_checksum(*segment)?;
        }
        let mut loader = Loader::default();
        let mut kv = KvTable::default();
        let mut count = 0_u64;
        let end = loop {
            match reader.next(&mut self.files)? {
                // Entries without senders are of an earlier release: the log has these.
                SnapshotRecord::Head(_) | SnapshotRecord::Entries(_) => return None,
                SnapshotRecord::Senders(senders) => {
                    for (number, node) in senders.iter() {
                        if !loader.add_sender(number, node) {
                            return None;
                        }
                    }
                }
                SnapshotRecord::SentEntries(entries) => {
                    for entry in entries.iter() {
                        count = count.saturating_add(1);
                        let segment = SegmentId(entry.segment.into());
                        if segment >= head.segment {
                            return None;
                        }
                        // Mail in a removed segment was acknowledged, has expired, or was copied.
                        if segment >= oldest && !loader.push(entry) {
                            return None;
                        }
                    }
                }
                SnapshotRecord::Keys(keys) => {
                    for key in keys.iter() {
                        count = count.saturating_add(1);
                        let segment = SegmentId(key.segment.into());
                        if segment >= head.segment {
                            return None;
                        }
                        // As above.
                        if segment >= oldest {
                            self.read_key(&key, &mut kv)?;
                        }
                    }
                }
                SnapshotRecord::End(end) => break end,
            }
        };
        let written_at = Place {
            segment: end.segment,
            offset: end.offset,
        };
        if end.entries != count || written_at > log_end {
            return None;
        }
        Some((head.segment, loader.finish()?, kv))
    }

    /// Reads the record of a key, and adds it to `kv`.
    fn read_key(&mut self, key: &KeyEntry, kv: &mut KvTable) -> Option<()> {
        let len = usize::try_from(key.len).ok()?;
        if len > HEAD_BYTES.saturating_add(format::PAYLOAD_BYTES_MAX) {
            return None;
        }
        let place = Place {
            segment: SegmentId(key.segment.into()),
            offset: key.offset.into(),
        };
        let mut bytes = vec![0; len];
        self.files
            .read(place.segment, place.offset, &mut bytes)
            .ok()?;
        match format::decode(&bytes, place.segment, place.offset) {
            Ok((LogRecord::KvSet(stored), _)) if stored.sequence == key.sequence => {
                // Its role follows with the state of the segment that is read next.
                kv.set(&stored, None, place, key.len);
                Some(())
            }
            _ => None,
        }
    }
}

/// Reads the records of a snapshot in order.
struct SnapshotReader {
    id: SnapshotId,
    /// Position of the next record, bytes.
    offset: u64,
    bytes: Vec<u8>,
    /// The part of `bytes` that was not decoded yet.
    rest: core::ops::Range<usize>,
}

const READ_BYTES: usize = 1 << 20;

impl SnapshotReader {
    fn new(id: SnapshotId) -> Self {
        Self {
            id,
            offset: 0,
            bytes: vec![0; READ_BYTES],
            rest: 0..0,
        }
    }

    /// Returns the next record, or `None` if it is not valid.
    fn next(&mut self, files: &mut impl SegmentFile) -> Option<SnapshotRecord<'_>> {
        if self.rest.len() < RECORD_BYTES_MAX {
            let read = files.read_snapshot(self.id, self.offset, &mut self.bytes);
            self.rest = 0..read.ok()?;
        }
        let rest = self.bytes.get(self.rest.clone())?;
        let (record, whole) = snapshot_format::decode(rest, self.id, self.offset).ok()?;
        self.offset = self.offset.saturating_add(whole as u64);
        self.rest.start = self.rest.start.saturating_add(whole);
        Some(record)
    }
}

/// Longest record of a snapshot, bytes.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + 1 + ENTRIES_MAX * ENTRY_BYTES;
