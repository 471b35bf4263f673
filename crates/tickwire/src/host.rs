//! The application that turns an endpoint's events into a game's, and keeps its tick.
//!
//! Between two ticks messages stay where the endpoint has put them: what is unread there is bounded
//! for each session, and reliable messages spend the credit that their sender has. They become
//! events when the game asks.

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

/// Bytes of messages from sessions that have ended, over all of them, that wait for the game; each
/// counts as [`MESSAGE_COST`] more than its length.
const LAST_WORDS_MAX: usize = 16 << 20;

/// Which end of its sessions a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Of many, which share what room there is.
    Server,
    /// Of one.
    Client,
}

/// How far the end of all sessions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It was not asked for.
    No,
    /// Messages that were sent before wait for room in their channels.
    Waiting,
    /// The endpoint is shut down.
    Done,
}

/// Collects events until the game takes them.
#[derive(Debug)]
pub(crate) struct Host {
    events: VecDeque<Event>,
    /// Sessions with messages that the endpoint keeps, each once.
    pub(crate) readable: VecDeque<SessionId>,
    /// Messages that a game on another thread has sent and their channels have no room for.
    held: Held<SessionId, Parcel>,
    /// By what number the game knows each message that it is to be told of.
    numbers: BTreeMap<(SessionId, ChannelId, MessageId), MessageId>,
    /// What is shared with that thread.
    pub(crate) signals: Arc<Signals>,
    /// Where so many events wait, whoever comes is sent away; no limit where the game's own thread
    /// drives the endpoint.
    pub(crate) events_max: usize,
    /// Those that were sent away as they came, until their end.
    sent_away: BTreeSet<SessionId>,
    /// Those whose messages the game does not get any more.
    dismissed: Dismissed,
    /// What `events` hold of sessions that have ended.
    last_words: usize,
    /// When the next tick begins, where the game keeps one.
    next_tick: Option<Instant>,
    /// The tick that was waited for has begun.
    pub(crate) has_ticked: bool,
    /// What it has seen over the last minute.
    pub(crate) recorder: Recorder<SessionId>,
    /// What a peer is told whose session the game ends.
    close_code: CloseCode,
    /// How long an end waits for what was sent before.
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

    /// Sees to it that a tick begins `span` after the last one, and returns how long after that
    /// the tick comes.
    ///
    /// Ticks keep their rhythm: one that was late does not move those behind it, unless it was
    /// late by more than a whole tick, and then the missed ones are left out.
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

    /// Takes what has happened since the last time.
    pub(crate) fn take(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) -> Vec<Event> {
        for session in core::mem::take(&mut self.readable) {
            self.read(now, endpoint, session, usize::MAX);
        }
        self.last_words = 0;
        self.dismissed.give(self.events.iter().filter_map(end_of));
        core::mem::take(&mut self.events).into()
    }

    /// Tells of no more messages of a session, where one is open or its end was given last.
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

    /// Returns whether a session was hushed and the game is not through with its end.
    pub(crate) fn is_hushed(&self, session: SessionId) -> bool {
        self.dismissed.has(session)
    }

    /// Returns the sessions that the game was or will be told of, and not of their ends.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let ends = self.events.iter().filter_map(end_of);
        self.recorder.sessions().chain(ends)
    }

    /// Keeps what became of messages where the game's queue had no room for it: the thread ends.
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

    /// Begins to end all sessions, by `deadline` at the latest, each once what was sent to it before has
    /// found room; returns whether it was not asked for before.
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
        // What is in the channels' queues then needs time as well.
        let span = deadline.saturating_since(now);
        let latest = now + span.saturating_sub(self.linger).max(span / 2);
        for session in endpoint.sessions().collect::<Vec<_>>() {
            self.end(now, endpoint, session, (latest, CloseCode::Shutdown));
        }
        self.go_on_stopping(now, endpoint);
        true
    }

    /// Ends a session once what was sent to it before has found room, at `latest` at the latest, and
    /// with a linger for each 64 KiB: a channel's queue is as long, and has as much time.
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
            // Where it has ended already, the game is told of that.
            endpoint.close(now, session, code, &[]).ok();
        }
    }

    /// Ends what is left where nothing is waited for any more.
    fn go_on_stopping(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        if self.stop == Stop::Waiting && self.held.is_empty() {
            self.stop = Stop::Done;
            endpoint.shutdown(now);
        }
    }

    /// Tells of what was dropped on its way to the endpoint.
    fn tell_dropped(&mut self) {
        while let Some((session, channel, parcel)) = self.held.pop_dropped() {
            self.events.extend(dropped(session, channel, &parcel));
        }
    }

    /// Reads the messages of a session until they cost `most`, and returns what they cost.
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

/// Gives a message to the endpoint; where that refuses it for good, whoever wants to know is told.
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
        // Events that are polled make room for others.
        Err(SendError::Full | SendError::TooManyTracked) => Err(SendError::Full),
        Err(error) => {
            events.extend(dropped(session, channel, parcel));
            Err(error)
        }
    }
}

/// Returns whose end an event tells of.
const fn end_of(event: &Event) -> Option<SessionId> {
    match event {
        Event::Disconnected { session, .. } => Some(*session),
        Event::Connected { .. }
        | Event::Message { .. }
        | Event::Settled { .. }
        | Event::Unreachable { .. } => None,
    }
}

/// What is told of a message that never came to the endpoint.
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
                // A client says good-bye, and its server may have the last word.
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
                // Where it has ended already, the game is told of that.
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
                    // It has come just now, so it can be ended.
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
                // The endpoint will forget it before the tick ends. What it said last comes before
                // its end, as far as there is room.
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
            // The facade asks for no check of the path; its rate stands in the statistics, and later
            // events are for later versions.
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
