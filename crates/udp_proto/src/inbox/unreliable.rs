//! Numbered messages received on unreliable channels: fragments, and everything sequenced.

use wire::Instant;

use super::store::{Buffers, Store};
use crate::channel::{
    ChannelConfig, ChannelError, ChannelId, Delivery, ID_WINDOW, MsgFrame, widen,
};
use crate::fragment::{
    Admission, FRAGMENT_LEN, Fragment, FragmentError, Key, Position, Reassembler,
    UNRELIABLE_BUDGET, UNRELIABLE_MESSAGES_MAX,
};
use crate::replay::Marks;

/// The receiving half of an unreliable channel: which numbered messages have started to arrive.
/// Others have no number, and the replay window drops their copies.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// One above the newest number seen.
    next: u64,
    /// Started messages among the [`ID_WINDOW`] below `next`; allocated for the first one.
    begun: Option<Box<Marks>>,
    /// Those that were completed; allocated for the first one.
    complete: Option<Box<Marks>>,
    /// Messages below are too late; rises only on a sequenced channel.
    floor: u64,
    /// Whether newer messages supersede older ones.
    is_sequenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The first frame of the message with this number.
    First(u64),
    Further(u64),
    Old,
    Overtaken,
}

impl Inbound {
    pub(crate) const fn new(delivery: Delivery, first_id: u64) -> Self {
        Self {
            next: first_id,
            begun: None,
            complete: None,
            floor: first_id,
            is_sequenced: delivery.is_numbered(),
        }
    }

    pub(crate) const fn is_sequenced(&self) -> bool {
        self.is_sequenced
    }

    pub(crate) fn note(&mut self, low: u16) -> Note {
        let id = widen(self.next, low);
        if self.is_sequenced && id < self.floor {
            return Note::Overtaken;
        }
        let begun = self.begun.get_or_insert_default();
        if id >= self.next {
            // Each number that enters the window replaces one that leaves it.
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

    pub(crate) fn memory(&self) -> usize {
        let marks = [&self.begun, &self.complete];
        let made = marks.into_iter().flatten().count();
        made.saturating_mul(size_of::<Marks>())
    }

    pub(crate) fn on_complete(&mut self, id: u64) {
        // On a sequenced channel, delivered messages count as too late.
        if !self.is_sequenced {
            self.complete.get_or_insert_default().set(id);
        }
    }

    pub(crate) fn is_complete(&self, id: u64) -> bool {
        let complete = self.complete.as_ref();
        complete.is_some_and(|complete| complete.contains(id))
    }

    /// Records the delivery of message `id`. Returns whether it supersedes earlier ones.
    pub(crate) const fn on_delivered(&mut self, id: u64) -> bool {
        if self.is_sequenced {
            self.floor = id.saturating_add(1);
        }
        self.is_sequenced
    }
}

const _: () = assert!(Marks::LEN == ID_WINDOW, "each message has a bit");

/// Incomplete split messages of all unreliable channels of a session.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// At most [`UNRELIABLE_MESSAGES_MAX`], in order of their start.
    begun: Vec<Begun>,
    /// Sum of their costs, at most [`UNRELIABLE_BUDGET`].
    pub(super) charged: usize,
    /// Messages given up: expired, or displaced by newer ones.
    pub(super) given_up: u64,
}

#[derive(Debug)]
struct Begun {
    name: SplitMessage,
    expires_at: Instant,
    /// Where its fragments are.
    key: Key,
}

/// Identifies a split message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitMessage {
    pub(crate) channel: ChannelId,
    pub(crate) id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Stored,
    Repeated,
    /// Its message is complete or was given up.
    Over,
    /// Its message is complete and out of the budget; take it.
    Complete(Key),
}

impl Reassembly {
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
        // One message alone fits, as the channel table ensures.
        while self.charged > UNRELIABLE_BUDGET {
            let oldest_other = self.begun.iter().position(|begun| begun.name != name);
            let Some(place) = oldest_other else { break };
            self.give_up(place, reassembler);
        }
        Ok(Progress::Stored)
    }

    pub(crate) fn overtake(&mut self, channel: ChannelId, id: u64, reassembler: &mut Reassembler) {
        let is_older = |name: SplitMessage| name.channel == channel && name.id < id;
        while let Some(place) = self.begun.iter().position(|begun| is_older(begun.name)) {
            self.give_up(place, reassembler);
        }
    }

    pub(crate) fn contains(&self, name: SplitMessage) -> bool {
        self.place(name).is_some()
    }

    pub(crate) fn expire(&mut self, now: Instant, reassembler: &mut Reassembler) {
        while let Some(place) = self.begun.iter().position(|begun| begun.expires_at <= now) {
            self.give_up(place, reassembler);
        }
    }

    pub(crate) fn expires(&self) -> Option<Instant> {
        self.begun.iter().map(|begun| begun.expires_at).min()
    }

    pub(crate) fn shrink(&mut self) {
        if self.begun.is_empty() {
            self.begun = Vec::new();
        }
    }

    pub(crate) const fn memory(&self) -> usize {
        self.begun.capacity().saturating_mul(size_of::<Begun>())
    }

    fn place(&self, name: SplitMessage) -> Option<usize> {
        self.begun.iter().position(|begun| begun.name == name)
    }

    fn give_up(&mut self, place: usize, reassembler: &mut Reassembler) {
        let begun = self.begun.remove(place);
        self.charged = self.charged.saturating_sub(reassembler.cost(begun.key));
        self.given_up = self.given_up.saturating_add(1);
        reassembler.discard(begun.key);
    }
}

pub(super) struct Unreliable<'a> {
    pub(super) inbound: &'a mut Inbound,
    /// Split messages of all unreliable channels.
    pub(super) reassembly: &'a mut Reassembly,
    pub(super) store: &'a mut Store,
}

impl Unreliable<'_> {
    pub(super) fn on_frame(
        &mut self,
        expires_at: Instant,
        config: &ChannelConfig,
        frame: &MsgFrame<'_>,
    ) -> Result<Frame, ChannelError> {
        let channel = frame.header.channel;
        let len_max = config.message_bytes_max;
        let fragment = match frame.header.fragment {
            // A whole message that may be retransmitted.
            Some(SINGLE) if !self.inbound.is_sequenced() => {
                if frame.data.len() > len_max.min(FRAGMENT_LEN) {
                    return Err(FragmentError::Length(frame.data.len()).into());
                }
                None
            }
            Some(position) => Some(Fragment::new(position, frame.data, len_max)?),
            None if frame.data.len() <= len_max => None,
            None => return Err(ChannelError::Frame),
        };
        let low = frame.header.id.ok_or(ChannelError::Frame)?;
        let note = self.inbound.note(low);
        let (Note::First(id) | Note::Further(id)) = note else {
            return Ok(match note {
                Note::Overtaken => Frame::Overtaken,
                Note::First(_) | Note::Further(_) | Note::Old => Frame::GivenUp,
            });
        };
        let name = SplitMessage { channel, id };
        let Some(fragment) = fragment else {
            return self.on_whole(name, note, frame.data);
        };
        let Buffers {
            reassembler,
            unread,
        } = self.store.buffers();
        if matches!(note, Note::First(_)) {
            self.reassembly
                .begin(expires_at, name, fragment.count(), reassembler);
        }
        match self.reassembly.on_fragment(name, &fragment, reassembler)? {
            Progress::Stored => Ok(Frame::New),
            Progress::Repeated => Ok(Frame::Repeated),
            Progress::Over if self.inbound.is_complete(id) => Ok(Frame::Repeated),
            Progress::Over => Ok(Frame::GivenUp),
            Progress::Complete(key) => {
                unread.push_unreliable(channel, |queue| {
                    reassembler.take(key, &mut |bytes| queue.push(bytes));
                });
                self.inbound.on_complete(id);
                self.on_delivered(name);
                Ok(Frame::New)
            }
        }
    }

    fn on_whole(
        &mut self,
        name: SplitMessage,
        note: Note,
        data: &[u8],
    ) -> Result<Frame, ChannelError> {
        if matches!(note, Note::Further(_)) {
            if self.reassembly.contains(name) {
                return Err(FragmentError::Contradiction.into());
            }
            return Ok(Frame::Repeated);
        }
        self.store
            .buffers()
            .unread
            .push_unreliable(name.channel, |queue| queue.push(data));
        self.on_delivered(name);
        Ok(Frame::New)
    }

    fn on_delivered(&mut self, name: SplitMessage) {
        if self.inbound.on_delivered(name.id) {
            self.reassembly
                .overtake(name.channel, name.id, &mut self.store.buffers().reassembler);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// New data.
    New,
    Repeated,
    /// Its message was given up before it was complete, or is too old to tell.
    GivenUp,
    /// A newer message of its sequenced channel was delivered.
    Overtaken,
}

/// The position of an unreliable message with a number that is not split.
const SINGLE: Position = Position { index: 0, count: 1 };

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
        fn twp_m2_m6_sequenced_channels_deliver_nothing_up_to_the_last(
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
