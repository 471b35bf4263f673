//! Detects players that cannot keep up, and lengthens ticks for them.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::close::{PlayerState, SeatState, player, player_mut};
use crate::config::{Config, SlowPolicy};
use crate::event::{CloseReason, LeaveReason, ServerEvent, SlowCause};
use crate::input::{Input, Origin};
use crate::spectators::SpectatorKind;

/// Time over which a player is judged: more than half of its ticks count, as with a median, so that
/// spikes are ignored.
const WINDOW: Duration = Duration::from_secs(10);

/// Silence after which a link counts as slow at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Most turns that may be pending in the simulation of a player that keeps up.
pub(super) const LAG_MAX: u32 = 6;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlayerPace {
    ticks: u32,
    /// Of these, ticks with an input that was substituted or awaited.
    late: u32,
    /// Of these, ticks during which its simulation lagged.
    lagging: u32,
    is_awaited: bool,
    last_received: Option<Instant>,
    cause: Option<SlowCause>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Slow(SlowCause),
    Recovered,
}

impl PlayerPace {
    pub(super) const fn on_received(&mut self, now: Instant) {
        self.last_received = Some(now);
    }

    pub(super) fn is_alive(&self, now: Instant) -> bool {
        let silence = self.last_received.map(|at| now.saturating_since(at));
        silence.is_some_and(|silence| silence < SILENCE)
    }

    pub(super) const fn on_awaited(&mut self) {
        self.is_awaited = true;
    }

    /// Checks for silence while a tick waits for any player; returns a change to report.
    fn on_waiting(&mut self, now: Instant) -> Option<Change> {
        if self.is_silent(now) {
            self.find(Some(SlowCause::Link))
        } else {
            None
        }
    }

    /// Counts a closed tick, `lag` turns behind; returns a change to report.
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
        now.saturating_since(*self.last_received.get_or_insert(now)) >= SILENCE
    }

    fn find(&mut self, cause: Option<SlowCause>) -> Option<Change> {
        if cause == self.cause {
            return None;
        }
        self.cause = cause;
        Some(cause.map_or(Change::Recovered, Change::Slow))
    }
}

impl<I: Input> MatchServer<I> {
    pub(super) fn judge_pace(&mut self, now: Instant) {
        let period = self.limits.period_nanos.max(1);
        let window = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
        let window = window.checked_div(period).unwrap_or(u64::MAX);
        let window = u32::try_from(window).unwrap_or(u32::MAX).max(1);
        for index in 0..self.shape.seats {
            let seat = Seat(index);
            let origin = self.before.origins.get(usize::from(index)).copied();
            let Some(player) = player_mut(&mut self.seats, Seat(index)) else {
                continue;
            };
            if !matches!(player.state, PlayerState::Playing { .. }) {
                continue;
            }
            let origin = origin.unwrap_or(Origin::Absent);
            let change = player.pace.on_tick(now, origin, player.lag, window);
            self.report_pace(now, seat, change);
        }
    }

    pub(super) fn judge_silence(&mut self, now: Instant) {
        for index in 0..self.shape.seats {
            if let Some(player) = player_mut(&mut self.seats, Seat(index))
                && matches!(player.state, PlayerState::Playing { .. })
            {
                let change = player.pace.on_waiting(now);
                self.report_pace(now, Seat(index), change);
            }
        }
    }

    fn report_pace(&mut self, now: Instant, seat: Seat, change: Option<Change>) {
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

    fn on_slow(&mut self, now: Instant, seat: Seat) {
        match self.config.slow {
            SlowPolicy::Report | SlowPolicy::Stretch { .. } => {}
            SlowPolicy::Kick => self.remove(seat, LeaveReason::Slow, CloseReason::Slow),
            SlowPolicy::Demote => self.demote(now, seat),
        }
    }

    pub(super) fn demote(&mut self, now: Instant, seat: Seat) {
        let Some(peer) = player(&self.seats, seat).map(|player| player.peer) else {
            return;
        };
        self.remove(seat, LeaveReason::Slow, CloseReason::Slow);
        // With a delay, spectators may not yet see what the player holds.
        if self.config.spectator_delay == 0
            && self
                .spectators
                .admit(now, peer, SpectatorKind::Spectator)
                .is_ok()
        {
            self.departed.remove(&peer);
        }
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How much longer ticks get, in thousandths, after a check that finds a lagging player that does
/// not catch up.
const UP: u16 = 50;

/// How much shorter they get after a check that finds none.
const DOWN: u16 = 10;

/// Fewest checks for which longer ticks are charged to a player found lagging: half as many undo
/// one step up. The charge lasts until ticks could have their usual length.
const NEEDS: u8 = 10;

/// Fraction of the time without lag that is given back to a player's budget.
const REGAIN: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) per_mille: u16,
    ticks: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StretchNeed {
    /// Ticks since the last check in which its simulation lagged.
    behind: u32,
    lag: u32,
    /// Checks for which longer ticks are still charged to it.
    checks: u8,
    /// Budget used, less what was given back. It stays with the seat.
    held: Duration,
}

impl StretchNeed {
    /// Evaluates `ticks` ticks since the last check; `per_mille` is the extra length possible
    /// afterwards. For a lagging seat, returns whether ticks should get longer.
    fn on_check(&mut self, ticks: u32, lag: Option<u32>, per_mille: u16) -> Option<bool> {
        let is_behind = core::mem::take(&mut self.behind) > ticks / 2 && lag.is_some();
        let lag = lag.unwrap_or(0);
        let before = core::mem::replace(&mut self.lag, lag);
        if !is_behind {
            self.checks = self.checks.saturating_sub(1);
            return None;
        }
        self.checks = u8::try_from(per_mille / DOWN).unwrap_or(u8::MAX).max(NEEDS);
        // An eighth per second is fast enough: the lag is gone after about ten checks.
        let is_catching_up = before.saturating_sub(lag) >= (lag / 8).max(1);
        Some(!is_catching_up)
    }

    /// Charges `span` with ticks longer by `extra` nanoseconds; returns the budget used.
    fn spend(&mut self, span: Duration, extra: u64) -> Duration {
        self.held = if extra > 0 && self.checks > 0 {
            self.held.saturating_add(span)
        } else {
            self.held
                .saturating_sub(span.checked_div(REGAIN).unwrap_or_default())
        };
        self.held
    }
}

impl<I: Input> MatchServer<I> {
    pub(super) fn stretch_nanos(&self) -> u64 {
        let period = self.limits.period_nanos;
        period.saturating_mul(self.stretch.per_mille.into()) / 1_000
    }

    /// Moves all later ticks by the extra length of the one just closed, and sets the next length.
    pub(super) fn stretch_ticks(&mut self, now: Instant) {
        let SlowPolicy::Stretch { percent_max, hold } = self.config.slow else {
            return;
        };
        let extra = self.stretch_nanos();
        self.origin += Duration::from_nanos(extra);
        let stretched = u64::from(extra > 0);
        self.stats.ticks_stretched = self.stats.ticks_stretched.saturating_add(stretched);
        for entry in &mut self.seats {
            let is_behind = playing_lag(entry, now).is_some_and(|lag| lag > LAG_MAX);
            entry.need.behind = entry.need.behind.saturating_add(is_behind.into());
        }
        self.stretch.ticks = self.stretch.ticks.saturating_add(1);
        let period = self.limits.period_nanos.max(1);
        let on_check = u64::try_from(CHECK_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        let on_check = on_check.checked_div(period).unwrap_or(u64::MAX);
        if u64::from(self.stretch.ticks) >= on_check {
            self.check_lag(now, (percent_max, hold));
        }
    }

    fn check_lag(&mut self, now: Instant, (percent_max, hold): (u8, Duration)) {
        let ticks = core::mem::take(&mut self.stretch.ticks);
        let extra = self.stretch_nanos();
        let each = self.limits.period_nanos.saturating_add(extra);
        let span = Duration::from_nanos(each.saturating_mul(ticks.into()));
        let most = u16::from(percent_max.min(PERCENT_MAX)).saturating_mul(10);
        let more = self.stretch.per_mille.saturating_add(UP).min(most);
        let (mut is_needed, mut is_enough) = (false, true);
        for index in 0..self.shape.seats {
            let Some(entry) = self.seats.get_mut(usize::from(index)) else {
                continue;
            };
            let lag = playing_lag(entry, now);
            let wants_more = entry.need.on_check(ticks, lag, more);
            // A player that keeps up is not removed for past lag, which may be its predecessor's.
            if entry.need.spend(span, extra) > hold && wants_more.is_some() {
                entry.need = StretchNeed::default();
                self.demote(now, Seat(index));
            } else if let Some(wants_more) = wants_more {
                (is_needed, is_enough) = (true, is_enough && !wants_more);
            }
        }
        self.stretch.per_mille = match (is_needed, is_enough) {
            (true, false) => more,
            (true, true) => self.stretch.per_mille,
            (false, _) => self.stretch.per_mille.saturating_sub(DOWN),
        };
    }
}

const PERCENT_MAX: u8 = 100;

/// Turns pending in the simulation of the seat's player; `None` if none plays or it is silent.
fn playing_lag(entry: &SeatState, now: Instant) -> Option<u32> {
    let player = entry.player.as_ref()?;
    let is_playing = matches!(player.state, PlayerState::Playing { .. });
    (is_playing && player.pace.is_alive(now)).then_some(player.lag)
}

impl Config {
    pub(super) const fn stretch_len(&self) -> usize {
        match self.slow {
            SlowPolicy::Stretch { .. } => crate::message::STRETCH_LEN,
            SlowPolicy::Report | SlowPolicy::Kick | SlowPolicy::Demote => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lagging_player_needs_more_until_it_catches_up() {
        let mut need = StretchNeed {
            behind: 60,
            ..StretchNeed::default()
        };
        assert_eq!(need.on_check(60, Some(40), 50), Some(true));
        need.behind = 31;
        assert_eq!(need.on_check(60, Some(37), 100), Some(true), "too slow");
        need.behind = 31;
        assert_eq!(need.on_check(60, Some(32), 100), Some(false));
        // A short lag is ignored, and so is a player that left.
        need.behind = 30;
        assert_eq!(need.on_check(60, Some(32), 100), None);
        need.behind = 60;
        assert_eq!(need.on_check(60, None, 100), None);
        assert_eq!(need.checks, NEEDS - 2);
        // Ticks that are twice as long have their usual length after a hundred looks.
        need.behind = 60;
        assert_eq!(need.on_check(60, Some(32), 1_000), Some(true));
        assert_eq!(need.checks, 100);
    }

    #[test]
    fn a_stretch_is_recovered_in_ten_times_its_duration() {
        let second = Duration::from_secs(1);
        let mut need = StretchNeed::default();
        assert_eq!(need.spend(second, 1), Duration::ZERO, "it needs nothing");
        need.checks = NEEDS;
        for held in 1..=5 {
            assert_eq!(need.spend(second, 1), second * held);
        }
        for _ in 0..49 {
            need.spend(second, 0);
        }
        assert_eq!(need.held, second / 10);
        need.spend(second, 0);
        assert_eq!(need.spend(second, 0), Duration::ZERO);
    }
}
