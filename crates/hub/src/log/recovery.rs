//! Recovery: rebuilds the index from the segments on disk.

use core::fmt;

use super::format::{self, HEAD_BYTES, LogRecord, ReadError};
use super::index::{Index, Place};
use super::segment::{FileError, SegmentFile, SegmentId};
use super::snapshot_format::IndexEntry;
use super::{AppendError, Log};
use crate::field::MailSeq;
use crate::shard::Shard;
use wire::ClientId;

impl<F: SegmentFile> Log<F> {
    pub(super) fn recover(&mut self) -> Result<Recovery, OpenError> {
        let mut bytes = Vec::new();
        let found = self.files.list()?;
        let newest = self.newest_begun(&found, &mut bytes)?;
        // Segment numbers have no gaps, and only the oldest is removed.
        for ((one, _), (next, _)) in found.iter().zip(found.iter().skip(1)) {
            if *next != one.next() && newest.is_some_and(|newest| *next <= newest.segment) {
                return Err(OpenError::Missing(one.next()));
            }
        }
        let is_begun = |segment| newest.is_some_and(|newest| segment <= newest.segment);
        let (begun, later): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(segment, _)| is_begun(*segment));
        let end = newest.unwrap_or_default();
        let segments: Vec<_> = begun.iter().map(|(segment, _)| *segment).collect();
        let (reached, snapshots_ignored) = self.load_snapshot(&segments, end)?;
        let restored = self.index.mail_count() as u64;
        let mut recovery = self.replay(&begun, reached, &mut bytes)?;
        recovery.snapshots_ignored = snapshots_ignored;
        recovery.restored = restored;
        if recovery.corrupt > 0 && reached.is_some() {
            // A copy or an acknowledgement may be lost; the log before says what there was.
            let torn_bytes = recovery.torn_bytes;
            self.index = Index::default();
            recovery = self.replay(&begun, None, &mut bytes)?;
            recovery.snapshots_ignored = snapshots_ignored.saturating_add(1);
            recovery.torn_bytes = torn_bytes;
        }
        for (segment, _) in later {
            self.files.remove(segment)?;
        }
        Ok(recovery)
    }

    /// Applies all records from the segment `first` on, and prepares the newest for writing.
    fn replay(
        &mut self,
        begun: &[(SegmentId, u64)],
        first: Option<SegmentId>,
        bytes: &mut Vec<u8>,
    ) -> Result<Recovery, OpenError> {
        let mut recovery = Recovery::default();
        let newest = begun.last().map(|(segment, _)| *segment);
        let mut replay = Replay::default();
        self.snapshots.since = 0;
        for (segment, len) in begun {
            self.segments.insert(*segment, *len);
            if first.is_some_and(|first| *segment < first) {
                continue;
            }
            self.read_whole(*segment, *len, bytes)?;
            let is_newest = Some(*segment) == newest;
            let age = if is_newest { Age::Newest } else { Age::Older };
            let before = recovery.records;
            let index = &mut self.index;
            let scan = scan(
                *segment,
                bytes,
                age,
                &mut recovery,
                &mut |record, place, len| {
                    replay.apply(index, record, place, len);
                },
            );
            let scan = scan.map_err(|_| OpenError::Foreign(*segment))?;
            // Continuing would remove a file that only seems to hold no mail.
            if recovery.records == before && !is_zero(bytes) {
                return Err(OpenError::Corrupt(*segment));
            }
            recovery.segments = recovery.segments.saturating_add(1);
            self.snapshots.since = self.snapshots.since.saturating_add(scan.end);
            if is_newest {
                self.end = scan.end;
                recovery.torn_bytes = self.cut(*segment, bytes, scan.end)?;
            }
        }
        replay.flush(&mut self.index);
        Ok(recovery)
    }

    /// Returns the newest segment with complete state, and the end of its records. Later ones hold
    /// nothing that was acknowledged.
    fn newest_begun(
        &mut self,
        found: &[(SegmentId, u64)],
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Place>, OpenError> {
        for (segment, len) in found.iter().rev() {
            if u32::try_from(segment.0).is_err() || u32::try_from(*len).is_err() {
                return Err(OpenError::Foreign(*segment));
            }
            self.read_whole(*segment, *len, bytes)?;
            let read = |age| {
                scan(
                    *segment,
                    bytes,
                    age,
                    &mut Recovery::default(),
                    &mut |_, _, _| {},
                )
                .map_err(|_| OpenError::Foreign(*segment))
            };
            let newest = read(Age::Newest)?;
            if newest.ready {
                return Ok(Some(Place {
                    segment: *segment,
                    offset: newest.end,
                }));
            }
            // A segment follows only after its state is on disk: this one was complete, and is not
            // any more.
            if read(Age::Older)?.used || is_mixed_up(*segment, bytes) {
                return Err(OpenError::Corrupt(*segment));
            }
        }
        Ok(None)
    }

    /// Reads a segment into `bytes`, which is kept: a new one would cost as much as the read.
    fn read_whole(
        &mut self,
        segment: SegmentId,
        len: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        let len = usize::try_from(len).map_err(|_| OpenError::Failed)?;
        bytes.resize(len, 0);
        let read = self.files.read(segment, 0, bytes)?;
        bytes.truncate(read);
        Ok(())
    }

    /// Rewrites the newest segment as it was read, with zeros after the last whole record, and
    /// syncs it. Returns how many bytes were cut.
    ///
    /// After a failed sync or a kill, what a read returns may be in memory only; rewriting makes it
    /// durable. And bytes after the last whole record must never decode as a record later.
    fn cut(&mut self, segment: SegmentId, bytes: &mut Vec<u8>, end: u64) -> Result<u64, OpenError> {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let tail = bytes.get_mut(end..).unwrap_or_default();
        let torn = tail
            .chunks(ZEROS.len())
            .rposition(|chunk| Some(chunk) != ZEROS.get(..chunk.len()))
            .map_or(0, |last| {
                last.saturating_add(1)
                    .saturating_mul(ZEROS.len())
                    .min(tail.len())
            });
        tail.fill(0);
        bytes.truncate(end.saturating_add(torn));
        self.files.write(segment, 0, bytes)?;
        self.files.sync(segment)?;
        Ok(torn as u64)
    }
}

/// Applies records to the index. Changes of mailboxes are gathered and applied by player, so that
/// each block is visited once; changes of different mailboxes do not depend on each other.
#[derive(Default)]
struct Replay {
    changes: Vec<Change>,
    /// Mails that follow each other in `changes`.
    stored: Vec<IndexEntry>,
}

enum Change {
    Stored(IndexEntry),
    Acknowledged(ClientId, MailSeq),
    Dropped(ClientId, MailSeq),
}

/// Changes that are gathered at most; each takes 40 bytes.
const CHANGES_MAX: usize = 1 << 20;

impl Replay {
    fn apply(&mut self, index: &mut Index, record: &LogRecord<'_>, place: Place, len: u32) {
        // Once all numbers of senders were used, a new sender may get one that gathered mail names.
        let must_flush = !index.mails.senders().has_fresh();
        if must_flush || matches!(record, LogRecord::Purged(_)) {
            self.flush(index);
        }
        match record {
            LogRecord::Mail(mail) => {
                let entry = index.on_mail(mail, place, len);
                self.changes.push(Change::Stored(entry));
            }
            LogRecord::Mailing(mailing) => {
                let entries = index.on_mailing(mailing, place, len);
                self.changes.extend(entries.map(Change::Stored));
            }
            LogRecord::Ack { player, upto } => {
                self.changes.push(Change::Acknowledged(*player, *upto));
            }
            LogRecord::Dropped(mails) => {
                let dropped = mails
                    .iter()
                    .map(|(player, seq)| Change::Dropped(*player, *seq));
                self.changes.extend(dropped);
            }
            LogRecord::Start(_)
            | LogRecord::Ready
            | LogRecord::Boot(_)
            | LogRecord::Node(_)
            | LogRecord::Refusal { .. }
            | LogRecord::PartRefusal { .. }
            | LogRecord::Counts { .. }
            | LogRecord::Total { .. }
            | LogRecord::Time(_)
            | LogRecord::KvSet(_)
            | LogRecord::KvDelete { .. }
            | LogRecord::KvMark(_)
            | LogRecord::Ran(_)
            | LogRecord::Purged(_)
            | LogRecord::Shard(_)
            | LogRecord::GroupJoin { .. }
            | LogRecord::GroupLeave { .. }
            | LogRecord::GroupMembers { .. } => index.apply(record, place, len),
        }
        if self.changes.len() >= CHANGES_MAX {
            self.flush(index);
        }
    }

    fn flush(&mut self, index: &mut Index) {
        // Stable: changes of one mailbox stay in order.
        self.changes.sort_by_key(|change| match change {
            Change::Stored(entry) => entry.player,
            Change::Acknowledged(player, _) | Change::Dropped(player, _) => *player,
        });
        let mails = &mut index.mails;
        for change in self.changes.drain(..) {
            match change {
                Change::Stored(entry) => self.stored.push(entry),
                Change::Acknowledged(player, upto) => {
                    mails.put_all(&mut self.stored);
                    mails.acknowledge(player, upto);
                }
                Change::Dropped(player, seq) => {
                    mails.put_all(&mut self.stored);
                    mails.remove(player, seq);
                }
            }
        }
        mails.put_all(&mut self.stored);
    }
}

/// Result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Segments read. A snapshot of the mail index takes the place of older ones.
    pub segments: u64,
    /// Records read.
    pub records: u64,
    /// Mails restored from a snapshot.
    pub restored: u64,
    /// Snapshots that were broken, unfinished or did not fit the log. They cost time, not mail.
    pub snapshots_ignored: u64,
    /// Bytes after the last whole record of the newest segment, rounded up to 512. They were
    /// written and never acknowledged; corruption there cannot be told apart.
    pub torn_bytes: u64,
    /// Corrupt ranges in older segments that were read, of one record or more: the disk has lost
    /// synced data.
    pub corrupt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Newest,
    /// A segment that was synced before the next one began.
    Older,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scan {
    /// End of the last whole record, bytes.
    end: u64,
    /// Whether its header and state are complete.
    ready: bool,
    /// Whether any record follows the state, or did once.
    used: bool,
}

/// A valid record that this release cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Foreign;

/// Scans `bytes` of `segment`, and gives each record with its place and length to `apply`.
///
/// In the newest segment the first invalid record is the end: nothing after it was acknowledged.
/// In older ones an invalid range is counted as corrupt, and the scan continues after it.
fn scan(
    segment: SegmentId,
    bytes: &[u8],
    age: Age,
    recovery: &mut Recovery,
    apply: &mut dyn FnMut(&LogRecord<'_>, Place, u32),
) -> Result<Scan, Foreign> {
    let mut scan = Scan {
        end: 0,
        ready: false,
        used: false,
    };
    let mut started = false;
    let mut budget = (bytes.len() as u64).saturating_mul(SEARCH_FACTOR);
    loop {
        let rest = at(bytes, scan.end);
        let place = Place {
            segment,
            offset: scan.end,
        };
        match format::decode(rest, segment, scan.end) {
            Ok((record, len)) => {
                started |= matches!(record, LogRecord::Start(_));
                scan.used |= scan.ready || !is_state(&record);
                scan.ready |= (started || age == Age::Older) && record == LogRecord::Ready;
                apply(&record, place, u32::try_from(len).unwrap_or(u32::MAX));
                recovery.records = recovery.records.saturating_add(1);
                scan.end = scan.end.saturating_add(len as u64);
            }
            Err(ReadError::Unknown(_)) => return Err(Foreign),
            Err(ReadError::End | ReadError::Broken) if age == Age::Newest => return Ok(scan),
            Err(ReadError::End) if is_zero(rest) => return Ok(scan),
            Err(ReadError::End | ReadError::Broken) => {
                recovery.corrupt = recovery.corrupt.saturating_add(1);
                let next = skip(rest, place).or_else(|| search(rest, place, &mut budget));
                let Some(next) = next else {
                    // What was not searched may hold anything.
                    scan.used |= budget == 0;
                    return Ok(scan);
                };
                scan.ready |= is_ready_lost(rest, next.saturating_sub(scan.end));
                scan.end = next;
            }
        }
    }
}

/// Returns whether `segment` does not begin with its header, though data follows.
///
/// The header is in one sector, and a torn write leaves zeros after it. So such a segment is
/// corrupt, or belongs to another log.
fn is_mixed_up(segment: SegmentId, bytes: &[u8]) -> bool {
    format::decode(bytes, segment, 0) == Err(ReadError::Broken)
        && !is_zero(at(bytes, format::START_BYTES as u64))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| Some(chunk) == ZEROS.get(..chunk.len()))
}

const ZEROS: [u8; 512] = [0; 512];

/// How often a search may read each byte of a segment, on average. Mails that imitate record heads
/// make it read more.
const SEARCH_FACTOR: u64 = 8;

const READY_BYTES: u64 = HEAD_BYTES as u64 + 1;

const fn is_state(record: &LogRecord<'_>) -> bool {
    match record {
        LogRecord::Start(_)
        | LogRecord::Ready
        | LogRecord::Node(_)
        | LogRecord::Refusal { .. }
        | LogRecord::PartRefusal { .. }
        | LogRecord::Total { .. }
        | LogRecord::GroupMembers { .. }
        | LogRecord::Shard(_)
        | LogRecord::KvMark(_)
        | LogRecord::Ran(_) => true,
        LogRecord::Boot(_)
        | LogRecord::Mail(_)
        | LogRecord::Mailing(_)
        | LogRecord::Dropped(_)
        | LogRecord::Ack { .. }
        | LogRecord::Counts { .. }
        | LogRecord::Time(_)
        | LogRecord::KvSet(_)
        | LogRecord::KvDelete { .. }
        | LogRecord::Purged(_)
        | LogRecord::GroupJoin { .. }
        | LogRecord::GroupLeave { .. } => false,
    }
}

/// Returns whether a corrupt range of `len` bytes was a [`LogRecord::Ready`]: no other record is as
/// short.
fn is_ready_lost(rest: &[u8], len: u64) -> bool {
    len == READY_BYTES && rest.get(4..HEAD_BYTES) == Some(&[0, 0, 0, 1])
}

/// Returns the position after a corrupt record, if its length field is intact.
fn skip(rest: &[u8], hole: Place) -> Option<u64> {
    let len = u32::from_be_bytes(*rest.get(4..HEAD_BYTES)?.first_chunk()?);
    let step = u64::from(len).saturating_add(HEAD_BYTES as u64);
    let next = hole.offset.saturating_add(step);
    format::decode(at(rest, step), hole.segment, next)
        .is_ok()
        .then_some(next)
}

/// Returns the position of the next valid record. It may be inside the body of a mail with a lost
/// head, if the sender guessed its position.
fn search(rest: &[u8], hole: Place, budget: &mut u64) -> Option<u64> {
    for (step, head) in (0_u64..).zip(rest.windows(HEAD_BYTES)).skip(1) {
        let len = head.last_chunk().map_or(0, |len| u32::from_be_bytes(*len));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 || len > format::PAYLOAD_BYTES_MAX {
            continue;
        }
        *budget = budget.saturating_sub(len as u64);
        if *budget == 0 {
            return None;
        }
        let offset = hole.offset.saturating_add(step);
        if format::decode(at(rest, step), hole.segment, offset).is_ok() {
            return Some(offset);
        }
    }
    None
}

fn at(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or_default()
}

/// A log that failed to open, with its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailure<F> {
    /// The reason.
    pub error: OpenError,
    /// The files, as opening left them.
    pub files: F,
}

impl<F> fmt::Display for OpenFailure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<F: fmt::Debug> core::error::Error for OpenFailure<F> {}

/// Why a log did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk has no room; nothing is broken.
    Full,
    /// The disk failed.
    Failed,
    /// The state at the start of this segment, or all of it, is corrupt: the disk has lost data, or
    /// the file belongs to another log. Continuing would lose acknowledged mail, so an operator
    /// must decide.
    Corrupt(SegmentId),
    /// This segment is missing between older and newer ones; only the oldest is ever removed.
    Missing(SegmentId),
    /// This segment holds a record that this release cannot read.
    Foreign(SegmentId),
    /// The log belongs to another part of the players than the join file gives this hub: its mail would
    /// not be found. Nothing is broken.
    Shard {
        /// The part of the log.
        log: Shard,
        /// The part that the hub has.
        hub: Shard,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room on the disk for a first segment"),
            Self::Failed => f.write_str("the disk failed"),
            Self::Corrupt(segment) => {
                write!(
                    f,
                    "the disk has lost the beginning of segment {}",
                    segment.0
                )
            }
            Self::Missing(segment) => {
                write!(f, "the disk has lost segment {}", segment.0)
            }
            Self::Foreign(segment) => {
                write!(f, "segment {} was written by another release", segment.0)
            }
            Self::Shard { log, hub } => write!(
                f,
                "the log is that of {log}, but the hubs in the join file make this hub {hub}"
            ),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Full => Self::Full,
            FileError::Failed => Self::Failed,
        }
    }
}

impl From<AppendError> for OpenError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::Full,
            AppendError::Dead => Self::Failed,
        }
    }
}
