//! The receiving half: from MSG frames to messages.

mod unread;

use wire::Instant;

use crate::channel::unreliable::{self, Note, Progress, Reassembly, SplitMessage};
use crate::channel::{
    ChannelConfig, ChannelError, ChannelId, ChannelTable, Delivery, MsgFrame, reliable,
};
use crate::fragment::{
    FRAGMENT_LEN, Fragment, FragmentError, Position, REASSEMBLY_LIFE, Reassembler,
    UNRELIABLE_BUDGET,
};
use unread::{UNRELIABLE_UNREAD_MAX, Unread};

/// The receiving half of a session's channels.
///
/// Memory is bounded whatever the peer sends. Unreliable messages hold at most 64 KiB in fragments
/// and 64 KiB unread. Reliable messages are bounded by the window, of which each frame uses at
/// least [`FRAME_CREDIT_MIN`](crate::channel::FRAME_CREDIT_MIN) bytes: with spare capacity three
/// windows, even if the peer alternates between forms.
#[derive(Debug)]
pub struct Inbox {
    /// The negotiated table.
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
    /// Creates the receiving half of `table`. The peer was granted `window` bytes of reliable
    /// messages in the handshake. Messages are numbered from `first_id`, which is 0 for a session.
    ///
    /// `window` is [`ChannelTable::receive_window`].
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
                .stock()
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
    ///
    /// Reading reliable messages lets the peer send more.
    pub fn recv(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let taken = self.store.stock.as_mut()?.unread.take(out)?;
        self.store.credit.on_read(taken.credit);
        Some(taken.channel)
    }

    /// Drops unreliable messages with overdue fragments.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(stock) = &mut self.store.stock {
            self.reassembly.expire(now, &mut stock.reassembler);
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
            .stock
            .as_ref()
            .is_none_or(|stock| stock.unread.is_empty())
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
            reassemblies_dropped: self.reassembly.given_up(),
        }
    }

    /// Returns the bytes charged for unreliable reassembly, at most
    /// [`UNRELIABLE_BUDGET`].
    #[must_use]
    pub const fn reassembly_charged(&self) -> usize {
        self.reassembly.charged()
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

/// An unreliable channel, with shared state.
struct Unreliable<'a> {
    inbound: &'a mut unreliable::Inbound,
    /// Split messages of all unreliable channels.
    reassembly: &'a mut Reassembly,
    store: &'a mut Store,
}

impl Unreliable<'_> {
    /// Processes a frame. A message that starts with it expires at `expires_at`.
    fn on_frame(
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
        let Stock {
            reassembler,
            unread,
        } = self.store.stock();
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

    /// Processes a whole message with a number.
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
            .stock()
            .unread
            .push_unreliable(name.channel, |queue| queue.push(data));
        self.on_delivered(name);
        Ok(Frame::New)
    }

    /// Drops messages that the delivered one superseded.
    fn on_delivered(&mut self, name: SplitMessage) {
        if self.inbound.on_delivered(name.id) {
            self.reassembly
                .overtake(name.channel, name.id, &mut self.store.stock().reassembler);
        }
    }
}

/// The outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// New data.
    New,
    /// A duplicate.
    Repeated,
    /// Its message was given up before it was complete, or is too old to tell.
    GivenUp,
    /// A newer message of its sequenced channel was delivered.
    Overtaken,
}

/// Whether an [`Inbox`] accepted a frame.
///
/// Senders report a message as delivered when its packets are acknowledged. So a packet with a
/// fragment of a message that was given up must not be acknowledged: at least one such fragment
/// exists, and without it the sender never reports the message as delivered.
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

/// The position of an unreliable message with a number that is not split.
const SINGLE: Position = Position { index: 0, count: 1 };

/// State shared by a session's channels.
#[derive(Debug)]
pub(crate) struct Store {
    /// `None` while nothing is held and nothing has arrived for long.
    stock: Option<Box<Stock>>,
    /// Flow control of reliable messages.
    pub(crate) credit: Credit,
    /// Unreliable messages dropped by earlier stocks.
    dropped: u64,
}

/// Messages between packets and the application.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Incomplete or out of order.
    pub(crate) reassembler: Reassembler,
    pub(crate) unread: Unread,
}

impl Store {
    /// Creates an empty store for a peer with a grant of `window` bytes.
    const fn new(window: u64) -> Self {
        Self {
            stock: None,
            credit: Credit::new(window),
            dropped: 0,
        }
    }

    /// Returns the stock, allocated if absent.
    #[inline]
    pub(crate) fn stock(&mut self) -> &mut Stock {
        self.stock.get_or_insert_default()
    }

    /// Shrinks parts with little content once all together keep more than one part alone could. A
    /// peer that alternates between forms would otherwise grow each part in turn.
    fn tidy(&mut self) {
        let window = usize::try_from(self.credit.window()).unwrap_or(usize::MAX);
        let alone = window.saturating_add(window / 2).max(UNRELIABLE_MEMORY_MAX);
        let Stock {
            reassembler,
            unread,
        } = self.stock();
        let kept = reassembler.stores_memory();
        if kept.saturating_add(unread.memory()) > alone {
            reassembler.tidy();
            unread.tidy();
        }
    }

    /// Releases the memory of empty parts.
    fn shrink(&mut self) {
        let Some(stock) = &mut self.stock else {
            return;
        };
        stock.unread.shrink();
        stock.reassembler.shrink();
        if stock.unread.is_empty() && stock.reassembler.is_empty() {
            self.dropped = self.dropped();
            self.stock = None;
        }
    }

    fn dropped(&self) -> u64 {
        let of_this = self
            .stock
            .as_ref()
            .map_or(0, |stock| stock.unread.dropped());
        self.dropped.saturating_add(of_this)
    }

    /// Returns the heap memory in bytes.
    fn memory(&self) -> usize {
        self.stock.as_ref().map_or(0, |stock| {
            size_of::<Stock>()
                .saturating_add(stock.reassembler.memory())
                .saturating_add(stock.unread.memory())
        })
    }
}

/// Memory of unreliable messages, incomplete and unread, including the spare capacity of vectors
/// that grow by half.
const UNRELIABLE_MEMORY_MAX: usize = (UNRELIABLE_BUDGET + UNRELIABLE_UNREAD_MAX) * 8 / 5;

/// Flow control, receiver's side; TWP/1, section 7.2.
///
/// All counts are cumulative since the session's start.
#[derive(Debug)]
pub(crate) struct Credit {
    /// Bytes that may be received and unread.
    window: u64,
    /// The peer's limit; initially the window, which it knows from the handshake.
    granted: u64,
    /// Received.
    spent: u64,
    /// Read by the application.
    read: u64,
    /// The highest grant that the peer is known to have.
    acknowledged: u64,
    /// Whether to send the grant, for the first time or again.
    is_due: bool,
}

impl Credit {
    const fn new(window: u64) -> Self {
        Self {
            window,
            granted: window,
            spent: 0,
            read: 0,
            acknowledged: window,
            is_due: false,
        }
    }

    const fn window(&self) -> u64 {
        self.window
    }

    /// Charges a new frame.
    pub(crate) const fn spend(&mut self, credit: usize) -> Result<(), ChannelError> {
        let spent = self.spent.saturating_add(credit as u64);
        if spent > self.granted {
            return Err(ChannelError::Flow);
        }
        self.spent = spent;
        Ok(())
    }

    /// Records that the application read a message that cost `credit`.
    const fn on_read(&mut self, credit: usize) {
        self.read = self.read.saturating_add(credit as u64);
        let grant = self.read.saturating_add(self.window);
        // Not for every message, which would cost a frame each.
        if grant.saturating_sub(self.granted) >= self.window / 4 {
            self.granted = grant;
            self.is_due = true;
        }
    }

    /// Returns the grant to send.
    fn due(&self) -> Option<u64> {
        self.is_due.then_some(self.granted)
    }

    /// Records that `grant` was sent.
    const fn on_sent(&mut self, grant: u64) {
        if grant == self.granted {
            self.is_due = false;
        }
    }

    /// Records that the peer has `grant`.
    fn on_acknowledged(&mut self, grant: u64) {
        self.acknowledged = self.acknowledged.max(grant.min(self.granted));
        if self.acknowledged == self.granted {
            self.is_due = false;
        }
    }

    /// Records the loss of a packet with `grant`. An older grant is obsolete.
    const fn on_lost(&mut self, grant: u64) {
        if grant == self.granted && self.acknowledged < self.granted {
            self.is_due = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_after_a_quarter_is_read_and_repeats_until_acknowledged() {
        let mut credit = Credit::new(400);
        assert_eq!(credit.spend(401), Err(ChannelError::Flow));
        assert_eq!(credit.spend(400), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
        credit.on_read(99);
        assert_eq!(credit.due(), None);
        credit.on_read(1);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        assert_eq!(credit.due(), None, "it is on its way");
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        credit.on_read(100);
        assert_eq!(credit.due(), Some(600));
        credit.on_sent(600);
        credit.on_lost(500);
        assert_eq!(credit.due(), None, "a newer grant is on its way");
        credit.on_acknowledged(600);
        credit.on_lost(600);
        assert_eq!(credit.due(), None, "the peer has it");
        assert_eq!(credit.spend(200), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_granted_changes_nothing() {
        let mut credit = Credit::new(400);
        credit.on_acknowledged(u64::MAX);
        credit.on_read(100);
        credit.on_sent(500);
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500), "not acknowledged yet");
    }
}
