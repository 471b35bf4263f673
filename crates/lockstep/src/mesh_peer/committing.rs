//! Our own inputs: committed to as they are stamped, shown once all others have committed to theirs.

#![warn(clippy::arithmetic_side_effects)]

use core::ops::Range;

use wire::{MatchId, Seat};

use crate::Tick;
use crate::chain::{CHAIN_LEN, Chain};
use crate::commitment::{CommitSecret, Head, Salt, Salts, first_head, next_head};
use crate::message::{COMMITTED_SALT_LEN, write_committed_head};

/// What we committed to, and what of it others may see.
#[derive(Debug)]
pub(super) struct Committing {
    salts: Salts,
    /// Over all inputs before `end`.
    head: Head,
    /// First tick that is not committed to.
    end: Tick,
    /// First tick that nobody may see.
    shown: Tick,
    /// Salt of tick `t` at place `t % CHAIN_LEN`; made once, sent to everybody a few times.
    kept: Vec<Salt>,
}

impl Committing {
    /// Begins with tick `delay`: nothing happens before.
    pub(super) fn new(secret: &CommitSecret, match_id: MatchId, seat: Seat, delay: u8) -> Self {
        Self {
            salts: Salts::new(secret, match_id, seat),
            head: first_head(match_id, seat),
            end: Tick(delay.into()),
            shown: Tick(delay.into()),
            kept: vec![Salt::default(); usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX)],
        }
    }

    /// Commits to the ticks before `end`, whose inputs `chain` holds.
    pub(super) fn commit(&mut self, chain: &Chain, end: Tick) {
        while self.end < end {
            let salt = self.salts.of(self.end);
            let bundle = chain.get(self.end).unwrap_or_default();
            self.head = next_head(&self.head, salt, bundle);
            if let Some(kept) = self.kept.get_mut(place(self.end)) {
                *kept = salt;
            }
            self.end = self.end.plus(1);
        }
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
        write_committed_head(out, self.end.low(), &self.head, count);
        for tick in ticks.clone().take(count.into()) {
            let salt = self.kept.get(place(Tick(tick)));
            out.extend_from_slice(salt.unwrap_or(&[0; COMMITTED_SALT_LEN]));
        }
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.kept.len().saturating_mul(size_of::<Salt>())
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0)
}
