//! Servers and clients for async tasks: the socket has its own thread, and events arrive through an
//! async channel.
//!
//! The thread runs the protocol's timers and acknowledgements, so a task that blocks the runtime
//! delays only the game. Only tokio's channels are used, so any runtime works.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::thread::Builder;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use udp_proto::{ChannelId, Message, MessageId, SendError, SessionId};

use crate::shared::{EVENTS_MAX, EventSink, OfferError, SharedChannel};
use crate::socket::Socket;
use crate::{Client, Event, Report, Server, ServerKey};

/// A client for async tasks; see [`Client::in_tasks`].
///
/// Dropping it ends the session without waiting for queued messages.
#[derive(Debug)]
pub struct AsyncClient {
    thread: Thread,
    session: SessionId,
}

/// A server for async tasks; see [`Server::in_tasks`].
///
/// Dropping it ends all sessions without waiting for queued messages.
#[derive(Debug)]
pub struct AsyncServer {
    thread: Thread,
    address: SocketAddr,
    key: ServerKey,
}

impl Client {
    /// Moves the client to its own thread, with an async interface.
    ///
    /// # Errors
    ///
    /// The system's error if the thread cannot be started.
    pub fn in_tasks(self) -> io::Result<AsyncClient> {
        let session = self.session();
        let thread = Thread::start("tickwire client", self.socket)?;
        Ok(AsyncClient { thread, session })
    }
}

impl Server {
    /// Moves the server to its own thread, with an async interface.
    ///
    /// # Errors
    ///
    /// The system's error if the thread cannot be started.
    pub fn in_tasks(self) -> io::Result<AsyncServer> {
        let (address, key) = (self.address(), self.key());
        let thread = Thread::start("tickwire server", self.socket)?;
        Ok(AsyncServer {
            thread,
            address,
            key,
        })
    }
}

impl AsyncClient {
    /// Returns the session, which is open once [`Event::Connected`] was returned.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Queues a message when there is room: at most 4 MiB wait, each message counted as 1 KiB more
    /// than its length. If the future is dropped before it completes, nothing is sent.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::send`] for its channel or length; [`SendError::Closed`] if the
    /// thread has ended. A message that is still queued when the session ends is dropped.
    pub async fn send(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.thread.send(self.session, channel, message).await
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome with the returned
    /// number. It does so exactly once if the game takes events until `None`, even if the message
    /// never reached the endpoint or the thread has ended. Numbers start at 2^63. If the session is
    /// already ending, `Settled` follows after `Disconnected`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] if 4,096 messages of the session
    /// have no `Settled` event that was taken, or more than a quarter of what the session leaves to
    /// others of 65,536.
    pub async fn send_tracked(&self, message: &Message<'_>) -> Result<MessageId, SendError> {
        self.thread.send_tracked(self.session, message).await
    }

    /// Waits for a report like [`Client::report`]'s. `None` if the thread ends first, or if 1,024
    /// requests wait.
    pub async fn report(&self) -> Option<Report> {
        self.thread.report().await
    }

    /// Waits for the next event; `None` once the thread has ended and all events were taken.
    ///
    /// Cancel safe: dropping the future loses no event.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event().await
    }

    /// Ends the session after all reliable messages have arrived; [`Event::Disconnected`] follows.
    ///
    /// Messages that wait on the thread get [`Config::linger`](crate::Config::linger) for each 64
    /// KiB of them; then those in the channels' queues get one linger.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if there is no room for the request; [`SendError::Closed`] if the thread
    /// has ended.
    pub fn disconnect(&self) -> Result<(), SendError> {
        self.thread.shared.disconnect(self.session)
    }

    /// Ends the session and the thread within `within`. Reliable messages are delivered first if
    /// `within` allows. To wait for the end, take events until `None`.
    pub fn shutdown(&self, within: Duration) {
        self.thread.shared.stop(within);
    }
}

impl AsyncServer {
    /// Returns the key that clients pin.
    pub const fn key(&self) -> ServerKey {
        self.key
    }

    /// Returns the address that the server listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a message when there is room; see [`AsyncClient::send`].
    ///
    /// `send` also waits if the session's messages use up its share of the allowance: end sessions
    /// that do not keep up.
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::send`]. A message to a session that has ended is dropped.
    pub async fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.thread.send(session, channel, message).await
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome; see
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
        self.thread.send_tracked(session, message).await
    }

    /// Waits for a report; see [`AsyncClient::report`].
    pub async fn report(&self) -> Option<Report> {
        self.thread.report().await
    }

    /// Waits for the next event; see [`AsyncClient::next_event`].
    pub async fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event().await
    }

    /// Ends a session after all reliable messages have arrived; see [`AsyncClient::disconnect`].
    /// Its messages are no longer delivered, including those in the event queue.
    ///
    /// # Errors
    ///
    /// As [`AsyncClient::disconnect`].
    pub fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.thread.shared.disconnect_and_mute(session)
    }

    /// Ends a session at once and sends the player `reason`; see [`Server::kick`].
    ///
    /// # Errors
    ///
    /// As [`disconnect`](Self::disconnect).
    pub fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.thread.shared.kick(session, reason)
    }

    /// Ends all sessions and the thread within `within`; see [`AsyncClient::shutdown`].
    pub fn shutdown(&self, within: Duration) {
        self.thread.shared.stop(within);
    }
}

#[derive(Debug)]
struct Thread {
    shared: SharedChannel,
    events: Receiver<Event>,
}

impl Thread {
    fn start(name: &str, socket: Socket) -> io::Result<Self> {
        let (sink, events) = channel(EVENTS_MAX);
        let shared = socket.share();
        let served = shared.clone();
        // The thread ends on request, at the latest when the handle is dropped.
        let _thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || socket.serve(&served, &sink))?;
        Ok(Self { shared, events })
    }

    async fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.shared.check(channel, message)?;
        let allowance = &self.shared.signals.allowance;
        allowance.take_when_free(session, message.len()).await;
        self.shared.queue(session, channel, message)
    }

    async fn send_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.shared.check(message.channel, message.bytes)?;
        let signals = &self.shared.signals;
        let len = message.bytes.len();
        signals.allowance.take_when_free(session, len).await;
        let number = signals
            .tracked
            .begin(session, message.channel)
            .inspect_err(|_| signals.allowance.give_back(session, len))?;
        self.shared.queue_tracked(session, message, number)
    }

    async fn report(&self) -> Option<Report> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // The caller may have dropped its future.
        let give = move |report| drop(sender.send(report));
        self.shared.report(give).ok()?;
        receiver.await.ok()
    }

    async fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(event) = self.events.recv().await else {
                return self.shared.last_event();
            };
            if let Some(event) = self.shared.on_taken(event) {
                return Some(event);
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.stop(Duration::ZERO);
    }
}

impl EventSink for Sender<Event> {
    fn offer(&self, event: Event) -> Result<(), OfferError> {
        self.try_send(event).map_err(|error| match error {
            TrySendError::Full(event) => OfferError::Full(event),
            TrySendError::Closed(_) => OfferError::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use udp_proto::AppId;

    /// A report is requested after the thread has last checked for requests, and before it ends.
    #[test]
    fn u18_a_report_request_to_an_ending_thread_returns_its_end() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), AppId(1)).unwrap();
        let shared = server.socket.share();
        let (_sink, events) = channel(1);
        let thread = Thread { shared, events };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let ends = async {
            // The same order as at the end of `Socket::serve`.
            let guard = thread.shared.signals.end_guard();
            drop(server);
            drop(guard);
        };
        let both = async { tokio::join!(biased; thread.report(), ends).0 };
        let both = async { tokio::time::timeout(Duration::from_secs(20), both).await };
        assert!(matches!(runtime.block_on(both), Ok(None)));
    }
}
