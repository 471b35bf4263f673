//! Datagrams in one buffer, which is cleared once all are taken.

use core::num::NonZeroU16;
use core::ops::Range;
use std::collections::VecDeque;

use super::Way;
use crate::link::LinkId;
use crate::link_terms::Packing;
use crate::shard::ShardId;
use crate::trunk;

/// A batch of datagrams in sending order.
///
/// Hop frames have a lane per shard of each neighbour. The frames queued in a lane at its turn are
/// sent together, in order: frames of equal length as datagrams of one segmented send, others as a
/// [trunk](crate::trunk) if the neighbour supports it.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The order in which datagrams and lanes are sent.
    turns: VecDeque<Turn>,
    /// For each shard of each link, the number of its lane in `lanes`, from 1; 0 if it has none.
    places: Vec<u32>,
    /// Lanes of all turns, including finished ones.
    lanes: Vec<Lane>,
    /// Frames of all lanes, including sent ones.
    frames: Vec<Frame>,
}

#[derive(Debug)]
pub(super) enum Turn {
    Datagram(Way, Range<usize>),
    Lane(usize),
}

/// Frames queued for one shard of a neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Index of its number in `places`.
    place: usize,
    way: Way,
    packing: Packing,
    /// Indices of the first queued frame and of the last.
    first: usize,
    last: usize,
}

#[derive(Debug)]
pub(super) struct Frame {
    range: Range<usize>,
    /// The next frame in its lane.
    next: Option<usize>,
}

/// Frames of a lane that are sent together.
enum Burst {
    /// This many datagrams of this length; the last may be shorter.
    Run(usize, NonZeroU16),
    /// This many, in one datagram.
    Trunk(usize),
    /// Only the first.
    Single,
}

impl Batch {
    pub(super) const EMPTY: Self = Self {
        bytes: Vec::new(),
        turns: VecDeque::new(),
        places: Vec::new(),
        lanes: Vec::new(),
        frames: Vec::new(),
    };

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Bytes queued, plus [`SPAN_LEN`] per datagram.
    pub(super) fn len(&self) -> usize {
        let spans = self.turns.len().saturating_add(self.frames.len());
        self.bytes
            .len()
            .saturating_add(spans.saturating_mul(SPAN_LEN))
    }

    /// Appends the bytes that `write` appends as one datagram; nothing if it returns an error.
    pub(super) fn push<E>(
        &mut self,
        way: Way,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let range = self.write(write)?;
        self.turns.push_back(Turn::Datagram(way, range));
        Ok(())
    }

    /// Like `push`, but appends one hop frame to a shard of the neighbour of `link`.
    pub(super) fn push_frame<E>(
        &mut self,
        (link, shard): (LinkId, ShardId),
        (way, packing): (Way, Packing),
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let range = self.write(write)?;
        let last = self.frames.len();
        self.frames.push(Frame { range, next: None });
        let place = usize::from(link.0)
            .saturating_mul(ShardId::COUNT_MAX.into())
            .saturating_add(shard.place().into());
        if self.places.len() <= place {
            self.places.resize(place.saturating_add(1), 0);
        }
        let Some(number) = self.places.get_mut(place) else {
            return Ok(());
        };
        if let Some(lane) = lane_of(*number).and_then(|lane| self.lanes.get_mut(lane)) {
            if let Some(before) = self.frames.get_mut(lane.last) {
                before.next = Some(last);
            }
            (lane.way, lane.packing, lane.last) = (way, packing, last);
            return Ok(());
        }
        self.turns.push_back(Turn::Lane(self.lanes.len()));
        self.lanes.push(Lane {
            place,
            way,
            packing,
            first: last,
            last,
        });
        *number = u32::try_from(self.lanes.len()).unwrap_or(0);
        Ok(())
    }

    /// Appends the next datagrams to `out`. Returns the destination and, if there are several,
    /// their length; the last may be shorter.
    pub(super) fn pop(&mut self, out: &mut Vec<u8>) -> Option<(Way, Option<NonZeroU16>)> {
        let next = match self.turns.pop_front()? {
            Turn::Datagram(way, range) => {
                out.extend_from_slice(self.bytes.get(range).unwrap_or_default());
                Some((way, None))
            }
            Turn::Lane(lane) => self.pop_lane(lane, out),
        };
        if self.turns.is_empty() {
            self.bytes.clear();
            self.frames.clear();
            self.lanes.clear();
        }
        next
    }

    /// Returns the memory that the queue holds, in bytes.
    pub(super) fn memory(&self) -> usize {
        let turns = self.turns.capacity().saturating_mul(size_of::<Turn>());
        let frames = self.frames.capacity().saturating_mul(size_of::<Frame>());
        let lanes = self.lanes.capacity().saturating_mul(size_of::<Lane>());
        let places = self.places.capacity().saturating_mul(4);
        self.bytes
            .capacity()
            .saturating_add(turns)
            .saturating_add(frames)
            .saturating_add(lanes)
            .saturating_add(places)
    }

    fn write<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Range<usize>, E> {
        let start = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        Ok(start..self.bytes.len())
    }

    fn pop_lane(&mut self, turn: usize, out: &mut Vec<u8>) -> Option<(Way, Option<NonZeroU16>)> {
        let lane = self.lanes.get_mut(turn)?;
        let mut waiting = Waiting {
            frames: &self.frames,
            next: Some(lane.first),
        };
        let (count, segment) = match waiting.burst(lane.packing) {
            Burst::Run(count, segment) => (count, Some(segment)),
            Burst::Trunk(count) => {
                out.push(trunk::KIND);
                (count, None)
            }
            Burst::Single => (1, None),
        };
        let is_trunk = count > 1 && segment.is_none();
        for range in waiting.by_ref().take(count) {
            let frame = self.bytes.get(range).unwrap_or_default();
            if is_trunk {
                trunk::append(frame, out);
            } else {
                out.extend_from_slice(frame);
            }
        }
        if let Some(first) = waiting.next {
            lane.first = first;
            self.turns.push_front(Turn::Lane(turn));
        } else if let Some(number) = self.places.get_mut(lane.place) {
            *number = 0;
        }
        Some((lane.way, segment))
    }
}

/// Returns the index of a lane from its number, which starts at 1.
fn lane_of(number: u32) -> Option<usize> {
    usize::try_from(number.checked_sub(1)?).ok()
}

/// Iterates over the queued frames of a lane.
#[derive(Clone)]
struct Waiting<'a> {
    frames: &'a [Frame],
    next: Option<usize>,
}

impl Iterator for Waiting<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let frame = self.frames.get(self.next?)?;
        self.next = frame.next;
        Some(frame.range.clone())
    }
}

impl Waiting<'_> {
    /// Returns what to send first: the run or the trunk, whichever has more frames.
    fn burst(&self, packing: Packing) -> Burst {
        let (run, segment) = self.run();
        let packed = match packing {
            Packing::Trunks => self.packed(),
            Packing::Alone => 0,
        };
        match segment {
            _ if packed > run => Burst::Trunk(packed),
            Some(segment) if run > 1 => Burst::Run(run, segment),
            Some(_) | None => Burst::Single,
        }
    }

    /// Returns how many frames fit in a run, and the segment length.
    fn run(&self) -> (usize, Option<NonZeroU16>) {
        let mut lens = self.clone().map(|range| range.len());
        let first = lens.next().unwrap_or(0);
        let (mut count, mut bytes): (usize, usize) = (1, first);
        for len in lens.take(SEGMENTS_MAX - 1) {
            bytes = bytes.saturating_add(len);
            if len > first || bytes > RUN_BYTES_MAX {
                break;
            }
            count = count.saturating_add(1);
            // Only the last one may be shorter.
            if len < first {
                break;
            }
        }
        let segment = u16::try_from(first).ok().and_then(NonZeroU16::new);
        (count, segment)
    }

    /// Returns how many frames fit in one trunk.
    fn packed(&self) -> usize {
        self.clone()
            .map(|range| range.len())
            .scan(trunk::HEAD_LEN, |len, frame| {
                *len = trunk::grown(*len, frame)?;
                Some(())
            })
            .count()
    }
}

/// Overhead counted per datagram in bytes, so that empty ones are not free.
pub(super) const SPAN_LEN: usize = 64;
/// Maximum number of segments per send on Linux: `UDP_MAX_SEGMENTS` of the first releases with
/// segmentation offload.
const SEGMENTS_MAX: usize = 64;
/// Maximum bytes per segmented send: the UDP payload of an IPv4 packet.
const RUN_BYTES_MAX: usize = 65_507;
