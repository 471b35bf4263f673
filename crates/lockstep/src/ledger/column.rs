//! The hashes of one participant.

use wire::Instant;

use super::{Counts, STEPS};

/// Hashes of the steps from the ledger's floor on.
#[derive(Debug)]
pub(super) struct Column {
    /// Hash of step `s` at place `s % STEPS`.
    hashes: Vec<Option<u32>>,
    /// First step that was neither judged nor given up.
    pub(super) judged: u32,
    /// First step at or after `judged` that has no hash.
    pub(super) missing: u32,
    /// One past the newest step that has a hash.
    pub(super) end: u32,
    /// The newest step in which it was found to be right.
    pub(super) right: Option<u32>,
    /// Whether it is compared.
    pub(super) is_active: bool,
    /// Whether it was waited for in vain, and nothing was judged since.
    pub(super) is_silent: bool,
    /// Steps before it that are missing are not waited for: its hash shows that something is wrong.
    pub(super) early: u32,
    /// When the step `missing` was last asked for.
    pub(super) asked: Option<(u32, Instant)>,
}

impl Column {
    pub(super) fn new() -> Self {
        Self {
            hashes: vec![None; usize::try_from(STEPS).unwrap_or(usize::MAX)],
            judged: 0,
            missing: 0,
            end: 0,
            right: None,
            is_active: false,
            is_silent: false,
            early: 0,
            asked: None,
        }
    }

    /// Whether steps wait for it.
    pub(super) const fn is_awaited(&self) -> bool {
        self.is_active && !self.is_silent
    }

    /// The hash of `step`, which is one that is kept.
    pub(super) fn get(&self, step: u32) -> Option<u32> {
        self.hashes.get(place(step)).copied().flatten()
    }

    /// Keeps the first word on `step`, and returns whether this is it; hashes are kept from `floor` on.
    pub(super) fn insert(&mut self, floor: u32, step: u32, hash: u32) -> bool {
        self.missing = self.missing.max(floor);
        if step < self.judged.max(floor) {
            // A second copy, or one that came too late; both are ordinary.
            return false;
        }
        let Some(kept @ None) = self.hashes.get_mut(place(step)) else {
            return false;
        };
        *kept = Some(hash);
        self.end = self.end.max(step.saturating_add(1));
        self.skip_known();
        true
    }

    /// Forgets everything, and begins with `step`.
    pub(super) fn begin_at(&mut self, step: u32) {
        self.hashes.fill(None);
        (self.judged, self.missing, self.end) = (step, step, step);
        self.early = 0;
        self.right = None;
        self.asked = None;
    }

    /// Whether `step` is the next to be judged, and can be.
    pub(super) fn is_heard(&self, step: u32) -> bool {
        self.is_active && self.judged == step && self.get(step).is_some()
    }

    /// Whether it had a say on `step`.
    pub(super) fn was_heard(&self, step: u32) -> bool {
        self.judged > step && self.get(step).is_some()
    }

    /// Takes note that `step` is being compared.
    pub(super) fn judge(&mut self, step: u32, counts: &mut Counts) {
        counts.compared = counts.compared.saturating_add(1);
        self.is_silent = false;
        self.pass(step);
    }

    /// Waits no longer for `step`.
    pub(super) fn give_up(&mut self, step: u32) {
        self.pass(step);
    }

    /// Forgets the hash of `step`, whose place another one takes.
    pub(super) fn forget(&mut self, step: u32) {
        if let Some(kept) = self.hashes.get_mut(place(step)) {
            *kept = None;
        }
    }

    /// Takes no more part; of what it said, the steps up to `last` count.
    pub(super) fn end_after(&mut self, last: u32) {
        self.is_active = false;
        for step in last.saturating_add(1)..self.end {
            self.forget(step);
        }
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.hashes.len().saturating_mul(size_of::<Option<u32>>())
    }

    fn pass(&mut self, step: u32) {
        self.judged = step.saturating_add(1);
        self.missing = self.missing.max(self.judged);
        self.skip_known();
    }

    fn skip_known(&mut self) {
        while self.missing < self.end && self.get(self.missing).is_some() {
            self.missing = self.missing.saturating_add(1);
        }
    }
}

fn place(step: u32) -> usize {
    usize::try_from(step % STEPS).unwrap_or(0)
}
