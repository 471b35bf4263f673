//! Detection of clients with a fast clock (speed hacks).

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

/// Tolerances of an [`ElapsedTimeCheck`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElapsedTimeConfig {
    /// How far a client's time may be ahead of the server's. Default 5 s. It must exceed
    /// [`jitter`](Self::jitter): the first message may be delayed, and later ones not.
    pub lead_max: Duration,
    /// How far it may be behind. Default 120 s.
    pub lag_max: Duration,
    /// How far clocks of honest clients drift, millionths. Default 200. The lead and lag that are
    /// accepted grow by it.
    pub drift_ppm: u32,
    /// Time over which the rate of the client's clock is measured. Default 240 s.
    pub window: Duration,
    /// How much faster than the server's clock it may run over the window, millionths. Default
    /// 20,000, 2 %.
    pub fast_ppm: u32,
    /// How much the delays of messages vary. Default 2 s.
    pub jitter: Duration,
}

impl Default for ElapsedTimeConfig {
    fn default() -> Self {
        Self {
            lead_max: Duration::from_secs(5),
            lag_max: Duration::from_secs(120),
            drift_ppm: 200,
            window: Duration::from_secs(240),
            fast_ppm: 20_000,
            jitter: Duration::from_secs(2),
        }
    }
}

/// Why a claimed time is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeViolation {
    /// The claim is lower than an earlier one.
    Backwards {
        /// By how much.
        by: Duration,
    },
    /// The client's time is too far ahead: its clock runs fast, or was set forward.
    Ahead {
        /// By how much, beyond the time since the start.
        by: Duration,
    },
    /// The client's time is too far behind: it slept, or its messages waited. Later claims are
    /// measured from this one. It is a reason to synchronise or log in again, and no cheat by
    /// itself.
    Behind {
        /// By how much.
        by: Duration,
    },
    /// The client's clock gained steadily over the window, by more than delays explain.
    Fast {
        /// How much faster it ran, millionths.
        ppm: u32,
    },
}

impl fmt::Display for TimeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards { by } => write!(f, "the client's time went back by {by:?}"),
            Self::Ahead { by } => write!(f, "the client's time is {by:?} ahead"),
            Self::Behind { by } => write!(f, "the client's time is {by:?} behind"),
            Self::Fast { ppm } => write!(f, "the client's clock runs {ppm} ppm fast"),
        }
    }
}

impl core::error::Error for TimeViolation {}

/// Compares the time that a client claims to have passed with the server's.
///
/// A session has one. Each message of the client carries the time since its start, and messages
/// are checked in the order sent, for example from an ordered channel.
///
/// With the default tolerances and a claim at least every 10 s, a clock that runs 5 % fast is
/// detected within 150 s, and within 300 s after a client has slept, which gives it a lag that would
/// hide the lead. Delays that vary by 2 s, and sleep of up to two minutes whether the client's clock
/// counts it or not, cause no violation. A queue that has collected more than
/// [`jitter`](ElapsedTimeConfig::jitter) plus 2 % of the window, and drains slowly over the whole
/// window, looks like a fast clock.
///
/// It takes at most 17 numbers of memory, and constant time for each claim.
///
/// ```
/// use core::time::Duration;
/// use hub::game::elapsed_time::{ElapsedTimeCheck, ElapsedTimeConfig, TimeViolation};
/// use wire::Instant;
///
/// let start = Instant::ZERO;
/// let mut check = ElapsedTimeCheck::new(ElapsedTimeConfig::default(), start, Duration::ZERO);
/// let after = |secs| (start + Duration::from_secs(secs), Duration::from_secs(secs));
/// let (now, claimed) = after(60);
/// assert_eq!(check.check(now, claimed), Ok(()));
/// let violation = check.check(now, claimed + Duration::from_secs(30));
/// assert_eq!(violation, Err(TimeViolation::Ahead { by: Duration::from_secs(30) }));
/// ```
#[derive(Clone, Debug)]
pub struct ElapsedTimeCheck {
    config: ElapsedTimeConfig,
    start: Instant,
    /// The claim at `start`, by which later ones are shifted.
    offset: i64,
    last_claim: i64,
    /// For each part of the window with a claim, oldest first, its number and the highest lead.
    leads: VecDeque<(u64, i64)>,
}

/// Parts of the window. In each one only the least delayed claim counts.
const PARTS: u32 = 16;

/// Parts of the window that must have a claim before the rate is judged.
const JUDGED_MIN: usize = 8;

impl ElapsedTimeCheck {
    /// Starts with the first claim of a client.
    #[must_use]
    pub fn new(config: ElapsedTimeConfig, now: Instant, claimed: Duration) -> Self {
        let claim = millis(claimed);
        Self {
            config,
            start: now,
            offset: claim,
            last_claim: claim,
            leads: VecDeque::new(),
        }
    }

    /// Checks a claim of the time that has passed on the client.
    ///
    /// # Errors
    ///
    /// [`TimeViolation`]. It is repeated with each claim for which it holds; except for `Behind`,
    /// which is returned once.
    pub fn check(&mut self, now: Instant, claimed: Duration) -> Result<(), TimeViolation> {
        let claim = millis(claimed);
        let back = self.last_claim.saturating_sub(claim);
        if back > 0 {
            return Err(TimeViolation::Backwards { by: span(back) });
        }
        self.last_claim = claim;
        let elapsed = now.saturating_since(self.start);
        let lead = claim
            .saturating_sub(self.offset)
            .saturating_sub(millis(elapsed));
        let drift = ppm_of(millis(elapsed), self.config.drift_ppm);
        if lead > millis(self.config.lead_max).saturating_add(drift) {
            return Err(TimeViolation::Ahead { by: span(lead) });
        }
        let lag = lead.saturating_neg();
        if lag > millis(self.config.lag_max).saturating_add(drift) {
            *self = Self::new(self.config.clone(), now, claimed);
            return Err(TimeViolation::Behind { by: span(lag) });
        }
        self.record(elapsed, lead);
        self.check_rate()
    }

    /// Adds a lead to its part of the window, and drops parts that have left the window.
    fn record(&mut self, elapsed: Duration, lead: i64) {
        let part = part_of(elapsed, self.config.window);
        match self.leads.back_mut() {
            Some((last, highest)) if *last == part => *highest = lead.max(*highest),
            _ => self.leads.push_back((part, lead)),
        }
        let oldest = part.saturating_sub(PARTS.into());
        while self.leads.front().is_some_and(|(part, _)| *part < oldest) {
            self.leads.pop_front();
        }
    }

    /// Compares the gain over the window with what is allowed.
    ///
    /// The gain in a single step is left out: a message that waited while the client slept is
    /// followed by one that did not.
    fn check_rate(&self) -> Result<(), TimeViolation> {
        let (Some((first, low)), Some((last, high))) = (self.leads.front(), self.leads.back())
        else {
            return Ok(());
        };
        let parts = last.saturating_sub(*first);
        let is_judged = self.leads.len() >= JUDGED_MIN && parts >= u64::from(PARTS / 4 * 3);
        if !is_judged {
            return Ok(());
        }
        let later = self.leads.iter().skip(1);
        let steps = self.leads.iter().zip(later);
        let gains = steps.map(|((_, before), (_, after))| after.saturating_sub(*before));
        let largest = gains.max().unwrap_or(0).max(0);
        let gain = high
            .saturating_sub(*low)
            .saturating_sub(largest)
            .saturating_sub(millis(self.config.jitter));
        let part = millis(part_len(self.config.window));
        let time = part.saturating_mul(i64::try_from(parts).unwrap_or(i64::MAX));
        if gain <= ppm_of(time, self.config.fast_ppm) {
            return Ok(());
        }
        let total = high.saturating_sub(*low).saturating_mul(1_000_000);
        let ppm = total.checked_div(time).unwrap_or(i64::MAX);
        let ppm = u32::try_from(ppm).unwrap_or(u32::MAX);
        Err(TimeViolation::Fast { ppm })
    }
}

/// Returns the number of the part of a window in which `elapsed` is.
fn part_of(elapsed: Duration, window: Duration) -> u64 {
    let part = part_len(window).as_nanos().max(1);
    u64::try_from(elapsed.as_nanos().checked_div(part).unwrap_or(0)).unwrap_or(u64::MAX)
}

fn part_len(window: Duration) -> Duration {
    window.checked_div(PARTS).unwrap_or(window)
}

fn ppm_of(millis: i64, ppm: u32) -> i64 {
    millis.saturating_mul(ppm.into()) / 1_000_000
}

/// Returns whole milliseconds.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests;
