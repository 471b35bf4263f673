//! What the game does next, of what is confirmed and foreseen.

use wire::{Instant, Seat};

use super::setup::LOGS;
use super::{MeshPeer, State};
use crate::bundle;
use crate::input::Input;
use crate::message::bit;
use crate::step::Step;
use crate::stepper::Do;
use crate::tick::Tick;
use crate::turn::Turn;

impl<I: Input> MeshPeer<I> {
    pub(super) fn step(&mut self, now: Instant) -> Step<'_, I> {
        let State::Running { .. } = self.state else {
            return Step::Wait { until: None };
        };
        while self.read < self.known && self.stepper.wants_row() {
            self.confirm();
        }
        let target = Tick(self.clock.index());
        match self.stepper.next(target) {
            Some(Do::Save(tick)) => Step::Save(tick),
            Some(Do::Load(tick)) => Step::Load(tick),
            Some(Do::Settled(tick)) => {
                self.last = Some(tick);
                Step::Settled(tick)
            }
            Some(Do::Advance { tick, is_last }) => {
                if is_last {
                    self.last = Some(tick);
                }
                Step::Advance {
                    turn: Turn::new(tick, self.stepper.row()),
                    is_last,
                }
            }
            None => {
                let deadline = self.clock.deadline();
                let is_early = self.stepper.at() >= target && deadline > now;
                Step::Wait {
                    until: is_early.then_some(deadline),
                }
            }
        }
    }

    /// Gives the stepper the row of the next confirmed tick.
    fn confirm(&mut self) {
        let tick = self.read;
        self.rows.1.copy_from(&self.rows.0);
        for (lane, seat) in self.lanes.iter_mut().zip((0..).map(Seat)) {
            lane.read(tick, seat, &self.neutral, &mut self.rows.0);
        }
        self.scratch.clear();
        bundle::encode(&self.rows.1, &self.rows.0, &mut self.scratch);
        self.log.absorb(&self.scratch);
        if let Some(log) = self.logs.get_mut(log_place(tick)) {
            *log = self.log;
        }
        self.stepper.confirm(&self.rows.0);
        self.read = tick.plus(1);
    }

    /// Tells the stepper what `seat` does in ticks that are not confirmed.
    pub(super) fn foresee(&mut self, seat: Seat) {
        if self.config.window == 0 {
            return;
        }
        let stepper = &mut self.stepper;
        if let Some(lane) = self.lanes.get_mut(usize::from(seat.0)) {
            lane.foresee(self.read, |tick, bits| stepper.foresee(seat, tick, bits));
        }
    }

    /// Finds out up to where the inputs of all are known, and who is waited for there.
    pub(super) fn refresh_known(&mut self) {
        let ends = self.lanes.iter().map(super::Lane::known_end);
        self.known = ends.clone().min().unwrap_or(self.known).max(self.known);
        let awaited = ends.zip(0..).filter(|(end, _)| *end <= self.known);
        self.awaited = awaited.fold(0, |awaited, (_, seat)| awaited | bit(seat));
    }

    /// Last boundary that may be passed: the clock stands where the game is too far behind it.
    pub(super) const fn limit(&self) -> u32 {
        self.stepper.at().plus(self.lag).0
    }
}

/// Where the log hash after `tick` is kept.
pub(super) fn log_place(tick: Tick) -> usize {
    usize::try_from(tick.0 % LOGS).unwrap_or(0)
}
