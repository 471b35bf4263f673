//! The receiving half: from MSG frames to messages.

mod reliable;
mod store;
mod unreliable;

use wire::Instant;

use crate::channel::{ChannelError, ChannelId, ChannelTable, Delivery, MsgFrame};
use crate::fragment::REASSEMBLY_LIFE;
use store::Store;
use unreliable::{Frame, Reassembly, Unreliable};

/// The receiving half of a session's channels.
///
/// Memory is bounded whatever the peer sends: unreliable messages hold 64 KiB in fragments and 64
/// KiB unread, reliable ones with spare capacity three windows.
#[derive(Debug)]
pub struct Inbox {
    table: ChannelTable,
    /// One for each row of the table.
    channels: Vec<Inbound>,
    /// Shared by all channels.
    store: Store,
    /// Incomplete unreliable messages.
    reassembly: Reassembly,
    /// Duplicate frames.
    repeated: u64,
    /// Frames of sequenced messages older than a delivered one.
    overtaken: u64,
}

#[derive(Debug)]
enum Inbound {
    /// Unreliable or sequenced.
    Unreliable(unreliable::Inbound),
    /// Reliable, ordered or unordered.
    Reliable(reliable::Inbound),
}

impl Inbox {
    /// Creates the receiving half of `table` with `window`, its [`ChannelTable::receive_window`].
    /// Messages are numbered from `first_id`, which is 0 for a session.
    #[must_use]
    pub fn new(table: ChannelTable, window: usize, first_id: u64) -> Self {
        let channels = table
            .rows()
            .iter()
            .map(|row| {
                if row.delivery.is_reliable() {
                    Inbound::Reliable(reliable::Inbound::new(row.delivery, first_id))
                } else {
                    Inbound::Unreliable(unreliable::Inbound::new(row.delivery, first_id))
                }
            })
            .collect();
        Self {
            table,
            channels,
            store: Store::new(window as u64),
            reassembly: Reassembly::default(),
            repeated: 0,
            overtaken: 0,
        }
    }

    /// Processes a frame of an authenticated packet that is no replay. Returns whether the packet
    /// may be acknowledged.
    ///
    /// # Errors
    ///
    /// [`ChannelError`], which closes the session. The frame's data is lost.
    pub fn on_message(
        &mut self,
        now: Instant,
        frame: &MsgFrame<'_>,
    ) -> Result<Reception, ChannelError> {
        let channel = frame.header.channel;
        let config = self.table.get(channel).ok_or(ChannelError::Frame)?;
        let inbound = self
            .channels
            .get_mut(usize::from(channel.0))
            .ok_or(ChannelError::Frame)?;
        if config.delivery == Delivery::Unreliable && frame.header.fragment.is_none() {
            // A message without a number has no other state.
            if frame.data.len() > config.message_bytes_max {
                return Err(ChannelError::Frame);
            }
            self.store
                .buffers()
                .unread
                .push_unreliable(channel, |queue| queue.push(frame.data));
            return Ok(Reception::Taken);
        }
        let outcome = match inbound {
            Inbound::Reliable(inbound) => {
                if inbound.on_frame(config, frame, &mut self.store)? {
                    self.store.tidy();
                    Frame::New
                } else {
                    Frame::Repeated
                }
            }
            Inbound::Unreliable(inbound) => {
                let mut unreliable = Unreliable {
                    inbound,
                    reassembly: &mut self.reassembly,
                    store: &mut self.store,
                };
                unreliable.on_frame(now + REASSEMBLY_LIFE, config, frame)?
            }
        };
        let count = match outcome {
            Frame::New => return Ok(Reception::Taken),
            Frame::Repeated | Frame::GivenUp => &mut self.repeated,
            Frame::Overtaken => &mut self.overtaken,
        };
        *count = count.saturating_add(1);
        Ok(if outcome == Frame::GivenUp {
            Reception::GivenUp
        } else {
            Reception::Taken
        })
    }

    /// Moves the oldest message to `out`, replacing its content, and returns its channel.
    pub fn recv(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let taken = self.store.buffers.as_mut()?.unread.take(out)?;
        self.store.credit.on_read(taken.credit);
        Some(taken.channel)
    }

    /// Drops unreliable messages with overdue fragments.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(buffers) = &mut self.store.buffers {
            self.reassembly.expire(now, &mut buffers.reassembler);
        }
    }

    /// Releases the memory of all empty queues. Later messages allocate again.
    pub fn shrink(&mut self) {
        for channel in &mut self.channels {
            match channel {
                Inbound::Unreliable(_) => {}
                Inbound::Reliable(inbound) => inbound.shrink(),
            }
        }
        self.store.shrink();
        self.reassembly.shrink();
    }

    /// Records that a WINDOW with `grant` was sent.
    pub const fn on_window_sent(&mut self, grant: u64) {
        self.store.credit.on_sent(grant);
    }

    /// Records that a WINDOW with `grant` was acknowledged.
    pub fn on_window_acked(&mut self, grant: u64) {
        self.store.credit.on_acknowledged(grant);
    }

    /// Records that a WINDOW with `grant` was lost.
    pub const fn on_window_lost(&mut self, grant: u64) {
        self.store.credit.on_lost(grant);
    }

    /// Returns the grant for the next packet, in bytes since the session's start.
    #[must_use]
    pub fn window_to_send(&self) -> Option<u64> {
        self.store.credit.due()
    }

    /// Returns whether no message waits for the application.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.store
            .buffers
            .as_ref()
            .is_none_or(|buffers| buffers.unread.is_empty())
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.reassembly.expires()
    }

    /// Returns what was dropped so far.
    #[must_use]
    pub fn counts(&self) -> InboxCounts {
        InboxCounts {
            repeated: self.repeated,
            overtaken: self.overtaken,
            unread_dropped: self.store.dropped(),
            reassemblies_dropped: self.reassembly.given_up,
        }
    }

    /// Returns the bytes charged for unreliable reassembly, at most
    /// [`UNRELIABLE_BUDGET`](crate::fragment::UNRELIABLE_BUDGET).
    #[must_use]
    pub const fn reassembly_charged(&self) -> usize {
        self.reassembly.charged
    }

    /// Returns the heap memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let channels = self.channels.iter().map(|channel| match channel {
            Inbound::Unreliable(inbound) => inbound.memory(),
            Inbound::Reliable(inbound) => inbound.memory(),
        });
        let slots = self
            .channels
            .capacity()
            .saturating_mul(size_of::<Inbound>());
        [slots, self.store.memory(), self.reassembly.memory()]
            .into_iter()
            .chain(channels)
            .fold(0, usize::saturating_add)
    }
}

/// Whether an [`Inbox`] accepted a frame.
///
/// Senders report a message as delivered when its packets are acknowledged. So a packet with a
/// fragment of a message that was given up must not be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// Accepted, a duplicate, or superseded on a sequenced channel.
    Taken,
    /// Its message was given up, or is too old to tell: do not acknowledge its packet.
    GivenUp,
}

/// What an [`Inbox`] dropped since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Duplicate frames, and frames of messages that were given up or too old.
    pub repeated: u64,
    /// Frames of sequenced messages that arrived after a newer message.
    pub overtaken: u64,
    /// Unreliable messages that the application did not read in time.
    pub unread_dropped: u64,
    /// Incomplete unreliable messages that expired, were displaced by others, or were superseded on
    /// a sequenced channel.
    pub reassemblies_dropped: u64,
}
