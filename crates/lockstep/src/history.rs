//! A client's own unacknowledged inputs.

use crate::message::INPUTS_MAX;
use crate::tick::Tick;

/// Consecutive inputs, at most [`INPUTS_MAX`], and the one they are coded against.
#[derive(Debug)]
pub(crate) struct History {
    /// Bytes of one input.
    stride: usize,
    /// Input of tick `t` in slot `t % INPUTS_MAX`.
    values: Vec<u8>,
    /// Tick of the oldest input.
    first: Tick,
    /// Number of inputs.
    count: u32,
    /// The newest input that the server acknowledged.
    reference: Vec<u8>,
    /// Its tick, if there is one.
    reference_tick: Option<Tick>,
}

impl History {
    pub(crate) fn new(stride: usize) -> Self {
        let places = usize::try_from(INPUTS_MAX).unwrap_or(usize::MAX);
        Self {
            stride,
            values: vec![0; stride.saturating_mul(places)],
            first: Tick(0),
            count: 0,
            reference: vec![0; stride],
            reference_tick: None,
        }
    }

    /// Adds the input of `tick`; if full, drops the oldest.
    ///
    /// A jump forward drops all: those inputs are of ticks closed long ago.
    pub(crate) fn push(&mut self, tick: Tick, input: &[u8]) {
        if self.count == 0 || tick != self.first.plus(self.count) {
            self.first = tick;
            self.count = 0;
        }
        if self.count == INPUTS_MAX {
            self.first = self.first.plus(1);
            self.count = self.count.saturating_sub(1);
        }
        let start = self.place(tick);
        if let Some(value) = self
            .values
            .get_mut(start..start.saturating_add(self.stride))
        {
            value.copy_from_slice(input.get(..value.len()).unwrap_or_default());
        }
        self.count = self.count.saturating_add(1);
    }

    /// The server has the input of `tick`, and so needs none before.
    pub(crate) fn on_ack(&mut self, tick: Tick) {
        if self.reference_tick.is_some_and(|known| known >= tick) {
            return;
        }
        let start = self.place(tick);
        if tick >= self.first && tick < self.first.plus(self.count) {
            let value = self.values.get(start..start.saturating_add(self.stride));
            self.reference.clear();
            self.reference.extend_from_slice(value.unwrap_or_default());
            self.reference_tick = Some(tick);
        }
        self.forget_before(tick.plus(1));
    }

    /// The server has no inputs any more.
    pub(crate) const fn forget_reference(&mut self) {
        self.reference_tick = None;
    }

    /// Drops inputs before `tick`: their ticks are closed.
    pub(crate) fn forget_before(&mut self, tick: Tick) {
        let gone = tick.since(self.first).min(self.count);
        self.first = self.first.plus(gone);
        self.count = self.count.saturating_sub(gone);
    }

    /// Returns the tick of the oldest input; meaningless if there is none.
    pub(crate) const fn first(&self) -> Tick {
        self.first
    }

    /// Returns the input just before the first, if the server has it.
    pub(crate) fn reference(&self) -> Option<&[u8]> {
        let tick = self.reference_tick?;
        (tick.plus(1) == self.first).then_some(self.reference.as_slice())
    }

    /// Returns the inputs, oldest first.
    pub(crate) fn inputs(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        let count = usize::try_from(self.count).unwrap_or(0);
        (0..count).map(|index| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let start = self.place(self.first.plus(index));
            self.values
                .get(start..start.saturating_add(self.stride))
                .unwrap_or_default()
        })
    }

    /// Heap bytes in use.
    pub(crate) const fn memory_len(&self) -> usize {
        self.values.len().saturating_add(self.reference.len())
    }

    fn place(&self, tick: Tick) -> usize {
        usize::try_from(tick.0 % INPUTS_MAX)
            .unwrap_or(0)
            .saturating_mul(self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Act {
        Push(u8),
        Ack(u32),
        Closed(u32),
        Jump(u32),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            8 => any::<u8>().prop_map(Act::Push),
            3 => (0_u32..90).prop_map(Act::Ack),
            2 => (0_u32..90).prop_map(Act::Closed),
            1 => (1_u32..200).prop_map(Act::Jump),
        ];
        prop::collection::vec(act, 1..300)
    }

    proptest! {
        /// Compares the history with a queue of `(tick, input)`.
        #[test]
        fn l5_an_ack_trims_history_exactly(acts in acts()) {
            let mut history = History::new(1);
            let mut model: VecDeque<(u32, u8)> = VecDeque::new();
            let mut reference: Option<(u32, u8)> = None;
            let mut next = 0_u32;
            for act in acts {
                match act {
                    Act::Push(value) => {
                        history.push(Tick(next), &[value]);
                        if model.back().is_some_and(|&(tick, _)| tick + 1 != next) {
                            model.clear();
                        }
                        if model.len() == 64 {
                            model.pop_front();
                        }
                        model.push_back((next, value));
                        next += 1;
                    }
                    Act::Ack(back) => {
                        // Acknowledgements are late and repeated, and never for inputs that were
                        // not sent.
                        let Some(tick) = next.checked_sub(back + 1) else { continue };
                        history.on_ack(Tick(tick));
                        if reference.is_none_or(|(known, _)| known < tick) {
                            if let Some(&held) = model.iter().find(|&&(held, _)| held == tick) {
                                reference = Some(held);
                            }
                            model.retain(|&(held, _)| held > tick);
                        }
                    }
                    Act::Closed(back) => {
                        let tick = next.saturating_sub(back);
                        history.forget_before(Tick(tick));
                        model.retain(|&(held, _)| held >= tick);
                    }
                    Act::Jump(by) => next += by,
                }
                prop_assert_eq!(history.inputs().len(), model.len());
                let inputs: Vec<u8> = history.inputs().map(|input| input[0]).collect();
                let expected: Vec<u8> = model.iter().map(|&(_, value)| value).collect();
                prop_assert_eq!(inputs, expected);
                if let Some(&(first, _)) = model.front() {
                    prop_assert_eq!(history.first(), Tick(first));
                    let before = reference.filter(|&(tick, _)| tick + 1 == first);
                    prop_assert_eq!(history.reference().map(|value| value[0]), before.map(|(_, value)| value));
                }
            }
        }
    }
}
