//! The accepting servicer: TLS handshakes and join requests, until the application has decided.
//!
//! An unaccepted client has no thread, and is limited to a handshake and one short record. After
//! its join request, the connection is handed to the application and is not read until it is
//! accepted.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::event::JoinRequest;
use super::letter::{Closing, Letter};
use super::mailbox::Mailbox;
use super::news::{News, ServicerNumber};
use super::socket::SocketOptions;
use crate::tcp::{Dial, DialError, OpenConnection, StreamApplication};

/// The machine of the accepting servicer.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// Connected clients, with the join payload once it has arrived.
    strangers: BTreeMap<ConnectionId, Option<Bytes>>,
    /// Clients with a join payload, in order of arrival.
    joining: VecDeque<ConnectionId>,
    /// Refusal reasons for the connections that are about to be adopted.
    refusals: VecDeque<Bytes>,
    /// Final records. Each connection is closed after its record.
    last_words: VecDeque<(ConnectionId, Words)>,
}

#[derive(Debug)]
enum Words {
    Refused(Bytes),
    ShutDown(Bytes),
    /// No record, after a protocol error.
    None,
}

impl Door {
    fn shut(&mut self, farewell: &Bytes) {
        self.joining.clear();
        for id in self.strangers.keys() {
            let words = Words::ShutDown(farewell.clone());
            self.last_words.push_back((*id, words));
        }
    }

    /// Removes a client that has left. Its join request is discarded even if the application takes
    /// no events.
    fn forget(&mut self, id: ConnectionId) {
        if let Some(Some(_)) = self.strangers.remove(&id) {
            self.joining.retain(|other| *other != id);
        }
    }
}

impl StreamMachine for Door {
    type Event = Infallible;
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, _: &PeerIdentity) {
        if let Some(reason) = self.refusals.pop_front() {
            self.last_words.push_back((id, Words::Refused(reason)));
        } else {
            self.strangers.insert(id, None);
        }
    }

    fn handle_frame(&mut self, _: Instant, id: ConnectionId, record: &[u8]) {
        let Some(request) = self.strangers.get_mut(&id) else {
            return;
        };
        match Letter::decode(record) {
            Some(Letter::Join(payload)) if request.is_none() => {
                *request = Some(Bytes::copy_from_slice(payload));
                self.joining.push_back(id);
            }
            Some(_) | None => {
                self.forget(id);
                self.last_words.push_back((id, Words::None));
            }
        }
    }

    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}

    fn handle_closed(&mut self, _: Instant, id: ConnectionId, _: CloseCause) {
        self.forget(id);
    }

    fn poll_outbound(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        let (connection, words) = self.last_words.pop_front()?;
        match &words {
            Words::Refused(reason) => Letter::Refused(reason).encode(buf),
            Words::ShutDown(farewell) => {
                Letter::Closing(Closing::ShutDown, farewell).encode(buf);
            }
            Words::None => {}
        }
        Some(Outbound {
            connection,
            close: true,
        })
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A client that the application has refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) connection: OpenConnection,
    pub(super) reason: Bytes,
}

/// The application of the accepting servicer.
#[derive(Debug)]
pub(super) struct Porter {
    number: ServicerNumber,
    mailbox: Mailbox<News>,
    arrivals: VecDeque<OpenConnection>,
    /// Join payload of the connection that is handed over next.
    payload: Option<Bytes>,
    options: SocketOptions,
    /// The shutdown reason for unaccepted clients.
    farewell: Arc<OnceLock<Bytes>>,
}

impl Porter {
    pub(super) const fn new(
        number: ServicerNumber,
        mailbox: Mailbox<News>,
        options: SocketOptions,
        farewell: Arc<OnceLock<Bytes>>,
    ) -> Self {
        Self {
            number,
            mailbox,
            arrivals: VecDeque::new(),
            payload: None,
            options,
            farewell,
        }
    }
}

impl Drop for Porter {
    /// Reports the end of the servicer, whatever its cause.
    fn drop(&mut self) {
        self.mailbox.put(0, News::Ended(self.number));
    }
}

impl StreamApplication<Door> for Porter {
    type Request = Refusal;

    fn apply_request(&mut self, _: Instant, door: &mut Door, refusal: Refusal) -> ControlFlow<()> {
        door.refusals.push_back(refusal.reason);
        self.arrivals.push_back(refusal.connection);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Door, event: Infallible) {
        match event {}
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Door,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }

    fn on_dialled(
        &mut self,
        _: Instant,
        _: &mut Door,
        _: CommandId,
        _: Result<ConnectionId, DialError>,
    ) {
    }

    /// Stops reading after the join record: the next record is for the servicer of the accepted
    /// client.
    fn may_receive(&self, door: &Door, id: ConnectionId) -> bool {
        !matches!(door.strangers.get(&id), Some(Some(_)))
    }

    fn poll_arrival(&mut self, _: &mut Door) -> Option<OpenConnection> {
        self.arrivals.pop_front()
    }

    fn poll_departure(&mut self, door: &mut Door) -> Option<ConnectionId> {
        while !door.joining.is_empty() && self.mailbox.has_room() {
            let id = door.joining.pop_front()?;
            if let Some(Some(payload)) = door.strangers.remove(&id) {
                self.payload = Some(payload);
                return Some(id);
            }
        }
        None
    }

    fn on_departed(&mut self, _: Instant, _: &mut Door, connection: OpenConnection) {
        let payload = self.payload.take().unwrap_or_default();
        self.options.ask_for(connection.socket());
        let address = connection.address();
        let request = JoinRequest {
            connection,
            payload,
            address,
        };
        let news = News::Join(Box::new(request));
        self.mailbox.put(news.bytes(), news);
    }

    fn begin_shutdown(&mut self, _: Instant, door: &mut Door, _: Instant) {
        door.shut(self.farewell.get().unwrap_or(&Bytes::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_leaves_before_the_application_looks_leaves_nothing() {
        let mut door = Door::default();
        let now = Instant::ZERO;
        let peer = PeerIdentity::Anonymous;
        let mut request = Vec::new();
        Letter::Join(b"let me in").encode(&mut request);
        for number in 1..=10_000 {
            let id = ConnectionId(number);
            door.handle_opened(now, id, &peer);
            door.handle_frame(now, id, &request);
            assert_eq!(door.joining, [id]);
            if number % 2 == 0 {
                // The client sends a second record. The driver still reports the close.
                door.handle_frame(now, id, &request);
                assert_eq!(door.last_words.pop_front().unwrap().0, id);
            }
            door.handle_closed(now, id, CloseCause::Failed);
            assert!(door.joining.is_empty() && door.strangers.is_empty());
        }
    }
}
