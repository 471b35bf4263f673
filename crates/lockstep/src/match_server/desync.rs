//! Compares state hashes, and bisects desyncs.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::close::player;
use crate::bisect::{DesyncReport, WITNESSES_MAX, Witness};
use crate::checksum::StateHasher;
use crate::config::Recovery;
use crate::event::{Phase, ReportError, ServerEvent, Verdict};
use crate::hash_comparator::{Divergence, Finding};
use crate::input::Input;
use crate::message::{Answer, write_question};
use crate::repair::Repair;
use crate::tick::{PeerId, Tick};

/// How long to wait for the hash of a closed tick, in addition to [`HASH_TIMEOUT_TICKS`]: at 100 ms
/// round trip and 20 % loss each way, one in a million is still missing.
const HASH_TIMEOUT: Duration = Duration::from_secs(2);

/// Ticks in which a report is sent, arrives, is missed and requested. The hash interval counts
/// twice, since a lost hash is noticed only when the next one arrives.
const HASH_TIMEOUT_TICKS: u64 = 4;

/// Queued events per seat; beyond it, silence is only counted.
const EVENTS_PER_SEAT_MAX: usize = 8;

impl<I: Input> MatchServer<I> {
    pub(super) fn settle_hashes(&mut self) {
        let closed_steps = self.end.0.div_ceil(self.hash_interval());
        while let Some(settled) = self.hash_comparator.settle(closed_steps) {
            if let Some(finding) = settled.finding {
                self.report_finding(finding);
            }
        }
        self.count_hashes();
    }

    pub(super) fn review_hashes(&mut self, seat: Seat) {
        while let Some(finding) = self.hash_comparator.review(seat) {
            self.report_finding(finding);
        }
        self.count_hashes();
    }

    pub(super) fn expire_hashes(&mut self, now: Instant) {
        let before = self.hash_comparator.overdue;
        while self.is_overdue(now, self.hash_comparator.overdue) {
            self.hash_comparator.expire();
        }
        self.settle_hashes();
        if self.hash_comparator.overdue > before {
            for seat in (0..self.shape.seats).map(Seat) {
                self.review_hashes(seat);
            }
            self.settle_hashes();
        }
    }

    fn is_overdue(&self, now: Instant, step: u32) -> bool {
        let interval = self.hash_interval();
        let tick = self.tick_of(step);
        let ticks = HASH_TIMEOUT_TICKS.saturating_add(u64::from(interval).saturating_mul(2));
        let nanos = self.limits.period_nanos.saturating_mul(ticks);
        let hash_timeout = HASH_TIMEOUT.saturating_add(Duration::from_nanos(nanos));
        // A tick that the chain no longer holds closed long ago.
        tick < self.end
            && self
                .closed_at(tick)
                .is_none_or(|at| at + hash_timeout <= now)
    }

    fn hash_interval(&self) -> u32 {
        self.config.hash_interval.get().into()
    }

    pub(super) fn tick_of(&self, step: u32) -> Tick {
        Tick(step.saturating_mul(self.hash_interval()))
    }

    fn report_finding(&mut self, finding: Finding) {
        match finding {
            Finding::Differs(divergence) => {
                self.on_desync(self.tick_of(divergence.step), divergence);
            }
            Finding::Silent { seat, step } => {
                let most = self.seats.len().saturating_mul(EVENTS_PER_SEAT_MAX);
                if self.events.len() < most {
                    let tick = self.tick_of(step);
                    self.events.push_back(ServerEvent::Silent { seat, tick });
                }
            }
        }
    }

    fn on_desync(&mut self, tick: Tick, divergence: Divergence) {
        let now = self.now;
        if let [seat] = *divergence.seats.as_slice()
            && self.blames_donor(now, seat, tick)
        {
            return;
        }
        let verdict = divergence.verdict;
        let reload = self.config.recovery == Recovery::Reload && verdict != Verdict::Undecided;
        self.events.push_back(ServerEvent::Desync {
            tick,
            seats: divergence.seats.clone(),
            verdict,
        });
        self.start_bisect(&divergence);
        if reload {
            for seat in divergence.seats {
                // A player that loads another state can no longer answer for its own.
                if self.bisect.reload_after(seat) {
                    continue;
                }
                self.resync(now, seat);
            }
        }
    }

    const fn count_hashes(&mut self) {
        let counts = self.hash_comparator.counts;
        self.stats.hashes_compared = counts.compared;
        self.stats.hashes_missing = counts.missing;
    }
}

/// How long to wait for an answer, in addition to a round trip and two ticks: at 100 ms round trip
/// and 20 % loss each way, one in a thousand million is still missing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Least time before a question is repeated, so that a silent player on a fast network is not asked
/// a thousand times.
const WAIT_NANOS_MIN: u64 = 100_000_000;

impl<I: Input> MatchServer<I> {
    /// Takes the server's own state after `tick`, the turn returned last, as hashed by `state`:
    /// players are judged by its root, and its sections help to locate a desync.
    ///
    /// Report every tick, also between hash steps: a bisection finds only reported ticks.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.record_report(tick, state.finish(), Some(state))
    }

    pub(super) fn record_report(
        &mut self,
        tick: Tick,
        root: u64,
        state: Option<&StateHasher>,
    ) -> Result<(), ReportError> {
        if tick.plus(1) != self.reader.next {
            return Err(ReportError::OutOfOrder);
        }
        let log = self.reader.log;
        let hash = log.report(root);
        if !self.bisect.own.has(tick) {
            let sections = state.into_iter().flat_map(StateHasher::sections);
            self.bisect.own.push(tick, (hash, log.short()), sections);
        }
        let interval = u32::from(self.config.hash_interval.get());
        if tick.0.is_multiple_of(interval) {
            let step = tick.0.checked_div(interval).unwrap_or(0);
            if !self.hash_comparator.insert_server(step, hash) {
                self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            }
            self.settle_hashes();
        }
        Ok(())
    }

    pub(super) fn start_bisect(&mut self, divergence: &Divergence) {
        let step = divergence.step;
        let tick = self.tick_of(step);
        // Undecided: the first seat serves as the reference.
        let named = divergence.seats.iter().copied();
        let right = (divergence.verdict == Verdict::Undecided)
            .then(|| {
                self.hash_comparator
                    .reported(divergence.seats.first().copied(), step)
            })
            .flatten();
        let agreeing: Vec<Seat> = if right.is_some() {
            let seats = named.clone();
            let mut agreeing: Vec<_> = seats.collect();
            agreeing.retain(|seat| self.hash_comparator.reported(Some(*seat), step) == right);
            agreeing
        } else {
            self.hash_comparator.agreeing(step).collect()
        };
        for (seat, index) in named.zip(0_usize..) {
            let Some(report) = self.hash_comparator.reported(Some(seat), step) else {
                continue;
            };
            if right == Some(report) {
                continue;
            }
            // Each starts with a different witness, to spread the questions.
            let start = index.checked_rem(agreeing.len()).unwrap_or(0);
            let (before, from) = agreeing.split_at_checked(start).unwrap_or_default();
            let players = from.iter().chain(before).take(WITNESSES_MAX);
            let players = players.filter_map(|witness| self.witness(Some(*witness), seat, step));
            let mut witnesses: Vec<_> = players.collect();
            self.add_server(&mut witnesses, seat, step);
            witnesses.retain(|witness| witness.report != report);
            witnesses.truncate(WITNESSES_MAX);
            let suspicion = DesyncReport {
                seat,
                report,
                tick,
                witnesses,
            };
            self.bisect.begin(suspicion, self.bisect_deadline());
        }
        self.report_found();
    }

    pub(super) fn on_bisect_answer(&mut self, seat: Seat, answer: &Answer<'_>) {
        let counter = if self.bisect.on_answer(seat, answer, self.bisect_deadline()) {
            &mut self.stats.bisect_answers
        } else {
            &mut self.stats.bisect_refused
        };
        *counter = counter.saturating_add(1);
        self.report_found();
    }

    pub(super) fn poll_bisect(&mut self, now: Instant) {
        let deadline = self.bisect_deadline();
        let (seats, limits) = (&self.seats, &self.limits);
        let wait_nanos = |seat: Seat| {
            let player = player(seats, seat);
            let nanos = player.map_or(0, |player| Repair::answer_nanos(&player.repair, limits));
            nanos.max(WAIT_NANOS_MIN)
        };
        self.bisect.on_tick(now, deadline, wait_nanos);
        self.report_found();
    }

    pub(super) fn stop_bisect(&mut self, seat: Seat) {
        self.bisect.on_left(seat, self.bisect_deadline());
        self.report_found();
    }

    pub(super) fn transmit_question(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if self.phase != Phase::Running {
            return None;
        }
        let (seat, question) = self.bisect.poll_question(now)?;
        let peer = player(&self.seats, seat)?.peer;
        write_question(buf, question);
        self.stats.bisect_questions = self.stats.bisect_questions.saturating_add(1);
        Some(peer)
    }

    /// Adds the server as a witness: first if it keeps all ticks in question, else last.
    fn add_server(&self, witnesses: &mut Vec<Witness>, seat: Seat, step: u32) {
        let tick = self.tick_of(step);
        let Some(server) = self.witness(None, seat, step) else {
            return;
        };
        let mut ticks = (server.first.0..=tick.0).map(Tick);
        if ticks.all(|tick| self.bisect.own.has(tick)) {
            witnesses.insert(0, server);
        } else if self.bisect.own.has(tick) {
            witnesses.push(server);
        }
    }

    fn witness(&self, witness: Option<Seat>, seat: Seat, step: u32) -> Option<Witness> {
        let equal = self.hash_comparator.last_equal(witness, Some(seat), step);
        let first = equal.map_or(Tick(0), |equal| self.tick_of(equal).plus(1));
        // No participant is asked for more ticks than the default history keeps.
        let oldest = self.tick_of(step).minus(1_023);
        Some(Witness {
            seat: witness,
            report: self.hash_comparator.reported(witness, step)?,
            first: first.max(oldest),
        })
    }

    fn report_found(&mut self) {
        while let Some(found) = self.bisect.poll_found() {
            self.events.push_back(ServerEvent::Divergence {
                seat: found.seat,
                against: found.against,
                tick: found.tick,
                cause: found.cause,
                section: found.section,
            });
            if found.then_reload {
                self.resync(self.now, found.seat);
            }
        }
    }

    fn bisect_deadline(&self) -> Instant {
        let ticks = self.limits.period_nanos.saturating_mul(2);
        self.now + ANSWER_TIMEOUT.saturating_add(Duration::from_nanos(ticks))
    }
}
