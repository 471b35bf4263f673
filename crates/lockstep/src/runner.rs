//! Runs a game with rollback.

use core::time::Duration;

use wire::Instant;

use crate::checksum::StateHasher;
use crate::sim::{Saves, Sim, Step, Steps};
use crate::stepper::WINDOW_MAX;
use crate::tick::Tick;

/// A game and its machine: executes the machine's steps, and reports state hashes.
///
/// Pass datagrams and timeouts to the machine as usual, and [`run`](Self::run) the game after them.
/// Draw [`game`](Self::game), which may be ahead of the closed ticks.
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
/// Memory is allocated in [`new`](Self::new) and with the first step, except for what snapshots
/// hold themselves.
#[derive(Debug)]
pub struct Rollback<S: Sim, M> {
    game: S,
    steps: M,
    saves: Saves<S::Snapshot>,
    settled: Tick,
    /// Hash after tick `t`, as last simulated, in slot `t % hashes.len()`: more slots than
    /// simulated ticks that are not final. Empty until the match is known.
    hashes: Vec<StateHasher>,
    costs: Costs,
}

impl<S: Sim, M: Steps<Input = S::Input>> Rollback<S, M> {
    /// Combines a game before tick 0 with its machine.
    #[must_use]
    pub fn new(game: S, steps: M) -> Self {
        let window = steps.window().min(WINDOW_MAX);
        // Plain lockstep saves nothing.
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

    /// Executes all steps due at `now`. Returns when to call again if nothing arrives; `None` if
    /// only an arrival or the machine's timeout helps.
    ///
    /// Simulates at most a window and the ticks that have arrived, and repeats up to three windows.
    pub fn run(&mut self, now: Instant) -> Option<Instant> {
        self.run_by(now, || None)
    }

    /// As [`run`](Self::run), and measures the cost of saves and steps for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    ///
    /// `clock` is a monotonic time, such as the standard library's `Instant::elapsed`; it is read
    /// twice per save and per step.
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
        if let Some((save, step)) = self.costs.poll_means() {
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
                    if let Some(slot) = self.saves.slot(tick) {
                        let from = clock();
                        self.game.save(slot);
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

    /// Sets the cost of one save and one step of the game on this machine, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto); [`run_measured`](Self::run_measured) measures
    /// it. Only their ratio counts; use averages.
    pub fn set_costs(&mut self, save: Duration, step: Duration) {
        self.steps.set_costs(save, step);
    }

    /// Returns the game, as last simulated.
    pub const fn game(&self) -> &S {
        &self.game
    }

    /// Returns the game, for anything outside its state, and to load the state of a
    /// [`ClientEvent::Snapshot`](crate::ClientEvent::Snapshot). Otherwise only steps may change the
    /// state.
    pub const fn game_mut(&mut self) -> &mut S {
        &mut self.game
    }

    /// Returns the machine.
    pub const fn steps(&self) -> &M {
        &self.steps
    }

    /// Returns the machine, for datagrams, timeouts and inputs. Do not take steps from it.
    pub const fn steps_mut(&mut self) -> &mut M {
        &mut self.steps
    }

    /// Returns the newest final save, and its number: the first tick that is not part of it. For
    /// [`ClientPeer::offer_save`](crate::ClientPeer::offer_save).
    pub fn final_save(&self) -> Option<(Tick, &S::Snapshot)> {
        self.saves.newest(self.settled)
    }

    fn on_stepped(&mut self, tick: Tick) {
        if !self.steps.wants_hash(tick) {
            return;
        }
        if let (true, Some(match_id)) = (self.hashes.is_empty(), self.steps.match_id()) {
            let window = usize::from(self.steps.window().min(WINDOW_MAX));
            let count = window.saturating_mul(3).saturating_add(2);
            self.hashes = vec![StateHasher::new(match_id); count];
        }
        let slot = self.slot(tick);
        if let Some(hasher) = self.hashes.get_mut(slot) {
            hasher.clear();
            self.game.hash(hasher);
        }
    }

    fn report(&mut self, tick: Tick) {
        self.settled = tick.plus(1);
        if !self.steps.wants_hash(tick) {
            return;
        }
        if let Some(hash) = self.hashes.get(self.slot(tick)) {
            let reported = self.steps.report_state(tick, hash);
            debug_assert!(reported.is_ok(), "a final tick is reported once");
        }
    }

    fn slot(&self, tick: Tick) -> usize {
        let index = usize::try_from(tick.0).unwrap_or(0);
        index.checked_rem(self.hashes.len()).unwrap_or(0)
    }
}

const SAMPLES_MIN: u32 = 8;

const SAMPLES_PER_WORD: u32 = 64;

/// A sample counts at most this many times the mean: the process may have been preempted.
const SPIKE: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: u64,
    samples: u32,
}

impl Mean {
    fn take(&mut self, from: Duration, to: Duration) {
        let span = u64::try_from(to.saturating_sub(from).as_nanos()).unwrap_or(u64::MAX);
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.nanos = span;
            return;
        }
        let span = if self.samples > SAMPLES_MIN {
            // Clocks may be coarse: a microsecond is never a spike.
            span.min(self.nanos.max(1_000).saturating_mul(SPIKE))
        } else {
            span
        };
        let weight = u64::from(self.samples.min(16));
        let sum = self.nanos.saturating_mul(weight.saturating_sub(1));
        // Rounded, so that small values do not decay to 0.
        let sum = sum.saturating_add(span).saturating_add(weight / 2);
        self.nanos = sum.checked_div(weight).unwrap_or(span);
    }

    const fn is_known(&self) -> bool {
        self.samples >= SAMPLES_MIN
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    save: Mean,
    step: Mean,
    unreported: u32,
}

impl Costs {
    pub(crate) fn on_save(&mut self, from: Duration, to: Duration) {
        self.save.take(from, to);
        self.unreported = self.unreported.saturating_add(1);
    }

    pub(crate) fn on_step(&mut self, from: Duration, to: Duration) {
        self.step.take(from, to);
        self.unreported = self.unreported.saturating_add(1);
    }

    /// Returns the mean cost of a save and a step, at intervals.
    pub(crate) fn poll_means(&mut self) -> Option<(Duration, Duration)> {
        if self.unreported < SAMPLES_PER_WORD || !self.save.is_known() || !self.step.is_known() {
            return None;
        }
        self.unreported = 0;
        let span = |mean: Mean| Duration::from_nanos(mean.nanos);
        Some((span(self.save), span(self.step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn means(costs: &mut Costs, save: u64, step: u64) -> Vec<(Duration, Duration)> {
        let mut means = Vec::new();
        for _ in 0..64 {
            costs.on_save(micros(5), micros(5 + save));
            costs.on_step(micros(5), micros(5 + step));
            means.extend(costs.poll_means());
        }
        means
    }

    #[test]
    fn means_are_updated_every_64_samples() {
        let mut costs = Costs::default();
        assert_eq!(means(&mut costs, 3, 40), [(micros(3), micros(40)); 2]);
        let (save, step) = *means(&mut costs, 30, 4).last().unwrap();
        assert!(save > micros(20) && step < micros(10), "{save:?} {step:?}");
    }

    #[test]
    fn one_spike_and_a_clock_step_back_change_little() {
        let mut costs = Costs::default();
        means(&mut costs, 10, 10);
        costs.on_step(micros(0), micros(1_000_000));
        costs.on_save(micros(9), micros(3));
        let (save, step) = means(&mut costs, 10, 10)[0];
        assert!(save > micros(9) && step < micros(12), "{save:?} {step:?}");
    }

    #[test]
    fn nothing_is_reported_before_both_are_known() {
        let mut costs = Costs::default();
        for _ in 0..1_000 {
            costs.on_step(micros(1), micros(2));
            assert_eq!(costs.poll_means(), None);
        }
    }
}
