//! The game: a state which hashes every input, so that agreement can be checked.

/// The state after a number of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Number of steps.
    pub step: u64,
    /// The state.
    pub state: u64,
}

/// A minimal game, so that the stack dominates the measurement.
#[derive(Clone, Debug)]
pub struct Game {
    now: Saved,
    /// State after `step` steps, at index `step % KEPT`.
    after: Vec<u64>,
    /// Highest step reached.
    reached: u64,
    /// The step which gives a different result here.
    diverges_at: Option<u64>,
    /// Step counts.
    pub steps: Steps,
}

/// Counts of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Steps simulated for the first time.
    pub fresh: u64,
    /// Steps simulated again after a rollback.
    pub repeated: u64,
}

/// Number of states kept for comparison.
const KEPT: u64 = 512;

impl Game {
    /// Creates a game which diverges in step `diverges_at`.
    #[must_use]
    pub fn new(diverges_at: Option<u64>) -> Self {
        Self {
            now: Saved::default(),
            after: vec![0; 512],
            reached: 0,
            diverges_at,
            steps: Steps::default(),
        }
    }

    /// Simulates one step.
    pub fn advance(&mut self, inputs: impl Iterator<Item = u64>) {
        let mixed = inputs.fold(self.now.state, |state, word| {
            (state ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
        });
        let wrong = u64::from(self.diverges_at == Some(self.now.step));
        self.now = Saved {
            step: self.now.step + 1,
            state: mixed ^ wrong,
        };
        if let Some(kept) = self.after.get_mut(place(self.now.step)) {
            *kept = self.now.state;
        }
        if self.now.step > self.reached {
            self.reached = self.now.step;
            self.steps.fresh += 1;
        } else {
            self.steps.repeated += 1;
        }
    }

    /// Returns a snapshot.
    pub const fn save(&self) -> Saved {
        self.now
    }

    /// Restores a snapshot.
    pub const fn load(&mut self, saved: Saved) {
        self.now = saved;
    }

    /// Returns the state after `step` steps, if it is one of the last 512.
    pub fn state_after(&self, step: u64) -> Option<u64> {
        let is_kept = step <= self.reached && self.reached - step < KEPT;
        is_kept
            .then(|| self.after.get(place(step)).copied())
            .flatten()
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % KEPT).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_once_and_their_states_are_those_of_the_last_time() {
        let (mut game, mut straight) = (Game::new(None), Game::new(None));
        let saved = game.save();
        game.advance([1, 2].into_iter());
        game.load(saved);
        game.advance([1, 3].into_iter());
        straight.advance([1, 3].into_iter());
        assert_eq!(
            game.steps,
            Steps {
                fresh: 1,
                repeated: 1
            }
        );
        assert_eq!(game.state_after(1), straight.state_after(1));
        assert_eq!(game.state_after(2), None);
    }

    #[test]
    fn a_step_that_diverges_does_so_again_after_a_rollback() {
        let (mut wrong, mut right) = (Game::new(Some(0)), Game::new(None));
        for _ in 0..2 {
            wrong.load(Saved::default());
            right.load(Saved::default());
            wrong.advance([5].into_iter());
            right.advance([5].into_iter());
            assert_ne!(wrong.save().state, right.save().state);
        }
    }
}
