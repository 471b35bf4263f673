//! What a game's thread and the thread of its socket share.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

use servicer::{Clock, RequestError, Requests};
use udp_proto::{ChannelId, ChannelTable, Message, MessageId, SendError, SessionId};
use wire::Instant;

use super::{Allowance, Answer, Answers, Hushed, Parcel, Tracked};
use crate::host::Side;
use crate::socket::Socket;
use crate::{Event, Report};

/// What the game asks of the thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message, for which there is allowance.
    Send(SessionId, ChannelId, Parcel),
    /// End a session, once what was sent before has arrived.
    Disconnect(SessionId),
    /// End a session at once, and say why.
    Kick(SessionId, Box<[u8]>),
}

/// Where the thread puts events.
pub(crate) trait Outlet {
    /// Puts one in, without waiting.
    fn offer(&self, event: Event) -> Result<(), Offer>;
}

/// Why an event was not taken.
#[derive(Debug)]
pub(crate) enum Offer {
    /// There is no room.
    Full(Event),
    /// Nobody will take it any more.
    Gone,
}

/// The way to the thread of a socket. Copies share it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    requests: Requests<Order>,
    channels: ChannelTable,
    pub(crate) signals: Arc<Signals>,
}

/// What both threads look at.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) allowance: Allowance,
    pub(crate) tracked: Tracked,
    pub(crate) answers: Answers,
    hushed: Hushed,
    /// An event found no room: whoever takes one wakes the thread.
    is_crowded: AtomicBool,
    /// What the messages among the events cost that the game has not taken.
    event_bytes: AtomicUsize,
    /// When the thread shall have ended, in nanoseconds.
    stop_at_nanos: AtomicU64,
}

impl Line {
    pub(crate) fn to(socket: &Socket) -> Self {
        let signals = socket.signals();
        // The game may have polled before.
        signals.hushed.begin(socket.sessions());
        Self {
            requests: socket.requests(),
            channels: socket.channels().clone(),
            signals,
        }
    }

    /// Queues a message.
    pub(crate) fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.check(channel, message)?;
        if !self.signals.allowance.take(session, message.len()) {
            return Err(SendError::Full);
        }
        self.queue(session, channel, message)
    }

    /// Refuses what the channel would refuse whenever it came.
    pub(crate) fn check(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let row = self.channels.get(channel);
        let row = row.ok_or(SendError::UnknownChannel(channel))?;
        let (len, max) = (message.len(), row.message_bytes_max);
        if len > max {
            return Err(SendError::TooLarge { len, max });
        }
        Ok(())
    }

    /// Queues a message for which allowance was taken.
    pub(crate) fn queue(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.post(session, channel, Parcel::plain(message))
    }

    /// Queues a message of which the game shall be told what became.
    pub(crate) fn send_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.check(message.channel, message.bytes)?;
        let number = self.signals.tracked.begin(session, message.channel)?;
        if !self.signals.allowance.take(session, message.bytes.len()) {
            self.signals.tracked.end(number);
            return Err(SendError::Full);
        }
        self.queue_tracked(session, message, number)
    }

    /// Queues one for which allowance and a number were taken.
    pub(crate) fn queue_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
        number: MessageId,
    ) -> Result<MessageId, SendError> {
        self.post(session, message.channel, Parcel::tracked(message, number))
            .inspect_err(|_| self.signals.tracked.end(number))?;
        Ok(number)
    }

    fn post(
        &self,
        session: SessionId,
        channel: ChannelId,
        parcel: Parcel,
    ) -> Result<(), SendError> {
        let len = parcel.as_ref().len();
        self.order(Order::Send(session, channel, parcel))
            .inspect_err(|_| self.signals.allowance.give_back(session, len))
    }

    /// Asks for a report, which `give` gets; it is dropped where the thread ends before.
    pub(crate) fn report(
        &self,
        give: impl FnOnce(Report) + Send + 'static,
    ) -> Result<(), SendError> {
        self.signals.answers.ask(Answer::new(give))?;
        self.requests.wake();
        Ok(())
    }

    /// Returns what is told once the thread has ended and all its events were taken.
    pub(crate) fn last_event(&self) -> Option<Event> {
        self.signals.tracked.pop_untold()
    }

    /// Asks for the end of a session.
    pub(crate) fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.order_beside(Order::Disconnect(session))
    }

    /// Asks for the end of a session of whom the game wants to hear no more.
    pub(crate) fn send_away(&self, session: SessionId) -> Result<(), SendError> {
        self.disconnect(session)?;
        self.signals.hushed.hush(session);
        Ok(())
    }

    /// Asks for the end of such a session at once.
    pub(crate) fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.order_beside(Order::Kick(session, kept_of(reason).into()))?;
        self.signals.hushed.hush(session);
        Ok(())
    }

    /// Queues an order without a message.
    fn order_beside(&self, order: Order) -> Result<(), SendError> {
        let allowance = &self.signals.allowance;
        if !allowance.take_for_order() {
            return Err(SendError::Full);
        }
        self.order(order)
            .inspect_err(|_| allowance.give_back_for_order())
    }

    fn order(&self, order: Order) -> Result<(), SendError> {
        self.requests.send(order).map_err(|refused| match refused {
            // The queue has room for all orders that there is allowance for.
            RequestError::Full(_) => SendError::Full,
            RequestError::Ended(_) => SendError::Closed,
        })
    }

    /// Takes note that the game has taken an event, and returns it where it is for the game.
    pub(crate) fn on_taken(&self, event: Event) -> Option<Event> {
        self.signals.lighten(&event);
        if let Event::Settled { message, .. } = &event {
            self.signals.tracked.end(*message);
        }
        if self.signals.is_crowded.swap(false, Ordering::AcqRel) {
            self.requests.wake();
        }
        self.signals.hushed.lets_pass(&event).then_some(event)
    }

    /// Asks the thread to end in order within `within`.
    pub(crate) fn stop(&self, within: Duration) {
        let at = Clock::new().now() + within;
        self.signals
            .stop_at_nanos
            .fetch_min(at.as_nanos(), Ordering::AcqRel);
        self.requests.wake();
    }
}

impl Signals {
    /// For the sessions of a `side`.
    pub(crate) fn new(side: Side) -> Self {
        Self {
            allowance: Allowance::new(side),
            tracked: Tracked::new(),
            answers: Answers::default(),
            hushed: Hushed::default(),
            is_crowded: AtomicBool::new(false),
            event_bytes: AtomicUsize::new(0),
            stop_at_nanos: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns whether the events that wait for the game hold as much as they may.
    pub(crate) fn is_laden(&self) -> bool {
        self.event_bytes.load(Ordering::Acquire) >= EVENT_BYTES_MAX
    }

    /// Counts an event that is about to be offered to the game.
    pub(crate) fn load(&self, event: &Event) {
        self.event_bytes
            .fetch_add(event_cost(event), Ordering::AcqRel);
    }

    /// Counts an event off.
    pub(crate) fn lighten(&self, event: &Event) {
        self.event_bytes
            .fetch_sub(event_cost(event), Ordering::AcqRel);
    }

    /// Returns when the thread shall have ended, once it was asked to.
    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match self.stop_at_nanos.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Returns what frees all who wait when it is dropped.
    pub(crate) const fn announce_end(&self) -> Ended<'_> {
        Ended(self)
    }

    /// Says that an event found no room; whoever takes one from now on wakes the thread.
    pub(crate) fn cry_for_room(&self) {
        // Not a store: one that was taken before whoever takes sees this is seen after it.
        self.is_crowded.swap(true, Ordering::AcqRel);
    }
}

/// Frees all that wait for room or an answer when it is dropped, however the thread ends.
#[derive(Debug)]
pub(crate) struct Ended<'a>(&'a Signals);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.answers.end();
        self.0.allowance.open();
    }
}

/// The part of a reason that a peer is told.
fn kept_of(reason: &[u8]) -> &[u8] {
    reason.get(..REASON_MAX).unwrap_or(reason)
}

/// Longest reason, bytes; what the endpoint tells.
const REASON_MAX: usize = 128;

/// What the messages among the events that wait for the game cost at most, and one message more.
pub(crate) const EVENT_BYTES_MAX: usize = 4 << 20;

/// What a message costs beside its bytes: its event, and what an allocator adds.
pub(crate) const MESSAGE_COST: usize = 96;

/// What an event counts as: messages alone may be long.
const fn event_cost(event: &Event) -> usize {
    match event {
        Event::Message { bytes, .. } => bytes.len().saturating_add(MESSAGE_COST),
        Event::Connected { .. }
        | Event::Settled { .. }
        | Event::Disconnected { .. }
        | Event::Unreachable { .. } => 0,
    }
}
