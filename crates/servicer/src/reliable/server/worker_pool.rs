//! The threads of a server: start, requests and end.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::{AcceptFault, Ended, MessageError, ServerReport};
use crate::Clock;
use crate::handle::End;
use crate::handle::SpawnError;
use crate::reliable::accept::{AcceptMachine, JoinHandler, Refusal};
use crate::reliable::config::{ReliableConfig, SocketOptions, TcpServicers};
use crate::reliable::event::{Dest, JoinRequest, MemberId};
use crate::reliable::event_queue::{EventSender, WorkerEvent, WorkerId};
use crate::reliable::member::{MemberApplication, MemberMachine, WorkerRequest};
use crate::request::RequestError;
use crate::tcp::{StreamCounters, StreamHandle, StreamListener, StreamServicer};

/// The acceptor and the threads of the members.
#[derive(Debug)]
pub(super) struct WorkerPool {
    /// The prefix of thread names.
    name: String,
    config: ReliableConfig,
    mode: TcpServicers,
    /// The thread that accepts connections; `None` once it has ended.
    acceptor: Option<StreamHandle<Refusal>>,
    /// The threads that serve members, or can.
    workers: BTreeMap<WorkerId, Worker>,
    /// Threads whose only member has left, which write its last bytes and then end.
    ending: BTreeMap<WorkerId, StreamHandle<WorkerRequest>>,
    /// The number of the thread started last.
    last_number: u32,
    /// The sending end of the event queue, cloned for each thread.
    events: EventSender<WorkerEvent>,
    /// Messages written to sockets, counted per recipient.
    flushed: Arc<AtomicU64>,
    /// The shutdown reason for clients.
    shutdown_reason: Arc<OnceLock<Bytes>>,
    /// Threads started, the acceptor included.
    started: usize,
    /// Threads joined.
    joined: usize,
    /// Threads that ended neither in order nor at the deadline.
    faults: Vec<Ended>,
}

/// A thread that serves members.
#[derive(Debug)]
struct Worker {
    handle: StreamHandle<WorkerRequest>,
    /// Number of its members.
    members: usize,
}

const ACCEPTOR: WorkerId = WorkerId(0);

impl WorkerPool {
    pub(super) fn start(
        name: String,
        listeners: Vec<StreamListener>,
        events: EventSender<WorkerEvent>,
        config: &ReliableConfig,
    ) -> Result<Self, SpawnError> {
        let shutdown_reason = Arc::default();
        let options = SocketOptions {
            send_buffer_bytes: config.socket_buffer_bytes,
            keepalive: config.keepalive,
        };
        let handler = JoinHandler {
            number: ACCEPTOR,
            sender: events.clone(),
            arrivals: VecDeque::new(),
            payload: None,
            options,
            shutdown_reason: Arc::clone(&shutdown_reason),
        };
        let acceptor = StreamServicer::named(format!("{name}-accept"))
            .with_config(config.for_joining())
            .spawn(listeners, AcceptMachine::default(), handler)?;
        let mut pool = Self {
            name,
            config: *config,
            mode: config.mode(),
            acceptor: Some(acceptor),
            workers: BTreeMap::new(),
            ending: BTreeMap::new(),
            last_number: ACCEPTOR.0,
            events,
            flushed: Arc::default(),
            shutdown_reason,
            started: 1,
            joined: 0,
            faults: Vec::new(),
        };
        if let TcpServicers::Pool { threads } = pool.mode {
            for _ in 0..threads.get() {
                pool.start_one()?;
            }
        }
        Ok(pool)
    }

    fn start_one(&mut self) -> Result<WorkerId, SpawnError> {
        let number = WorkerId(self.last_number.wrapping_add(1));
        self.last_number = number.0;
        let application = MemberApplication {
            number,
            sender: self.events.clone(),
            arrivals: VecDeque::new(),
            shutdown_reason: Arc::clone(&self.shutdown_reason),
        };
        let machine = MemberMachine::new(
            self.events.clone(),
            self.config.budget(),
            Arc::clone(&self.flushed),
        );
        let handle = StreamServicer::named(format!("{}-{}", self.name, number.0))
            .with_config(self.config.for_members())
            .spawn(Vec::new(), machine, application)?;
        self.started = self.started.saturating_add(1);
        self.workers.insert(number, Worker { handle, members: 0 });
        Ok(number)
    }

    /// Returns the thread for the next member, and starts one if needed.
    pub(super) fn worker_for_one_more(&mut self) -> Result<WorkerId, AcceptFault> {
        match self.mode {
            TcpServicers::ThreadPerClient => self.start_one().map_err(AcceptFault::NoThread),
            TcpServicers::Pool { .. } => self
                .workers
                .iter()
                .min_by_key(|(_, worker)| worker.members)
                .map(|(number, _)| *number)
                .ok_or(AcceptFault::Busy),
        }
    }

    /// Hands a member to a thread. Returns the request if its queue is full or it has ended.
    pub(super) fn adopt(
        &mut self,
        number: WorkerId,
        member: MemberId,
        request: JoinRequest,
        welcome: Bytes,
    ) -> Result<(), JoinRequest> {
        // This thread is the only sender, so the room found here is still there below.
        let Some(worker) = self.workers.get_mut(&number) else {
            return Err(request);
        };
        if !worker.handle.has_room() {
            return Err(request);
        }
        let order = WorkerRequest::Adopt {
            member,
            connection: request.connection,
            welcome,
        };
        // Fails if the thread has ended. The event that the member has left then follows.
        drop(worker.handle.request(order));
        worker.members = worker.members.saturating_add(1);
        Ok(())
    }

    pub(super) fn refuse(&self, request: JoinRequest, reason: Bytes) {
        let connection = request.connection;
        if let Some(acceptor) = &self.acceptor {
            // If the acceptor's queue is full, the connection closes without a reason.
            drop(acceptor.request(Refusal { connection, reason }));
        }
    }

    /// Sends a message to the threads in `recipients`, to all or to none.
    pub(super) fn send(
        &self,
        recipients: &[(WorkerId, u64)],
        dest: Dest,
        payload: Bytes,
    ) -> Result<(), MessageError> {
        let handles = recipients
            .iter()
            .filter_map(|(number, _)| Some(&self.workers.get(number)?.handle));
        // This thread is the only sender, so the room found here is still there below.
        if handles.clone().any(|handle| !handle.has_room()) {
            return Err(MessageError::Busy);
        }
        let mut handles = handles.peekable();
        let mut message = Some((dest, payload));
        while let Some(handle) = handles.next() {
            let copy = if handles.peek().is_some() {
                message.clone()
            } else {
                message.take()
            };
            if let Some((dest, payload)) = copy {
                // Fails if the thread has ended. The events that its members have left then
                // follow.
                drop(handle.request(WorkerRequest::Send { dest, payload }));
            }
        }
        Ok(())
    }

    pub(super) fn dismiss(
        &self,
        number: WorkerId,
        member: MemberId,
        reason: Bytes,
    ) -> Result<(), MessageError> {
        let Some(worker) = self.workers.get(&number) else {
            return Ok(());
        };
        match worker
            .handle
            .request(WorkerRequest::Dismiss { member, reason })
        {
            Ok(()) | Err(RequestError::Ended(_)) => Ok(()),
            Err(RequestError::Full(_)) => Err(MessageError::Busy),
        }
    }

    /// Appends the number of members of each thread that has any.
    pub(super) fn count_members(&self, recipients: &mut Vec<(WorkerId, u64)>) {
        let all = self.workers.iter().filter(|(_, it)| it.members > 0);
        recipients.extend(
            all.map(|(number, worker)| {
                (*number, u64::try_from(worker.members).unwrap_or(u64::MAX))
            }),
        );
    }

    pub(super) fn wake(&self) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.wake();
        }
        for worker in self.workers.values() {
            worker.handle.wake();
        }
    }

    pub(super) fn counters(&self) -> Vec<StreamCounters> {
        let acceptor = self.acceptor.iter().map(StreamHandle::counters);
        let others = self.workers.values().map(|it| it.handle.counters());
        acceptor.chain(others).collect()
    }

    /// Counts a member as gone. Its thread ends if it had a thread of its own.
    pub(super) fn on_member_left(&mut self, number: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.members = worker.members.saturating_sub(1);
        }
        if self.mode == TcpServicers::ThreadPerClient
            && let Some(worker) = self.workers.remove(&number)
        {
            // Time to write the last bytes, as for any connection.
            worker.handle.stop(self.config.stream.linger_timeout);
            self.ending.insert(number, worker.handle);
        }
    }

    /// Joins a thread that has ended. Returns its name and how it ended, unless it was asked to
    /// end.
    pub(super) fn join_ended(&mut self, number: WorkerId) -> Option<Ended> {
        if let Some(handle) = self.ending.remove(&number) {
            self.join(handle, Duration::ZERO);
            return None;
        }
        let ended = if number == ACCEPTOR {
            let acceptor = self.acceptor.take()?;
            self.join(acceptor, Duration::ZERO)
        } else {
            let worker = self.workers.remove(&number)?;
            self.join(worker.handle, Duration::ZERO)
        };
        tracing::warn!(servicer = ended.0, end = %ended.1, "servicer ended");
        if matches!(self.mode, TcpServicers::Pool { .. })
            && number != ACCEPTOR
            && let Err(error) = self.start_one()
        {
            tracing::error!(%error, "the pool has one thread less");
        }
        Some(ended)
    }

    fn join<R>(&mut self, handle: StreamHandle<R>, within: Duration) -> Ended {
        let report = handle.shutdown(within);
        if report.end != End::Stuck {
            self.joined = self.joined.saturating_add(1);
        }
        let is_orderly = matches!(report.end, End::Drained | End::DeadlinePassed);
        let ended = (report.name, report.end);
        if !is_orderly {
            self.faults.push(ended.clone());
        }
        ended
    }

    /// Ends all threads: requests the shutdown of each, then joins each.
    pub(super) fn end(&mut self, within: Duration, shutdown_reason: Bytes) {
        let deadline = Clock::new().now() + within;
        self.shutdown_reason.get_or_init(|| shutdown_reason);
        let acceptor = self.acceptor.take();
        let workers = mem::take(&mut self.workers);
        let ending = mem::take(&mut self.ending);
        if let Some(acceptor) = &acceptor {
            acceptor.stop(within);
        }
        let handles = workers.into_values().map(|worker| worker.handle);
        let handles: Vec<_> = handles.chain(ending.into_values()).collect();
        for handle in &handles {
            handle.stop(within);
        }
        let left = || deadline.saturating_since(Clock::new().now());
        if let Some(acceptor) = acceptor {
            self.join(acceptor, left());
        }
        for handle in handles {
            self.join(handle, left());
        }
    }

    pub(super) fn report(&self, addressed: u64) -> ServerReport {
        let flushed = self.flushed.load(Ordering::Relaxed);
        ServerReport {
            flushed,
            dropped: addressed.saturating_sub(flushed),
            started: self.started,
            joined: self.joined,
            faults: self.faults.clone(),
        }
    }
}
