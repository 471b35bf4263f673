//! Segments of the hub's log as messages of a stream.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hub::StoreConfig;
use hub::log::{FileError, SegmentFile, SegmentId, SnapshotId};

use crate::cache::Cache;
use crate::error::NatsError;
use crate::layout::{Layout, Piece};
use crate::link::{Link, describe};
use crate::log_stream::{LogStream, place_header};
use crate::publish::{Outgoing, WriteError, write};

/// The segments of a log in a JetStream stream, for [`hub::Store`].
///
/// A write is one message, or several if it is larger than the server takes; its subject names the
/// segment, and a header the place of its bytes. A batch of the store is one write, so it costs one
/// round trip, however many mails it has. [`SegmentFile::sync`] has nothing left to do.
///
/// Each message takes 24 bytes of memory, besides those that are cached. Snapshots of the index are not
/// supported: use [`store_config`].
#[derive(Debug)]
pub struct StreamSegments {
    link: Arc<Link>,
    log: LogStream,
    /// Unique among all owners of the log.
    writer: String,
    /// Messages written by this owner.
    written: u64,
    /// Number of the last message in the stream.
    last: u64,
    segments: BTreeMap<SegmentId, Layout>,
    cache: Cache,
    /// Longest body of a message, bytes.
    body_max: usize,
}

/// Returns `config` without snapshots of the index, which a stream does not keep.
#[must_use]
pub const fn store_config(mut config: StoreConfig) -> StoreConfig {
    config.snapshot_after = u64::MAX;
    config
}

/// Room for headers and protocol in the server's limit of a message, bytes.
const HEADERS_MAX: usize = 1_024;

/// Longest body of a message if the server allows more, bytes.
const BODY_MAX: usize = 1 << 20;

/// Attempts to be the next writer, while the one before still writes.
const ATTEMPTS: u32 = 20;

/// Uncached messages that are fetched one by one; more are read by a consumer.
const SINGLE_MAX: usize = 8;

impl StreamSegments {
    /// Fences every earlier writer, and reads where the bytes of each segment are.
    pub(crate) fn take_over(link: Arc<Link>, log: LogStream) -> Result<Self, NatsError> {
        let max_payload = link.client.server_info().max_payload;
        let mut segments = Self {
            // The name of an inbox is random, and never used twice.
            writer: link.client.new_inbox(),
            cache: Cache::new(link.config.cache_bytes),
            body_max: max_payload
                .saturating_sub(HEADERS_MAX)
                .clamp(HEADERS_MAX, BODY_MAX),
            written: 0,
            last: 0,
            segments: BTreeMap::new(),
            log,
            link,
        };
        segments.fence()?;
        segments.scan()?;
        Ok(segments)
    }

    /// Writes the message after which no earlier owner can write.
    fn fence(&mut self) -> Result<(), NatsError> {
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let last = self.link.block_on(self.log.last())?;
            let message = self.outgoing(self.log.owner_subject(), String::new(), Bytes::new());
            match self
                .link
                .block_on(write(&self.link, &self.log, last, &[message]))
            {
                Ok(last) => {
                    self.last = last;
                    return Ok(());
                }
                Err(WriteError::Full(text)) => return Err(NatsError::Request(text)),
                Err(WriteError::Lost(text)) => reason = text,
            }
        }
        Err(NatsError::Fenced(reason))
    }

    fn scan(&mut self) -> Result<(), NatsError> {
        let segments = &mut self.segments;
        let scan = self.log.scan(self.last, |segment, placed| {
            let layout = segments.entry(segment).or_default();
            layout.capacity = placed.capacity;
            layout.put(placed.piece);
        });
        self.link.block_on(scan)?;
        // Only the newest message of an owner is of use: it keeps the number of the last one.
        let purge = self.log.stream.purge().filter(self.log.owner_subject());
        let purged = self.link.block_on(async { purge.keep(1).await });
        if let Err(error) = purged {
            let error = describe(&error);
            tracing::debug!(error, "earlier messages of owners are left");
        }
        Ok(())
    }

    fn outgoing(&mut self, subject: String, place: String, body: Bytes) -> Outgoing {
        self.written = self.written.saturating_add(1);
        Outgoing {
            subject,
            place,
            writer: format!("{}.{}", self.writer, self.written),
            body,
        }
    }

    /// Writes `bytes` at `offset` as messages.
    fn publish(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let capacity = self.layout(segment)?.capacity;
        let subject = self.log.subject(segment);
        let mut pieces = Vec::new();
        let mut messages = Vec::new();
        let mut at = offset;
        for chunk in bytes.chunks(self.body_max) {
            let place = place_header(at, chunk.len(), capacity);
            let body = Bytes::copy_from_slice(chunk);
            messages.push(self.outgoing(subject.clone(), place, body));
            pieces.push((at, chunk.len()));
            at = at.saturating_add(chunk.len() as u64);
        }
        let before = self.last;
        self.send(&messages)?;
        let layout = self.segments.get_mut(&segment).ok_or(FileError::Failed)?;
        let numbers = before.saturating_add(1)..;
        for (((at, len), message), seq) in pieces.into_iter().zip(messages).zip(numbers) {
            layout.put(Piece {
                offset: u32::try_from(at).map_err(|_| FileError::Failed)?,
                len: u32::try_from(len).map_err(|_| FileError::Failed)?,
                skip: 0,
                seq,
            });
            self.cache.put(seq, message.body);
        }
        Ok(())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), FileError> {
        let sent = write(&self.link, &self.log, self.last, messages);
        match self.link.block_on(sent) {
            Ok(last) => {
                self.last = last;
                Ok(())
            }
            Err(WriteError::Full(reason)) => {
                tracing::warn!(reason, "NATS has no room for the log");
                Err(FileError::Full)
            }
            Err(WriteError::Lost(reason)) => {
                if self.link.shared.lost().is_none() {
                    self.link.shared.lose(reason);
                }
                Err(FileError::Failed)
            }
        }
    }

    fn layout(&self, segment: SegmentId) -> Result<&Layout, FileError> {
        self.segments.get(&segment).ok_or(FileError::Failed)
    }

    /// Returns the bodies of those of `pieces` that are not cached.
    fn fetch(
        &self,
        segment: SegmentId,
        pieces: &[Piece],
    ) -> Result<BTreeMap<u64, Bytes>, NatsError> {
        let missing: Vec<u64> = pieces
            .iter()
            .map(|piece| piece.seq)
            .filter(|seq| self.cache.get(*seq).is_none())
            .collect();
        let (Some(first), Some(last)) = (missing.iter().min(), missing.iter().max()) else {
            return Ok(BTreeMap::new());
        };
        if missing.len() > SINGLE_MAX {
            let range = self.log.read_range(segment, *first, *last);
            return self.link.block_on(range);
        }
        let gets = missing.iter().map(|seq| self.log.get(*seq));
        let found = self.link.block_on(futures_util::future::join_all(gets));
        let mut bodies = BTreeMap::new();
        for (seq, found) in missing.iter().zip(found) {
            if let Some((_, body)) = found? {
                bodies.insert(*seq, body);
            }
        }
        Ok(bodies)
    }

    fn read_at(
        &mut self,
        segment: SegmentId,
        range: Range<u64>,
        buf: &mut [u8],
    ) -> Result<(), FileError> {
        buf.fill(0);
        let start = range.start;
        let pieces: Vec<Piece> = self.layout(segment)?.pieces_in(range).collect();
        let fetched = self.fetch(segment, &pieces).map_err(|error| {
            tracing::warn!(%error, "a part of the log cannot be read now");
            FileError::Failed
        })?;
        for piece in pieces {
            let body = self
                .cache
                .get(piece.seq)
                .or_else(|| fetched.get(&piece.seq));
            let from = usize::try_from(piece.skip).unwrap_or(usize::MAX);
            let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
            let bytes = body.and_then(|body| body.get(from..from.saturating_add(len)));
            let Some(bytes) = bytes else {
                // Zeros are no record, so the log reports what was in it as lost.
                self.link.shared.missing.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    number = piece.seq,
                    "the stream has lost a message of the log"
                );
                continue;
            };
            let at = usize::try_from(u64::from(piece.offset).saturating_sub(start));
            let at = at.unwrap_or(usize::MAX);
            if let Some(target) = buf.get_mut(at..at.saturating_add(bytes.len())) {
                target.copy_from_slice(bytes);
            }
        }
        for (seq, body) in fetched {
            self.cache.put(seq, body);
        }
        Ok(())
    }
}

impl SegmentFile for StreamSegments {
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError> {
        let segments = self.segments.iter();
        Ok(segments
            .map(|(id, layout)| (*id, layout.capacity))
            .collect())
    }

    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError> {
        let used = self.segments.values().map(|layout| layout.capacity);
        let used = used.fold(0, u64::saturating_add);
        if used.saturating_add(bytes) > self.link.config.bytes_max {
            return Err(FileError::Full);
        }
        let place = place_header(0, 0, bytes);
        let message = self.outgoing(self.log.subject(segment), place, Bytes::new());
        self.send(&[message])?;
        self.segments.insert(segment, Layout::new(bytes));
        Ok(())
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.layout(segment)?.capacity {
            return Err(FileError::Full);
        }
        // A start rewrites the newest segment as it was read; only what differs is sent.
        let is_new = self
            .layout(segment)?
            .pieces_in(offset..end)
            .next()
            .is_none();
        let changed = if is_new {
            0..bytes.len()
        } else {
            let mut before = vec![0; bytes.len()];
            self.read_at(segment, offset..end, &mut before)?;
            trim(bytes, &before)
        };
        let at = offset.saturating_add(changed.start as u64);
        match bytes.get(changed) {
            Some(bytes) if !bytes.is_empty() => self.publish(segment, at, bytes),
            _ => Ok(()),
        }
    }

    fn sync(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.layout(segment).map(drop)
    }

    fn read(
        &mut self,
        segment: SegmentId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        let left = self.layout(segment)?.capacity.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buf = buf.get_mut(..len).unwrap_or_default();
        let end = offset.saturating_add(len as u64);
        self.read_at(segment, offset..end, buf)?;
        Ok(len)
    }

    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError> {
        // Only messages that this owner has read or written: one that was stopped meanwhile must not
        // remove what its successor has written to a segment of the same number.
        let purge = self.log.stream.purge();
        let purge = purge.filter(self.log.subject(segment));
        let purge = purge.sequence(self.last.saturating_add(1));
        let purged = self.link.block_on(async { purge.await });
        purged.map_err(|error| {
            let error = describe(&error);
            tracing::warn!(error, "a segment could not be removed now");
            FileError::Failed
        })?;
        self.segments.remove(&segment);
        Ok(())
    }

    fn list_snapshots(&mut self) -> Result<Vec<SnapshotId>, FileError> {
        Ok(Vec::new())
    }

    fn append_snapshot(&mut self, _snapshot: SnapshotId, _bytes: &[u8]) -> Result<(), FileError> {
        Err(FileError::Failed)
    }

    fn sync_snapshot(&mut self, _snapshot: SnapshotId) -> Result<(), FileError> {
        Err(FileError::Failed)
    }

    fn read_snapshot(
        &mut self,
        _snapshot: SnapshotId,
        _offset: u64,
        _buf: &mut [u8],
    ) -> Result<usize, FileError> {
        Err(FileError::Failed)
    }

    fn remove_snapshot(&mut self, _snapshot: SnapshotId) -> Result<(), FileError> {
        Ok(())
    }
}

/// Returns the range of `bytes` without a start and an end that equal `before`; zeros if that is
/// shorter.
fn trim(bytes: &[u8], before: &[u8]) -> Range<usize> {
    let differs = |at: &usize| bytes.get(*at) != Some(before.get(*at).unwrap_or(&0));
    let start = (0..bytes.len()).find(differs);
    let last = (0..bytes.len()).rfind(differs);
    match (start, last) {
        (Some(start), Some(last)) => start..last.saturating_add(1),
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        assert_eq!(trim(b"abc", b"abc"), 0..0);
        assert_eq!(trim(b"abXcd", b"abYcd"), 2..3);
        assert_eq!(trim(b"\0\0a\0b\0", b""), 2..5);
        assert_eq!(trim(b"ab", b"abcd"), 0..0);
        assert_eq!(trim(b"Xbcd", b"abcY"), 0..4);
        assert_eq!(trim(b"", b""), 0..0);
    }

    #[test]
    fn a_store_on_a_stream_writes_no_snapshots() {
        assert_eq!(
            store_config(StoreConfig::default()).snapshot_after,
            u64::MAX
        );
    }
}
