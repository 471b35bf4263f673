//! The reliable client: the application's handle, and the machine and application of its thread.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, Outbound, PeerIdentity, StreamMachine,
};

use super::config::ReliableConfig;
use super::event::{ClientClose, ClientEvent};
use super::event_queue::{EventReceiver, EventSender, event_queue};
use super::member::EVENTS_MAX;
use super::record::{Backlog, Budget, Closing, ReliableRecord};
use super::server::MessageError;
use crate::Clock;
use crate::handle::SpawnError;
use crate::request::RequestError;
use crate::tcp::{
    Dial, DialError, StreamApplication, StreamCounters, StreamHandle, StreamReport, StreamServicer,
    TlsIdentity,
};

/// A running reliable client: one thread with one connection.
///
/// For use by one application thread. No method blocks except the ones with a wait time. Dropping
/// it shuts the client down without a drain.
#[derive(Debug)]
pub struct ReliableClient {
    handle: StreamHandle<Bytes>,
    receiver: EventReceiver<ClientEvent>,
    message_max: usize,
    is_over: bool,
}

impl ReliableClient {
    /// Starts a thread named `name`, and dials. The client asks to join with
    /// `join`, up to the server's [`ReliableConfig::join_bytes_max`]; a [`ClientEvent`] reports the
    /// result. If `identity` is given and the server is dialled as a node, the client proves that
    /// identity.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no descriptor or thread left.
    pub fn connect(
        name: impl Into<String>,
        dial: Dial,
        identity: Option<&TlsIdentity>,
        join: Bytes,
        config: &ReliableConfig,
    ) -> Result<Self, SpawnError> {
        let (events, receiver) = event_queue(config.queue_limits());
        let machine = ClientMachine::new(dial, join, config.budget(), events.clone());
        let mut servicer = StreamServicer::named(name).with_config(config.for_members());
        if let Some(identity) = identity {
            servicer = servicer.with_identity(identity);
        }
        let application = ClientApplication { events };
        Ok(Self {
            handle: servicer.spawn(Vec::new(), machine, application)?,
            receiver,
            message_max: config.message_max(),
            is_over: false,
        })
    }

    /// Sends a message. It waits in the queue until the server has accepted the client.
    ///
    /// # Errors
    ///
    /// [`MessageError`]. The message is then not sent.
    pub fn send(&self, payload: Bytes) -> Result<(), MessageError> {
        if payload.len() > self.message_max {
            return Err(MessageError::TooLong);
        }
        self.handle.request(payload).map_err(|error| match error {
            RequestError::Full(_) => MessageError::Busy,
            RequestError::Ended(_) => MessageError::Closed,
        })
    }

    /// Returns the next event, or `None` if there is none. Does not wait.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.receiver.take()?;
        self.filter_event(event)
    }

    /// Waits up to `within` for the next event.
    pub fn wait_event(&mut self, within: Duration) -> Option<ClientEvent> {
        let deadline = Clock::new().now() + within;
        loop {
            let left = deadline.saturating_since(Clock::new().now());
            let event = self.receiver.wait(left)?;
            if let Some(event) = self.filter_event(event) {
                return Some(event);
            }
        }
    }

    /// Returns a snapshot of the counters.
    pub fn counters(&self) -> StreamCounters {
        self.handle.counters()
    }

    /// Closes the connection after all messages are written, or after `within`, and joins the
    /// thread.
    pub fn shutdown(self, within: Duration) -> StreamReport {
        self.handle.shutdown(within)
    }

    /// Wakes the thread if it waits for room. Returns `None` for events after the close.
    fn filter_event(&mut self, event: ClientEvent) -> Option<ClientEvent> {
        if self.receiver.is_awaited() {
            self.handle.wake();
        }
        if self.is_over {
            return None;
        }
        self.is_over = matches!(event, ClientEvent::Closed(_));
        Some(event)
    }
}

#[derive(Debug)]
struct ClientApplication {
    events: EventSender<ClientEvent>,
}

impl Drop for ClientApplication {
    /// Reports the end of the thread, whatever its cause. The application ignores it if a close
    /// was reported before.
    fn drop(&mut self) {
        let close = ClientClose::ThreadEnded;
        self.events.put(0, ClientEvent::Closed(close));
    }
}

impl StreamApplication<ClientMachine> for ClientApplication {
    type Request = Bytes;

    fn apply_request(
        &mut self,
        _: Instant,
        machine: &mut ClientMachine,
        payload: Bytes,
    ) -> ControlFlow<()> {
        machine.send(payload);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut ClientMachine, event: ClientEvent) {
        let bytes = match &event {
            ClientEvent::Accepted { welcome } => welcome.len(),
            ClientEvent::Message(payload) => payload.len(),
            ClientEvent::Closed(_) => 0,
        };
        self.events.put(bytes, event);
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut ClientMachine,
        _: CommandId,
        DialCommand(dial): DialCommand,
    ) -> Option<Dial> {
        Some(dial)
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        machine: &mut ClientMachine,
        id: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        machine.handle_completed(now, id, result);
    }

    fn may_receive(&self, machine: &ClientMachine, _: ConnectionId) -> bool {
        machine.may_receive()
    }

    fn is_busy(&self, machine: &ClientMachine) -> bool {
        machine.is_waiting()
    }

    fn is_drained(&self, machine: &ClientMachine) -> bool {
        machine.is_drained()
    }
}

/// Dials once, sends the join record and exchanges messages.
#[derive(Debug)]
struct ClientMachine {
    state: State,
    /// Messages for the driver. Empty until the client is accepted.
    outbox: VecDeque<Bytes>,
    backlog: Backlog,
    budget: Budget,
    /// Whether the driver has granted the initial credit.
    has_credit: bool,
    queued: VecDeque<ClientEvent>,
    events: EventSender<ClientEvent>,
    /// Why the connection will close, once that is known.
    close: Option<ClientClose>,
}

#[derive(Debug)]
enum State {
    /// Before the dial, with the join payload.
    New(Box<Dial>, Bytes),
    /// Dialling.
    Dialling(Bytes),
    /// Connected, before the join record.
    Opened(ConnectionId, Bytes),
    /// The join record is sent.
    Joining,
    Member(ConnectionId),
    /// This end is closing the connection.
    Closing(ConnectionId),
    /// Closed, and the close is reported.
    Closed,
}

/// The only command: a dial.
#[derive(Debug)]
struct DialCommand(Dial);

impl Effect for DialCommand {
    type Outcome = Result<ConnectionId, DialError>;
}

impl ClientMachine {
    fn new(dial: Dial, join: Bytes, budget: Budget, events: EventSender<ClientEvent>) -> Self {
        Self {
            state: State::New(Box::new(dial), join),
            outbox: VecDeque::new(),
            backlog: Backlog::default(),
            budget,
            has_credit: false,
            queued: VecDeque::new(),
            events,
            close: None,
        }
    }

    /// Sends a message, unless the client is closed.
    fn send(&mut self, payload: Bytes) {
        if let State::Member(_) = self.state {
            self.outbox.push_back(payload);
        }
    }

    /// Returns whether messages must wait, because the client is not accepted yet.
    const fn is_waiting(&self) -> bool {
        !matches!(
            self.state,
            State::Member(_) | State::Closing(_) | State::Closed
        )
    }

    /// Returns whether the driver has been given all output that it can take now.
    fn is_drained(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Returns whether the application's queue has room for the server's messages.
    fn may_receive(&self) -> bool {
        self.queued.len() < EVENTS_MAX && (self.queued.is_empty() || self.events.has_room())
    }

    fn close(&mut self, id: ConnectionId, close: ClientClose) {
        self.close.get_or_insert(close);
        self.state = State::Closing(id);
        self.outbox.clear();
    }

    fn end(&mut self, close: ClientClose) {
        if !matches!(self.state, State::Closed) {
            self.state = State::Closed;
            self.outbox.clear();
            let close = self.close.take().unwrap_or(close);
            self.queued.push_back(ClientEvent::Closed(close));
        }
    }

    /// Handles a record of the server. Returns `None` if the record is not allowed now.
    fn take(&mut self, id: ConnectionId, record: ReliableRecord<'_>) -> Option<()> {
        let copy = Bytes::copy_from_slice;
        match (&self.state, record) {
            (State::Joining, ReliableRecord::Accepted(welcome)) => {
                self.state = State::Member(id);
                let welcome = copy(welcome);
                self.queued.push_back(ClientEvent::Accepted { welcome });
            }
            (State::Joining, ReliableRecord::Refused(reason)) => {
                self.close = Some(ClientClose::Refused(copy(reason)));
            }
            (State::Member(_), ReliableRecord::Message(payload)) => {
                self.queued.push_back(ClientEvent::Message(copy(payload)));
            }
            (_, ReliableRecord::Closing(closing, reason)) => {
                self.close = Some(match closing {
                    Closing::ShutDown => ClientClose::ShutDown(copy(reason)),
                    Closing::Slow => ClientClose::Slow,
                    Closing::Dismissed => ClientClose::Dismissed(copy(reason)),
                });
            }
            _ => return None,
        }
        Some(())
    }

    /// Writes a record if the budget has room. Otherwise closes the connection to the server.
    fn write(
        &mut self,
        now: Instant,
        id: ConnectionId,
        record: ReliableRecord<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        record.encode(buf);
        if !self.backlog.has_room(buf.len(), &self.budget) {
            buf.clear();
            self.close(id, ClientClose::ServerSlow);
            return self.poll_outbound(now, buf);
        }
        self.backlog.push(now, buf.len(), 1);
        Some(Outbound {
            connection: id,
            close: false,
        })
    }
}

impl StreamMachine for ClientMachine {
    type Event = ClientEvent;
    type Command = DialCommand;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, _: &PeerIdentity) {
        if let State::Dialling(join) = &mut self.state {
            self.state = State::Opened(id, std::mem::take(join));
        }
    }

    fn handle_frame(&mut self, _: Instant, id: ConnectionId, record: &[u8]) {
        // After the server's close record nothing else is handled.
        if self.close.is_some() || matches!(self.state, State::Closed) {
            return;
        }
        let record = ReliableRecord::decode(record);
        if record.and_then(|record| self.take(id, record)).is_none() {
            self.close(id, ClientClose::Malformed);
        }
    }

    fn handle_credit(&mut self, _: Instant, _: ConnectionId, bytes: usize) {
        if self.has_credit {
            self.backlog.on_written(bytes);
        } else {
            // The first credit's size is ignored: the budget is smaller.
            self.has_credit = true;
        }
    }

    fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {
        // Without a close record, the connection was lost.
        self.end(ClientClose::Lost);
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        match &mut self.state {
            State::Opened(id, join) => {
                let (id, join) = (*id, std::mem::take(join));
                self.state = State::Joining;
                self.write(now, id, ReliableRecord::Join(&join), buf)
            }
            State::Member(id) => {
                let id = *id;
                let payload = self.outbox.pop_front()?;
                self.write(now, id, ReliableRecord::Message(&payload), buf)
            }
            State::Closing(id) => {
                let connection = *id;
                self.end(ClientClose::Lost);
                Some(Outbound {
                    connection,
                    close: true,
                })
            }
            State::New(..) | State::Dialling(_) | State::Joining | State::Closed => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_late = |at: Instant| at <= now;
        if self.backlog.deadline(&self.budget).is_some_and(is_late)
            && let State::Member(id) = self.state
        {
            self.close(id, ClientClose::ServerSlow);
        }
    }

    fn handle_completed(
        &mut self,
        _: Instant,
        _: CommandId,
        outcome: Result<ConnectionId, DialError>,
    ) {
        if let Err(error) = outcome {
            self.end(ClientClose::Unreachable(error));
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, DialCommand)> {
        let State::New(dial, join) = &mut self.state else {
            return None;
        };
        let command = DialCommand(Dial::clone(dial));
        self.state = State::Dialling(std::mem::take(join));
        Some((CommandId(0), command))
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        if self.queued.is_empty() || !self.events.has_room() {
            return None;
        }
        self.queued.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Member(_) => self.backlog.deadline(&self.budget),
            State::New(..)
            | State::Dialling(_)
            | State::Opened(..)
            | State::Joining
            | State::Closing(_)
            | State::Closed => None,
        }
    }
}
