//! Compares the state hashes of all players, step by step.
//!
//! Steps are *settled* in order: at once if the server's own hash is known, else when every awaited
//! player has reported, or after a timeout. Hashes for settled steps are judged on arrival, those
//! of each player in order; a missing hash is not awaited once a later one shows a difference.

use wire::{Instant, Seat};

use crate::event::Verdict;
use crate::tick::slot;

/// Hash steps kept for comparison, settled or not.
const STEPS: u32 = 1_024;

/// Of these, settled steps kept for late hashes.
const SETTLED: u32 = 512;

#[derive(Debug)]
pub(crate) struct HashComparator {
    by_seat: Vec<SeatHashes>,
    server: SeatHashes,
    next: u32,
    /// First step with an unexpired timeout.
    pub(crate) overdue: u32,
    /// Steps before this one are settled with the hashes at hand.
    early: u32,
    policy: SettlePolicy,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlePolicy {
    /// The first step that differs, after waiting: there is no bisection.
    First,
    /// The earliest one that can be judged.
    Early,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) compared: u64,
    pub(crate) missing: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) step: u32,
    pub(crate) seats: Vec<Seat>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Differs(Divergence),
    /// A player did not report `step` in time.
    Silent {
        seat: Seat,
        step: u32,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) finding: Option<Finding>,
}

impl HashComparator {
    pub(crate) fn new(seats: u16, policy: SettlePolicy) -> Self {
        Self {
            policy,
            by_seat: (0..seats).map(|_| SeatHashes::new()).collect(),
            server: SeatHashes::new(),
            next: 0,
            overdue: 0,
            early: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) const fn begin_at(&mut self, step: u32) {
        self.next = step;
        self.overdue = step;
    }

    pub(crate) fn admit(&mut self, seat: Seat) {
        if let Some(seat_hashes) = self.seat_hashes_mut(seat) {
            seat_hashes.is_active = true;
        }
    }

    /// It is catching up: not awaited until one of its hashes was compared.
    pub(crate) fn admit_late(&mut self, seat: Seat, step: u32) {
        let step = step.max(self.floor());
        if let Some(seat_hashes) = self.seat_hashes_mut(seat) {
            seat_hashes.begin_at(step);
            seat_hashes.is_active = true;
            seat_hashes.is_silent = true;
        }
    }

    /// Whether `seat` is compared: no difference was found.
    pub(crate) fn is_compared(&self, seat: Seat) -> bool {
        let seat_hashes = self.by_seat.get(usize::from(seat.0));
        seat_hashes.is_some_and(|seat_hashes| seat_hashes.is_active)
    }

    /// The newest step in which the hash of `seat` matched, since it is compared.
    pub(crate) fn last_match(&self, seat: Seat) -> Option<u32> {
        self.by_seat.get(usize::from(seat.0))?.matched
    }

    pub(crate) fn exclude(&mut self, seat: Seat) {
        if let Some(seat_hashes) = self.seat_hashes_mut(seat) {
            seat_hashes.is_active = false;
        }
    }

    /// Keeps a hash of `seat`; false if the step is too far ahead, or the seat is not compared. The
    /// first hash counts; those for judged or skipped steps are ignored.
    pub(crate) fn insert(&mut self, seat: Seat, step: u32, hash: u32) -> bool {
        let floor = self.floor();
        match self.seat_hashes_mut(seat) {
            Some(seat_hashes) if seat_hashes.is_active && step < floor.saturating_add(STEPS) => {
                if seat_hashes.insert(floor, step, hash) && self.policy == SettlePolicy::Early {
                    self.compare_early(seat, step, hash);
                }
                true
            }
            Some(_) | None => false,
        }
    }

    /// Keeps the server's own hash; false if the step is too far ahead.
    pub(crate) fn insert_server(&mut self, step: u32, hash: u32) -> bool {
        self.server.is_active = true;
        self.server.is_silent = false;
        let floor = self.floor();
        if step >= floor.saturating_add(STEPS) {
            return false;
        }
        // A step settled without it stays settled.
        if step >= self.next {
            self.server.insert(floor, step, hash);
        }
        true
    }

    pub(crate) const fn expire(&mut self) {
        self.overdue = self.overdue.saturating_add(1);
    }

    pub(crate) fn settle(&mut self, closed_steps: u32) -> Option<Settled> {
        let step = self.next;
        if step >= closed_steps {
            return None;
        }
        // The ring has no room for more waiting steps.
        let is_late = step < self.overdue || closed_steps.saturating_sub(step) > SETTLED;
        if !(is_late || step < self.early || self.is_complete(step)) {
            return None;
        }
        if is_late && self.server.get(step).is_none() {
            self.server.is_silent = true;
        }
        if !is_late && step < self.early && self.server.get(step).is_none() {
            self.settle_early(step);
        }
        let reference = self.reference(step, SeatHashes::is_ready);
        let mut differing = Vec::new();
        for (seat_hashes, seat) in self.by_seat.iter_mut().zip((0..=u16::MAX).map(Seat)) {
            if !seat_hashes.is_ready(step) {
                continue;
            }
            seat_hashes.judge(step, &mut self.counts);
            if seat_hashes.get(step) == reference.hash {
                seat_hashes.matched = Some(step);
            } else {
                differing.push(seat);
            }
        }
        self.next = step.saturating_add(1);
        self.forget(step.checked_sub(SETTLED));
        Some(Settled {
            finding: self.exclude_named(step, differing, reference.verdict),
        })
    }

    pub(crate) fn has_unjudged(&self, seat: Seat) -> bool {
        let seat_hashes = self.by_seat.get(usize::from(seat.0));
        seat_hashes
            .is_some_and(|seat_hashes| seat_hashes.is_active && seat_hashes.judged < self.next)
    }

    /// Judges the hashes of `seat` for settled steps; call it until it returns `None`.
    pub(crate) fn review(&mut self, seat: Seat) -> Option<Finding> {
        loop {
            let (next, overdue, floor) = (self.next, self.overdue, self.floor());
            let seat_hashes = self
                .by_seat
                .get_mut(usize::from(seat.0))
                .filter(|seat_hashes| seat_hashes.is_active)?;
            let step = seat_hashes.judged;
            if step >= next {
                return None;
            }
            if let Some(hash) = seat_hashes.get(step).filter(|_| step >= floor) {
                seat_hashes.judge(step, &mut self.counts);
                if let Some(finding) = self.judge_late(step, seat, hash) {
                    return Some(finding);
                }
            } else if step < seat_hashes.early {
                seat_hashes.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
            } else if step < overdue.max(floor) {
                seat_hashes.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
                if !core::mem::replace(&mut seat_hashes.is_silent, true) {
                    return Some(Finding::Silent { seat, step });
                }
            } else {
                return None;
            }
        }
    }

    /// First missing step of `seat` before a reported one, once per `wait_nanos`.
    pub(crate) fn ask(&mut self, now: Instant, seat: Seat, wait_nanos: u64) -> Option<u32> {
        let seat_hashes = self.seat_hashes_mut(seat)?;
        if !seat_hashes.is_active || seat_hashes.missing >= seat_hashes.end {
            return None;
        }
        if let Some((step, at)) = seat_hashes.asked
            && step == seat_hashes.missing
            && now.as_nanos().saturating_sub(at.as_nanos()) < wait_nanos
        {
            return None;
        }
        seat_hashes.asked = Some((seat_hashes.missing, now));
        Some(seat_hashes.missing)
    }

    pub(crate) fn memory_len(&self) -> usize {
        let by_seat = self.by_seat.iter().chain([&self.server]);
        by_seat.map(SeatHashes::memory_len).sum()
    }

    fn seat_hashes_mut(&mut self, seat: Seat) -> Option<&mut SeatHashes> {
        self.by_seat.get_mut(usize::from(seat.0))
    }

    const fn floor(&self) -> u32 {
        self.next.saturating_sub(SETTLED)
    }

    /// Awaited are the server's hash if it reports, else all players'.
    fn is_complete(&self, step: u32) -> bool {
        if self.server.is_active && !self.server.is_silent {
            // The server reports in order: if a later step is there, this one was skipped.
            if self.server.get(step).is_some() || self.server.end <= step {
                return self.server.get(step).is_some();
            }
        }
        let mut awaited = self
            .by_seat
            .iter()
            .filter(|seat_hashes| seat_hashes.is_awaited());
        awaited.all(|seat_hashes| seat_hashes.get(step).is_some())
    }
}

/// One participant's hashes, from the comparator's oldest step on.
#[derive(Debug)]
struct SeatHashes {
    /// Hash of step `s` in slot `s % STEPS`.
    hashes: Vec<Option<u32>>,
    judged: u32,
    /// First step from `judged` on that has no hash.
    missing: u32,
    end: u32,
    matched: Option<u32>,
    is_active: bool,
    /// Whether its timeout expired, and nothing was judged since.
    is_silent: bool,
    /// Missing steps before this one are not awaited: its hash shows a difference.
    early: u32,
    asked: Option<(u32, Instant)>,
}

impl SeatHashes {
    fn new() -> Self {
        Self {
            hashes: vec![None; usize::try_from(STEPS).unwrap_or(usize::MAX)],
            judged: 0,
            missing: 0,
            end: 0,
            matched: None,
            is_active: false,
            is_silent: false,
            early: 0,
            asked: None,
        }
    }

    const fn is_awaited(&self) -> bool {
        self.is_active && !self.is_silent
    }

    fn get(&self, step: u32) -> Option<u32> {
        self.hashes.get(slot(step, STEPS)).copied().flatten()
    }

    /// Returns whether this is the first hash for `step`, at or after `floor`.
    fn insert(&mut self, floor: u32, step: u32, hash: u32) -> bool {
        self.missing = self.missing.max(floor);
        if step < self.judged.max(floor) {
            return false;
        }
        let Some(kept @ None) = self.hashes.get_mut(slot(step, STEPS)) else {
            return false;
        };
        *kept = Some(hash);
        self.end = self.end.max(step.saturating_add(1));
        self.skip_known();
        true
    }

    fn begin_at(&mut self, step: u32) {
        self.hashes.fill(None);
        (self.judged, self.missing, self.end) = (step, step, step);
        self.early = 0;
        self.matched = None;
        self.asked = None;
    }

    fn is_ready(&self, step: u32) -> bool {
        self.is_active && self.judged == step && self.get(step).is_some()
    }

    fn was_judged(&self, step: u32) -> bool {
        self.judged > step && self.get(step).is_some()
    }

    fn judge(&mut self, step: u32, counts: &mut Counts) {
        counts.compared = counts.compared.saturating_add(1);
        self.is_silent = false;
        self.pass(step);
    }

    fn give_up(&mut self, step: u32) {
        self.pass(step);
    }

    fn forget(&mut self, step: u32) {
        if let Some(kept) = self.hashes.get_mut(slot(step, STEPS)) {
            *kept = None;
        }
    }

    fn end_after(&mut self, last: u32) {
        self.is_active = false;
        for step in last.saturating_add(1)..self.end {
            self.forget(step);
        }
    }

    const fn memory_len(&self) -> usize {
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

impl HashComparator {
    /// Checks whether the hash of `step` shows a difference while an earlier step is awaited.
    fn compare_early(&mut self, seat: Seat, step: u32, hash: u32) {
        if step > self.next {
            if self.is_complete(step) && !self.is_unanimous(step) {
                self.early = self.early.max(step);
            }
        } else if step < self.next {
            let judged = self.by_seat.get(usize::from(seat.0));
            if judged.is_none_or(|seat_hashes| seat_hashes.judged >= step) {
                return;
            }
            let reference = self.reference(step, SeatHashes::was_judged).hash;
            if reference.is_some_and(|reference| reference != hash)
                && let Some(seat_hashes) = self.seat_hashes_mut(seat)
            {
                seat_hashes.early = seat_hashes.early.max(step);
            }
        }
    }

    /// Stops waiting for hashes of `step`, which is settled early and without the server. Without a
    /// majority of all awaited players, no player is judged by it: the later step decides which
    /// are wrong.
    fn settle_early(&mut self, step: u32) {
        let reference = self.reference(step, SeatHashes::is_ready).hash;
        let (mut awaited, mut votes) = (0_usize, 0_usize);
        for seat_hashes in &mut self.by_seat {
            let is_vote = seat_hashes.is_ready(step) && seat_hashes.get(step) == reference;
            votes = votes.saturating_add(is_vote.into());
            awaited = awaited.saturating_add(seat_hashes.is_awaited().into());
            if seat_hashes.is_awaited()
                && seat_hashes.judged == step
                && seat_hashes.get(step).is_none()
            {
                seat_hashes.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
            }
        }
        if reference.is_some() && votes.saturating_mul(2) > awaited {
            return;
        }
        for seat_hashes in &mut self.by_seat {
            if seat_hashes.is_ready(step) {
                seat_hashes.give_up(step);
                seat_hashes.forget(step);
            }
        }
    }

    /// Whether all hashes of `step` are equal, of players that are awaited or still to be judged by
    /// it.
    fn is_unanimous(&self, step: u32) -> bool {
        let ready = self
            .by_seat
            .iter()
            .filter(|seat_hashes| seat_hashes.is_awaited() || seat_hashes.is_ready(step));
        let mut hashes = ready.filter_map(|seat_hashes| seat_hashes.get(step));
        let first = hashes.next();
        hashes.all(|hash| Some(hash) == first)
    }
}

#[derive(Clone, Copy, Debug)]
struct Reference {
    /// `None` if no hash has a majority.
    hash: Option<u32>,
    verdict: Verdict,
}

impl HashComparator {
    /// The server's hash of `step`, else the majority's among those that `counts` admits.
    fn reference(&self, step: u32, counts: fn(&SeatHashes, u32) -> bool) -> Reference {
        if let hash @ Some(_) = self.server.get(step) {
            let verdict = Verdict::Server;
            return Reference { hash, verdict };
        }
        let ready = self
            .by_seat
            .iter()
            .filter(|seat_hashes| counts(seat_hashes, step));
        let hash = majority(ready.filter_map(|seat_hashes| seat_hashes.get(step)));
        let verdict = if hash.is_some() {
            Verdict::Minority
        } else {
            Verdict::Undecided
        };
        Reference { hash, verdict }
    }

    /// A late hash counts as a vote: in a tie, all are reported.
    fn judge_late(&mut self, step: u32, seat: Seat, hash: u32) -> Option<Finding> {
        let reference = self.reference(step, SeatHashes::was_judged);
        if reference.hash == Some(hash) {
            if self.is_shared(step)
                && let Some(seat_hashes) = self.by_seat.get_mut(usize::from(seat.0))
            {
                seat_hashes.matched = seat_hashes.matched.max(Some(step));
            }
            return None;
        }
        if reference.hash.is_some() {
            return self.exclude_named(step, vec![seat], reference.verdict);
        }
        let seats = (0..=u16::MAX).map(Seat).zip(&self.by_seat);
        let ready =
            seats.filter(|(_, seat_hashes)| seat_hashes.is_active && seat_hashes.was_judged(step));
        let named = ready.map(|(seat, _)| seat).collect();
        self.exclude_named(step, named, reference.verdict)
    }

    fn is_shared(&self, step: u32) -> bool {
        let ready = self
            .by_seat
            .iter()
            .filter(|seat_hashes| seat_hashes.was_judged(step));
        self.server.get(step).is_some() || ready.take(2).count() > 1
    }

    /// Excludes `seats` from now on, and returns the finding.
    fn exclude_named(&mut self, step: u32, seats: Vec<Seat>, verdict: Verdict) -> Option<Finding> {
        if seats.is_empty() {
            return None;
        }
        for seat in &seats {
            if let Some(seat_hashes) = self.by_seat.get_mut(usize::from(seat.0)) {
                seat_hashes.end_after(step);
            }
        }
        Some(Finding::Differs(Divergence {
            step,
            seats,
            verdict,
        }))
    }

    fn forget(&mut self, step: Option<u32>) {
        let Some(step) = step else {
            return;
        };
        for seat_hashes in self.by_seat.iter_mut().chain([&mut self.server]) {
            seat_hashes.forget(step);
        }
    }
}

/// The value of more than half of `hashes`; Boyer and Moore, "MJRTY", 1981.
fn majority(hashes: impl Iterator<Item = u32> + Clone) -> Option<u32> {
    let mut others = hashes.clone();
    let first = others.next()?;
    if others.all(|hash| hash == first) {
        return Some(first);
    }
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

impl HashComparator {
    /// The reported hash of `seat`, or of the server, for `step`, if kept.
    pub(crate) fn reported(&self, seat: Option<Seat>, step: u32) -> Option<u32> {
        if step < self.floor() {
            return None;
        }
        self.seat_hashes(seat)?.get(step)
    }

    /// The last step before `step` for which both reported the same hash.
    pub(crate) fn last_equal(
        &self,
        one: Option<Seat>,
        other: Option<Seat>,
        step: u32,
    ) -> Option<u32> {
        let mut steps = (self.floor()..step).rev();
        steps.find(|&step| {
            let reported = self.reported(one, step);
            reported.is_some() && reported == self.reported(other, step)
        })
    }

    pub(crate) fn agreeing(&self, step: u32) -> impl Iterator<Item = Seat> {
        let seats = (0..=u16::MAX).map(Seat).zip(&self.by_seat);
        seats
            .filter(move |(_, seat_hashes)| seat_hashes.is_active && seat_hashes.was_judged(step))
            .map(|(seat, _)| seat)
    }

    fn seat_hashes(&self, seat: Option<Seat>) -> Option<&SeatHashes> {
        match seat {
            Some(seat) => self.by_seat.get(usize::from(seat.0)),
            None => Some(&self.server),
        }
    }
}

#[cfg(test)]
mod tests;
