//! The raw log: batches in segments, as they were received.

use std::collections::BTreeMap;

use wire::UnixTime;

use super::format::{self, RawBatch, START_BYTES, StatsLogRecord};
use crate::log::format::ReadError;
use crate::log::{AppendError, FileError, OpenError, SegmentFile, SegmentId};

/// A place in the raw log. As a number, the segment is the upper half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) segment: SegmentId,
    pub(super) offset: u64,
}

impl Position {
    pub(super) const fn to_number(self) -> u64 {
        (self.segment.0 << 32) | (self.offset & 0xffff_ffff)
    }

    pub(super) const fn from_number(number: u64) -> Self {
        Self {
            segment: SegmentId(number >> 32),
            offset: number & 0xffff_ffff,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    len: u64,
    /// Nothing in earlier segments was received after this time.
    time: UnixTime,
}

/// The segments of the raw log; batches are appended to the newest.
pub(super) struct RawLog<F> {
    pub(super) files: F,
    segment_bytes: u64,
    segments: BTreeMap<SegmentId, Segment>,
    end: u64,
    /// Encoded records that are not written yet.
    pending: Vec<u8>,
    /// When the last batch was received.
    pub(super) time: UnixTime,
    /// Set by the first failed write or sync, and never cleared.
    pub(super) is_dead: bool,
}

impl<F: SegmentFile> RawLog<F> {
    pub(super) const fn new(files: F, segment_bytes: u64) -> Self {
        Self {
            files,
            segment_bytes,
            segments: BTreeMap::new(),
            end: 0,
            pending: Vec::new(),
            time: UnixTime::from_millis(0),
            is_dead: false,
        }
    }

    /// Finds the segments. Those behind the last one that was begun hold nothing that was confirmed,
    /// and are removed.
    pub(super) fn find(&mut self) -> Result<(), OpenError> {
        let mut bytes = [0; START_BYTES];
        for (id, len) in self.files.list()? {
            if u32::try_from(id.0).is_err() || u32::try_from(len).is_err() {
                return Err(OpenError::Foreign(id));
            }
            let read = self.files.read(id, 0, &mut bytes)?;
            match format::decode(bytes.get(..read).unwrap_or_default(), id, 0) {
                Ok((StatsLogRecord::Start(time), _)) => {
                    let before = self.segments.last_key_value();
                    if let Some((before, _)) = before.filter(|(before, _)| before.next() != id) {
                        return Err(OpenError::Missing(before.next()));
                    }
                    self.segments.insert(id, Segment { len, time });
                    self.time = self.time.max(time);
                }
                // Its first sector was not written before a power cut.
                Err(ReadError::End) => self.files.remove(id)?,
                Ok(_) | Err(ReadError::Broken) => return Err(OpenError::Corrupt(id)),
                Err(ReadError::Unknown(_)) => return Err(OpenError::Foreign(id)),
            }
        }
        Ok(())
    }

    /// Returns the oldest segment, if there is one.
    pub(super) fn oldest(&self) -> Option<SegmentId> {
        self.segments.first_key_value().map(|(id, _)| *id)
    }

    fn newest(&self) -> SegmentId {
        let newest = self.segments.last_key_value();
        newest.map_or(SegmentId(0), |(id, _)| *id)
    }

    /// Returns whether a segment exists.
    pub(super) fn contains(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Reads all batches from `position` on, in order, and makes the newest segment durable as it was
    /// read. Returns the bytes read, and the broken ranges in older segments.
    pub(super) fn replay(
        &mut self,
        position: Position,
        apply: &mut dyn FnMut(&RawBatch<'_>) -> Result<(), OpenError>,
    ) -> Result<(u64, u64), OpenError> {
        let (mut total, mut corrupt) = (0_u64, 0_u64);
        let newest = self.newest();
        let found: Vec<_> = self.segments.range(position.segment..).collect();
        let found: Vec<_> = found.into_iter().map(|(id, it)| (*id, it.len)).collect();
        let mut bytes = Vec::new();
        for (id, len) in found {
            read_whole(&mut self.files, id, len, &mut bytes)?;
            let from = if id == position.segment {
                position.offset
            } else {
                0
            };
            let time = &mut self.time;
            // What is before `from` is in the checkpoint; only its times count.
            let mut end = scan(id, &bytes, 0, &mut |batch, offset| {
                *time = (*time).max(batch.received);
                if offset < from { Ok(()) } else { apply(batch) }
            })?;
            if end < from {
                corrupt = corrupt.saturating_add(1);
                end = scan(id, &bytes, from, &mut |batch, _| apply(batch))?;
            }
            total = total.saturating_add(end.saturating_sub(from));
            if id == newest {
                self.end = end;
                self.cut(id, &mut bytes, end)?;
            } else if !is_zero(bytes_from(&bytes, end)) {
                corrupt = corrupt.saturating_add(1);
            }
        }
        Ok((total, corrupt))
    }

    /// Rewrites the newest segment as it was read, with zeros after the last whole record, and syncs
    /// it: after a failed sync or a kill, what a read returns may be in memory only.
    fn cut(&mut self, id: SegmentId, bytes: &mut [u8], end: u64) -> Result<(), OpenError> {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        bytes.get_mut(end..).unwrap_or_default().fill(0);
        self.files.write(id, 0, bytes)?;
        self.files.sync(id)?;
        Ok(())
    }

    /// Appends a batch; it is durable after the next [`flush`](Self::flush).
    pub(super) fn append(&mut self, batch: &RawBatch<'_>) -> Result<(), AppendError> {
        if self.is_dead {
            return Err(AppendError::Dead);
        }
        if !self.push(batch) {
            self.roll()?;
            if !self.push(batch) {
                return Err(AppendError::Full);
            }
        }
        self.time = self.time.max(batch.received);
        Ok(())
    }

    fn push(&mut self, batch: &RawBatch<'_>) -> bool {
        let Some((&id, &segment)) = self.segments.last_key_value() else {
            return false;
        };
        let start = self.pending.len();
        let offset = self.end.saturating_add(start as u64);
        format::encode(
            &StatsLogRecord::Batch(*batch),
            id,
            offset,
            &mut self.pending,
        );
        let fits = self.end.saturating_add(self.pending.len() as u64) <= segment.len;
        if !fits {
            self.pending.truncate(start);
        }
        fits
    }

    /// Begins a segment. Its first record is synced with the first batch.
    fn roll(&mut self) -> Result<(), AppendError> {
        self.flush().map_err(|_| AppendError::Dead)?;
        let id = self.newest().next();
        let (len, time) = (self.segment_bytes, self.time);
        match self.files.allocate(id, len) {
            Ok(()) => {}
            Err(FileError::Full) => return Err(AppendError::Full),
            Err(FileError::Failed) => {
                self.is_dead = true;
                return Err(AppendError::Dead);
            }
        }
        self.segments.insert(id, Segment { len, time });
        self.end = 0;
        format::encode(&StatsLogRecord::Start(time), id, 0, &mut self.pending);
        Ok(())
    }

    /// Writes and syncs all records. After an error, the log accepts nothing more.
    pub(super) fn flush(&mut self) -> Result<(), FileError> {
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

    /// Gives the durable batches of one segment from `from` on to `visit`, until that returns false.
    /// Returns where the next part begins, if there is more.
    pub(super) fn read_from(
        &mut self,
        from: Position,
        visit: &mut dyn FnMut(&RawBatch<'_>) -> bool,
    ) -> Result<Option<u64>, OpenError> {
        let mut segments = self.segments.range(from.segment..);
        let Some((id, len)) = segments.next().map(|(id, segment)| (*id, segment.len)) else {
            return Ok(None);
        };
        let following = segments.next().map(|(id, _)| *id);
        let mut bytes = Vec::new();
        read_whole(&mut self.files, id, len, &mut bytes)?;
        let begin = if id == from.segment { from.offset } else { 0 };
        // The batch at which `visit` had enough is the first of the next part.
        let mut stopped = None;
        let mut wants_more = true;
        scan(id, &bytes, begin, &mut |batch, offset| {
            if wants_more {
                wants_more = visit(batch);
            } else {
                stopped.get_or_insert(offset);
            }
            Ok(())
        })?;
        let stopped = stopped.map(|offset| (id, offset));
        let next = stopped.or_else(|| following.map(|id| (id, 0)));
        Ok(next.map(|(segment, offset)| Position { segment, offset }.to_number()))
    }

    /// Returns where the next batch is appended.
    pub(super) fn position(&self) -> Position {
        Position {
            segment: self.newest(),
            offset: self.end.saturating_add(self.pending.len() as u64),
        }
    }

    /// Returns the length of all segments, bytes.
    pub(super) fn bytes(&self) -> u64 {
        let lens = self.segments.values().map(|segment| segment.len);
        lens.fold(0, u64::saturating_add)
    }

    /// Removes the oldest segment if it is before `upto`, and all of it was received before
    /// `horizon`, or all segments take more than `bytes_max`. Returns whether it did.
    pub(super) fn trim(&mut self, upto: SegmentId, horizon: UnixTime, bytes_max: u64) -> bool {
        let mut segments = self.segments.iter();
        let (Some((oldest, _)), Some((_, next))) = (segments.next(), segments.next()) else {
            return false;
        };
        let oldest = *oldest;
        if oldest >= upto || (next.time >= horizon && self.bytes() <= bytes_max) {
            return false;
        }
        // If it cannot be removed, it is tried again later.
        let is_removed = self.files.remove(oldest).is_ok();
        if is_removed {
            self.segments.remove(&oldest);
        }
        is_removed
    }
}

/// Reads the batches of all segments in `files`, in order, up to the first record of each that is not
/// whole: the raw log for a recount.
///
/// # Errors
///
/// [`OpenError`] if the files cannot be read.
pub fn read_raw_log<F: SegmentFile>(
    files: &mut F,
    visit: &mut dyn FnMut(&RawBatch<'_>),
) -> Result<(), OpenError> {
    let mut bytes = Vec::new();
    for (id, len) in files.list()? {
        read_whole(files, id, len, &mut bytes)?;
        scan(id, &bytes, 0, &mut |batch, _| {
            visit(batch);
            Ok(())
        })?;
    }
    Ok(())
}

/// Gives each batch from `offset` on to `visit`, with its own; returns the end of the last whole record.
fn scan(
    id: SegmentId,
    bytes: &[u8],
    offset: u64,
    visit: &mut dyn FnMut(&RawBatch<'_>, u64) -> Result<(), OpenError>,
) -> Result<u64, OpenError> {
    let mut end = offset;
    loop {
        match format::decode(bytes_from(bytes, end), id, end) {
            Ok((record, len)) => {
                if let StatsLogRecord::Batch(batch) = &record {
                    visit(batch, end)?;
                }
                end = end.saturating_add(len as u64);
            }
            Err(ReadError::End | ReadError::Broken) => return Ok(end),
            Err(ReadError::Unknown(_)) => return Err(OpenError::Foreign(id)),
        }
    }
}

fn read_whole<F: SegmentFile>(
    files: &mut F,
    id: SegmentId,
    len: u64,
    bytes: &mut Vec<u8>,
) -> Result<(), OpenError> {
    let len = usize::try_from(len).map_err(|_| OpenError::Failed)?;
    bytes.resize(len, 0);
    let read = files.read(id, 0, bytes)?;
    bytes.truncate(read);
    Ok(())
}

fn bytes_from(bytes: &[u8], offset: u64) -> &[u8] {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    bytes.get(offset..).unwrap_or_default()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
