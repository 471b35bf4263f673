//! Whether a path carries: its probes, their answers, and what silence means.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::path_probe::PathEcho;
use crate::splitmix;

/// Probes one path end to end and judges it.
///
/// Bounded: [`PROBES_MAX`] probes are remembered.
#[derive(Debug)]
pub(crate) struct PathWatch {
    /// Newest probes, oldest first, without gaps in their numbers.
    probes: VecDeque<Sent>,
    next_number: u32,
    /// Of the newest probe that is no longer among them and was answered: its number, and how many
    /// had arrived with it.
    base: Option<(u32, u32)>,
    next_at: Instant,
    pace: PathPace,
    /// Smoothed round trip and its variation, as RFC 6298, section 2; `None` before the first.
    estimate: Option<(Duration, Duration)>,
    /// One-way time by two clocks that differ by a constant, in nanoseconds: the mean of lately,
    /// and of long, so that neither the clocks nor steady jitter show in their difference.
    transit: Option<(i64, i64)>,
    /// Since when the mean of lately is [`GROWN_BY`] over that of long.
    grown_since: Option<Instant>,
    /// When the newest probe that was answered had left.
    answered: Option<Instant>,
    /// Probes answered so far.
    answers: u32,
    /// Of the last of them, how many in a row came first by the session.
    asides: u32,
    /// The oldest probe since the last answer that is not answered.
    silent_since: Option<Instant>,
    /// Since when this node runs without a stall: what waited for it before is nobody's fault.
    awake_since: Instant,
    /// Stalls since the last answer.
    pardons: u8,
    /// What the times between probes are drawn from; 0 for equal times.
    jitter: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// How many had arrived with it, by its answer.
    arrived: Option<u32>,
}

/// How often a path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPace {
    /// It carries packets.
    Busy,
    /// It stands by, or carries nothing at the moment.
    Idle,
}

/// By what way an answer came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EchoWay {
    /// Over the far end's own path.
    Path,
    /// By the session with the far end.
    Session,
}

/// What the answers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathState {
    /// Answers come.
    Good,
    /// Some are overdue: a reason to send on another path too.
    Suspect,
    /// None came for long: a reason to leave.
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

    /// Draws the times between probes from `seed`, so that no relay knows when one comes.
    pub(crate) const fn with_jitter(mut self, seed: u64) -> Self {
        self.jitter = seed;
        self
    }

    /// Draws a time between three and five quarters of `mean`.
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

    /// This node did not run for a while up to now: no answer is overdue for that, and one that
    /// waited for it tells no time.
    ///
    /// Where nothing comes at all, so many stalls in a row are pardoned: on a host that is late all the
    /// time a dead path is to be found out, too.
    pub(crate) const fn on_stall(&mut self, now: Instant) {
        if self.pardons < PARDONS_MAX {
            self.pardons = self.pardons.saturating_add(1);
            self.awake_since = now;
        }
    }

    /// Sets how often it is probed.
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

    /// Takes the answer to a probe; a second one changes nothing.
    ///
    /// What its transit means is unknown, but when it grows, this path has become slower, and not
    /// the way back.
    ///
    /// How long an answer may take on a path that carries packets is not learned from a few that the
    /// session brought first: where those over the far end's path stay away, a relay has died that both
    /// paths may pass, and then is no time to be patient.
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

    /// Judges the path.
    pub(crate) fn state(&self, now: Instant) -> PathState {
        if self.dead_at().is_some_and(|at| at <= now) {
            PathState::Dead
        } else if self.suspect_at().is_some_and(|at| at <= now) {
            PathState::Suspect
        } else {
            PathState::Good
        }
    }

    /// Returns whether an answer is overdue and none came to a later probe: reason enough to send
    /// copies over another path, though not to think less of this one.
    ///
    /// Where a probe is merely lost, the answer to the next ends that some 20 ms later.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.silent_since()
            .is_some_and(|since| since + self.patience() <= now)
    }

    /// Returns whether enough answers came for packets to go this way.
    pub(crate) const fn is_proved(&self) -> bool {
        self.answers >= ANSWERS_READY
    }

    /// Returns since when answers stay away, where they do.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.silent_since.map(|since| since.max(self.awake_since))
    }

    /// Returns whether a probe was answered that left at `since` or later.
    pub(crate) fn carried_after(&self, since: Instant) -> bool {
        self.answered.is_some_and(|answered| answered >= since)
    }

    /// Returns the smoothed round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// Returns how much longer probes take this way than they used to.
    pub(crate) fn excess(&self) -> Duration {
        self.transit.map_or(Duration::ZERO, |(smoothed, usual)| {
            from_nanos(smoothed.wrapping_sub(usual))
        })
    }

    /// Returns how much longer than probes, and than they used to, data takes, whose one-way time by the same clocks is
    /// `data`; nothing where it takes less than [`DATA_LATE_BY`] longer than they used to.
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

    /// Returns how many probes did not arrive of those decided among the newest [`PROBES_MAX`],
    /// and since the last before them that was answered; and how many were decided.
    ///
    /// Answers that are lost do not matter: a later one tells how many probes had arrived. Those
    /// sent since the last one are lost once their answers are overdue.
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
                // One that overtook others tells of fewer.
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

    /// The number of the oldest probe remembered.
    fn oldest_number(&self) -> u32 {
        let held = u32::try_from(self.probes.len()).unwrap_or(u32::MAX);
        self.next_number.wrapping_sub(held)
    }

    /// Returns when to send a probe or to judge again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Instant {
        [self.suspect_at(), self.dead_at()]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .fold(self.next_at, Instant::min)
    }

    /// From here on, the answers to the oldest open probe and to the one after it are overdue.
    fn suspect_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.patience() + BUSY)
    }

    fn dead_at(&self) -> Option<Instant> {
        self.silent_since()
            .map(|since| since + self.patience().saturating_mul(2) + DEAD_AFTER)
    }

    /// How long an answer may take: RFC 6298, section 2, with a floor on the variation.
    fn patience(&self) -> Duration {
        match self.estimate {
            Some((smoothed, variation)) => {
                smoothed.saturating_add(variation.saturating_mul(4).max(VARIATION_MIN))
            }
            None => PATIENCE_FIRST,
        }
    }

    /// Takes a one-way time. What is usual stays for [`USUAL_HELD`] where the path became slower, so that it is left
    /// for that before it is forgotten.
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

/// Stalls pardoned in a row.
pub(crate) const PARDONS_MAX: u8 = 8;
/// Probes remembered: of a busy path, those of 4 s.
pub(crate) const PROBES_MAX: usize = 100;
/// Mean interval on a path that carries packets. One is from three to five quarters of it, and so below; the answer to
/// the next probe still comes before that to a lost one is overdue by another [`BUSY`], as patience has 20 ms to spare.
const BUSY: Duration = Duration::from_millis(40);
/// Interval on a path that stands by.
const IDLE: Duration = Duration::from_millis(250);
/// Answers before packets go a new way.
const ANSWERS_READY: u32 = 3;
/// Answers in a row that the session brings, from which on it is their usual way.
const ASIDES_LEARNED: u32 = 8;
/// Variation that a path is allowed without having shown it.
const VARIATION_MIN: Duration = Duration::from_millis(20);
/// Samples over which the usual time is averaged: 10 s of a busy path. Link state has heard of a
/// change by then.
const USUAL_INERTIA: i64 = 256;
/// How much more than usual packets take on a path that became slower, ns: half of what a route is left for at once.
const GROWN_BY: i64 = 10_000_000;
/// How much longer than probes data may take without a doubt of the path, ns: it is longer, and on slow lines it takes
/// longer by itself. As much as a sample of data may be late.
const DATA_LATE_BY: i64 = 25_000_000;
/// How long what was usual stays so then: a route that is 20 ms worse than the best is left after 4 s, unless it was
/// left for nothing before.
const USUAL_HELD: Duration = Duration::from_secs(5);
/// How long the first answers may take.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
/// Silence over two patiences after which a path is dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
