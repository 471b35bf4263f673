//! What arrives in fragments on unreliable channels.

#![warn(clippy::arithmetic_side_effects)]

use wire::Instant;

use crate::channel::{ChannelError, ChannelId, ID_WINDOW, widen};
use crate::fragment::{
    Admission, Fragment, Key, Reassembler, UNRELIABLE_BUDGET, UNRELIABLE_MESSAGES_MAX,
};
use crate::marks::Marks;

/// The receiving half of one unreliable channel: which split messages have begun to arrive.
///
/// A message in one frame has no number; the packet's replay window is what drops its copies.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// One above the newest number seen.
    next: u64,
    /// Messages of which a fragment has come, of the [`ID_WINDOW`] below `next`.
    begun: Marks,
}

impl Inbound {
    /// Makes the half whose peer numbers split messages from `first_id` on.
    pub(crate) const fn new(first_id: u64) -> Self {
        Self {
            next: first_id,
            begun: Marks::new(),
        }
    }

    /// Takes note of a fragment of the message whose number ends in `low`. Returns the number and
    /// whether it is the message's first; `None` where the message is too old to tell.
    pub(crate) fn note(&mut self, low: u16) -> Option<(u64, bool)> {
        let id = widen(self.next, low);
        if id >= self.next {
            // Each number that enters the window takes the place of one that leaves it.
            self.begun.clear(self.next, id);
            self.next = id.saturating_add(1);
        } else if id.saturating_add(ID_WINDOW) < self.next {
            return None;
        }
        let is_first = !self.begun.contains(id);
        self.begun.set(id);
        Some((id, is_first))
    }
}

const _: () = assert!(Marks::LEN == ID_WINDOW, "each message has a bit");

/// The split messages of all unreliable channels of a session that are not yet complete.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// At most [`UNRELIABLE_MESSAGES_MAX`], in the order in which they began.
    begun: Vec<Begun>,
    /// Sum of their costs, at most [`UNRELIABLE_BUDGET`].
    charged: usize,
    /// How many were given up: too old, or in the way of newer ones.
    given_up: u64,
}

/// A message of which some fragments are there.
#[derive(Debug)]
struct Begun {
    /// Which.
    name: SplitMessage,
    /// When it is given up.
    dies: Instant,
    /// Where its fragments are.
    key: Key,
}

/// A split message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitMessage {
    /// Its channel.
    pub(crate) channel: ChannelId,
    /// Its number there.
    pub(crate) id: u64,
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It was stored.
    Stored,
    /// It came before, or its message came to an end.
    Repeated,
    /// Its message is complete and out of the budget; take it.
    Complete(Key),
}

impl Reassembly {
    /// Begins a message that is given up at `dies`.
    pub(crate) fn begin(
        &mut self,
        dies: Instant,
        name: SplitMessage,
        count: u16,
        reassembler: &mut Reassembler,
    ) {
        if self.begun.len() >= UNRELIABLE_MESSAGES_MAX {
            self.give_up(0, reassembler);
        }
        let key = reassembler.begin(count);
        self.charged = self.charged.saturating_add(reassembler.cost(key));
        self.begun.push(Begun { name, dies, key });
    }

    /// Takes a fragment of a message that began, now or before.
    pub(crate) fn on_fragment(
        &mut self,
        name: SplitMessage,
        fragment: &Fragment<'_>,
        reassembler: &mut Reassembler,
    ) -> Result<Progress, ChannelError> {
        let Some(place) = self.place(name) else {
            return Ok(Progress::Repeated);
        };
        let Some(key) = self.begun.get(place).map(|begun| begun.key) else {
            return Ok(Progress::Repeated);
        };
        if reassembler.admit(key, fragment)? == Admission::Repeated {
            return Ok(Progress::Repeated);
        }
        self.charged = self.charged.saturating_add(fragment.data().len());
        if reassembler.insert(key, fragment) {
            self.begun.remove(place);
            self.charged = self.charged.saturating_sub(reassembler.cost(key));
            return Ok(Progress::Complete(key));
        }
        // One message alone fits: the channel table sees to that.
        while self.charged > UNRELIABLE_BUDGET {
            let oldest_other = self.begun.iter().position(|begun| begun.name != name);
            let Some(place) = oldest_other else { break };
            self.give_up(place, reassembler);
        }
        Ok(Progress::Stored)
    }

    /// Gives up what is too old.
    pub(crate) fn expire(&mut self, now: Instant, reassembler: &mut Reassembler) {
        while let Some(place) = self.begun.iter().position(|begun| begun.dies <= now) {
            self.give_up(place, reassembler);
        }
    }

    /// Returns when the next message is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.begun.iter().map(|begun| begun.dies).min()
    }

    /// Returns how many messages were given up.
    pub(crate) const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the sum of the costs of what is held, bytes.
    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }

    /// Gives back memory, where no message has begun.
    pub(crate) fn shrink(&mut self) {
        if self.begun.is_empty() {
            self.begun = Vec::new();
        }
    }

    /// Returns the heap memory it keeps, bytes, without that of the fragments.
    pub(crate) const fn memory(&self) -> usize {
        self.begun.capacity().saturating_mul(size_of::<Begun>())
    }

    /// Where message `name` is in `begun`.
    fn place(&self, name: SplitMessage) -> Option<usize> {
        self.begun.iter().position(|begun| begun.name == name)
    }

    /// Gives up the message in `place`, which exists.
    fn give_up(&mut self, place: usize, reassembler: &mut Reassembler) {
        let begun = self.begun.remove(place);
        self.charged = self.charged.saturating_sub(reassembler.cost(begun.key));
        self.given_up = self.given_up.saturating_add(1);
        reassembler.discard(begun.key);
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "these numbers come from the test"
)]
mod tests {
    use super::*;
    use crate::channel::truncate;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn twp_m2_a_split_message_begins_once_and_an_old_one_never(
            start in prop_oneof![Just(0_u64), Just((1 << 16) - 40), Just((1 << 32) - 40)],
            steps in prop::collection::vec(
                prop_oneof![9 => -1_200_i64..40, 1 => 0_i64..9_000], 1..400),
        ) {
            let mut inbound = Inbound::new(start);
            let (mut newest, mut seen) = (None::<u64>, BTreeSet::new());
            for step in steps {
                let next = newest.map_or(start, |newest| newest + 1);
                let id = next.saturating_add_signed(step).max(start);
                let expected = if id + 1_024 < next {
                    None
                } else {
                    Some((id, seen.insert(id)))
                };
                newest = newest.max(Some(id));
                prop_assert_eq!(inbound.note(truncate(id)), expected);
            }
        }
    }
}
