//! Commitments to inputs: our own, and other peers'.

use core::ops::Range;

use wire::{MatchId, Seat};

use super::lane::AHEAD_MAX;
use crate::chain::{CHAIN_LEN, Chain};
use crate::commitment::{CommitSecret, Head, Salt, Salts, first_head, next_head};
use crate::message::{COMMITTED_SALT_LEN, write_committed_head};
use crate::tick::Tick;

/// Our commitments, and what of the inputs is revealed.
#[derive(Debug)]
pub(super) struct Committing {
    salts: Salts,
    /// Head over all inputs before tick `t`, in slot `t % CHAIN_LEN`.
    heads: Vec<Head>,
    /// First tick without a commitment.
    end: Tick,
    /// Most ticks that one sent head may cover beyond the previous one.
    step: u32,
    /// First tick not covered by a sent head.
    announced: Tick,
    /// First tick not covered by the head to send next.
    announcing: Tick,
    /// First tick that is not revealed.
    revealed: Tick,
    /// Salt of tick `t`, in slot `t % CHAIN_LEN`; each is generated once, and sent to each peer a
    /// few times.
    kept: Vec<Salt>,
}

impl Committing {
    /// Begins with tick `begin`; there are no inputs before. Heads are at most `step` ticks apart.
    pub(super) fn new(
        secret: &CommitSecret,
        match_id: MatchId,
        seat: Seat,
        (begin, step): (Tick, u32),
    ) -> Self {
        let places = usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX);
        Self {
            salts: Salts::new(secret, match_id, seat),
            // All slots hold the first head until there are others.
            heads: vec![first_head(match_id, seat); places],
            end: begin,
            step,
            announced: begin,
            announcing: begin,
            revealed: begin,
            kept: vec![Salt::default(); places],
        }
    }

    /// Commits to the ticks before `end`; `chain` holds their inputs.
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

    /// Returns the first tick that is not revealed.
    pub(super) const fn revealed_end(&self) -> Tick {
        self.revealed
    }

    /// Appends the prefix of a play datagram with the inputs of `ticks`.
    pub(super) fn write(&self, out: &mut Vec<u8>, ticks: &Range<u32>) {
        let count = u16::try_from(ticks.len()).unwrap_or(u16::MAX);
        write_committed_head(
            out,
            self.announcing.low(),
            self.head(self.announcing),
            count,
        );
        for tick in ticks.clone().take(count.into()) {
            let salt = self.kept.get(place(Tick(tick)));
            out.extend_from_slice(salt.unwrap_or(&[0; COMMITTED_SALT_LEN]));
        }
    }

    /// Heap bytes in use.
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
pub(super) struct Committed {
    /// Heads of ticks past `walked`; the one over all before `t` in slot `t % AHEAD_MAX`. The flag
    /// is set if it covered more than all earlier ones, and so proves inputs.
    heads: Vec<Option<(Head, bool)>>,
    /// Received salts of ticks from `walked` on; that of `t` in slot `t % AHEAD_MAX`.
    salts: Vec<Salt>,
    /// First tick not covered by a head.
    end: Tick,
    /// Most ticks that one head may cover beyond the previous one, whatever we have stamped.
    step: u32,
    /// First tick not yet in the chain, and the chain's head before it.
    walked: (Tick, Head),
    /// First tick that no head has proved.
    checked: Tick,
    /// Whether a head did not match the chain.
    is_broken: bool,
}

impl Committed {
    pub(super) fn new(match_id: MatchId, seat: Seat, step: u32) -> Self {
        let places = usize::try_from(AHEAD_MAX).unwrap_or(usize::MAX);
        Self {
            heads: vec![None; places],
            salts: vec![Salt::default(); places],
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
        if let Some(place) = self.heads.get_mut(slot(end)) {
            place.get_or_insert((*head, is_first));
        }
        self.end = self.end.max(end);
        true
    }

    /// Keeps the salt of `tick`, which arrived with its input, if it is within the window.
    pub(super) fn on_salt(&mut self, tick: Tick, salt: Salt) {
        if tick >= self.walked.0
            && tick.since(self.walked.0) < AHEAD_MAX
            && let Some(place) = self.salts.get_mut(slot(tick))
        {
            *place = salt;
        }
    }

    /// Checks the chain against the inputs before `next`, which `chain` holds.
    ///
    /// # Errors
    ///
    /// The first tick that is not proved, if a head did not match; from then on always.
    pub(super) fn check(&mut self, chain: &Chain, next: Tick) -> Result<(), Tick> {
        while self.walked.0 < next.min(self.end) && !self.is_broken {
            let (tick, head) = self.walked;
            let salt = self.salts.get(slot(tick)).copied().unwrap_or_default();
            let bundle = chain.get(tick).unwrap_or_default();
            let (end, head) = (tick.plus(1), next_head(&head, salt, bundle));
            self.walked = (end, head);
            match self.heads.get_mut(slot(end)).and_then(Option::take) {
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

    /// Returns the first tick without a commitment.
    pub(super) const fn end(&self) -> Tick {
        self.end
    }

    /// Returns the first tick that is not proved.
    pub(super) const fn checked_end(&self) -> Tick {
        self.checked
    }

    /// Heap bytes in use.
    pub(super) const fn memory_len(&self) -> usize {
        let head = size_of::<Option<(Head, bool)>>();
        self.heads
            .len()
            .saturating_mul(head.saturating_add(size_of::<Salt>()))
    }
}

fn slot(tick: Tick) -> usize {
    usize::try_from(tick.0 % AHEAD_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Shape;
    use crate::input::Width;
    use crate::message::QUIET;

    const MATCH: MatchId = MatchId([7; 16]);
    const OTHER: Head = [0x77; 16];
    const FAR: Tick = Tick(u32::MAX);

    /// Heads and salts of a peer whose inputs begin with tick 3, its unchanging inputs, and the
    /// heads before ticks 3, 4 and so on; all salts are threes.
    fn quiet(ticks: usize) -> (Committed, Chain, Vec<Head>) {
        let mut committed = Committed::new(MATCH, Seat(1), 4);
        committed.begin(Tick(3));
        let mut chain = Chain::new(Shape {
            seats: 1,
            width: Width::bits::<16>(),
        });
        let mut heads = vec![first_head(MATCH, Seat(1))];
        for tick in (3..).take(ticks) {
            chain.put(Tick(tick), &[QUIET]);
            committed.on_salt(Tick(tick), [3; 8]);
            heads.push(next_head(heads.last().unwrap(), [3; 8], &[QUIET]));
        }
        (committed, chain, heads)
    }

    #[test]
    fn inputs_are_proved_by_the_next_head_that_comes() {
        let (mut committed, chain, heads) = quiet(6);
        assert!(committed.on_head(5, &heads[2], FAR));
        assert_eq!(committed.check(&chain, Tick(4)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(3), "no head is over one tick");
        assert_eq!(committed.check(&chain, Tick(9)), Ok(()));
        assert_eq!(
            (committed.checked_end(), committed.end()),
            (Tick(5), Tick(5))
        );
        // The heads over 6 and 7 are lost.
        assert!(committed.on_head(8, &heads[5], FAR));
        assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(5));
        assert_eq!(committed.check(&chain, Tick(8)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(8));
        // One of them arrives late.
        assert!(committed.on_head(6, &OTHER, FAR));
        assert_eq!(committed.check(&chain, Tick(9)), Ok(()));
    }

    #[test]
    fn the_first_head_for_a_tick_counts_and_every_one_is_held_against_the_peer() {
        let (mut committed, chain, heads) = quiet(6);
        committed.on_head(5, &heads[2], FAR);
        committed.on_head(5, &OTHER, FAR);
        assert_eq!(committed.check(&chain, Tick(5)), Ok(()));
        committed.on_head(7, &OTHER, FAR);
        committed.on_head(7, &heads[4], FAR);
        committed.on_head(8, &heads[5], FAR);
        // A later correct head does not repair it, nor does anything else.
        assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(5)));
        assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(5)));
        assert_eq!(committed.checked_end(), Tick(5));
    }

    #[test]
    fn a_head_over_less_than_one_that_came_proves_nothing() {
        let (mut committed, chain, heads) = quiet(6);
        assert!(committed.on_head(7, &heads[4], FAR));
        assert!(committed.on_head(5, &heads[2], FAR));
        assert_eq!(committed.check(&chain, Tick(6)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(3));
        assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(7));
        // The same if the other head was the wrong one.
        let (mut committed, chain, heads) = quiet(6);
        assert!(committed.on_head(8, &OTHER, FAR));
        for end in 4..8 {
            assert!(committed.on_head(end, &heads[usize::from(end) - 3], FAR));
        }
        assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(3));
        assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(3)));
    }

    #[test]
    fn no_head_counts_that_is_over_more_than_we_can_commit_to() {
        let (mut committed, _, _) = quiet(1);
        assert!(!committed.on_head(8, &OTHER, Tick(7)), "four at a time");
        assert_eq!(committed.end(), Tick(3));
        assert!(committed.on_head(7, &OTHER, Tick(0)));
        assert!(committed.on_head(11, &OTHER, Tick(0)));
        assert!(
            committed.on_head(40, &OTHER, Tick(40)),
            "or what we stamped"
        );
        assert!(!committed.on_head(46, &OTHER, Tick(45)));
        assert_eq!(committed.end(), Tick(40));
    }

    #[test]
    fn heads_and_salts_outside_the_window_are_refused() {
        let (mut committed, chain, heads) = quiet(1);
        let low = |tick: u32| Tick(tick).low();
        assert!(!committed.on_head(low(3 + AHEAD_MAX), &OTHER, FAR));
        assert!(!committed.on_head(low(3 + 30_000), &OTHER, FAR));
        assert_eq!(committed.end(), Tick(3));
        // They would take the slot of an awaited salt.
        committed.on_salt(Tick(3 + AHEAD_MAX), [9; 8]);
        committed.on_salt(Tick(2), [9; 8]);
        assert!(committed.on_head(low(4), &heads[1], FAR));
        assert!(committed.on_head(low(2 + AHEAD_MAX), &OTHER, FAR));
        assert_eq!(committed.check(&chain, Tick(4)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(4));
    }
}
