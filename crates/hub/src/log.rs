//! The log: all persistent data of a hub, in append-only files.
//!
//! A log is a sequence of segments. Each begins with all small state (runs of nodes, refusals,
//! counts), followed by records in order of arrival: mail, acknowledgements, keys, state changes. The
//! oldest segment is removed once it holds no stored mail and no key; if these pin more than half of
//! the log, they are copied to the end. So disk use stays under twice the stored data plus a
//! few segments, and the state needs no second store.
//!
//! Snapshots of the positions of all mails and keys are written now and then, so that a start reads the end of
//! the log only. The log does not depend on them: without a valid one, a start reads all of it.
//!
//! - [`mod@format`]: encoding of records; [`snapshot_format`]: that of snapshots.
//! - [`SegmentFile`]: the files; [`MemorySegments`] with fault injection, or `FileSegments`
//!   (feature `fs`).
//! - `index`: in-memory state, `mails`: that of mails; `kv`: that of keys; `snapshot`: writes and reads snapshots;
//!   `recovery`: rebuilds the index from disk.

pub mod format;
#[cfg(feature = "fs")]
mod fs;
mod groups;
mod index;
mod kv;
mod mails;
mod overlay;
mod recovery;
mod segment;
mod senders;
mod snapshot;
pub mod snapshot_format;
mod spare;

use std::collections::BTreeMap;

use wire::ClientId;

#[cfg(feature = "fs")]
pub use fs::{FileSegments, SegmentFiller};
pub use overlay::Overlay;
pub use recovery::{OpenError, OpenFailure, Recovery};
pub use segment::{FileError, MemorySegments, Prepared, SegmentFile, SegmentId, SnapshotId, Wait};
pub use senders::SenderUsage;

use crate::field::{LogId, MailSeq};
use crate::kv::KvKey;
use crate::record::PlayerList;
use crate::shard::Shard;
use format::{LogRecord, Start, StoredKv, StoredMail, StoredMailing};
pub(crate) use groups::{GROUP_BYTES, MEMBER_BYTES};
use index::Place;
pub(crate) use index::{
    Index, MailEntry, NODE_BYTES, Refused, StateKind, mail_bytes, mailing_bytes, total_bytes,
};
use kv::KvPlace;
use mails::{FIRST, Key};
use snapshot::Snapshots;
use spare::{Spare, Step};

pub(crate) struct Log<F> {
    pub(crate) files: F,
    segment_bytes: u64,
    pub(crate) index: Index,
    /// Segments that hold records, with their lengths; the last one is written to.
    segments: BTreeMap<SegmentId, u64>,
    end: u64,
    /// Encoded records that are not written yet.
    pending: Vec<u8>,
    spare: Spare,
    copying: Copying,
    /// Mails that could not be copied, since their record is broken.
    corrupt: u64,
    /// Bytes appended that housekeeping has not compensated yet.
    debt: u64,
    snapshots: Snapshots,
    /// Set by the first failed write, sync or allocation, and never cleared. A full disk does not
    /// set it.
    pub(crate) is_dead: bool,
}

/// Purpose of a record, which determines how much room it must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Data that fills the disk: mail, refusals, counts. Leaves an eighth of the last segment free.
    Data,
    /// A deletion of a key or of a member: leaves seven eighths of that eighth.
    Delete,
    /// A copy out of the oldest segment, which may then be removed: leaves five eighths of that eighth.
    Copy,
    /// A run of a node: leaves half of that eighth.
    Join,
    /// Acknowledgements, which free room.
    Ack,
    Boot,
}

/// Progress of copying the oldest segment's mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    /// All records up to this offset were visited, bytes.
    Records(u64),
    /// A record is broken: the mails of the segment are looked up in the index, from this key on.
    Index(Key),
    /// Some mails could not be read. Retried with the next segment.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendError {
    Full,
    /// The disk has failed; the log accepts nothing more.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The read failed; a retry may succeed.
    Unreadable,
    Corrupt,
}

/// Room reserved for starts of the hub: over 100 of them.
const BOOT_RESERVE: u64 = 2_048;

/// Bytes that one copy step reads.
const COPY_STEP: usize = 4 * format::PAYLOAD_BYTES_MAX;

/// Length of the shortest segment, bytes: the eighth reserved for acknowledgements holds the longest
/// record.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 8 * (format::PAYLOAD_BYTES_MAX as u64 + 4_096);

/// Entries of the index that one copy step visits, and mails that it copies.
const INDEX_STEP: usize = 4_096;
const COPY_MAILS: usize = 4;

/// Bytes appended per housekeeping step.
const TIDY_BYTES: u64 = COPY_STEP as u64 / 4;

impl<F: SegmentFile> Log<F> {
    /// Recovers the log in `files`, makes the newest segment durable as it was read, and records a
    /// start of the hub.
    pub(crate) fn open(
        files: F,
        segment_bytes: u64,
        snapshot_after: u64,
        (new, shard): (LogId, Option<Shard>),
    ) -> Result<(Self, Recovery), OpenFailure<F>> {
        let mut log = Self {
            files,
            segment_bytes,
            index: Index::default(),
            segments: BTreeMap::new(),
            end: 0,
            pending: Vec::new(),
            spare: Spare::new(),
            copying: Copying::Records(0),
            corrupt: 0,
            debt: 0,
            snapshots: Snapshots::new(snapshot_after),
            is_dead: false,
        };
        match log.begin(new, shard) {
            Ok(recovery) => Ok((log, recovery)),
            Err(error) => {
                let files = log.files;
                Err(OpenFailure { error, files })
            }
        }
    }

    fn begin(&mut self, new: LogId, shard: Option<Shard>) -> Result<Recovery, OpenError> {
        let recovery = self.recover()?;
        let log = self.index.shard;
        if let Some(hub) = shard
            && hub != log
            && !self.segments.is_empty()
        {
            return Err(OpenError::Shard { log, hub });
        }
        let boot = self.index.boot.saturating_add(1);
        if self.segments.is_empty() {
            self.index.boot = boot;
            self.index.log = new;
            self.index.shard = shard.unwrap_or_default();
            self.advance_spare(Wait::UntilDone);
            self.roll()?;
        } else {
            self.append(&LogRecord::Boot(boot), Purpose::Boot)?;
        }
        self.flush()?;
        Ok(recovery)
    }

    /// Gives the log another id, durable on return: a new segment begins with it. Older segments keep
    /// theirs; recovery takes the newest. After an error the id is the old one.
    pub(crate) fn renew_id(&mut self, id: LogId) -> Result<(), AppendError> {
        if self.is_dead {
            return Err(AppendError::Dead);
        }
        self.want_spare();
        self.advance_spare(Wait::UntilDone);
        let old = core::mem::replace(&mut self.index.log, id);
        self.roll().inspect_err(|_| self.index.log = old)
    }

    /// Appends `record`; it is durable after the next [`flush`](Self::flush).
    pub(crate) fn append(
        &mut self,
        record: &LogRecord<'_>,
        purpose: Purpose,
    ) -> Result<(), AppendError> {
        if self.is_dead {
            return Err(AppendError::Dead);
        }
        if self.push(record, self.reserve(purpose)) {
            return Ok(());
        }
        // Waits only if the newest segment filled faster than the next was prepared.
        self.advance_spare(Wait::UntilDone);
        self.roll()?;
        if self.push(record, self.reserve(purpose)) {
            Ok(())
        } else {
            Err(AppendError::Full)
        }
    }

    /// Writes and syncs all records. After an error, the log accepts nothing more.
    pub(crate) fn flush(&mut self) -> Result<(), FileError> {
        if self.is_dead {
            return Err(FileError::Failed);
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let segment = self.newest();
        let done = self
            .files
            .write(segment, self.end, &self.pending)
            .and_then(|()| self.files.sync(segment));
        if done.is_err() {
            self.is_dead = true;
            return Err(FileError::Failed);
        }
        self.end = self.end.saturating_add(self.pending.len() as u64);
        self.pending.clear();
        Ok(())
    }

    /// Does one bounded housekeeping step, with nothing pending; returns whether there is more to
    /// do.
    pub(crate) fn tidy(&mut self) -> bool {
        if self.is_dead || !self.pending.is_empty() {
            return false;
        }
        if self.spare.is_due() {
            self.advance_spare(Wait::No);
            return true;
        }
        self.advance_spare(Wait::No);
        // Both, so that neither delays the other.
        let has_written = self.write_snapshot();
        self.tidy_segments() || has_written
    }

    /// Removes the oldest segment, or copies some of its mail.
    fn tidy_segments(&mut self) -> bool {
        let Some((&oldest, &len)) = self.segments.first_key_value() else {
            return false;
        };
        if oldest == self.newest() {
            return false;
        }
        if self.index.live_in(oldest) == 0 {
            return self.drop_segment(oldest);
        }
        let used: u64 = self.segments.values().sum();
        let allowed = self.index.data_bytes().saturating_mul(2);
        let slack = self.segment_bytes.saturating_mul(3);
        // On a full disk, some mail in the oldest segment must not keep all later ones.
        let is_pinned = self.spare.has_no_room()
            && self.index.live_in(oldest) <= (self.segment_bytes / 64).saturating_mul(2);
        let is_due = is_pinned || used > allowed.saturating_add(slack);
        is_due && self.copy_forward(oldest, len)
    }

    /// Does one housekeeping step if enough was appended; returns whether to call again.
    ///
    /// A step reads four times the bytes that trigger it, so the oldest segment empties faster than
    /// the newest fills, even if half of it must be copied.
    pub(crate) fn keep_up(&mut self) -> bool {
        let Some(left) = self.debt.checked_sub(TIDY_BYTES) else {
            return false;
        };
        let has_more = self.tidy();
        self.debt = if has_more { left } else { 0 };
        has_more
    }

    pub(crate) const fn want_spare(&mut self) {
        self.spare.is_wanted = true;
    }

    /// Tries to allocate the next segment; returns whether one is ready.
    pub(crate) fn find_room(&mut self) -> bool {
        self.want_spare();
        self.advance_spare(Wait::No);
        self.spare.is_ready()
    }

    /// Returns how many snapshots were completed, and how many were dropped.
    pub(crate) const fn snapshot_counts(&self) -> (u64, u64) {
        self.snapshots.counts()
    }

    /// Returns how many mails were dropped from a removed segment, since their record was broken.
    pub(crate) const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    pub(crate) fn read<'b>(
        &mut self,
        player: ClientId,
        seq: MailSeq,
        entry: &MailEntry,
        buf: &'b mut Vec<u8>,
    ) -> Result<StoredMail<'b>, ReadFailure> {
        let record = self.read_record(seq, entry, buf)?;
        record.mail_for(player).ok_or(ReadFailure::Corrupt)
    }

    /// Reads the record of the mail `seq`, which several players may share.
    fn read_record<'b>(
        &mut self,
        seq: MailSeq,
        entry: &MailEntry,
        buf: &'b mut Vec<u8>,
    ) -> Result<LogRecord<'b>, ReadFailure> {
        let len = usize::try_from(entry.size.record_bytes()).map_err(|_| ReadFailure::Corrupt)?;
        buf.clear();
        buf.resize(len, 0);
        let place = entry.place;
        self.files
            .read(place.segment, place.offset, buf)
            .map_err(|_| ReadFailure::Unreadable)?;
        match format::decode(buf, place.segment, place.offset) {
            Ok((record, _)) if record.mail_seq() == Some(seq) => Ok(record),
            Ok(_) | Err(_) => Err(ReadFailure::Corrupt),
        }
    }

    /// Reads a durable key; nothing is pending.
    pub(crate) fn read_kv<'b>(
        &mut self,
        key: &KvKey,
        entry: &KvPlace,
        buf: &'b mut Vec<u8>,
    ) -> Result<StoredKv<'b>, ReadFailure> {
        let len = usize::try_from(entry.len).map_err(|_| ReadFailure::Corrupt)?;
        buf.clear();
        buf.resize(len, 0);
        let place = entry.place;
        self.files
            .read(place.segment, place.offset, buf)
            .map_err(|_| ReadFailure::Unreadable)?;
        match format::decode(buf, place.segment, place.offset) {
            Ok((LogRecord::KvSet(stored), _))
                if stored.key == *key && stored.sequence == entry.sequence =>
            {
                Ok(stored)
            }
            _ => Err(ReadFailure::Corrupt),
        }
    }

    /// Returns whether the small state, at most five eighths of a segment, may grow by `bytes` of `kind`.
    /// Each kind has its own share.
    pub(crate) const fn has_state_room(&self, kind: StateKind, bytes: u64) -> bool {
        let used = self.index.state_bytes_of(kind);
        let share = match kind {
            StateKind::Totals => self.segment_bytes / 4,
            StateKind::Nodes | StateKind::Refusals | StateKind::Groups => self.segment_bytes / 8,
        };
        used.saturating_add(bytes) <= share
    }

    fn newest(&self) -> SegmentId {
        self.segments
            .last_key_value()
            .map_or(SegmentId(0), |(segment, _)| *segment)
    }

    /// Returns how much room a record must leave in the newest segment; none if a spare is ready.
    fn reserve(&self, purpose: Purpose) -> u64 {
        let newest = self.segments.last_key_value();
        let bytes = newest.map_or(self.segment_bytes, |(_, bytes)| *bytes);
        match purpose {
            Purpose::Data if !self.spare.is_ready() => bytes / 8,
            Purpose::Delete if !self.spare.is_ready() => (bytes / 64).saturating_mul(7),
            Purpose::Copy if !self.spare.is_ready() => (bytes / 64).saturating_mul(5),
            Purpose::Join if !self.spare.is_ready() => bytes / 16,
            Purpose::Data | Purpose::Delete | Purpose::Copy | Purpose::Join | Purpose::Ack => {
                BOOT_RESERVE
            }
            Purpose::Boot => 0,
        }
    }

    /// Encodes and applies `record`, if that leaves `reserve` bytes.
    fn push(&mut self, record: &LogRecord<'_>, reserve: u64) -> bool {
        let Some((&segment, &capacity)) = self.segments.last_key_value() else {
            return false;
        };
        let start = self.pending.len();
        let offset = self.end.saturating_add(start as u64);
        format::encode(record, segment, offset, &mut self.pending);
        let end = self.end.saturating_add(self.pending.len() as u64);
        if end.saturating_add(reserve) > capacity {
            self.pending.truncate(start);
            return false;
        }
        let len = u32::try_from(end.saturating_sub(offset)).unwrap_or(u32::MAX);
        self.index.apply(record, Place { segment, offset }, len);
        self.debt = self.debt.saturating_add(len.into());
        self.snapshots.since = self.snapshots.since.saturating_add(len.into());
        true
    }

    /// Switches to the spare segment, after writing all small state to it; both segments are
    /// synced.
    fn roll(&mut self) -> Result<(), AppendError> {
        self.flush().map_err(|_| AppendError::Dead)?;
        let (segment, len) = self.spare.take().ok_or(AppendError::Full)?;
        self.want_spare();
        // The state has grown since a short segment was allocated.
        if len < self.state_segment_bytes() {
            self.is_dead |= self.files.remove(segment).is_err();
            return Err(AppendError::Full);
        }
        self.segments.insert(segment, len);
        if self.copying == Copying::Failed {
            self.copying = Copying::Index(FIRST);
        }
        self.end = 0;
        let start = LogRecord::Start(Start {
            version: format::VERSION,
            boot: self.index.boot,
            last_mail: self.index.last_mail,
            log: self.index.log,
            time: self.index.time,
        });
        let state: Vec<_> = self.index.state().collect();
        for record in [start].into_iter().chain(state).chain([LogRecord::Ready]) {
            // State is limited to five eighths of a segment, so it fits.
            if !self.push(&record, 0) {
                self.is_dead = true;
                return Err(AppendError::Dead);
            }
        }
        self.flush().map_err(|_| AppendError::Dead)
    }

    /// Returns the length of the shortest segment that holds all small state.
    const fn state_segment_bytes(&self) -> u64 {
        let state = self.index.state_bytes().saturating_add(BOOT_RESERVE);
        state.saturating_mul(2)
    }

    /// Begins to allocate the next segment if one is wanted, and takes the result of an attempt.
    ///
    /// On a nearly full disk it tries shorter segments, down to an eighth of the configured length.
    fn advance_spare(&mut self, wait: Wait) {
        let mut step = self.spare.poll(&mut self.files, wait);
        if self.spare.is_due() && step == Step::Done {
            // If the log was written with larger segments, the state may exceed half of one.
            let state = self.state_segment_bytes();
            let least = (self.segment_bytes / 8).max(SEGMENT_BYTES_MIN).max(state);
            step = self.begin_spare((self.segment_bytes.max(state), least));
        }
        loop {
            step = match step {
                Step::NoRoom(bytes, least) if self.drop_snapshots() => {
                    self.begin_spare((bytes, least))
                }
                Step::NoRoom(bytes, least) if bytes / 2 >= least => {
                    self.begin_spare((bytes / 2, least))
                }
                // Acknowledgements free room.
                Step::NoRoom(..) => {
                    self.spare.is_wanted = false;
                    return;
                }
                Step::Pending if wait == Wait::UntilDone => self.spare.poll(&mut self.files, wait),
                Step::Done | Step::Pending => return,
                // No acknowledgement repairs a folder. A restart finds out what is left.
                Step::Failed => {
                    self.is_dead = true;
                    return;
                }
            };
        }
    }

    fn begin_spare(&mut self, lengths: (u64, u64)) -> Step {
        let segment = self.newest().next();
        // The index counts segments and offsets in 32 bits.
        if u32::try_from(segment.0).is_err() || u32::try_from(lengths.0).is_err() {
            self.spare.is_wanted = false;
            return Step::Done;
        }
        self.spare.begin(&mut self.files, segment, lengths)
    }

    fn drop_segment(&mut self, segment: SegmentId) -> bool {
        if self.files.remove(segment).is_err() {
            // Kept, and retried after a restart.
            return false;
        }
        self.segments.remove(&segment);
        self.copying = Copying::Records(0);
        self.want_spare();
        true
    }

    fn copy_forward(&mut self, oldest: SegmentId, len: u64) -> bool {
        // Copies do not count as appended.
        let debt = self.debt;
        let moved = match self.copying {
            Copying::Records(at) => self.copy_records(oldest, len, at),
            Copying::Index(from) => self.copy_from_index(oldest, from),
            Copying::Failed => false,
        };
        self.debt = debt;
        moved
    }

    fn copy_records(&mut self, oldest: SegmentId, len: u64, start: u64) -> bool {
        let mut bytes = vec![0; COPY_STEP];
        let Ok(read) = self.files.read(oldest, start, &mut bytes) else {
            return false;
        };
        let bytes = bytes.get(..read).unwrap_or_default();
        let (mut rest, mut at) = (bytes, start);
        while let Ok((record, whole)) = format::decode(rest, oldest, at) {
            let place = Place {
                segment: oldest,
                offset: at,
            };
            if self.copy_record(record, place).is_err() {
                return false;
            }
            at = at.saturating_add(whole as u64);
            self.copying = Copying::Records(at);
            rest = rest.get(whole..).unwrap_or_default();
        }
        if rest.len() == bytes.len() || at >= len {
            // The end, or a broken record: the index says what is left.
            self.copying = Copying::Index(FIRST);
        }
        self.flush().is_ok()
    }

    /// Copies mails of `oldest` that the index names, and drops those with a broken record. One that
    /// cannot be read now keeps the segment.
    fn copy_from_index(&mut self, oldest: SegmentId, from: Key) -> bool {
        let mut found = Vec::new();
        let mut next = None;
        for entry in self.index.mails.entries_from(from).take(INDEX_STEP) {
            let key = entry.key();
            next = Some((key.0, MailSeq(key.1.0.saturating_add(1))));
            if u64::from(entry.segment) == oldest.0 {
                found.push((key, entry.to_mail()));
            }
            if found.len() >= COPY_MAILS {
                break;
            }
        }
        let mut buf = Vec::new();
        let mut is_kept = false;
        for ((player, seq), entry) in found {
            // A record that several players share was copied for all of them.
            if !self.index.is_live_at(player, seq, entry.place) {
                continue;
            }
            match self.read_record(seq, &entry, &mut buf) {
                Ok(record) if record.mail_for(player).is_some() => {
                    if self.copy_record(record, entry.place).is_err() {
                        return false;
                    }
                }
                Ok(_) | Err(ReadFailure::Corrupt) => {
                    self.index.remove(player, seq);
                    self.corrupt = self.corrupt.saturating_add(1);
                }
                Err(ReadFailure::Unreadable) => is_kept = true,
            }
        }
        match next {
            Some(next) if !is_kept => self.copying = Copying::Index(next),
            Some(_) => self.copying = Copying::Failed,
            None => return self.copy_key(oldest),
        }
        self.flush().is_ok()
    }

    /// Copies a durable key of `oldest`, or drops it if its record is broken.
    fn copy_key(&mut self, oldest: SegmentId) -> bool {
        let mut buf = Vec::new();
        let Some((key, entry)) = self.index.kv.first_in(oldest) else {
            // The segment is still there though nothing is left to copy.
            self.copying = Copying::Failed;
            return false;
        };
        match self.read_kv(&key, &entry, &mut buf) {
            Ok(stored) => {
                if self
                    .append(&LogRecord::KvSet(stored), Purpose::Copy)
                    .is_err()
                {
                    return false;
                }
            }
            Err(ReadFailure::Corrupt) => {
                self.index.kv.remove(&key);
                self.corrupt = self.corrupt.saturating_add(1);
            }
            Err(ReadFailure::Unreadable) => {
                self.copying = Copying::Failed;
                return false;
            }
        }
        self.flush().is_ok()
    }

    /// Copies a record for the mails of it that are stored at `place`.
    fn copy_record(&mut self, record: LogRecord<'_>, place: Place) -> Result<(), AppendError> {
        match record {
            LogRecord::Mail(mail) if self.index.is_live_at(mail.player, mail.seq, place) => {
                self.append(&LogRecord::Mail(mail), Purpose::Copy)
            }
            LogRecord::Mailing(mailing) => {
                let is_live =
                    |player: &ClientId| self.index.is_live_at(*player, mailing.seq, place);
                let players: Vec<_> = mailing.players.iter().filter(is_live).collect();
                let mut ids = Vec::new();
                let Some(players) = PlayerList::encode_into(&players, &mut ids) else {
                    return Ok(());
                };
                let copy = StoredMailing {
                    players,
                    part: None,
                    ..mailing
                };
                self.append(&LogRecord::Mailing(copy), Purpose::Copy)
            }
            LogRecord::KvSet(stored) if self.index.kv.is_live_at(&stored.key, place) => {
                self.append(&LogRecord::KvSet(stored), Purpose::Copy)
            }
            LogRecord::Mail(_)
            | LogRecord::KvSet(_)
            | LogRecord::KvDelete { .. }
            | LogRecord::KvMark(_)
            | LogRecord::Shard(_)
            | LogRecord::GroupJoin { .. }
            | LogRecord::GroupLeave { .. }
            | LogRecord::GroupMembers { .. }
            | LogRecord::Start(_)
            | LogRecord::Ready
            | LogRecord::Boot(_)
            | LogRecord::Node(_)
            | LogRecord::Ack { .. }
            | LogRecord::Dropped(_)
            | LogRecord::Refusal { .. }
            | LogRecord::PartRefusal { .. }
            | LogRecord::Counts { .. }
            | LogRecord::Total { .. }
            | LogRecord::Time(_)
            | LogRecord::Ran(_)
            | LogRecord::Purged(_) => Ok(()),
        }
    }
}
