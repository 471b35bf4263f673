//! Which tick an input is for: the delay that a client chooses from how its inputs arrive.

#![warn(clippy::arithmetic_side_effects)]

use core::time::Duration;

use wire::Instant;

use crate::margin::Margin;
use crate::{InputDelay, Tick};

/// Ticks whose delay is remembered: as many inputs as can be on their way.
const TICKS: u32 = 64;

/// Time between two steps down.
const DOWN_INTERVAL: Duration = Duration::from_secs(5);

/// Time after a step up without a step down.
const CALM: Duration = Duration::from_secs(10);

/// Inputs that were overtaken by a newer one, each of which is a sample, at most: two in a row are
/// lost. More are words of the server that were lost, or a path that got quicker.
const OVERTAKEN_MAX: u32 = 2;

/// What an input has to spare, in quarter ticks: while the tick clock follows a path that got
/// slower, by 2 % a tick, the delay goes up before inputs are late.
const HEADROOM: i64 = 1;

/// What it must have to spare beyond that for the delay to go down: a tick and a quarter.
const SPARE: i64 = 5;

/// The delay, and what led to it.
#[derive(Debug)]
pub(super) struct DelayControl {
    range: InputDelay,
    current: u8,
    /// Quarter ticks of delay that inputs needed to come in time.
    needs: Margin,
    /// Delay with which tick `t` was stamped, at place `t % TICKS`.
    stamped: Vec<u8>,
    /// First tick of which no word has come.
    next: Option<Tick>,
    /// When the delay may go down.
    down_at: Option<Instant>,
}

impl DelayControl {
    pub(super) fn new(range: InputDelay) -> Self {
        Self {
            range,
            current: range.min(),
            needs: Margin::new(),
            stamped: vec![0; usize::try_from(TICKS).unwrap_or(0)],
            next: None,
            down_at: None,
        }
    }

    /// Returns the delay, in ticks.
    pub(super) const fn ticks(&self) -> u8 {
        self.current
    }

    /// Takes note that `tick` was stamped at the boundary before it by `delay` ticks.
    pub(super) fn on_stamped(&mut self, tick: Tick, delay: u32) {
        if let Some(stamped) = self.stamped.get_mut(place(tick)) {
            *stamped = u8::try_from(delay).unwrap_or(u8::MAX);
        }
    }

    /// Takes word that the input of `tick`, the newest that arrived, came `slack` quarter ticks
    /// before its tick's close. Returns the new delay where it changes.
    ///
    /// Those between the newest before and this one came with it, as later copies, and so a tick
    /// later each.
    pub(super) fn on_slack(&mut self, now: Instant, tick: Tick, slack: i8) -> Option<u8> {
        if self.range.min() == self.range.max() || self.next.is_some_and(|next| tick < next) {
            return None;
        }
        let overtaken = self.next.map_or(0, |next| tick.since(next));
        self.next = Some(tick.plus(1));
        for back in 0..=overtaken.min(OVERTAKEN_MAX) {
            let delay = self.stamped.get(place(tick.minus(back)));
            let delay = delay.copied().unwrap_or_default();
            let late = i64::from(back).saturating_mul(4);
            let need = i64::from(delay).saturating_mul(4);
            let need = need.saturating_sub(slack.into()).saturating_add(late);
            self.needs.add(need);
        }
        self.choose(now)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "arithmetic on instants saturates"
    )]
    fn choose(&mut self, now: Instant) -> Option<u8> {
        let need = self.needs.need()?.saturating_add(HEADROOM);
        let have = i64::from(self.current).saturating_mul(4);
        if need > have {
            let ticks = u8::try_from(need.saturating_add(3) / 4).unwrap_or(u8::MAX);
            self.down_at = Some(now + CALM);
            return self.set(ticks.min(self.range.max()));
        }
        let down_at = *self.down_at.get_or_insert(now + CALM);
        if now >= down_at && need.saturating_add(SPARE) <= have {
            self.down_at = Some(now + DOWN_INTERVAL);
            let ticks = self.current.saturating_sub(1).max(self.range.min());
            return self.set(ticks);
        }
        None
    }

    const fn set(&mut self, ticks: u8) -> Option<u8> {
        if ticks == self.current {
            return None;
        }
        self.current = ticks;
        Some(ticks)
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.stamped.len()
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % TICKS).unwrap_or(0)
}
