//! A client's state hashes, until the server has them.

use core::ops::Range;

use crate::event::ReportError;
use crate::message::{HASHES_MAX, HashSlice};
use crate::tick::Tick;

/// State hashes kept for retransmission.
const HASHES_KEPT: u32 = 1_024;

/// A missing step this close after the last retransmitted one counts as part of a burst: all steps
/// from there on are sent again, as many as fit. Otherwise it is sent alone, since each needless
/// copy costs 4 bytes.
const BURST_STEPS: u32 = 4;

/// Unacknowledged state hashes.
#[derive(Debug)]
pub(super) struct Hashes {
    /// Hash of step `s` in slot `s % HASHES_KEPT`; `None` if the application reported none.
    kept: Vec<Option<u32>>,
    /// One past the newest reported step.
    end: u32,
    /// First step never sent.
    unsent: u32,
    /// First step that the server asked for again.
    wanted: Option<u32>,
    /// Steps last sent again.
    again: Range<u32>,
}

impl Hashes {
    pub(super) fn new() -> Self {
        let places = usize::try_from(HASHES_KEPT).unwrap_or(usize::MAX);
        Self {
            kept: vec![None; places],
            end: 0,
            unsent: 0,
            wanted: None,
            again: 0..0,
        }
    }

    pub(super) fn push(&mut self, step: u32, hash: u32) -> Result<(), ReportError> {
        if step < self.end {
            return Err(ReportError::OutOfOrder);
        }
        let end = step.saturating_add(1);
        // Skipped steps have no hash; their slots may hold those of 1,024 steps ago.
        for skipped in self.end.max(end.saturating_sub(HASHES_KEPT))..step {
            self.set(skipped, None);
        }
        self.set(step, Some(hash));
        self.end = end;
        // The burst is longer than the ring: the oldest are lost.
        self.unsent = self.unsent.max(self.oldest());
        Ok(())
    }

    /// Accepts reports from `step` on, even if there were earlier ones for them.
    pub(super) fn resume_from(&mut self, step: u32) {
        self.kept.fill(None);
        (self.end, self.unsent) = (step, step);
        self.wanted = None;
    }

    pub(super) fn on_wanted(&mut self, low: u16) {
        let oldest = self.oldest();
        self.wanted = Tick(self.unsent)
            .widen_back(low)
            .map(|step| step.0)
            .filter(|step| *step >= oldest && *step < self.unsent);
    }

    /// Returns what to send now: requested steps first, then unsent ones. A run never includes a
    /// skipped step.
    pub(super) fn take(&mut self, newest: u32) -> HashSlice {
        let oldest = self.oldest();
        let wanted = self.wanted.take().filter(|step| *step >= oldest);
        let again = wanted.and_then(|step| self.first_in(step..self.unsent));
        let Some(first) = again.or_else(|| self.first_in(self.unsent..self.end)) else {
            self.unsent = self.end;
            return HashSlice::default();
        };
        let end = if again.is_some() {
            self.end_again(first)
        } else {
            self.end
        };
        let mut run = HashSlice {
            back: newest.saturating_sub(first),
            ..HashSlice::default()
        };
        for (value, step) in run.values.iter_mut().zip(first..end) {
            let Some(hash) = self.get(step) else {
                break;
            };
            *value = hash;
            run.count = run.count.saturating_add(1);
        }
        debug_assert!(run.count <= HASHES_MAX, "as many as there are places");
        self.unsent = self.unsent.max(first.saturating_add(run.count));
        run
    }

    /// One past the last step to send again, from `first` on.
    fn end_again(&mut self, first: u32) -> u32 {
        let burst_end = self.again.end.saturating_add(BURST_STEPS);
        let count = if (self.again.start..burst_end).contains(&first) {
            HASHES_MAX
        } else {
            1
        };
        let end = self.unsent.min(first.saturating_add(count));
        self.again = first..end;
        end
    }

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

    /// First of `steps` that has a hash.
    fn first_in(&self, mut steps: Range<u32>) -> Option<u32> {
        steps.find(|step| self.get(*step).is_some())
    }

    const fn oldest(&self) -> u32 {
        self.end.saturating_sub(HASHES_KEPT)
    }
}

fn place(step: u32) -> usize {
    usize::try_from(step.checked_rem(HASHES_KEPT).unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests {
    use super::*;

    fn pushed(steps: Range<u32>) -> Hashes {
        let mut hashes = Hashes::new();
        for step in steps {
            hashes.push(step, step * 3).unwrap();
        }
        hashes
    }

    /// The steps of a run; checks that each has its own hash.
    fn steps(hashes: &mut Hashes) -> Vec<u32> {
        let newest = hashes.end - 1;
        let run = hashes.take(newest);
        let first = newest - run.back;
        let steps: Vec<_> = (first..first + run.count).collect();
        for (step, hash) in steps.iter().zip(run.values) {
            assert_eq!(hash, step * 3);
        }
        steps
    }

    #[test]
    fn each_goes_out_once_and_again_when_asked_for() {
        let mut hashes = pushed(0..20);
        assert_eq!(steps(&mut hashes), (0..16).collect::<Vec<_>>());
        assert_eq!(steps(&mut hashes), [16, 17, 18, 19]);
        assert_eq!(steps(&mut hashes), []);
        hashes.on_wanted(17);
        assert_eq!(steps(&mut hashes), [17]);
        hashes.on_wanted(18);
        assert_eq!(steps(&mut hashes), [18, 19]);
        assert_eq!(steps(&mut hashes), []);
        hashes.on_wanted(20);
        assert_eq!(steps(&mut hashes), [], "it was never sent");
        assert_eq!(hashes.push(19, 0), Err(ReportError::OutOfOrder));
    }

    #[test]
    fn what_was_left_out_is_never_sent() {
        // Fill the ring first, so that a gap could be mistaken for old hashes.
        let mut hashes = pushed(0..1_100);
        while !steps(&mut hashes).is_empty() {}
        for step in (1_110..1_115).chain(1_120..1_122) {
            hashes.push(step, step * 3).unwrap();
        }
        assert_eq!(steps(&mut hashes), (1_110..1_115).collect::<Vec<_>>());
        assert_eq!(steps(&mut hashes), [1_120, 1_121]);
        hashes.on_wanted(1_100);
        assert_eq!(steps(&mut hashes), [1_110]);
        hashes.on_wanted(1_111);
        assert_eq!(steps(&mut hashes), (1_111..1_115).collect::<Vec<_>>());
        hashes.on_wanted(1_116);
        assert_eq!(steps(&mut hashes), [1_120, 1_121]);
        hashes.on_wanted(1_098);
        assert_eq!(steps(&mut hashes), [1_098]);
        hashes.on_wanted(1_099);
        assert_eq!(steps(&mut hashes), [1_099], "and not what was left out");
        assert_eq!(steps(&mut hashes), []);
        // Longer than the ring: all older hashes are gone.
        hashes.push(5_000, 15_000).unwrap();
        assert_eq!(steps(&mut hashes), [5_000]);
        hashes.on_wanted(low(3_990));
        assert_eq!(steps(&mut hashes), [5_000]);
    }

    #[test]
    fn one_goes_out_again_but_where_many_are_missing() {
        let mut hashes = pushed(0..100);
        while !steps(&mut hashes).is_empty() {}
        for (wanted, sent) in [
            (50, 50..51),
            // The same step again, or one soon after it: a burst.
            (50, 50..66),
            (69, 69..85),
            (89, 89..90),
            (20, 20..21),
            (24, 24..40),
        ] {
            hashes.on_wanted(wanted);
            assert_eq!(steps(&mut hashes), sent.collect::<Vec<_>>());
        }
    }

    fn low(step: u32) -> u16 {
        Tick(step).low()
    }

    #[test]
    fn a_burst_longer_than_the_ring_sends_no_wrong_hash() {
        let mut hashes = pushed(0..5);
        hashes.on_wanted(0);
        for step in 5..3_000 {
            hashes.push(step, step * 3).unwrap();
        }
        let first = 3_000 - HASHES_KEPT;
        assert_eq!(steps(&mut hashes), (first..first + 16).collect::<Vec<_>>());
        hashes.on_wanted(3);
        assert_eq!(steps(&mut hashes).first(), Some(&(first + 16)));
    }
}
