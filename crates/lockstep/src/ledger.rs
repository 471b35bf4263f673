//! State hashes of all players, compared step by step.

use wire::{Instant, Seat};

use crate::event::Verdict;

/// Hash steps that are kept for comparison.
const STEPS: u32 = 1_024;

/// Hash steps after which comparison no longer waits for a player: 4 s at 60 Hz, each tick hashed.
const PATIENCE: u32 = 256;

/// Every player's hashes from the first step that is not compared yet.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// One for each seat, and one more for the server.
    columns: Vec<Column>,
    /// First step not yet compared.
    next: u32,
}

/// A step in which not all hashes were equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) step: u32,
    pub(crate) seats: Vec<Seat>,
    pub(crate) verdict: Verdict,
}

/// What comparing one step came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// All `reports` equal; `missing` players did not report in time.
    Equal { reports: u64, missing: u64 },
    /// Some differ.
    Differs(Divergence),
}

#[derive(Debug)]
struct Column {
    /// Hash of step `s` at place `s % STEPS`.
    hashes: Vec<Option<u32>>,
    /// First step that has no hash; at least the ledger's `next`.
    missing: u32,
    /// One past the newest step that has a hash.
    end: u32,
    /// Whether it is waited for and compared.
    is_active: bool,
    /// When the step `missing` was last asked for.
    asked: Option<(u32, Instant)>,
}

impl Ledger {
    pub(crate) fn new(seats: u16) -> Self {
        let places = usize::try_from(STEPS).unwrap_or(usize::MAX);
        let column = || Column {
            hashes: vec![None; places],
            missing: 0,
            end: 0,
            is_active: false,
            asked: None,
        };
        Self {
            columns: (0..=seats).map(|_| column()).collect(),
            next: 0,
        }
    }

    /// Has `seat` take part from now on.
    pub(crate) fn admit(&mut self, seat: Seat) {
        if let Some(column) = self.columns.get_mut(usize::from(seat.0)) {
            column.is_active = true;
        }
    }

    /// Leaves `seat` out from now on.
    pub(crate) fn dismiss(&mut self, seat: Seat) {
        if let Some(column) = self.columns.get_mut(usize::from(seat.0)) {
            column.is_active = false;
        }
    }

    /// Keeps a hash of `seat`; false where the step is too far ahead, or the seat does not take
    /// part. The first word counts, and what is compared already is ignored.
    pub(crate) fn insert(&mut self, seat: Seat, step: u32, hash: u32) -> bool {
        self.insert_at(usize::from(seat.0), step, hash)
    }

    /// Keeps the server's own hash, against which all others are judged.
    pub(crate) fn insert_server(&mut self, step: u32, hash: u32) -> bool {
        let index = self.columns.len().saturating_sub(1);
        if let Some(column) = self.columns.get_mut(index) {
            column.is_active = true;
        }
        self.insert_at(index, step, hash)
    }

    /// Compares the next step, if everyone reported it, or `closed_steps` have gone too far ahead.
    pub(crate) fn compare(&mut self, closed_steps: u32) -> Option<Compared> {
        let step = self.next;
        if step >= closed_steps {
            return None;
        }
        let mut active = self.columns.iter().filter(|column| column.is_active);
        let is_full = active.all(|column| column.get(step).is_some());
        let is_overdue = closed_steps.saturating_sub(step) > PATIENCE;
        if !(is_full || is_overdue) {
            return None;
        }
        let compared = self.judge(step);
        self.next = step.saturating_add(1);
        for column in &mut self.columns {
            column.clear(step);
        }
        if let Compared::Differs(divergence) = &compared {
            for seat in &divergence.seats {
                if let Some(column) = self.columns.get_mut(usize::from(seat.0)) {
                    column.is_active = false;
                }
            }
        }
        Some(compared)
    }

    /// Returns the first step that never came from `seat` though a later one did, and notes that
    /// it is being asked for; at most once in `wait_nanos`.
    pub(crate) fn ask(&mut self, now: Instant, seat: Seat, wait_nanos: u64) -> Option<u32> {
        let column = self.columns.get_mut(usize::from(seat.0))?;
        if !column.is_active || column.missing >= column.end {
            return None;
        }
        if let Some((step, at)) = column.asked
            && step == column.missing
            && now.as_nanos().saturating_sub(at.as_nanos()) < wait_nanos
        {
            return None;
        }
        column.asked = Some((column.missing, now));
        Some(column.missing)
    }

    /// Bytes that it holds.
    pub(crate) fn memory_len(&self) -> usize {
        let steps = self.columns.iter().map(|column| column.hashes.len());
        steps
            .sum::<usize>()
            .saturating_mul(size_of::<Option<u32>>())
    }

    fn insert_at(&mut self, index: usize, step: u32, hash: u32) -> bool {
        if step >= self.next.saturating_add(STEPS) {
            return false;
        }
        if step < self.next {
            // A second copy, or one that came too late; both are ordinary.
            return true;
        }
        match self.columns.get_mut(index) {
            Some(column) if column.is_active => {
                column.insert(step, hash);
                true
            }
            Some(_) | None => false,
        }
    }

    fn judge(&self, step: u32) -> Compared {
        let players = self.columns.len().saturating_sub(1);
        let active = || {
            self.columns
                .iter()
                .take(players)
                .zip((0..=u16::MAX).map(Seat))
                .filter(|(column, _)| column.is_active)
        };
        let reports =
            || active().filter_map(|(column, seat)| column.get(step).map(|hash| (seat, hash)));
        let server = self.columns.last().and_then(|column| column.get(step));
        let (reference, verdict) = match (server, majority(reports().map(|(_, hash)| hash))) {
            (Some(hash), _) => (Some(hash), Verdict::Server),
            (None, Some(hash)) => (Some(hash), Verdict::Minority),
            (None, None) => (None, Verdict::Undecided),
        };
        if reports().any(|(_, hash)| Some(hash) != reference) {
            let named = reports().filter(|&(_, hash)| Some(hash) != reference);
            return Compared::Differs(Divergence {
                step,
                seats: named.map(|(seat, _)| seat).collect(),
                verdict,
            });
        }
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let reports = count(reports().count());
        Compared::Equal {
            reports,
            missing: count(active().count()).saturating_sub(reports),
        }
    }
}

impl Column {
    fn get(&self, step: u32) -> Option<u32> {
        self.hashes.get(place(step)).copied().flatten()
    }

    fn insert(&mut self, step: u32, hash: u32) {
        if let Some(kept @ None) = self.hashes.get_mut(place(step)) {
            *kept = Some(hash);
        }
        self.end = self.end.max(step.saturating_add(1));
        self.skip_known();
    }

    fn clear(&mut self, step: u32) {
        if let Some(kept) = self.hashes.get_mut(place(step)) {
            *kept = None;
        }
        self.missing = self.missing.max(step.saturating_add(1));
        self.skip_known();
    }

    fn skip_known(&mut self) {
        while self.missing < self.end && self.get(self.missing).is_some() {
            self.missing = self.missing.saturating_add(1);
        }
    }
}

/// The value that more than half of `hashes` have; Boyer and Moore, "MJRTY", 1981.
fn majority(hashes: impl Iterator<Item = u32> + Clone) -> Option<u32> {
    let mut candidate = None;
    let mut lead = 0_u32;
    for hash in hashes.clone() {
        if lead == 0 {
            candidate = Some(hash);
        }
        if candidate == Some(hash) {
            lead = lead.saturating_add(1);
        } else {
            lead = lead.saturating_sub(1);
        }
    }
    let candidate = candidate?;
    let (mut count, mut votes) = (0_u32, 0_u32);
    for hash in hashes {
        count = count.saturating_add(1);
        votes = votes.saturating_add(u32::from(hash == candidate));
    }
    (votes.saturating_mul(2) > count).then_some(candidate)
}

fn place(step: u32) -> usize {
    usize::try_from(step % STEPS).unwrap_or(0)
}

#[cfg(test)]
mod tests;
