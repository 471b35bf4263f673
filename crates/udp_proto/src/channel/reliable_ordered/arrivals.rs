//! What arrives on a reliable, ordered channel.

#![warn(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

use crate::channel::{
    ChannelConfig, ChannelError, ChannelId, ID_WINDOW, MsgFrame, frame_credit, widen,
};
use crate::fragment::{Admission, Fragment, Key};
use crate::inbox::Store;

/// The receiving half of a reliable, ordered channel: what came before its turn.
///
/// What it may hold is bounded by the session's credit and by [`ID_WINDOW`].
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Number of the message whose turn it is.
    next: u64,
    /// What there is of messages `next`, `next + 1`, ...; shorter than [`ID_WINDOW`].
    early: VecDeque<Option<Early>>,
}

/// A message that is not complete, or not in turn.
#[derive(Clone, Copy, Debug)]
struct Early {
    /// Where its bytes are.
    key: Key,
    /// What its frames that came have spent of the credit.
    credit: usize,
}

impl Inbound {
    /// Makes the half whose peer numbers messages from `first_id` on.
    pub(crate) const fn new(first_id: u64) -> Self {
        Self {
            next: first_id,
            early: VecDeque::new(),
        }
    }

    /// Takes a frame of this channel. Returns whether it was new; a repeat changes nothing.
    pub(crate) fn on_frame(
        &mut self,
        config: &ChannelConfig,
        frame: &MsgFrame<'_>,
        store: &mut Store,
    ) -> Result<bool, ChannelError> {
        let id = widen(self.next, frame.header.id.ok_or(ChannelError::Frame)?);
        let fragment = match frame.header.fragment {
            Some(position) => Fragment::new(position, frame.data, config.message_bytes_max)?,
            None if frame.data.len() <= config.message_bytes_max => Fragment::whole(frame.data),
            None => return Err(ChannelError::Frame),
        };
        let Some(ahead) = id.checked_sub(self.next) else {
            return Ok(false);
        };
        if ahead >= ID_WINDOW {
            return Err(ChannelError::Flow);
        }
        let place = usize::try_from(ahead).map_err(|_| ChannelError::Flow)?;
        let known = self.early.get(place).copied().flatten();
        if let Some(early) = known
            && store.reassembler.admit(early.key, &fragment)? == Admission::Repeated
        {
            return Ok(false);
        }
        let credit = frame_credit(frame.data.len());
        store.credit.spend(credit)?;
        let channel = frame.header.channel;
        if place == 0 && fragment.count() == 1 {
            // The common case goes straight to the application.
            store
                .unread
                .push_reliable(channel, credit, |ring| ring.push(frame.data));
            self.early.pop_front();
            self.next = self.next.saturating_add(1);
        } else {
            let early = known.unwrap_or_else(|| Early {
                key: store.reassembler.begin(fragment.count()),
                credit: 0,
            });
            store.reassembler.insert(early.key, &fragment);
            let credit = early.credit.saturating_add(credit);
            self.keep(place, Early { credit, ..early });
        }
        self.deliver(channel, store);
        Ok(true)
    }

    /// Gives back memory, where no message is early.
    pub(crate) fn shrink(&mut self) {
        if self.early.is_empty() {
            self.early = VecDeque::new();
        }
    }

    /// Returns the heap memory it keeps, bytes, without that of the messages.
    pub(crate) fn memory(&self) -> usize {
        self.early
            .capacity()
            .saturating_mul(size_of::<Option<Early>>())
    }

    /// Puts `early` into its place, which is below [`ID_WINDOW`].
    fn keep(&mut self, place: usize, early: Early) {
        while self.early.len() <= place {
            self.early.push_back(None);
        }
        if let Some(slot) = self.early.get_mut(place) {
            *slot = Some(early);
        }
    }

    /// Hands over every message whose turn it is and which is complete.
    fn deliver(&mut self, channel: ChannelId, store: &mut Store) {
        while let Some(Some(Early { key, credit })) = self.early.front().copied()
            && store.reassembler.is_complete(key)
        {
            let reassembler = &mut store.reassembler;
            store.unread.push_reliable(channel, credit, |ring| {
                reassembler.take(key, &mut |bytes| ring.push(bytes));
            });
            self.early.pop_front();
            self.next = self.next.saturating_add(1);
        }
    }
}
