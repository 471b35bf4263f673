//! The sending half: from messages to MSG frames.

mod packet_builder;
mod partial_reliable;
mod reliable;
mod senders;
mod tracker;
mod unreliable;

use core::time::Duration;

use wire::Instant;

use crate::channel::{
    ChannelId, ChannelTable, Content, Message, MessageId, SendError, frame_count, message_credit,
};
use crate::event::{MessageOutcome, Settled};
use packet_builder::{Next, PacketBuilder, bit_of, has_channel};
use partial_reliable::AckOutcome;
use senders::{Class, Outbound, Round, Senders};
use tracker::Tracker;
use unreliable::Use;

pub use packet_builder::{End, FillPolicy, Room, Written};

/// The sending half of a session's channels.
///
/// A packet takes lost frames first, then new ones, each by priority. Channels of equal priority
/// share byte for byte (deficit round robin: Shreedhar and Varghese, 1996).
#[derive(Debug)]
pub struct Outbox {
    table: ChannelTable,
    senders: Senders,
    /// The channels grouped by priority, highest first.
    rounds: Vec<Round>,
    /// The channels' message ids while compacted; `senders` and `rounds` are empty then.
    compacted: Option<Box<[SavedIds]>>,
    /// Bit n is set if channel n is reliable.
    reliable: u32,
    /// The longest reliable message, in credit, that the peer's window can always admit.
    credit_max: usize,
    /// Channels that may have something to write: bit n is channel n.
    busy: u32,
    /// Channels with messages that are retransmitted until their deadline: bit n is channel n.
    keeping: u32,
    tracker: Option<Box<Tracker>>,
    counts: OutboxCounts,
}

impl Outbox {
    /// Creates the sending half of `table`. The peer granted `window` bytes of reliable messages.
    /// Messages are numbered from `first_id`, which is 0 for a session.
    #[must_use]
    pub fn new(table: ChannelTable, window: usize, first_id: u64) -> Self {
        Self {
            rounds: Round::of(&table),
            compacted: None,
            senders: Senders::new(&table, window as u64, first_id),
            reliable: table.reliable_bits(),
            table,
            credit_max: window.saturating_sub(window / 4),
            busy: 0,
            keeping: 0,
            tracker: None,
            counts: OutboxCounts::default(),
        }
    }

    /// Appends MSG frames to the plaintext `out`, calls `contents` for each, and returns their
    /// number.
    pub fn fill(
        &mut self,
        now: Instant,
        room: Room,
        out: &mut Vec<u8>,
        contents: &mut dyn FnMut(Written),
    ) -> usize {
        self.handle_timeout(now);
        self.senders.now = now;
        let mut builder = PacketBuilder::new(room, out, contents);
        builder.tracks_all = self
            .tracker
            .as_ref()
            .is_some_and(|tracker| !tracker.is_settled());
        match room.fill_policy {
            FillPolicy::Any => {
                self.write_lost(self.reliable | self.keeping, &mut builder);
                self.write_new(Class::Any, &mut builder);
            }
            FillPolicy::ReliableFirst => {
                self.write_lost(self.reliable, &mut builder);
                self.write_new(Class::Reliable, &mut builder);
                if !builder.is_empty() {
                    self.write_lost(self.keeping, &mut builder);
                    self.write_new(Class::Unreliable, &mut builder);
                }
            }
        }
        let frames = builder.finish();
        if self.keeping != 0 {
            self.drop_stale();
        }
        self.forget_idle();
        frames
    }

    /// Writes lost frames of `channels`, highest priority first.
    fn write_lost(&mut self, channels: u32, builder: &mut PacketBuilder<'_>) {
        for round in &self.rounds {
            if round.has_any(self.busy & channels) {
                for channel in round.channels().filter(|id| has_channel(channels, *id)) {
                    self.senders.write_lost(channel, builder);
                }
            }
        }
    }

    /// Drops retransmitted messages that have fallen too far behind, and updates `keeping`.
    fn drop_stale(&mut self) {
        let tracker = &mut self.tracker;
        for (id, channel) in (0..).map(ChannelId).zip(&mut self.senders.channels) {
            let bit = bit_of(id.0.into());
            if self.keeping & bit == 0 {
                continue;
            }
            if let Outbound::Unreliable(outbound) = channel {
                outbound.drop_stale(|message, outcome| {
                    if let Some(tracker) = tracker {
                        tracker.settle(id, message, outcome);
                    }
                });
                if outbound.expires().is_none() && !outbound.is_keeping() {
                    self.keeping &= !bit;
                }
            }
        }
    }

    /// Clears the bits of idle channels in `busy`.
    fn forget_idle(&mut self) {
        let mut left = self.busy;
        while left != 0 {
            let channel = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            let is_idle = self
                .senders
                .channels
                .get(channel as usize)
                .is_none_or(Outbound::is_idle);
            if is_idle {
                self.busy &= !(1 << channel);
            }
        }
    }

    /// Returns whether any channel may have something to write; `false` is certain.
    #[must_use]
    pub const fn may_have_work(&self) -> bool {
        self.busy != 0
    }

    /// Records that `content` was acknowledged.
    pub fn on_acked(&mut self, content: Content) {
        let channel = usize::from(content.channel().0);
        let (id, message) = (content.channel(), content.message().0);
        match self.senders.channels.get_mut(channel) {
            Some(Outbound::Reliable(outbound)) => {
                let is_complete = outbound.on_acknowledged(message, content.fragment());
                if is_complete && let Some(tracker) = &mut self.tracker {
                    tracker.settle(id, message, MessageOutcome::Delivered);
                }
            }
            Some(Outbound::Unreliable(outbound)) => {
                let outcome = outbound.on_acknowledged(message, content.fragment());
                if let Some(tracker) = &mut self.tracker {
                    match outcome {
                        AckOutcome::NotKept => tracker.on_acked(id, message),
                        AckOutcome::Open => {}
                        AckOutcome::Known(outcome) => tracker.settle(id, message, outcome),
                    }
                }
            }
            None => {}
        }
    }

    /// Records that `content` was lost, and queues it for retransmission if it is reliable or
    /// requested it.
    pub fn on_lost(&mut self, now: Instant, content: Content) {
        match self
            .senders
            .channels
            .get_mut(usize::from(content.channel().0))
        {
            Some(Outbound::Reliable(outbound)) => {
                outbound.on_lost(content.message().0, content.fragment());
                self.busy |= bit_of(content.channel().0.into());
            }
            Some(Outbound::Unreliable(outbound)) => {
                self.counts.lost = self.counts.lost.saturating_add(1);
                if outbound.on_lost(now, content.message().0, content.fragment()) {
                    self.busy |= bit_of(content.channel().0.into());
                } else if let Some(tracker) = &mut self.tracker {
                    tracker.on_lost(now, content.channel(), content.message().0);
                }
            }
            None => {}
        }
    }

    /// Counts lost frames that were not [tracked](Written::is_tracked).
    pub const fn on_untracked_lost(&mut self, frames: u32) {
        self.counts.lost = self.counts.lost.saturating_add(frames as u64);
    }

    /// Applies the grant of a WINDOW frame. A stale one changes nothing.
    pub fn on_window(&mut self, grant: u64) {
        self.senders.window = self.senders.window.max(grant);
    }

    /// Queues the oldest reliable fragment in flight for retransmission as a probe, or else an
    /// unreliable one that is retransmitted. Returns whether one was queued.
    pub fn probe(&mut self) -> bool {
        let channels = &mut self.senders.channels;
        let mut probe = |is_reliable: bool| {
            self.rounds
                .iter()
                .flat_map(Round::channels)
                .find(|channel| match channels.get_mut(*channel) {
                    Some(Outbound::Reliable(outbound)) => is_reliable && outbound.probe(),
                    Some(Outbound::Unreliable(outbound)) => !is_reliable && outbound.probe(),
                    None => false,
                })
        };
        let mut probed = probe(true);
        if probed.is_none() && self.keeping != 0 {
            probed = probe(false);
        }
        self.busy |= probed.map_or(0, bit_of);
        probed.is_some()
    }

    /// Returns whether messages are kept for retransmission until their deadlines.
    #[must_use]
    pub const fn is_keeping(&self) -> bool {
        self.keeping != 0
    }

    /// Drops expired unreliable messages, and settles tracked ones that have counted as lost for
    /// long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.busy | self.keeping == 0 && self.tracker.is_none() {
            return;
        }
        let mut expiry = Expiry {
            now,
            counts: &mut self.counts,
            tracker: self.tracker.as_deref_mut(),
        };
        for (id, channel) in (0..).map(ChannelId).zip(&mut self.senders.channels) {
            if let Outbound::Unreliable(outbound) = channel {
                expiry.run(id, outbound);
            }
        }
        if let Some(tracker) = &mut self.tracker {
            tracker.handle_timeout(now);
        }
    }

    /// Releases the memory of all empty queues. Later messages allocate again.
    pub fn shrink(&mut self) {
        for channel in &mut self.senders.channels {
            match channel {
                Outbound::Unreliable(outbound) => outbound.shrink(),
                Outbound::Reliable(outbound) => outbound.shrink(),
            }
        }
        if self
            .tracker
            .as_ref()
            .is_some_and(|tracker| tracker.is_empty())
        {
            self.tracker = None;
        }
    }

    /// Drops all queued and in-flight messages of a session that has ended. Outcomes of tracked
    /// messages can still be polled.
    pub fn forget(&mut self) {
        self.abandon();
        self.busy = 0;
        self.keeping = 0;
        self.senders = Senders::new(&self.table, 0, 0);
    }

    /// Returns whether [`fill`](Self::fill) would write something with `fill_policy` and
    /// `channels`. Valid until [`poll_timeout`](Self::poll_timeout).
    #[must_use]
    pub fn has_work_for(&self, fill_policy: FillPolicy, channels: u32) -> bool {
        let busy = self.busy & channels;
        if busy == 0 {
            return false;
        }
        if fill_policy == FillPolicy::Any && busy & !self.reliable != 0 && self.has_unreliable(busy)
        {
            return true;
        }
        let class = match fill_policy {
            FillPolicy::Any => Class::Any,
            FillPolicy::ReliableFirst => Class::Reliable,
        };
        if self
            .senders
            .channels
            .iter()
            .enumerate()
            .any(|(id, channel)| {
                has_channel(channels, id)
                    && self.senders.is_of(class, id)
                    && channel.next_lost().is_some()
            })
        {
            return true;
        }
        let credit = self.senders.credit();
        let mut waiting = false;
        self.rounds
            .iter()
            .flat_map(Round::channels)
            .filter(|channel| {
                has_channel(channels, *channel) && self.senders.is_of(class, *channel)
            })
            .filter_map(|channel| self.senders.channels.get(channel))
            .filter(|channel| !channel.is_held_back(self.senders.begin_max))
            .any(|channel| match channel.next_new(credit) {
                Next::Idle => false,
                Next::Waiting => {
                    waiting = true;
                    false
                }
                Next::Frame(outgoing) => outgoing.credit == 0 || !waiting,
            })
    }

    /// Returns whether an unreliable message of `channels` can be sent; it needs no credit.
    fn has_unreliable(&self, channels: u32) -> bool {
        self.senders
            .channels
            .iter()
            .enumerate()
            .filter(|(id, _)| has_channel(channels, *id))
            .any(|(_, channel)| match channel {
                Outbound::Unreliable(outbound) => {
                    outbound.expires().is_some() && !channel.is_held_back(self.senders.begin_max)
                }
                Outbound::Reliable(_) => false,
            })
    }

    /// Sets the most bytes of datagrams that a split unreliable message may need to start; longer
    /// ones wait. Unlimited until called.
    pub const fn set_begin_max(&mut self, bytes: usize) {
        self.senders.begin_max = bytes;
    }

    /// Returns the lowest limit for [`set_begin_max`](Self::set_begin_max) that would release a
    /// waiting message of `channels`.
    #[must_use]
    pub fn held_back(&self, channels: u32) -> Option<usize> {
        let busy = self.busy & channels;
        (0..)
            .zip(&self.senders.channels)
            .filter(|(id, _)| has_channel(busy, *id))
            .filter_map(|(_, channel)| channel.to_begin())
            .filter(|len| *len > self.senders.begin_max)
            .min()
    }

    /// Returns the channels that have partly sent a split unreliable message of at most `len_max`
    /// bytes of datagrams, and the total bytes that remain.
    #[must_use]
    pub fn begun(&self, len_max: usize) -> (u32, usize) {
        if self.busy & !self.reliable == 0 {
            return (0, 0);
        }
        let mut begun = (0, 0_usize);
        for (id, channel) in self.senders.channels.iter().enumerate() {
            if let Outbound::Unreliable(outbound) = channel
                && let Some((len, left)) = outbound.begun()
                && len <= len_max
            {
                begun.0 |= bit_of(id);
                begun.1 = begun.1.saturating_add(left);
            }
        }
        begun
    }

    /// As [`has_work_for`](Self::has_work_for), for any message.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_work_for(FillPolicy::Any, u32::MAX)
    }

    /// Returns whether every message was written, reliable ones acknowledged, and tracked ones
    /// settled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_settled = self
            .tracker
            .as_ref()
            .is_none_or(|tracker| tracker.is_settled());
        is_settled
            && self.senders.channels.iter().all(|channel| match channel {
                Outbound::Unreliable(outbound) => outbound.is_done(),
                Outbound::Reliable(outbound) => outbound.is_empty(),
            })
    }

    /// Returns when the next unreliable message expires or the next tracked one is settled.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.busy | self.keeping == 0 && self.tracker.is_none() {
            return None;
        }
        self.senders
            .channels
            .iter()
            .filter_map(|channel| match channel {
                Outbound::Unreliable(outbound) => outbound.timeout(),
                Outbound::Reliable(_) => None,
            })
            .chain(
                self.tracker
                    .as_ref()
                    .and_then(|tracker| tracker.poll_timeout()),
            )
            .min()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> OutboxCounts {
        self.counts
    }

    /// Returns the heap memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let queues = self.senders.channels.iter().map(|channel| match channel {
            Outbound::Unreliable(outbound) => outbound.memory(),
            Outbound::Reliable(outbound) => outbound.memory(),
        });
        let slots = self
            .senders
            .channels
            .capacity()
            .saturating_mul(size_of::<Outbound>());
        let rounds = self.rounds.iter().map(Round::memory);
        let compacted = self.compacted_memory();
        let tracker = self.tracker.as_ref().map(|tracker| tracker.memory());
        queues
            .chain(rounds)
            .chain([compacted])
            .chain(tracker)
            .fold(slots, usize::saturating_add)
    }

    /// Writes new frames of `class`, highest priority first.
    fn write_new(&mut self, class: Class, builder: &mut PacketBuilder<'_>) {
        let mut expiry = Expiry {
            now: self.senders.now,
            counts: &mut self.counts,
            tracker: self.tracker.as_deref_mut(),
        };
        for round in &mut self.rounds {
            if builder.is_full() {
                break;
            }
            if !round.has_any(self.busy) {
                continue;
            }
            round.run(class, &mut self.senders, builder, &mut expiry);
        }
    }

    /// Queues a copy of `message`. A full unreliable channel drops its oldest messages.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message is not queued.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<MessageId, SendError> {
        self.queue(now, &Message::new(channel, message))
    }

    /// As [`send`](Self::send), and reports the message's outcome once through
    /// [`poll_settled`](Self::poll_settled).
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message is not queued.
    pub fn send_tracked(
        &mut self,
        now: Instant,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        if self
            .tracker
            .as_ref()
            .is_some_and(|tracker| tracker.is_full())
        {
            return Err(SendError::TooManyTracked);
        }
        let number = self.queue(now, message)?;
        self.tracker.get_or_insert_default().begin(
            message.channel,
            number.0,
            frame_count(message.bytes.len()),
        );
        Ok(number)
    }

    /// Sets the default TTL of later unreliable messages of `channel`. Returns whether the channel
    /// exists.
    pub fn set_ttl(&mut self, channel: ChannelId, ttl: Duration) -> bool {
        let Some(table) = self.table.with_ttl(channel, ttl) else {
            return false;
        };
        self.table = table;
        true
    }

    /// Returns the next outcome of a tracked message.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        self.tracker.as_mut()?.poll()
    }

    /// Returns whether [`poll_settled`](Self::poll_settled) has an outcome.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.tracker
            .as_ref()
            .is_some_and(|tracker| tracker.has_settled())
    }

    /// Settles all tracked messages, since the session has ended.
    pub fn abandon(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.drop_all();
        }
    }

    fn queue(&mut self, now: Instant, message: &Message<'_>) -> Result<MessageId, SendError> {
        let Message {
            channel,
            bytes,
            ttl,
            is_repeated,
        } = *message;
        if self.compacted.is_some() {
            self.expand();
        }
        let unknown = SendError::UnknownChannel(channel);
        let config = self.table.get(channel).ok_or(unknown)?;
        let outbound = self
            .senders
            .channels
            .get_mut(usize::from(channel.0))
            .ok_or(unknown)?;
        let len = bytes.len();
        let mut max = config.message_bytes_max;
        if config.delivery.is_reliable() {
            max = max.min(self.credit_max);
        }
        let is_short = !config.delivery.is_reliable() || message_credit(len) <= self.credit_max;
        if len > max || !is_short {
            return Err(SendError::TooLarge { len, max });
        }
        let (counts, tracker) = (&mut self.counts, &mut self.tracker);
        match outbound {
            Outbound::Unreliable(outbound) => {
                let usage = Use {
                    now,
                    expires: now + ttl.unwrap_or(config.ttl),
                    is_repeated,
                };
                let id = outbound.push(usage, config, bytes, |displaced| {
                    counts.displaced = counts.displaced.saturating_add(1);
                    if let Some(tracker) = tracker {
                        tracker.settle(channel, displaced, MessageOutcome::Displaced);
                    }
                });
                self.busy |= bit_of(channel.0.into());
                if is_repeated {
                    self.keeping |= bit_of(channel.0.into());
                }
                Ok(MessageId(id))
            }
            Outbound::Reliable(outbound) => {
                let id = outbound.push(config, bytes).ok_or(SendError::Full)?;
                self.busy |= bit_of(channel.0.into());
                Ok(MessageId(id))
            }
        }
    }

    /// Keeps only the channels' message ids until the next message. Does nothing while messages are
    /// queued, in flight or unsettled.
    pub fn compact(&mut self) {
        if self.compacted.is_some() || !self.is_empty() || self.keeping != 0 {
            return;
        }
        let numbers = self.senders.channels.iter().map(|channel| match channel {
            Outbound::Reliable(outbound) => SavedIds {
                message: outbound.next_message(),
                on_wire: 0,
            },
            Outbound::Unreliable(outbound) => {
                let (message, on_wire) = outbound.next_numbers();
                SavedIds { message, on_wire }
            }
        });
        self.compacted = Some(numbers.collect());
        self.senders.channels = Vec::new();
        self.rounds = Vec::new();
        self.busy = 0;
    }

    #[cold]
    fn expand(&mut self) {
        let Some(compacted) = self.compacted.take() else {
            return;
        };
        let rows = (0..).map(ChannelId).zip(self.table.rows());
        self.senders.channels = rows
            .zip(compacted)
            .map(|((id, row), numbers)| {
                let SavedIds { message, on_wire } = numbers;
                if row.delivery.is_reliable() {
                    Outbound::Reliable(reliable::Outbound::new(id, message))
                } else {
                    let numbers = (message, on_wire);
                    Outbound::Unreliable(unreliable::Outbound::new(id, row.delivery, numbers))
                }
            })
            .collect();
        self.rounds = Round::of(&self.table);
    }

    fn compacted_memory(&self) -> usize {
        let channels = self
            .compacted
            .as_ref()
            .map_or(0, |compacted| compacted.len());
        channels.saturating_mul(size_of::<SavedIds>())
    }
}

/// What an [`Outbox`] dropped since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxCounts {
    /// Unreliable messages displaced by newer ones.
    pub displaced: u64,
    /// Unreliable messages that exceeded their TTL, queued or while retransmitted.
    pub expired: u64,
    /// Unreliable frames declared lost.
    pub lost: u64,
}

struct Expiry<'a> {
    now: Instant,
    counts: &'a mut OutboxCounts,
    tracker: Option<&'a mut Tracker>,
}

impl Expiry<'_> {
    fn run(&mut self, id: ChannelId, outbound: &mut unreliable::Outbound) {
        outbound.expire(self.now, |message, outcome| {
            if outcome == MessageOutcome::Expired {
                self.counts.expired = self.counts.expired.saturating_add(1);
            }
            if let Some(tracker) = &mut self.tracker {
                tracker.settle(id, message, outcome);
            }
        });
    }

    /// Checks the new front of channel `id`, which may have a shorter TTL than the one before.
    #[inline]
    fn look_at_front(&mut self, id: ChannelId, outbound: &mut unreliable::Outbound) {
        if outbound.expires().is_some_and(|at| at <= self.now) {
            self.run(id, outbound);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SavedIds {
    message: u64,
    on_wire: u64,
}
