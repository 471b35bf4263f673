//! One seat's inputs, as received by the server.

use crate::tick::Tick;

/// Ticks before the newest closed one for which inputs are kept, as references for late inputs.
pub(crate) const BEHIND_MAX: u32 = 256;

/// Ticks after the next one to close for which inputs are accepted.
pub(crate) const AHEAD_MAX: u32 = 64;

/// Slots of the sliding window.
const PLACES: u32 = BEHIND_MAX + AHEAD_MAX;

/// Inputs by tick within the window; memory never grows.
#[derive(Debug)]
pub(crate) struct InputLog {
    /// Bytes of one input.
    stride: usize,
    /// Tick of each slot plus 1; 0 if empty.
    ticks: Vec<u32>,
    /// `stride` bytes per slot.
    values: Vec<u8>,
    /// One past the newest tick held; 0 if none is.
    next: Tick,
}

impl InputLog {
    pub(crate) fn new(stride: usize) -> Self {
        let places = usize::try_from(PLACES).unwrap_or(usize::MAX);
        Self {
            stride,
            ticks: vec![0; places],
            values: vec![0; places.saturating_mul(stride)],
            next: Tick(0),
        }
    }

    /// Clears all.
    pub(crate) fn clear(&mut self) {
        self.ticks.fill(0);
        self.next = Tick(0);
    }

    /// Keeps the input of `tick`, unless it has one: the first input counts.
    ///
    /// The caller ensures that `tick` is within the window.
    pub(crate) fn insert(&mut self, tick: Tick, input: &[u8]) -> bool {
        let place = place(tick);
        let start = place.saturating_mul(self.stride);
        let (Some(tag), Some(value)) = (
            self.ticks.get_mut(place),
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
        self.ticks.get(place(tick)) == Some(&tick.0.saturating_add(1))
    }

    pub(crate) fn get(&self, tick: Tick) -> Option<&[u8]> {
        let place = place(tick);
        if self.ticks.get(place) != Some(&tick.0.saturating_add(1)) {
            return None;
        }
        let start = place.saturating_mul(self.stride);
        self.values.get(start..start.saturating_add(self.stride))
    }

    /// Heap bytes in use.
    pub(crate) const fn memory_len(&self) -> usize {
        self.values
            .len()
            .saturating_add(self.ticks.len().saturating_mul(size_of::<u32>()))
    }

    /// Returns the tick after the newest one held; `Tick(0)` if none is.
    pub(crate) const fn next(&self) -> Tick {
        self.next
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % PLACES).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keeps_the_window_and_the_first_word() {
        let mut log = InputLog::new(1);
        let mut model = BTreeMap::new();
        let mut generator = wire::Seed::from_number(5).generator(0);
        for closed in 0..2_000_u32 {
            let tick = closed + u32::try_from(generator.below(64)).unwrap();
            let value = u8::try_from(generator.below(256)).unwrap();
            let is_new = !model.contains_key(&tick);
            assert_eq!(log.insert(Tick(tick), &[value]), is_new);
            model.entry(tick).or_insert(value);
            for tick in closed.saturating_sub(BEHIND_MAX)..closed + AHEAD_MAX {
                assert_eq!(log.get(Tick(tick)).map(|v| v[0]), model.get(&tick).copied());
            }
            assert_eq!(log.next(), Tick(model.keys().next_back().unwrap() + 1));
        }
    }
}
