//! Servers and clients on a thread of their own.
//!
//! The game's thread never waits: messages go into a bounded queue, events come out of one. What
//! the game does not take stays in the endpoint, where each session's share is bounded, and a
//! reliable sender then has no credit to send more.

mod allowance;
mod answers;
mod held;
mod hushed;
mod line;
mod parcel;
mod tracked;

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::thread::{Builder, JoinHandle};

use udp_proto::{ChannelId, Message, MessageId, SendError, SessionId};

use crate::socket::Socket;
use crate::{Client, Event, Report, Server, ServerKey};
pub(crate) use allowance::Allowance;
pub(crate) use answers::{Answer, Answers};
pub(crate) use held::Held;
pub(crate) use hushed::Hushed;
#[cfg(test)]
pub(crate) use line::EVENT_BYTES_MAX;
pub(crate) use line::{Line, MESSAGE_COST, Offer, Order, Outlet, Signals};
pub(crate) use parcel::Parcel;
pub(crate) use tracked::Tracked;

/// Events that wait for the game at a time.
pub(crate) const EVENTS_MAX: usize = 4_096;

/// A client whose socket a thread of its own serves; made by [`Client::in_background`].
///
/// Dropping it ends the session without waiting for what it sent last.
#[derive(Debug)]
pub struct BackgroundClient {
    thread: Thread,
    session: SessionId,
}

/// A server whose socket a thread of its own serves; made by [`Server::in_background`].
///
/// Dropping it ends all sessions without waiting for what they were sent last.
#[derive(Debug)]
pub struct BackgroundServer {
    thread: Thread,
    address: SocketAddr,
    key: ServerKey,
}

impl Client {
    /// Moves the client to a thread of its own.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
    pub fn in_background(self) -> io::Result<BackgroundClient> {
        let session = self.session();
        let thread = Thread::start("tickwire client", self.socket)?;
        Ok(BackgroundClient { thread, session })
    }
}

impl Server {
    /// Moves the server to a thread of its own.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
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
    /// Returns the session, which is open from [`Event::Connected`] on.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Queues a message, and does not wait. Where its channel's queue is full, it waits on the
    /// thread for its turn.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] where 4 MiB wait, each message counted as 1 KiB more than its length; what
    /// [`Client::send`] refuses for its channel or length; [`SendError::Closed`] where the thread
    /// has ended. A message that the session's end overtakes is dropped.
    pub fn send(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.thread.line.send(self.session, channel, message)
    }

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it, with the number
    /// returned: exactly once, also where it never reached the endpoint or the thread has ended, as long
    /// as events are taken. Numbers begin at 2^63. What is sent to a session whose end is on its way is
    /// told of after that end.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] where 4,096 messages of the session were
    /// not told of by an event that was taken, or more than a quarter of what that leaves to others of
    /// 65,536.
    pub fn send_tracked(&self, message: &Message<'_>) -> Result<MessageId, SendError> {
        self.thread.line.send_tracked(self.session, message)
    }

    /// Waits up to `within` for a report of this moment, as [`Client::report`]'s; a thread at rest makes
    /// one within a millisecond. `None` where none came, or 1,024 wait for one.
    pub fn report(&self, within: Duration) -> Option<Report> {
        self.thread.report(within)
    }

    /// Returns the next event, and does not wait; `None` where there is none now.
    pub fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event()
    }

    /// Waits up to `within` for the next event; for threads that have nothing else to do.
    pub fn wait_event(&mut self, within: Duration) -> Option<Event> {
        self.thread.wait_event(within)
    }

    /// Ends the session, once what was sent reliably has arrived; [`Event::Disconnected`] follows.
    ///
    /// Messages that wait on the thread are given [`Config::linger`](crate::Config::linger) for each
    /// 64 KiB of them, and then those in the channels' queues as long again.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] and [`SendError::Closed`] as [`send`](Self::send).
    pub fn disconnect(&self) -> Result<(), SendError> {
        self.thread.line.disconnect(self.session)
    }

    /// Returns whether the thread is at work.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the session and the thread, and waits for that up to `within`; returns whether it has
    /// ended by then. What was sent reliably arrives first, as far as `within` lets it; no peer is waited
    /// for longer than by [`disconnect`](Self::disconnect).
    pub fn shutdown(self, within: Duration) -> bool {
        self.thread.shutdown(within)
    }
}

impl BackgroundServer {
    /// Returns the key that clients pin.
    pub const fn key(&self) -> ServerKey {
        self.key
    }

    /// Returns the address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a message, and does not wait; as [`BackgroundClient::send`].
    ///
    /// # Errors
    ///
    /// As [`BackgroundClient::send`], and [`SendError::Full`] where more waits for `session` than
    /// there is room left for others. What is sent to a session that has ended is dropped.
    pub fn send(
        &self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.thread.line.send(session, channel, message)
    }

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it; as
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
        self.thread.line.send_tracked(session, message)
    }

    /// Waits up to `within` for a report of this moment; as [`BackgroundClient::report`].
    pub fn report(&self, within: Duration) -> Option<Report> {
        self.thread.report(within)
    }

    /// Returns the next event, and does not wait; `None` where there is none now.
    pub fn next_event(&mut self) -> Option<Event> {
        self.thread.next_event()
    }

    /// Waits up to `within` for the next event; for threads that have nothing else to do.
    pub fn wait_event(&mut self, within: Duration) -> Option<Event> {
        self.thread.wait_event(within)
    }

    /// Ends a session, once what was sent reliably has arrived; as [`BackgroundClient::disconnect`]. None of
    /// its messages is handed over any more, also of those that wait. A player who takes nothing delays
    /// his end for that long: [`kick`](Self::kick) does not wait.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] where no order finds room, which does not depend on what the session
    /// holds; [`SendError::Closed`] as [`send`](Self::send).
    pub fn disconnect(&self, session: SessionId) -> Result<(), SendError> {
        self.thread.line.send_away(session)
    }

    /// Ends a session at once, whatever is queued for it, and tells the player `reason`; as
    /// [`Server::kick`]. None of its messages is handed over any more, also of those that wait.
    ///
    /// # Errors
    ///
    /// As [`disconnect`](Self::disconnect).
    pub fn kick(&self, session: SessionId, reason: &[u8]) -> Result<(), SendError> {
        self.thread.line.kick(session, reason)
    }

    /// Returns whether the thread is at work.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends all sessions and the thread; as [`BackgroundClient::shutdown`].
    pub fn shutdown(self, within: Duration) -> bool {
        self.thread.shutdown(within)
    }
}

/// The thread, and the queues to and from it.
#[derive(Debug)]
struct Thread {
    line: Line,
    events: Receiver<Event>,
    /// `None` once it is waited for.
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(name: &str, socket: Socket) -> io::Result<Self> {
        let (outlet, events) = std::sync::mpsc::sync_channel(EVENTS_MAX);
        let line = Line::to(&socket);
        let served = line.clone();
        let handle = Builder::new()
            .name(name.to_owned())
            .spawn(move || socket.serve(&served, &outlet))?;
        Ok(Self {
            line,
            events,
            handle: Some(handle),
        })
    }

    fn next_event(&self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => {
                    if let Some(event) = self.line.on_taken(event) {
                        return Some(event);
                    }
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => return self.line.last_event(),
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
                    if let Some(event) = self.line.on_taken(event) {
                        return Some(event);
                    }
                    left = deadline.saturating_since(clock.now());
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return self.line.last_event(),
            }
        }
    }

    fn report(&self, within: Duration) -> Option<Report> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        // Nobody may wait for it any more.
        let give = move |report| drop(answer.try_send(report));
        self.line.report(give).ok()?;
        answered.recv_timeout(within).ok()
    }

    fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn shutdown(mut self, within: Duration) -> bool {
        self.line.stop(within);
        // The thread's end closes the queue; until then nobody takes events, which are dropped.
        let clock = servicer::Clock::new();
        let deadline = clock.now() + within + GRACE;
        loop {
            let left = deadline.saturating_since(clock.now());
            match self.events.recv_timeout(left) {
                Ok(event) => drop(self.line.on_taken(event)),
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
            self.line.stop(Duration::ZERO);
        }
    }
}

impl Outlet for SyncSender<Event> {
    fn offer(&self, event: Event) -> Result<(), Offer> {
        self.try_send(event).map_err(|error| match error {
            TrySendError::Full(event) => Offer::Full(event),
            TrySendError::Disconnected(_) => Offer::Gone,
        })
    }
}

/// Time that the thread gets beyond its deadline to finish the turn it is in.
const GRACE: Duration = Duration::from_secs(1);
