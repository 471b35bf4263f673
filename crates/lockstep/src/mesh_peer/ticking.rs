//! What happens at tick boundaries.

use wire::{Instant, Seat};

use super::{MeshEvent, MeshPeer, State};
use crate::input::Input;
use crate::message::bit;

impl<I: Input> MeshPeer<I> {
    /// Passes the boundaries that are due; where the clock stands, sends again now and then.
    pub(super) fn tick(&mut self, now: Instant, state_at: Instant) {
        let error = self.clock_error();
        let mut has_passed = false;
        while let Some(index) = self.clock.pass(now, self.limit(), self.lag, error) {
            has_passed = true;
            self.on_boundary(now, index);
        }
        let is_beat = self.clock.is_held() && self.beat_at <= now;
        if has_passed {
            self.on_resumed();
        } else if is_beat {
            self.stats.holds = self.stats.holds.saturating_add(1);
            self.on_held();
        }
        if has_passed || is_beat {
            self.beat_at = now + self.period();
            self.due.play = self.others();
            self.settle_paces();
            self.ask_for_missing(now);
            self.compare_hashes();
            self.watch(now);
        }
        // Watching may have ended the match.
        if let State::Running { .. } = self.state
            && self.view.suspects() != 0
            && state_at <= now
        {
            self.on_suspicion(now);
        }
    }

    fn on_boundary(&mut self, now: Instant, index: u32) {
        let own = usize::from(self.seat.0);
        if let Some(lane) = self.lanes.get_mut(own) {
            let count = self.own.stamp(now, index, &self.held, lane);
            self.stats.inputs = self.stats.inputs.saturating_add(count.into());
        }
        self.refresh_known();
        self.foresee(self.seat);
        for link in self.links.iter_mut().flatten() {
            link.repair.on_tick(&self.limits);
        }
    }

    /// How far the others are ahead of us in the mean, ourselves included, in fine units.
    fn clock_error(&self) -> i64 {
        let others = self.others();
        let (mut sum, mut count) = (0_i64, 1_i64);
        for (link, seat) in self.links.iter().zip(0..) {
            if let Some(link) = link
                && others & bit(seat) != 0
            {
                sum = sum.saturating_add(link.pace.ahead());
                count = count.saturating_add(1);
            }
        }
        sum.checked_div(count).unwrap_or(0)
    }

    fn settle_paces(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.pace.settle();
        }
    }

    /// Gives up whoever was silent for too long.
    fn watch(&mut self, now: Instant) {
        let mut silent = 0;
        for (link, seat) in self.links.iter().zip(0..) {
            if let Some(link) = link
                && link.is_silent(now, self.patience)
            {
                silent |= bit(seat);
            }
        }
        if silent & self.others() != 0 && self.view.suspect(silent) {
            self.on_suspicion(now);
        }
    }

    /// Says whom the game waits for, once.
    fn on_held(&mut self) {
        if self.stepper.at() < self.known.plus(self.config.window.into()) {
            // The game does not do its steps.
            return;
        }
        let mut lanes = self.lanes.iter().zip((0..).map(Seat));
        let awaited = lanes.find(|(lane, _)| lane.known_end() <= self.known);
        if let Some((_, seat)) = awaited
            && self.stalled != Some(seat)
        {
            self.stalled = Some(seat);
            let tick = self.known;
            self.tell(MeshEvent::Stalled { seat, tick });
        }
    }

    fn on_resumed(&mut self) {
        if self.stalled.take().is_some() {
            let tick = self.known;
            self.tell(MeshEvent::Resumed { tick });
        }
    }

    pub(super) const fn period(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.limits.period_nanos)
    }
}
