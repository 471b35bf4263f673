//! Commitments to inputs before they are revealed: our own, and other peers'.
//!
//! The head after tick `t` is the first 16 bytes of SHA-256 (FIPS 180-4) over the head after `t -
//! 1`, the salt of `t` and the bundle of `t`. The chain starts with match and seat. So one head
//! commits to all inputs up to it, and a receiver that misses some heads checks the same inputs by
//! the next. To reveal other inputs than committed takes two inputs with one head, 2^64 tries; to
//! guess inputs from a head takes guessing a salt, 2^63 tries on average.

use core::ops::Range;

use sha2::{Digest, Sha256};
use wire::{MatchId, Seat};

use super::input_queue::AHEAD_MAX;
use crate::chain::{CHAIN_LEN, Chain};
use crate::message::{COMMITTED_SALT_LEN, write_committed_head};
use crate::tick::Tick;

/// Our commitments, and what of the inputs is revealed.
#[derive(Debug)]
pub(super) struct LocalCommitments {
    salts: Salts,
    /// Head over all inputs before tick `t`, in slot `t % CHAIN_LEN`.
    heads: Vec<Head>,
    end: Tick,
    /// Most ticks that one sent head may cover beyond the previous one.
    step: u32,
    announced: Tick,
    announcing: Tick,
    pub(super) revealed: Tick,
    /// Salt of tick `t`, in slot `t % CHAIN_LEN`; each is generated once.
    kept: Vec<Salt>,
}

impl LocalCommitments {
    /// Begins with tick `begin`; there are no inputs before. Heads are at most `step` ticks apart.
    pub(super) fn new(
        secret: &CommitSecret,
        match_id: MatchId,
        seat: Seat,
        (begin, step): (Tick, u32),
    ) -> Self {
        let slots = usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX);
        Self {
            salts: Salts::new(secret, match_id, seat),
            // All slots hold the first head until there are others.
            heads: vec![first_head(match_id, seat); slots],
            end: begin,
            step,
            announced: begin,
            announcing: begin,
            revealed: begin,
            kept: vec![Salt::default(); slots],
        }
    }

    pub(super) fn commit(&mut self, chain: &Chain, end: Tick) {
        while self.end < end {
            let salt = self.salts.of(self.end);
            let bundle = chain.get(self.end).unwrap_or_default();
            let head = next_head(self.head(self.end), salt, bundle);
            if let Some(kept) = self.kept.get_mut(self.end.slot(CHAIN_LEN)) {
                *kept = salt;
            }
            self.end = self.end.plus(1);
            if let Some(kept) = self.heads.get_mut(self.end.slot(CHAIN_LEN)) {
                *kept = head;
            }
        }
    }

    /// Selects the newest head to be sent or, after many ticks at once, intermediate heads first:
    /// ticks are only proved once others have committed to as many, and they need the intermediate
    /// heads for that.
    pub(super) fn announce(&mut self) {
        self.announced = self.announced.plus(self.step).min(self.end);
        self.announcing = self.announced;
    }

    /// As [`announce`](Self::announce); once all heads were sent, repeats those past `known` in
    /// turn, since peers that lack them reject heads that cover many more ticks.
    pub(super) fn announce_again(&mut self, known: Tick) {
        if self.announced < self.end {
            self.announce();
            return;
        }
        let from = if self.announcing < self.end {
            self.announcing.max(known)
        } else {
            known
        };
        self.announcing = from.plus(self.step).min(self.end);
    }

    /// Reveals the committed ticks before `end`, and returns those that are newly revealed.
    pub(super) fn reveal(&mut self, end: Tick) -> Range<u32> {
        let before = self.revealed;
        self.revealed = end.min(self.end).max(before);
        before.0..self.revealed.0
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, ticks: &Range<u32>) {
        let count = u16::try_from(ticks.len()).unwrap_or(u16::MAX);
        write_committed_head(
            out,
            self.announcing.low(),
            self.head(self.announcing),
            count,
        );
        for tick in ticks.clone().take(count.into()) {
            let salt = self.kept.get(Tick(tick).slot(CHAIN_LEN));
            out.extend_from_slice(salt.unwrap_or(&[0; COMMITTED_SALT_LEN]));
        }
    }

    pub(super) const fn memory_len(&self) -> usize {
        let heads = self.heads.len().saturating_mul(size_of::<Head>());
        let salts = self.kept.len().saturating_mul(size_of::<Salt>());
        heads.saturating_add(salts)
    }

    fn head(&self, end: Tick) -> &Head {
        self.heads.get(end.slot(CHAIN_LEN)).unwrap_or(&[0; 16])
    }
}

/// Heads and salts of another peer.
///
/// Each head is kept until the inputs before it are revealed, and must then match the chain; a
/// later, different head for the same tick does not replace it. A head that arrives after the chain
/// has passed its tick is ignored.
///
/// An input is proved by the first head covering it that arrived, since others reveal their inputs
/// in reliance on that one. A head over fewer ticks that arrives later may have been computed after
/// seeing them; it proves nothing, but must still match the chain.
///
/// Ticks before a head are only proved once all are revealed, which waits until all others have
/// committed to as many. So heads are only accepted for ticks that we can commit to without a
/// proof: those we have stamped, or `step` more than the previous head.
#[derive(Debug)]
pub(super) struct PeerCommitments {
    /// Heads of ticks past `walked`; the one over all before `t` in slot `t % AHEAD_MAX`. The flag
    /// is set if it covered more than all earlier ones, and so proves inputs.
    heads: Vec<Option<(Head, bool)>>,
    salts: Vec<Salt>,
    pub(super) end: Tick,
    /// Most ticks that one head may cover beyond the previous one, whatever we have stamped.
    step: u32,
    /// First tick not yet in the chain, and the chain's head before it.
    walked: (Tick, Head),
    pub(super) checked: Tick,
    is_broken: bool,
}

impl PeerCommitments {
    pub(super) fn new(match_id: MatchId, seat: Seat, step: u32) -> Self {
        let slots = usize::try_from(AHEAD_MAX).unwrap_or(usize::MAX);
        Self {
            heads: vec![None; slots],
            salts: vec![Salt::default(); slots],
            end: Tick(0),
            step,
            walked: (Tick(0), first_head(match_id, seat)),
            checked: Tick(0),
            is_broken: false,
        }
    }

    /// Begins with `tick`; there are no inputs before, and so no salts or heads.
    pub(super) const fn begin(&mut self, tick: Tick) {
        self.end = tick;
        self.walked.0 = tick;
        self.checked = tick;
    }

    /// Keeps the head over all ticks before the one with this low half; returns whether it is
    /// within the window. The first head for a tick counts. We have stamped the ticks before
    /// `stamped`.
    pub(super) fn on_head(&mut self, end_low: u16, head: &Head, stamped: Tick) -> bool {
        let Some(end) = self.walked.0.widen_near(end_low) else {
            return false;
        };
        if end <= self.walked.0 {
            // Late: the ticks it covers are revealed.
            return true;
        }
        let reach = self.end.plus(self.step).max(stamped);
        if end > reach || end.since(self.walked.0) >= AHEAD_MAX {
            return false;
        }
        let is_first = end > self.end;
        if let Some(slot) = self.heads.get_mut(end.slot(AHEAD_MAX)) {
            slot.get_or_insert((*head, is_first));
        }
        self.end = self.end.max(end);
        true
    }

    /// Keeps the salt of `tick`, which arrived with its input, if it is within the window.
    pub(super) fn on_salt(&mut self, tick: Tick, salt: Salt) {
        if tick >= self.walked.0
            && tick.since(self.walked.0) < AHEAD_MAX
            && let Some(slot) = self.salts.get_mut(tick.slot(AHEAD_MAX))
        {
            *slot = salt;
        }
    }

    /// Checks the chain before `next`. If a head did not match, fails with the first tick that is
    /// not proved, from then on always.
    pub(super) fn check(&mut self, chain: &Chain, next: Tick) -> Result<(), Tick> {
        while self.walked.0 < next.min(self.end) && !self.is_broken {
            let (tick, head) = self.walked;
            let salt = self
                .salts
                .get(tick.slot(AHEAD_MAX))
                .copied()
                .unwrap_or_default();
            let bundle = chain.get(tick).unwrap_or_default();
            let (end, head) = (tick.plus(1), next_head(&head, salt, bundle));
            self.walked = (end, head);
            match self
                .heads
                .get_mut(end.slot(AHEAD_MAX))
                .and_then(Option::take)
            {
                Some((committed, _)) if committed != head => self.is_broken = true,
                Some((_, true)) => self.checked = end,
                Some((_, false)) | None => {}
            }
        }
        if self.is_broken {
            Err(self.checked)
        } else {
            Ok(())
        }
    }

    pub(super) const fn memory_len(&self) -> usize {
        let head = size_of::<Option<(Head, bool)>>();
        self.heads
            .len()
            .saturating_mul(head.saturating_add(size_of::<Salt>()))
    }
}

/// Secret from which one player's salts are derived: 32 random bytes.
///
/// Take them from the operating system. Salts differ by match id and seat, so one secret may serve
/// all matches of a player if their ids differ; use another one if an id is reused.
#[derive(Clone, PartialEq, Eq)]
pub struct CommitSecret([u8; 32]);

impl CommitSecret {
    /// Takes 32 bytes, as random as a key.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

wire::opaque_debug!(CommitSecret);

/// A commitment to all inputs before some tick.
pub(crate) type Head = [u8; 16];

pub(crate) type Salt = [u8; 8];

const SALT_LABEL: &[u8] = b"tickwire mesh salt";
const START_LABEL: &[u8] = b"tickwire mesh start";

#[derive(Clone)]
pub(crate) struct Salts {
    key: [u8; 32],
}

wire::opaque_debug!(Salts);

impl Salts {
    pub(crate) fn new(secret: &CommitSecret, match_id: MatchId, seat: Seat) -> Self {
        let hasher = Sha256::new_with_prefix(SALT_LABEL)
            .chain_update(secret.0)
            .chain_update(match_id.0)
            .chain_update(seat.0.to_be_bytes());
        Self {
            key: hasher.finalize().into(),
        }
    }

    pub(crate) fn of(&self, tick: Tick) -> Salt {
        let hasher = Sha256::new_with_prefix(self.key).chain_update(tick.0.to_be_bytes());
        first_of(hasher.finalize().into())
    }
}

pub(crate) fn first_head(match_id: MatchId, seat: Seat) -> Head {
    let hasher = Sha256::new_with_prefix(START_LABEL)
        .chain_update(match_id.0)
        .chain_update(seat.0.to_be_bytes());
    first_of(hasher.finalize().into())
}

/// The head after a tick with this salt and bundle, from the one before it.
pub(crate) fn next_head(head: &Head, salt: Salt, bundle: &[u8]) -> Head {
    // All but the last field have a fixed length, so the encoding is unambiguous.
    let hasher = Sha256::new_with_prefix(head)
        .chain_update(salt)
        .chain_update(bundle);
    first_of(hasher.finalize().into())
}

fn first_of<const N: usize>(digest: [u8; 32]) -> [u8; N] {
    *digest.first_chunk().unwrap_or(&[0; N])
}

#[cfg(test)]
mod tests;
