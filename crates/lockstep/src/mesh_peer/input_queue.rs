//! One seat's inputs: a chain of bundles of that seat alone.

use core::ops::Range;

use wire::{Instant, Seat};

use super::commitment::PeerCommitments;
use crate::bundle::{self, Shape};
use crate::chain::{CHAIN_LEN, Chain, ReceivedChain};
use crate::input::{Origin, Row};
use crate::message::{Commitment, QUIET};
use crate::tick::Tick;

/// Ticks past the first unconfirmed one for which inputs are kept. Peers that wait for each other
/// are never further apart: twice the largest delay, window and lag (60 + 32 + 100).
pub(super) const AHEAD_MAX: u32 = 512;

/// Ticks that one call of [`InputQueue::predict_input`] reads: more than a play datagram holds.
const PREDICT_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct InputQueue {
    pub(super) received: ReceivedChain,
    /// First tick without the seat, once decided.
    pub(super) cut: Option<Tick>,
    committed: Option<PeerCommitments>,
    row: Row,
    read: Tick,
    /// Input of the last predicted tick, and the first tick not predicted.
    ahead: (Row, Tick),
}

impl InputQueue {
    /// Creates the queue of a seat; its input before tick 0 is the neutral one.
    pub(super) fn new(shape: Shape, neutral: &[u8]) -> Self {
        let mut row = Row::initial(1, shape.width, neutral);
        row.set(Seat(0), neutral, Origin::Confirmed);
        Self {
            received: ReceivedChain::new(Chain::new(queue_shape(shape))),
            cut: None,
            committed: None,
            ahead: (row.clone(), Tick(0)),
            row,
            read: Tick(0),
        }
    }

    /// Fills the first `delay` ticks, which no input is stamped for.
    pub(super) fn begin(&mut self, delay: u8) {
        for tick in 0..u32::from(delay) {
            self.received.put(Tick(tick), &[QUIET]);
        }
        if let Some(committed) = &mut self.committed {
            committed.begin(Tick(delay.into()));
        }
    }

    pub(super) fn expect_commitments(&mut self, committed: PeerCommitments) {
        self.committed = Some(committed);
    }

    pub(super) fn cut(&mut self, tick: Tick) {
        let proved = self.proved_end();
        self.cut = Some(tick);
        if self.committed.take().is_some() {
            // Forwarded inputs have no salts, and unproved ones may differ.
            self.received.chain.forget_from(proved);
            self.received.end = proved;
            self.received.seen_end = proved;
        }
    }

    /// Writes the seat's part of `tick` into `row`, which holds that of the tick before. Ticks are
    /// read in order, each once, and only before [`known_end`](Self::known_end).
    pub(super) fn read(&mut self, tick: Tick, seat: Seat, neutral: &[u8], row: &mut Row) {
        if let Some(cut) = self.cut
            && tick >= cut
        {
            if tick == cut || tick == Tick(0) {
                row.set(seat, neutral, Origin::Absent);
            }
            return;
        }
        debug_assert_eq!(tick, self.read, "each tick is read once, in order");
        self.read = tick.plus(1);
        let bundle = self.received.chain.get(tick).unwrap_or(&[QUIET]);
        if *bundle == [QUIET] && tick != Tick(0) {
            return;
        }
        let applied = bundle::apply(bundle, &mut self.row);
        debug_assert!(applied.is_ok(), "only checked bundles enter a chain");
        row.set(seat, self.row.value(Seat(0)), Origin::Confirmed);
    }

    /// Calls `on_input(tick, bits)` for ticks that arrived since the last call, in order, at most a
    /// datagram's worth. Skips ticks before `end`, and unchanged ones, which are predicted anyway.
    pub(super) fn predict_input(&mut self, end: Tick, mut on_input: impl FnMut(Tick, &[u8])) {
        let proved = self.proved_end();
        let (row, ahead) = &mut self.ahead;
        for _ in 0..PREDICT_MAX {
            if *ahead >= proved {
                return;
            }
            let tick = *ahead;
            *ahead = tick.plus(1);
            let bundle = self.received.chain.get(tick).unwrap_or(&[QUIET]);
            if *bundle == [QUIET] {
                if tick > Tick(0) {
                    continue;
                }
            } else {
                let applied = bundle::apply(bundle, row);
                debug_assert!(applied.is_ok(), "only checked bundles enter a chain");
            }
            if tick >= end {
                on_input(tick, row.value(Seat(0)));
            }
        }
    }

    pub(super) fn known_end(&self) -> Tick {
        match self.cut {
            Some(cut) if self.received.end >= cut => Tick(u32::MAX),
            Some(_) | None => self.proved_end(),
        }
    }

    pub(super) fn held_end(&self) -> Tick {
        let end = self.proved_end();
        self.cut.map_or(end, |cut| cut.min(end))
    }

    /// Returns the first tick that is missing, or not proved if it has to be.
    fn proved_end(&self) -> Tick {
        let end = self.received.end;
        let committed = self.committed.as_ref();
        committed.map_or(end, |committed| committed.checked.min(end))
    }

    pub(super) fn committed_end(&self) -> Tick {
        let end = self.committed.as_ref().map(|it| it.end);
        end.unwrap_or(Tick(u32::MAX))
    }

    /// Takes a commitment, with the salts of the ticks from `first` on, whose inputs arrived with
    /// them; returns whether it is within the window. We have stamped the ticks before `stamped`.
    pub(super) fn on_commitment(
        &mut self,
        commitment: &Commitment<'_>,
        first: Tick,
        stamped: Tick,
    ) -> bool {
        let Some(committed) = &mut self.committed else {
            return false;
        };
        for (tick, salt) in (first.0..).map(Tick).zip(commitment.salts()) {
            // A salt that arrives with an input already held is a copy, or wrong.
            if tick >= self.received.end && !self.received.chain.has(tick) {
                committed.on_salt(tick, salt);
            }
        }
        committed.on_head(commitment.end_low, &commitment.head, stamped)
    }

    /// Checks commitments; fails with the first tick that is not proved, once one cannot be.
    pub(super) fn prove(&mut self) -> Result<(), Tick> {
        match &mut self.committed {
            Some(committed) => committed.check(&self.received.chain, self.received.end),
            None => Ok(()),
        }
    }

    pub(super) fn memory_len(&self) -> usize {
        self.received
            .chain
            .memory_len()
            .saturating_add(self.row.memory_len())
            .saturating_add(self.ahead.0.memory_len())
            .saturating_add(
                self.committed
                    .as_ref()
                    .map_or(0, PeerCommitments::memory_len),
            )
    }
}

pub(super) const fn queue_shape(shape: Shape) -> Shape {
    Shape {
        seats: 1,
        width: shape.width,
    }
}

/// Our own inputs: stamps them, each coded once against the tick before.
#[derive(Debug)]
pub(super) struct LocalInputs {
    /// Ticks between a boundary and the tick that it stamps.
    pub(super) delay: u8,
    /// First tick not stamped; those before the first boundary's are unchanged.
    pub(super) end: Tick,
    before: Row,
    after: Row,
    bundle: Vec<u8>,
    /// When tick `t` could first be sent, in slot `t % CHAIN_LEN`.
    ready_at: Vec<Instant>,
}

impl LocalInputs {
    pub(super) fn new(shape: Shape, neutral: &[u8], delay: u8, now: Instant) -> Self {
        let queue = queue_shape(shape);
        let mut row = Row::initial(1, shape.width, neutral);
        row.set(Seat(0), neutral, Origin::Confirmed);
        Self {
            delay,
            end: Tick(delay.into()),
            after: row.clone(),
            before: row,
            bundle: Vec::with_capacity(queue.bundle_len_max()),
            ready_at: vec![now; usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX)],
        }
    }

    /// Stamps `held` at boundary `index`; skipped ticks repeat the previous input. Returns the
    /// number of stamped ticks: none after the delay was lowered, until boundaries catch up.
    pub(super) fn stamp(
        &mut self,
        now: Instant,
        index: u32,
        held: &[u8],
        queue: &mut InputQueue,
    ) -> u32 {
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
            queue.received.put(self.end, &self.bundle);
            if let Some(at) = self.ready_at.get_mut(self.end.slot(CHAIN_LEN)) {
                *at = now;
            }
            self.end = self.end.plus(1);
            count = count.saturating_add(1);
        }
        count
    }

    /// `ticks` are revealed from now on; with commitments that is later than stamping.
    pub(super) fn reveal(&mut self, now: Instant, ticks: Range<u32>) {
        for tick in ticks {
            if let Some(at) = self.ready_at.get_mut(Tick(tick).slot(CHAIN_LEN)) {
                *at = now;
            }
        }
    }

    /// Sets the delay. Returns how many ticks of the next boundary, number `index`, repeat the last
    /// input, and how many boundaries stamp nothing.
    pub(super) fn set_delay(&mut self, delay: u8, index: u32) -> (u32, u32) {
        self.delay = delay;
        let target = Tick(index).plus(delay.into());
        (target.since(self.end), self.end.since(target))
    }

    pub(super) fn tick_for(&self, index: u32) -> Tick {
        Tick(index).plus(self.delay.into()).max(self.end)
    }

    pub(super) fn ready_at(&self, tick: Tick) -> Option<Instant> {
        if tick >= self.end || self.end.since(tick) > CHAIN_LEN {
            return None;
        }
        self.ready_at.get(tick.slot(CHAIN_LEN)).copied()
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.ready_at
            .len()
            .saturating_mul(size_of::<Instant>())
            .saturating_add(self.bundle.capacity())
            .saturating_add(self.before.memory_len().saturating_mul(2))
    }
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

    fn inputs(queue: &mut InputQueue) -> Vec<u8> {
        let mut inputs: Vec<u8> = Vec::new();
        queue.predict_input(Tick(0), |tick, bits| {
            let held = inputs.last().copied().unwrap_or(0);
            inputs.resize(usize::try_from(tick.0).unwrap(), held);
            inputs.push(bits[0]);
        });
        inputs
    }

    #[test]
    fn ls_13_a_raise_repeats_the_last_input_and_a_lower_delay_drops_overlaps() {
        let (mut own, mut queue) = (
            LocalInputs::new(shape(), &[0], 2, Instant::ZERO),
            InputQueue::new(shape(), &[0]),
        );
        queue.begin(2);
        let mut stamp = |own: &mut LocalInputs, index, value| {
            own.stamp(Instant::ZERO, index, &[value], &mut queue)
        };
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
        assert_eq!(inputs(&mut queue), [0, 0, 1, 2, 2, 2, 2, 3, 6]);
    }
}
