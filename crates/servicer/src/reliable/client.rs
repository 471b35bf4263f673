//! The application's end of a reliable client, and its servicer's application.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use wire::{CommandId, ConnectionId, Instant};

use super::caller::{Call, Caller};
use super::config::ReliableConfig;
use super::event::{ClientClose, ClientEvent};
use super::mailbox::{Inbox, Mailbox, mailbox};
use super::server::MessageError;
use crate::Clock;
use crate::handle::SpawnError;
use crate::request::RequestError;
use crate::tcp::{
    Dial, DialError, StreamApplication, StreamCounters, StreamHandle, StreamReport, StreamServicer,
    TlsIdentity,
};

/// A running reliable client: one servicer, with one connection.
///
/// For one thread of the application, which never waits here but where it asks to. Dropping it shuts it
/// down with no time left for an orderly end.
#[derive(Debug)]
pub struct ReliableClient {
    handle: StreamHandle<Bytes>,
    inbox: Inbox<ClientEvent>,
    message_max: usize,
    /// Whether the end of it has been told.
    is_over: bool,
}

impl ReliableClient {
    /// Starts the servicer, whose thread is called `name`, and dials. It asks to be let in with `join`,
    /// up to [`ReliableConfig::join_bytes_max`] of the server; [`ClientEvent`] tells what comes of it.
    /// Where there is an `identity`, it is proved to a server that is dialled as a node.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no descriptor or thread left.
    pub fn connect(
        name: impl Into<String>,
        dial: Dial,
        identity: Option<&TlsIdentity>,
        join: Bytes,
        config: &ReliableConfig,
    ) -> Result<Self, SpawnError> {
        let (mailbox, inbox) = mailbox(config.room());
        let caller = Caller::new(dial, join, config.budget(), mailbox.clone());
        let mut servicer = StreamServicer::named(name).with_config(config.for_members());
        if let Some(identity) = identity {
            servicer = servicer.with_identity(identity);
        }
        let line = Line { mailbox };
        Ok(Self {
            handle: servicer.spawn(Vec::new(), caller, line)?,
            inbox,
            message_max: config.message_max(),
            is_over: false,
        })
    }

    /// Sends a message. Before the server has let the client in, it waits.
    ///
    /// # Errors
    ///
    /// [`MessageError`]; then it is not sent.
    pub fn send(&self, payload: Bytes) -> Result<(), MessageError> {
        if payload.len() > self.message_max {
            return Err(MessageError::TooLong);
        }
        self.handle.request(payload).map_err(|error| match error {
            RequestError::Full(_) => MessageError::Busy,
            RequestError::Ended(_) => MessageError::Closed,
        })
    }

    /// Returns the next event, and does not wait; `None` where there is none now.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.inbox.take()?;
        self.note(event)
    }

    /// Waits up to `within` for the next event.
    pub fn wait_event(&mut self, within: Duration) -> Option<ClientEvent> {
        let deadline = Clock::new().now() + within;
        loop {
            let left = deadline.saturating_since(Clock::new().now());
            let event = self.inbox.wait(left)?;
            if let Some(event) = self.note(event) {
                return Some(event);
            }
        }
    }

    /// Returns what the servicer has done so far.
    pub fn counters(&self) -> StreamCounters {
        self.handle.counters()
    }

    /// Closes the connection once what was sent is written, up to `within`, and joins the thread.
    pub fn shutdown(self, within: Duration) -> StreamReport {
        self.handle.shutdown(within)
    }

    /// Takes note of an event; nothing is told after the end.
    fn note(&mut self, event: ClientEvent) -> Option<ClientEvent> {
        if self.inbox.is_awaited() {
            self.handle.wake();
        }
        if self.is_over {
            return None;
        }
        self.is_over = matches!(event, ClientEvent::Closed(_));
        Some(event)
    }
}

/// The application of a client's servicer.
#[derive(Debug)]
struct Line {
    mailbox: Mailbox<ClientEvent>,
}

impl Drop for Line {
    /// Whatever ends the servicer, the application hears of it: where it was told of an end before,
    /// it passes this over.
    fn drop(&mut self) {
        let close = ClientClose::ServicerEnded;
        self.mailbox.put(0, ClientEvent::Closed(close));
    }
}

impl StreamApplication<Caller> for Line {
    type Request = Bytes;

    fn apply_request(
        &mut self,
        _: Instant,
        caller: &mut Caller,
        payload: Bytes,
    ) -> ControlFlow<()> {
        caller.send(payload);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Caller, event: ClientEvent) {
        let bytes = match &event {
            ClientEvent::Accepted { welcome } => welcome.len(),
            ClientEvent::Message(payload) => payload.len(),
            ClientEvent::Closed(_) => 0,
        };
        self.mailbox.put(bytes, event);
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Caller,
        _: CommandId,
        Call(dial): Call,
    ) -> Option<Dial> {
        Some(dial)
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        caller: &mut Caller,
        id: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        use wire::StreamMachine as _;
        caller.handle_completed(now, id, result);
    }

    fn may_receive(&self, caller: &Caller, _: ConnectionId) -> bool {
        caller.may_receive()
    }

    fn is_busy(&self, caller: &Caller) -> bool {
        caller.is_waiting()
    }

    fn is_drained(&self, caller: &Caller) -> bool {
        caller.is_drained()
    }
}
