//! Our own inputs: committed to as they are stamped, shown once all others have committed to theirs.

use core::ops::Range;

use wire::{MatchId, Seat};

use crate::chain::{CHAIN_LEN, Chain};
use crate::commitment::{CommitSecret, Head, Salt, Salts, first_head, next_head};
use crate::message::{COMMITTED_SALT_LEN, write_committed_head};
use crate::tick::Tick;

/// What we committed to, and what of it others may see.
#[derive(Debug)]
pub(super) struct Committing {
    salts: Salts,
    /// Head over all inputs before tick `t` at place `t % CHAIN_LEN`.
    heads: Vec<Head>,
    /// First tick that is not committed to.
    end: Tick,
    /// Ticks by which a head that is sent may be over more than the one before.
    step: u32,
    /// First tick that no head that was sent is over.
    told: Tick,
    /// First tick that the head to send is not over.
    telling: Tick,
    /// First tick that nobody may see.
    shown: Tick,
    /// Salt of tick `t` at place `t % CHAIN_LEN`; made once, sent to everybody a few times.
    kept: Vec<Salt>,
}

impl Committing {
    /// Begins with tick `begin`: nothing happens before. Heads are sent `step` ticks apart at most.
    pub(super) fn new(
        secret: &CommitSecret,
        match_id: MatchId,
        seat: Seat,
        (begin, step): (Tick, u32),
    ) -> Self {
        let places = usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX);
        Self {
            salts: Salts::new(secret, match_id, seat),
            // All are the first until there are others.
            heads: vec![first_head(match_id, seat); places],
            end: begin,
            step,
            told: begin,
            telling: begin,
            shown: begin,
            kept: vec![Salt::default(); places],
        }
    }

    /// Commits to the ticks before `end`, whose inputs `chain` holds.
    pub(super) fn commit(&mut self, chain: &Chain, end: Tick) {
        while self.end < end {
            let salt = self.salts.of(self.end);
            let bundle = chain.get(self.end).unwrap_or_default();
            let head = next_head(self.head(self.end), salt, bundle);
            if let Some(kept) = self.kept.get_mut(place(self.end)) {
                *kept = salt;
            }
            self.end = self.end.plus(1);
            if let Some(kept) = self.heads.get_mut(place(self.end)) {
                *kept = head;
            }
        }
    }

    /// Sends the newest head next, or after many ticks at once the ones between first: nothing before
    /// a head is proved until others have committed to as much, and they go no further without.
    pub(super) fn tell(&mut self) {
        self.told = self.told.plus(self.step).min(self.end);
        self.telling = self.told;
    }

    /// As [`tell`](Self::tell), and once all were sent, those past `known` again, in turn: others may
    /// lack them, and take none that is over many ticks more than those that they have.
    pub(super) fn tell_again(&mut self, known: Tick) {
        if self.told < self.end {
            self.tell();
            return;
        }
        let from = if self.telling < self.end {
            self.telling.max(known)
        } else {
            known
        };
        self.telling = from.plus(self.step).min(self.end);
    }

    /// Lets others see the ticks before `end` that are committed to, and returns those that they did
    /// not see yet.
    pub(super) fn show(&mut self, end: Tick) -> Range<u32> {
        let before = self.shown;
        self.shown = end.min(self.end).max(before);
        before.0..self.shown.0
    }

    /// Returns the first tick that nobody may see.
    pub(super) const fn shown_end(&self) -> Tick {
        self.shown
    }

    /// Appends what stands before a datagram of play with the inputs of `ticks`.
    pub(super) fn write(&self, out: &mut Vec<u8>, ticks: &Range<u32>) {
        let count = u16::try_from(ticks.len()).unwrap_or(u16::MAX);
        write_committed_head(out, self.telling.low(), self.head(self.telling), count);
        for tick in ticks.clone().take(count.into()) {
            let salt = self.kept.get(place(Tick(tick)));
            out.extend_from_slice(salt.unwrap_or(&[0; COMMITTED_SALT_LEN]));
        }
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        let heads = self.heads.len().saturating_mul(size_of::<Head>());
        let salts = self.kept.len().saturating_mul(size_of::<Salt>());
        heads.saturating_add(salts)
    }

    /// Returns the head over all inputs before `end`, one of the last [`CHAIN_LEN`].
    fn head(&self, end: Tick) -> &Head {
        self.heads.get(place(end)).unwrap_or(&[0; 16])
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0)
}
