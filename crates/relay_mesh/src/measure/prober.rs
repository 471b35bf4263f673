//! Probing of one neighbour: schedule, answers, and health.

use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant};

use super::{Echo, LinkReport, Probe, Window};
use crate::cost::{Cost, Loss};
use crate::path_watch::STALLS_EXCUSED_MAX;

/// Probes one neighbour and determines the health of the link.
///
/// Call [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) is due,
/// then [`poll_probe`](Self::poll_probe) until it returns `None`.
#[derive(Debug)]
pub struct Prober {
    generator: Generator,
    window: Window,
    /// Newest probes, oldest first; at most [`Self::PROBES_MAX`].
    probes: VecDeque<Sent>,
    pace: ProbeRate,
    next_probe: Instant,
    last_probe: Option<Instant>,
    /// When the first pending probe becomes overdue.
    overdue_at: Option<Instant>,
    /// Consecutive overdue probes without an answer.
    missed: u8,
    state: State,
    /// The current 200 ms window.
    short_window: ShortWindow,
    stalls_excused: u8,
}

/// How often a healthy link is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRate {
    /// 5 Hz: the link carries traffic or may soon.
    InUse,
    /// 1 Hz.
    Idle,
}

/// Health of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Fewer than 10 answers so far, or fewer than 3 if the link was up before.
    New,
    /// It answers as usual.
    Up,
    /// It answers much later than usual, or not always.
    Degraded,
    /// It no longer answers.
    Dead,
}

impl Prober {
    /// Probes kept: 100 for the loss, plus pending ones.
    pub const PROBES_MAX: usize = 128;
    /// Probes that the loss is computed from.
    const LOSS_PROBES: u32 = 100;
    /// Answers before a link is up.
    pub const ANSWERS_MIN: u8 = 10;
    /// Consecutive overdue probes without an answer before a link is dead.
    const MISSES_DEAD: u8 = 3;
    /// Answers before a dead link is up again.
    const ANSWERS_BACK: u8 = 3;

    /// Starts with a probe due at `now`.
    #[must_use]
    pub fn new(now: Instant, generator: Generator) -> Self {
        Self {
            generator,
            window: Window::default(),
            probes: VecDeque::new(),
            pace: ProbeRate::Idle,
            next_probe: now,
            last_probe: None,
            overdue_at: None,
            missed: 0,
            state: State::awaiting(Self::ANSWERS_MIN),
            short_window: ShortWindow::at(now),
            stalls_excused: 0,
        }
    }

    /// Restarts for a new session with the neighbour over the same path, and keeps the measured
    /// round trips. A link that was up needs as many answers as a dead one.
    pub fn renew(&mut self, now: Instant) {
        self.probes.clear();
        self.pace = ProbeRate::Idle;
        self.next_probe = now;
        self.last_probe = None;
        self.overdue_at = None;
        self.missed = 0;
        self.stalls_excused = 0;
        self.short_window = ShortWindow::at(now);
        self.state = State::awaiting(if self.was_up() {
            Self::ANSWERS_BACK
        } else {
            Self::ANSWERS_MIN
        });
    }

    /// Returns whether the link has been up since the start or the last [`renew`](Self::renew).
    #[must_use]
    pub const fn was_up(&self) -> bool {
        matches!(self.state, State::Up | State::Dead { .. })
    }

    /// Sets how often the link is probed while it is healthy.
    pub fn set_pace(&mut self, now: Instant, pace: ProbeRate) {
        if self.pace != pace {
            self.pace = pace;
            self.plan(now);
        }
    }

    /// Handles the answer to a probe. Returns false if it matches no unanswered probe.
    pub fn handle_echo(&mut self, now: Instant, echo: Echo) -> bool {
        let is_it =
            |sent: &&mut Sent| sent.probe == echo.0 && !matches!(sent.outcome, Outcome::Answered);
        let Some(sent) = self.probes.iter_mut().rev().find(is_it) else {
            return false;
        };
        sent.outcome = Outcome::Answered;
        self.stalls_excused = 0;
        let round_trip = now.saturating_since(Instant::from_nanos(sent.probe.sent_nanos));
        self.look_for_overdue();
        self.window.add(now, round_trip);
        self.short_window.on_answer(round_trip);
        self.missed = 0;
        self.state = self.state.on_answer();
        self.roll(now);
        self.plan(now);
        true
    }

    /// Handles a stall of this node: discards the pending probes, since answers waited for it, and
    /// sends a new one. At most eight times without an answer.
    pub fn on_stall(&mut self, now: Instant) {
        if self.stalls_excused >= STALLS_EXCUSED_MAX {
            return;
        }
        self.stalls_excused = self.stalls_excused.saturating_add(1);
        self.probes
            .retain(|sent| !matches!(sent.outcome, Outcome::Pending));
        self.overdue_at = None;
        self.missed = 0;
        self.short_window = ShortWindow::at(now);
        self.next_probe = now;
    }

    /// Handles overdue probes and the end of a 200 ms window.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut newly_overdue = false;
        let is_overdue = self.overdue_at.is_some_and(|at| at <= now);
        for sent in self.probes.iter_mut().filter(|_| is_overdue) {
            if matches!(sent.outcome, Outcome::Pending) && sent.deadline <= now {
                sent.outcome = Outcome::Lost;
                newly_overdue = true;
                self.missed = self.missed.saturating_add(1);
                self.short_window.lost = true;
            }
        }
        if newly_overdue {
            self.look_for_overdue();
            if self.missed >= Self::MISSES_DEAD {
                self.state = self.state.on_silence(now);
            }
            self.plan(now);
        }
        self.roll(now);
    }

    /// Returns the probe to send now, if one is due.
    pub fn poll_probe(&mut self, now: Instant) -> Option<Probe> {
        if now < self.next_probe {
            return None;
        }
        let probe = Probe {
            id: self.generator.next_u32(),
            sent_nanos: now.as_nanos(),
        };
        let deadline = now + self.answer_timeout(now);
        if self.probes.len() >= Self::PROBES_MAX {
            self.probes.pop_front();
        }
        self.probes.push_back(Sent {
            probe,
            deadline,
            outcome: Outcome::Pending,
        });
        self.look_for_overdue();
        self.last_probe = Some(now);
        self.plan(now);
        Some(probe)
    }

    /// Returns when the next probe is due or a pending one becomes overdue.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.overdue_at
            .map_or(self.next_probe, |at| at.min(self.next_probe))
    }

    /// Returns the health of the link.
    #[must_use]
    pub fn health(&self) -> Health {
        match self.state {
            State::New { .. } => Health::New,
            State::Dead { .. } => Health::Dead,
            State::Up if self.short_window.is_degraded() || self.is_losing() => Health::Degraded,
            State::Up => Health::Up,
        }
    }

    /// Returns the round trips of the last 30 s.
    pub const fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Returns the link's cost and loss, as used in link records.
    ///
    /// A degraded link costs at least its newest round trips, and loses at least as much as its
    /// newest 20 probes.
    pub fn report(&mut self, now: Instant) -> LinkReport {
        let health = self.health();
        let summary = match health {
            Health::New | Health::Dead => None,
            Health::Up | Health::Degraded => self.window.summary(now),
        };
        let Some(summary) = summary else {
            return LinkReport::DOWN;
        };
        let mut micros = summary.median.saturating_add(summary.jitter());
        let mut loss = self.loss();
        if health == Health::Degraded {
            micros = micros.max(self.window.newest().unwrap_or(0));
            let (lost, sent) = self.lost_of(NEWEST_PROBES);
            loss = loss.max(Loss::from_probes(lost, sent));
        }
        LinkReport {
            delay: Cost::from_micros(micros.into()),
            loss: loss.into(),
        }
    }

    /// Returns the share lost of the newest 100 probes, beyond chance.
    #[must_use]
    pub fn loss(&self) -> Loss {
        let (lost, sent) = self.lost_of(Self::LOSS_PROBES);
        Loss::from_probes(lost, sent)
    }

    /// Returns how many of the newest `max` decided probes were lost, and of how many.
    fn lost_of(&self, max: u32) -> (u32, u32) {
        let (mut lost, mut decided) = (0_u32, 0_u32);
        for sent in self.probes.iter().rev() {
            if decided == max {
                break;
            }
            match sent.outcome {
                Outcome::Pending => continue,
                Outcome::Answered => {}
                Outcome::Lost => lost = lost.saturating_add(1),
            }
            decided = decided.saturating_add(1);
        }
        (lost, decided)
    }

    fn is_losing(&self) -> bool {
        self.lost_of(NEWEST_PROBES).0 >= NEWEST_LOST
    }

    /// The answer timeout of a probe sent now.
    fn answer_timeout(&mut self, now: Instant) -> Duration {
        let Some(summary) = self.window.summary(now) else {
            return TIMEOUT_MAX;
        };
        let slack = summary.jitter().saturating_mul(2);
        let slack = slack.max(summary.p95 / 8).max(30_000);
        let timeout = Duration::from_micros(summary.p95.saturating_add(slack).into());
        timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX)
    }

    /// Updates the cached `overdue_at`.
    fn look_for_overdue(&mut self) {
        let pending = self.probes.iter();
        let pending = pending.filter(|sent| matches!(sent.outcome, Outcome::Pending));
        self.overdue_at = pending.map(|sent| sent.deadline).min();
    }

    /// Schedules the next probe relative to the last one.
    fn plan(&mut self, now: Instant) {
        let interval = match (self.state, self.pace) {
            (State::Dead { answers: 0, since }, _) if now < since + RECENT => RECENTLY_DEAD,
            (State::Dead { answers: 0, .. } | State::New { answers: 0, .. }, _) => IDLE,
            (State::New { .. } | State::Dead { .. }, _) => QUICK,
            (State::Up, _) if self.missed > 0 => QUICK,
            (State::Up, ProbeRate::InUse) => IN_USE,
            (State::Up, ProbeRate::Idle) => IDLE,
        };
        // Randomized by up to 10 %, so that the probes of many links do not synchronize.
        let tenths = self.generator.between(90, 110);
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let spread = Duration::from_nanos((nanos / 100).saturating_mul(tenths));
        let planned = self.last_probe.map_or(now, |last| last + spread);
        self.next_probe = planned.max(now);
    }

    /// Closes the 200 ms window if it is over.
    fn roll(&mut self, now: Instant) {
        if now.saturating_since(self.short_window.start) >= SHORT_WINDOW {
            let median = self.window.summary(now).map_or(0, |summary| summary.median);
            self.short_window.close(now, median);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    probe: Probe,
    /// From then on it counts as lost until its answer arrives.
    deadline: Instant,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Pending,
    Answered,
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Too few answers so far.
    New {
        answers: u8,
        needed: u8,
    },
    Up,
    /// Silent since `since`; `answers` counts the answers after that.
    Dead {
        answers: u8,
        since: Instant,
    },
}

impl State {
    /// A link without an answer that is up after `needed` of them.
    const fn awaiting(needed: u8) -> Self {
        Self::New { answers: 0, needed }
    }

    const fn on_answer(self) -> Self {
        match self {
            Self::New { answers, needed } if answers.saturating_add(1) < needed => Self::New {
                answers: answers.saturating_add(1),
                needed,
            },
            Self::Dead { answers, since } if answers.saturating_add(1) < Prober::ANSWERS_BACK => {
                Self::Dead {
                    answers: answers.saturating_add(1),
                    since,
                }
            }
            Self::New { .. } | Self::Dead { .. } | Self::Up => Self::Up,
        }
    }

    const fn on_silence(self, now: Instant) -> Self {
        match self {
            Self::New { .. } => Self::awaiting(Prober::ANSWERS_MIN),
            Self::Up => Self::Dead {
                answers: 0,
                since: now,
            },
            Self::Dead { since, .. } => Self::Dead { answers: 0, since },
        }
    }
}

#[derive(Debug)]
struct ShortWindow {
    start: Instant,
    /// Best round trip in it, in µs.
    best: Option<u32>,
    /// Whether a probe became overdue in it.
    lost: bool,
    /// Consecutive closed windows that were bad.
    bad_in_a_row: u8,
}

impl ShortWindow {
    const fn at(start: Instant) -> Self {
        Self {
            start,
            best: None,
            lost: false,
            bad_in_a_row: 0,
        }
    }

    fn on_answer(&mut self, round_trip: Duration) {
        let micros = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        self.best = Some(self.best.map_or(micros, |best| best.min(micros)));
    }

    const fn is_degraded(&self) -> bool {
        self.bad_in_a_row >= WINDOWS_BAD
    }

    /// Closes the window; `median` is that of the last 30 s, in µs.
    const fn close(&mut self, now: Instant, median: u32) {
        let bad_in_a_row = match self.best {
            Some(best) if best <= median.saturating_add(EXCESS_MICROS) => 0,
            // No probe ended in this window, so it counts neither way.
            None if !self.lost => self.bad_in_a_row,
            Some(_) | None => self.bad_in_a_row.saturating_add(1),
        };
        *self = Self {
            bad_in_a_row,
            ..Self::at(now)
        };
    }
}

/// Interval on links in use.
const IN_USE: Duration = Duration::from_millis(200);
/// Interval on other links, and on new or dead links without an answer.
const IDLE: Duration = Duration::from_secs(1);
/// Interval on a link that died recently, so that its recovery is noticed quickly.
const RECENTLY_DEAD: Duration = Duration::from_millis(250);
/// How long a link counts as recently dead. Longer than the 10 s after which its session ends.
const RECENT: Duration = Duration::from_secs(15);
/// Interval while a link is suspect, and while a new or recovering link needs more answers.
const QUICK: Duration = Duration::from_millis(50);
const TIMEOUT_MIN: Duration = Duration::from_millis(50);
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// Newest probes checked for sudden loss.
const NEWEST_PROBES: u32 = 20;
/// Lost probes among them that make a link degraded.
const NEWEST_LOST: u32 = 3;
/// Length of a window.
const SHORT_WINDOW: Duration = Duration::from_millis(200);
/// Consecutive bad windows that make a link degraded.
const WINDOWS_BAD: u8 = 3;
/// A window is bad if its best answer exceeds the median by more than this: 25 ms.
const EXCESS_MICROS: u32 = 25_000;

#[cfg(test)]
mod tests;
