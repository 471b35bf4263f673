//! Who cannot keep up, and why.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::place::{Place, Standing};
use crate::audience::Guest;
use crate::config::SlowPolicy;
use crate::event::{CloseReason, LeaveReason, ServerEvent, SlowCause};
use crate::input::Input;
use crate::turn::Origin;

/// Time over which a player is judged: more than half of its ticks count, as a median does, so that
/// spikes do not.
const WINDOW: Duration = Duration::from_secs(10);

/// Silence after which a link is called slow at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Turns that wait for the simulation of a player who keeps up, at most.
pub(super) const LAG_MAX: u32 = 6;

/// What one player's ticks were like of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Ticks of the window that is being filled.
    ticks: u32,
    /// Of these, how many had its input filled in, or waited for it.
    late: u32,
    /// Of these, how many found its simulation behind.
    lagging: u32,
    /// Whether the tick that closes next waits for it, or did.
    is_awaited: bool,
    /// When it last said anything.
    heard: Option<Instant>,
    /// What was told of it last.
    cause: Option<SlowCause>,
}

/// What there is to tell of a player.
#[derive(Clone, Copy, Debug)]
enum Change {
    Slow(SlowCause),
    Recovered,
}

impl Pace {
    /// Takes note that something came.
    pub(super) const fn on_heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Whether it said something of late.
    pub(super) fn is_heard(&self, now: Instant) -> bool {
        let silence = self.heard.map(|at| now.saturating_since(at));
        silence.is_some_and(|silence| silence < SILENCE)
    }

    /// Takes note that a tick is due which waits for its input.
    pub(super) const fn on_awaited(&mut self) {
        self.is_awaited = true;
    }

    /// Takes the time while a tick waits, whoever it waits for; returns what to tell, where that
    /// changed.
    fn on_pulse(&mut self, now: Instant) -> Option<Change> {
        if self.is_silent(now) {
            self.find(Some(SlowCause::Link))
        } else {
            None
        }
    }

    /// Takes a closed tick in which its input was of `origin`, and `lag` turns waited for its
    /// simulation; returns what to tell, where that changed.
    fn on_tick(&mut self, now: Instant, origin: Origin, lag: u32, window: u32) -> Option<Change> {
        self.ticks = self.ticks.saturating_add(1);
        let was_awaited = core::mem::take(&mut self.is_awaited);
        let is_late = u32::from(origin == Origin::Substituted || was_awaited);
        self.late = self.late.saturating_add(is_late);
        let is_lagging = u32::from(lag > LAG_MAX);
        self.lagging = self.lagging.saturating_add(is_lagging);
        if self.is_silent(now) {
            return self.find(Some(SlowCause::Link));
        }
        if self.ticks < window {
            return None;
        }
        let half = self.ticks / 2;
        let cause = if self.lagging > half {
            Some(SlowCause::Simulation)
        } else if self.late > half {
            Some(SlowCause::Link)
        } else {
            None
        };
        (self.ticks, self.late, self.lagging) = (0, 0, 0);
        self.find(cause)
    }

    fn is_silent(&mut self, now: Instant) -> bool {
        now.saturating_since(*self.heard.get_or_insert(now)) >= SILENCE
    }

    /// Takes what is slow now; returns what to tell, where that changed.
    fn find(&mut self, cause: Option<SlowCause>) -> Option<Change> {
        if cause == self.cause {
            return None;
        }
        self.cause = cause;
        Some(cause.map_or(Change::Recovered, Change::Slow))
    }
}

impl<I: Input> MatchServer<I> {
    /// Looks how everybody did in the tick that was just closed.
    pub(super) fn judge_pace(&mut self, now: Instant) {
        let period = self.limits.period_nanos.max(1);
        let window = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
        let window = window.checked_div(period).unwrap_or(u64::MAX);
        let window = u32::try_from(window).unwrap_or(u32::MAX).max(1);
        for index in 0..self.shape.seats {
            let seat = Seat(index);
            let origin = self.before.origins.get(usize::from(index)).copied();
            let place = self.places.get_mut(usize::from(index));
            let Some(player) = place.and_then(Place::player_mut) else {
                continue;
            };
            if !matches!(player.standing, Standing::Playing { .. }) {
                continue;
            }
            let origin = origin.unwrap_or(Origin::Absent);
            let change = player.pace.on_tick(now, origin, player.lag, window);
            self.tell_pace(now, seat, change);
        }
    }

    /// Looks who is silent while a tick waits.
    pub(super) fn judge_silence(&mut self, now: Instant) {
        for index in 0..self.shape.seats {
            let place = self.places.get_mut(usize::from(index));
            if let Some(player) = place.and_then(Place::player_mut)
                && matches!(player.standing, Standing::Playing { .. })
            {
                let change = player.pace.on_pulse(now);
                self.tell_pace(now, Seat(index), change);
            }
        }
    }

    /// Tells the application what has changed of the player of `seat`.
    fn tell_pace(&mut self, now: Instant, seat: Seat, change: Option<Change>) {
        let tick = self.end.minus(1);
        match change {
            None => {}
            Some(Change::Recovered) => {
                self.events.push_back(ServerEvent::Recovered { seat, tick });
            }
            Some(Change::Slow(cause)) => {
                self.events
                    .push_back(ServerEvent::Slow { seat, tick, cause });
                if cause == SlowCause::Simulation {
                    self.on_slow(now, seat);
                }
            }
        }
    }

    /// Does with a player whose simulation is slow what is asked for.
    fn on_slow(&mut self, now: Instant, seat: Seat) {
        match self.config.slow {
            SlowPolicy::Tell | SlowPolicy::Stretch { .. } => {}
            SlowPolicy::PutOut => self.remove(seat, LeaveReason::Slow, CloseReason::Slow),
            SlowPolicy::Demote => self.demote(now, seat),
        }
    }

    /// Has the player of `seat` watch from now on, or be out.
    pub(super) fn demote(&mut self, now: Instant, seat: Seat) {
        let place = self.places.get(usize::from(seat.0));
        let Some(peer) = place.and_then(Place::player).map(|player| player.peer) else {
            return;
        };
        self.remove(seat, LeaveReason::Slow, CloseReason::Slow);
        // With a delay, what it holds is not shown yet.
        if self.config.spectator_delay == 0
            && self.audience.let_in(now, peer, Guest::Spectator).is_ok()
        {
            self.departed.remove(&peer);
        }
    }
}
