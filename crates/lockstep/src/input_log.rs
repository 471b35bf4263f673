//! One seat's inputs, as received by the server.

use crate::message::{INPUT_AHEAD_MAX, INPUTS_MAX};
use crate::tick::Tick;

/// Ticks before the newest closed one for which inputs are kept, as references for late inputs.
pub(crate) const BEHIND_MAX: u32 = 256;

const SLOTS: u32 = BEHIND_MAX + INPUT_AHEAD_MAX;

/// Inputs by tick within the window; memory never grows.
#[derive(Debug)]
pub(crate) struct InputLog {
    stride: usize,
    /// Tick of each slot plus 1; 0 if empty.
    ticks: Vec<u32>,
    /// `stride` bytes per slot.
    values: Vec<u8>,
    /// One past the newest tick held; 0 if none is.
    pub(crate) next: Tick,
}

impl InputLog {
    pub(crate) fn new(stride: usize) -> Self {
        let slots = usize::try_from(SLOTS).unwrap_or(usize::MAX);
        Self {
            stride,
            ticks: vec![0; slots],
            values: vec![0; slots.saturating_mul(stride)],
            next: Tick(0),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ticks.fill(0);
        self.next = Tick(0);
    }

    /// Keeps the first input of `tick`, which must be within the window.
    pub(crate) fn insert(&mut self, tick: Tick, input: &[u8]) -> bool {
        let slot = tick.slot(SLOTS);
        let start = slot.saturating_mul(self.stride);
        let (Some(tag), Some(value)) = (
            self.ticks.get_mut(slot),
            self.values
                .get_mut(start..start.saturating_add(self.stride)),
        ) else {
            return false;
        };
        if *tag > tick.0 {
            return false;
        }
        *tag = tick.0.saturating_add(1);
        value.copy_from_slice(input.get(..value.len()).unwrap_or_default());
        self.next = self.next.max(tick.plus(1));
        true
    }

    pub(crate) fn has(&self, tick: Tick) -> bool {
        self.ticks.get(tick.slot(SLOTS)) == Some(&tick.0.saturating_add(1))
    }

    pub(crate) fn get(&self, tick: Tick) -> Option<&[u8]> {
        let slot = tick.slot(SLOTS);
        if self.ticks.get(slot) != Some(&tick.0.saturating_add(1)) {
            return None;
        }
        let start = slot.saturating_mul(self.stride);
        self.values.get(start..start.saturating_add(self.stride))
    }

    pub(crate) const fn memory_len(&self) -> usize {
        self.values
            .len()
            .saturating_add(self.ticks.len().saturating_mul(size_of::<u32>()))
    }
}

/// Consecutive inputs, at most [`INPUTS_MAX`], and the one they are coded against.
#[derive(Debug)]
pub(crate) struct History {
    stride: usize,
    /// Input of tick `t` in slot `t % INPUTS_MAX`.
    values: Vec<u8>,
    pub(crate) first: Tick,
    count: u32,
    reference: Vec<u8>,
    reference_tick: Option<Tick>,
}

impl History {
    pub(crate) fn new(stride: usize) -> Self {
        let slots = usize::try_from(INPUTS_MAX).unwrap_or(usize::MAX);
        Self {
            stride,
            values: vec![0; stride.saturating_mul(slots)],
            first: Tick(0),
            count: 0,
            reference: vec![0; stride],
            reference_tick: None,
        }
    }

    /// If full, drops the oldest; a jump forward drops all, as their ticks closed long ago.
    pub(crate) fn push(&mut self, tick: Tick, input: &[u8]) {
        if self.count == 0 || tick != self.first.plus(self.count) {
            self.first = tick;
            self.count = 0;
        }
        if self.count == INPUTS_MAX {
            self.first = self.first.plus(1);
            self.count = self.count.saturating_sub(1);
        }
        let start = self.slot(tick);
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
        let start = self.slot(tick);
        if tick >= self.first && tick < self.first.plus(self.count) {
            let value = self.values.get(start..start.saturating_add(self.stride));
            self.reference.clear();
            self.reference.extend_from_slice(value.unwrap_or_default());
            self.reference_tick = Some(tick);
        }
        self.forget_before(tick.plus(1));
    }

    pub(crate) const fn forget_reference(&mut self) {
        self.reference_tick = None;
    }

    pub(crate) fn forget_before(&mut self, tick: Tick) {
        let gone = tick.since(self.first).min(self.count);
        self.first = self.first.plus(gone);
        self.count = self.count.saturating_sub(gone);
    }

    pub(crate) fn reference(&self) -> Option<&[u8]> {
        let tick = self.reference_tick?;
        (tick.plus(1) == self.first).then_some(self.reference.as_slice())
    }

    pub(crate) fn inputs(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        let count = usize::try_from(self.count).unwrap_or(0);
        (0..count).map(|index| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let start = self.slot(self.first.plus(index));
            self.values
                .get(start..start.saturating_add(self.stride))
                .unwrap_or_default()
        })
    }

    pub(crate) const fn memory_len(&self) -> usize {
        self.values.len().saturating_add(self.reference.len())
    }

    fn slot(&self, tick: Tick) -> usize {
        tick.slot(INPUTS_MAX).saturating_mul(self.stride)
    }
}

#[cfg(test)]
mod tests;
