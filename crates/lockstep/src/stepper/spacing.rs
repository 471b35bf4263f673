//! How far apart a game's saves lie, chosen by what they cost.
//!
//! After each save of a confirmed state, saves follow every `k` ticks. A rollback to tick `w`, seen
//! from that state at distance `g`, then makes `g % k` steps more than those that were wrong. So
//! one run of a match tells what every `k` would have cost, and the cheapest is taken.

use core::time::Duration;

use crate::config::SavePolicy;
use crate::tick::Tick;

/// Distances to choose from: 1, 2, 4, ... 64, twice the widest window.
const CANDIDATES: usize = 7;

/// Ticks without a rollback after which their saves are counted all the same.
const QUIET_TICKS: u32 = 256;

/// Fixed point of the sums.
const SCALE_BITS: u32 = 16;

/// What one distance would have cost, of late.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Saves, in units of 2^-16.
    saves: u64,
    /// Steps made again, in units of 2^-16.
    steps: u64,
}

/// How far saves lie apart.
#[derive(Debug)]
pub(super) struct Spacing {
    policy: SavePolicy,
    /// Most ticks from the oldest save to the first that is not confirmed.
    reach: u32,
    /// Ticks from one save to the next.
    every: u32,
    /// By distance: place `i` is `2^i` ticks.
    tallies: [Tally; CANDIDATES],
    /// The last save of a confirmed state.
    origin: Tick,
    /// Ticks from there whose saves are counted.
    counted: u32,
    /// What a save and a step take, in nanoseconds.
    save_nanos: u64,
    step_nanos: u64,
}

impl Spacing {
    pub(super) fn new(window: u8, policy: SavePolicy) -> Self {
        let window = u32::from(window).max(1);
        let reach = match policy {
            SavePolicy::Dense => 1,
            // With less, a game a whole window ahead would start over all the time, and saves
            // that are ten times as dear as steps would cost a tenth more than they must.
            SavePolicy::Sparse | SavePolicy::Auto => window.saturating_mul(2),
        };
        Self {
            policy,
            reach,
            every: 1,
            tallies: [Tally::default(); CANDIDATES],
            origin: Tick(0),
            counted: 0,
            save_nanos: 1,
            step_nanos: 1,
        }
    }

    /// Returns the most ticks from the oldest save to the first that is not confirmed.
    pub(super) const fn reach(&self) -> u32 {
        self.reach
    }

    /// Takes what one save and one step cost; nothing counts as 1 ns, and at most a second.
    pub(super) fn costs(&mut self, save: Duration, step: Duration) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.save_nanos = nanos(save).clamp(1, 1_000_000_000);
        self.step_nanos = nanos(step).clamp(1, 1_000_000_000);
    }

    /// Takes the state that is about to be simulated on, so that a long time without a rollback
    /// counts as well.
    pub(super) fn on_predicted(&mut self, at: Tick) {
        let until = self.counted.saturating_add(QUIET_TICKS);
        if at.since(self.origin) > until {
            self.count_saves(at);
            self.choose();
        }
    }

    /// Whether to save a predicted state that lies `far` ticks after the newest save.
    pub(super) const fn is_due(&self, far: u32) -> bool {
        match self.policy {
            SavePolicy::Dense => far >= 1,
            SavePolicy::Sparse => false,
            SavePolicy::Auto => far >= self.every,
        }
    }

    /// Whether the only save must move before the game goes on.
    pub(super) const fn is_spent(&self, far: u32) -> bool {
        matches!(self.policy, SavePolicy::Sparse) && far >= self.reach
    }

    /// Takes a save of the confirmed state `tick`, from which distances are counted.
    pub(super) fn on_confirmed_save(&mut self, tick: Tick) {
        self.count_saves(tick);
        self.origin = tick;
        self.counted = 0;
    }

    /// Takes word that the game begins anew with state number `tick`.
    pub(super) const fn on_restart(&mut self, tick: Tick) {
        self.origin = tick;
        self.counted = 0;
    }

    /// Takes a rollback from `at` to `wrong`, the first tick simulated with wrong inputs; up to
    /// `end` they are confirmed.
    pub(super) fn on_rollback(&mut self, wrong: Tick, at: Tick, end: Tick) {
        self.count_saves(at);
        let gap = wrong.since(self.origin);
        let again = at.since(wrong);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let steps = again.saturating_add(gap.checked_rem(every).unwrap_or(0));
            tally.steps = tally.steps.saturating_add(scaled(steps));
        }
        if wrong >= end {
            // No confirmed state is saved on the way: what follows is counted from here.
            self.counted = gap;
        }
        self.choose();
    }

    /// Counts the saves between the origin and `at`, itself not saved, that were not counted yet.
    fn count_saves(&mut self, at: Tick) {
        let until = at.since(self.origin).saturating_sub(1);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let saves = |ticks: u32| ticks.checked_div(every).unwrap_or(0);
            let saves = saves(until).saturating_sub(saves(self.counted));
            tally.saves = tally.saves.saturating_add(scaled(saves));
        }
        self.counted = self.counted.max(until);
    }

    /// Takes the cheapest distance, and lets what is long past weigh less.
    fn choose(&mut self) {
        let (save, step) = (self.save_nanos, self.step_nanos);
        let mut cheapest = (u64::MAX, self.every);
        for (tally, every) in self.tallies.iter_mut().zip(distances()) {
            let saves = tally.saves.saturating_mul(save);
            let cost = saves.saturating_add(tally.steps.saturating_mul(step));
            if every <= self.reach && cost < cheapest.0 {
                cheapest = (cost, every);
            }
            // Each rollback weighs 1/64 less than the next.
            tally.saves = tally.saves.saturating_sub(tally.saves >> 6);
            tally.steps = tally.steps.saturating_sub(tally.steps >> 6);
        }
        self.every = cheapest.1;
    }
}

fn distances() -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|power| 1_u32.checked_shl(power).unwrap_or(u32::MAX))
}

fn scaled(count: u32) -> u64 {
    u64::from(count) << SCALE_BITS
}
