//! State shared by the game's thread and the socket's thread.

mod allowance;
mod send_queue;
mod tracked;

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use servicer::{Clock, RequestError, Requests};
use udp_proto::{ChannelId, ChannelTable, Message, MessageId, SendError, SessionId};
use wire::Instant;

use crate::{Event, Report};
pub(crate) use allowance::Allowance;
pub(crate) use send_queue::SendQueues;
use tracked::TrackedMessages;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Many sessions, which share the send allowance.
    Server,
    /// One session.
    Client,
}

#[derive(Debug)]
pub(crate) enum ThreadRequest {
    /// Send a message for which allowance was taken.
    Send(SessionId, ChannelId, OutgoingMessage),
    /// End a session after its earlier messages have arrived.
    Disconnect(SessionId),
    /// End a session at once, with a reason text.
    Kick(SessionId, Box<[u8]>),
}

/// The queue of events to the game.
pub(crate) trait EventSink {
    fn offer(&self, event: Event) -> Result<(), OfferError>;
}

#[derive(Debug)]
pub(crate) enum OfferError {
    /// The queue is full.
    Full(Event),
    /// The receiver is gone.
    Gone,
}

/// The game's handle to the socket's thread. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedChannel {
    pub(crate) requests: Requests<ThreadRequest>,
    pub(crate) channels: ChannelTable,
    pub(crate) signals: Arc<Signals>,
}

#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) allowance: Allowance,
    pub(crate) tracked: TrackedMessages,
    pub(crate) reports: ReportRequests,
    pub(crate) muted: MutedSessions,
    /// Whether an event found no room, so that the next taker wakes the thread.
    must_wake: AtomicBool,
    /// Total cost of the messages among the events that the game has not taken.
    event_bytes: AtomicUsize,
    /// Deadline for the thread's end, in nanoseconds.
    stop_at_nanos: AtomicU64,
}

impl SharedChannel {
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

    /// Queues a message to each session that is not muted. Returns those that refused it.
    pub(crate) fn broadcast(
        &self,
        channel: ChannelId,
        message: &[u8],
    ) -> Vec<(SessionId, SendError)> {
        let sessions = self.signals.muted.unmuted().into_iter();
        sessions
            .filter_map(|session| Some((session, self.send(session, channel, message).err()?)))
            .collect()
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
        self.post(session, channel, OutgoingMessage::untracked(message))
    }

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
        let outgoing = OutgoingMessage::tracked(message, number);
        self.post(session, message.channel, outgoing)
            .inspect_err(|_| self.signals.tracked.end(number))?;
        Ok(number)
    }

    fn post(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: OutgoingMessage,
    ) -> Result<(), SendError> {
        let len = message.as_ref().len();
        self.request(ThreadRequest::Send(session, channel, message))
            .inspect_err(|_| self.signals.allowance.give_back(session, len))
    }

    /// Requests a report for `give`, which is dropped if the thread ends first.
    pub(crate) fn report(
        &self,
        give: impl FnOnce(Report) + Send + 'static,
    ) -> Result<(), SendError> {
        self.signals.reports.add(ReportCallback(Box::new(give)))?;
        self.requests.wake();
        Ok(())
    }

    /// Returns a pending `Settled` event, once the thread has ended and all its events were taken.
    pub(crate) fn last_event(&self) -> Option<Event> {
        self.signals.tracked.pop_unreported()
    }

    pub(crate) fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.request_end(ThreadRequest::Disconnect(session))
    }

    pub(crate) fn disconnect_and_mute(&self, session: SessionId) -> Result<(), SendError> {
        self.disconnect(session)?;
        self.signals.muted.mute(session);
        Ok(())
    }

    pub(crate) fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        let reason = reason.get(..REASON_MAX).unwrap_or(reason);
        self.request_end(ThreadRequest::Kick(session, reason.into()))?;
        self.signals.muted.mute(session);
        Ok(())
    }

    /// Queues a request without a message.
    fn request_end(&self, request: ThreadRequest) -> Result<(), SendError> {
        let allowance = &self.signals.allowance;
        if !allowance.take_for_request() {
            return Err(SendError::Full);
        }
        self.request(request)
            .inspect_err(|_| allowance.give_back_for_request())
    }

    fn request(&self, request: ThreadRequest) -> Result<(), SendError> {
        self.requests
            .send(request)
            .map_err(|refused| match refused {
                // The queue has room for all requests that the allowance covers.
                RequestError::Full(_) => SendError::Full,
                RequestError::Ended(_) => SendError::Closed,
            })
    }

    /// Accounts for an event that the game has taken; returns it unless its session is muted.
    pub(crate) fn on_taken(&self, event: Event) -> Option<Event> {
        self.signals.uncount(&event);
        if let Event::Settled { message, .. } = &event {
            self.signals.tracked.end(*message);
        }
        if self.signals.must_wake.swap(false, Ordering::AcqRel) {
            self.requests.wake();
        }
        self.signals.muted.admits(&event).then_some(event)
    }

    pub(crate) fn stop(&self, within: Duration) {
        let at = Clock::new().now() + within;
        self.signals
            .stop_at_nanos
            .fetch_min(at.as_nanos(), Ordering::AcqRel);
        self.requests.wake();
    }
}

impl Signals {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            allowance: Allowance::new(side),
            tracked: TrackedMessages::new(),
            reports: ReportRequests::default(),
            muted: MutedSessions::default(),
            must_wake: AtomicBool::new(false),
            event_bytes: AtomicUsize::new(0),
            stop_at_nanos: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.event_bytes.load(Ordering::Acquire) >= EVENT_BYTES_MAX
    }

    /// Counts an event that is about to be offered to the game.
    pub(crate) fn count(&self, event: &Event) {
        self.event_bytes
            .fetch_add(event_cost(event), Ordering::AcqRel);
    }

    /// Reverses [`count`](Self::count).
    pub(crate) fn uncount(&self, event: &Event) {
        self.event_bytes
            .fetch_sub(event_cost(event), Ordering::AcqRel);
    }

    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match self.stop_at_nanos.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Returns a guard that releases all waiting callers when it is dropped.
    pub(crate) const fn end_guard(&self) -> EndGuard<'_> {
        EndGuard(self)
    }

    /// Makes the next taker wake the thread, because an event found no room.
    pub(crate) fn request_wake(&self) {
        // A swap synchronizes with a taker's swap, so a retry sees what was taken before.
        self.must_wake.swap(true, Ordering::AcqRel);
    }
}

/// When dropped, releases everything that waits for room or a report, however the thread ends.
#[derive(Debug)]
pub(crate) struct EndGuard<'a>(&'a Signals);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.reports.end();
        self.0.allowance.open();
    }
}

/// A message on its way from the game to the endpoint.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    bytes: Box<[u8]>,
    tracking: Option<Tracking>,
}

#[derive(Clone, Copy, Debug)]
struct Tracking {
    number: MessageId,
    ttl: Option<Duration>,
    is_repeated: bool,
}

impl OutgoingMessage {
    pub(crate) fn untracked(message: &[u8]) -> Self {
        Self {
            bytes: message.into(),
            tracking: None,
        }
    }

    fn tracked(message: &Message<'_>, number: MessageId) -> Self {
        Self {
            bytes: message.bytes.into(),
            tracking: Some(Tracking {
                number,
                ttl: message.ttl,
                is_repeated: message.is_repeated,
            }),
        }
    }

    pub(crate) fn number(&self) -> Option<MessageId> {
        self.tracking.map(|tracking| tracking.number)
    }

    /// Returns the message for the endpoint, with its number, if it is tracked.
    pub(crate) fn to_tracked(&self, channel: ChannelId) -> Option<(Message<'_>, MessageId)> {
        let tracking = self.tracking?;
        let mut message = Message::new(channel, &self.bytes);
        message.ttl = tracking.ttl;
        message.is_repeated = tracking.is_repeated;
        Some((message, tracking.number))
    }
}

impl AsRef<[u8]> for OutgoingMessage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) struct ReportCallback(Box<dyn FnOnce(Report) + Send>);

impl ReportCallback {
    pub(crate) fn call(self, report: Report) {
        (self.0)(report);
    }
}

wire::opaque_debug!(ReportCallback);

/// The pending requests for a report; `None` once the thread has ended.
///
/// They are not in the driver's request queue: a queue is dropped only with its last sender, so
/// requests left in it when the thread ends would wait for as long as a sender exists.
#[derive(Debug)]
pub(crate) struct ReportRequests(Mutex<Option<Vec<ReportCallback>>>);

impl Default for ReportRequests {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl ReportRequests {
    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] if the thread has ended, [`SendError::Full`] if 1,024 requests wait.
    fn add(&self, callback: ReportCallback) -> Result<(), SendError> {
        let mut requests = lock(&self.0);
        let waiting = requests.as_mut().ok_or(SendError::Closed)?;
        if waiting.len() >= REPORTS_MAX {
            return Err(SendError::Full);
        }
        waiting.push(callback);
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<ReportCallback> {
        let mut requests = lock(&self.0);
        requests.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Drops all pending requests and refuses new ones.
    fn end(&self) {
        let waiting = lock(&self.0).take();
        // Outside the lock: dropping a callback may trigger a new request.
        drop(waiting);
    }
}

/// The sessions that the game knows, from `Connected` to `Disconnected`, and whether each is muted:
/// its messages are no longer delivered.
///
/// The game's side checks it, so that events already in the queue when the game ends a session are
/// dropped too.
#[derive(Debug, Default)]
pub(crate) struct MutedSessions(Mutex<BTreeMap<SessionId, bool>>);

impl MutedSessions {
    /// Adds sessions; those that are known stay as they are.
    pub(crate) fn add(&self, sessions: impl IntoIterator<Item = SessionId>) {
        let mut known = lock(&self.0);
        for session in sessions {
            known.entry(session).or_insert(false);
        }
    }

    /// Mutes a session if the game knows it.
    fn mute(&self, session: SessionId) {
        if let Some(is_muted) = lock(&self.0).get_mut(&session) {
            *is_muted = true;
        }
    }

    fn unmuted(&self) -> Vec<SessionId> {
        let known = lock(&self.0);
        let open = known.iter().filter(|(_, is_muted)| !**is_muted);
        open.map(|(session, _)| *session).collect()
    }

    /// Returns whether an event that was taken is for the game.
    fn admits(&self, event: &Event) -> bool {
        match event {
            Event::Connected { session, .. } => self.add([*session]),
            Event::Disconnected { session, .. } => drop(lock(&self.0).remove(session)),
            Event::Message { session, .. } => return lock(&self.0).get(session) != Some(&true),
            Event::Settled { .. } | Event::Unreachable { .. } => {}
        }
        true
    }
}

/// Locks state that no panic leaves inconsistent.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const EVENTS_MAX: usize = 4_096;

/// Most pending requests for a report; each gets a copy.
const REPORTS_MAX: usize = 1_024;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u18_1_024_report_requests_may_wait() {
        let requests = ReportRequests::default();
        let add = || requests.add(ReportCallback(Box::new(drop)));
        for _ in 0..REPORTS_MAX {
            assert_eq!(add(), Ok(()));
        }
        assert_eq!(add(), Err(SendError::Full));
        assert_eq!(requests.take().len(), REPORTS_MAX);
        assert_eq!(add(), Ok(()));
        requests.end();
        assert!(requests.take().is_empty());
        assert_eq!(add(), Err(SendError::Closed));
    }
}
