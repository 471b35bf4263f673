//! Our own inputs: committed to as they are stamped, shown once all others have committed to theirs.

use core::ops::Range;

use wire::{MatchId, Seat};

use super::lane::AHEAD_MAX;
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
    announced: Tick,
    /// First tick that the head to send is not over.
    announcing: Tick,
    /// First tick that nobody may see.
    revealed: Tick,
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
            announced: begin,
            announcing: begin,
            revealed: begin,
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
    pub(super) fn push_event(&mut self) {
        self.announced = self.announced.plus(self.step).min(self.end);
        self.announcing = self.announced;
    }

    /// As [`push_event`](Self::push_event), and once all were sent, those past `known` again, in turn: others may
    /// lack them, and take none that is over many ticks more than those that they have.
    pub(super) fn announce_again(&mut self, known: Tick) {
        if self.announced < self.end {
            self.push_event();
            return;
        }
        let from = if self.announcing < self.end {
            self.announcing.max(known)
        } else {
            known
        };
        self.announcing = from.plus(self.step).min(self.end);
    }

    /// Lets others see the ticks before `end` that are committed to, and returns those that they did
    /// not see yet.
    pub(super) fn reveal(&mut self, end: Tick) -> Range<u32> {
        let before = self.revealed;
        self.revealed = end.min(self.end).max(before);
        before.0..self.revealed.0
    }

    /// Returns the first tick that nobody may see.
    pub(super) const fn revealed_end(&self) -> Tick {
        self.revealed
    }

    /// Appends what stands before a datagram of play with the inputs of `ticks`.
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

/// The heads and salts of one other peer.
///
/// Every head that comes is kept until the inputs before it are shown, and has to be the chain's then:
/// a later head that says something else does not replace it. One that comes once the chain was followed
/// past its ticks is passed over, whatever it says.
///
/// An input is proved by the first head over it that came, since others show theirs on the word of that
/// one. A head over fewer ticks that comes later may have been made up once they were seen; it proves
/// nothing, and has to be the chain's all the same where it is kept.
///
/// Nothing before such a head is proved until all of it is shown, which waits until all others have
/// committed to as much. So none counts that is over more ticks than we come to commit to without a
/// proof, which is what we have stamped, or `step` ticks more than the head before.
#[derive(Debug)]
pub(super) struct Committed {
    /// Heads of ticks past `walked`; the one over all before `t` at place `t % AHEAD_MAX`. With each,
    /// whether it was over more than all before it, and so proves inputs.
    heads: Vec<Option<(Head, bool)>>,
    /// Salts of ticks from `walked` on that came; the one of `t` at place `t % AHEAD_MAX`.
    salts: Vec<Salt>,
    /// First tick that no head is over.
    end: Tick,
    /// Ticks by which a head may be over more than the one before, whatever we have stamped.
    step: u32,
    /// First tick that is not in the chain yet, and the chain's head before it.
    walked: (Tick, Head),
    /// First tick that no head has proved.
    checked: Tick,
    /// Whether a head was not the chain's.
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

    /// Has nothing happen before `tick`, for which no salts and heads are.
    pub(super) const fn begin(&mut self, tick: Tick) {
        self.end = tick;
        self.walked.0 = tick;
        self.checked = tick;
    }

    /// Keeps the head over all ticks before the one with this low half; returns whether it is within
    /// the window. The first one for a tick counts. We have stamped the ticks before `stamped`.
    pub(super) fn on_head(&mut self, end_low: u16, head: &Head, stamped: Tick) -> bool {
        let Some(end) = self.walked.0.widen_near(end_low) else {
            return false;
        };
        if end <= self.walked.0 {
            // Late: what it is over has been shown.
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

    /// Keeps the salt of `tick`, whose input came with it, if it is within the window.
    pub(super) fn on_salt(&mut self, tick: Tick, salt: Salt) {
        if tick >= self.walked.0
            && tick.since(self.walked.0) < AHEAD_MAX
            && let Some(place) = self.salts.get_mut(slot(tick))
        {
            *place = salt;
        }
    }

    /// Follows the chain through the inputs before `next`, which `chain` holds.
    ///
    /// # Errors
    ///
    /// The first tick that is not proved, where a head is not the chain's; from then on always.
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

    /// Returns the first tick that is not committed to.
    pub(super) const fn end(&self) -> Tick {
        self.end
    }

    /// Returns the first tick that is not proved.
    pub(super) const fn checked_end(&self) -> Tick {
        self.checked
    }

    /// Bytes that it holds.
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

    /// What is expected of a peer whose inputs begin with tick 3, its inputs, which are quiet, and the
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
        // One of them comes late.
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
        // A head over more, which is right, does not undo it; nor does anything that comes later.
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
        // Nor does it where the other one was a lie.
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
        // They would stand in the place of what is awaited.
        committed.on_salt(Tick(3 + AHEAD_MAX), [9; 8]);
        committed.on_salt(Tick(2), [9; 8]);
        assert!(committed.on_head(low(4), &heads[1], FAR));
        assert!(committed.on_head(low(2 + AHEAD_MAX), &OTHER, FAR));
        assert_eq!(committed.check(&chain, Tick(4)), Ok(()));
        assert_eq!(committed.checked_end(), Tick(4));
    }
}
