//! Which step a game makes next: save, load, or one tick, with predicted inputs where none are
//! confirmed.
//!
//! Ticks in order, for a game that stands before tick `at`:
//!
//! ```text
//!   final <= saves ... <= end <= at         ticks from `end` to `at` were predicted
//!   final <= at <= end                      after a load, or in lockstep
//! ```
//!
//! Every tick becomes final once, in order: by an `Advance` that is last, or by `Settled` where its
//! prediction proved right. A tick is final only when a save or the game itself stands behind it,
//! so no load ever goes back before it.

mod foreseen;
mod spacing;

use std::collections::VecDeque;

use core::time::Duration;

use wire::Seat;

use crate::bundle::Shape;
use crate::config::SavePolicy;
use crate::tick::Tick;
use crate::turn::Row;

use foreseen::Foreseen;
use spacing::Spacing;

/// Predicted ticks at most: half a second at 60 Hz.
pub(crate) const WINDOW_MAX: u8 = 32;

/// What the game does next. State number `t` is the one before the step of tick `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    /// Save the state, which is number `.0`. At most `window + 1` saves, the newest, are ever
    /// loaded.
    Save(Tick),
    /// Go back to the state that was saved under this number.
    Load(Tick),
    /// Make the step of `tick`, with the inputs of [`Stepper::row`].
    Advance {
        tick: Tick,
        /// Whether the inputs are confirmed; the tick is final then.
        is_last: bool,
    },
    /// Nothing: the inputs predicted for this tick proved right, and it is final.
    Settled(Tick),
}

/// Rows of the ticks simulated beyond what is final, and what is needed to go back.
///
/// Without a window it is lockstep: confirmed rows only, each once, no saves. All memory is taken
/// in [`new`](Self::new).
#[derive(Debug)]
pub(crate) struct Stepper {
    /// Predicted ticks that the game may be ahead of `end`.
    window: u32,
    /// Row of tick `t` at place `(t + 1) % rows.len()`: as confirmed before `end`, as simulated
    /// from there to `at`. The row before the first final tick is kept too.
    rows: Vec<Row>,
    /// Row before tick 0.
    initial: Row,
    /// What seats will probably do.
    foreseen: Foreseen,
    /// First tick that is not confirmed.
    end: Tick,
    /// Next tick that the game simulates.
    at: Tick,
    /// First tick that is not final.
    settled: Tick,
    /// First simulated tick whose inputs are not what is known by now.
    wrong: Option<Tick>,
    /// States that can be loaded, oldest first; but for the first, all lie past `end` or `wrong`.
    saves: VecDeque<Tick>,
    /// How far saves lie apart.
    spacing: Spacing,
}

impl Stepper {
    /// Makes one that stands before tick 0; `window` at most [`WINDOW_MAX`].
    pub(crate) fn new(shape: Shape, neutral: &[u8], window: u8, policy: SavePolicy) -> Self {
        let window = window.min(WINDOW_MAX);
        let spacing = Spacing::new(window, policy);
        // Fewer than `spacing.reach()` ticks from the oldest save to `end`, at most `window` from
        // there to `at`; the row of `at`, and the one before the save.
        let places = spacing
            .reach()
            .saturating_add(window.into())
            .saturating_add(2);
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        let initial = Row::initial(shape.seats, shape.width, neutral);
        Self {
            window: window.into(),
            rows: vec![initial.clone(); places],
            initial,
            foreseen: Foreseen::new(shape, window),
            end: Tick(0),
            at: Tick(0),
            settled: Tick(0),
            wrong: None,
            saves: VecDeque::with_capacity(usize::from(window).saturating_add(2)),
            spacing,
        }
    }

    /// Returns whether [`confirm`](Self::confirm) takes the next row now: it is the one that the
    /// game needs next, or one that it went ahead of.
    pub(crate) fn wants_row(&self) -> bool {
        self.end <= self.at
    }

    /// Takes the closed row of tick [`end`](Self::end), where it is wanted.
    pub(crate) fn confirm(&mut self, row: &Row) {
        debug_assert!(self.wants_row(), "the caller asks before");
        if !self.wants_row() {
            return;
        }
        let tick = self.end;
        let place = self.place(tick);
        let mut is_wrong = false;
        if let Some(known) = self.rows.get_mut(place) {
            is_wrong = tick < self.at && known != row;
            known.copy_from(row);
        }
        if is_wrong {
            self.doubt(tick);
        }
        self.end = tick.plus(1);
    }

    /// Goes on from another participant's state, the one before tick `next`, which inputs `before`
    /// led to. All that was saved or predicted is void; what is foreseen stays.
    pub(crate) fn go_on_from(&mut self, next: Tick, before: &Row) {
        (self.end, self.at, self.settled) = (next, next, next);
        self.wrong = None;
        self.saves.clear();
        self.spacing.on_restart(next);
        let place = self.place(next.minus(1));
        if let Some(row) = self.rows.get_mut(place) {
            row.copy_from(before);
        }
    }

    /// Takes what `seat` will probably do in `tick`, `width` bits: the first word counts. Too far
    /// ahead it is forgotten, and once the tick is confirmed it means nothing.
    ///
    /// Where the tick was simulated with something else, the game goes back to it.
    pub(crate) fn foresee(&mut self, seat: Seat, tick: Tick, bits: &[u8]) {
        if !self.foreseen.insert(self.end, seat, tick, bits) || tick >= self.at {
            return;
        }
        let is_as_simulated = self
            .rows
            .get(self.place(tick))
            .is_some_and(|row| row.value(seat) == bits && row.is_confirmed(seat));
        if !is_as_simulated {
            self.doubt(tick);
        }
    }

    /// Forgets what was foreseen of `next` and all later ticks; what was simulated with it stands
    /// until it proves wrong.
    pub(crate) fn forget_foreseen(&mut self, next: Tick) {
        self.foreseen.forget_from(next);
    }

    /// Returns what the game does next; `None` where it waits for a row, or for `target`, the
    /// first tick that it may not simulate yet.
    pub(crate) fn next(&mut self, target: Tick) -> Option<Do> {
        let stable = self.stable();
        if self.settled < stable {
            let tick = self.settled;
            self.settled = tick.plus(1);
            return Some(Do::Settled(tick));
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
            return Some(Do::Advance {
                tick,
                is_last: true,
            });
        }
        self.predict()
    }

    /// Returns the inputs of the tick that [`next`](Self::next) asked for last.
    pub(crate) fn row(&self) -> &Row {
        self.rows
            .get(self.place(self.at.minus(1)))
            .unwrap_or(&self.initial)
    }

    /// Takes what one save and one step of the game take, for [`SavePolicy::Auto`].
    pub(crate) fn costs(&mut self, save: Duration, step: Duration) {
        self.spacing.costs(save, step);
    }

    /// Returns the inputs of the tick before state number `tick`, where that state is final and
    /// could still be loaded, or was the newest.
    pub(crate) fn row_before(&self, tick: Tick) -> Option<&Row> {
        let oldest = self.saves.front().copied().unwrap_or(self.settled);
        let is_known = tick > Tick(0) && oldest.min(self.settled) <= tick && tick <= self.settled;
        is_known.then(|| self.rows.get(self.place(tick.minus(1))))?
    }

    /// Returns the first tick that is not confirmed.
    pub(crate) const fn end(&self) -> Tick {
        self.end
    }

    /// Returns the next tick that the game simulates.
    pub(crate) const fn at(&self) -> Tick {
        self.at
    }

    /// Returns the first tick that is not final.
    pub(crate) const fn settled(&self) -> Tick {
        self.settled
    }

    /// Bytes that it holds.
    pub(crate) fn memory_len(&self) -> usize {
        let row = self.rows.first().map_or(0, Row::memory_len);
        self.rows
            .len()
            .saturating_mul(row.saturating_add(size_of::<Row>()))
            .saturating_add(self.foreseen.memory_len())
            .saturating_add(self.saves.capacity().saturating_mul(size_of::<Tick>()))
    }

    /// The step of a tick that is not confirmed, where the window allows one.
    fn predict(&mut self) -> Option<Do> {
        let tick = self.at;
        if tick.since(self.end) >= self.window {
            return None;
        }
        let newest = self.saves.back().copied();
        let is_confirmed = tick == self.end;
        let is_saved = newest == Some(tick);
        let far = newest.map_or(u32::MAX, |newest| tick.since(newest));
        if !is_confirmed && self.spacing.is_spent(far) {
            // The only save is about to fall out of reach: move it to the newest confirmed state.
            return Some(self.load(tick));
        }
        if !is_saved && (is_confirmed || self.spacing.is_due(far)) {
            if is_confirmed {
                // Whatever lies before is final.
                self.saves.clear();
                self.spacing.on_confirmed_save(tick);
            }
            self.saves.push_back(tick);
            return Some(Do::Save(tick));
        }
        let (before, place) = (self.place(tick.minus(1)), self.place(tick));
        let before = if tick == Tick(0) { 0 } else { before };
        if let Ok([before, row]) = self.rows.get_disjoint_mut([before, place]) {
            row.copy_from(before);
            self.foreseen.apply(tick, row);
        }
        self.spacing.on_predicted(tick);
        self.at = tick.plus(1);
        Some(Do::Advance {
            tick,
            is_last: false,
        })
    }

    /// Goes back to the newest save at or before `tick`.
    fn load(&mut self, tick: Tick) -> Do {
        while self.saves.len() > 1 && self.saves.back().is_some_and(|save| *save > tick) {
            self.saves.pop_back();
        }
        let save = self.saves.back().copied();
        debug_assert!(
            save.is_some_and(|save| self.settled <= save && save <= tick),
            "no game goes ahead of what is final without a save"
        );
        self.at = save.unwrap_or(self.settled);
        Do::Load(self.at)
    }

    /// First tick that may still be simulated again; forgets saves that no load needs any more.
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

    /// Takes note that `tick` was simulated with inputs that are not its own.
    fn doubt(&mut self, tick: Tick) {
        self.wrong = Some(self.wrong.map_or(tick, |wrong| wrong.min(tick)));
    }

    /// Where the row of `tick` lies; place 0 at first holds the row before tick 0.
    fn place(&self, tick: Tick) -> usize {
        let index = usize::try_from(tick.0).unwrap_or(0).saturating_add(1);
        index.checked_rem(self.rows.len()).unwrap_or(0)
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
