//! Turns that are overdue.

use core::time::Duration;

use wire::Instant;

use crate::event::{ClientEvent, StallCause};
use crate::tick::Tick;

/// Ticks by which a turn may be late without a word of it: what redundancy brings.
const LATE_TICKS: u32 = 3;

/// Watches for a turn that does not come.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// The turn that is missing, and when it was expected, once that was told.
    stalled: Option<(Tick, Instant)>,
    /// When the server last said anything.
    heard: Option<Instant>,
}

/// The first turn that has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) tick: Tick,
    /// When it comes if the network is quick.
    pub(super) at: Instant,
    pub(super) period: Duration,
}

impl Expected {
    fn deadline(&self) -> Instant {
        self.at + self.period.saturating_mul(LATE_TICKS)
    }
}

impl StallWatch {
    pub(super) const fn on_heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Takes note of the turns that came; returns what to tell.
    pub(super) fn on_turns(&mut self, now: Instant, expected: &Expected) -> Option<ClientEvent> {
        let (tick, at) = self.stalled.filter(|(tick, _)| *tick < expected.tick)?;
        self.stalled = None;
        let late = now.saturating_since(at);
        Some(ClientEvent::Resumed { tick, late })
    }

    /// Sees whether a turn is overdue; returns what to tell.
    pub(super) fn on_time(&mut self, now: Instant, expected: &Expected) -> Option<ClientEvent> {
        if self.stalled.is_some() || now < expected.deadline() {
            return None;
        }
        let tick = expected.tick;
        self.stalled = Some((tick, expected.at));
        let patience = expected.period.saturating_mul(LATE_TICKS);
        let is_heard = self
            .heard
            .is_some_and(|at| now.saturating_since(at) < patience);
        let cause = if is_heard {
            StallCause::Server
        } else {
            StallCause::Link
        };
        Some(ClientEvent::Stalled { tick, cause })
    }

    /// When to look, if nothing comes before.
    pub(super) fn poll_timeout(&self, expected: &Expected) -> Option<Instant> {
        self.stalled.is_none().then(|| expected.deadline())
    }
}
