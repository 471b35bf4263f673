//! State shared by the game's thread and the socket's thread.

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

/// A request from the game to the thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message for which allowance was taken.
    Send(SessionId, ChannelId, Parcel),
    /// End a session after its earlier messages have arrived.
    Disconnect(SessionId),
    /// End a session at once, with a reason text.
    Kick(SessionId, Box<[u8]>),
}

/// The sink for the thread's events.
pub(crate) trait Outlet {
    /// Adds an event without waiting.
    fn offer(&self, event: Event) -> Result<(), Offer>;
}

/// Why an event was refused.
#[derive(Debug)]
pub(crate) enum Offer {
    /// The queue is full.
    Full(Event),
    /// The receiver is gone.
    Gone,
}

/// The game's handle to the socket's thread. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    requests: Requests<Order>,
    channels: ChannelTable,
    pub(crate) signals: Arc<Signals>,
}

/// State that both threads access.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) allowance: Allowance,
    pub(crate) tracked: Tracked,
    pub(crate) answers: Answers,
    hushed: Hushed,
    /// Set when an event found no room: the next taker wakes the thread.
    is_crowded: AtomicBool,
    /// Total cost of the messages among the events that the game has not taken.
    event_bytes: AtomicUsize,
    /// Deadline for the thread's end, in nanoseconds.
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

    /// Rejects a message that its channel would always refuse.
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

    /// Queues a tracked message.
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

    /// Queues a tracked message for which allowance and a number were taken.
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

    /// Requests a report, which is passed to `give`. `give` is dropped if the thread ends first.
    pub(crate) fn report(
        &self,
        give: impl FnOnce(Report) + Send + 'static,
    ) -> Result<(), SendError> {
        self.signals.answers.ask(Answer::new(give))?;
        self.requests.wake();
        Ok(())
    }

    /// Returns a pending `Settled` event, once the thread has ended and all its events were taken.
    pub(crate) fn last_event(&self) -> Option<Event> {
        self.signals.tracked.pop_untold()
    }

    /// Requests the end of a session.
    pub(crate) fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.order_beside(Order::Disconnect(session))
    }

    /// Requests the end of a session and mutes it.
    pub(crate) fn send_away(&self, session: SessionId) -> Result<(), SendError> {
        self.disconnect(session)?;
        self.signals.hushed.hush(session);
        Ok(())
    }

    /// Requests the immediate end of a session and mutes it.
    pub(crate) fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.order_beside(Order::Kick(session, kept_of(reason).into()))?;
        self.signals.hushed.hush(session);
        Ok(())
    }

    /// Queues a request without a message.
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
            // The queue has room for all requests that the allowance covers.
            RequestError::Full(_) => SendError::Full,
            RequestError::Ended(_) => SendError::Closed,
        })
    }

    /// Accounts for an event that the game has taken; returns it unless its session is muted.
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

    /// Asks the thread to shut down within `within`.
    pub(crate) fn stop(&self, within: Duration) {
        let at = Clock::new().now() + within;
        self.signals
            .stop_at_nanos
            .fetch_min(at.as_nanos(), Ordering::AcqRel);
        self.requests.wake();
    }
}

impl Signals {
    /// For a server's or a client's sessions.
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

    /// Returns whether the events that wait for the game have reached the byte limit.
    pub(crate) fn is_laden(&self) -> bool {
        self.event_bytes.load(Ordering::Acquire) >= EVENT_BYTES_MAX
    }

    /// Counts an event that is about to be offered to the game.
    pub(crate) fn load(&self, event: &Event) {
        self.event_bytes
            .fetch_add(event_cost(event), Ordering::AcqRel);
    }

    /// Subtracts an event's cost.
    pub(crate) fn lighten(&self, event: &Event) {
        self.event_bytes
            .fetch_sub(event_cost(event), Ordering::AcqRel);
    }

    /// Returns the deadline for the thread's end, if requested.
    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match self.stop_at_nanos.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Returns a guard that releases all waiting callers when it is dropped.
    pub(crate) const fn announce_end(&self) -> Ended<'_> {
        Ended(self)
    }

    /// Records that an event found no room, so that the next taker wakes the thread.
    pub(crate) fn cry_for_room(&self) {
        // A swap, not a store: it synchronizes with a taker's swap, so a retry sees what was taken
        // before.
        self.is_crowded.swap(true, Ordering::AcqRel);
    }
}

/// When dropped, releases everything that waits for room or a report, however the thread ends.
#[derive(Debug)]
pub(crate) struct Ended<'a>(&'a Signals);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.answers.end();
        self.0.allowance.open();
    }
}

/// The part of a reason that is sent to the peer.
fn kept_of(reason: &[u8]) -> &[u8] {
    reason.get(..REASON_MAX).unwrap_or(reason)
}

/// Longest reason in bytes, as in the endpoint.
const REASON_MAX: usize = 128;

/// Limit on the cost of messages among waiting events; one message may exceed it.
pub(crate) const EVENT_BYTES_MAX: usize = 4 << 20;

/// Cost of a message beyond its bytes: its event, and allocator overhead.
pub(crate) const MESSAGE_COST: usize = 96;

/// Cost of an event. Only messages can be long, so others count as 0.
const fn event_cost(event: &Event) -> usize {
    match event {
        Event::Message { bytes, .. } => bytes.len().saturating_add(MESSAGE_COST),
        Event::Connected { .. }
        | Event::Settled { .. }
        | Event::Disconnected { .. }
        | Event::Unreachable { .. } => 0,
    }
}
