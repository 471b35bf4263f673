//! For which tick an input counts, and when it is taken.

use wire::Instant;

use super::Session;
use crate::audience::SPECTATOR_REPORT_TICKS;
use crate::input_log::AHEAD_MAX;
use crate::stats::ClientStats;
use crate::tick::Tick;
use crate::tick_clock::{DUE_MAX, TickClock};

/// Ticks left out by a boundary that are filled with the input held: as far as a delay goes up.
const DELAY_GAP_MAX: u32 = 60;

impl Session {
    /// Stamps `held` for each boundary behind `now`; returns whether there was one.
    pub(in crate::client_peer) fn pass_boundaries(
        &mut self,
        now: Instant,
        held: &[u8],
        stats: &mut ClientStats,
    ) -> bool {
        let mut has_passed = false;
        let phase = self.delay.phase();
        if let Some(clock) = &mut self.clock {
            clock.set_phase(phase);
        }
        for _ in 0..DUE_MAX {
            let Some(index) = self.clock.as_mut().and_then(|clock| clock.pass(now)) else {
                break;
            };
            if self.is_spectator() {
                self.unsaid = self.unsaid.saturating_add(1);
                has_passed |= self.unsaid >= SPECTATOR_REPORT_TICKS || self.is_gap();
                continue;
            }
            has_passed = true;
            let tick = self.tick_for(index);
            if let Some(stepping) = &mut self.stepping {
                stepping.on_boundary(Tick(index), tick);
            }
            // The server takes none further ahead than that of what it has closed, and it has closed all
            // that was seen, past a gap too.
            if tick >= self.end.max(self.seen_end).plus(AHEAD_MAX) {
                continue;
            }
            // A longer delay leaves ticks between; after a jump there is nothing to go on from.
            let first = self.stamped.map_or(tick, |last| last.plus(1));
            let first = if tick.since(first) > DELAY_GAP_MAX {
                tick
            } else {
                first.max(self.end)
            };
            for tick in (first.0..=tick.0).map(Tick) {
                self.history.push(tick, held);
                self.delay.on_stamped(tick, self.lead(now, tick));
                self.stamped = Some(tick);
                if let Some(stepping) = &mut self.stepping {
                    stepping.on_stamped(tick, held);
                }
                stats.inputs = stats.inputs.saturating_add(1);
            }
        }
        stats.input_delay = self.delay.ticks();
        stats.clock_jumps = self.clock.as_ref().map_or(0, TickClock::jumps);
        has_passed
    }

    /// Returns the tick that the next boundary stamps, and remembers that it was promised.
    pub(in crate::client_peer) fn promise(&mut self) -> Option<Tick> {
        let index = self.clock.as_ref()?.index();
        let tick = self.tick_for(index);
        let tick = self.stamped.map_or(tick, |last| tick.max(last.plus(1)));
        self.promised.add(tick);
        Some(tick)
    }

    /// The tick that boundary `index` stamps; never one that is closed.
    fn tick_for(&self, index: u32) -> Tick {
        let delay = self.delay.ticks();
        Tick(index).plus(delay.into()).max(self.end)
    }
}
