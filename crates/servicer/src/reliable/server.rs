//! The application's handle of a reliable server.

mod worker_pool;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::config::ReliableConfig;
use super::event::{Dest, JoinRequest, LeaveCause, MemberId, ServerEvent};
use super::event_queue::{EventReceiver, WorkerEvent, WorkerId, event_queue};
use crate::Clock;
use crate::handle::{End, SpawnError};
use crate::tcp::{StreamCounters, StreamListener};
use worker_pool::WorkerPool;

/// A running reliable server: an acceptor, and threads for the members.
///
/// For use by one application thread. No method blocks except the ones with a wait time. Dropping
/// it shuts the server down without a drain.
#[derive(Debug)]
pub struct ReliableServer {
    pool: WorkerPool,
    /// The queue of events from all threads.
    receiver: EventReceiver<WorkerEvent>,
    /// The thread of each member.
    members: BTreeMap<MemberId, WorkerId>,
    /// The id of the member accepted last; 0 before the first.
    last_member: u64,
    /// Events taken from `receiver`, for the application.
    events: VecDeque<ServerEvent>,
    /// The addresses of the listeners.
    addresses: Vec<SocketAddr>,
    config: ReliableConfig,
    /// Messages sent, counted per recipient.
    addressed: u64,
    /// Recipients of a message per thread. Empty between messages.
    recipients: Vec<(WorkerId, u64)>,
    /// Set once the server has shut down.
    report: Option<ServerReport>,
}

impl ReliableServer {
    /// Starts the threads. The names of their threads begin with `name`.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no descriptor or thread left.
    pub fn start(
        name: impl Into<String>,
        listeners: Vec<StreamListener>,
        config: &ReliableConfig,
    ) -> Result<Self, SpawnError> {
        let addresses = listeners
            .iter()
            .map(StreamListener::local_address)
            .collect();
        let (sender, receiver) = event_queue(config.queue_limits());
        Ok(Self {
            pool: WorkerPool::start(name.into(), listeners, sender, config)?,
            receiver,
            members: BTreeMap::new(),
            last_member: 0,
            events: VecDeque::new(),
            addresses,
            config: *config,
            addressed: 0,
            recipients: Vec::new(),
            report: None,
        })
    }

    /// Returns the addresses of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the members in the order of their acceptance.
    pub fn members(&self) -> impl Iterator<Item = MemberId> {
        self.members.keys().copied()
    }

    /// Accepts a client. Its first record is `welcome`.
    ///
    /// # Errors
    ///
    /// [`AcceptError`], which returns the request for a refusal or a retry.
    pub fn accept(
        &mut self,
        request: JoinRequest,
        welcome: Bytes,
    ) -> Result<MemberId, AcceptError> {
        let fail = |cause, request| {
            let request = Box::new(request);
            Err(AcceptError { cause, request })
        };
        if self.report.is_some() {
            return fail(AcceptFault::ShutDown, request);
        }
        if self.members.len() >= self.config.clients_max {
            return fail(AcceptFault::Full, request);
        }
        if welcome.len() > self.config.message_max() {
            return fail(AcceptFault::TooLong, request);
        }
        let worker = match self.pool.worker_for_one_more() {
            Ok(worker) => worker,
            Err(cause) => return fail(cause, request),
        };
        let member = MemberId(self.last_member.saturating_add(1));
        match self.pool.adopt(worker, member, request, welcome) {
            Ok(()) => {
                self.last_member = member.0;
                self.members.insert(member, worker);
                Ok(member)
            }
            Err(request) => fail(AcceptFault::Busy, request),
        }
    }

    /// Refuses a client with `reason`, truncated to 1 KiB.
    pub fn refuse(&mut self, request: JoinRequest, reason: Bytes) {
        self.pool.refuse(request, reason);
    }

    /// Sends `payload` to `dest`. Returns the number of recipients. The report counts the messages
    /// that were not written.
    ///
    /// # Errors
    ///
    /// [`MessageError`]. The message is then sent to no member.
    pub fn send(&mut self, dest: impl Into<Dest>, payload: Bytes) -> Result<usize, MessageError> {
        if payload.len() > self.config.message_max() {
            return Err(MessageError::TooLong);
        }
        let dest = dest.into();
        self.count_recipients(&dest);
        let recipients = std::mem::take(&mut self.recipients);
        let result = self.pool.send(&recipients, dest, payload);
        let count = recipients.iter().map(|(_, count)| *count).sum();
        self.recipients = recipients;
        self.recipients.clear();
        result?;
        self.addressed = self.addressed.saturating_add(count);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Closes a member's connection with `reason`, truncated to 1 KiB, after all earlier messages
    /// are written. [`ServerEvent::Left`] follows.
    ///
    /// # Errors
    ///
    /// [`MessageError::Busy`]. The member then stays.
    pub fn dismiss(&mut self, member: MemberId, reason: Bytes) -> Result<(), MessageError> {
        match self.members.get(&member) {
            Some(worker) => self.pool.dismiss(*worker, member, reason),
            None => Ok(()),
        }
    }

    /// Returns the next event, or `None` if there is none. Does not wait.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.receiver.take()?;
            self.on_worker_event(event);
        }
    }

    /// Waits up to `within` for the next event.
    pub fn wait_event(&mut self, within: Duration) -> Option<ServerEvent> {
        let deadline = Clock::new().now() + within;
        loop {
            if let Some(event) = self.poll_event() {
                return Some(event);
            }
            let left = deadline.saturating_since(Clock::new().now());
            let event = self.receiver.wait(left)?;
            self.on_worker_event(event);
        }
    }

    /// Returns the counters of the running threads, the accepting one first.
    pub fn counters(&self) -> Vec<StreamCounters> {
        self.pool.counters()
    }

    /// Shuts the server down: accepts no more clients, sends `reason` to members, writes queued
    /// messages for up to `within`, closes all connections and joins all threads. Later calls
    /// return the same report.
    ///
    /// Returns after at most `within` plus 2 s. A thread that still blocks then is left running,
    /// which only happens if the drop of a payload blocks. Afterwards events can still be polled:
    /// those that were queued, and that each member has left.
    pub fn shutdown(&mut self, within: Duration, reason: Bytes) -> ServerReport {
        if let Some(report) = &self.report {
            return report.clone();
        }
        self.pool.end(within, reason);
        while let Some(event) = self.receiver.take() {
            self.on_worker_event(event);
        }
        self.events
            .retain(|event| !matches!(event, ServerEvent::Join(_)));
        for member in std::mem::take(&mut self.members).into_keys() {
            let cause = LeaveCause::ShutDown;
            self.events.push_back(ServerEvent::Left { member, cause });
        }
        let report = self.pool.report(self.addressed);
        tracing::info!(%report, "reliable server ended");
        self.report = Some(report.clone());
        report
    }

    /// Counts the recipients of a message per thread.
    fn count_recipients(&mut self, dest: &Dest) {
        match dest {
            Dest::All => self.pool.count_members(&mut self.recipients),
            Dest::One(member) => self.count_recipient(*member),
            Dest::Many(members) => {
                for member in members.iter() {
                    self.count_recipient(*member);
                }
            }
        }
    }

    fn count_recipient(&mut self, member: MemberId) {
        let Some(worker) = self.members.get(&member) else {
            return;
        };
        let known = self.recipients.iter_mut().find(|(it, _)| it == worker);
        match known {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.recipients.push((*worker, 1)),
        }
    }

    /// Queues the event of a thread for the application.
    fn on_worker_event(&mut self, event: WorkerEvent) {
        let event = match event {
            WorkerEvent::Join(request) => ServerEvent::Join(*request),
            WorkerEvent::Message { from, payload } => ServerEvent::Message { from, payload },
            WorkerEvent::Slow {
                member,
                waiting_bytes,
                waiting_for,
            } => ServerEvent::Slow {
                member,
                waiting_bytes,
                waiting_for,
            },
            WorkerEvent::Left { member, cause } => {
                if let Some(worker) = self.members.remove(&member) {
                    self.pool.on_member_left(worker);
                }
                ServerEvent::Left { member, cause }
            }
            WorkerEvent::Ended(number) => return self.on_worker_ended(number),
        };
        self.events.push_back(event);
        if self.receiver.is_awaited() {
            self.pool.wake();
        }
    }

    /// Joins a thread that ended by itself, and reports it and the loss of its members.
    fn on_worker_ended(&mut self, number: WorkerId) {
        let Some((name, end)) = self.pool.join_ended(number) else {
            return;
        };
        let lost: Vec<_> = self
            .members
            .iter()
            .filter(|(_, worker)| **worker == number)
            .map(|(member, _)| *member)
            .collect();
        let members = lost.len();
        self.events
            .push_back(ServerEvent::ThreadEnded { name, end, members });
        for member in lost {
            self.members.remove(&member);
            let cause = LeaveCause::ThreadEnded;
            self.events.push_back(ServerEvent::Left { member, cause });
        }
    }
}

impl Drop for ReliableServer {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO, Bytes::new());
    }
}

/// How a reliable server ended, with its message counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Messages completely written to sockets, counted per recipient.
    pub flushed: u64,
    /// Messages not written before the recipient left or the server ended, counted per recipient.
    /// With `flushed`, this is the number of all messages sent.
    pub dropped: u64,
    /// Threads started.
    pub started: usize,
    /// Threads joined; equal to `started` unless a thread blocks.
    pub joined: usize,
    /// Threads that ended neither in order nor at the deadline, with their ends.
    pub faults: Vec<(String, End)>,
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flushed,
            dropped,
            started,
            joined,
            faults,
        } = self;
        write!(
            f,
            "{flushed} messages written, {dropped} dropped, {joined} of {started} threads joined"
        )?;
        for (name, end) in faults {
            write!(f, "; {name} {end}")?;
        }
        Ok(())
    }
}

/// Why a client was not accepted, with its request.
#[derive(Debug)]
pub struct AcceptError {
    /// The cause.
    pub cause: AcceptFault,
    /// The request, for a refusal or a retry.
    pub request: Box<JoinRequest>,
}

/// Why a client was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptFault {
    /// `clients_max` is reached.
    Full,
    /// The welcome is longer than the maximum message.
    TooLong,
    /// The request queue of the thread is full. Retry after its next turn.
    Busy,
    /// The system has no thread or descriptor left for a thread.
    NoThread(SpawnError),
    /// The server has shut down.
    ShutDown,
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            AcceptFault::Full => f.write_str("there are as many members as allowed"),
            AcceptFault::TooLong => f.write_str("the welcome is longer than a message may be"),
            AcceptFault::Busy => f.write_str("the request queue of the thread is full"),
            AcceptFault::NoThread(error) => error.fmt(f),
            AcceptFault::ShutDown => f.write_str("the server has shut down"),
        }
    }
}

impl std::error::Error for AcceptError {}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// It is longer than the maximum message.
    TooLong,
    /// The request queue of a thread with recipients is full. Retry after its next turn.
    Busy,
    /// The peer is gone, or the server has shut down.
    Closed,
}

wire::error_text! { MessageError {
    Self::TooLong => "the message is longer than allowed",
    Self::Busy => "the request queue of the thread is full",
    Self::Closed => "the connection is closed",
}}

/// The name of a thread, and how it ended.
type Ended = (String, End);
