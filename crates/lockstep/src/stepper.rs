//! The next action of a game: save, load, or one tick, with predicted inputs if none are confirmed.
//!
//! Ticks in order, for a game at tick `at`:
//!
//! ```text
//!   final <= saves ... <= end <= at         ticks from `end` to `at` were predicted
//!   final <= at <= end                      after a load, or in lockstep
//! ```
//!
//! Every tick becomes final once, in order: by an `Advance` that is last, or by `Settled` if its
//! prediction proved right. A tick is final only once a save or the game itself is past it, so no
//! load ever returns to before it.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Seat;

use crate::bundle::Shape;
use crate::config::SavePolicy;
use crate::input::{Origin, Row};
use crate::tick::Tick;

/// Most predicted ticks: half a second at 60 Hz.
pub(crate) const WINDOW_MAX: u8 = 32;

/// The next action of a game. State number `t` is the one before the step of tick `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepAction {
    /// Save the state, under this number. Only the newest `window + 1` saves are ever loaded.
    Save(Tick),
    /// Load the state saved under this number.
    Load(Tick),
    /// Run the step of `tick`, with the inputs of [`Stepper::row`].
    Advance {
        tick: Tick,
        /// Whether the inputs are confirmed; the tick is then final.
        is_last: bool,
    },
    /// Nothing to run: the inputs predicted for this tick proved right, and it is final.
    Settled(Tick),
}

/// Rows of simulated ticks that are not final, and the saves to go back to. Without a window it is
/// plain lockstep: confirmed rows only, each once, no saves.
#[derive(Debug)]
pub(crate) struct Stepper {
    window: u32,
    /// Row of tick `t` in slot `(t + 1) % rows.len()`: as confirmed before `end`, as simulated from
    /// there to `at`. The row before the first final tick is kept too.
    rows: Vec<Row>,
    initial: Row,
    predicted_inputs: PredictedInputs,
    pub(crate) end: Tick,
    pub(crate) at: Tick,
    pub(crate) settled: Tick,
    /// First tick simulated with inputs that are known to be wrong.
    wrong: Option<Tick>,
    /// Loadable states, oldest first; all but the first lie past `end` or `wrong`.
    saves: VecDeque<Tick>,
    spacing: Spacing,
}

impl Stepper {
    pub(crate) fn new(shape: Shape, neutral: &[u8], window: u8, policy: SavePolicy) -> Self {
        let window = window.min(WINDOW_MAX);
        let spacing = Spacing::new(window, policy);
        // Fewer than `spacing.reach()` ticks from the oldest save to `end`, at most `window` from
        // there to `at`; plus the row of `at`, and the one before the save.
        let slots = spacing
            .reach()
            .saturating_add(window.into())
            .saturating_add(2);
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        let initial = Row::initial(shape.seats, shape.width, neutral);
        Self {
            window: window.into(),
            rows: vec![initial.clone(); slots],
            initial,
            predicted_inputs: PredictedInputs::new(shape, window),
            end: Tick(0),
            at: Tick(0),
            settled: Tick(0),
            wrong: None,
            saves: VecDeque::with_capacity(usize::from(window).saturating_add(2)),
            spacing,
        }
    }

    /// Whether the game needs the next row now, or has predicted it.
    pub(crate) fn wants_row(&self) -> bool {
        self.end <= self.at
    }

    pub(crate) fn confirm(&mut self, row: &Row) {
        debug_assert!(self.wants_row(), "the caller asks before");
        if !self.wants_row() {
            return;
        }
        let tick = self.end;
        let slot = self.slot(tick);
        let mut is_wrong = false;
        if let Some(known) = self.rows.get_mut(slot) {
            is_wrong = tick < self.at && known != row;
            known.copy_from(row);
        }
        if is_wrong {
            self.mark_predicted(tick);
        }
        self.end = tick.plus(1);
    }

    /// Continues from another participant's state, the one before tick `next`, with `before` as the
    /// row before it. Saves and simulated ticks are void; known inputs of open ticks stay.
    pub(crate) fn resume_from(&mut self, next: Tick, before: &Row) {
        (self.end, self.at, self.settled) = (next, next, next);
        self.wrong = None;
        self.saves.clear();
        self.spacing.on_restart(next);
        let slot = self.slot(next.minus(1));
        if let Some(row) = self.rows.get_mut(slot) {
            row.copy_from(before);
        }
    }

    /// Takes the first input of `seat` for the open tick `tick`, unless it is too far ahead. If the
    /// tick was simulated with another one, the game rolls back to it.
    pub(crate) fn predict_input(&mut self, seat: Seat, tick: Tick, bits: &[u8]) {
        if !self.predicted_inputs.insert(self.end, seat, tick, bits) || tick >= self.at {
            return;
        }
        let is_as_simulated = self
            .rows
            .get(self.slot(tick))
            .is_some_and(|row| row.value(seat) == bits && row.is_confirmed(seat));
        if !is_as_simulated {
            self.mark_predicted(tick);
        }
    }

    pub(crate) fn forget_predicted(&mut self, next: Tick) {
        self.predicted_inputs.forget_from(next);
    }

    /// `target` is the first tick that it may not simulate yet.
    pub(crate) fn next(&mut self, target: Tick) -> Option<StepAction> {
        let stable = self.stable();
        if self.settled < stable {
            let tick = self.settled;
            self.settled = tick.plus(1);
            return Some(StepAction::Settled(tick));
        }
        if let Some(wrong) = self.wrong.take() {
            self.spacing.on_rollback(wrong, self.at, self.end);
            return Some(self.load(wrong));
        }
        if self.at >= target {
            return None;
        }
        if self.at < self.end {
            let tick = self.at;
            debug_assert_eq!(self.settled, tick, "all that it stands on is final");
            self.at = tick.plus(1);
            self.settled = self.at;
            return Some(StepAction::Advance {
                tick,
                is_last: true,
            });
        }
        self.predict()
    }

    pub(crate) fn row(&self) -> &Row {
        self.rows
            .get(self.slot(self.at.minus(1)))
            .unwrap_or(&self.initial)
    }

    pub(crate) fn costs(&mut self, save: Duration, step: Duration) {
        self.spacing.costs(save, step);
    }

    /// Returns the inputs of the tick before state number `tick`, if that state is final and still
    /// loadable, or was the newest.
    pub(crate) fn row_before(&self, tick: Tick) -> Option<&Row> {
        let oldest = self.saves.front().copied().unwrap_or(self.settled);
        let is_known = tick > Tick(0) && oldest.min(self.settled) <= tick && tick <= self.settled;
        is_known.then(|| self.rows.get(self.slot(tick.minus(1))))?
    }

    pub(crate) fn memory_len(&self) -> usize {
        let row = self.rows.first().map_or(0, Row::memory_len);
        self.rows
            .len()
            .saturating_mul(row.saturating_add(size_of::<Row>()))
            .saturating_add(self.predicted_inputs.memory_len())
            .saturating_add(self.saves.capacity().saturating_mul(size_of::<Tick>()))
    }

    /// The step of an unconfirmed tick, if the window allows one.
    fn predict(&mut self) -> Option<StepAction> {
        let tick = self.at;
        if tick.since(self.end) >= self.window {
            return None;
        }
        let newest = self.saves.back().copied();
        let is_confirmed = tick == self.end;
        let is_saved = newest == Some(tick);
        let distance = newest.map_or(u32::MAX, |newest| tick.since(newest));
        if !is_confirmed && self.spacing.is_spent(distance) {
            // The only save is about to leave the reach: move it to the newest confirmed state.
            return Some(self.load(tick));
        }
        if !is_saved && (is_confirmed || self.spacing.is_due(distance)) {
            if is_confirmed {
                self.saves.clear();
                self.spacing.on_confirmed_save(tick);
            }
            self.saves.push_back(tick);
            return Some(StepAction::Save(tick));
        }
        let (before, slot) = (self.slot(tick.minus(1)), self.slot(tick));
        let before = if tick == Tick(0) { 0 } else { before };
        if let Ok([before, row]) = self.rows.get_disjoint_mut([before, slot]) {
            row.copy_from(before);
            self.predicted_inputs.apply(tick, row);
        }
        self.spacing.on_predicted(tick);
        self.at = tick.plus(1);
        Some(StepAction::Advance {
            tick,
            is_last: false,
        })
    }

    fn load(&mut self, tick: Tick) -> StepAction {
        while self.saves.len() > 1 && self.saves.back().is_some_and(|save| *save > tick) {
            self.saves.pop_back();
        }
        let save = self.saves.back().copied();
        debug_assert!(
            save.is_some_and(|save| self.settled <= save && save <= tick),
            "no game goes ahead of what is final without a save"
        );
        self.at = save.unwrap_or(self.settled);
        StepAction::Load(self.at)
    }

    /// First tick that may still be simulated again; drops saves that no load needs.
    fn stable(&mut self) -> Tick {
        if self.wrong.is_none() && self.at <= self.end {
            return self.at;
        }
        let limit = self.wrong.map_or(self.end, |wrong| wrong.min(self.end));
        while self.saves.get(1).is_some_and(|save| *save <= limit) {
            self.saves.pop_front();
        }
        self.saves
            .front()
            .copied()
            .unwrap_or(self.settled)
            .min(limit)
    }

    fn mark_predicted(&mut self, tick: Tick) {
        self.wrong = Some(self.wrong.map_or(tick, |wrong| wrong.min(tick)));
    }

    /// Slot of the row of `tick`; slot 0 first holds the row before tick 0.
    fn slot(&self, tick: Tick) -> usize {
        let index = usize::try_from(tick.0).unwrap_or(0).saturating_add(1);
        index.checked_rem(self.rows.len()).unwrap_or(0)
    }
}

/// Ticks from the first unconfirmed one for which inputs are kept: the longest input delay, 60,
/// plus the largest window, 32, fit.
const PREDICTED_MAX: u32 = 128;

#[derive(Debug)]
struct PredictedInputs {
    stride: usize,
    /// Tick plus 1 of each slot, seat by seat; 0 if unknown.
    ticks: Vec<u32>,
    /// `stride` bytes per slot.
    values: Vec<u8>,
}

impl PredictedInputs {
    fn new(shape: Shape, window: u8) -> Self {
        let slots = if window == 0 { 0 } else { slots() };
        let slots = slots.saturating_mul(shape.seats.into());
        let stride = shape.width.byte_len();
        Self {
            stride,
            ticks: vec![0; slots],
            values: vec![0; slots.saturating_mul(stride)],
        }
    }

    /// Returns whether the input was unknown, and in the range from `end` on.
    fn insert(&mut self, end: Tick, seat: Seat, tick: Tick, bits: &[u8]) -> bool {
        if tick < end || tick.since(end) >= PREDICTED_MAX || bits.len() != self.stride {
            return false;
        }
        let slot = slot(seat, tick);
        let start = slot.saturating_mul(self.stride);
        let (Some(tag), Some(value)) = (
            self.ticks.get_mut(slot),
            self.values
                .get_mut(start..start.saturating_add(self.stride)),
        ) else {
            return false;
        };
        if *tag == tick.0.saturating_add(1) {
            return false;
        }
        *tag = tick.0.saturating_add(1);
        value.copy_from_slice(bits);
        true
    }

    fn forget_from(&mut self, next: Tick) {
        for tag in self.ticks.iter_mut().filter(|tag| **tag > next.0) {
            *tag = 0;
        }
    }

    fn apply(&self, tick: Tick, row: &mut Row) {
        let wanted = tick.0.saturating_add(1);
        let first = slot(Seat(0), tick);
        let tags = self.ticks.iter().skip(first).step_by(slots());
        for (seat, tag) in (0..=u16::MAX).map(Seat).zip(tags) {
            if *tag == wanted {
                let start = slot(seat, tick).saturating_mul(self.stride);
                let value = self.values.get(start..start.saturating_add(self.stride));
                row.set(seat, value.unwrap_or_default(), Origin::Confirmed);
            }
        }
    }

    const fn memory_len(&self) -> usize {
        self.ticks
            .len()
            .saturating_mul(size_of::<u32>())
            .saturating_add(self.values.len())
    }
}

fn slots() -> usize {
    usize::try_from(PREDICTED_MAX).unwrap_or(usize::MAX)
}

fn slot(seat: Seat, tick: Tick) -> usize {
    usize::from(seat.0)
        .saturating_mul(slots())
        .saturating_add(tick.slot(PREDICTED_MAX))
}

/// Distances to choose from: 1, 2, 4, ... 64, twice the largest window.
const CANDIDATES: usize = 7;

/// Ticks without a rollback after which their saves are counted.
const QUIET_TICKS: u32 = 256;

const SCALE_BITS: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    saves: u64,
    steps: u64,
}

/// Distance between a game's saves, chosen by cost. A rollback to tick `w`, at distance `g` from
/// the last save of a confirmed state, repeats `g % k` steps more than necessary if saves follow
/// every `k` ticks. So one run of a match yields the cost of every `k`.
#[derive(Debug)]
struct Spacing {
    policy: SavePolicy,
    /// Most ticks from the oldest save to the first unconfirmed one.
    reach: u32,
    every: u32,
    /// By distance: entry `i` is `2^i` ticks.
    tallies: [Tally; CANDIDATES],
    origin: Tick,
    /// Ticks from there for which saves are counted.
    counted: u32,
    save_nanos: u64,
    step_nanos: u64,
}

impl Spacing {
    fn new(window: u8, policy: SavePolicy) -> Self {
        let window = u32::from(window).max(1);
        let reach = match policy {
            SavePolicy::Dense => 1,
            // With less, a game a whole window ahead would restart all the time, and saves ten
            // times as expensive as steps would cost a tenth more than necessary.
            SavePolicy::Sparse | SavePolicy::Auto => window.saturating_mul(2),
        };
        Self {
            policy,
            reach,
            every: 1,
            tallies: [Tally::default(); CANDIDATES],
            origin: Tick(0),
            counted: 0,
            save_nanos: 1,
            step_nanos: 1,
        }
    }

    const fn reach(&self) -> u32 {
        self.reach
    }

    fn costs(&mut self, save: Duration, step: Duration) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.save_nanos = nanos(save).clamp(1, 1_000_000_000);
        self.step_nanos = nanos(step).clamp(1, 1_000_000_000);
    }

    fn on_predicted(&mut self, at: Tick) {
        let until = self.counted.saturating_add(QUIET_TICKS);
        if at.since(self.origin) > until {
            self.count_saves(at);
            self.choose();
        }
    }

    const fn is_due(&self, distance: u32) -> bool {
        match self.policy {
            SavePolicy::Dense => distance >= 1,
            SavePolicy::Sparse => false,
            SavePolicy::Auto => distance >= self.every,
        }
    }

    /// Whether the only save must move before the game continues.
    const fn is_spent(&self, distance: u32) -> bool {
        matches!(self.policy, SavePolicy::Sparse) && distance >= self.reach
    }

    fn on_confirmed_save(&mut self, tick: Tick) {
        self.count_saves(tick);
        self.origin = tick;
        self.counted = 0;
    }

    const fn on_restart(&mut self, tick: Tick) {
        self.origin = tick;
        self.counted = 0;
    }

    /// Counts a rollback from `at` to `wrong`, the first tick with wrong inputs; ticks before `end`
    /// are confirmed.
    fn on_rollback(&mut self, wrong: Tick, at: Tick, end: Tick) {
        self.count_saves(at);
        let gap = wrong.since(self.origin);
        let again = at.since(wrong);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let steps = again.saturating_add(gap.checked_rem(every).unwrap_or(0));
            tally.steps = tally.steps.saturating_add(scaled(steps));
        }
        if wrong >= end {
            // No confirmed state is saved on the way: count from here.
            self.counted = gap;
        }
        self.choose();
    }

    /// Counts the saves between the origin and `at`, exclusive, that were not counted yet.
    fn count_saves(&mut self, at: Tick) {
        let until = at.since(self.origin).saturating_sub(1);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let saves = |ticks: u32| ticks.checked_div(every).unwrap_or(0);
            let saves = saves(until).saturating_sub(saves(self.counted));
            tally.saves = tally.saves.saturating_add(scaled(saves));
        }
        self.counted = self.counted.max(until);
    }

    fn choose(&mut self) {
        let (save, step) = (self.save_nanos, self.step_nanos);
        let mut cheapest = (u64::MAX, self.every);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let saves = tally.saves.saturating_mul(save);
            let cost = saves.saturating_add(tally.steps.saturating_mul(step));
            if every <= self.reach && cost < cheapest.0 {
                cheapest = (cost, every);
            }
            // Each rollback weighs 1/64 less than the next.
            tally.saves = tally.saves.saturating_sub(tally.saves >> 6);
            tally.steps = tally.steps.saturating_sub(tally.steps >> 6);
        }
        self.every = cheapest.1;
    }
}

fn distances() -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|power| 1_u32.checked_shl(power).unwrap_or(u32::MAX))
}

fn scaled(count: u32) -> u64 {
    u64::from(count) << SCALE_BITS
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
