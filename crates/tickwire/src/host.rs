//! The driver's application: turns endpoint events into game events, and schedules ticks.
//!
//! Between ticks, received messages stay in the endpoint, which bounds them. They become events when
//! the game asks for them.

use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crypto::Ring;
use servicer::Application;
use udp_proto::{ChannelId, CloseCode, Endpoint, MessageId, MessageOutcome, SendError, SessionId};
use wire::{CommandId, Instant};

use crate::Event;
use crate::shared::{
    EventSink, MESSAGE_COST, OfferError, OutgoingMessage, SendQueues, Side, Signals, ThreadRequest,
};
use crate::stats::Recorder;

/// Limit in bytes for undelivered messages of all closed sessions, with [`MESSAGE_COST`] for each.
const CLOSED_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Not requested.
    No,
    /// Waits for earlier messages to fit into their channels.
    Waiting,
    /// The endpoint is shut down.
    Done,
}

/// Collects events until the game takes them.
#[derive(Debug)]
pub(crate) struct Host {
    events: VecDeque<Event>,
    /// Sessions with unread messages in the endpoint, each once.
    pub(crate) readable: VecDeque<SessionId>,
    /// Messages from a game on another thread for which their channels have no room.
    queues: SendQueues<SessionId, OutgoingMessage>,
    /// The game's number for each tracked message.
    numbers: BTreeMap<(SessionId, ChannelId, MessageId), MessageId>,
    pub(crate) signals: Arc<Signals>,
    /// A new session is rejected if this many events wait. Unlimited if the game's own thread
    /// drives the endpoint.
    pub(crate) events_max: usize,
    /// Sessions that were rejected on connect, until they end.
    rejected: BTreeSet<SessionId>,
    muted: Muted,
    /// Cost of the messages of closed sessions in `events`.
    closed_bytes: usize,
    /// Start of the next tick, if the game uses ticks.
    next_tick: Option<Instant>,
    /// Whether the awaited tick has begun.
    pub(crate) has_ticked: bool,
    pub(crate) recorder: Recorder<SessionId>,
    /// The close code for sessions that the game ends.
    close_code: CloseCode,
    /// How long closing a session waits for earlier messages.
    linger: Duration,
    stop: Stop,
}

impl Host {
    pub(crate) fn new(now: Instant, side: Side, linger: Duration) -> Self {
        Self {
            events: VecDeque::new(),
            readable: VecDeque::new(),
            queues: SendQueues::default(),
            numbers: BTreeMap::new(),
            signals: Arc::new(Signals::new(side)),
            events_max: usize::MAX,
            rejected: BTreeSet::new(),
            muted: Muted::default(),
            closed_bytes: 0,
            next_tick: None,
            has_ticked: false,
            recorder: Recorder::new(now),
            close_code: match side {
                Side::Server => CloseCode::Kicked,
                Side::Client => CloseCode::NoError,
            },
            linger,
            stop: Stop::No,
        }
    }

    /// Schedules the next tick `span` after the last one, and returns the time between the two.
    /// Ticks that are already over are skipped.
    pub(crate) fn schedule_tick(&mut self, now: Instant, span: Duration) -> Duration {
        self.has_ticked = false;
        let last = self.next_tick.unwrap_or(now);
        let next = if last + span > now {
            last + span
        } else {
            now + span
        };
        self.next_tick = Some(next);
        let since = next.saturating_since(last);
        let missed = since.as_nanos() / span.as_nanos().max(1);
        self.recorder
            .on_tick(u64::try_from(missed).unwrap_or(u64::MAX).saturating_sub(1));
        since
    }

    pub(crate) fn take(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) -> Vec<Event> {
        for session in core::mem::take(&mut self.readable) {
            self.read(now, endpoint, session, usize::MAX);
        }
        self.closed_bytes = 0;
        self.muted
            .begin_batch(self.events.iter().filter_map(end_of));
        core::mem::take(&mut self.events).into()
    }

    /// Stops delivering messages of a session if it is open, or if the game was just given its end.
    pub(crate) fn mute(&mut self, session: SessionId) {
        if !self.recorder.has(session) {
            self.muted.add_ended(session);
        } else if self.muted.add(session) {
            self.readable.retain(|readable| *readable != session);
            self.events.retain(
                |event| !matches!(event, Event::Message { session: of, .. } if *of == session),
            );
        }
    }

    /// Returns whether a session was muted and the game has not yet processed its end.
    pub(crate) fn is_muted(&self, session: SessionId) -> bool {
        self.muted.has(session)
    }

    /// Returns the sessions that the game knows or will know, except those it knows to be closed.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let ends = self.events.iter().filter_map(end_of);
        self.recorder.sessions().chain(ends)
    }

    /// When the thread ends, stores the outcomes for which the game's queue had no room.
    pub(crate) fn keep_outcomes(&self) {
        for event in &self.events {
            if let Event::Settled {
                message, outcome, ..
            } = event
            {
                self.signals.tracked.keep(*message, *outcome);
            }
        }
    }

    /// Starts the shutdown: ends each session once its earlier messages fit into their channels, by
    /// `deadline` at the latest. Returns `false` if it was already requested.
    pub(crate) fn begin_stop(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        deadline: Instant,
    ) -> bool {
        if self.stop != Stop::No {
            return false;
        }
        self.stop = Stop::Waiting;
        // Leaves time for what is then in the channels' queues.
        let span = deadline.saturating_since(now);
        let latest = now + span.saturating_sub(self.linger).max(span / 2);
        for session in endpoint.sessions().collect::<Vec<_>>() {
            self.end(now, endpoint, session, (latest, CloseCode::Shutdown));
        }
        self.advance_stop(now, endpoint);
        true
    }

    /// Ends a session once its earlier messages fit into their channels. It waits one linger for
    /// each started 64 KiB of them (the length of a channel's queue), until `latest` at most.
    fn end(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        session: SessionId,
        (latest, code): (Instant, CloseCode),
    ) {
        let queues = u32::try_from(self.queues.bytes(session) >> 16).unwrap_or(u32::MAX);
        let span = self.linger.saturating_mul(queues.saturating_add(1));
        if !self.queues.close(session, latest.min(now + span), code) {
            // If the session has already ended, the game gets its end event.
            endpoint.close(now, session, code, &[]).ok();
        }
    }

    /// Shuts the endpoint down once no message waits.
    fn advance_stop(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        if self.stop == Stop::Waiting && self.queues.is_empty() {
            self.stop = Stop::Done;
            endpoint.shutdown(now);
        }
    }

    fn report_dropped(&mut self) {
        while let Some((session, channel, message)) = self.queues.pop_dropped() {
            self.events.extend(dropped(session, channel, &message));
        }
    }

    /// Moves events to `sink` while it has room; the others wait.
    ///
    /// Messages are read only if no other event waits, one per session in turn.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        sink: &impl EventSink,
    ) -> Delivered {
        let mut has_requested = false;
        let mut outcome = Delivered::Idle;
        loop {
            if self.signals.is_full() {
                if core::mem::replace(&mut has_requested, true) {
                    return outcome;
                }
                self.signals.request_wake();
                continue;
            }
            let Some(event) = self.events.pop_front() else {
                self.closed_bytes = 0;
                let Some(session) = self.readable.pop_front() else {
                    return outcome;
                };
                // One message costs more than 1. A session without a message leaves the list.
                if self.read(now, endpoint, session, 1) > 0 {
                    self.readable.push_back(session);
                    outcome = Delivered::HasRead;
                }
                continue;
            };
            // Counted before it can be taken and subtracted.
            self.signals.count(&event);
            match sink.offer(event) {
                Ok(()) => {}
                Err(OfferError::Gone) => return Delivered::Gone,
                Err(OfferError::Full(event)) => {
                    self.signals.uncount(&event);
                    self.events.push_front(event);
                    if core::mem::replace(&mut has_requested, true) {
                        return outcome;
                    }
                    // Taking an event after this wakes the driver. An event taken before it left
                    // room, so the loop tries once more.
                    self.signals.request_wake();
                }
            }
        }
    }

    /// Reads messages of a session until their cost reaches `most`; returns their cost.
    fn read(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        session: SessionId,
        most: usize,
    ) -> usize {
        let mut cost = 0_usize;
        let mut bytes = Vec::new();
        while cost < most
            && let Some(channel) = endpoint.receive(now, session, &mut bytes)
        {
            cost = cost
                .saturating_add(bytes.len())
                .saturating_add(MESSAGE_COST);
            self.events.push_back(Event::Message {
                session,
                channel,
                bytes: core::mem::take(&mut bytes),
            });
        }
        cost
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// No message was read.
    Idle,
    /// Messages were read, so the endpoint may have credit to send.
    HasRead,
    /// The receiver is gone.
    Gone,
}

/// Sessions that the game has kicked or disconnected: their messages are no longer delivered.
///
/// A game that is called for one event after another can kick a player whose `Disconnected` event
/// is already in the same batch. This set covers that case too.
#[derive(Debug, Default)]
struct Muted {
    open: BTreeSet<SessionId>,
    /// Sessions that end within the batch of events last given to the game, and whether each is
    /// muted.
    ended: BTreeMap<SessionId, bool>,
}

impl Muted {
    /// Adds an open session; returns whether it is new.
    fn add(&mut self, session: SessionId) -> bool {
        self.open.insert(session)
    }

    /// Mutes a session that has ended, if its end is in the current batch.
    fn add_ended(&mut self, session: SessionId) {
        if let Some(is_muted) = self.ended.get_mut(&session) {
            *is_muted = true;
        }
    }

    fn has(&self, session: SessionId) -> bool {
        self.open.contains(&session) || self.ended.get(&session) == Some(&true)
    }

    /// Removes a session that has ended; returns whether it was muted.
    fn remove(&mut self, session: SessionId) -> bool {
        self.open.remove(&session)
    }

    /// Starts a new batch that contains the ends of these sessions. Forgets the batch before.
    fn begin_batch(&mut self, ends: impl Iterator<Item = SessionId>) {
        self.ended = ends.map(|session| (session, false)).collect();
    }
}

/// Gives a message to the endpoint. If the endpoint refuses a tracked message for good, emits its
/// `Settled` event.
fn post(
    now: Instant,
    endpoint: &mut Endpoint<Ring>,
    (session, channel, outgoing): (SessionId, ChannelId, &OutgoingMessage),
    numbers: &mut BTreeMap<(SessionId, ChannelId, MessageId), MessageId>,
    events: &mut VecDeque<Event>,
) -> Result<(), SendError> {
    let Some((message, number)) = outgoing.to_tracked(channel) else {
        return endpoint.send(now, session, channel, outgoing.as_ref());
    };
    match endpoint.send_tracked(now, session, &message) {
        Ok(message) => {
            numbers.insert((session, channel, message), number);
            Ok(())
        }
        // Polling events makes room again.
        Err(SendError::Full | SendError::TooManyTracked) => Err(SendError::Full),
        Err(error) => {
            events.extend(dropped(session, channel, outgoing));
            Err(error)
        }
    }
}

const fn end_of(event: &Event) -> Option<SessionId> {
    match event {
        Event::Disconnected { session, .. } => Some(*session),
        Event::Connected { .. }
        | Event::Message { .. }
        | Event::Settled { .. }
        | Event::Unreachable { .. } => None,
    }
}

/// The event for a tracked message that never reached the endpoint.
fn dropped(session: SessionId, channel: ChannelId, message: &OutgoingMessage) -> Option<Event> {
    Some(Event::Settled {
        session,
        channel,
        message: message.number()?,
        outcome: MessageOutcome::Dropped,
    })
}

impl Application<Endpoint<Ring>> for Host {
    type Request = ThreadRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        request: ThreadRequest,
    ) -> ControlFlow<()> {
        let allowance = &self.signals.allowance;
        match request {
            ThreadRequest::Send(session, channel, message) => {
                let (numbers, events) = (&mut self.numbers, &mut self.events);
                self.queues.send(
                    now,
                    (session, channel, message),
                    allowance,
                    |session, channel, message| {
                        post(now, endpoint, (session, channel, message), numbers, events)
                    },
                );
                self.report_dropped();
            }
            ThreadRequest::Disconnect(session) => {
                allowance.give_back_for_request();
                // A client that disconnects still gets the server's last messages.
                if self.close_code == CloseCode::Kicked {
                    self.mute(session);
                }
                let latest = Instant::from_nanos(u64::MAX);
                self.end(now, endpoint, session, (latest, self.close_code));
            }
            ThreadRequest::Kick(session, reason) => {
                allowance.give_back_for_request();
                self.mute(session);
                self.queues.forget(session, &self.signals.allowance);
                self.report_dropped();
                // If the session has already ended, the game gets its end event.
                endpoint.kick(now, session, &reason).ok();
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: udp_proto::Event) {
        match event {
            udp_proto::Event::Connected { session, peer } => {
                let code = match self.stop {
                    Stop::No if self.events.len() < self.events_max => None,
                    Stop::No => Some(CloseCode::Full),
                    Stop::Waiting | Stop::Done => Some(CloseCode::Shutdown),
                };
                if let Some(code) = code {
                    self.rejected.insert(session);
                    // It has just opened, so closing does not fail.
                    endpoint.close(now, session, code, &[]).ok();
                    return;
                }
                self.recorder.on_open(now, session);
                self.events.push_back(Event::Connected { session, peer });
            }
            udp_proto::Event::ConnectFailed { failure, .. } => {
                self.events.push_back(Event::Unreachable { failure });
            }
            udp_proto::Event::Readable { session } => {
                if !self.rejected.contains(&session) && !self.muted.has(session) {
                    self.readable.push_back(session);
                }
            }
            udp_proto::Event::Settled {
                session,
                channel,
                message,
                outcome,
            } => {
                let number = self.numbers.remove(&(session, channel, message));
                self.events.push_back(Event::Settled {
                    session,
                    channel,
                    message: number.unwrap_or(message),
                    outcome,
                });
            }
            udp_proto::Event::Closed {
                session,
                reason,
                text,
            } => {
                if self.rejected.remove(&session) {
                    return;
                }
                self.recorder
                    .on_close(session, endpoint.session_stats(session).as_ref());
                // The endpoint frees the session before the tick ends, so its last messages are
                // read now, up to the limit.
                self.readable.retain(|readable| *readable != session);
                if !self.muted.remove(session) {
                    let most = CLOSED_BYTES_MAX.saturating_sub(self.closed_bytes);
                    let cost = self.read(now, endpoint, session, most);
                    self.closed_bytes = self.closed_bytes.saturating_add(cost);
                }
                self.queues.forget(session, &self.signals.allowance);
                self.report_dropped();
                self.events.push_back(Event::Disconnected {
                    session,
                    reason,
                    text,
                });
            }
            // The facade requests no MTU check, the rate is in the statistics, and later versions
            // may handle further events.
            udp_proto::Event::MtuChecked { .. } | udp_proto::Event::RateChanged { .. } | _ => {}
        }
    }

    fn on_command(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint<Ring>,
        _id: CommandId,
        command: core::convert::Infallible,
    ) {
        match command {}
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let tick = self.next_tick.filter(|_| !self.has_ticked);
        [tick, self.queues.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        let allowance = &self.signals.allowance;
        let (numbers, events) = (&mut self.numbers, &mut self.events);
        self.queues
            .retry(now, allowance, |session, channel, message| {
                post(now, endpoint, (session, channel, message), numbers, events)
            });
        while let Some((session, code)) = self.queues.poll_closed(now, allowance) {
            // It may have ended by itself.
            endpoint.close(now, session, code, &[]).ok();
        }
        self.report_dropped();
        self.advance_stop(now, endpoint);
        if self.next_tick.is_some_and(|at| at <= now) {
            self.has_ticked = true;
        }
    }
}
