//! Queue of datagrams that the driver has not taken yet.

use core::net::IpAddr;
use core::num::NonZeroU16;
use core::ops::Range;
use std::collections::VecDeque;

use wire::Transmit;

use crate::hop::ShardId;
use crate::link::LinkId;
use crate::link_terms::Packing;
use crate::peer_addr::PeerAddr;
use crate::trunk;

/// Destination of a datagram, and the local source address if it matters.
pub(crate) type Destination = (PeerAddr, Option<IpAddr>);

/// A queue of datagrams in two buffers: one is filled while the other is drained, and cleared once
/// it is empty. So the steady state does not allocate per packet, and memory is reclaimed even if
/// the queue is never empty.
///
/// Frames to one neighbour that are queued at their turn are sent together; none is delayed for
/// others.
#[derive(Debug)]
pub(crate) struct Outbox {
    filling: Batch,
    leaving: Batch,
    /// Maximum queue size in bytes, plus [`SPAN_LEN`] per datagram.
    bytes_max: usize,
}

impl Outbox {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            filling: Batch::EMPTY,
            leaving: Batch::EMPTY,
            bytes_max,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filling.len().saturating_add(self.leaving.len()) >= self.bytes_max
    }

    /// Appends what `write` appends as one datagram, or nothing on an error; check `is_full` first.
    pub(crate) fn push<E>(
        &mut self,
        destination: Destination,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push(destination, write)
    }

    /// Like `push`, but appends one hop frame to a shard of the neighbour of `link`.
    pub(crate) fn push_frame<E>(
        &mut self,
        to: (LinkId, ShardId),
        by: (Destination, Packing),
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filling.push_frame(to, by, write)
    }

    /// Appends what `write` appends as one datagram. Returns false, and appends nothing, if the
    /// queue is full or `write` fails.
    pub(crate) fn try_push<E>(
        &mut self,
        destination: Destination,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> bool {
        !self.is_full() && self.push(destination, write).is_ok()
    }

    /// Takes the next datagrams for the driver, and appends their bytes to `buf`.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        let ((peer_addr, source), segment_len) = self.pop(buf)?;
        Some(Transmit {
            source,
            segment_len,
            ..Transmit::to(peer_addr)
        })
    }

    /// Appends the next datagrams to `out`. Returns the destination and, if there are several,
    /// their length; the last may be shorter.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<(Destination, Option<NonZeroU16>)> {
        if self.leaving.is_empty() {
            core::mem::swap(&mut self.filling, &mut self.leaving);
        }
        self.leaving.pop(out)
    }

    pub(crate) fn memory(&self) -> usize {
        self.filling.memory().saturating_add(self.leaving.memory())
    }
}

/// A batch of datagrams in sending order.
///
/// Hop frames have a lane per shard of each neighbour. The frames queued in a lane at its turn are
/// sent together, in order: frames of equal length as datagrams of one segmented send, others as a
/// [trunk](crate::trunk) if the neighbour supports it.
#[derive(Debug)]
struct Batch {
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
enum Turn {
    Datagram(Destination, Range<usize>),
    Lane(usize),
}

/// Frames queued for one shard of a neighbour.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Index of its number in `places`.
    place: usize,
    destination: Destination,
    packing: Packing,
    /// Indices of the first queued frame and of the last.
    first: usize,
    last: usize,
}

#[derive(Debug)]
struct Frame {
    range: Range<usize>,
    next: Option<usize>,
}

/// Frames of a lane that are sent together.
enum Burst {
    /// This many datagrams of this length; the last may be shorter.
    Run(usize, NonZeroU16),
    /// This many, in one datagram.
    Trunk(usize),
    Single,
}

impl Batch {
    const EMPTY: Self = Self {
        bytes: Vec::new(),
        turns: VecDeque::new(),
        places: Vec::new(),
        lanes: Vec::new(),
        frames: Vec::new(),
    };

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Bytes queued, plus [`SPAN_LEN`] per datagram.
    fn len(&self) -> usize {
        let spans = self.turns.len().saturating_add(self.frames.len());
        let overhead = spans.saturating_mul(SPAN_LEN);
        self.bytes.len().saturating_add(overhead)
    }

    fn push<E>(
        &mut self,
        destination: Destination,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let range = self.write(write)?;
        self.turns.push_back(Turn::Datagram(destination, range));
        Ok(())
    }

    fn push_frame<E>(
        &mut self,
        (link, shard): (LinkId, ShardId),
        (destination, packing): (Destination, Packing),
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
            (lane.destination, lane.packing, lane.last) = (destination, packing, last);
            return Ok(());
        }
        self.turns.push_back(Turn::Lane(self.lanes.len()));
        self.lanes.push(Lane {
            place,
            destination,
            packing,
            first: last,
            last,
        });
        *number = u32::try_from(self.lanes.len()).unwrap_or(0);
        Ok(())
    }

    fn pop(&mut self, out: &mut Vec<u8>) -> Option<(Destination, Option<NonZeroU16>)> {
        let next = match self.turns.pop_front()? {
            Turn::Datagram(destination, range) => {
                out.extend_from_slice(self.bytes.get(range).unwrap_or_default());
                Some((destination, None))
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

    fn memory(&self) -> usize {
        let turns = self.turns.capacity().saturating_mul(size_of::<Turn>());
        let frames = self.frames.capacity().saturating_mul(size_of::<Frame>());
        let lanes = self.lanes.capacity().saturating_mul(size_of::<Lane>());
        let places = self.places.capacity().saturating_mul(4);
        let all = [self.bytes.capacity(), turns, frames, lanes, places];
        all.into_iter().fold(0, usize::saturating_add)
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

    fn pop_lane(
        &mut self,
        turn: usize,
        out: &mut Vec<u8>,
    ) -> Option<(Destination, Option<NonZeroU16>)> {
        let lane = self.lanes.get_mut(turn)?;
        let mut waiting = LaneFrames {
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
        Some((lane.destination, segment))
    }
}

/// Returns the index of a lane from its number, which starts at 1.
fn lane_of(number: u32) -> Option<usize> {
    usize::try_from(number.checked_sub(1)?).ok()
}

#[derive(Clone)]
struct LaneFrames<'a> {
    frames: &'a [Frame],
    next: Option<usize>,
}

impl Iterator for LaneFrames<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let frame = self.frames.get(self.next?)?;
        self.next = frame.next;
        Some(frame.range.clone())
    }
}

impl LaneFrames<'_> {
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
const SPAN_LEN: usize = 64;
/// Maximum number of segments per send: `UDP_MAX_SEGMENTS` of the first Linux with GSO.
const SEGMENTS_MAX: usize = 64;
/// Maximum bytes per segmented send: the UDP payload of an IPv4 packet.
const RUN_BYTES_MAX: usize = 65_507;

#[cfg(test)]
mod tests;
