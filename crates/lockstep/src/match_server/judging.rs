//! Comparing what came of ticks.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use crate::config::Recovery;
use crate::event::{ServerEvent, Verdict};
use crate::input::Input;
use crate::ledger::{Divergence, Finding};
use crate::tick::Tick;

/// How long the hash of a closed tick is waited for, beside [`PATIENCE_TICKS`]: at 100 ms there and
/// back and 20 % loss each way, one in a million has not come by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ticks in which a report goes out, comes, is missed and asked for; and the hash interval twice,
/// since a hash that was lost is missed when the next one comes.
const PATIENCE_TICKS: u64 = 4;

/// Events for each seat that may wait; past it, who is silent is only counted.
const EVENTS_PER_SEAT_MAX: usize = 8;

impl<I: Input> MatchServer<I> {
    /// Compares the hash steps that everybody reported who is waited for.
    pub(super) fn settle_hashes(&mut self) {
        let closed_steps = self.end.0.div_ceil(self.hash_interval());
        while let Some(settled) = self.ledger.settle(closed_steps) {
            if let Some(finding) = settled.finding {
                self.tell(finding);
            }
        }
        self.count_hashes();
    }

    /// Compares what `seat` reported of steps that are settled.
    pub(super) fn review_hashes(&mut self, seat: Seat) {
        while let Some(finding) = self.ledger.review(seat) {
            self.tell(finding);
        }
        self.count_hashes();
    }

    /// Waits no longer for the hashes of ticks that were closed too long ago.
    pub(super) fn expire_hashes(&mut self, now: Instant) {
        let before = self.ledger.overdue();
        while self.is_overdue(now, self.ledger.overdue()) {
            self.ledger.expire();
        }
        self.settle_hashes();
        if self.ledger.overdue() > before {
            for seat in (0..self.shape.seats).map(Seat) {
                self.review_hashes(seat);
            }
            // Whoever was found silent is waited for no longer.
            self.settle_hashes();
        }
    }

    fn is_overdue(&self, now: Instant, step: u32) -> bool {
        let interval = self.hash_interval();
        let tick = self.tick_of(step);
        let ticks = PATIENCE_TICKS.saturating_add(u64::from(interval).saturating_mul(2));
        let nanos = self.limits.period_nanos.saturating_mul(ticks);
        let patience = PATIENCE.saturating_add(Duration::from_nanos(nanos));
        // A tick that the chain has lost was closed long ago.
        tick < self.end && self.closed_at(tick).is_none_or(|at| at + patience <= now)
    }

    fn hash_interval(&self) -> u32 {
        self.config.hash_interval.get().into()
    }

    /// Tick of a hash step.
    pub(super) fn tick_of(&self, step: u32) -> Tick {
        Tick(step.saturating_mul(self.hash_interval()))
    }

    fn tell(&mut self, finding: Finding) {
        match finding {
            Finding::Differs(divergence) => {
                self.on_desync(self.tick_of(divergence.step), divergence);
            }
            Finding::Silent { seat, step } => {
                let most = self.places.len().saturating_mul(EVENTS_PER_SEAT_MAX);
                if self.events.len() < most {
                    let tick = self.tick_of(step);
                    self.events.push_back(ServerEvent::Silent { seat, tick });
                }
            }
        }
    }

    fn on_desync(&mut self, tick: Tick, divergence: Divergence) {
        let now = self.now;
        if let [seat] = *divergence.seats.as_slice()
            && self.blames_donor(now, seat, tick)
        {
            return;
        }
        let verdict = divergence.verdict;
        let reload = self.config.recovery == Recovery::Reload && verdict != Verdict::Undecided;
        self.events.push_back(ServerEvent::Desync {
            tick,
            seats: divergence.seats.clone(),
            verdict,
        });
        self.search(&divergence);
        if reload {
            for seat in divergence.seats {
                // Who loads another state has nothing more to say about its own.
                if self.ladder.reload_after(seat) {
                    continue;
                }
                self.resync(now, seat);
            }
        }
    }

    const fn count_hashes(&mut self) {
        let counts = self.ledger.counts();
        self.stats.hashes_compared = counts.compared;
        self.stats.hashes_missing = counts.missing;
    }
}
