//! The chain of closed ticks: bundles as they are on the wire, and the reader that walks them.

use wire::MatchId;

use crate::bundle::{self, Shape};
use crate::checksum::LogHash;
use crate::tick::Tick;
use crate::turn::Row;

/// Bundles kept: 17 s at 60 Hz. A client whose acknowledgement is older needs a snapshot.
pub(crate) const CHAIN_LEN: u32 = 1_024;

/// Ticks that somebody may lack who begins, or comes back: the chain must reach further back, lest
/// it lose them while it catches up. The rest are some 4 s at 60 Hz.
pub(crate) const REACH: u32 = CHAIN_LEN.saturating_sub(256);

/// Bundles by tick, the newest of them, as many as it has places; in one block of memory that never
/// grows.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Tick of each place plus 1; 0 where none is.
    ticks: Vec<u32>,
    /// Length of the bundle in each place, in bytes.
    lens: Vec<u16>,
    /// `stride` bytes for each place.
    bytes: Vec<u8>,
    /// Longest bundle.
    stride: usize,
    /// Places.
    len: u32,
}

impl Chain {
    /// A chain of [`CHAIN_LEN`] bundles.
    pub(crate) fn new(shape: Shape) -> Self {
        Self::with_len(shape, CHAIN_LEN)
    }

    /// A chain of `len` bundles, at least one.
    pub(crate) fn with_len(shape: Shape, len: u32) -> Self {
        let len = len.max(1);
        let places = usize::try_from(len).unwrap_or(usize::MAX);
        let stride = shape.bundle_len_max();
        Self {
            ticks: vec![0; places],
            lens: vec![0; places],
            bytes: vec![0; places.saturating_mul(stride)],
            stride,
            len,
        }
    }

    /// Puts the bundle of `tick` in place of whatever is a chain's length older.
    pub(crate) fn put(&mut self, tick: Tick, bundle: &[u8]) {
        let place = self.place(tick);
        let start = place.saturating_mul(self.stride);
        let (Some(tag), Some(len), Some(bytes)) = (
            self.ticks.get_mut(place),
            self.lens.get_mut(place),
            self.bytes
                .get_mut(start..start.saturating_add(bundle.len().min(self.stride))),
        ) else {
            return;
        };
        debug_assert_eq!(bytes.len(), bundle.len(), "no bundle is over the longest");
        if let ([byte], [only]) = (&mut *bytes, bundle) {
            // As many are: nothing changed for one seat or a few.
            *byte = *only;
        } else {
            bytes.copy_from_slice(bundle.get(..bytes.len()).unwrap_or_default());
        }
        *tag = tick.0.saturating_add(1);
        *len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    }

    /// Forgets the bundles of `tick` and all later ones.
    pub(crate) fn forget_from(&mut self, tick: Tick) {
        for tag in self.ticks.iter_mut().filter(|tag| **tag > tick.0) {
            *tag = 0;
        }
    }

    /// Returns the bundle of `tick`, where it is kept.
    pub(crate) fn get(&self, tick: Tick) -> Option<&[u8]> {
        let place = self.place(tick);
        if self.ticks.get(place) != Some(&tick.0.saturating_add(1)) {
            return None;
        }
        let start = place.saturating_mul(self.stride);
        let len = usize::from(*self.lens.get(place)?);
        self.bytes.get(start..start.saturating_add(len))
    }

    /// Bytes that it holds.
    pub(crate) const fn memory_len(&self) -> usize {
        let place = size_of::<u32>().saturating_add(size_of::<u16>());
        self.bytes
            .len()
            .saturating_add(self.ticks.len().saturating_mul(place))
    }

    pub(crate) fn has(&self, tick: Tick) -> bool {
        self.ticks.get(self.place(tick)) == Some(&tick.0.saturating_add(1))
    }

    fn place(&self, tick: Tick) -> usize {
        // The usual length is known here, and asks for no division.
        let place = if self.len == CHAIN_LEN {
            tick.0.checked_rem(CHAIN_LEN)
        } else {
            tick.0.checked_rem(self.len)
        };
        usize::try_from(place.unwrap_or(0)).unwrap_or(0)
    }
}

/// Walks a chain from tick 0, one turn at a time.
#[derive(Clone, Debug)]
pub(crate) struct ChainReader {
    /// First tick not yet read.
    next: Tick,
    /// Inputs of the tick before.
    row: Row,
    /// Over all bundles read.
    log: LogHash,
}

impl ChainReader {
    pub(crate) fn new(shape: Shape, neutral: &[u8], match_id: MatchId) -> Self {
        Self {
            next: Tick(0),
            row: Row::initial(shape.seats, shape.width, neutral),
            log: LogHash::new(match_id),
        }
    }

    /// Goes on from a state that another participant saved.
    pub(crate) fn resume_from(&mut self, next: Tick, row: &Row, log: LogHash) {
        self.next = next;
        self.row.copy_from(row);
        self.log = log;
    }

    /// Reads the next tick; `None` where the chain does not hold it.
    pub(crate) fn read(&mut self, chain: &Chain) -> Option<Tick> {
        let bundle = chain.get(self.next)?;
        let applied = bundle::apply(bundle, &mut self.row);
        debug_assert!(applied.is_ok(), "only checked bundles enter a chain");
        self.log.absorb(bundle);
        let tick = self.next;
        self.next = tick.plus(1);
        Some(tick)
    }

    pub(crate) const fn next(&self) -> Tick {
        self.next
    }

    pub(crate) const fn row(&self) -> &Row {
        &self.row
    }

    pub(crate) const fn log(&self) -> LogHash {
        self.log
    }
}
