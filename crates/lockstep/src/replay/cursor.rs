//! Reads the records of a replay file, one tick at a time.

use wire::codec::Reader;

use super::format::{CHECKSUM_LEN, HEAD_LEN, Head, Kind, Layout, SEAL_LEN_MAX, checksum};
use super::{ChainHead, Damage, ReplayHeader};
use crate::bundle;
use crate::tick::Tick;
use crate::turn::Row;

/// Position in a file.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    /// The whole file.
    bytes: &'a [u8],
    layout: Layout,
    /// First byte after the header.
    start: usize,
    /// Offset of the current record.
    record_at: usize,
    /// Offset of the next record; a truncated file ends before it.
    next_at: usize,
    /// Unread ticks of the current record.
    ticks: &'a [u8],
    /// Whether the current record is complete.
    is_whole: bool,
    /// First tick not yet read.
    next: Tick,
    /// Tick of the last keyframe read; `Tick(0)` if none was.
    keyframe: Tick,
    initial: Row,
    /// Inputs of the tick before `next`.
    row: Row,
    /// Inputs named by a keyframe.
    scratch: Row,
}

/// An item of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item<'a> {
    /// A tick; the cursor's row holds its inputs.
    Tick {
        tick: Tick,
        bundle: &'a [u8],
        state_hash: Option<u64>,
    },
    /// A state, as bytes of the game.
    Keyframe { offset: usize, snapshot: &'a [u8] },
    /// The application's statement about the chain so far.
    Seal(&'a [u8]),
    /// The last record.
    End(ChainHead),
}

/// Why reading stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// End of the file, with or without an end record.
    Over,
    /// It is damaged.
    Damaged(Damage),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &ReplayHeader, start: usize) -> Self {
        let initial = header.initial_row();
        Self {
            bytes,
            layout: header.layout(),
            start,
            record_at: start,
            next_at: start,
            ticks: &[],
            is_whole: true,
            next: Tick(0),
            keyframe: Tick(0),
            row: initial.clone(),
            scratch: initial.clone(),
            initial,
        }
    }

    /// Reads the next item.
    pub(super) fn next_item(&mut self) -> Result<Item<'a>, Stop> {
        loop {
            if !self.ticks.is_empty() {
                return self.read_tick();
            }
            if let Some(item) = self.read_record()? {
                return Ok(item);
            }
        }
    }

    /// Reads the next tick, skipping other items; `None` after the last one.
    pub(super) fn next_tick(&mut self) -> Option<(Tick, Option<u64>)> {
        loop {
            if let Item::Tick {
                tick, state_hash, ..
            } = self.next_item().ok()?
            {
                return Some((tick, state_hash));
            }
        }
    }

    /// Returns to the start.
    pub(super) fn rewind(&mut self) {
        self.go_to(self.start, Tick(0));
        self.row.copy_from(&self.initial);
    }

    /// Moves to the keyframe of `tick` at `offset`, which was read before, and returns its
    /// snapshot.
    pub(super) fn resume(&mut self, offset: usize, tick: Tick) -> Option<&'a [u8]> {
        self.go_to(offset, tick);
        let body = self.read_body(self.read_head().ok()??)?;
        let snapshot = self.read_named_row(body).ok()?;
        self.row.copy_from(&self.scratch);
        self.keyframe = tick;
        Some(snapshot)
    }

    /// First tick not yet read.
    pub(super) const fn next(&self) -> Tick {
        self.next
    }

    /// Inputs of the last tick read.
    pub(super) const fn row(&self) -> &Row {
        &self.row
    }

    /// Whether the last ticks read are in a complete record, and so covered by its checksum.
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Offset of the current record.
    pub(super) const fn record_at(&self) -> usize {
        self.record_at
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.row.memory_len().saturating_mul(3)
    }

    const fn go_to(&mut self, offset: usize, tick: Tick) {
        self.record_at = offset;
        self.next_at = offset;
        self.ticks = &[];
        self.is_whole = true;
        self.next = tick;
        self.keyframe = Tick(0);
    }

    fn read_tick(&mut self) -> Result<Item<'a>, Stop> {
        // The last ticks of a truncated file are read as far as they go.
        let broken = if self.is_whole {
            Stop::Damaged(Damage::Ticks)
        } else {
            Stop::Over
        };
        let tick = self.next;
        if self.layout.has_keyframe_at(tick) && self.keyframe != tick || tick >= Tick::LAST {
            return Err(Stop::Damaged(Damage::Order));
        }
        let mut reader = Reader::new(self.ticks);
        let len = bundle::check(self.ticks, self.layout.shape).map_err(|_| broken)?;
        let bundle = reader.bytes(len).map_err(|_| broken)?;
        bundle::apply(bundle, &mut self.row).map_err(|_| broken)?;
        let mut state_hash = None;
        if self.layout.has_hash_at(tick) {
            state_hash = reader.u64().ok();
            if state_hash.is_none() {
                if self.is_whole {
                    return Err(broken);
                }
                reader.take_rest();
            }
        }
        self.ticks = reader.rest();
        self.next = tick.plus(1);
        Ok(Item::Tick {
            tick,
            bundle,
            state_hash,
        })
    }

    /// Reads a record; `None` if it holds ticks, which are then current.
    fn read_record(&mut self) -> Result<Option<Item<'a>>, Stop> {
        if !self.is_whole {
            return Err(Stop::Over);
        }
        self.record_at = self.next_at;
        let head = match self.read_head() {
            Ok(Some(head)) => head,
            Ok(None) => return Err(Stop::Damaged(Damage::Head)),
            Err(over) => return Err(over),
        };
        let Some(body) = self.read_body(head) else {
            let rest = self.bytes.get(self.record_at..).unwrap_or_default();
            let rest = rest.get(HEAD_LEN..).unwrap_or_default();
            if head.kind == Kind::Ticks {
                self.is_whole = false;
                self.ticks = rest.get(..head.len).unwrap_or(rest);
                return Ok(None);
            }
            return Err(Stop::Over);
        };
        if !self.is_as_written(body) {
            return Err(Stop::Damaged(Damage::Checksum));
        }
        self.read_whole(head.kind, body)
    }

    fn read_whole(&mut self, kind: Kind, body: &'a [u8]) -> Result<Option<Item<'a>>, Stop> {
        match kind {
            Kind::Ticks if !body.is_empty() => {
                self.ticks = body;
                Ok(None)
            }
            Kind::Ticks => Err(Stop::Damaged(Damage::Ticks)),
            Kind::Keyframe => {
                if !self.layout.has_keyframe_at(self.next) || self.keyframe == self.next {
                    return Err(Stop::Damaged(Damage::Order));
                }
                let snapshot = self.read_named_row(body)?;
                if self.scratch != self.row {
                    return Err(Stop::Damaged(Damage::Keyframe));
                }
                self.keyframe = self.next;
                Ok(Some(Item::Keyframe {
                    offset: self.record_at,
                    snapshot,
                }))
            }
            Kind::Seal if body.len() <= SEAL_LEN_MAX => Ok(Some(Item::Seal(body))),
            Kind::Seal => Err(Stop::Damaged(Damage::Seal)),
            Kind::End => {
                let mut reader = Reader::new(body);
                let (Ok(ticks), Ok(digest), true) =
                    (reader.u32(), reader.array(), reader.is_empty())
                else {
                    return Err(Stop::Damaged(Damage::End));
                };
                if ticks != self.next.0 || self.next_at != self.bytes.len() {
                    return Err(Stop::Damaged(Damage::End));
                }
                Ok(Some(Item::End(ChainHead { ticks, digest })))
            }
        }
    }

    fn read_head(&self) -> Result<Option<Head>, Stop> {
        let rest = self.bytes.get(self.record_at..).unwrap_or_default();
        Head::read(&mut Reader::new(rest)).map_err(|_| Stop::Over)
    }

    /// Reads the body after `head`, if it and its checksum are complete.
    fn read_body(&mut self, head: Head) -> Option<&'a [u8]> {
        let start = self.record_at.checked_add(HEAD_LEN)?;
        let end = start.checked_add(head.len)?;
        let next_at = end.checked_add(CHECKSUM_LEN)?;
        self.bytes.get(..next_at)?;
        self.next_at = next_at;
        self.bytes.get(start..end)
    }

    /// Compares the checksum of the current record, which continues from that of the previous one.
    fn is_as_written(&self, body: &[u8]) -> bool {
        let checksum_at = |end: usize| {
            let start = end.checked_sub(CHECKSUM_LEN)?;
            Reader::new(self.bytes.get(start..end)?).u32().ok()
        };
        let len = HEAD_LEN.saturating_add(body.len());
        let end = self.record_at.saturating_add(len);
        let record = self.bytes.get(self.record_at..end);
        let expected = checksum_at(self.record_at)
            .zip(record)
            .map(|(before, record)| checksum(before, record));
        expected.is_some() && expected == checksum_at(self.next_at)
    }

    /// Reads the inputs at the front of a keyframe into `scratch`; returns the rest.
    fn read_named_row(&mut self, body: &'a [u8]) -> Result<&'a [u8], Stop> {
        let damaged = Stop::Damaged(Damage::Keyframe);
        let len = bundle::check(body, self.layout.shape).map_err(|_| damaged)?;
        let (row, snapshot) = body.split_at_checked(len).ok_or(damaged)?;
        self.scratch.copy_from(&self.initial);
        bundle::apply(row, &mut self.scratch).map_err(|_| damaged)?;
        Ok(snapshot)
    }
}
