//! A worker: the machine and the application of a thread that serves members.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::event::{Dest, LeaveCause, MemberId};
use super::event_queue::{EventSender, WorkerEvent, WorkerId};
use super::record::{Backlog, Budget, Closing, ReliableRecord};
use crate::tcp::{Dial, OpenConnection, StreamApplication};

/// Passes messages between members and the application, and closes members that read too slowly.
///
/// It stores no messages: each is passed at once to the driver, which queues it for its
/// connections. The machine only tracks the length and age of these queues.
#[derive(Debug)]
pub(super) struct MemberMachine {
    members: BTreeMap<ConnectionId, Member>,
    connections: BTreeMap<MemberId, ConnectionId>,
    /// Members, in the order in which their connections will open.
    expected: VecDeque<(MemberId, Bytes)>,
    jobs: VecDeque<Job>,
    /// Connections to close, with or without a close record.
    closings: VecDeque<(ConnectionId, Option<Closing>)>,
    queued: VecDeque<WorkerEvent>,
    sender: EventSender<WorkerEvent>,
    budget: Budget,
    /// When to next check the backlogs' ages, no later than the first age limit.
    check_at: Option<Instant>,
    /// Messages written to sockets, counted per recipient.
    flushed: Arc<AtomicU64>,
    is_shut_down: bool,
}

#[derive(Debug)]
struct Member {
    id: MemberId,
    backlog: Backlog,
    /// Whether the driver has granted the initial credit.
    has_credit: bool,
    /// Why this end closes the connection, once that is decided.
    cause: Option<LeaveCause>,
}

impl MemberMachine {
    pub(super) const fn new(
        sender: EventSender<WorkerEvent>,
        budget: Budget,
        flushed: Arc<AtomicU64>,
    ) -> Self {
        Self {
            members: BTreeMap::new(),
            connections: BTreeMap::new(),
            expected: VecDeque::new(),
            jobs: VecDeque::new(),
            closings: VecDeque::new(),
            queued: VecDeque::new(),
            sender,
            budget,
            check_at: None,
            flushed,
            is_shut_down: false,
        }
    }

    /// Assigns the next opened connection to `member`. Its first record is `welcome`.
    pub(super) fn expect(&mut self, member: MemberId, welcome: Bytes) {
        self.expected.push_back((member, welcome));
    }

    /// Sends `payload` to those of `dest` that are members now.
    pub(super) fn send(&mut self, dest: Dest, payload: Bytes) {
        let last = self.members.last_key_value().map(|(id, _)| *id);
        self.jobs.extend(Job::message(dest, payload, last));
    }

    /// Closes a member's connection after all earlier messages are written.
    pub(super) fn dismiss(&mut self, member: MemberId, reason: Bytes) {
        let record = (Closing::Dismissed, LeaveCause::Dismissed);
        self.jobs.push_back(Job::close(member, record, reason));
    }

    /// Closes all connections in the same manner.
    pub(super) fn shut_down(&mut self, reason: &Bytes) {
        self.is_shut_down = true;
        let record = (Closing::ShutDown, LeaveCause::ShutDown);
        for member in self.connections.keys() {
            let job = Job::close(*member, record, reason.clone());
            self.jobs.push_back(job);
        }
    }

    /// Returns whether further requests must wait for jobs in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.jobs.len() >= JOBS_MAX
    }

    /// Returns whether no member is left, and no event that the application's queue could take.
    pub(super) fn is_drained(&self) -> bool {
        self.jobs.is_empty() && self.members.is_empty()
    }

    /// Returns whether the application's queue has room for members' messages.
    pub(super) fn may_receive(&self) -> bool {
        self.queued.len() < EVENTS_MAX && (self.queued.is_empty() || self.sender.has_room())
    }

    /// Writes a record to a connection if it is open and its budget has room. Without room, gives
    /// the member up.
    fn write(
        &mut self,
        (now, id): (Instant, ConnectionId),
        record: ReliableRecord<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let member = self.members.get_mut(&id)?;
        if member.cause.is_some() {
            return None;
        }
        record.encode(buf);
        if !member.backlog.has_room(buf.len(), &self.budget) {
            buf.clear();
            self.close_slow(now, id);
            return None;
        }
        let messages = u64::from(matches!(record, ReliableRecord::Message(_)));
        member.backlog.push(now, buf.len(), messages);
        if self.check_at.is_none() {
            self.check_at = member.backlog.deadline(&self.budget);
        }
        Some(Outbound {
            connection: id,
            close: false,
        })
    }

    /// Writes the close record to a member. It fits in any case.
    fn write_last(
        &mut self,
        (now, id): (Instant, ConnectionId),
        (closing, cause): (Closing, LeaveCause),
        reason: &[u8],
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let member = self.members.get_mut(&id)?;
        if member.cause.is_some() {
            return None;
        }
        member.cause = Some(cause);
        ReliableRecord::Closing(closing, reason).encode(buf);
        // The connection closes after this is written, which confirms that all earlier records are.
        member.backlog.push(now, buf.len(), 0);
        if self.check_at.is_none() {
            self.check_at = member.backlog.deadline(&self.budget);
        }
        Some(Outbound {
            connection: id,
            close: false,
        })
    }

    /// Gives up a member that reads too slowly.
    fn close_slow(&mut self, now: Instant, id: ConnectionId) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        // A member that is closing has already had its close record.
        let is_leaving = member.cause.is_some();
        if !is_leaving {
            member.cause = Some(LeaveCause::Slow);
            self.queued.push_back(WorkerEvent::Slow {
                member: member.id,
                waiting_bytes: member.backlog.bytes(),
                waiting_for: member.backlog.age(now),
            });
        }
        let record = (!is_leaving).then_some(Closing::Slow);
        self.closings.push_back((id, record));
    }

    fn check_ages(&mut self, now: Instant) {
        let deadline = |member: &Member| member.backlog.deadline(&self.budget);
        let late: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| deadline(member).is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        self.check_at = self
            .members
            .values()
            .filter_map(deadline)
            .filter(|at| *at > now)
            .min();
        for id in late {
            self.close_slow(now, id);
        }
    }
}

/// Maximum jobs taken from the queue at a time, so that records to the same member share a write.
const JOBS_MAX: usize = 64;

/// Number of queued events from which sockets are not read. One read may exceed it.
pub(super) const EVENTS_MAX: usize = 256;

/// Event entries that stay allocated, as many as a round of reads usually produces.
const EVENTS_KEPT: usize = EVENTS_MAX * 4;

impl StreamMachine for MemberMachine {
    type Event = WorkerEvent;
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, connection: ConnectionId, _: &PeerIdentity) {
        let Some((id, welcome)) = self.expected.pop_front() else {
            // Not a member: this driver has no listener.
            self.closings.push_back((connection, None));
            return;
        };
        self.connections.insert(id, connection);
        let member = Member {
            id,
            backlog: Backlog::default(),
            has_credit: false,
            cause: None,
        };
        self.members.insert(connection, member);
        self.jobs.push_back(Job::welcome(connection, welcome));
        if self.is_shut_down {
            self.shut_down(&Bytes::new());
        }
    }

    fn handle_frame(&mut self, _: Instant, connection: ConnectionId, record: &[u8]) {
        let Some(member) = self.members.get_mut(&connection) else {
            return;
        };
        if member.cause.is_some() {
            return;
        }
        if let Some(ReliableRecord::Message(payload)) = ReliableRecord::decode(record) {
            self.queued.push_back(WorkerEvent::Message {
                from: member.id,
                payload: Bytes::copy_from_slice(payload),
            });
        } else {
            member.cause = Some(LeaveCause::Malformed);
            self.closings.push_back((connection, None));
        }
    }

    fn handle_credit(&mut self, _: Instant, connection: ConnectionId, bytes: usize) {
        let Some(member) = self.members.get_mut(&connection) else {
            return;
        };
        if !member.has_credit {
            // The first credit's size is ignored: the budget is smaller.
            member.has_credit = true;
            return;
        }
        let messages = member.backlog.on_written(bytes);
        self.flushed.fetch_add(messages, Ordering::Relaxed);
        if member.backlog.is_empty() && member.cause.is_some() {
            self.closings.push_back((connection, None));
        }
    }

    fn handle_closed(&mut self, _: Instant, connection: ConnectionId, cause: CloseCause) {
        let Some(member) = self.members.remove(&connection) else {
            return;
        };
        self.connections.remove(&member.id);
        let cause = member.cause.unwrap_or(match cause {
            CloseCause::Finished => LeaveCause::Finished,
            CloseCause::Local => LeaveCause::ShutDown,
            CloseCause::Failed | CloseCause::Unreachable | _ => LeaveCause::Lost,
        });
        self.queued.push_back(WorkerEvent::Left {
            member: member.id,
            cause,
        });
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        if let Some((connection, record)) = self.closings.pop_front() {
            if let Some(closing) = record {
                ReliableRecord::Closing(closing, &[]).encode(buf);
            }
            return Some(Outbound {
                connection,
                close: true,
            });
        }
        while let Some(mut job) = self.jobs.pop_front() {
            while let Some(id) = job.next(self) {
                let written = job.write(self, now, id, buf);
                if written.is_some() {
                    self.jobs.push_front(job);
                    return written;
                }
            }
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_ages(now);
        }
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        if self.queued.is_empty() || !self.sender.has_room() {
            return None;
        }
        let event = self.queued.pop_front();
        if self.queued.is_empty() && self.queued.capacity() > EVENTS_KEPT {
            self.queued.shrink_to(EVENTS_KEPT);
        }
        event
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.check_at
    }
}

/// A record in progress to any number of members.
#[derive(Debug)]
struct Job {
    kind: Kind,
    /// Payload after the header, shared by all recipients.
    payload: Bytes,
    targets: Targets,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Welcome,
    Message,
    Close(Closing, LeaveCause),
}

#[derive(Debug)]
enum Targets {
    /// The connection that has just opened.
    Opened(Option<ConnectionId>),
    One(Option<MemberId>),
    Many {
        members: Arc<[MemberId]>,
        next: usize,
    },
    /// Connections after the bound, up to the last that was open when the job was added.
    Range(Bound<ConnectionId>, ConnectionId),
}

impl Job {
    /// Creates the job of a message. `last` is the newest connection. Returns `None` if there is no
    /// recipient.
    fn message(dest: Dest, payload: Bytes, last: Option<ConnectionId>) -> Option<Self> {
        let targets = match dest {
            Dest::One(member) => Targets::One(Some(member)),
            Dest::Many(members) => Targets::Many { members, next: 0 },
            Dest::All => Targets::Range(Bound::Unbounded, last?),
        };
        Some(Self {
            kind: Kind::Message,
            payload,
            targets,
        })
    }

    const fn welcome(connection: ConnectionId, payload: Bytes) -> Self {
        Self {
            kind: Kind::Welcome,
            payload,
            targets: Targets::Opened(Some(connection)),
        }
    }

    const fn close(
        member: MemberId,
        (closing, cause): (Closing, LeaveCause),
        payload: Bytes,
    ) -> Self {
        Self {
            kind: Kind::Close(closing, cause),
            payload,
            targets: Targets::One(Some(member)),
        }
    }

    fn next(&mut self, machine: &MemberMachine) -> Option<ConnectionId> {
        match &mut self.targets {
            Targets::Opened(connection) => connection.take(),
            Targets::One(member) => machine.connections.get(&member.take()?).copied(),
            Targets::Many { members, next } => {
                let rest = members.get(*next..)?;
                let (passed, found) = rest
                    .iter()
                    .enumerate()
                    .find_map(|(place, member)| Some((place, *machine.connections.get(member)?)))?;
                *next = next.saturating_add(passed).saturating_add(1);
                Some(found)
            }
            Targets::Range(from, last) => {
                let (id, _) = machine.members.range((*from, Bound::Unbounded)).next()?;
                *from = Bound::Excluded(*id);
                (*id <= *last).then_some(*id)
            }
        }
    }

    fn write(
        &self,
        machine: &mut MemberMachine,
        now: Instant,
        id: ConnectionId,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let payload = &self.payload;
        match self.kind {
            Kind::Welcome => machine.write((now, id), ReliableRecord::Accepted(payload), buf),
            Kind::Message => machine.write((now, id), ReliableRecord::Message(payload), buf),
            Kind::Close(closing, cause) => {
                machine.write_last((now, id), (closing, cause), payload, buf)
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum WorkerRequest {
    /// Serve this connection.
    Adopt {
        member: MemberId,
        connection: OpenConnection,
        welcome: Bytes,
    },
    Send {
        dest: Dest,
        payload: Bytes,
    },
    Dismiss {
        member: MemberId,
        reason: Bytes,
    },
}

#[derive(Debug)]
pub(super) struct MemberApplication {
    pub(super) number: WorkerId,
    pub(super) sender: EventSender<WorkerEvent>,
    pub(super) arrivals: VecDeque<OpenConnection>,
    pub(super) shutdown_reason: Arc<OnceLock<Bytes>>,
}

impl Drop for MemberApplication {
    /// Reports the end of the thread, whatever its cause, as its last event.
    fn drop(&mut self) {
        self.sender.put(0, WorkerEvent::Ended(self.number));
    }
}

impl StreamApplication<MemberMachine> for MemberApplication {
    type Request = WorkerRequest;

    fn apply_request(
        &mut self,
        _: Instant,
        machine: &mut MemberMachine,
        order: WorkerRequest,
    ) -> ControlFlow<()> {
        match order {
            WorkerRequest::Adopt {
                member,
                connection,
                welcome,
            } => {
                machine.expect(member, welcome);
                self.arrivals.push_back(connection);
            }
            WorkerRequest::Send { dest, payload } => machine.send(dest, payload),
            WorkerRequest::Dismiss { member, reason } => machine.dismiss(member, reason),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut MemberMachine, event: WorkerEvent) {
        self.sender.put(event.bytes(), event);
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut MemberMachine,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }

    fn may_receive(&self, machine: &MemberMachine, _: ConnectionId) -> bool {
        machine.may_receive()
    }

    fn is_busy(&self, machine: &MemberMachine) -> bool {
        machine.is_busy()
    }

    fn poll_arrival(&mut self, _: &mut MemberMachine) -> Option<OpenConnection> {
        self.arrivals.pop_front()
    }

    fn begin_shutdown(&mut self, _: Instant, machine: &mut MemberMachine, _: Instant) {
        machine.shut_down(self.shutdown_reason.get().unwrap_or(&Bytes::new()));
    }

    fn is_drained(&self, machine: &MemberMachine) -> bool {
        machine.is_drained()
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_queue::{QueueLimits, event_queue};
    use super::*;

    #[test]
    fn ls_19_the_shortest_messages_use_no_more_memory_than_they_count_for() {
        let limits = QueueLimits {
            events_max: 100,
            bytes_max: 1 << 20,
        };
        let (sender, receiver) = event_queue(limits);
        let budget = Budget {
            bytes_max: 1 << 16,
            age_max: std::time::Duration::from_secs(5),
        };
        let mut machine = MemberMachine::new(sender.clone(), budget, Arc::default());
        let (now, id) = (Instant::ZERO, ConnectionId(1));
        machine.expect(MemberId(1), Bytes::new());
        machine.handle_opened(now, id, &PeerIdentity::Anonymous);
        // As many records of one byte and a 4-byte length as fit into 64 KiB.
        let count = (64 << 10) / 5;
        for _ in 0..count {
            machine.handle_frame(now, id, &[3]);
        }
        assert!(!machine.may_receive());
        let held = machine.queued.capacity() * size_of::<WorkerEvent>();
        assert!(held <= 1 << 20, "{held}");
        let mut taken = 0;
        while taken < count {
            while let Some(event) = machine.poll_event() {
                sender.put(event.bytes(), event);
            }
            while let Some(WorkerEvent::Message { payload, .. }) = receiver.take() {
                assert!(payload.is_empty());
                taken += 1;
            }
        }
        assert!(machine.may_receive() && machine.queued.capacity() <= 2 * EVENTS_KEPT);
    }
}
