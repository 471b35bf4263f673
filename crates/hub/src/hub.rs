//! The hub: routes calls and broadcasts between links, and issues commands to the store.

mod access;
mod clock;
mod config;
mod fanout;
mod kv;
mod link;
mod membership;
mod message;
mod room;
mod shards;
mod stats;
mod table;
mod topics;
mod upkeep;

use core::fmt;
use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{
    ClientId, CloseCause, CommandId, ConnectionId, Instant, NodeId, Outbound, PeerIdentity,
    StreamMachine, UnixTime,
};

use crate::claim_grant::ClaimVerifier;
use crate::field::{MailSeq, Name};
use crate::join_file::JoinFile;
use crate::kv::{KvEntry, KvKey, KvRange, KvWrite, Revision};
use crate::record::{CallError, DownReason, StatsToHub, ToHub, ToNode};
use crate::store::{Command, Completed, Outcome, StoreError, StoreOp};
pub use access::{AccessConfig, ClaimPolicy, SenderRate, SenderRates};
use clock::{ClockVerdict, WallClock};
pub use config::{DuplicateClaim, HubConfig, HubEvent, HubHealth, HubStats, HubStatus};
use fanout::Fanout;
use kv::{Caller, Kv, Request, Room, exchange};
pub use kv::{KvConfig, KvStats};
use link::{Link, LinkState, Member, Watchers};
use membership::Sweep;
use shards::Shards;
pub use stats::{StatsLinkConfig, StatsLinkStats};
use stats::{StatsReply, StatsRouter, StatsSender};
use table::{Calls, Claims, OpenCall, Ops, Pending};
use topics::Topics;
use upkeep::Upkeep;

/// The message switch that nodes join.
///
/// It exchanges records over streams that a driver has authenticated, and persists nothing itself:
/// it issues [`Command::Store`](crate::Command::Store), which a [`Store`](crate::Store) executes.
/// If the store completes nothing, only mail and joins wait; calls, broadcasts and presence
/// continue.
pub struct Hub {
    config: HubConfig,
    join_file: JoinFile,
    now: Instant,
    /// The wall clock, checked against the times in the store's log.
    clock: WallClock,
    /// Number of starts of the hub, which the store reports with the first join; 0 before.
    boot: u32,
    /// Leases granted since this start.
    leases: u32,
    links: BTreeMap<ConnectionId, Link>,
    /// The link of each node that has joined.
    joined: BTreeMap<NodeId, ConnectionId>,
    /// Services, each with a node that offers it.
    services: BTreeSet<(Name, NodeId)>,
    /// Links that may have a record within their credit.
    ready: BTreeSet<ConnectionId>,
    /// The link written last: the round robin over links continues after it.
    last_written: ConnectionId,
    /// Open calls.
    calls: Calls,
    /// Which node holds each player.
    claims: Claims,
    /// Links that subscribe to presence.
    watchers: Watchers,
    topics: Topics,
    kv: Kv,
    fanout: Fanout,
    /// Unfinished work for players of disconnected nodes.
    sweeps: VecDeque<Sweep>,
    /// When the next part of a sweep is due.
    next_sweep: Instant,
    /// Disconnected nodes, and when the lease of their players ends.
    lease_ends: BTreeMap<NodeId, Instant>,
    /// Commands that the store has not completed, and those not issued yet.
    ops: Ops,
    /// Players with a mailbox to read.
    mail_ready: BTreeSet<ClientId>,
    /// The mailbox read last: the round robin over mailboxes continues after it.
    last_read: ClientId,
    /// Players with an acknowledgement for the store.
    acknowledging: BTreeSet<ClientId>,
    /// Players with a failed read; retried at the next tick.
    retry_reads: BTreeSet<ClientId>,
    /// Players with a failed acknowledgement; retried at the next tick.
    retry_acks: BTreeSet<ClientId>,
    /// Last acknowledgements of claims that have ended.
    final_acks: BTreeMap<ClientId, MailSeq>,
    /// Whether the store is still removing expired mail.
    is_expiring: bool,
    events: VecDeque<HubEvent>,
    /// When timeouts and leases are checked next.
    next_tick: Instant,
    /// When expired mail is removed next.
    next_expiry: Instant,
    /// Buffer for one encoded record.
    scratch: Vec<u8>,
    health: Health,
    upkeep: Upkeep,
    drain: Drain,
    stats: HubStats,
    stats_router: StatsRouter,
    shards: Shards,
}

/// Progress of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    Off,
    /// Waits for open calls and store commands; not longer than until this time.
    Waiting(Instant),
    /// All links are closing.
    Closing,
}

/// Whether the store has failed. A failure is permanent, and reported even if `events` is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Healthy,
    Failing,
    Failed,
}

/// Resolution of idle timeouts and leases.
const TICK: Duration = Duration::from_millis(250);

/// Pause between two parts of a sweep.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

/// Interval of the removal of expired mail.
const EXPIRY: Duration = Duration::from_secs(1);

impl Hub {
    /// The ids of its commands are below this one. From here on they are free for a driver that passes
    /// commands of another source to the same stores.
    pub const COMMAND_IDS_END: CommandId = CommandId(3 << 62);

    /// Creates a hub that admits the nodes in `join_file`. It draws nothing at random.
    #[must_use]
    pub fn new(config: HubConfig, join_file: JoinFile, now: Instant) -> Self {
        Self {
            kv: Kv::new(config.kv),
            shards: Shards::new(config.shard, &join_file),
            config,
            join_file,
            now,
            clock: WallClock::default(),
            boot: 0,
            leases: 0,
            links: BTreeMap::new(),
            joined: BTreeMap::new(),
            services: BTreeSet::new(),
            ready: BTreeSet::new(),
            last_written: ConnectionId(0),
            calls: Calls::default(),
            claims: Claims::default(),
            watchers: Watchers::default(),
            topics: Topics::default(),
            fanout: Fanout::default(),
            sweeps: VecDeque::new(),
            next_sweep: now,
            lease_ends: BTreeMap::new(),
            ops: Ops::default(),
            mail_ready: BTreeSet::new(),
            last_read: ClientId(0),
            acknowledging: BTreeSet::new(),
            retry_reads: BTreeSet::new(),
            retry_acks: BTreeSet::new(),
            final_acks: BTreeMap::new(),
            is_expiring: false,
            events: VecDeque::new(),
            next_tick: now + TICK,
            next_expiry: now + EXPIRY,
            scratch: Vec::new(),
            health: Health::Healthy,
            upkeep: Upkeep::default(),
            drain: Drain::Off,
            stats: HubStats::default(),
            stats_router: StatsRouter::default(),
        }
    }

    /// Starts a shutdown: accepts no new node, call or mail, finishes open calls and store commands
    /// until `deadline`, then closes all links with [`DownReason::Draining`]. It cannot be undone.
    pub fn drain(&mut self, now: Instant, deadline: Instant) {
        self.advance(now);
        if self.drain == Drain::Off {
            self.drain = Drain::Waiting(deadline);
            self.advance_drain();
        }
    }

    /// Returns whether a shutdown has ended: no link is left, and the store has executed every
    /// command.
    pub fn is_drained(&self) -> bool {
        let is_stored = self.has_failed() || self.ops.is_empty();
        let is_stored = is_stored && self.stats_router.is_empty();
        self.drain == Drain::Closing && self.links.is_empty() && is_stored
    }

    const fn is_draining(&self) -> bool {
        !matches!(self.drain, Drain::Off)
    }

    /// Closes all links once a shutdown has nothing to wait for.
    fn advance_drain(&mut self) {
        let Drain::Waiting(deadline) = self.drain else {
            return;
        };
        let is_stored = self.ops.is_empty()
            && self.stats_router.is_empty()
            && self.acknowledging.is_empty()
            && self.retry_acks.is_empty()
            && self.final_acks.is_empty();
        let is_idle = self.calls.is_empty() && (is_stored || self.has_failed());
        if is_idle || deadline <= self.now {
            self.drain = Drain::Closing;
            let links: Vec<_> = self.links.keys().copied().collect();
            for id in links {
                self.close(id, DownReason::Draining);
            }
        }
    }

    /// Sets what checks the signatures of grants. Without it, no grant is valid.
    pub fn set_claim_verifier(&mut self, verifier: Box<dyn ClaimVerifier>) {
        self.upkeep.access.set_verifier(verifier);
    }

    /// Returns the counters.
    pub const fn stats(&self) -> HubStats {
        self.stats
    }

    /// Returns the counters of statistics.
    pub const fn link_statistics(&self) -> StatsLinkStats {
        self.stats_router.stats()
    }

    /// Returns the state for reports and health checks.
    pub fn health(&self) -> HubHealth {
        upkeep::health(self)
    }

    /// Returns the node that holds `player`, if its link is up.
    pub fn holder(&self, player: ClientId) -> Option<NodeId> {
        let claim = self.claims.get(player)?;
        self.live_link(claim).map(|_| claim.node)
    }

    /// Returns the nodes that have joined, ordered by id.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.joined.keys().copied()
    }

    /// Returns the number of claimed players, including those of disconnected nodes within their
    /// lease.
    pub fn player_count(&self) -> usize {
        self.claims.len()
    }

    fn on_record(&mut self, id: ConnectionId, record: ToHub<'_>) {
        match record {
            ToHub::Join(join) => self.on_join(id, join),
            ToHub::Shard(view) => shards::on_view(self, id, view),
            _ if self.member(id).is_none() => self.close(id, DownReason::Protocol),
            ToHub::Heartbeat => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.answer_heartbeat();
                    self.ready.insert(id);
                }
            }
            ToHub::Leave => self.on_leave(id),
            ToHub::Call(call) => self.on_call(id, call),
            ToHub::Reply { request, result } => self.on_reply(id, request, result),
            ToHub::Mail(mail) => self.on_mail(id, mail.into()),
            ToHub::MailMany(mail) => self.on_mail(id, mail.into()),
            ToHub::MailAck { player, upto } => self.on_mail_ack(id, player, upto),
            ToHub::Claim(claim) => self.on_claim(id, claim, None),
            ToHub::ClaimGranted { claim, grant } => self.on_claim(id, claim, Some(grant)),
            ToHub::Release { player, claim } => self.on_release(id, player, claim),
            ToHub::Broadcast { topic, body } => self.on_broadcast(id, topic, body),
            ToHub::Counts { batch, entries } => self.on_counts(id, batch, entries),
            ToHub::Cancel { call } => self.on_cancel(id, call),
            ToHub::Live(record) => self.on_live(id, record),
            ToHub::Watch(filter) => self.on_watch(id, filter),
            ToHub::Group(record) => self.on_group(id, record),
            ToHub::Kv(record) => exchange::on_record(self, id, record),
            ToHub::Stats(record) => self.on_stats(id, record),
        }
    }

    fn on_outcome(&mut self, pending: Pending, outcome: Outcome) {
        if outcome == Err(StoreError::Failed) {
            self.fail();
            return;
        }
        match (pending, outcome) {
            (Pending::Join(id), outcome) => self.on_epoch(id, &outcome),
            (Pending::Append(..), Ok(Completed::Appended(settled))) => self.on_appended(&settled),
            (Pending::Append(_, busy), _) => self.on_appended(&busy),
            (Pending::Read(read), outcome) => self.on_mails(read, outcome),
            (Pending::Ack(player, generation, upto), outcome) => {
                let upto = outcome.is_ok().then_some(upto);
                self.on_acknowledged(player, generation, upto);
            }
            (Pending::Count(id, batch), outcome) => self.on_counted(id, batch, &outcome),
            (Pending::Expire, outcome) => {
                self.is_expiring = false;
                if let Ok(Completed::Expired { count: count @ 1.. }) = outcome {
                    self.stats.mail_expired = self.stats.mail_expired.saturating_add(count.into());
                    self.expire();
                }
            }
            (Pending::Group(pending), outcome) => self.on_group_outcome(pending, outcome),
            (Pending::Status, outcome) => upkeep::on_status(self, &outcome),
            (Pending::Part, _) => {}
            (Pending::Kv(pending), outcome) => exchange::on_outcome(self, pending, outcome),
        }
    }

    fn on_stats(&mut self, id: ConnectionId, record: StatsToHub<'_>) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let Some(member) = link.member() else {
            return;
        };
        let from = StatsSender {
            link: id,
            node: link.node,
            epoch: member.epoch,
            role: member.join.role,
        };
        let now = self.unix_now().filter(|_| !self.is_draining());
        let config = &self.config.stats;
        if let Some(reply) = self.stats_router.on_record(config, from, now, record) {
            self.send_stats((id, reply));
        }
    }

    /// Sends an answer of statistics, if the link is still up.
    fn send_stats(&mut self, (id, record): StatsReply) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.push(record.into(), None);
        self.ready.insert(id);
        if link.outbox_bytes() > self.config.link_bytes_max.saturating_mul(2) {
            self.close(id, DownReason::Overrun);
        }
    }

    fn on_stats_completed(&mut self, id: CommandId, outcome: Outcome) {
        let Some((reply, failed_now)) = self.stats_router.complete(id, outcome) else {
            self.stats.completions_unknown = self.stats.completions_unknown.saturating_add(1);
            return;
        };
        self.send_stats(reply);
        if failed_now {
            self.event(HubEvent::StatsFailed);
        }
    }

    fn has_failed(&self) -> bool {
        self.health != Health::Healthy
    }

    fn fail(&mut self) {
        if self.has_failed() {
            return;
        }
        self.health = Health::Failing;
        let links: Vec<_> = self.links.keys().copied().collect();
        for id in links {
            self.close(id, DownReason::StoreFailed);
        }
    }

    fn on_tick(&mut self) {
        let now = self.now;
        let links = self.links.iter();
        let over: Vec<_> = links
            .filter_map(|(id, link)| {
                let (limit, reason) = match link.state {
                    LinkState::Fresh => (self.config.join_timeout, DownReason::Silent),
                    LinkState::Joining(_) => (self.config.join_timeout, DownReason::Busy),
                    LinkState::Joined(_) => (self.config.silence_max, DownReason::Silent),
                    LinkState::Closing => return None,
                };
                (now.saturating_since(link.last_received) >= limit).then_some((*id, reason))
            })
            .collect();
        for (id, reason) in over {
            self.close(id, reason);
        }
        let is_over = |(_, until): &(&NodeId, &Instant)| **until <= now;
        let ended: Vec<_> = self
            .lease_ends
            .iter()
            .filter(is_over)
            .map(|(node, _)| *node)
            .collect();
        for node in ended {
            self.lease_ends.remove(&node);
            self.sweep(Sweep::free(node));
        }
        self.kv.on_tick();
        exchange::flush(self);
        self.fanout.on_tick();
        self.acknowledging.append(&mut self.retry_acks);
        self.mail_ready.append(&mut self.retry_reads);
        if self.next_expiry <= now {
            self.next_expiry = now + EXPIRY;
            if let Some(event) = self.fanout.take_event() {
                self.event(event);
            }
            self.expire();
        }
        upkeep::on_tick(self);
    }

    fn expire(&mut self) {
        if let Some(now) = self.clock.expiry_now(self.now)
            && !self.has_failed()
            && !self.is_draining()
            && !self.is_expiring
        {
            self.is_expiring = true;
            self.ops.push(StoreOp::Expire { now }, Pending::Expire);
        }
    }

    /// Closes a link, and ends its calls and claims in the same turn.
    fn close(&mut self, id: ConnectionId, reason: DownReason) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if link.is_closing() {
            return;
        }
        let node = link.node;
        self.detach(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.close(Some(reason));
        }
        self.ready.insert(id);
        self.event(HubEvent::Refused {
            node: Some(node),
            reason,
        });
    }

    /// Removes a link from every table but `links`.
    fn detach(&mut self, id: ConnectionId) {
        while let Some(call) = self.calls.close_one_of(id) {
            if call.caller == id {
                self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
            } else {
                self.fail_call(call, CallError::NodeDown);
            }
        }
        for request in self.links.get(&id).into_iter().flat_map(Link::requests) {
            self.calls.on_written(request);
        }
        self.upkeep.room.forget(id);
        self.leave(id);
    }

    /// Sends a record that must not be dropped; closes the link if its outbox overruns.
    fn send(&mut self, id: ConnectionId, record: &ToNode<'_>) {
        let record = encode(record, &mut self.scratch);
        self.send_encoded(id, record);
    }

    fn send_encoded(&mut self, id: ConnectionId, record: Bytes) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.push(record, None);
        self.ready.insert(id);
        if link.outbox_bytes() > self.config.link_bytes_max.saturating_mul(2) {
            self.close(id, DownReason::Overrun);
        }
    }

    fn event(&mut self, event: HubEvent) {
        if self.events.len() < self.config.events_max
            && self.upkeep.may_queue(&event, self.config.events_max)
        {
            self.events.push_back(event);
        } else {
            self.stats.events_dropped = self.stats.events_dropped.saturating_add(1);
        }
    }

    fn unix_now(&self) -> Option<UnixTime> {
        self.clock.now(self.now)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn member(&self, id: ConnectionId) -> Option<&Member> {
        self.links.get(&id)?.member()
    }

    fn member_mut(&mut self, id: ConnectionId) -> Option<&mut Member> {
        self.links.get_mut(&id)?.member_mut()
    }

    /// Writes the next record of `connection`, or its end; `None` if its credit covers none.
    fn write(&mut self, connection: ConnectionId, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.queue_presence(connection);
        exchange::queue(self, connection);
        let link = self.links.get_mut(&connection)?;
        let close = link.is_closing();
        while let Some(request) = link.next_request()
            && self.calls.skip_cancelled(request)
        {
            link.drop_next();
        }
        match link.next() {
            Some((record, request)) => {
                buf.extend_from_slice(&record);
                if let Some(request) = request {
                    self.calls.on_written(request);
                }
            }
            // The close reason is dropped if the credit does not cover it.
            None if close => {}
            None => return None,
        }
        if close {
            self.shards.on_closed(connection);
            self.links.remove(&connection);
            self.ready.remove(&connection);
        } else {
            self.on_capacity_freed(connection);
        }
        Some(Outbound { connection, close })
    }
}

/// Encodes `record` in one allocation of its length.
fn encode(record: &ToNode<'_>, scratch: &mut Vec<u8>) -> Bytes {
    scratch.clear();
    record.encode(scratch);
    Bytes::copy_from_slice(scratch)
}

/// Returns the first of `set` after `last`, or else the first.
fn round_robin<T: Copy + Ord>(set: &BTreeSet<T>, last: T) -> Option<T> {
    let after = set.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(set).next().copied()
}

impl StreamMachine for Hub {
    type Event = HubEvent;
    type Command = Command;

    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity) {
        self.advance(now);
        self.on_opened(connection, peer);
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        self.advance(now);
        let Some(link) = self.links.get_mut(&connection) else {
            return;
        };
        if link.is_closing() {
            return;
        }
        if link.member().is_some() {
            link.last_received = self.now;
        }
        if let Ok(record) = ToHub::decode(record) {
            self.on_record(connection, record);
        } else {
            self.stats.malformed = self.stats.malformed.saturating_add(1);
            self.close(connection, DownReason::Protocol);
        }
        self.advance_drain();
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        self.advance(now);
        if let Some(link) = self.links.get_mut(&connection) {
            link.credit = link.credit.saturating_add(bytes);
            self.ready.insert(connection);
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, _cause: CloseCause) {
        self.advance(now);
        self.detach(connection);
        self.shards.on_closed(connection);
        self.links.remove(&connection);
        self.ready.remove(&connection);
        self.advance_drain();
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.advance(now);
        // Round robin, one record per link: a link with a long outbox delays no other.
        loop {
            self.last_written = round_robin(&self.ready, self.last_written)?;
            if let Some(outbound) = self.write(self.last_written, buf) {
                return Some(outbound);
            }
            self.ready.remove(&self.last_written);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(call) = self.calls.time_out(self.now) {
            self.fail_call(call, CallError::TimedOut);
        }
        if !self.sweeps.is_empty() && self.next_sweep <= self.now {
            self.run_sweeps();
        }
        if self.kv.deadline().is_some_and(|at| at <= self.now) {
            let room = self.config.ops_in_flight.saturating_sub(self.ops.len());
            self.kv.end_leases(self.now, room);
            exchange::flush(self);
        }
        if self.next_tick <= self.now {
            self.next_tick = self.now + TICK;
            self.on_tick();
        }
        self.advance_drain();
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.advance(now);
        if StatsRouter::owns(id) {
            self.on_stats_completed(id, outcome);
            self.advance_drain();
            return;
        }
        match self.ops.complete(id) {
            Some(_) if self.has_failed() => {}
            Some(pending) => self.on_outcome(pending, outcome),
            None => {
                self.stats.completions_unknown = self.stats.completions_unknown.saturating_add(1);
            }
        }
        self.advance_drain();
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.advance(now);
        let wait = self.config.clock_step_wait;
        if self.clock.read(self.now, unix, wait) == ClockVerdict::Rejected {
            self.event(HubEvent::ClockRejected {
                read: unix,
                believed: self.unix_now(),
            });
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        if self.has_failed() {
            return self.stats_router.poll();
        }
        self.issue_store_ops();
        self.ops.poll().or_else(|| self.stats_router.poll())
    }

    fn poll_event(&mut self) -> Option<HubEvent> {
        if self.health == Health::Failing {
            self.health = Health::Failed;
            return Some(HubEvent::StoreFailed);
        }
        let event = self.events.pop_front();
        self.upkeep.on_event_polled(event.as_ref());
        event
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sweep = (!self.sweeps.is_empty()).then_some(self.next_sweep);
        let drain = match self.drain {
            Drain::Waiting(deadline) => Some(deadline),
            Drain::Off | Drain::Closing => None,
        };
        let tick = Some(self.next_tick);
        let deadlines = [
            tick,
            self.calls.deadline(),
            sweep,
            drain,
            self.kv.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

/// Overhead of an entry of an ordered table, bytes.
const ENTRY_BYTES: usize = 32;

impl Hub {
    /// Returns about how many bytes the hub holds. It visits every link: call it for reports only.
    pub fn memory_bytes(&self) -> usize {
        const LINK: usize = size_of::<Link>() + size_of::<Member>() + ENTRY_BYTES;
        const CALL: usize = size_of::<OpenCall>() + 4 * ENTRY_BYTES;
        let outboxes: usize = self.links.values().map(Link::memory_bytes).sum();
        let sums = [
            self.links.len().saturating_mul(LINK),
            outboxes,
            self.claims.memory_bytes(),
            // Each call is in four tables.
            self.calls.len().saturating_mul(CALL),
            self.ops.memory_bytes(),
            self.stats_router.memory_bytes(),
            self.events.len().saturating_mul(size_of::<HubEvent>()),
            self.services.len().saturating_mul(64 + ENTRY_BYTES),
            self.topics.memory_bytes(),
            self.kv.memory_bytes(),
            self.fanout.memory_bytes(),
            self.final_acks.len().saturating_mul(16 + ENTRY_BYTES),
            self.lease_ends.len().saturating_mul(64 + ENTRY_BYTES),
            self.upkeep.memory_bytes(),
        ];
        sums.into_iter().fold(0, usize::saturating_add)
    }
}

/// The key-value store.
impl Hub {
    /// Returns a key with its value, as last read or written. Before the first node has joined, or a key
    /// was [written](Self::kv_write), durable keys are not read yet.
    pub fn kv_get(&self, key: &KvKey) -> Option<KvEntry> {
        self.kv.get(key)
    }

    /// Returns up to `limit` keys of a range, and whether more follow.
    pub fn kv_range(&self, range: &KvRange, limit: usize) -> (Vec<KvEntry>, bool) {
        self.kv.range(range, limit)
    }

    /// Sets or deletes a key for the hub's own process, without a lease. [`HubEvent::KvDone`] reports the
    /// result with `ticket`, a number of the caller's choice.
    pub fn kv_write(&mut self, now: Instant, ticket: u64, write: KvWrite) {
        self.advance(now);
        self.kv.begin();
        let room = Room {
            store: exchange::has_room(self),
            outbox: true,
        };
        let request = Request::Write(write);
        self.kv.on_request(Caller::Local(ticket), request, room);
        exchange::flush(self);
    }

    /// Returns the counters of the key-value store.
    pub const fn kv_stats(&self) -> KvStats {
        self.kv.stats()
    }

    /// Returns the last revision of its keys that is visible: a later read of a range has all changes
    /// up to it.
    pub const fn kv_revision(&self) -> Revision {
        self.kv.revision()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("nodes", &self.nodes().collect::<Vec<_>>())
            .field("player_count", &self.player_count())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
