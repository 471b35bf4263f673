//! Client-side prediction of the own player, and reconciliation with the server's states.

/// Predicts the own player: inputs take effect at once, and are applied again on top of each state
/// that the server sends.
///
/// For games with a server that sends states; lockstep games have
/// [`ClientConfig::window`](crate::ClientConfig::window). `I` is the input of one step, `S` the
/// part of the game it affects: the own character, and what it touches. Each state of the server
/// names the last input that it includes.
///
/// States are compared by `==`: predict with the precision that the server sends, otherwise each of
/// its states is a correction.
///
/// ```
/// use lockstep::Prediction;
///
/// // A figure that walks, and a wall that the client does not know of.
/// fn walk(at: &mut i32, pace: &i32) {
///     *at += pace;
/// }
/// let mut prediction = Prediction::new(0, 128);
/// for _ in 0..3 {
///     prediction.predict(2, walk).unwrap();
/// }
/// assert_eq!(*prediction.state(), 6);
/// // The server has applied the first input: it walked into the wall at 1.
/// let correction = prediction.reconcile(1, &1, walk).unwrap();
/// assert_eq!((*correction.before, *correction.after), (6, 5));
/// ```
///
/// Inputs have 16-bit numbers that wrap, as in datagrams; 0 stands for none before the first.
/// Memory for `history` inputs and their states is allocated at once. Heap memory of states is
/// allocated for the largest number of unacknowledged inputs so far plus three, and reused if
/// `clone_from` reuses it.
#[derive(Clone, Debug)]
pub struct Prediction<I, S> {
    base: S,
    /// Number of the last input that it includes.
    acknowledged: u64,
    newest: u64,
    /// Input `n` and the state after it, in slot `n % history`, if unacknowledged.
    steps: Vec<Predicted<I, S>>,
    history: u64,
    state: S,
    before: S,
    stats: PredictionStats,
}

impl<I, S: Clone + PartialEq> Prediction<I, S> {
    /// Begins with the state before the first input.
    ///
    /// `history` is the most unacknowledged inputs, clamped to 1 to 1,024. Cover a round trip and a
    /// short outage: 128 are 2.1 s at 60 Hz.
    #[must_use]
    pub fn new(state: S, history: u16) -> Self {
        let history = history.clamp(1, HISTORY_MAX);
        Self {
            acknowledged: 0,
            newest: 0,
            steps: Vec::with_capacity(history.into()),
            history: history.into(),
            before: state.clone(),
            base: state.clone(),
            state,
            stats: PredictionStats::default(),
        }
    }

    /// Takes the player's input, applies it by `step`, and returns its number.
    ///
    /// # Errors
    ///
    /// Returns the input if `history` inputs are unacknowledged. It is counted, has no effect and
    /// no number: the game pauses until the server's next state arrives.
    pub fn predict(
        &mut self,
        input: I,
        step: impl FnOnce(&mut S, &I),
    ) -> Result<u16, HistoryFull<I>> {
        if self.newest.saturating_sub(self.acknowledged) >= self.history {
            self.stats.refused = self.stats.refused.saturating_add(1);
            return Err(HistoryFull(input));
        }
        step(&mut self.state, &input);
        self.newest = self.newest.saturating_add(1);
        self.stats.inputs = self.stats.inputs.saturating_add(1);
        let slot = slot(self.newest, self.history);
        if let Some(predicted) = self.steps.get_mut(slot) {
            predicted.input = input;
            predicted.after.clone_from(&self.state);
        } else {
            // Slots fill in order: the first input is in slot 0.
            let after = self.state.clone();
            self.steps.push(Predicted { input, after });
        }
        Ok(low(self.newest))
    }

    /// Takes the server's `state` after the input of `number`; returns the correction if it differs
    /// from the prediction.
    ///
    /// Later inputs are applied to it again by `step`, at most `history`. A second state after the
    /// same input counts as newer, since other players act too. A state older than one received
    /// before is dropped and counted, as is an unknown number.
    pub fn reconcile(
        &mut self,
        number: u16,
        state: &S,
        mut step: impl FnMut(&mut S, &I),
    ) -> Option<Correction<'_, S>> {
        let Some(number) = self.widen(number) else {
            self.stats.dropped_unknown = self.stats.dropped_unknown.saturating_add(1);
            return None;
        };
        if number < self.acknowledged {
            self.stats.dropped_late = self.stats.dropped_late.saturating_add(1);
            return None;
        }
        self.stats.states = self.stats.states.saturating_add(1);
        let is_right = *self.predicted(number) == *state;
        self.acknowledged = number;
        self.base.clone_from(state);
        if is_right {
            return None;
        }
        self.before.clone_from(&self.state);
        self.state.clone_from(state);
        for number in number.saturating_add(1)..=self.newest {
            if let Some(predicted) = self.steps.get_mut(slot(number, self.history)) {
                step(&mut self.state, &predicted.input);
                predicted.after.clone_from(&self.state);
            }
        }
        let again = self.newest.saturating_sub(number);
        self.stats.corrections = self.stats.corrections.saturating_add(1);
        self.stats.inputs_again = self.stats.inputs_again.saturating_add(again);
        Some(Correction {
            number: low(self.newest),
            before: &self.before,
            after: &self.state,
        })
    }

    /// Returns the state after the newest input, to be displayed.
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// Returns the server's newest state.
    pub const fn acknowledged(&self) -> &S {
        &self.base
    }

    /// Returns the unacknowledged inputs and their numbers, newest first.
    ///
    /// Put the first few into each datagram, so that a lost one costs nothing.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (u16, &I)> {
        let numbers = self.acknowledged.saturating_add(1)..=self.newest;
        numbers.rev().filter_map(|number| {
            let predicted = self.steps.get(slot(number, self.history))?;
            Some((low(number), &predicted.input))
        })
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &PredictionStats {
        &self.stats
    }

    fn predicted(&self, number: u64) -> &S {
        if number == self.acknowledged {
            return &self.base;
        }
        let predicted = self.steps.get(slot(number, self.history));
        predicted.map_or(&self.state, |predicted| &predicted.after)
    }

    /// Returns the number nearest to the newest with these low bits, if it exists.
    fn widen(&self, number: u16) -> Option<u64> {
        let distance = number.wrapping_sub(low(self.newest)).cast_signed();
        let number = self.newest.checked_add_signed(distance.into())?;
        (number <= self.newest).then_some(number)
    }
}

/// A correction, at the newest input: both states are of the same moment, so a game can blend from
/// the old to the new one within some frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correction<'a, S> {
    /// Number of the newest input.
    pub number: u16,
    /// The state predicted before.
    pub before: &'a S,
    /// The state predicted now; it may be equal, if later inputs lead to the same result.
    pub after: &'a S,
}

/// The refused input: too many are unacknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryFull<I>(pub I);

/// Counters of a [`Prediction`]; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PredictionStats {
    /// Inputs applied.
    pub inputs: u64,
    /// Inputs refused because the history was full.
    pub refused: u64,
    /// States accepted.
    pub states: u64,
    /// Of these, states that differed from the prediction.
    pub corrections: u64,
    /// Inputs applied again for them.
    pub inputs_again: u64,
    /// States dropped: a later one had arrived.
    pub dropped_late: u64,
    /// States dropped: unknown number.
    pub dropped_unknown: u64,
}

#[derive(Clone, Debug)]
struct Predicted<I, S> {
    input: I,
    after: S,
}

/// Most unacknowledged inputs: 17 s at 60 Hz. It bounds the steps caused by one state, and is far
/// below the 32,768 that 16-bit numbers can tell apart.
const HISTORY_MAX: u16 = 1_024;

fn slot(number: u64, history: u64) -> usize {
    let slot = number.saturating_sub(1).checked_rem(history);
    usize::try_from(slot.unwrap_or(0)).unwrap_or(0)
}

const fn low(number: u64) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests;
