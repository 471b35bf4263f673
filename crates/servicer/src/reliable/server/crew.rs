//! The pool of servicers of a server: start, orders and end.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::{AcceptFault, Ended, MessageError, ServerReport};
use crate::Clock;
use crate::handle::End;
use crate::handle::SpawnError;
use crate::reliable::config::{ReliableConfig, TcpServicers};
use crate::reliable::desk::Desk;
use crate::reliable::dest::Dest;
use crate::reliable::door::{Door, Porter, Refusal};
use crate::reliable::event::{JoinRequest, MemberId};
use crate::reliable::mailbox::Mailbox;
use crate::reliable::news::{News, ServicerNumber};
use crate::reliable::socket::SocketOptions;
use crate::reliable::worker::{Order, Worker};
use crate::request::RequestError;
use crate::tcp::{StreamCounters, StreamHandle, StreamListener, StreamServicer};

/// The servicers of a server.
#[derive(Debug)]
pub(super) struct Crew {
    name: String,
    config: ReliableConfig,
    division: TcpServicers,
    /// `None` once it has ended.
    door: Option<StreamHandle<Refusal>>,
    servicers: BTreeMap<ServicerNumber, Servicer>,
    /// Servicers without members, which drain their last connection.
    ending: BTreeMap<ServicerNumber, StreamHandle<Order>>,
    last_number: u32,
    mailbox: Mailbox<News>,
    /// Messages written to sockets, counted per recipient.
    flushed: Arc<AtomicU64>,
    /// The shutdown reason for clients.
    farewell: Arc<OnceLock<Bytes>>,
    started: usize,
    joined: usize,
    faults: Vec<Ended>,
}

#[derive(Debug)]
struct Servicer {
    handle: StreamHandle<Order>,
    members: usize,
}

/// The number of the accepting servicer.
const DOOR: ServicerNumber = ServicerNumber(0);

impl Crew {
    pub(super) fn start(
        name: String,
        listeners: Vec<StreamListener>,
        mailbox: Mailbox<News>,
        config: &ReliableConfig,
    ) -> Result<Self, SpawnError> {
        let farewell = Arc::default();
        let options = SocketOptions {
            send_buffer_bytes: config.socket_buffer_bytes,
            keepalive: config.keepalive,
        };
        let porter = Porter::new(DOOR, mailbox.clone(), options, Arc::clone(&farewell));
        let door = StreamServicer::named(format!("{name}-door"))
            .with_config(config.for_strangers())
            .spawn(listeners, Door::default(), porter)?;
        let mut crew = Self {
            name,
            config: *config,
            division: config.division(),
            door: Some(door),
            servicers: BTreeMap::new(),
            ending: BTreeMap::new(),
            last_number: DOOR.0,
            mailbox,
            flushed: Arc::default(),
            farewell,
            started: 1,
            joined: 0,
            faults: Vec::new(),
        };
        if let TcpServicers::Pool { threads } = crew.division {
            for _ in 0..threads.get() {
                crew.start_one()?;
            }
        }
        Ok(crew)
    }

    fn start_one(&mut self) -> Result<ServicerNumber, SpawnError> {
        let number = ServicerNumber(self.last_number.wrapping_add(1));
        self.last_number = number.0;
        let (mailbox, farewell) = (self.mailbox.clone(), Arc::clone(&self.farewell));
        let desk = Desk::new(
            self.mailbox.clone(),
            self.config.budget(),
            Arc::clone(&self.flushed),
        );
        let handle = StreamServicer::named(format!("{}-{}", self.name, number.0))
            .with_config(self.config.for_members())
            .spawn(Vec::new(), desk, Worker::new(number, mailbox, farewell))?;
        self.started = self.started.saturating_add(1);
        self.servicers
            .insert(number, Servicer { handle, members: 0 });
        Ok(number)
    }

    /// Returns the servicer for the next member, and starts one if needed.
    pub(super) fn servicer_for_one_more(&mut self) -> Result<ServicerNumber, AcceptFault> {
        match self.division {
            TcpServicers::ThreadPerClient => self.start_one().map_err(AcceptFault::NoThread),
            TcpServicers::Pool { .. } => self
                .servicers
                .iter()
                .min_by_key(|(_, servicer)| servicer.members)
                .map(|(number, _)| *number)
                .ok_or(AcceptFault::Busy),
        }
    }

    /// Hands a member to a servicer. Returns the request if its queue is full or it has ended.
    pub(super) fn adopt(
        &mut self,
        number: ServicerNumber,
        member: MemberId,
        request: JoinRequest,
        welcome: Bytes,
    ) -> Result<(), JoinRequest> {
        // This thread is the only sender, so the room found here is still there below.
        let Some(servicer) = self.servicers.get_mut(&number) else {
            return Err(request);
        };
        if !servicer.handle.has_room() {
            return Err(request);
        }
        let order = Order::Adopt {
            member,
            connection: request.connection,
            welcome,
        };
        // Fails if the servicer has ended. The event that the member has left then follows.
        drop(servicer.handle.request(order));
        servicer.members = servicer.members.saturating_add(1);
        Ok(())
    }

    pub(super) fn refuse(&self, request: JoinRequest, reason: Bytes) {
        let connection = request.connection;
        if let Some(door) = &self.door {
            // If the accepting servicer's queue is full, the connection closes without a reason.
            drop(door.request(Refusal { connection, reason }));
        }
    }

    /// Sends a message to the servicers in `shares`, to all or to none.
    pub(super) fn send(
        &self,
        shares: &[(ServicerNumber, u64)],
        dest: Dest,
        payload: Bytes,
    ) -> Result<(), MessageError> {
        let handles = shares
            .iter()
            .filter_map(|(number, _)| Some(&self.servicers.get(number)?.handle));
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
                // Fails if the servicer has ended. The events that its members have left then
                // follow.
                drop(handle.request(Order::Send { dest, payload }));
            }
        }
        Ok(())
    }

    pub(super) fn dismiss(
        &self,
        number: ServicerNumber,
        member: MemberId,
        reason: Bytes,
    ) -> Result<(), MessageError> {
        let Some(servicer) = self.servicers.get(&number) else {
            return Ok(());
        };
        match servicer.handle.request(Order::Dismiss { member, reason }) {
            Ok(()) | Err(RequestError::Ended(_)) => Ok(()),
            Err(RequestError::Full(_)) => Err(MessageError::Busy),
        }
    }

    /// Appends the number of members of each servicer that has any.
    pub(super) fn count_members(&self, shares: &mut Vec<(ServicerNumber, u64)>) {
        let all = self.servicers.iter().filter(|(_, it)| it.members > 0);
        shares.extend(all.map(|(number, servicer)| {
            (*number, u64::try_from(servicer.members).unwrap_or(u64::MAX))
        }));
    }

    pub(super) fn wake(&self) {
        if let Some(door) = &self.door {
            door.wake();
        }
        for servicer in self.servicers.values() {
            servicer.handle.wake();
        }
    }

    pub(super) fn counters(&self) -> Vec<StreamCounters> {
        let door = self.door.iter().map(StreamHandle::counters);
        let others = self.servicers.values().map(|it| it.handle.counters());
        door.chain(others).collect()
    }

    /// Called when a member of a servicer has left.
    pub(super) fn note_left(&mut self, number: ServicerNumber) {
        if let Some(servicer) = self.servicers.get_mut(&number) {
            servicer.members = servicer.members.saturating_sub(1);
        }
        if self.division == TcpServicers::ThreadPerClient
            && let Some(servicer) = self.servicers.remove(&number)
        {
            // Time to write the last bytes, as for any connection.
            servicer.handle.stop(self.config.stream.linger_timeout);
            self.ending.insert(number, servicer.handle);
        }
    }

    /// Joins a servicer that has ended. Returns its name and how it ended, unless it was asked to
    /// end.
    pub(super) fn note_end(&mut self, number: ServicerNumber) -> Option<Ended> {
        if let Some(handle) = self.ending.remove(&number) {
            self.join(handle, Duration::ZERO);
            return None;
        }
        let ended = if number == DOOR {
            let door = self.door.take()?;
            self.join(door, Duration::ZERO)
        } else {
            let servicer = self.servicers.remove(&number)?;
            self.join(servicer.handle, Duration::ZERO)
        };
        tracing::warn!(servicer = ended.0, end = %ended.1, "servicer ended");
        if matches!(self.division, TcpServicers::Pool { .. })
            && number != DOOR
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

    /// Ends all servicers: requests the shutdown of each, then joins each.
    pub(super) fn end(&mut self, within: Duration, farewell: Bytes) {
        let deadline = Clock::new().now() + within;
        self.farewell.get_or_init(|| farewell);
        let door = self.door.take();
        let servicers = mem::take(&mut self.servicers);
        let ending = mem::take(&mut self.ending);
        if let Some(door) = &door {
            door.stop(within);
        }
        let handles = servicers.into_values().map(|servicer| servicer.handle);
        let handles: Vec<_> = handles.chain(ending.into_values()).collect();
        for handle in &handles {
            handle.stop(within);
        }
        let left = || deadline.saturating_since(Clock::new().now());
        if let Some(door) = door {
            self.join(door, left());
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
