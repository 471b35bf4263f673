//! The machine of a reliable client.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, Outbound, PeerIdentity, StreamMachine,
};

use super::backlog::{Backlog, Budget};
use super::desk::NEWS_MAX;
use super::event::{ClientClose, ClientEvent};
use super::letter::{Closing, Letter};
use super::mailbox::Mailbox;
use crate::tcp::{Dial, DialError};

/// Dials once, sends the join record and exchanges messages.
#[derive(Debug)]
pub(super) struct Caller {
    state: State,
    /// Messages for the driver. Empty until the client is accepted.
    outbox: VecDeque<Bytes>,
    backlog: Backlog,
    budget: Budget,
    /// Whether the driver has granted the initial credit.
    has_credit: bool,
    news: VecDeque<ClientEvent>,
    mailbox: Mailbox<ClientEvent>,
    /// Why the connection will close, once that is known.
    close: Option<ClientClose>,
}

/// State of a client.
#[derive(Debug)]
enum State {
    /// Before the dial, with the join payload.
    New(Box<Dial>, Bytes),
    /// Dialling.
    Dialling(Bytes),
    /// Connected, before the join record.
    Opened(ConnectionId, Bytes),
    /// The join record is sent.
    Asking,
    Inside(ConnectionId),
    /// This end is closing the connection.
    Leaving(ConnectionId),
    /// Closed, and the close is reported.
    Over,
}

/// The only command: a dial.
#[derive(Debug)]
pub(super) struct Call(pub(super) Dial);

impl Effect for Call {
    type Outcome = Result<ConnectionId, DialError>;
}

impl Caller {
    pub(super) fn new(
        dial: Dial,
        join: Bytes,
        budget: Budget,
        mailbox: Mailbox<ClientEvent>,
    ) -> Self {
        Self {
            state: State::New(Box::new(dial), join),
            outbox: VecDeque::new(),
            backlog: Backlog::default(),
            budget,
            has_credit: false,
            news: VecDeque::new(),
            mailbox,
            close: None,
        }
    }

    /// Sends a message, unless the client is closed.
    pub(super) fn send(&mut self, payload: Bytes) {
        if let State::Inside(_) = self.state {
            self.outbox.push_back(payload);
        }
    }

    /// Returns whether messages must wait, because the client is not accepted yet.
    pub(super) const fn is_waiting(&self) -> bool {
        !matches!(
            self.state,
            State::Inside(_) | State::Leaving(_) | State::Over
        )
    }

    /// Returns whether the driver has been given all output that it can take now.
    pub(super) fn is_drained(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Returns whether the application's queue has room for the server's messages.
    pub(super) fn may_receive(&self) -> bool {
        self.news.len() < NEWS_MAX && (self.news.is_empty() || self.mailbox.has_room())
    }

    /// Closes the connection for a local cause.
    fn leave(&mut self, id: ConnectionId, close: ClientClose) {
        self.close.get_or_insert(close);
        self.state = State::Leaving(id);
        self.outbox.clear();
    }

    /// Reports the close, once.
    fn end(&mut self, close: ClientClose) {
        if !matches!(self.state, State::Over) {
            self.state = State::Over;
            self.outbox.clear();
            let close = self.close.take().unwrap_or(close);
            self.news.push_back(ClientEvent::Closed(close));
        }
    }

    /// Handles a record of the server. Returns `None` if the record is not allowed now.
    fn take(&mut self, id: ConnectionId, letter: Letter<'_>) -> Option<()> {
        let copy = Bytes::copy_from_slice;
        match (&self.state, letter) {
            (State::Asking, Letter::Accepted(welcome)) => {
                self.state = State::Inside(id);
                let welcome = copy(welcome);
                self.news.push_back(ClientEvent::Accepted { welcome });
            }
            (State::Asking, Letter::Refused(reason)) => {
                self.close = Some(ClientClose::Refused(copy(reason)));
            }
            (State::Inside(_), Letter::Message(payload)) => {
                self.news.push_back(ClientEvent::Message(copy(payload)));
            }
            (_, Letter::Closing(closing, words)) => {
                self.close = Some(match closing {
                    Closing::ShutDown => ClientClose::ShutDown(copy(words)),
                    Closing::Slow => ClientClose::Slow,
                    Closing::Dismissed => ClientClose::Dismissed(copy(words)),
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
        letter: Letter<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        letter.encode(buf);
        if !self.backlog.has_room(buf.len(), &self.budget) {
            buf.clear();
            self.leave(id, ClientClose::ServerSlow);
            return self.poll_outbound(now, buf);
        }
        self.backlog.push(now, buf.len(), 1);
        Some(Outbound {
            connection: id,
            close: false,
        })
    }
}

impl StreamMachine for Caller {
    type Event = ClientEvent;
    type Command = Call;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, _: &PeerIdentity) {
        if let State::Dialling(join) = &mut self.state {
            self.state = State::Opened(id, std::mem::take(join));
        }
    }

    fn handle_frame(&mut self, _: Instant, id: ConnectionId, record: &[u8]) {
        // After the server's close record nothing else is handled.
        if self.close.is_some() || matches!(self.state, State::Over) {
            return;
        }
        let letter = Letter::decode(record);
        if letter.and_then(|letter| self.take(id, letter)).is_none() {
            self.leave(id, ClientClose::Malformed);
        }
    }

    fn handle_credit(&mut self, _: Instant, _: ConnectionId, bytes: usize) {
        if self.has_credit {
            self.backlog.note_written(bytes);
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
                self.state = State::Asking;
                self.write(now, id, Letter::Join(&join), buf)
            }
            State::Inside(id) => {
                let id = *id;
                let payload = self.outbox.pop_front()?;
                self.write(now, id, Letter::Message(&payload), buf)
            }
            State::Leaving(id) => {
                let connection = *id;
                self.end(ClientClose::Lost);
                Some(Outbound {
                    connection,
                    close: true,
                })
            }
            State::New(..) | State::Dialling(_) | State::Asking | State::Over => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_late = |at: Instant| at <= now;
        if self.backlog.deadline(&self.budget).is_some_and(is_late)
            && let State::Inside(id) = self.state
        {
            self.leave(id, ClientClose::ServerSlow);
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

    fn poll_command(&mut self) -> Option<(CommandId, Call)> {
        let State::New(dial, join) = &mut self.state else {
            return None;
        };
        let call = Call(Dial::clone(dial));
        self.state = State::Dialling(std::mem::take(join));
        Some((CommandId(0), call))
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        if self.news.is_empty() || !self.mailbox.has_room() {
            return None;
        }
        self.news.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Inside(_) => self.backlog.deadline(&self.budget),
            State::New(..)
            | State::Dialling(_)
            | State::Opened(..)
            | State::Asking
            | State::Leaving(_)
            | State::Over => None,
        }
    }
}
