//! Interpolation between states of remote objects, displayed with a delay.

use std::collections::VecDeque;

use core::time::Duration;

use wire::Instant;

use crate::playout::PlayoutClock;
use crate::playout::{CLOCK_JUMP, LATE_IN_ROW, Playout};

/// Interpolates between states that a server sends at intervals.
///
/// For games with a server that sends states; lockstep games do not need it. Each state carries the
/// server's time. [`between`](Self::between) returns the two states around the displayed moment,
/// which lags by the delay of [`Playout`], and the position between them. The displayed moment
/// advances evenly: at most an eighth faster or slower while the delay changes; it jumps only if it
/// is off by more than 0.5 s.
///
/// ```
/// use core::time::Duration;
/// use lockstep::{Interpolation, InterpolationConfig};
/// use wire::Instant;
///
/// let mut others = Interpolation::new(InterpolationConfig::default());
/// let (sent, now) = (Instant::from_millis(700), Instant::from_millis(5_000));
/// others.push(now, sent, 10.0_f32);
/// others.push(now + Duration::from_millis(50), sent + Duration::from_millis(50), 20.0);
/// others.push(now + Duration::from_millis(100), sent + Duration::from_millis(100), 30.0);
/// let shown = others.between(now + Duration::from_millis(110)).unwrap();
/// let at = shown.from + (shown.to - shown.from) * shown.ratio();
/// assert!((10.0..=30.0).contains(&at));
/// ```
///
/// Memory for [`InterpolationConfig::states`] states is allocated at once.
#[derive(Clone, Debug)]
pub struct Interpolation<S> {
    config: InterpolationConfig,
    clock: PlayoutClock,
    /// In order of the server's times, each once.
    states: VecDeque<(Instant, S)>,
    /// The last displayed moment, on the server's clock, and when.
    shown: Option<(Instant, Instant)>,
    late_in_row: u32,
    stats: InterpolationStats,
}

/// Configuration of an [`Interpolation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterpolationConfig {
    /// Display delay; adaptive, at most 500 ms. It includes the time between two states.
    pub playout: Playout,
    /// Longest extrapolation past the newest state; 100 ms.
    pub extrapolation_max: Duration,
    /// States held, from 2 to 1,024; 64. Beyond it the oldest are dropped.
    pub states: u16,
}

impl Default for InterpolationConfig {
    fn default() -> Self {
        Self {
            playout: Playout::Adaptive {
                max: Duration::from_millis(500),
            },
            extrapolation_max: Duration::from_millis(100),
            states: 64,
        }
    }
}

impl<S> Interpolation<S> {
    /// Creates an empty one.
    #[must_use]
    pub fn new(config: InterpolationConfig) -> Self {
        let states = config.states.clamp(2, STATES_MAX);
        Self {
            config: InterpolationConfig { states, ..config },
            clock: PlayoutClock::new(config.playout),
            states: VecDeque::with_capacity(states.into()),
            shown: None,
            late_in_row: 0,
            stats: InterpolationStats::default(),
        }
    }

    /// Takes the state of `sent_at` on the server's clock, which has any origin and deviates from
    /// ours by at most 200 ppm.
    ///
    /// A duplicate, or a state that would change the interval on display, is dropped and counted.
    /// If the server's clock jumps ahead by more than a second, or 32 states in a row are late, it
    /// restarts.
    pub fn push(&mut self, now: Instant, sent_at: Instant, state: S) {
        if self.clock.lead(now, sent_at) > CLOCK_JUMP {
            self.restart();
        }
        let index = self.index(sent_at);
        if self.states.get(index).is_some_and(|(at, _)| *at == sent_at) {
            self.stats.dropped_duplicate = self.stats.dropped_duplicate.saturating_add(1);
            return;
        }
        if index < self.states.len() && self.settled().is_some_and(|end| sent_at < end) {
            self.stats.dropped_late = self.stats.dropped_late.saturating_add(1);
            self.late_in_row = self.late_in_row.saturating_add(1);
            if self.late_in_row < LATE_IN_ROW {
                return;
            }
            self.restart();
        }
        self.late_in_row = 0;
        self.clock.on_arrival(now, sent_at);
        if let Some((newest, _)) = self.states.back()
            && *newest < sent_at
        {
            // From here on there is an interval after the previous state.
            self.clock.on_ready(now, *newest);
        }
        if self.states.len() >= self.config.states.into() {
            self.stats.dropped_full = self.stats.dropped_full.saturating_add(1);
            if self.index(sent_at) == 0 {
                return;
            }
            self.states.pop_front();
        }
        self.stats.states = self.stats.states.saturating_add(1);
        self.states.insert(self.index(sent_at), (sent_at, state));
    }

    /// Returns the states around the moment displayed at `now`; `None` before the first. Past the
    /// newest, the last two are extrapolated for up to [`InterpolationConfig::extrapolation_max`].
    pub fn between(&mut self, now: Instant) -> Option<Between<'_, S>> {
        let at = self.show(now)?;
        while self.states.len() > 2 && self.states.get(1).is_some_and(|(next, _)| *next <= at) {
            self.states.pop_front();
        }
        let (from_at, from) = self.states.front()?;
        let Some((to_at, to)) = self.states.get(1) else {
            return Some(Between {
                from,
                to: from,
                since: Duration::ZERO,
                span: Duration::ZERO,
            });
        };
        let span = to_at.saturating_since(*from_at);
        let since = at.saturating_since(*from_at);
        if since > span {
            self.stats.extrapolated = self.stats.extrapolated.saturating_add(1);
        }
        let since = since.min(span.saturating_add(self.config.extrapolation_max));
        Some(Between {
            from,
            to,
            since,
            span,
        })
    }

    /// Returns the display delay beyond the fastest network latency.
    pub fn delay(&self) -> Duration {
        self.clock.delay()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &InterpolationStats {
        &self.stats
    }

    fn show(&mut self, now: Instant) -> Option<Instant> {
        let target = self.clock.played(now)?;
        let mut shown = target;
        if let Some((before, at)) = self.shown {
            let passed = now.saturating_since(at);
            let slip = passed.checked_div(DILATION).unwrap_or_default();
            let steady = before + passed;
            let off = target.max(steady).saturating_since(target.min(steady));
            if off > JUMP {
                self.stats.jumps = self.stats.jumps.saturating_add(1);
            } else {
                shown = target.clamp(steady.saturating_sub(slip), steady + slip);
            }
        }
        self.shown = Some((shown, now));
        Some(shown)
    }

    /// Returns the end of the interval on display: nothing before it may change.
    fn settled(&self) -> Option<Instant> {
        let (shown, _) = self.shown?;
        let end = self.states.get(1).map(|(at, _)| *at);
        let is_within = self.states.front().is_some_and(|(at, _)| *at <= shown);
        Some(end.filter(|_| is_within).unwrap_or(shown))
    }

    fn index(&self, sent_at: Instant) -> usize {
        self.states.partition_point(|(at, _)| *at < sent_at)
    }

    fn restart(&mut self) {
        self.states.clear();
        self.clock.restart();
        self.shown = None;
        self.late_in_row = 0;
        self.stats.restarts = self.stats.restarts.saturating_add(1);
    }
}

/// Two states, and the displayed position between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Between<'a, S> {
    /// The state before the moment.
    pub from: &'a S,
    /// The state after it, or the newest.
    pub to: &'a S,
    /// Time from `from` to the moment; longer than `span` when extrapolating.
    pub since: Duration,
    /// Time from `from` to `to`.
    pub span: Duration,
}

impl<S> Between<'_, S> {
    /// Returns the position: 0 at `from`, 1 at `to`, more when extrapolating.
    pub const fn ratio(&self) -> f32 {
        if self.span.is_zero() {
            0.0
        } else {
            self.since.div_duration_f32(self.span)
        }
    }

    /// Interpolates without floating point between `from` and `to`, in whole units, rounded towards
    /// `from`.
    #[must_use]
    pub fn mix(&self, from: i64, to: i64) -> i64 {
        let way = i128::from(to).saturating_sub(from.into());
        let since = i128::try_from(self.since.as_nanos()).unwrap_or(i128::MAX);
        let span = i128::try_from(self.span.as_nanos()).unwrap_or(i128::MAX);
        let part = way.saturating_mul(since).checked_div(span).unwrap_or(0);
        let at = i128::from(from).saturating_add(part);
        i64::try_from(at).unwrap_or(if part > 0 { i64::MAX } else { i64::MIN })
    }
}

/// Counters of an [`Interpolation`]; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterpolationStats {
    /// States accepted.
    pub states: u64,
    /// States dropped: their moment was already displayed.
    pub dropped_late: u64,
    /// States dropped: duplicates.
    pub dropped_duplicate: u64,
    /// States dropped: the oldest of too many.
    pub dropped_full: u64,
    /// Times that a moment past the newest state was displayed.
    pub extrapolated: u64,
    /// Times that the displayed moment jumped by more than 0.5 s.
    pub jumps: u64,
    /// Restarts, after the server's clock had jumped.
    pub restarts: u64,
}

/// Most change of the display rate, as a fraction: an eighth.
const DILATION: u32 = 8;

const JUMP: Duration = Duration::from_millis(500);

const STATES_MAX: u16 = 1_024;

#[cfg(test)]
mod tests;
