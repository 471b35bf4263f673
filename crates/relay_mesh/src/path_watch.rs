//! Whether a path carries: its probes, their answers, and what silence means.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

/// Probes one path end to end and judges it.
///
/// Bounded: [`PROBES_MAX`] probes are remembered.
#[derive(Debug)]
pub(crate) struct PathWatch {
    /// Newest probes, oldest first, without gaps in their numbers.
    probes: VecDeque<Sent>,
    next_number: u32,
    next_at: Instant,
    pace: PathPace,
    /// Smoothed round trip and its variation, as RFC 6298, section 2; `None` before the first.
    estimate: Option<(Duration, Duration)>,
    /// One-way time by two clocks that differ by a constant, in nanoseconds: the mean of lately,
    /// and of long, so that neither the clocks nor steady jitter show in their difference.
    transit: Option<(i64, i64)>,
    /// When the newest probe that was answered had left.
    answered: Option<Instant>,
    /// Probes answered so far.
    answers: u32,
    /// The oldest probe since the last answer that is not answered.
    silent_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    is_answered: bool,
}

/// How often a path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPace {
    /// It carries packets.
    Busy,
    /// It stands by, or carries nothing at the moment.
    Idle,
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
            next_at: now,
            pace: PathPace::Busy,
            estimate: None,
            transit: None,
            answered: None,
            answers: 0,
            silent_since: None,
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
        self.next_at = now + interval;
        if self.probes.len() >= PROBES_MAX {
            self.probes.pop_front();
        }
        self.probes.push_back(Sent {
            at: now,
            is_answered: false,
        });
        self.silent_since.get_or_insert(now);
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        Some(number)
    }

    /// Takes the answer to a probe; a second one changes nothing.
    ///
    /// `transit` is the other end's clock when the probe came less ours when it left. What it
    /// means is unknown, but when it grows, this path has become slower, and not the way back.
    pub(crate) fn on_echo(&mut self, now: Instant, number: u32, transit: u64) {
        let back = self.next_number.wrapping_sub(number);
        let place = usize::try_from(back)
            .ok()
            .and_then(|back| self.probes.len().checked_sub(back));
        let Some(sent) = place.and_then(|place| self.probes.get_mut(place)) else {
            return;
        };
        if core::mem::replace(&mut sent.is_answered, true) {
            return;
        }
        let at = sent.at;
        self.answers = self.answers.saturating_add(1);
        self.learn(now.saturating_since(at), transit.cast_signed());
        if self.answered.is_none_or(|answered| answered < at) {
            self.answered = Some(at);
            self.silent_since = self
                .probes
                .iter()
                .find(|sent| sent.at > at && !sent.is_answered)
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

    /// Returns whether enough answers came for packets to go this way.
    pub(crate) const fn is_proved(&self) -> bool {
        self.answers >= ANSWERS_READY
    }

    /// Returns since when answers stay away, where they do.
    pub(crate) const fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// Returns whether a probe was answered that left at `since` or later.
    pub(crate) fn carried_after(&self, since: Instant) -> bool {
        self.answered.is_some_and(|answered| answered >= since)
    }

    /// Returns the smoothed round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// Returns how much longer packets take this way than they used to.
    pub(crate) fn excess(&self) -> Duration {
        self.transit.map_or(Duration::ZERO, |(smoothed, usual)| {
            let nanos = smoothed.saturating_sub(usual);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
        })
    }

    /// Returns the share of probes that were lost, in thousandths, of those decided among the
    /// newest [`PROBES_MAX`], and how many were decided.
    pub(crate) fn lost(&self, now: Instant) -> (u32, u32) {
        let patience = self.patience();
        let decided = self
            .probes
            .iter()
            .filter(|sent| sent.is_answered || now.saturating_since(sent.at) > patience);
        let (mut lost, mut count) = (0_u32, 0_u32);
        for sent in decided {
            count = count.saturating_add(1);
            lost = lost.saturating_add(u32::from(!sent.is_answered));
        }
        (lost.saturating_mul(1_000) / count.max(1), count)
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
        self.silent_since
            .map(|since| since + self.patience() + BUSY)
    }

    fn dead_at(&self) -> Option<Instant> {
        self.silent_since
            .map(|since| since + self.patience().saturating_mul(2) + DEAD_AFTER)
    }

    /// How long an answer may take: RFC 6298, section 2, with a floor on the variation.
    fn patience(&self) -> Duration {
        match self.estimate {
            Some((smoothed, variation)) => {
                smoothed + variation.saturating_mul(4).max(VARIATION_MIN)
            }
            None => PATIENCE_FIRST,
        }
    }

    fn learn(&mut self, sample: Duration, transit: i64) {
        let samples = i64::from(self.answers.max(1));
        self.transit = Some(match self.transit {
            None => (transit, transit),
            Some((smoothed, usual)) => {
                let near = transit.saturating_sub(smoothed) / samples.min(8);
                let far = transit.saturating_sub(usual) / samples.min(USUAL_INERTIA);
                (smoothed.saturating_add(near), usual.saturating_add(far))
            }
        });
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 4),
            Some((smoothed, variation)) => (
                (smoothed * 7 + sample) / 8,
                (variation * 3 + smoothed.abs_diff(sample)) / 4,
            ),
        });
    }
}

/// Probes remembered: of a busy path, those of 4 s.
pub(crate) const PROBES_MAX: usize = 100;
/// Interval on a path that carries packets.
const BUSY: Duration = Duration::from_millis(40);
/// Interval on a path that stands by.
const IDLE: Duration = Duration::from_millis(250);
/// Answers before packets go a new way.
const ANSWERS_READY: u32 = 3;
/// Variation that a path is allowed without having shown it.
const VARIATION_MIN: Duration = Duration::from_millis(20);
/// Samples over which the usual time is averaged: 10 s of a busy path. Link state has heard of a
/// change by then.
const USUAL_INERTIA: i64 = 256;
/// How long the first answers may take.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
/// Silence over two patiences after which a path is dead.
const DEAD_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Probes for `span` ms with answers after `delay` ms, from time `from` on.
    fn answered(watch: &mut PathWatch, from: u64, span: u64, delay: u64) {
        let mut due: VecDeque<(u64, u32)> = VecDeque::new();
        for now in from..from + span {
            while due.front().is_some_and(|(when, _)| *when <= now) {
                let (_, number) = due.pop_front().unwrap();
                watch.on_echo(at(now), number, delay);
            }
            if let Some(number) = watch.poll_probe(at(now)) {
                due.push_back((now + delay, number));
            }
        }
        for (_, number) in due {
            watch.on_echo(at(from + span), number, delay);
        }
    }

    #[test]
    fn mesh_m3_silence_is_suspect_within_160_ms_and_death_follows() {
        let mut watch = PathWatch::new(at(0));
        answered(&mut watch, 0, 2_000, 50);
        assert!(watch.is_proved());
        assert_eq!(watch.state(at(2_000)), PathState::Good);
        let mut states = Vec::new();
        for now in 2_000..3_000 {
            watch.poll_probe(at(now));
            let state = watch.state(at(now));
            if states.last().is_none_or(|(_, last)| *last != state) {
                states.push((now, state));
            }
        }
        let [
            (_, PathState::Good),
            (suspect, PathState::Suspect),
            (dead, PathState::Dead),
        ] = states[..]
        else {
            panic!("{states:?}");
        };
        assert!((2_100..=2_190).contains(&suspect), "{suspect}");
        assert!((2_320..=2_480).contains(&dead), "{dead}");
        answered(&mut watch, 3_000, 100, 50);
        assert_eq!(watch.state(at(3_100)), PathState::Good);
    }

    #[test]
    fn one_lost_probe_of_many_is_no_reason() {
        let mut watch = PathWatch::new(at(0));
        answered(&mut watch, 0, 2_000, 50);
        let lost = (2_000..2_040).find_map(|now| watch.poll_probe(at(now)));
        assert!(lost.is_some());
        answered(&mut watch, 2_040, 1_000, 50);
        assert_eq!(watch.state(at(3_040)), PathState::Good);
        let (thousandths, decided) = watch.lost(at(3_040));
        assert!(
            (10..=20).contains(&thousandths),
            "{thousandths} of {decided}"
        );
    }

    #[test]
    fn a_path_that_stands_by_is_probed_less() {
        let mut watch = PathWatch::new(at(0));
        answered(&mut watch, 0, 1_000, 30);
        watch.set_pace(at(1_000), PathPace::Idle);
        let before = watch.next_number;
        answered(&mut watch, 1_000, 2_000, 30);
        assert!((7..=9).contains(&(watch.next_number - before)));
        assert_eq!(watch.probes.len().min(PROBES_MAX), watch.probes.len());
    }

    #[test]
    fn a_slower_path_shows_whatever_the_clocks_and_the_way_back() {
        for offset in [0, u64::MAX - 5_000_000, 1 << 63] {
            let mut watch = PathWatch::new(at(0));
            let mut probe = |now: u64, there: u64, back: u64| {
                let number = watch.poll_probe(at(now)).unwrap();
                let transit = offset.wrapping_add(there * 1_000_000);
                watch.on_echo(at(now + there + back), number, transit);
                watch.excess().as_millis()
            };
            for round in 0..50 {
                assert_eq!(probe(round * 300, 30, 30), 0);
            }
            for round in 50..100 {
                assert_eq!(probe(round * 300, 30, 130), 0, "the way back is slow");
            }
            let excess = (100..120).map(|round| probe(round * 300, 130, 30)).last();
            assert!(
                excess.is_some_and(|excess| (75..=100).contains(&excess)),
                "{excess:?}"
            );
        }
    }

    #[test]
    fn answers_that_nobody_asked_for_count_for_nothing() {
        let mut watch = PathWatch::new(at(0));
        for number in [0, 1, 7, u32::MAX] {
            watch.on_echo(at(1), number, 0);
        }
        assert!(!watch.is_proved());
        let number = watch.poll_probe(at(2)).unwrap();
        for _ in 0..9 {
            watch.on_echo(at(3), number, 0);
        }
        assert_eq!(watch.answers, 1);
    }
}
