//! Checkpoints: all rows of the rollups, and where the raw log continues.

use wire::{Reader, UnixTime};

use super::format::{self, StatsLogRecord};
use super::raw_log::Position;
use crate::log::format::{HEAD_BYTES, PAYLOAD_BYTES_MAX, ReadError};
use crate::log::{FileError, SegmentFile, SegmentId, SnapshotId};
use crate::stats::{BatchError, LoadError, RollupConfig, Rollups, RowLoader};

/// Bytes of rows from which on a record is complete. The longest row takes 21 KiB.
const CHUNK: usize = 32 << 10;

/// Bytes that are written at once.
const WRITE: usize = 1 << 20;

/// Longest record, bytes.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX;

/// A complete checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) id: SnapshotId,
    pub(super) position: Position,
    pub(super) bytes: u64,
}

/// Why a checkpoint was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointFault {
    /// It was not finished, or its bytes are not those that were written.
    Broken,
    /// It was written by another release.
    Foreign,
}

impl From<FileError> for CheckpointFault {
    fn from(_: FileError) -> Self {
        Self::Broken
    }
}

/// Writes a checkpoint of `rollups`, which have all batches before `position`, and syncs it.
pub(super) fn write<F: SegmentFile>(
    files: &mut F,
    id: SnapshotId,
    rollups: &Rollups,
    position: Position,
) -> Result<Checkpoint, FileError> {
    let mut writer = Writer {
        files,
        id,
        out: Vec::new(),
        written: 0,
    };
    writer.push(&StatsLogRecord::Start(UnixTime::default()))?;
    let (mut rows, mut chunk) = (0_u64, Vec::new());
    rollups.visit_rows(position.to_number(), |key, value| {
        rows = rows.saturating_add(1);
        format::push_row(key, value, &mut chunk);
        if chunk.len() >= CHUNK {
            writer.push(&StatsLogRecord::Rows(&chunk))?;
            chunk.clear();
        }
        Ok(())
    })?;
    if !chunk.is_empty() {
        writer.push(&StatsLogRecord::Rows(&chunk))?;
    }
    let position_number = position.to_number();
    writer.push(&StatsLogRecord::End {
        rows,
        position: position_number,
    })?;
    writer.write()?;
    let bytes = writer.written;
    files.sync_snapshot(id)?;
    Ok(Checkpoint {
        id,
        position,
        bytes,
    })
}

struct Writer<'a, F> {
    files: &'a mut F,
    id: SnapshotId,
    out: Vec<u8>,
    written: u64,
}

impl<F: SegmentFile> Writer<'_, F> {
    fn push(&mut self, record: &StatsLogRecord<'_>) -> Result<(), FileError> {
        let offset = self.written.saturating_add(self.out.len() as u64);
        format::encode(record, SegmentId(self.id.0), offset, &mut self.out);
        if self.out.len() >= WRITE {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), FileError> {
        self.files.append_snapshot(self.id, &self.out)?;
        self.written = self.written.saturating_add(self.out.len() as u64);
        self.out.clear();
        Ok(())
    }
}

/// Loads a checkpoint.
pub(super) fn load<F: SegmentFile>(
    files: &mut F,
    id: SnapshotId,
    config: RollupConfig,
) -> Result<(Rollups, Checkpoint), CheckpointFault> {
    let mut loader = RowLoader::new(config);
    let (mut rows, mut offset) = (0_u64, 0_u64);
    let mut window = Window::default();
    loop {
        window.fill(files, id, offset)?;
        let (record, len) = match format::decode(&window.bytes, SegmentId(id.0), offset) {
            Ok(found) => found,
            Err(ReadError::Unknown(_)) => return Err(CheckpointFault::Foreign),
            Err(ReadError::End | ReadError::Broken) => return Err(CheckpointFault::Broken),
        };
        let next = offset.saturating_add(len as u64);
        match record {
            StatsLogRecord::Start(_) if offset == 0 => {}
            StatsLogRecord::Rows(bytes) if offset > 0 => {
                rows = rows.saturating_add(add_rows(&mut loader, bytes)?);
            }
            StatsLogRecord::End {
                rows: count,
                position,
            } if count == rows => {
                let (rollups, found) = loader.finish();
                if found != position {
                    return Err(CheckpointFault::Broken);
                }
                let checkpoint = Checkpoint {
                    id,
                    position: Position::from_number(position),
                    bytes: next,
                };
                return Ok((rollups, checkpoint));
            }
            StatsLogRecord::Start(_)
            | StatsLogRecord::Batch(_)
            | StatsLogRecord::Rows(_)
            | StatsLogRecord::End { .. } => return Err(CheckpointFault::Broken),
        }
        window.bytes.drain(..len);
        offset = next;
    }
}

fn add_rows(loader: &mut RowLoader, bytes: &[u8]) -> Result<u64, CheckpointFault> {
    let mut reader = Reader::new(bytes);
    let mut rows = 0_u64;
    while !reader.is_empty() {
        let row = format::take_row(&mut reader);
        let (key, value) = row.map_err(|_| CheckpointFault::Broken)?;
        loader.add(key, value).map_err(|error| match error {
            LoadError::Value(_, BatchError::Version(_)) => CheckpointFault::Foreign,
            LoadError::Value(..)
            | LoadError::Key
            | LoadError::Order
            | LoadError::NoSeries(_)
            | LoadError::Repeated(_)
            | LoadError::NoPosition => CheckpointFault::Broken,
        })?;
        rows = rows.saturating_add(1);
    }
    Ok(rows)
}

/// Bytes of a file from the current offset on.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    is_end: bool,
}

impl Window {
    /// Reads until a record fits, or the file ends. `offset` is that of the first byte.
    fn fill<F: SegmentFile>(
        &mut self,
        files: &mut F,
        id: SnapshotId,
        offset: u64,
    ) -> Result<(), FileError> {
        if self.is_end || self.bytes.len() >= RECORD_BYTES_MAX {
            return Ok(());
        }
        let known = self.bytes.len();
        let wanted = known.saturating_add(WRITE);
        self.bytes.resize(wanted, 0);
        let at = offset.saturating_add(known as u64);
        let rest = self.bytes.get_mut(known..).unwrap_or_default();
        let read = files.read_snapshot(id, at, rest)?;
        self.is_end = read < WRITE;
        self.bytes.truncate(known.saturating_add(read));
        Ok(())
    }
}
