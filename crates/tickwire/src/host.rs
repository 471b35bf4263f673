//! The driver's application: turns endpoint events into game events, and schedules ticks.
//!
//! Between ticks, received messages stay in the endpoint, which bounds unread data per session and
//! limits reliable senders by credit. They become events when the game asks for them.

mod dismissed;
mod hand_over;

use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crypto::Ring;
use servicer::Application;
use udp_proto::{ChannelId, CloseCode, Endpoint, MessageId, MessageOutcome, SendError, SessionId};
use wire::{CommandId, Instant};

use crate::Event;
use crate::background::{Held, MESSAGE_COST, Order, Parcel, Signals};
use crate::stats::Recorder;
use dismissed::Dismissed;
pub(crate) use hand_over::HandOver;

/// Limit in bytes for undelivered messages of closed sessions, over all of them. Each counts as
/// [`MESSAGE_COST`] more than its length.
const LAST_WORDS_MAX: usize = 16 << 20;

/// Whether a socket is a server's or a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Many sessions, which share the send allowance.
    Server,
    /// One session.
    Client,
}

/// State of the shutdown.
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
    held: Held<SessionId, Parcel>,
    /// The game's number for each tracked message.
    numbers: BTreeMap<(SessionId, ChannelId, MessageId), MessageId>,
    /// State shared with the game's thread.
    pub(crate) signals: Arc<Signals>,
    /// A new session is rejected if this many events wait. Unlimited if the game's own thread
    /// drives the endpoint.
    pub(crate) events_max: usize,
    /// Sessions that were rejected on connect, until they end.
    sent_away: BTreeSet<SessionId>,
    /// Sessions that are muted: their messages are no longer delivered to the game.
    dismissed: Dismissed,
    /// Cost of the messages of closed sessions in `events`.
    last_words: usize,
    /// Start of the next tick, if the game uses ticks.
    next_tick: Option<Instant>,
    /// Whether the awaited tick has begun.
    pub(crate) has_ticked: bool,
    /// Statistics of the last minute.
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
            held: Held::default(),
            numbers: BTreeMap::new(),
            signals: Arc::new(Signals::new(side)),
            events_max: usize::MAX,
            sent_away: BTreeSet::new(),
            dismissed: Dismissed::default(),
            last_words: 0,
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
    ///
    /// A late tick does not move the ticks after it. If it is late by more than a whole tick, the
    /// missed ticks are skipped.
    pub(crate) fn expect_tick(&mut self, now: Instant, span: Duration) -> Duration {
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

    /// Takes the events since the last call.
    pub(crate) fn take(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) -> Vec<Event> {
        for session in core::mem::take(&mut self.readable) {
            self.read(now, endpoint, session, usize::MAX);
        }
        self.last_words = 0;
        self.dismissed.give(self.events.iter().filter_map(end_of));
        core::mem::take(&mut self.events).into()
    }

    /// Stops delivering messages of a session if it is open, or if the game was just given its end.
    pub(crate) fn hush(&mut self, session: SessionId) {
        if !self.recorder.has(session) {
            self.dismissed.add_parting(session);
        } else if self.dismissed.add(session) {
            self.readable.retain(|readable| *readable != session);
            self.events.retain(
                |event| !matches!(event, Event::Message { session: of, .. } if *of == session),
            );
        }
    }

    /// Returns whether a session was muted and the game has not yet processed its end.
    pub(crate) fn is_hushed(&self, session: SessionId) -> bool {
        self.dismissed.has(session)
    }

    /// Returns the sessions that the game knows or will know, except those it knows to be closed.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let ends = self.events.iter().filter_map(end_of);
        self.recorder.sessions().chain(ends)
    }

    /// When the thread ends, stores the outcomes for which the game's queue had no room.
    pub(crate) fn leave_word(&self) {
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
        self.go_on_stopping(now, endpoint);
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
        let queues = u32::try_from(self.held.bytes(session) >> 16).unwrap_or(u32::MAX);
        let span = self.linger.saturating_mul(queues.saturating_add(1));
        if !self.held.leave(session, latest.min(now + span), code) {
            // If the session has already ended, the game gets its end event.
            endpoint.close(now, session, code, &[]).ok();
        }
    }

    /// Shuts the endpoint down once no message waits.
    fn go_on_stopping(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        if self.stop == Stop::Waiting && self.held.is_empty() {
            self.stop = Stop::Done;
            endpoint.shutdown(now);
        }
    }

    /// Emits `Settled` for messages that were dropped before they reached the endpoint.
    fn tell_dropped(&mut self) {
        while let Some((session, channel, parcel)) = self.held.pop_dropped() {
            self.events.extend(dropped(session, channel, &parcel));
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

/// Gives a message to the endpoint. If the endpoint refuses a tracked message for good, emits its
/// `Settled` event.
fn post(
    now: Instant,
    endpoint: &mut Endpoint<Ring>,
    (session, channel, parcel): (SessionId, ChannelId, &Parcel),
    numbers: &mut BTreeMap<(SessionId, ChannelId, MessageId), MessageId>,
    events: &mut VecDeque<Event>,
) -> Result<(), SendError> {
    let Some((message, number)) = parcel.message(channel).zip(parcel.number()) else {
        return endpoint.send(now, session, channel, parcel.as_ref());
    };
    match endpoint.send_tracked(now, session, &message) {
        Ok(message) => {
            numbers.insert((session, channel, message), number);
            Ok(())
        }
        // Polling events makes room again.
        Err(SendError::Full | SendError::TooManyTracked) => Err(SendError::Full),
        Err(error) => {
            events.extend(dropped(session, channel, parcel));
            Err(error)
        }
    }
}

/// Returns the session that ends with an event.
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
fn dropped(session: SessionId, channel: ChannelId, parcel: &Parcel) -> Option<Event> {
    Some(Event::Settled {
        session,
        channel,
        message: parcel.number()?,
        outcome: MessageOutcome::Dropped,
    })
}

impl Application<Endpoint<Ring>> for Host {
    type Request = Order;

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        order: Order,
    ) -> ControlFlow<()> {
        let allowance = &self.signals.allowance;
        match order {
            Order::Send(session, channel, parcel) => {
                let (numbers, events) = (&mut self.numbers, &mut self.events);
                self.held.send(
                    now,
                    (session, channel, parcel),
                    allowance,
                    |session, channel, parcel| {
                        post(now, endpoint, (session, channel, parcel), numbers, events)
                    },
                );
                self.tell_dropped();
            }
            Order::Disconnect(session) => {
                allowance.give_back_for_order();
                // A client that disconnects still gets the server's last messages.
                if self.close_code == CloseCode::Kicked {
                    self.hush(session);
                }
                let latest = Instant::from_nanos(u64::MAX);
                self.end(now, endpoint, session, (latest, self.close_code));
            }
            Order::Kick(session, reason) => {
                allowance.give_back_for_order();
                self.hush(session);
                self.held.forget(session, &self.signals.allowance);
                self.tell_dropped();
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
                    self.sent_away.insert(session);
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
                if !self.sent_away.contains(&session) && !self.dismissed.has(session) {
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
                if self.sent_away.remove(&session) {
                    return;
                }
                self.recorder
                    .on_close(session, endpoint.session_stats(session).as_ref());
                // The endpoint frees the session before the tick ends, so its last messages are
                // read now, up to the limit.
                self.readable.retain(|readable| *readable != session);
                if !self.dismissed.end(session) {
                    let most = LAST_WORDS_MAX.saturating_sub(self.last_words);
                    let cost = self.read(now, endpoint, session, most);
                    self.last_words = self.last_words.saturating_add(cost);
                }
                self.held.forget(session, &self.signals.allowance);
                self.tell_dropped();
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
        [tick, self.held.poll_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        let allowance = &self.signals.allowance;
        let (numbers, events) = (&mut self.numbers, &mut self.events);
        self.held.retry(now, allowance, |session, channel, parcel| {
            post(now, endpoint, (session, channel, parcel), numbers, events)
        });
        while let Some((session, code)) = self.held.poll_left(now, allowance) {
            // It may have ended by itself.
            endpoint.close(now, session, code, &[]).ok();
        }
        self.tell_dropped();
        self.go_on_stopping(now, endpoint);
        if self.next_tick.is_some_and(|at| at <= now) {
            self.has_ticked = true;
        }
    }
}
