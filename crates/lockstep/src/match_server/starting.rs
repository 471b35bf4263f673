//! When ticks begin, and with whom.

use wire::{Instant, Seat};

use super::MatchServer;
use super::place::{Holder, Place};
use crate::StartPolicy;
use crate::event::{CloseReason, LeaveReason, Phase, ServerEvent};
use crate::input::Input;

impl<I: Input> MatchServer<I> {
    /// Takes note that the player of `seat` is ready.
    pub(super) fn on_ready(&mut self, now: Instant, seat: Seat) {
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place.and_then(Place::player_mut) else {
            return;
        };
        if player.is_ready {
            return;
        }
        player.is_ready = true;
        player.welcome_at = None;
        player.is_due = false;
        self.events.push_back(ServerEvent::Ready { seat });
        if self.phase != Phase::Gathering || self.config.start != StartPolicy::AllReady {
            return;
        }
        if self.places.iter().all(is_ready) {
            self.begin(now);
        } else if self.start_at.is_none() {
            self.start_at = Some(now + self.config.start_timeout);
        }
    }

    /// Begins without those who let the others wait for too long.
    pub(super) fn start_if_overdue(&mut self, now: Instant) {
        if self.start_at.is_none_or(|at| now < at) {
            return;
        }
        for seat in (0..self.shape.seats).map(Seat) {
            let place = self.places.get(usize::from(seat.0));
            if place
                .is_some_and(|place| matches!(place.holder, Holder::Held(_)) && !is_ready(place))
            {
                self.remove(seat, LeaveReason::NotReady, CloseReason::NotReady);
            }
        }
        self.begin(now);
    }

    /// With nobody left who is ready, nobody waits.
    pub(super) fn stop_waiting(&mut self) {
        if !self.places.iter().any(is_ready) {
            self.start_at = None;
        }
    }

    /// Tick 0 begins now.
    pub(super) fn begin(&mut self, now: Instant) {
        debug_assert_eq!(self.phase, Phase::Gathering, "a match begins once");
        self.phase = Phase::Running;
        self.origin = now;
        self.start_at = None;
        self.events.push_back(ServerEvent::Started);
    }
}

fn is_ready(place: &Place) -> bool {
    place.player().is_some_and(|player| player.is_ready)
}
