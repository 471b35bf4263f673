//! Servers and clients for tasks: the socket has a thread of its own, and events come by a
//! channel that tasks wait on.
//!
//! The thread, not the runtime, keeps the protocol's timers and answers its peers: a task that
//! blocks the runtime delays the game and no acknowledgement. Any runtime serves; only tokio's
//! channels are used.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::thread::Builder;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use udp_proto::{ChannelId, Message, MessageId, SendError, SessionId};

use crate::background::{EVENTS_MAX, Line, Offer, Outlet};
use crate::socket::Socket;
use crate::{Client, Event, Report, Server, ServerKey};

/// A client for tasks; made by [`Client::in_tasks`].
///
/// Dropping it ends the session without waiting for what it sent last.
#[derive(Debug)]
pub struct AsyncClient {
    link: Link,
    session: SessionId,
}

/// A server for tasks; made by [`Server::in_tasks`].
///
/// Dropping it ends all sessions without waiting for what they were sent last.
#[derive(Debug)]
pub struct AsyncServer {
    link: Link,
    address: SocketAddr,
    key: ServerKey,
}

impl Client {
    /// Moves the client to a thread of its own, for tasks to talk to.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
    pub fn in_tasks(self) -> io::Result<AsyncClient> {
        let session = self.session();
        let link = Link::start("tickwire client", self.socket)?;
        Ok(AsyncClient { link, session })
    }
}

impl Server {
    /// Moves the server to a thread of its own, for tasks to talk to.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
    pub fn in_tasks(self) -> io::Result<AsyncServer> {
        let (address, key) = (self.address(), self.key());
        let link = Link::start("tickwire server", self.socket)?;
        Ok(AsyncServer { link, address, key })
    }
}

impl AsyncClient {
    /// Returns the session, which is open from [`Event::Connected`] on.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Queues a message, once there is room: at most 4 MiB wait, each message counted as 1 KiB more
    /// than its length. Dropping the future before it is ready sends nothing.
    ///
    /// # Errors
    ///
    /// What [`Client::send`] refuses for its channel or length; [`SendError::Closed`] where the
    /// thread has ended. A message that the session's end overtakes is dropped.
    pub async fn send(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.link.send(self.session, channel, message).await
    }

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it, with the number
    /// returned: exactly once, also where it never reached the endpoint or the thread has ended, as long
    /// as events are taken until `None`. Numbers begin at 2^63. What is sent to a session whose end is on
    /// its way is told of after that end.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] where 4,096 messages of the session were
    /// not told of by an event that was taken, or more than a quarter of what that leaves to others of
    /// 65,536.
    pub async fn send_tracked(&self, message: &Message<'_>) -> Result<MessageId, SendError> {
        self.link.send_tracked(self.session, message).await
    }

    /// Waits for a report of this moment, as [`Client::report`]'s; `None` where the thread has ended
    /// before it came, or 1,024 wait for one.
    pub async fn report(&self) -> Option<Report> {
        self.link.report().await
    }

    /// Waits for the next event; `None` once the thread has ended and all were taken.
    ///
    /// Dropping the future loses no event.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.link.next_event().await
    }

    /// Ends the session, once what was sent reliably has arrived; [`Event::Disconnected`] follows.
    ///
    /// Messages that wait on the thread are given [`Config::linger`](crate::Config::linger) for each
    /// 64 KiB of them, and then those in the channels' queues as long again.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] where no order finds room; [`SendError::Closed`] where the thread has
    /// ended.
    pub fn disconnect(&self) -> Result<(), SendError> {
        self.link.line.disconnect(self.session)
    }

    /// Ends the session and the thread within `within`; what was sent reliably arrives first, as far
    /// as that allows. Take events until `None` to wait for it.
    pub fn shutdown(&self, within: Duration) {
        self.link.line.stop(within);
    }
}

impl AsyncServer {
    /// Returns the key that clients pin.
    pub const fn key(&self) -> ServerKey {
        self.key
    }

    /// Returns the address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a message, once there is room; as [`AsyncClient::send`].
    ///
    /// A session whose reliable channel is full lets what it is sent wait, and from where it holds as
    /// much room as it leaves to others also who sends to it: end the sessions that do not keep up.
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::send`]. What is sent to a session that has ended is dropped.
    pub async fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.link.send(session, channel, message).await
    }

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it; as
    /// [`AsyncClient::send_tracked`].
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::send_tracked`].
    pub async fn send_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.link.send_tracked(session, message).await
    }

    /// Waits for a report of this moment; as [`AsyncClient::report`].
    pub async fn report(&self) -> Option<Report> {
        self.link.report().await
    }

    /// Waits for the next event; `None` once the thread has ended and all were taken.
    ///
    /// Dropping the future loses no event.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.link.next_event().await
    }

    /// Ends a session, once what was sent reliably has arrived; [`Event::Disconnected`] follows, and none
    /// of its messages, also of those that wait. A player who takes nothing delays his end as
    /// [`AsyncClient::disconnect`] says: [`kick`](Self::kick) does not wait.
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::disconnect`].
    pub fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.link.line.send_away(session)
    }

    /// Ends a session at once, whatever is queued for it, and tells the player `reason`; as
    /// [`Server::kick`]. None of its messages follows.
    ///
    /// # Errors
    ///
    /// As [`disconnect`](Self::disconnect).
    pub fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.link.line.kick(session, reason)
    }

    /// Ends all sessions and the thread within `within`; as [`AsyncClient::shutdown`].
    pub fn shutdown(&self, within: Duration) {
        self.link.line.stop(within);
    }
}

/// The way to the thread, and its events.
#[derive(Debug)]
struct Link {
    line: Line,
    events: Receiver<Event>,
}

impl Link {
    fn start(name: &str, socket: Socket) -> io::Result<Self> {
        let (outlet, events) = channel(EVENTS_MAX);
        let line = Line::to(&socket);
        let served = line.clone();
        // It ends when it is told to, at the latest when this is dropped.
        let _thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || socket.serve(&served, &outlet))?;
        Ok(Self { line, events })
    }

    async fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.line.check(channel, message)?;
        let allowance = &self.line.signals.allowance;
        allowance.take_when_there_is(session, message.len()).await;
        self.line.queue(session, channel, message)
    }

    async fn send_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.line.check(message.channel, message.bytes)?;
        let signals = &self.line.signals;
        let len = message.bytes.len();
        signals.allowance.take_when_there_is(session, len).await;
        let number = signals
            .tracked
            .begin(session, message.channel)
            .inspect_err(|_| signals.allowance.give_back(session, len))?;
        self.line.queue_tracked(session, message, number)
    }

    async fn report(&self) -> Option<Report> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        // Nobody may wait for it any more.
        let give = move |report| drop(answer.send(report));
        self.line.report(give).ok()?;
        answered.await.ok()
    }

    async fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(event) = self.events.recv().await else {
                return self.line.last_event();
            };
            if let Some(event) = self.line.on_taken(event) {
                return Some(event);
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.line.stop(Duration::ZERO);
    }
}

impl Outlet for Sender<Event> {
    fn offer(&self, event: Event) -> Result<(), Offer> {
        self.try_send(event).map_err(|error| match error {
            TrySendError::Full(event) => Offer::Full(event),
            TrySendError::Closed(_) => Offer::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use udp_proto::AppId;

    /// The thread has looked for orders and answers, and ends; then somebody asks.
    #[test]
    fn u18_whoever_asks_for_a_report_of_a_thread_that_ends_is_told_of_its_end() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), AppId(1)).unwrap();
        let line = Line::to(&server.socket);
        let (_outlet, events) = channel(1);
        let link = Link { line, events };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let ends = async {
            // As `Socket::serve` ends.
            let ended = link.line.signals.announce_end();
            drop(server);
            drop(ended);
        };
        let both = async { tokio::join!(biased; link.report(), ends).0 };
        let both = async { tokio::time::timeout(Duration::from_secs(20), both).await };
        assert!(matches!(runtime.block_on(both), Ok(None)));
    }
}
