//! The reliable client: the application's handle, and the servicer's application.

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

/// A running reliable client: one servicer with one connection.
///
/// For use by one application thread. No method blocks except the ones with a wait time. Dropping
/// it shuts the client down without a drain.
#[derive(Debug)]
pub struct ReliableClient {
    handle: StreamHandle<Bytes>,
    inbox: Inbox<ClientEvent>,
    message_max: usize,
    /// Whether the close was reported.
    is_over: bool,
}

impl ReliableClient {
    /// Starts the servicer on a thread named `name`, and dials. The client asks to join with
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

    /// Returns a snapshot of the counters.
    pub fn counters(&self) -> StreamCounters {
        self.handle.counters()
    }

    /// Closes the connection after all messages are written, or after `within`, and joins the
    /// thread.
    pub fn shutdown(self, within: Duration) -> StreamReport {
        self.handle.shutdown(within)
    }

    /// Tracks the close. Returns `None` for events after it.
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

/// The application of the client's servicer.
#[derive(Debug)]
struct Line {
    mailbox: Mailbox<ClientEvent>,
}

impl Drop for Line {
    /// Reports the end of the servicer, whatever its cause. The application ignores it if a close
    /// was reported before.
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
