//! What comes in: from MSG frames to messages for the application.

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
/// Memory, whatever a peer sends: unreliable messages hold at most 64 KiB in fragments and 64 KiB
/// unread. Reliable ones are bounded by the window, of which each frame spends at least
/// [`FRAME_CREDIT_MIN`](crate::channel::FRAME_CREDIT_MIN) bytes: with what is kept for more of them, three
/// windows, also where a peer sends in one form after the other.
#[derive(Debug)]
pub struct Inbox {
    /// What both sides agreed on.
    table: ChannelTable,
    /// One for each row of the table.
    channels: Vec<Inbound>,
    /// What the channels share.
    store: Store,
    /// Unreliable messages of which some fragments are there.
    reassembly: Reassembly,
    /// Frames that repeated what was there.
    repeated: u64,
    /// Frames of sequenced messages behind newer ones.
    overtaken: u64,
}

/// The receiving half of one channel.
#[derive(Debug)]
enum Inbound {
    /// Of an unreliable one, sequenced or not.
    Unreliable(unreliable::Inbound),
    /// Of a reliable one, ordered or not.
    Reliable(reliable::Inbound),
}

impl Inbox {
    /// Makes the half of channels `table`, of whose reliable messages the peer was granted
    /// `window` bytes in the handshake, and numbers messages from `first_id` on.
    ///
    /// `window` comes from [`ChannelTable::receive_window`]. A session starts at 0.
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

    /// Takes a frame of a packet that opened and was not seen before, and says whether the packet may
    /// be acknowledged.
    ///
    /// # Errors
    ///
    /// [`ChannelError`], with whose code the session closes. What the frame brought is then lost.
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
            // Nothing is known of such a message but that it is here.
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

    /// Moves the message that came first to `out`, whose content it replaces, and returns its
    /// channel.
    ///
    /// Reading reliable messages is what lets the peer send more.
    pub fn recv(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let taken = self.store.stock.as_mut()?.unread.take(out)?;
        self.store.credit.on_read(taken.credit);
        Some(taken.channel)
    }

    /// Gives up unreliable messages whose missing fragments are overdue.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(stock) = &mut self.store.stock {
            self.reassembly.expire(now, &mut stock.reassembler);
        }
    }

    /// Gives back the memory of all that is empty, for a session that has fallen quiet.
    ///
    /// What comes next allocates again.
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

    /// Takes note that a WINDOW frame with `grant` left.
    pub const fn on_window_sent(&mut self, grant: u64) {
        self.store.credit.on_sent(grant);
    }

    /// Takes note that the packet of a WINDOW frame with `grant` was acknowledged.
    pub fn on_window_acked(&mut self, grant: u64) {
        self.store.credit.on_acknowledged(grant);
    }

    /// Takes note that the packet of a WINDOW frame with `grant` is lost.
    pub const fn on_window_lost(&mut self, grant: u64) {
        self.store.credit.on_lost(grant);
    }

    /// Returns the grant that the next packet shall carry: bytes since the session's start.
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

    /// Returns what unreliable reassembly is charged, bytes, at most
    /// [`UNRELIABLE_BUDGET`](crate::fragment::UNRELIABLE_BUDGET).
    #[must_use]
    pub const fn reassembly_charged(&self) -> usize {
        self.reassembly.charged()
    }

    /// Returns the heap memory it keeps, bytes.
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

/// An unreliable channel, and what it shares with others.
struct Unreliable<'a> {
    /// The channel's own.
    inbound: &'a mut unreliable::Inbound,
    /// Split messages of all unreliable channels.
    reassembly: &'a mut Reassembly,
    /// What all channels share.
    store: &'a mut Store,
}

impl Unreliable<'_> {
    /// Takes a frame. `expires_at` is for a message that begins with it.
    fn on_frame(
        &mut self,
        expires_at: Instant,
        config: &ChannelConfig,
        frame: &MsgFrame<'_>,
    ) -> Result<Frame, ChannelError> {
        let channel = frame.header.channel;
        let len_max = config.message_bytes_max;
        let fragment = match frame.header.fragment {
            // A whole message that may come again.
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

    /// Takes a whole message with a number.
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

    /// Drops what the message, which goes to the application, overtook.
    fn on_delivered(&mut self, name: SplitMessage) {
        if self.inbound.on_delivered(name.id) {
            self.reassembly
                .overtake(name.channel, name.id, &mut self.store.stock().reassembler);
        }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// It brought something.
    New,
    /// It came before.
    Repeated,
    /// It is of a message that was given up before all of it came, or is too old to tell.
    GivenUp,
    /// A newer message of its sequenced channel was delivered.
    Overtaken,
}

/// What an [`Inbox`] says of a frame.
///
/// The acknowledgement of a packet is what its sender calls a message delivered for. So a packet is not
/// acknowledged that holds a fragment of a message which was given up: there is at least one such
/// fragment, since the message was not complete, and without it the sender never has all acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// It was taken, or had been before, or was overtaken on a sequenced channel.
    Taken,
    /// Its message was given up, or is too old to tell: its packet must not be acknowledged.
    GivenUp,
}

/// What an [`Inbox`] dropped since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Frames that repeated what was there, were of messages given up, or came too late to tell.
    pub repeated: u64,
    /// Frames of sequenced messages that came behind a newer message.
    pub overtaken: u64,
    /// Unreliable messages that the application did not read in time.
    pub unread_dropped: u64,
    /// Unreliable messages whose fragments did not all come in time, that made place for others, or
    /// that a newer one of their sequenced channel overtook.
    pub reassemblies_dropped: u64,
}

/// The place of the one fragment of an unreliable message that has a number and is not split.
const SINGLE: Position = Position { index: 0, count: 1 };

/// What the channels of a session share.
#[derive(Debug)]
pub(crate) struct Store {
    /// What is there; `None` where nothing is, and nothing has come for long.
    stock: Option<Box<Stock>>,
    /// What the peer may still send of reliable messages.
    pub(crate) credit: Credit,
    /// Unreliable messages that were dropped while there was another stock.
    dropped: u64,
}

/// Messages on their way from packets to the application.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Those that are not complete, or not in turn.
    pub(crate) reassembler: Reassembler,
    /// Those that wait for the application.
    pub(crate) unread: Unread,
}

impl Store {
    /// Makes an empty one, for a peer who was granted `window` bytes.
    const fn new(window: u64) -> Self {
        Self {
            stock: None,
            credit: Credit::new(window),
            dropped: 0,
        }
    }

    /// Returns what is there, or a place for what comes.
    #[inline]
    pub(crate) fn stock(&mut self) -> &mut Stock {
        self.stock.get_or_insert_default()
    }

    /// Once all parts together keep more than one of them that grew alone, has those give back memory
    /// that hold little of what they grew to: a peer who sends in one form after the other fills
    /// each part in its turn.
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

    /// Gives back the memory of all that is empty.
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

    /// Returns the heap memory it keeps, bytes.
    fn memory(&self) -> usize {
        self.stock.as_ref().map_or(0, |stock| {
            size_of::<Stock>()
                .saturating_add(stock.reassembler.memory())
                .saturating_add(stock.unread.memory())
        })
    }
}

/// What unreliable messages take that are put together and that wait, with what vectors that grow by half
/// keep.
const UNRELIABLE_MEMORY_MAX: usize = (UNRELIABLE_BUDGET + UNRELIABLE_UNREAD_MAX) * 8 / 5;

/// The receiver's side of flow control; TWP/1, section 7.2.
///
/// All counts are cumulative since the session's start.
#[derive(Debug)]
pub(crate) struct Credit {
    /// Bytes that may be received and not yet read.
    window: u64,
    /// What the peer may send. At first the window, which it knows from the handshake.
    granted: u64,
    /// What it sent.
    spent: u64,
    /// What the application has read of it.
    read: u64,
    /// The highest grant that the peer is known to have.
    acknowledged: u64,
    /// Whether the grant is to be sent, for the first time or again.
    is_due: bool,
}

impl Credit {
    /// Grants one window.
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

    /// Returns the bytes that may be received and not yet read.
    const fn window(&self) -> u64 {
        self.window
    }

    /// Takes what a new frame costs from the grant.
    pub(crate) const fn spend(&mut self, credit: usize) -> Result<(), ChannelError> {
        let spent = self.spent.saturating_add(credit as u64);
        if spent > self.granted {
            return Err(ChannelError::Flow);
        }
        self.spent = spent;
        Ok(())
    }

    /// Takes note that the application read a message whose frames cost `credit`.
    const fn on_read(&mut self, credit: usize) {
        self.read = self.read.saturating_add(credit as u64);
        let grant = self.read.saturating_add(self.window);
        // A grant for each message would be a frame for each.
        if grant.saturating_sub(self.granted) >= self.window / 4 {
            self.granted = grant;
            self.is_due = true;
        }
    }

    /// Returns the grant to be sent.
    fn due(&self) -> Option<u64> {
        self.is_due.then_some(self.granted)
    }

    /// Takes note that `grant` left in a packet.
    const fn on_sent(&mut self, grant: u64) {
        if grant == self.granted {
            self.is_due = false;
        }
    }

    /// Takes note that the peer has `grant`.
    fn on_acknowledged(&mut self, grant: u64) {
        self.acknowledged = self.acknowledged.max(grant.min(self.granted));
        if self.acknowledged == self.granted {
            self.is_due = false;
        }
    }

    /// Takes note that a packet with `grant` is lost. An older one is worth nothing any more.
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
    fn grants_at_a_quarter_read_and_again_until_acknowledged() {
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
        assert_eq!(credit.due(), Some(500), "nobody has it yet");
    }
}
