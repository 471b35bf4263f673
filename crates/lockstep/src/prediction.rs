//! Prediction of the own player where a server sends states, and what its word makes of it.

/// What a client predicts of itself: its inputs take effect at once, and again on top of each state
/// that the server sends.
///
/// For games whose server sends states instead of inputs; a game in lockstep has
/// [`ClientConfig::window`](crate::ClientConfig::window). `I` is what the player does in one step,
/// `S` the part of the game that follows from it: the own figure, and what it touches. The server
/// says with each state which input was the last in it.
///
/// States are compared by `==`: predict in the precision in which the server sends, else each of
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
/// // The server has come to the first input: it walked into the wall at 1.
/// let correction = prediction.reconcile(1, &1, walk).unwrap();
/// assert_eq!((*correction.before, *correction.after), (6, 5));
/// ```
///
/// Inputs have numbers of 16 bits that wrap, as datagrams carry them; 0 stands for none before the
/// first. Room for `history` inputs, each with the state after it, is taken at once. Memory that a
/// state holds of its own is taken for as many of them as ever waited for the server's word at a
/// time, and for three states more; it is kept where `clone_from` keeps it.
#[derive(Clone, Debug)]
pub struct Prediction<I, S> {
    /// The server's newest state.
    base: S,
    /// Number of the last input in it.
    acknowledged: u64,
    /// Number of the newest input.
    newest: u64,
    /// Input `n` and the state after it, at place `n % history`, for those not acknowledged.
    steps: Vec<Predicted<I, S>>,
    history: u64,
    /// After the newest input.
    state: S,
    /// Before the last correction.
    before: S,
    stats: PredictionStats,
}

impl<I, S: Clone + PartialEq> Prediction<I, S> {
    /// Begins with the state before the first input.
    ///
    /// `history` is how many inputs may wait for the server's word, from 1 to 1,024: less counts as
    /// 1, more as 1,024. A round trip and what a short outage takes is enough: 128 are 2.1 s at
    /// 60 Hz.
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

    /// Takes what the player does, applies it by `step`, and returns its number.
    ///
    /// # Errors
    ///
    /// Hands the input back where `history` inputs wait for the server's word. It is counted, has
    /// no effect and no number: the game stands still until the server is heard again.
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
        let place = place(self.newest, self.history);
        if let Some(predicted) = self.steps.get_mut(place) {
            predicted.input = input;
            predicted.after.clone_from(&self.state);
        } else {
            // The places fill in order: the first input lies at place 0.
            let after = self.state.clone();
            self.steps.push(Predicted { input, after });
        }
        Ok(low(self.newest))
    }

    /// Takes the server's `state` after the input of `number`; returns the correction if it is not
    /// what was predicted.
    ///
    /// Inputs that the server has not come to are applied to it again by `step`, at most `history`.
    /// A second state after the same input counts as newer: others act, too. What was overtaken by
    /// a state after a later input is dropped and counted, as is a number that no input has.
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
            if let Some(predicted) = self.steps.get_mut(place(number, self.history)) {
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

    /// Returns the state after the newest input: what the player sees.
    #[must_use]
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// Returns the server's newest state.
    #[must_use]
    pub const fn acknowledged(&self) -> &S {
        &self.base
    }

    /// Returns the inputs that the server has not come to, the newest first, with their numbers.
    ///
    /// Each datagram carries the first few of them, so that one which is lost costs nothing.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (u16, &I)> {
        let numbers = self.acknowledged.saturating_add(1)..=self.newest;
        numbers.rev().filter_map(|number| {
            let predicted = self.steps.get(place(number, self.history))?;
            Some((low(number), &predicted.input))
        })
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &PredictionStats {
        &self.stats
    }

    /// What is thought to be the state after input `number`, which is not before `acknowledged`.
    fn predicted(&self, number: u64) -> &S {
        if number == self.acknowledged {
            return &self.base;
        }
        let predicted = self.steps.get(place(number, self.history));
        predicted.map_or(&self.state, |predicted| &predicted.after)
    }

    /// Returns the number nearest to the newest whose low bits these are, if it exists.
    fn widen(&self, number: u16) -> Option<u64> {
        let distance = number.wrapping_sub(low(self.newest)).cast_signed();
        let number = self.newest.checked_add_signed(distance.into())?;
        (number <= self.newest).then_some(number)
    }
}

/// What the server's word has changed, at the newest input: both are of the same moment, so that a
/// game shows the old one and goes over to the new one within some frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correction<'a, S> {
    /// Number of the newest input.
    pub number: u16,
    /// What was predicted after it.
    pub before: &'a S,
    /// What is predicted now; it may be equal, where later inputs lead both to one end.
    pub after: &'a S,
}

/// The input that was not taken: as many wait for the server's word as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryFull<I>(pub I);

/// What a [`Prediction`] counted; none of it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PredictionStats {
    /// Inputs applied.
    pub inputs: u64,
    /// Inputs handed back because the history was full.
    pub refused: u64,
    /// States of the server that were taken.
    pub states: u64,
    /// Of these, how many were not as predicted.
    pub corrections: u64,
    /// Inputs applied again for that.
    pub inputs_again: u64,
    /// States dropped: a later one had come before.
    pub dropped_late: u64,
    /// States dropped: no input has that number.
    pub dropped_unknown: u64,
}

/// One input, and the state after it.
#[derive(Clone, Debug)]
struct Predicted<I, S> {
    input: I,
    after: S,
}

/// Most inputs that may wait: 17 s at 60 Hz. It bounds the steps that one state of the server may
/// cost, and lies far within the 32,768 that numbers of 16 bits can tell apart.
const HISTORY_MAX: u16 = 1_024;

/// Where input `number`, which is not 0, lies.
fn place(number: u64, history: u64) -> usize {
    let place = number.saturating_sub(1).checked_rem(history);
    usize::try_from(place.unwrap_or(0)).unwrap_or(0)
}

const fn low(number: u64) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests;
