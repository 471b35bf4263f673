//! What the player of this peer does, stamped for ticks to come.

use core::ops::Range;

use wire::{Instant, Seat};

use super::lane::{Lane, lane_shape};
use crate::bundle::{self, Shape};
use crate::chain::CHAIN_LEN;
use crate::message::QUIET;
use crate::tick::Tick;
use crate::turn::{Origin, Row};

/// Stamps inputs: each tick's change is coded once, against the tick before.
#[derive(Debug)]
pub(super) struct Own {
    /// Ticks between a boundary and the tick that it stamps.
    delay: u8,
    /// First tick that is not stamped; those before the first boundary's are quiet.
    end: Tick,
    /// Input of the tick before.
    before: Row,
    /// Input being stamped; kept for its memory.
    after: Row,
    /// Its bundle; kept for its memory.
    bundle: Vec<u8>,
    /// When tick `t` could first be sent, at place `t % CHAIN_LEN`.
    ready_at: Vec<Instant>,
}

impl Own {
    pub(super) fn new(shape: Shape, neutral: &[u8], delay: u8, now: Instant) -> Self {
        let lane = lane_shape(shape);
        let mut row = Row::initial(1, shape.width, neutral);
        row.set(Seat(0), neutral, Origin::Confirmed);
        Self {
            delay,
            end: Tick(delay.into()),
            after: row.clone(),
            before: row,
            bundle: Vec::with_capacity(lane.bundle_len_max()),
            ready_at: vec![now; usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX)],
        }
    }

    /// Stamps `held` at boundary `index`; what was skipped repeats the input before. Returns how
    /// many ticks were stamped: none where the delay was lowered, until it is made up.
    pub(super) fn stamp(&mut self, now: Instant, index: u32, held: &[u8], lane: &mut Lane) -> u32 {
        let target = Tick(index).plus(self.delay.into());
        let mut count = 0_u32;
        while self.end <= target && self.end <= Tick::LAST {
            self.bundle.clear();
            if self.end == target {
                self.after.set(Seat(0), held, Origin::Confirmed);
                bundle::encode(&self.before, &self.after, &mut self.bundle);
                self.before.copy_from(&self.after);
            } else {
                self.bundle.push(QUIET);
            }
            lane.put(self.end, &self.bundle);
            if let Some(at) = self.ready_at.get_mut(place(self.end)) {
                *at = now;
            }
            self.end = self.end.plus(1);
            count = count.saturating_add(1);
        }
        count
    }

    /// Takes it that `ticks` are shown from now on, where that is later than they are stamped.
    pub(super) fn show(&mut self, now: Instant, ticks: Range<u32>) {
        for tick in ticks {
            if let Some(at) = self.ready_at.get_mut(place(Tick(tick))) {
                *at = now;
            }
        }
    }

    /// Sets the delay, and returns how many ticks of the next boundary, number `index`, repeat the
    /// last input, and how many boundaries stamp nothing.
    pub(super) fn set_delay(&mut self, delay: u8, index: u32) -> (u32, u32) {
        self.delay = delay;
        let target = Tick(index).plus(delay.into());
        (target.since(self.end), self.end.since(target))
    }

    /// Returns the tick that boundary `index` stamps.
    pub(super) fn tick_for(&self, index: u32) -> Tick {
        Tick(index).plus(self.delay.into()).max(self.end)
    }

    /// Returns when `tick` could first be sent, where it is stamped and that is known.
    pub(super) fn ready_at(&self, tick: Tick) -> Option<Instant> {
        if tick >= self.end || self.end.since(tick) > CHAIN_LEN {
            return None;
        }
        self.ready_at.get(place(tick)).copied()
    }

    pub(super) const fn delay(&self) -> u8 {
        self.delay
    }

    /// Returns the first tick that is not stamped.
    pub(super) const fn end(&self) -> Tick {
        self.end
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.ready_at
            .len()
            .saturating_mul(size_of::<Instant>())
            .saturating_add(self.bundle.capacity())
            .saturating_add(self.before.memory_len().saturating_mul(2))
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Width;

    fn shape() -> Shape {
        Shape {
            seats: 3,
            width: Width::bits::<8>(),
        }
    }

    fn inputs(lane: &mut Lane) -> Vec<u8> {
        let mut inputs: Vec<u8> = Vec::new();
        lane.foresee(Tick(0), |tick, bits| {
            // In ticks that are passed over nothing changes.
            let held = inputs.last().copied().unwrap_or(0);
            inputs.resize(usize::try_from(tick.0).unwrap(), held);
            inputs.push(bits[0]);
        });
        inputs
    }

    #[test]
    fn ls_13_a_raise_repeats_the_last_input_and_a_lower_delay_drops_overlaps() {
        let (mut own, mut lane) = (
            Own::new(shape(), &[0], 2, Instant::ZERO),
            Lane::new(shape(), &[0]),
        );
        lane.begin(2);
        let mut stamp =
            |own: &mut Own, index, value| own.stamp(Instant::ZERO, index, &[value], &mut lane);
        assert_eq!(stamp(&mut own, 0, 1), 1);
        assert_eq!(stamp(&mut own, 1, 2), 1);
        assert_eq!(own.set_delay(5, 2), (3, 0));
        assert_eq!(own.tick_for(2), Tick(7));
        assert_eq!(stamp(&mut own, 2, 3), 4);
        assert_eq!(own.set_delay(3, 3), (0, 2));
        assert_eq!(own.tick_for(3), Tick(8));
        assert_eq!(stamp(&mut own, 3, 4), 0);
        assert_eq!(stamp(&mut own, 4, 5), 0);
        assert_eq!(stamp(&mut own, 5, 6), 1);
        assert_eq!(inputs(&mut lane), [0, 0, 1, 2, 2, 2, 2, 3, 6]);
    }
}
