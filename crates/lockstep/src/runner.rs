//! A game that goes back where it guessed wrong, and needs not be told how.

use core::time::Duration;

use wire::Instant;

use crate::checksum::StateHasher;
use crate::costs::Costs;
use crate::saves::Saves;
use crate::sim::Sim;
use crate::step::{Step, Steps};
use crate::stepper::WINDOW_MAX;
use crate::tick::Tick;

/// A game, and the machine that says what it does next: does it, and reports state hashes.
///
/// Give datagrams and timeouts to the machine, as always, and [`run`](Self::run) the game after
/// them. What the player sees is [`game`](Self::game), which may be ahead of the closed ticks.
///
/// ```no_run
/// # use lockstep::{ClientPeer, Rollback, Sim};
/// # fn frame<S: Sim<Input = u16>>(
/// #     now: wire::Instant,
/// #     rollback: &mut Rollback<S, ClientPeer<u16>>,
/// #     draw: fn(&S),
/// # ) {
/// rollback.steps_mut().submit(now, &3).ok();
/// rollback.steps_mut().handle_timeout(now);
/// rollback.run(now);
/// draw(rollback.game());
/// # }
/// ```
///
/// Memory is taken in [`new`](Self::new) and with the first step, but for what snapshots hold
/// themselves.
#[derive(Debug)]
pub struct Rollback<S: Sim, M> {
    game: S,
    steps: M,
    saves: Saves<S::Snapshot>,
    /// First tick that is not final.
    settled: Tick,
    /// Hash after tick `t`, as simulated last, at place `t % hashes.len()`: more than there are
    /// ticks that are simulated and not final. Empty until the match is known.
    hashes: Vec<StateHasher>,
    costs: Costs,
}

impl<S: Sim, M: Steps<Input = S::Input>> Rollback<S, M> {
    /// Joins a game before tick 0 and its machine.
    #[must_use]
    pub fn new(game: S, steps: M) -> Self {
        let window = steps.window().min(WINDOW_MAX);
        // Lockstep saves nothing.
        let count = if window == 0 {
            0
        } else {
            usize::from(window).saturating_add(1)
        };
        Self {
            game,
            steps,
            saves: Saves::new(count),
            settled: Tick(0),
            hashes: Vec::new(),
            costs: Costs::default(),
        }
    }

    /// Does all there is to do at `now`, and returns when there is more to do if nothing arrives;
    /// `None` where only an arrival helps, or the machine's timeout.
    ///
    /// At most a window and the ticks that have arrived are simulated, and up to three windows
    /// again.
    pub fn run(&mut self, now: Instant) -> Option<Instant> {
        self.run_by(now, || None)
    }

    /// As [`run`](Self::run), and measures what saves and steps take for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    ///
    /// `clock` is a time that goes forward, as `Instant::elapsed` of the standard library's tells;
    /// it is asked twice for each save and each step.
    ///
    /// ```no_run
    /// # use lockstep::{ClientPeer, Rollback, Sim};
    /// # fn frame<S: Sim<Input = u16>>(
    /// #     now: wire::Instant,
    /// #     started: std::time::Instant,
    /// #     rollback: &mut Rollback<S, ClientPeer<u16>>,
    /// # ) {
    /// rollback.run_measured(now, || started.elapsed());
    /// # }
    /// ```
    pub fn run_measured(
        &mut self,
        now: Instant,
        mut clock: impl FnMut() -> Duration,
    ) -> Option<Instant> {
        let until = self.run_by(now, || Some(clock()));
        if let Some((save, step)) = self.costs.tell() {
            self.set_costs(save, step);
        }
        until
    }

    fn run_by(
        &mut self,
        now: Instant,
        mut clock: impl FnMut() -> Option<Duration>,
    ) -> Option<Instant> {
        loop {
            match self.steps.next_step(now) {
                Step::Wait { until } => return until,
                Step::Save(tick) => {
                    if let Some(place) = self.saves.place(tick) {
                        let from = clock();
                        self.game.save(place);
                        if let (Some(from), Some(to)) = (from, clock()) {
                            self.costs.on_save(from, to);
                        }
                    }
                }
                Step::Load(tick) => {
                    let saved = self.saves.rewind(tick);
                    debug_assert!(saved.is_some(), "the newest saves are kept");
                    if let Some(saved) = saved {
                        self.game.load(saved);
                    }
                }
                Step::Advance { turn, is_last } => {
                    let (tick, from) = (turn.tick(), clock());
                    self.game.step(&turn);
                    self.on_stepped(tick);
                    if let (Some(from), Some(to)) = (from, clock()) {
                        self.costs.on_step(from, to);
                    }
                    if is_last {
                        self.report(tick);
                    }
                }
                Step::Settled(tick) => self.report(tick),
            }
        }
    }

    /// Takes what one save and one step of the game take, as measured on this machine, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto); [`run_measured`](Self::run_measured) does it for
    /// you. Their ratio counts; averages do best.
    pub fn set_costs(&mut self, save: Duration, step: Duration) {
        self.steps.set_costs(save, step);
    }

    /// Returns the game, as it is now.
    pub const fn game(&self) -> &S {
        &self.game
    }

    /// Returns the game, for what is no part of its state, and to load a state that came with
    /// [`ClientEvent::Snapshot`](crate::ClientEvent::Snapshot). All else only steps may change.
    pub const fn game_mut(&mut self) -> &mut S {
        &mut self.game
    }

    /// Returns the machine.
    pub const fn steps(&self) -> &M {
        &self.steps
    }

    /// Returns the machine, for datagrams, timeouts and inputs. Its steps are the runner's to take.
    pub const fn steps_mut(&mut self) -> &mut M {
        &mut self.steps
    }

    /// Returns the newest saved state that is final, and its number: the first tick that is not
    /// part of it. For [`ClientPeer::offer_save`](crate::ClientPeer::offer_save).
    pub fn final_save(&self) -> Option<(Tick, &S::Snapshot)> {
        self.saves.newest(self.settled)
    }

    /// Keeps the hash of the state after `tick`, where it will be asked for.
    fn on_stepped(&mut self, tick: Tick) {
        if !self.steps.wants_hash(tick) {
            return;
        }
        if let (true, Some(match_id)) = (self.hashes.is_empty(), self.steps.match_id()) {
            let window = usize::from(self.steps.window().min(WINDOW_MAX));
            let count = window.saturating_mul(3).saturating_add(2);
            self.hashes = vec![StateHasher::new(match_id); count];
        }
        let place = self.place(tick);
        if let Some(hasher) = self.hashes.get_mut(place) {
            hasher.clear();
            self.game.hash(hasher);
        }
    }

    fn report(&mut self, tick: Tick) {
        self.settled = tick.plus(1);
        if !self.steps.wants_hash(tick) {
            return;
        }
        if let Some(hash) = self.hashes.get(self.place(tick)) {
            let reported = self.steps.report_state(tick, hash);
            debug_assert!(reported.is_ok(), "a final tick is reported once");
        }
    }

    fn place(&self, tick: Tick) -> usize {
        let index = usize::try_from(tick.0).unwrap_or(0);
        index.checked_rem(self.hashes.len()).unwrap_or(0)
    }
}
