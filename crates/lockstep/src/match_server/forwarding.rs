//! Telling clients what others do before the tick is closed.
//!
//! At each close, what came since for open ticks is encoded once, for all. An input that repeats
//! the one before it is left out: a client that knows of none repeats anyway.

use wire::Seat;

use super::MatchServer;
use super::place::Place;
use crate::bits::BitWriter;
use crate::bundle::Shape;
use crate::config::Config;
use crate::input::Input;
use crate::message::{EarlyWriter, write_early_head};
use crate::stats::ServerStats;
use crate::tick::Tick;
use crate::turn::Row;

/// Early inputs of one tick, as they stand in front of turns.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// By seat: first tick that was not looked at. Empty where nothing is forwarded.
    next: Vec<Tick>,
    /// Whose turn it is to be told of first, where the datagram had no room for all.
    first: u16,
    /// What goes in front of each client's turns; empty where there is nothing to tell.
    block: Vec<u8>,
    /// Longest block, in bytes: half a datagram.
    block_len_max: usize,
    /// Longest datagram, without what says how long ticks are, in bytes.
    datagram_len_max: usize,
}

impl Forwarding {
    pub(super) fn new(config: &Config, shape: Shape) -> Self {
        let len_max = usize::from(config.datagram_len_max);
        let datagram_len_max = len_max.saturating_sub(config.stretch_len());
        let block_len_max = datagram_len_max / 2;
        let (seats, capacity) = if config.forward_inputs {
            (shape.seats.into(), block_len_max)
        } else {
            (0, 0)
        };
        Self {
            next: vec![Tick(0); seats],
            first: 0,
            block: Vec::with_capacity(capacity),
            block_len_max,
            datagram_len_max,
        }
    }

    /// Appends the block to `buf`, in front of turns.
    pub(super) fn put(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.block);
    }

    /// Takes it out of the datagram that begins at `start`, where that came to be too long.
    pub(super) fn take_back_if_long(&self, buf: &mut Vec<u8>, start: usize) {
        if buf.len().saturating_sub(start) > self.datagram_len_max {
            buf.drain(start..start.saturating_add(self.block.len()));
        }
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.block
            .capacity()
            .saturating_add(self.next.len().saturating_mul(size_of::<Tick>()))
    }

    /// Encodes what is new of ticks from `end` on, the first that is not closed; `closed` is the
    /// row before it.
    fn gather(&mut self, places: &[Place], closed: &Row, neutral: &[u8], at: &mut Gathering<'_>) {
        self.block.clear();
        write_early_head(&mut self.block, at.end.low());
        let len_max = EarlyWriter::input_len_max(at.shape);
        let mut writer = EarlyWriter::new(BitWriter::new(&mut self.block), at.shape);
        let from = core::mem::take(&mut self.first);
        let mut count = 0_u64;
        let seats = (0..=u16::MAX).map(Seat).zip(places).zip(&mut self.next);
        'seats: for ((seat, place), next) in seats.skip(from.into()) {
            if place.player().is_none() {
                continue;
            }
            let mut before = neutral;
            let start = at.end.max(*next);
            for tick in (start.0..place.log.next().0).map(Tick) {
                let Some(input) = place.log.get(tick) else {
                    continue;
                };
                if guess(place, closed, at.end, seat, tick) == Some(input) {
                    *next = tick.plus(1);
                    continue;
                }
                if writer.out_len().saturating_add(len_max) > self.block_len_max {
                    self.first = seat.0;
                    break 'seats;
                }
                writer.input(seat, tick.since(at.end), before, input);
                *next = tick.plus(1);
                before = input;
                count = count.saturating_add(1);
            }
        }
        writer.finish();
        if count == 0 {
            self.block.clear();
        }
        at.stats.inputs_forwarded = at.stats.inputs_forwarded.saturating_add(count);
    }
}

/// Where a tick's close stands.
struct Gathering<'a> {
    /// First tick that is not closed.
    end: Tick,
    shape: Shape,
    stats: &'a mut ServerStats,
}

/// What a client takes for the input of `tick` that knows the closed tick and every earlier input
/// of the seat; `None` where it cannot know, or what it knows is no input of the player's.
fn guess<'a>(
    place: &'a Place,
    closed: &'a Row,
    end: Tick,
    seat: Seat,
    tick: Tick,
) -> Option<&'a [u8]> {
    if tick == end {
        closed.is_confirmed(seat).then(|| closed.value(seat))
    } else {
        place.log.get(tick.minus(1))
    }
}

impl<I: Input> MatchServer<I> {
    /// Takes together what goes out with the tick that was just closed.
    pub(super) fn gather_early_inputs(&mut self) {
        if self.forwarding.next.is_empty() {
            return;
        }
        let mut at = Gathering {
            end: self.end,
            shape: self.shape,
            stats: &mut self.stats,
        };
        self.forwarding
            .gather(&self.places, &self.before, &self.neutral, &mut at);
    }
}
