//! State hashes of all peers, compared.

use wire::Seat;

use super::stepping::log_place;
use super::{MeshEvent, MeshPeer};
use crate::event::ReportError;
use crate::input::Input;
use crate::ledger::Finding;
use crate::message::{LaneHashes, bit};
use crate::tick::Tick;

/// How long a hash is waited for after our own, in nanoseconds, beside [`PATIENCE_TICKS`]: at 100 ms
/// there and back and 20 % loss each way, one in a million has not come by then.
const PATIENCE_NANOS: u64 = 2_000_000_000;

/// Ticks in which a hash goes out, comes, is missed and asked for.
const PATIENCE_TICKS: u64 = 4;

impl<I: Input> MeshPeer<I> {
    /// Takes the hash of our own state after `tick`.
    pub(super) fn on_own_hash(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        let log = self.logs.get(log_place(tick)).copied();
        let hash = log.unwrap_or(self.log).report(state_hash);
        let step = tick.0.checked_div(self.hash_interval()).unwrap_or(0);
        self.hashes.push(step, hash)?;
        self.ledger.insert(self.seat, step, hash);
        Ok(())
    }

    /// Takes the hashes that `seat` sent; they are compared at the next boundary.
    pub(super) fn on_hashes(&mut self, seat: Seat, hashes: &LaneHashes<'_>) {
        let Some(first) = Tick(self.hashes.end()).widen_near(hashes.first_low) else {
            self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            return;
        };
        for (hash, step) in hashes.iter().zip(first.0..) {
            if !self.ledger.insert(seat, step, hash) {
                self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            }
        }
    }

    /// Compares what has come, and waits no longer for the hashes of steps that we reported too
    /// long ago.
    pub(super) fn compare_hashes(&mut self) {
        let interval = u64::from(self.hash_interval());
        let ticks = PATIENCE_NANOS
            .checked_div(self.limits.period_nanos)
            .unwrap_or(0)
            .saturating_add(PATIENCE_TICKS)
            .saturating_add(interval.saturating_mul(2));
        let steps = ticks.checked_div(interval).unwrap_or(0);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        while self.ledger.overdue() < self.hashes.end().saturating_sub(steps) {
            self.ledger.expire();
        }
        self.settle_hashes();
        let mut is_any_found = false;
        for seat in (0..self.shape.seats).map(Seat) {
            is_any_found |= self.review_hashes(seat);
        }
        if is_any_found {
            // Whoever was found silent is waited for no longer.
            self.settle_hashes();
        }
        self.count_hashes();
    }

    fn settle_hashes(&mut self) {
        while let Some(settled) = self.ledger.settle(self.hashes.end()) {
            if let Some(finding) = settled.finding {
                self.tell_finding(finding);
            }
        }
    }

    /// Returns whether something was found.
    fn review_hashes(&mut self, seat: Seat) -> bool {
        let mut is_any_found = false;
        while self.ledger.has_unjudged(seat)
            && let Some(finding) = self.ledger.review(seat)
        {
            self.tell_finding(finding);
            is_any_found = true;
        }
        is_any_found
    }

    fn tell_finding(&mut self, finding: Finding) {
        let interval = self.hash_interval();
        let tick = |step: u32| Tick(step.saturating_mul(interval));
        match finding {
            // Each seat is named once, so these are few.
            Finding::Differs(divergence) => self.events.push_back(MeshEvent::Desync {
                tick: tick(divergence.step),
                seats: divergence.seats,
                verdict: divergence.verdict,
            }),
            Finding::Silent { seat, step } if self.view.members() & bit(seat.0) != 0 => {
                let tick = tick(step);
                self.tell(MeshEvent::Silent { seat, tick });
            }
            Finding::Silent { .. } => {}
        }
    }

    fn hash_interval(&self) -> u32 {
        self.config.hash_interval.get().into()
    }

    const fn count_hashes(&mut self) {
        let counts = self.ledger.counts();
        self.stats.hashes_compared = counts.compared;
        self.stats.hashes_missing = counts.missing;
    }
}
