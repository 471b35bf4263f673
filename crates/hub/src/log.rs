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
mod snapshot;
pub mod snapshot_format;

use std::collections::BTreeMap;

use wire::ClientId;

#[cfg(feature = "fs")]
pub use fs::FileSegments;
pub use overlay::Overlay;
pub use recovery::{OpenError, OpenFailure, Recovery};
pub use segment::{FileError, MemorySegments, SegmentFile, SegmentId, SnapshotId};

use crate::field::{LogId, MailSeq};
use crate::kv::KvKey;
use crate::record::PlayerList;
use format::{LogRecord, Start, StoredKv, StoredMail, StoredMailing};
pub(crate) use groups::{GROUP_BYTES, MEMBER_BYTES};
use index::Place;
pub(crate) use index::{
    Index, MailEntry, NODE_BYTES, Refused, StateKind, mail_bytes, mailing_bytes, total_bytes,
};
use kv::KvPlace;
use snapshot::Snapshots;

pub(crate) struct Log<F> {
    pub(crate) files: F,
    segment_bytes: u64,
    pub(crate) index: Index,
    /// Segments that hold records, with their lengths; the last one is written to.
    segments: BTreeMap<SegmentId, u64>,
    end: u64,
    /// Encoded records that are not written yet.
    pending: Vec<u8>,
    /// The next segment, preallocated, with its length.
    spare: Option<(SegmentId, u64)>,
    spare_wanted: bool,
    /// Offset up to which the oldest segment's mail is copied, bytes.
    copied: u64,
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
    /// Data that fills the disk: mail and its copies, refusals, counts. Leaves an eighth of the
    /// last segment free.
    Data,
    /// A run of a node: leaves half of that eighth.
    Join,
    /// Acknowledgements, which free room.
    Ack,
    Boot,
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

/// Bytes appended per housekeeping step.
const TIDY_BYTES: u64 = COPY_STEP as u64 / 4;

impl<F: SegmentFile> Log<F> {
    /// Recovers the log in `files`, makes the newest segment durable as it was read, and records a
    /// start of the hub.
    pub(crate) fn open(
        files: F,
        segment_bytes: u64,
        snapshot_after: u64,
        new: LogId,
    ) -> Result<(Self, Recovery), OpenFailure<F>> {
        let mut log = Self {
            files,
            segment_bytes,
            index: Index::default(),
            segments: BTreeMap::new(),
            end: 0,
            pending: Vec::new(),
            spare: None,
            spare_wanted: true,
            copied: 0,
            debt: 0,
            snapshots: Snapshots::new(snapshot_after),
            is_dead: false,
        };
        match log.begin(new) {
            Ok(recovery) => Ok((log, recovery)),
            Err(error) => {
                let files = log.files;
                Err(OpenFailure { error, files })
            }
        }
    }

    fn begin(&mut self, new: LogId) -> Result<Recovery, OpenError> {
        let recovery = self.recover()?;
        let boot = self.index.boot.saturating_add(1);
        if self.segments.is_empty() {
            self.index.boot = boot;
            self.index.log = new;
            self.allocate_spare();
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
        if self.spare.is_none() {
            self.want_spare();
            self.allocate_spare();
        }
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
        if self.spare.is_none() {
            self.allocate_spare();
        }
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
        if self.spare.is_none() && self.spare_wanted {
            self.allocate_spare();
            return true;
        }
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
        used > allowed.saturating_add(slack) && self.copy_forward(oldest, len)
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
        self.spare_wanted = true;
    }

    /// Returns how many snapshots were completed, and how many were dropped.
    pub(crate) const fn snapshot_counts(&self) -> (u64, u64) {
        self.snapshots.counts()
    }

    pub(crate) fn read<'b>(
        &mut self,
        player: ClientId,
        seq: MailSeq,
        entry: &MailEntry,
        buf: &'b mut Vec<u8>,
    ) -> Result<StoredMail<'b>, ReadFailure> {
        let len = usize::try_from(entry.size.record_bytes()).map_err(|_| ReadFailure::Corrupt)?;
        buf.clear();
        buf.resize(len, 0);
        let place = entry.place;
        self.files
            .read(place.segment, place.offset, buf)
            .map_err(|_| ReadFailure::Unreadable)?;
        match format::decode(buf, place.segment, place.offset) {
            Ok((LogRecord::Mail(mail), _)) if (mail.player, mail.seq) == (player, seq) => Ok(mail),
            Ok((LogRecord::Mailing(mailing), _)) if mailing.seq == seq => {
                mailing.for_player(player).ok_or(ReadFailure::Corrupt)
            }
            _ => Err(ReadFailure::Corrupt),
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
    const fn reserve(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Data if self.spare.is_none() => self.segment_bytes / 8,
            Purpose::Join if self.spare.is_none() => self.segment_bytes / 16,
            Purpose::Data | Purpose::Join | Purpose::Ack => BOOT_RESERVE,
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
        self.spare_wanted = true;
        self.segments.insert(segment, len);
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

    fn allocate_spare(&mut self) {
        if !core::mem::take(&mut self.spare_wanted) {
            return;
        }
        let segment = self.newest().next();
        // If the log was written with larger segments, the state may exceed half of one.
        let state = self.index.state_bytes().saturating_add(BOOT_RESERVE);
        let bytes = self.segment_bytes.max(state.saturating_mul(2));
        // The index counts segments and offsets in 32 bits.
        if u32::try_from(segment.0).is_err() || u32::try_from(bytes).is_err() {
            return;
        }
        let mut result = self.files.allocate(segment, bytes);
        if result == Err(FileError::Full) && self.drop_snapshots() {
            result = self.files.allocate(segment, bytes);
        }
        match result {
            Ok(()) => self.spare = Some((segment, bytes)),
            // Acknowledgements free room.
            Err(FileError::Full) => {}
            // No acknowledgement repairs a folder. A restart finds out what is left.
            Err(FileError::Failed) => self.is_dead = true,
        }
    }

    fn drop_segment(&mut self, segment: SegmentId) -> bool {
        if self.files.remove(segment).is_err() {
            // Kept, and retried after a restart.
            return false;
        }
        self.segments.remove(&segment);
        self.copied = 0;
        self.spare_wanted = true;
        true
    }

    fn copy_forward(&mut self, oldest: SegmentId, len: u64) -> bool {
        let mut bytes = vec![0; COPY_STEP];
        let Ok(read) = self.files.read(oldest, self.copied, &mut bytes) else {
            return false;
        };
        // Copies do not count as appended.
        let debt = self.debt;
        let moved = self.copy_records(oldest, len, bytes.get(..read).unwrap_or_default());
        self.debt = debt;
        moved
    }

    fn copy_records(&mut self, oldest: SegmentId, len: u64, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Ok((record, whole)) = format::decode(rest, oldest, self.copied) {
            let place = Place {
                segment: oldest,
                offset: self.copied,
            };
            if self.copy_record(record, place).is_err() {
                return false;
            }
            self.copied = self.copied.saturating_add(whole as u64);
            rest = rest.get(whole..).unwrap_or_default();
        }
        // If nothing was read, this is the end, or corrupt: mail behind it stays here.
        let moved = rest.len() < bytes.len() && self.copied < len;
        self.flush().is_ok() && moved
    }

    /// Copies a record for the mails of it that are stored at `place`.
    fn copy_record(&mut self, record: LogRecord<'_>, place: Place) -> Result<(), AppendError> {
        match record {
            LogRecord::Mail(mail) if self.index.is_live_at(mail.player, mail.seq, place) => {
                self.append(&LogRecord::Mail(mail), Purpose::Data)
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
                self.append(&LogRecord::Mailing(copy), Purpose::Data)
            }
            LogRecord::KvSet(stored) if self.index.kv.is_live_at(&stored.key, place) => {
                self.append(&LogRecord::KvSet(stored), Purpose::Data)
            }
            LogRecord::Mail(_)
            | LogRecord::KvSet(_)
            | LogRecord::KvDelete { .. }
            | LogRecord::KvMark(_)
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
            | LogRecord::Time(_) => Ok(()),
        }
    }
}
