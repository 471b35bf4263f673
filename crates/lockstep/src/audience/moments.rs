//! When ticks were shown.

use wire::Instant;

use crate::chain::CHAIN_LEN;
use crate::tick::Tick;

/// When each of the last [`CHAIN_LEN`] ticks was shown.
#[derive(Debug, Default)]
pub(super) struct Moments {
    /// At place `tick % CHAIN_LEN`; empty until somebody watches.
    at: Vec<Instant>,
    /// First tick that is remembered.
    begin: Tick,
    /// First tick that is not.
    end: Tick,
}

impl Moments {
    /// Takes the memory that it needs.
    pub(super) fn prepare(&mut self) {
        if self.at.is_empty() {
            let places = usize::try_from(CHAIN_LEN).unwrap_or(0);
            self.at = vec![Instant::ZERO; places];
            self.begin = self.end;
        }
    }

    /// Takes note that the ticks from `from` to before `end` are shown at `now`.
    pub(super) fn set(&mut self, now: Instant, from: Tick, end: Tick) {
        if from != self.end {
            self.begin = from;
        }
        self.end = end;
        if self.at.is_empty() {
            return;
        }
        for tick in from.max(end.minus(CHAIN_LEN)).0..end.0 {
            if let Some(at) = self.at.get_mut(place(Tick(tick))) {
                *at = now;
            }
        }
    }

    /// When `tick` was shown, where that is known.
    pub(super) fn get(&self, tick: Tick) -> Option<Instant> {
        let oldest = self.begin.max(self.end.minus(CHAIN_LEN));
        let is_known = oldest <= tick && tick < self.end;
        is_known
            .then(|| self.at.get(place(tick)).copied())
            .flatten()
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.at.len().saturating_mul(size_of::<Instant>())
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0)
}
