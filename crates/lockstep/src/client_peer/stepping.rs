//! A client whose game runs ahead of closed ticks, and rolls back wrong predictions.
//!
//! The game simulates a tick as soon as its own input is stamped. With an input delay of `d`, that
//! is `d` or `d + 1` ticks before the closed tick arrives. So a window of at least `d + 1` shows
//! own inputs at once; a smaller window shows them later by the difference, at an even pace.

use core::time::Duration;
use std::collections::VecDeque;

use wire::{Instant, MatchId, Seat};

use super::session::Read;
use super::{ClientPeer, EVENTS_MAX, State};
use crate::chain::SnapshotHead;
use crate::checksum::{LogHash, StateHasher};
use crate::config::ClientConfig;
use crate::event::{ClientEvent, ReportError, SnapshotError};
use crate::input::{Input, Row, Turn};
use crate::message::Welcome;
use crate::sim::{Step, Steps};
use crate::stats::ClientStats;
use crate::stepper::{StepAction, Stepper, WINDOW_MAX};
use crate::tick::Tick;

/// Log hashes kept for closed ticks that are not final: up to three windows of 32.
const LOGS: u32 = 128;

#[derive(Debug)]
pub(super) struct Stepping {
    pub(super) stepper: Stepper,
    pub(super) own: Option<Seat>,
    window: u32,
    /// First tick that the game may not simulate before it closes.
    target: Tick,
    /// Log hash after tick `t`, in slot `t % LOGS`.
    logs: Vec<LogHash>,
}

impl Stepping {
    /// `None` if nothing is predicted.
    pub(super) fn new(config: &ClientConfig, welcome: &Welcome, neutral: &[u8]) -> Option<Self> {
        let window = config.window.min(WINDOW_MAX);
        if window == 0 {
            return None;
        }
        let logs = usize::try_from(LOGS).unwrap_or(usize::MAX);
        Some(Self {
            stepper: Stepper::new(welcome.shape, neutral, window, config.save_policy),
            own: welcome.seat,
            window: window.into(),
            target: Tick(0),
            logs: vec![LogHash::new(welcome.match_id); logs],
        })
    }

    /// Passes the boundary that stamps inputs for `tick` and at which bundle `received` arrives on
    /// a fast network. The tick is simulated now, or later if the window is too small.
    pub(super) fn on_boundary(&mut self, received: Tick, tick: Tick) {
        let reach = received.plus(self.window);
        self.target = self.target.max(tick.plus(1).min(reach));
    }

    /// Restarts with a server that closes `next` and all later ticks: early inputs of the previous
    /// server for these are void, and the new clock starts at the game's position.
    pub(super) fn restart(&mut self, next: Tick) {
        self.stepper.forget_predicted(next);
        self.target = self.stepper.at;
    }

    pub(super) fn on_stamped(&mut self, tick: Tick, input: &[u8]) {
        if let Some(own) = self.own {
            self.stepper.predict_input(own, tick, input);
        }
    }

    pub(super) fn on_early(&mut self, seat: Seat, tick: Tick, input: &[u8]) {
        if Some(seat) != self.own {
            self.stepper.predict_input(seat, tick, input);
        }
    }

    pub(super) fn confirm(&mut self, tick: Tick, row: &Row, log: LogHash) {
        debug_assert_eq!(tick, self.stepper.end, "closed ticks come in order");
        self.stepper.confirm(row);
        if let Some(slot) = self.logs.get_mut(tick.slot(LOGS)) {
            *slot = log;
        }
    }

    pub(super) fn resume_from(&mut self, head: &SnapshotHead) {
        self.stepper.resume_from(head.next, &head.row);
        if let Some(log) = self.logs.get_mut(head.next.minus(1).slot(LOGS)) {
            *log = head.log;
        }
    }

    /// Row and log hash before the final state number `next`; `None` if it is too old or not final.
    pub(super) fn before(&self, next: Tick) -> Option<(&Row, LogHash)> {
        let row = self.stepper.row_before(next)?;
        let log = self.logs.get(next.minus(1).slot(LOGS)).copied()?;
        Some((row, log))
    }

    /// Returns the next action; ticks before `end` have arrived and may always be simulated.
    pub(super) fn next(&mut self, end: Tick) -> Option<StepAction> {
        self.stepper.next(self.target.max(end))
    }

    pub(super) fn waits_for_clock(&self) -> bool {
        self.stepper.at >= self.target
    }

    /// Log hash up to the newest final tick; `None` before the first.
    pub(super) fn log(&self) -> Option<LogHash> {
        let tick = self.stepper.settled.0.checked_sub(1)?;
        self.logs.get(Tick(tick).slot(LOGS)).copied()
    }

    pub(super) fn memory_len(&self) -> usize {
        self.stepper
            .memory_len()
            .saturating_add(self.logs.len().saturating_mul(size_of::<LogHash>()))
    }
}

pub(super) fn record_read(read: Read, events: &mut VecDeque<ClientEvent>, stats: &mut ClientStats) {
    stats.turns = stats.turns.saturating_add(1);
    if !read.is_own_substituted {
        return;
    }
    stats.substituted = stats.substituted.saturating_add(1);
    if events.len() < EVENTS_MAX {
        let tick = read.tick;
        events.push_back(ClientEvent::Substituted { tick });
    }
}

impl<I: Input> ClientPeer<I> {
    /// Returns the next step of a game with a [`ClientConfig::window`]; without one, the same turns
    /// as [`poll_turn`](Self::poll_turn).
    ///
    /// Call it until it returns a wait, after datagrams and after each timeout.
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        if self.exchange.is_waiting() {
            return Step::Wait { until: None };
        }
        if self
            .session()
            .is_none_or(|session| session.stepping.is_none())
        {
            let until = self.next_turn_at().filter(|at| *at > now);
            return match self.poll_turn(now) {
                Some(turn) => Step::Advance {
                    turn,
                    is_last: true,
                },
                None => Step::Wait { until },
            };
        }
        let State::Seated(session) = &mut self.state else {
            return Step::Wait { until: None };
        };
        while let Some(read) = session.confirm_next() {
            record_read(read, &mut self.events, &mut self.stats);
        }
        let Some(next) = session.next_action() else {
            let until = session.wait_until();
            return Step::Wait { until };
        };
        self.stats.on_step(next);
        match next {
            StepAction::Save(tick) => Step::Save(tick),
            StepAction::Load(tick) => Step::Load(tick),
            StepAction::Settled(tick) => Step::Settled(tick),
            StepAction::Advance { tick, is_last } => Step::Advance {
                turn: Turn::new(tick, session.row()),
                is_last,
            },
        }
    }

    /// Gives a saved state of a game with rollback, on [`ClientEvent::SnapshotWanted`]. State
    /// number `tick` must be final and still loadable, as returned by
    /// [`Rollback::final_save`](crate::Rollback::final_save).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_save(
        &mut self,
        now: Instant,
        tick: Tick,
        state: &[u8],
    ) -> Result<(), SnapshotError> {
        self.offer(now, Some(tick), state)
    }

    /// Returns whether the state hash of `tick` is needed.
    ///
    /// Hashes of hash steps go to the server. Those between are kept for bisection, unless
    /// [`ClientConfig::hashes_kept`] is 0. A spectator needs none.
    #[must_use]
    pub fn wants_hash(&self, tick: Tick) -> bool {
        let is_kept = self.config.hashes_kept > 0;
        self.session().is_some_and(|session| {
            let is_step = tick.0.is_multiple_of(session.hash_interval());
            !session.is_spectator() && (is_kept || is_step)
        })
    }

    /// Sets the cost of one save and one step of the game, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    pub fn set_costs(&mut self, save: Duration, step: Duration) {
        self.costs = Some((save, step));
        self.forward_costs();
    }

    pub(super) fn forward_costs(&mut self) {
        if let Some((save, step)) = self.costs
            && let Some(session) = self.session_mut()
            && let Some(stepping) = &mut session.stepping
        {
            stepping.stepper.costs(save, step);
        }
    }
}

impl<I: Input> Steps for ClientPeer<I> {
    type Input = I;

    fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        self.next_step(now)
    }

    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.report_state(tick, state)
    }

    fn wants_hash(&self, tick: Tick) -> bool {
        self.wants_hash(tick)
    }

    fn match_id(&self) -> Option<MatchId> {
        self.match_id()
    }

    fn window(&self) -> u8 {
        self.config.window.min(WINDOW_MAX)
    }

    fn set_costs(&mut self, save: Duration, step: Duration) {
        self.set_costs(save, step);
    }
}
