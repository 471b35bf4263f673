//! Ticks that last longer while a player's simulation does not keep up.
//!
//! A second at a time: where somebody was behind in more than half of its ticks, the next ones are
//! longer by a twentieth more, until it catches up; where nobody was, by a hundredth less. Players are
//! told how long ticks are with each datagram, since their clocks follow by 2 % only.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::pace::LAG_MAX;
use super::place::{Place, Standing};
use crate::config::{Config, SlowPolicy};
use crate::input::Input;

/// Time from one look at who is behind to the next, while ticks have their usual length.
const LOOK: Duration = Duration::from_secs(1);

/// By how much of a tick they are longer after a look that found somebody behind, and not catching up,
/// in thousandths.
const UP: u16 = 50;

/// By how much less after one that found nobody behind.
const DOWN: u16 = 10;

/// Looks after one that found a player behind for which longer ticks are put down to it, at least: a
/// step up lasts for half as many. They are put down to it until they could have their usual length.
const NEEDS: u8 = 10;

/// Part of the time without need that is given back of the time that a player may hold others up.
const REGAIN: u32 = 10;

/// How long ticks are now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    /// By how much longer than usual, in thousandths.
    pub(super) per_mille: u16,
    /// Ticks since the last look.
    ticks: u32,
}

/// What a seat's player needs longer ticks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    /// Ticks since the last look in which its simulation was behind.
    behind: u32,
    /// Turns that waited for it at the last look.
    lag: u32,
    /// Looks for which longer ticks are put down to it.
    looks: u8,
    /// For how long it has had ticks longer, less what was given back; who comes back to the seat
    /// has as much left.
    held: Duration,
}

impl Need {
    /// Takes what a look of so many ticks found, and how much longer they may be after it; returns
    /// whether ticks should be longer for it, where it was behind.
    fn look(&mut self, ticks: u32, lag: Option<u32>, per_mille: u16) -> Option<bool> {
        let is_behind = core::mem::take(&mut self.behind) > ticks / 2 && lag.is_some();
        let lag = lag.unwrap_or(0);
        let before = core::mem::replace(&mut self.lag, lag);
        if !is_behind {
            self.looks = self.looks.saturating_sub(1);
            return None;
        }
        self.looks = u8::try_from(per_mille / DOWN).unwrap_or(u8::MAX).max(NEEDS);
        // By an eighth in a second is fast enough: it is through in some ten.
        let is_catching_up = before.saturating_sub(lag) >= (lag / 8).max(1);
        Some(!is_catching_up)
    }

    /// Takes note that `span` went by, in which ticks were longer by `extra` nanoseconds; returns for how
    /// long it has had them longer.
    fn spend(&mut self, span: Duration, extra: u64) -> Duration {
        self.held = if extra > 0 && self.looks > 0 {
            self.held.saturating_add(span)
        } else {
            self.held
                .saturating_sub(span.checked_div(REGAIN).unwrap_or_default())
        };
        self.held
    }
}

impl<I: Input> MatchServer<I> {
    /// By how much longer the next tick is, in nanoseconds.
    pub(super) fn stretch_nanos(&self) -> u64 {
        let period = self.limits.period_nanos;
        period.saturating_mul(self.stretch.per_mille.into()) / 1_000
    }

    /// Has all later ticks move by what the one that was just closed was longer, and sees how long
    /// the next one is.
    pub(super) fn stretch_ticks(&mut self, now: Instant) {
        let SlowPolicy::Stretch { percent_max, hold } = self.config.slow else {
            return;
        };
        let extra = self.stretch_nanos();
        self.origin += Duration::from_nanos(extra);
        let stretched = u64::from(extra > 0);
        self.stats.ticks_stretched = self.stats.ticks_stretched.saturating_add(stretched);
        for place in &mut self.places {
            let is_behind = playing_lag(place, now).is_some_and(|lag| lag > LAG_MAX);
            place.need.behind = place.need.behind.saturating_add(is_behind.into());
        }
        self.stretch.ticks = self.stretch.ticks.saturating_add(1);
        let period = self.limits.period_nanos.max(1);
        let look = u64::try_from(LOOK.as_nanos()).unwrap_or(u64::MAX);
        let look = look.checked_div(period).unwrap_or(u64::MAX);
        if u64::from(self.stretch.ticks) >= look {
            self.look_who_is_behind(now, (percent_max, hold));
        }
    }

    fn look_who_is_behind(&mut self, now: Instant, (percent_max, hold): (u8, Duration)) {
        let ticks = core::mem::take(&mut self.stretch.ticks);
        let extra = self.stretch_nanos();
        let each = self.limits.period_nanos.saturating_add(extra);
        let span = Duration::from_nanos(each.saturating_mul(ticks.into()));
        let most = u16::from(percent_max.min(PERCENT_MAX)).saturating_mul(10);
        let more = self.stretch.per_mille.saturating_add(UP).min(most);
        let (mut is_needed, mut is_enough) = (false, true);
        for index in 0..self.shape.seats {
            let Some(place) = self.places.get_mut(usize::from(index)) else {
                continue;
            };
            let lag = playing_lag(place, now);
            let wants_more = place.need.look(ticks, lag, more);
            // Who keeps up is not taken out for what was, maybe by somebody else.
            if place.need.spend(span, extra) > hold && wants_more.is_some() {
                place.need = Need::default();
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

/// Most that a tick may be longer, per cent.
const PERCENT_MAX: u8 = 100;

/// Turns that wait for a seat's player, where one plays and is heard: of one who is silent, nobody
/// knows.
fn playing_lag(place: &Place, now: Instant) -> Option<u32> {
    let player = place.player()?;
    let is_playing = matches!(player.standing, Standing::Playing { .. });
    (is_playing && player.pace.is_heard(now)).then_some(player.lag)
}

impl Config {
    /// What stands before turns to say how long ticks are, in bytes.
    pub(super) const fn stretch_len(&self) -> usize {
        match self.slow {
            SlowPolicy::Stretch { .. } => crate::message::STRETCH_LEN,
            SlowPolicy::Tell | SlowPolicy::PutOut | SlowPolicy::Demote => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_behind_needs_more_until_it_catches_up() {
        let mut need = Need {
            behind: 60,
            ..Need::default()
        };
        assert_eq!(need.look(60, Some(40), 50), Some(true));
        need.behind = 31;
        assert_eq!(need.look(60, Some(37), 100), Some(true), "too slow");
        need.behind = 31;
        assert_eq!(need.look(60, Some(32), 100), Some(false));
        // A short while is nothing, and nor is who plays no more.
        need.behind = 30;
        assert_eq!(need.look(60, Some(32), 100), None);
        need.behind = 60;
        assert_eq!(need.look(60, None, 100), None);
        assert_eq!(need.looks, NEEDS - 2);
        // Ticks that are twice as long have their usual length after a hundred looks.
        need.behind = 60;
        assert_eq!(need.look(60, Some(32), 1_000), Some(true));
        assert_eq!(need.looks, 100);
    }

    #[test]
    fn what_is_held_is_given_back_in_ten_times_the_time() {
        let second = Duration::from_secs(1);
        let mut need = Need::default();
        assert_eq!(need.spend(second, 1), Duration::ZERO, "it needs nothing");
        need.looks = NEEDS;
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
