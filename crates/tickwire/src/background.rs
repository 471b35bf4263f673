//! Servers and clients on their own thread.
//!
//! The game's thread never waits: it puts messages into a bounded queue and takes events from
//! another. Events that the game does not take stay in the endpoint, which bounds them per session,
//! and reliable senders then get no more credit.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::thread::{Builder, JoinHandle};

use udp_proto::{ChannelId, Message, MessageId, SendError, SessionId};

use crate::shared::{EVENTS_MAX, EventSink, OfferError, SharedChannel};
use crate::socket::Socket;
use crate::{Client, Event, Report, Server, ServerKey};

/// A client on its own thread; see [`Client::in_background`].
///
/// Dropping it ends the session without waiting for queued messages.
#[derive(Debug)]
pub struct BackgroundClient {
    thread: Thread,
    session: SessionId,
}

/// A server on its own thread; see [`Server::in_background`].
///
/// Dropping it ends all sessions without waiting for queued messages.
#[derive(Debug)]
pub struct BackgroundServer {
    thread: Thread,
    address: SocketAddr,
    key: ServerKey,
}

impl Client {
    /// Moves the client to its own thread.
    ///
    /// # Errors
    ///
    /// The system's error if the thread cannot be started.
    pub fn in_background(self) -> io::Result<BackgroundClient> {
        let session = self.session();
        let thread = Thread::start("tickwire client", self.socket)?;
        Ok(BackgroundClient { thread, session })
    }
}

impl Server {
    /// Moves the server to its own thread.
    ///
    /// # Errors
    ///
    /// The system's error if the thread cannot be started.
    pub fn in_background(self) -> io::Result<BackgroundServer> {
        let (address, key) = (self.address(), self.key());
        let thread = Thread::start("tickwire server", self.socket)?;
        Ok(BackgroundServer {
            thread,
            address,
            key,
        })
    }
}

impl BackgroundClient {
    /// Returns the session, which is open once [`Event::Connected`] was returned.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Queues a message without waiting. If its channel's queue is full, the message waits on the
    /// thread.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if 4 MiB wait, each message counted as 1 KiB more than its length;
    /// [`SendError::Closed`] if the thread has ended; and the errors of [`Client::send`] for its
    /// channel or length. A message that is still queued when the session ends is dropped.
    pub fn send(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.thread.shared.send(self.session, channel, message)
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome with the returned
    /// number. It does so exactly once if the game keeps taking events, even if the message never
    /// reached the endpoint or the thread has ended. Numbers start at 2^63. If the session is
    /// already ending, `Settled` follows after `Disconnected`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] if 4,096 messages of the session
    /// have no `Settled` event that was taken, or more than a quarter of what the session leaves to
    /// others of 65,536.
    pub fn send_tracked(&self, message: &Message<'_>) -> Result<MessageId, SendError> {
        self.thread.shared.send_tracked(self.session, message)
    }

    /// Waits up to `within` for a report; see [`Client::report`]. `None` also if 1,024 requests wait.
    pub fn report(&self, within: Duration) -> Option<Report> {
        self.thread.report(within)
    }

    /// Returns the next event without waiting.
    pub fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event()
    }

    /// Waits up to `within` for the next event.
    pub fn wait_event(&mut self, within: Duration) -> Option<Event> {
        self.thread.wait_event(within)
    }

    /// Ends the session after all reliable messages have arrived; [`Event::Disconnected`] follows.
    ///
    /// Messages that wait on the thread get [`Config::linger`](crate::Config::linger) for each 64
    /// KiB of them; then those in the channels' queues get one linger.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] and [`SendError::Closed`] as for [`send`](Self::send).
    pub fn disconnect(&self) -> Result<(), SendError> {
        self.thread.shared.disconnect(self.session)
    }

    /// Returns whether the thread is running.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends session and thread, waits for that up to `within`, and returns whether the thread has
    /// ended. Reliable messages are delivered first, for no longer than by
    /// [`disconnect`](Self::disconnect).
    pub fn shutdown(self, within: Duration) -> bool {
        self.thread.shutdown(within)
    }
}

impl BackgroundServer {
    /// Returns the key that clients pin.
    pub const fn key(&self) -> ServerKey {
        self.key
    }

    /// Returns the address that the server listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a message without waiting; see [`BackgroundClient::send`].
    ///
    /// # Errors
    ///
    /// As [`BackgroundClient::send`], and [`SendError::Full`] if `session` holds more than its
    /// share of the allowance. A message to a session that has ended is dropped.
    pub fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.thread.shared.send(session, channel, message)
    }

    /// Queues a message to each session that the game has seen connect, and that it has neither
    /// ended nor seen end. Returns the sessions that refused it, each with the error of
    /// [`send`](Self::send).
    pub fn broadcast(&self, channel: ChannelId, message: &[u8]) -> Vec<(SessionId, SendError)> {
        self.thread.shared.broadcast(channel, message)
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome; see
    /// [`BackgroundClient::send_tracked`].
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send) and [`BackgroundClient::send_tracked`].
    pub fn send_tracked(
        &self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.thread.shared.send_tracked(session, message)
    }

    /// Waits up to `within` for a report; see [`BackgroundClient::report`].
    pub fn report(&self, within: Duration) -> Option<Report> {
        self.thread.report(within)
    }

    /// Returns the next event without waiting.
    pub fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event()
    }

    /// Waits up to `within` for the next event.
    pub fn wait_event(&mut self, within: Duration) -> Option<Event> {
        self.thread.wait_event(within)
    }

    /// Ends a session after all reliable messages have arrived; see
    /// [`BackgroundClient::disconnect`]. Its messages are no longer delivered, including those in
    /// the event queue. A peer that does not read delays its end by the linger;
    /// [`kick`](Self::kick) does not wait.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if there is no room for the request, whatever the session holds;
    /// [`SendError::Closed`] as for [`send`](Self::send).
    pub fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.thread.shared.disconnect_and_mute(session)
    }

    /// Ends a session at once, drops its queued messages and sends the player `reason`; see
    /// [`Server::kick`]. Its messages are no longer delivered, including those in the event queue.
    ///
    /// # Errors
    ///
    /// As [`disconnect`](Self::disconnect).
    pub fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.thread.shared.kick(session, reason)
    }

    /// Returns whether the thread is running.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends all sessions and the thread; see [`BackgroundClient::shutdown`].
    pub fn shutdown(self, within: Duration) -> bool {
        self.thread.shutdown(within)
    }
}

#[derive(Debug)]
struct Thread {
    shared: SharedChannel,
    events: Receiver<Event>,
    /// `None` once it was joined.
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(name: &str, socket: Socket) -> io::Result<Self> {
        let (sink, events) = std::sync::mpsc::sync_channel(EVENTS_MAX);
        let shared = socket.share();
        let served = shared.clone();
        let handle = Builder::new()
            .name(name.to_owned())
            .spawn(move || socket.serve(&served, &sink))?;
        Ok(Self {
            shared,
            events,
            handle: Some(handle),
        })
    }

    fn next_event(&self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => {
                    if let Some(event) = self.shared.on_taken(event) {
                        return Some(event);
                    }
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => return self.shared.last_event(),
            }
        }
    }

    fn wait_event(&self, within: Duration) -> Option<Event> {
        let clock = servicer::Clock::new();
        let deadline = clock.now() + within;
        let mut left = within;
        loop {
            match self.events.recv_timeout(left) {
                Ok(event) => {
                    if let Some(event) = self.shared.on_taken(event) {
                        return Some(event);
                    }
                    left = deadline.saturating_since(clock.now());
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return self.shared.last_event(),
            }
        }
    }

    fn report(&self, within: Duration) -> Option<Report> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // The caller may have timed out.
        let give = move |report| drop(sender.try_send(report));
        self.shared.report(give).ok()?;
        receiver.recv_timeout(within).ok()
    }

    fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn shutdown(mut self, within: Duration) -> bool {
        self.shared.stop(within);
        // The queue closes when the thread ends; events until then are dropped.
        let clock = servicer::Clock::new();
        let deadline = clock.now() + within + GRACE;
        loop {
            let left = deadline.saturating_since(clock.now());
            match self.events.recv_timeout(left) {
                Ok(event) => drop(self.shared.on_taken(event)),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.handle.take().is_some_and(|it| it.join().is_ok())
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.shared.stop(Duration::ZERO);
        }
    }
}

impl EventSink for SyncSender<Event> {
    fn offer(&self, event: Event) -> Result<(), OfferError> {
        self.try_send(event).map_err(|error| match error {
            TrySendError::Full(event) => OfferError::Full(event),
            TrySendError::Disconnected(_) => OfferError::Gone,
        })
    }
}

/// Time beyond the deadline that the thread gets to finish its current turn.
const GRACE: Duration = Duration::from_secs(1);
