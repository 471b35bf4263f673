//! Liveness of a path: its probes, their answers, and the timeouts.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::path_probe::PathEcho;
use crate::splitmix;

/// Probes one path end to end and determines its state.
///
/// Bounded: keeps [`PROBES_MAX`] probes.
#[derive(Debug)]
pub(crate) struct PathWatch {
    /// Newest probes, oldest first, with consecutive numbers.
    probes: VecDeque<Sent>,
    next_number: u32,
    /// The newest answered probe that was already removed: its number, and the arrival count in its
    /// answer.
    base: Option<(u32, u32)>,
    next_at: Instant,
    pace: PathPace,
    /// Smoothed round trip and its variation, as in RFC 6298, section 2; `None` before the first
    /// answer.
    estimate: Option<(Duration, Duration)>,
    /// One-way time in nanoseconds, plus a constant offset between the two clocks: a short-term and
    /// a long-term mean. Their difference cancels the offset and steady jitter.
    transit: Option<(i64, i64)>,
    /// Since when the short-term mean exceeds the long-term mean by [`GROWN_BY`].
    grown_since: Option<Instant>,
    /// Send time of the newest answered probe.
    answered: Option<Instant>,
    /// Number of answered probes.
    answers: u32,
    /// Number of consecutive newest answers that arrived first over the session.
    asides: u32,
    /// Send time of the oldest unanswered probe since the last answer.
    silent_since: Option<Instant>,
    /// Since when this node has run without a stall. Silence before that does not count.
    awake_since: Instant,
    /// Stalls since the last answer.
    pardons: u8,
    /// State of the random probe intervals; 0 for equal intervals.
    jitter: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// The arrival count in its answer.
    arrived: Option<u32>,
}

/// How often a path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPace {
    /// It carries packets.
    Busy,
    /// It is a standby path, or carries no packets at the moment.
    Idle,
}

/// How an answer arrived first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EchoWay {
    /// Over the far end's own path.
    Path,
    /// Over the session with the far end.
    Session,
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathState {
    /// Answers arrive.
    Good,
    /// Some answers are overdue: send on another path too.
    Suspect,
    /// No answer for long: leave the path.
    Dead,
}

impl PathWatch {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            probes: VecDeque::new(),
            next_number: 0,
            base: None,
            next_at: now,
            pace: PathPace::Busy,
            estimate: None,
            transit: None,
            grown_since: None,
            answered: None,
            answers: 0,
            asides: 0,
            silent_since: None,
            awake_since: now,
            pardons: 0,
            jitter: 0,
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

    /// Restarts the silence timer after a stall of this node. Answers to earlier probes are not
    /// used for estimates, since they waited for this node.
    ///
    /// At most [`PARDONS_MAX`] stalls in a row count if no answer arrives, so that a host which
    /// always stalls still detects a dead path.
    pub(crate) const fn on_stall(&mut self, now: Instant) {
        if self.pardons < PARDONS_MAX {
            self.pardons = self.pardons.saturating_add(1);
            self.awake_since = now;
        }
    }

    /// Sets how often the path is probed.
    pub(crate) fn set_pace(&mut self, now: Instant, pace: PathPace) {
        if self.pace == pace {
            return;
        }
        self.pace = pace;
        if pace == PathPace::Busy {
            self.next_at = self.next_at.min(now + BUSY);
        }
    }

    /// Returns the number of the probe to send now, if one is due.
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
    /// The absolute transit time is meaningless, because the clocks differ. But if it grows, this
    /// path became slower, and not the return path.
    ///
    /// On a busy path, the round trip is not learned from a few answers that the session delivered
    /// first. If answers over the far end's path are missing, a relay may have died that both paths
    /// use, and the timeout must not grow then.
    pub(crate) fn on_echo(&mut self, now: Instant, echo: PathEcho, way: EchoWay) {
        let back = self.next_number.wrapping_sub(echo.number);
        let place = usize::try_from(back)
            .ok()
            .and_then(|back| self.probes.len().checked_sub(back));
        let Some(sent) = place.and_then(|place| self.probes.get_mut(place)) else {
            return;
        };
        if sent.arrived.replace(echo.arrived).is_some() {
            return;
        }
        let at = sent.at;
        self.pardons = 0;
        self.answers = self.answers.saturating_add(1);
        self.asides = match way {
            EchoWay::Path => 0,
            EchoWay::Session => self.asides.saturating_add(1),
        };
        if at >= self.awake_since {
            self.learn_transit(now, echo.transit.cast_signed());
            self.learn_round_trip(now.saturating_since(at));
        }
        if self.answered.is_none_or(|answered| answered < at) {
            self.answered = Some(at);
            self.silent_since = self
                .probes
                .iter()
                .find(|sent| sent.at > at && sent.arrived.is_none())
                .map(|sent| sent.at);
        }
    }

    /// Returns the state of the path.
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
    ///
    /// If just one probe was lost, the answer to the next one clears this about 20 ms later.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.silent_since()
            .is_some_and(|since| since + self.patience() <= now)
    }

    /// Returns whether enough answers arrived to send packets on this path.
    pub(crate) const fn is_proved(&self) -> bool {
        self.answers >= ANSWERS_READY
    }

    /// Returns since when answers have been missing, if they are.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.silent_since.map(|since| since.max(self.awake_since))
    }

    /// Returns whether a probe sent at `since` or later was answered.
    pub(crate) fn carried_after(&self, since: Instant) -> bool {
        self.answered.is_some_and(|answered| answered >= since)
    }

    /// Returns the smoothed round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// Returns by how much the short-term one-way time exceeds the long-term one.
    pub(crate) fn excess(&self) -> Duration {
        self.transit.map_or(Duration::ZERO, |(smoothed, usual)| {
            from_nanos(smoothed.wrapping_sub(usual))
        })
    }

    /// Returns by how much the one-way time `data`, measured with the same clocks, exceeds that of
    /// probes, both short-term and long-term. Zero if it exceeds the long-term time by less than
    /// [`DATA_LATE_BY`].
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

    /// Returns how many probes were lost, and how many were decided. Counts the newest
    /// [`PROBES_MAX`], and those back to the last answered one before them.
    ///
    /// Lost answers do not matter, because each answer contains the arrival count. Probes sent
    /// since the last answer are lost once their answers are overdue.
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
        let patience = self.patience();
        let silent = self
            .probes
            .iter()
            .rev()
            .take_while(|sent| sent.arrived.is_none());
        let since = |sent: &Sent| now.saturating_since(sent.at.max(self.awake_since));
        for _ in silent.filter(|sent| since(sent) > patience) {
            (sent, lost) = (sent.saturating_add(1), lost.saturating_add(1));
        }
        (lost, sent)
    }

    /// The number of the oldest probe kept.
    fn oldest_number(&self) -> u32 {
        let held = u32::try_from(self.probes.len()).unwrap_or(u32::MAX);
        self.next_number.wrapping_sub(held)
    }

    /// Returns when to send a probe or to check the state again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Instant {
        [self.suspect_at(), self.dead_at()]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .fold(self.next_at, Instant::min)
    }

    /// When the answers to the oldest unanswered probe and to the next one are overdue.
    fn suspect_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.patience() + BUSY)
    }

    fn dead_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.patience().saturating_mul(2) + DEAD_AFTER)
    }

    /// The answer timeout: RFC 6298, section 2, with a minimum for the variation.
    fn patience(&self) -> Duration {
        match self.estimate {
            Some((smoothed, variation)) => {
                smoothed.saturating_add(variation.saturating_mul(4).max(VARIATION_MIN))
            }
            None => PATIENCE_FIRST,
        }
    }

    /// Updates the one-way times. If the path became slower, the long-term mean is frozen for
    /// [`USUAL_HELD`], so that flows can leave the path before the increase becomes the norm.
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
        let far = part(transit.saturating_sub(*usual), samples.min(USUAL_INERTIA));
        *usual = usual.saturating_add(far);
    }

    fn learn_round_trip(&mut self, sample: Duration) {
        self.estimate = Some(match self.estimate {
            None => (sample, sample.checked_div(4).unwrap_or_default()),
            Some(estimate)
                if self.pace == PathPace::Busy && (1..ASIDES_LEARNED).contains(&self.asides) =>
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
pub(crate) const PARDONS_MAX: u8 = 8;
/// Probes kept: 4 s of a busy path.
pub(crate) const PROBES_MAX: usize = 100;
/// Mean interval on a path that carries packets. A single interval is 3/4 to 5/4 of it; the same
/// applies to [`IDLE`]. The answer to the next probe still arrives before a lost probe is overdue
/// by another [`BUSY`], since the timeout has 20 ms of slack.
const BUSY: Duration = Duration::from_millis(40);
/// Interval on a standby path.
const IDLE: Duration = Duration::from_millis(250);
/// Answers required before packets are sent on a new path.
const ANSWERS_READY: u32 = 3;
/// Consecutive answers over the session after which the round trip is learned from them.
const ASIDES_LEARNED: u32 = 8;
/// Minimum variation assumed for a path.
const VARIATION_MIN: Duration = Duration::from_millis(20);
/// Samples of the long-term mean: 10 s of a busy path. Link state reflects a change by then.
const USUAL_INERTIA: i64 = 256;
/// Increase of the one-way time that counts as slower, ns: half of what makes a flow leave at once.
const GROWN_BY: i64 = 10_000_000;
/// How much longer than probes data may take without counting against the path, ns: packets are
/// longer, and take longer on slow links. The same limit as for late data samples.
const DATA_LATE_BY: i64 = 25_000_000;
/// How long the long-term mean is then frozen. A route that is 20 ms worse than the best is left
/// after 4 s, unless there were false alarms before.
const USUAL_HELD: Duration = Duration::from_secs(5);
/// Answer timeout before the first answer.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
/// Silence beyond twice the answer timeout after which a path is dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
