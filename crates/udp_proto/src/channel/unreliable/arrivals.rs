//! What arrives with a number on unreliable channels: fragments, and all of sequenced ones.

use wire::Instant;

use crate::channel::{ChannelError, ChannelId, Delivery, ID_WINDOW, widen};
use crate::fragment::{
    Admission, Fragment, Key, Reassembler, UNRELIABLE_BUDGET, UNRELIABLE_MESSAGES_MAX,
};
use crate::marks::Marks;

/// The receiving half of one unreliable channel: which numbered messages have begun to arrive.
///
/// A message in one frame of a channel that is not sequenced has no number; the packet's replay
/// window is what drops its copies.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// One above the newest number seen.
    next: u64,
    /// Messages of which a fragment has come, of the [`ID_WINDOW`] below `next`; made for the first.
    begun: Option<Box<Marks>>,
    /// Those of them that were put together from fragments; made for the first.
    complete: Option<Box<Marks>>,
    /// Messages below it come too late; rises on a sequenced channel only.
    floor: u64,
    /// Whether newer messages overtake older ones for good.
    is_sequenced: bool,
}

/// How a numbered message stands when a frame of it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The frame is the first of the message with this number.
    First(u64),
    /// Others came before.
    Further(u64),
    /// It is too old to tell.
    Old,
    /// A newer one was delivered.
    Overtaken,
}

impl Inbound {
    /// Makes the half of a channel of that `delivery`, whose peer numbers messages from `first_id`
    /// on.
    pub(crate) const fn new(delivery: Delivery, first_id: u64) -> Self {
        Self {
            next: first_id,
            begun: None,
            complete: None,
            floor: first_id,
            is_sequenced: delivery.is_numbered(),
        }
    }

    /// Returns whether whole messages have numbers, and newer ones overtake older ones.
    pub(crate) const fn is_sequenced(&self) -> bool {
        self.is_sequenced
    }

    /// Takes note of a frame of the message whose number ends in `low`.
    pub(crate) fn note(&mut self, low: u16) -> Note {
        let id = widen(self.next, low);
        if self.is_sequenced && id < self.floor {
            return Note::Overtaken;
        }
        let begun = self.begun.get_or_insert_default();
        if id >= self.next {
            // Each number that enters the window takes the place of one that leaves it.
            begun.clear(self.next, id);
            if let Some(complete) = &mut self.complete {
                complete.clear(self.next, id);
            }
            self.next = id.saturating_add(1);
        } else if id.saturating_add(ID_WINDOW) < self.next {
            return Note::Old;
        }
        if begun.contains(id) {
            return Note::Further(id);
        }
        begun.set(id);
        Note::First(id)
    }

    /// Returns the heap memory it keeps, bytes.
    pub(crate) fn memory(&self) -> usize {
        let marks = [&self.begun, &self.complete];
        let made = marks.into_iter().flatten().count();
        made.saturating_mul(size_of::<Marks>())
    }

    /// Takes note that message `id` was put together.
    pub(crate) fn on_complete(&mut self, id: u64) {
        // What a sequenced channel delivered comes too late from then on.
        if !self.is_sequenced {
            self.complete.get_or_insert_default().set(id);
        }
    }

    /// Returns whether message `id` was put together, for all that is known of it.
    pub(crate) fn is_complete(&self, id: u64) -> bool {
        let complete = self.complete.as_ref();
        complete.is_some_and(|complete| complete.contains(id))
    }

    /// Takes note that message `id` goes to the application. Returns whether those before it may
    /// no longer.
    pub(crate) const fn on_delivered(&mut self, id: u64) -> bool {
        if self.is_sequenced {
            self.floor = id.saturating_add(1);
        }
        self.is_sequenced
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
    expires_at: Instant,
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
    /// It came before.
    Repeated,
    /// Its message is not being put together: that is complete, or was given up.
    Over,
    /// Its message is complete and out of the budget; take it.
    Complete(Key),
}

impl Reassembly {
    /// Begins a message that is given up at `expires_at`.
    pub(crate) fn begin(
        &mut self,
        expires_at: Instant,
        name: SplitMessage,
        count: u16,
        reassembler: &mut Reassembler,
    ) {
        if self.begun.len() >= UNRELIABLE_MESSAGES_MAX {
            self.give_up(0, reassembler);
        }
        let key = reassembler.begin(count);
        self.charged = self.charged.saturating_add(reassembler.cost(key));
        self.begun.push(Begun {
            name,
            expires_at,
            key,
        });
    }

    /// Takes a fragment of a message that began, now or before.
    pub(crate) fn on_fragment(
        &mut self,
        name: SplitMessage,
        fragment: &Fragment<'_>,
        reassembler: &mut Reassembler,
    ) -> Result<Progress, ChannelError> {
        let Some(place) = self.place(name) else {
            return Ok(Progress::Over);
        };
        let Some(key) = self.begun.get(place).map(|begun| begun.key) else {
            return Ok(Progress::Over);
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

    /// Gives up all messages of `channel` before `id`.
    pub(crate) fn overtake(&mut self, channel: ChannelId, id: u64, reassembler: &mut Reassembler) {
        let is_older = |name: SplitMessage| name.channel == channel && name.id < id;
        while let Some(place) = self.begun.iter().position(|begun| is_older(begun.name)) {
            self.give_up(place, reassembler);
        }
    }

    /// Returns whether message `name` has begun and is not complete.
    pub(crate) fn contains(&self, name: SplitMessage) -> bool {
        self.place(name).is_some()
    }

    /// Gives up what is too old.
    pub(crate) fn expire(&mut self, now: Instant, reassembler: &mut Reassembler) {
        while let Some(place) = self.begun.iter().position(|begun| begun.expires_at <= now) {
            self.give_up(place, reassembler);
        }
    }

    /// Returns when the next message is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.begun.iter().map(|begun| begun.expires_at).min()
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
            let mut inbound = Inbound::new(Delivery::Unreliable, start);
            let (mut newest, mut seen) = (None::<u64>, BTreeSet::new());
            for step in steps {
                let next = newest.map_or(start, |newest| newest + 1);
                let id = next.saturating_add_signed(step).max(start);
                let expected = if id + 1_024 < next {
                    Note::Old
                } else if seen.insert(id) {
                    Note::First(id)
                } else {
                    Note::Further(id)
                };
                newest = newest.max(Some(id));
                prop_assert_eq!(inbound.note(truncate(id)), expected);
                prop_assert!(!inbound.on_delivered(id));
            }
        }

        #[test]
        fn twp_m2_m6_of_a_sequenced_channel_nothing_at_or_below_the_last_is_delivered(
            start in prop_oneof![Just(0_u64), Just((1 << 16) - 40), Just((1 << 32) - 40)],
            steps in prop::collection::vec(
                (prop_oneof![9 => -1_200_i64..40, 1 => 0_i64..9_000], any::<bool>()), 1..400),
        ) {
            let mut inbound = Inbound::new(Delivery::Sequenced, start);
            let (mut newest, mut last) = (None::<u64>, None::<u64>);
            for (step, is_complete) in steps {
                let next = newest.map_or(start, |newest| newest + 1);
                let id = next.saturating_add_signed(step).max(start);
                let note = inbound.note(truncate(id));
                if last.is_some_and(|last| id <= last) {
                    prop_assert_eq!(note, Note::Overtaken);
                    continue;
                }
                prop_assert_ne!(note, Note::Overtaken);
                newest = newest.max(Some(id));
                if is_complete && note != Note::Old {
                    prop_assert!(inbound.on_delivered(id));
                    last = Some(id);
                }
            }
        }
    }
}
