//! Liveness of a path: its probes, their answers, and the timeouts.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::path_probe::PathEcho;
use crate::splitmix;

/// Probes one path end to end and determines its state. Keeps at most [`PROBES_MAX`] probes.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    /// Newest probes, oldest first, with consecutive numbers.
    probes: VecDeque<Sent>,
    next_number: u32,
    /// The newest answered probe that was removed: its number, and the arrival count in its answer.
    base: Option<(u32, u32)>,
    next_at: Instant,
    pace: PathPace,
    /// Smoothed round trip and its variation (RFC 6298, section 2).
    estimate: Option<(Duration, Duration)>,
    /// Short-term and long-term mean of the one-way time, in nanoseconds, plus the offset between
    /// the two clocks.
    transit: Option<(i64, i64)>,
    /// Since when the short-term mean exceeds the long-term mean by [`GROWN_BY`].
    grown_since: Option<Instant>,
    answered: Option<Instant>,
    answers: u32,
    /// Number of consecutive newest answers that arrived first over the session.
    session_echoes: u32,
    /// Send time of the oldest unanswered probe since the last answer.
    silent_since: Option<Instant>,
    /// Since when this node has run without a stall. Silence before that does not count.
    awake_since: Instant,
    stalls_excused: u8,
    /// State of the random probe intervals; 0 for equal intervals.
    jitter: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// The arrival count in its answer.
    arrived: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PathPace {
    /// It carries packets.
    #[default]
    Busy,
    /// It is a standby path, or carries no packets at the moment.
    Idle,
}

/// How an answer arrived first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EchoWay {
    /// Over the remote end's own path.
    Path,
    /// Over the session with the remote end.
    Session,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathState {
    Good,
    /// Some answers are overdue: send on another path too.
    Suspect,
    /// No answer for long: leave the path.
    Dead,
}

impl PathWatch {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            next_at: now,
            awake_since: now,
            ..Self::default()
        }
    }

    /// Randomizes the probe intervals with `seed`, so that no relay can predict a probe.
    pub(crate) const fn with_jitter(mut self, seed: u64) -> Self {
        self.jitter = seed;
        self
    }

    /// Draws an interval between 3/4 and 5/4 of `mean`.
    fn draw_interval(&mut self, mean: Duration) -> Duration {
        if self.jitter == 0 {
            return mean;
        }
        self.jitter = splitmix::first(self.jitter);
        let half = u64::try_from(mean.as_nanos() / 2).unwrap_or(u64::MAX);
        let share = u128::from(half).saturating_mul(u128::from(self.jitter)) >> 64;
        let least = mean.saturating_sub(mean.checked_div(4).unwrap_or(mean));
        least.saturating_add(Duration::from_nanos(u64::try_from(share).unwrap_or(0)))
    }

    /// Restarts the silence timer after a stall of this node, at most [`STALLS_EXCUSED_MAX`] times
    /// without an answer, so that a host which always stalls still detects a dead path. Answers to
    /// earlier probes are not used for estimates.
    pub(crate) const fn on_stall(&mut self, now: Instant) {
        if self.stalls_excused < STALLS_EXCUSED_MAX {
            self.stalls_excused = self.stalls_excused.saturating_add(1);
            self.awake_since = now;
        }
    }

    pub(crate) fn set_pace(&mut self, now: Instant, pace: PathPace) {
        if self.pace == pace {
            return;
        }
        self.pace = pace;
        if pace == PathPace::Busy {
            self.next_at = self.next_at.min(now + BUSY);
        }
    }

    /// Returns the number of the probe to send now.
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<u32> {
        if now < self.next_at {
            return None;
        }
        let interval = match self.pace {
            _ if self.answers < ANSWERS_READY || self.silent_since.is_some() => BUSY,
            PathPace::Busy => BUSY,
            PathPace::Idle => IDLE,
        };
        self.next_at = now + self.draw_interval(interval);
        if self.probes.len() >= PROBES_MAX {
            let oldest = self.oldest_number();
            let popped = self.probes.pop_front().and_then(|sent| sent.arrived);
            self.base = popped.map(|arrived| (oldest, arrived)).or(self.base);
        }
        self.probes.push_back(Sent {
            at: now,
            arrived: None,
        });
        self.silent_since.get_or_insert(now);
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        Some(number)
    }

    /// Handles the answer to a probe. Duplicates are ignored.
    ///
    /// On a busy path, the round trip is not learned from a few answers that the session delivered
    /// first: a relay of both paths may have died, and the timeout must not grow then.
    pub(crate) fn on_echo(&mut self, now: Instant, echo: PathEcho, way: EchoWay) {
        let back = self.next_number.wrapping_sub(echo.number);
        let back = usize::try_from(back).unwrap_or(usize::MAX);
        let place = self.probes.len().checked_sub(back);
        let Some(sent) = place.and_then(|place| self.probes.get_mut(place)) else {
            return;
        };
        if sent.arrived.replace(echo.arrived).is_some() {
            return;
        }
        let at = sent.at;
        self.stalls_excused = 0;
        self.answers = self.answers.saturating_add(1);
        self.session_echoes = match way {
            EchoWay::Path => 0,
            EchoWay::Session => self.session_echoes.saturating_add(1),
        };
        if at >= self.awake_since {
            self.learn_transit(now, echo.transit.cast_signed());
            self.learn_round_trip(now.saturating_since(at));
        }
        if self.answered.is_none_or(|answered| answered < at) {
            self.answered = Some(at);
            let mut probes = self.probes.iter();
            let unanswered = probes.find(|sent| sent.at > at && sent.arrived.is_none());
            self.silent_since = unanswered.map(|sent| sent.at);
        }
    }

    pub(crate) fn state(&self, now: Instant) -> PathState {
        if self.dead_at().is_some_and(|at| at <= now) {
            PathState::Dead
        } else if self.suspect_at().is_some_and(|at| at <= now) {
            PathState::Suspect
        } else {
            PathState::Good
        }
    }

    /// Returns whether an answer is overdue and no later probe was answered. This is a reason to
    /// send copies over another path, but does not count against this one.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.silent_since()
            .is_some_and(|since| since + self.answer_timeout() <= now)
    }

    pub(crate) const fn is_proved(&self) -> bool {
        self.answers >= ANSWERS_READY
    }

    /// Returns since when answers have been missing, if they are.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.silent_since.map(|since| since.max(self.awake_since))
    }

    pub(crate) fn carried_after(&self, since: Instant) -> bool {
        self.answered.is_some_and(|answered| answered >= since)
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// Returns by how much the short-term one-way time exceeds the long-term one.
    pub(crate) fn excess(&self) -> Duration {
        self.transit.map_or(Duration::ZERO, |(smoothed, usual)| {
            from_nanos(smoothed.wrapping_sub(usual))
        })
    }

    /// Returns by how much the one-way time `data`, by the same clocks, exceeds that of probes.
    /// Zero if it exceeds the long-term time by less than [`DATA_LATE_BY`].
    pub(crate) fn data_excess(&self, data: i64) -> Duration {
        self.transit.map_or(Duration::ZERO, |(smoothed, usual)| {
            let later = |than: i64| data.wrapping_sub(than);
            if later(usual) < DATA_LATE_BY {
                return Duration::ZERO;
            }
            from_nanos(later(smoothed).min(later(usual)))
        })
    }

    /// Returns whether probes take [`GROWN_BY`] longer than they used to.
    pub(crate) const fn has_grown(&self) -> bool {
        self.grown_since.is_some()
    }

    /// Returns how many probes were lost, and how many were decided, of the newest [`PROBES_MAX`]
    /// and those back to the last answered one before them.
    ///
    /// Each answer contains the arrival count, so lost answers do not matter. Probes sent since the
    /// last answer are lost once their answers are overdue.
    pub(crate) fn lost(&self, now: Instant) -> (u32, u32) {
        let oldest = self.oldest_number();
        let numbers = (0_u32..).map(|place| oldest.wrapping_add(place));
        let numbered = || numbers.clone().zip(&self.probes);
        let mut answered = numbered().filter_map(|(number, sent)| Some((number, sent.arrived?)));
        let base = self.base.or_else(|| answered.next());
        let (mut sent, mut arrived) = (0, 0);
        if let Some((first, before)) = base {
            for (number, so_far) in answered {
                sent = number.wrapping_sub(first);
                // An answer that overtook others has a lower count.
                arrived = arrived.max(so_far.wrapping_sub(before).cast_signed());
            }
        }
        let mut lost = sent.saturating_sub(arrived.cast_unsigned());
        let timeout = self.answer_timeout();
        let newest = self.probes.iter().rev();
        let silent = newest.take_while(|sent| sent.arrived.is_none());
        let since = |sent: &Sent| now.saturating_since(sent.at.max(self.awake_since));
        for _ in silent.filter(|sent| since(sent) > timeout) {
            (sent, lost) = (sent.saturating_add(1), lost.saturating_add(1));
        }
        (lost, sent)
    }

    fn oldest_number(&self) -> u32 {
        let held = u32::try_from(self.probes.len()).unwrap_or(u32::MAX);
        self.next_number.wrapping_sub(held)
    }

    /// Returns when to send a probe or to check the state again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Instant {
        let changes = [self.suspect_at(), self.dead_at()].into_iter().flatten();
        let changes = changes.filter(|at| *at > now);
        changes.fold(self.next_at, Instant::min)
    }

    /// When the answers to the oldest unanswered probe and to the next one are overdue.
    fn suspect_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.answer_timeout() + BUSY)
    }

    fn dead_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.answer_timeout().saturating_mul(2) + DEAD_AFTER)
    }

    /// The answer timeout: RFC 6298, section 2, with a minimum for the variation.
    fn answer_timeout(&self) -> Duration {
        match self.estimate {
            Some((smoothed, variation)) => {
                smoothed.saturating_add(variation.saturating_mul(4).max(VARIATION_MIN))
            }
            None => TIMEOUT_INITIAL,
        }
    }

    /// Updates the one-way times. If the path became slower, the long-term mean is frozen for
    /// [`USUAL_HELD`], so that flows can leave the path meanwhile.
    fn learn_transit(&mut self, now: Instant, transit: i64) {
        let Some((smoothed, usual)) = &mut self.transit else {
            self.transit = Some((transit, transit));
            return;
        };
        let samples = i64::from(self.answers.max(1));
        let part = |step: i64, parts| step.checked_div(parts).unwrap_or(0);
        let near = part(transit.saturating_sub(*smoothed), samples.min(8));
        *smoothed = smoothed.saturating_add(near);
        if smoothed.wrapping_sub(*usual) < GROWN_BY {
            self.grown_since = None;
        } else {
            let since = *self.grown_since.get_or_insert(now);
            if now.saturating_since(since) < USUAL_HELD {
                return;
            }
        }
        let excess = part(transit.saturating_sub(*usual), samples.min(USUAL_INERTIA));
        *usual = usual.saturating_add(excess);
    }

    fn learn_round_trip(&mut self, sample: Duration) {
        self.estimate = Some(match self.estimate {
            None => (sample, sample.checked_div(4).unwrap_or_default()),
            Some(estimate)
                if self.pace == PathPace::Busy
                    && (1..SESSION_ECHOES_LEARNED).contains(&self.session_echoes) =>
            {
                estimate
            }
            Some((smoothed, variation)) => {
                let parts = |value: Duration, weight, other, parts| {
                    let sum = value.saturating_mul(weight).saturating_add(other);
                    sum.checked_div(parts).unwrap_or_default()
                };
                (
                    parts(smoothed, 7, sample, 8),
                    parts(variation, 3, smoothed.abs_diff(sample), 4),
                )
            }
        });
    }
}

fn from_nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// Maximum number of consecutive stalls that restart the silence timer.
pub(crate) const STALLS_EXCUSED_MAX: u8 = 8;
/// Probes kept: 4 s of a busy path.
pub(crate) const PROBES_MAX: usize = 100;
/// Mean interval on a path that carries packets; a single one is 3/4 to 5/4 of it, as for [`IDLE`].
/// The timeout's 20 ms of slack cover the answer to the next probe.
const BUSY: Duration = Duration::from_millis(40);
const IDLE: Duration = Duration::from_millis(250);
const ANSWERS_READY: u32 = 3;
/// Consecutive answers over the session after which the round trip is learned from them.
const SESSION_ECHOES_LEARNED: u32 = 8;
const VARIATION_MIN: Duration = Duration::from_millis(20);
/// Samples of the long-term mean: 10 s of a busy path. Link state reflects a change by then.
const USUAL_INERTIA: i64 = 256;
/// Increase of the one-way time that counts as slower, ns: half of what makes a flow leave at once.
const GROWN_BY: i64 = 10_000_000;
/// How much longer than probes data may take, ns: packets are longer. As for late data samples.
const DATA_LATE_BY: i64 = 25_000_000;
/// How long the long-term mean is then frozen; a route that is 20 ms worse is left after 4 s.
const USUAL_HELD: Duration = Duration::from_secs(5);
const TIMEOUT_INITIAL: Duration = Duration::from_millis(500);
/// Silence beyond twice the answer timeout after which a path is dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
