//! State hashes: our own until every peer has them, and the comparison of all.

use core::ops::Range;

use wire::Seat;

use super::ticking::log_place;
use super::{MeshEvent, MeshPeer};
use crate::event::ReportError;
use crate::hash_comparator::Finding;
use crate::input::Input;
use crate::message::{HASHES_MAX, LaneHashes, bit};
use crate::tick::Tick;

/// State hashes kept for retransmission: as many as are compared.
const HASHES_KEPT: u32 = 1_024;

/// Hashes of our last steps.
#[derive(Debug)]
pub(super) struct OwnHashes {
    /// Hash of step `s` in slot `s % HASHES_KEPT`; `None` if the application reported none.
    kept: Vec<Option<u32>>,
    /// One past the newest reported step.
    end: u32,
}

/// What another peer was sent of them.
#[derive(Debug, Default)]
pub(super) struct HashCursor {
    /// First step never sent.
    unsent: u32,
    /// First step that it asked for again.
    wanted: Option<u32>,
}

impl OwnHashes {
    pub(super) fn new() -> Self {
        let places = usize::try_from(HASHES_KEPT).unwrap_or(usize::MAX);
        Self {
            kept: vec![None; places],
            end: 0,
        }
    }

    pub(super) fn push(&mut self, step: u32, hash: u32) -> Result<(), ReportError> {
        if step < self.end {
            return Err(ReportError::OutOfOrder);
        }
        let end = step.saturating_add(1);
        for skipped in self.end.max(end.saturating_sub(HASHES_KEPT))..step {
            self.set(skipped, None);
        }
        self.set(step, Some(hash));
        self.end = end;
        Ok(())
    }

    /// Handles a peer's request for the step whose low half is `low`.
    pub(super) fn on_wanted(&self, cursor: &mut HashCursor, low: u16) {
        cursor.wanted = Tick(cursor.unsent)
            .widen_back(low)
            .map(|step| step.0)
            .filter(|step| *step >= self.oldest() && *step < cursor.unsent);
    }

    /// Returns the steps to send, all of them held: requested ones first, then unsent ones.
    pub(super) fn take(&self, cursor: &mut HashCursor) -> Range<u32> {
        let oldest = self.oldest();
        let wanted = cursor.wanted.take().filter(|step| *step >= oldest);
        let mut first = wanted.unwrap_or_else(|| cursor.unsent.max(oldest));
        while first < self.end && self.get(first).is_none() {
            first = first.saturating_add(1);
        }
        let most = self.end.min(first.saturating_add(HASHES_MAX));
        let mut end = first;
        while end < most && self.get(end).is_some() {
            end = end.saturating_add(1);
        }
        cursor.unsent = cursor.unsent.max(end);
        first..end
    }

    /// Returns the hashes of `steps`, as returned by [`take`](Self::take).
    pub(super) fn of(&self, steps: Range<u32>) -> impl Iterator<Item = u32> {
        steps.map(|step| self.get(step).unwrap_or_default())
    }

    /// Returns one past the newest reported step.
    pub(super) const fn end(&self) -> u32 {
        self.end
    }

    /// Heap bytes in use.
    pub(super) const fn memory_len(&self) -> usize {
        self.kept.len().saturating_mul(size_of::<Option<u32>>())
    }

    fn get(&self, step: u32) -> Option<u32> {
        self.kept.get(place(step)).copied().flatten()
    }

    fn set(&mut self, step: u32, hash: Option<u32>) {
        if let Some(kept) = self.kept.get_mut(place(step)) {
            *kept = hash;
        }
    }

    const fn oldest(&self) -> u32 {
        self.end.saturating_sub(HASHES_KEPT)
    }
}

fn place(step: u32) -> usize {
    usize::try_from(step % HASHES_KEPT).unwrap_or(0)
}

/// How long to wait for a hash after our own, in nanoseconds, in addition to [`TIMEOUT_TICKS`]: at
/// 100 ms round trip and 20 % loss each way, one in a million is still missing.
const TIMEOUT_NANOS: u64 = 2_000_000_000;

/// Ticks in which a hash is sent, arrives, is missed and requested.
const TIMEOUT_TICKS: u64 = 4;

impl<I: Input> MeshPeer<I> {
    /// Takes the hash of our own state after `tick`.
    pub(super) fn on_own_hash(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        let log = self.logs.get(log_place(tick)).copied();
        let hash = log.unwrap_or(self.log).report(state_hash);
        let step = tick.0.checked_div(self.hash_interval()).unwrap_or(0);
        self.hashes.push(step, hash)?;
        self.hash_comparator.insert(self.seat, step, hash);
        Ok(())
    }

    /// Takes the hashes that `seat` sent; they are compared at the next boundary.
    pub(super) fn on_hashes(&mut self, seat: Seat, hashes: &LaneHashes<'_>) {
        let Some(first) = Tick(self.hashes.end()).widen_near(hashes.first_low) else {
            self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            return;
        };
        for (hash, step) in hashes.iter().zip(first.0..) {
            if !self.hash_comparator.insert(seat, step, hash) {
                self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            }
        }
    }

    /// Compares hashes, and stops waiting for steps that we reported too long ago.
    pub(super) fn compare_hashes(&mut self) {
        let interval = u64::from(self.hash_interval());
        let ticks = TIMEOUT_NANOS
            .checked_div(self.limits.period_nanos)
            .unwrap_or(0)
            .saturating_add(TIMEOUT_TICKS)
            .saturating_add(interval.saturating_mul(2));
        let steps = ticks.checked_div(interval).unwrap_or(0);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        while self.hash_comparator.overdue() < self.hashes.end().saturating_sub(steps) {
            self.hash_comparator.expire();
        }
        self.settle_hashes();
        let mut is_any_found = false;
        for seat in (0..self.shape.seats).map(Seat) {
            is_any_found |= self.review_hashes(seat);
        }
        if is_any_found {
            // Silent players are no longer awaited.
            self.settle_hashes();
        }
        self.count_hashes();
    }

    fn settle_hashes(&mut self) {
        while let Some(settled) = self.hash_comparator.settle(self.hashes.end()) {
            if let Some(finding) = settled.finding {
                self.tell_finding(finding);
            }
        }
    }

    /// Returns whether there was a finding.
    fn review_hashes(&mut self, seat: Seat) -> bool {
        let mut is_any_found = false;
        while self.hash_comparator.has_unjudged(seat)
            && let Some(finding) = self.hash_comparator.review(seat)
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
            // Each seat is reported once, so these are few.
            Finding::Differs(divergence) => self.events.push_back(MeshEvent::Desync {
                tick: tick(divergence.step),
                seats: divergence.seats,
                verdict: divergence.verdict,
            }),
            Finding::Silent { seat, step } if self.view.members() & bit(seat.0) != 0 => {
                let tick = tick(step);
                self.push_event(MeshEvent::Silent { seat, tick });
            }
            Finding::Silent { .. } => {}
        }
    }

    fn hash_interval(&self) -> u32 {
        self.config.hash_interval.get().into()
    }

    const fn count_hashes(&mut self) {
        let counts = self.hash_comparator.counts();
        self.stats.hashes_compared = counts.compared;
        self.stats.hashes_missing = counts.missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(hashes: &OwnHashes, cursor: &mut HashCursor) -> Vec<u32> {
        let steps = hashes.take(cursor);
        let expected: Vec<_> = steps.clone().map(|step| step * 3).collect();
        assert_eq!(hashes.of(steps.clone()).collect::<Vec<_>>(), expected);
        steps.collect()
    }

    #[test]
    fn each_peer_gets_each_once_and_again_when_it_asks() {
        let mut hashes = OwnHashes::new();
        for step in (0..20).chain(30..33) {
            hashes.push(step, step * 3).unwrap();
        }
        let (mut one, mut other) = (HashCursor::default(), HashCursor::default());
        assert_eq!(steps(&hashes, &mut one), (0..16).collect::<Vec<_>>());
        assert_eq!(steps(&hashes, &mut one), [16, 17, 18, 19]);
        assert_eq!(
            steps(&hashes, &mut one),
            [30, 31, 32],
            "what was left out is not sent"
        );
        assert_eq!(steps(&hashes, &mut one), []);
        hashes.on_wanted(&mut one, 31);
        assert_eq!(steps(&hashes, &mut one), [31, 32]);
        hashes.on_wanted(&mut one, 33);
        assert_eq!(steps(&hashes, &mut one), [], "it was never sent");
        assert_eq!(steps(&hashes, &mut other), (0..16).collect::<Vec<_>>());
        assert_eq!(hashes.push(32, 0), Err(ReportError::OutOfOrder));
        // A burst longer than the ring: lost hashes are neither sent nor confused with others.
        for step in 33..3_000 {
            hashes.push(step, step * 3).unwrap();
        }
        let first = 3_000 - HASHES_KEPT;
        assert_eq!(
            steps(&hashes, &mut one),
            (first..first + 16).collect::<Vec<_>>()
        );
        hashes.on_wanted(&mut one, 31);
        assert_eq!(steps(&hashes, &mut one).first(), Some(&(first + 16)));
    }
}
