//! What is played: a state that every input goes into, so that agreement can be checked.

/// The state after a number of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Steps taken.
    pub step: u64,
    /// What they came to.
    pub state: u64,
}

/// A game as small as one can be: what is measured is the stack.
#[derive(Clone, Debug)]
pub struct Game {
    now: Saved,
    /// State after `step` steps, at place `step % KEPT`.
    after: Vec<u64>,
    /// Most steps ever taken.
    reached: u64,
    /// The step that comes out otherwise here than elsewhere.
    diverges_at: Option<u64>,
    /// Steps taken.
    pub steps: Steps,
}

/// How often a game went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Steps not taken before.
    pub fresh: u64,
    /// Steps taken again after a rollback.
    pub repeated: u64,
}

/// States that are kept for comparison.
const KEPT: u64 = 512;

impl Game {
    /// Makes one that goes wrong in step `diverges_at`.
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

    /// Takes one step.
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

    /// What to go back to.
    pub const fn save(&self) -> Saved {
        self.now
    }

    /// Goes back.
    pub const fn load(&mut self, saved: Saved) {
        self.now = saved;
    }

    /// State after `step` steps, one of the last 512.
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
