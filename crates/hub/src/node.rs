//! A node: the client side of hub links.

mod config;
mod groups;
mod kv;
mod link;
mod live;
mod queue;
mod shard_link;
mod shards;
mod stats;

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{
    ClientId, CloseCause, CommandId, ConnectionId, Generator, InstanceId, Instant, NodeId,
    Outbound, PeerIdentity, Seed,
};

use crate::claim_grant::ClaimGrant;
use crate::field::{
    Addr, CallId, ClaimNumber, CountKey, Epoch, Lease, LiveSeq, LogId, MailSeq, Name, QueryId,
    Redacted, SenderSeq,
};
use crate::record::{
    BODY_BYTES_MAX, CallError, CallRequest, Delivery, DownReason, META_BYTES_MAX, MailTo,
    MailVerdict, Request, RevokeReason, StatsToNode, ToHub, ToNode,
};
use crate::shard::ShardView;
pub use config::{
    ClaimId, DialError, MailOptions, NodeCommand, NodeConfig, NodeEvent, NodeStats, SendError,
    Ticket,
};
use groups::GroupRequests;
pub use kv::{KvAnswer, KvClient, KvClientConfig};
use link::LinkState;
use live::LiveQueues;
pub use live::{LiveOverflow, PlayerMessage};
use queue::{ClaimedPlayers, Counter, Delivered, Outgoing};
use shard_link::ShardLink;
pub use shards::{Node, ShardsConfig};
pub use stats::{NodeStatsConfig, NodeStatsCounters, QuerySendError, Statistics};

/// The link of a node to one hub, and what waits for it. It joins, and rejoins whenever the link closes.
///
/// [`Node`] documents the methods that have the same names there.
struct HubLink {
    config: NodeConfig,
    instance: InstanceId,
    /// The epoch that the hub assigned to this run; 0 before the first join.
    epoch: Epoch,
    /// The hub's log; `None` before the first join.
    log: Option<LogId>,
    hub: NodeId,
    addresses: Vec<String>,
    generator: Generator,
    now: Instant,
    link: LinkState,
    /// Index into `addresses` of the next dial.
    next_address: usize,
    /// Dials since the last join.
    attempts: u32,
    last_command: u64,
    commands: VecDeque<(CommandId, NodeCommand)>,
    /// Bytes that the link accepts now.
    credit: usize,
    /// Connections that the driver is to close.
    closing: VecDeque<ConnectionId>,
    /// Calls, replies and broadcasts that wait to be written.
    outbox: VecDeque<Bytes>,
    outbox_bytes: usize,
    scratch: Vec<u8>,
    last_call: CallId,
    calls: BTreeMap<CallId, Instant>,
    call_deadlines: BTreeSet<(Instant, CallId)>,
    players: ClaimedPlayers,
    outgoing: Outgoing,
    live: LiveQueues,
    kv: KvClient,
    groups: GroupRequests,
    /// The last live message sent, and the last with a known outcome.
    live_sent: (LiveSeq, LiveSeq),
    counter: Counter,
    next_counts: Instant,
    events: VecDeque<NodeEvent>,
    stats: NodeStats,
    statistics: Statistics,
    /// Set if there are other hubs.
    shard: Option<ShardLink>,
}

/// A hub that a node dials.
struct HubAddress {
    node: NodeId,
    addresses: Vec<String>,
    view: ShardView,
}

impl HubLink {
    fn new(
        config: NodeConfig,
        hub: HubAddress,
        instance: InstanceId,
        seed: Seed,
        now: Instant,
    ) -> Self {
        let next_counts = now + config.counts_interval;
        let statistics = Statistics::new(config.statistics.clone(), now);
        Self {
            kv: KvClient::new(config.kv),
            config,
            instance,
            epoch: Epoch(0),
            log: None,
            hub: hub.node,
            addresses: hub.addresses,
            generator: seed.generator(hub.view.shard.index().into()),
            now,
            link: LinkState::Down { redial_at: now },
            next_address: 0,
            attempts: 0,
            last_command: 0,
            commands: VecDeque::new(),
            credit: 0,
            closing: VecDeque::new(),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            scratch: Vec::new(),
            last_call: CallId(0),
            calls: BTreeMap::new(),
            call_deadlines: BTreeSet::new(),
            players: ClaimedPlayers::default(),
            outgoing: Outgoing::default(),
            live: LiveQueues::default(),
            groups: GroupRequests::default(),
            live_sent: (LiveSeq(0), LiveSeq(0)),
            counter: Counter::default(),
            next_counts,
            events: VecDeque::new(),
            stats: NodeStats::default(),
            statistics,
            shard: ShardLink::of(hub.view),
        }
    }

    fn call(
        &mut self,
        now: Instant,
        to: Addr,
        body: Bytes,
        timeout: Duration,
    ) -> Result<CallId, SendError> {
        self.advance(now);
        if self.calls.len() >= self.config.calls_max {
            return Err(SendError::Full(body.into()));
        }
        let call = CallId(self.last_call.0.saturating_add(1));
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let body = self.check_live(body)?;
        self.push(&ToHub::Call(CallRequest {
            call,
            timeout_ms,
            to,
            body: Redacted(&body),
        }));
        self.last_call = call;
        let deadline = self.now + timeout;
        self.calls.insert(call, deadline);
        self.call_deadlines.insert((deadline, call));
        Ok(call)
    }

    fn cancel(&mut self, now: Instant, call: CallId) -> bool {
        self.advance(now);
        let was_open = self.end_call(call);
        if was_open && self.up().is_some() {
            self.push(&ToHub::Cancel { call });
        }
        was_open
    }

    fn reply(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<Bytes, CallError>,
    ) -> Result<(), SendError> {
        self.advance(now);
        if self.up() != Some(ticket.link) {
            self.stats.replies_stale = self.stats.replies_stale.saturating_add(1);
            return Ok(());
        }
        let request = ticket.request;
        let (body, error) = match result {
            Ok(body) => (body, None),
            Err(error) => (Bytes::new(), Some(error)),
        };
        let body = self.check_live(body)?;
        let result = error.map_or(Ok(Redacted(&body[..])), Err);
        self.push(&ToHub::Reply { request, result });
        Ok(())
    }

    fn mail(
        &mut self,
        now: Instant,
        player: ClientId,
        body: Bytes,
        ttl: Duration,
    ) -> Result<SenderSeq, SendError> {
        self.advance(now);
        if body.len() > BODY_BYTES_MAX {
            return Err(SendError::TooLong(body.into()));
        }
        let (to, priority) = (MailTo::One(Addr::Player(player)), 0);
        let options = MailOptions { ttl, priority };
        self.outgoing.push(to, options, body, &self.config)
    }

    fn broadcast(&mut self, now: Instant, topic: Name, body: Bytes) -> Result<(), SendError> {
        self.advance(now);
        let body = self.check_live(body)?;
        self.push(&ToHub::Broadcast {
            topic,
            body: Redacted(&body),
        });
        Ok(())
    }

    fn claim(
        &mut self,
        now: Instant,
        player: ClientId,
        delivered: MailSeq,
        meta: Bytes,
    ) -> Result<ClaimId, SendError> {
        self.advance(now);
        if meta.len() > META_BYTES_MAX {
            return Err(SendError::TooLong(meta.into()));
        }
        if self.players.len() >= self.config.players_max {
            return Err(SendError::Full(meta.into()));
        }
        self.end_session(player);
        let claim = self.players.claim(player, delivered, meta);
        self.live.start(claim);
        Ok(claim)
    }

    fn prove(&mut self, now: Instant, claim: ClaimId, grant: ClaimGrant) -> bool {
        self.advance(now);
        self.players.prove(claim, grant)
    }

    fn release(&mut self, now: Instant, claim: ClaimId) -> bool {
        self.advance(now);
        if !self.players.is_current(claim) {
            return false;
        }
        self.end_session(claim.player());
        self.players.release(claim.player())
    }

    fn acknowledge(&mut self, now: Instant, claim: ClaimId, upto: MailSeq) -> bool {
        self.advance(now);
        self.players.acknowledge(claim, upto)
    }

    fn count(&mut self, key: CountKey, increase: u64) {
        if !self.counter.add(key, increase, self.config.count_keys_max) {
            self.stats.counts_dropped = self.stats.counts_dropped.saturating_add(1);
        }
    }

    const fn statistics(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    fn query_statistics(&mut self, now: Instant, text: &str) -> Result<QueryId, QuerySendError> {
        self.advance(now);
        if self.up().is_none() {
            return Err(QuerySendError::HubDown);
        }
        self.statistics.query(text)
    }

    fn leave(&mut self, now: Instant) {
        self.advance(now);
        if let Some(connection) = self.up() {
            self.push(&ToHub::Leave);
            self.link = LinkState::Leaving { connection };
        } else {
            self.link = LinkState::Ended;
        }
    }

    const fn kv(&mut self) -> &mut KvClient {
        &mut self.kv
    }

    const fn stats(&self) -> NodeStats {
        self.stats
    }

    fn mails_waiting(&self) -> usize {
        self.outgoing.len()
    }

    fn is_counted(&self) -> bool {
        self.counter.is_empty()
    }

    const fn is_joined(&self) -> bool {
        self.up().is_some()
    }

    /// Returns `body` if a live record with it may be pushed.
    fn check_live(&self, body: Bytes) -> Result<Bytes, SendError> {
        if body.len() > BODY_BYTES_MAX {
            return Err(SendError::TooLong(body.into()));
        }
        if self.up().is_none() {
            return Err(SendError::HubDown(body.into()));
        }
        if self.outbox_bytes.saturating_add(body.len()) > self.config.outbox_bytes_max {
            return Err(SendError::Full(body.into()));
        }
        Ok(body)
    }

    fn push(&mut self, record: &ToHub<'_>) {
        self.scratch.clear();
        record.encode(&mut self.scratch);
        self.outbox_bytes = self.outbox_bytes.saturating_add(self.scratch.len());
        self.outbox.push_back(Bytes::copy_from_slice(&self.scratch));
    }

    fn end_call(&mut self, call: CallId) -> bool {
        let Some(deadline) = self.calls.remove(&call) else {
            return false;
        };
        self.call_deadlines.remove(&(deadline, call));
        true
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}

impl HubLink {
    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity) {
        self.advance(now);
        self.on_opened(connection, *peer);
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        self.advance(now);
        self.on_frame(connection, record);
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        self.advance(now);
        if self.link.connection() == Some(connection) {
            self.credit = self.credit.saturating_add(bytes);
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, _cause: CloseCause) {
        self.advance(now);
        self.closing.retain(|closing| *closing != connection);
        if self.link.connection() == Some(connection) {
            self.on_down();
        }
    }

    fn poll_outbound(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        if let Some(connection) = self.closing.pop_front() {
            let close = true;
            return Some(Outbound { connection, close });
        }
        self.write(buf)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some((deadline, call)) = self.call_deadlines.first().copied()
            && deadline <= self.now
        {
            self.end_call(call);
            let result = Err(CallError::TimedOut);
            self.events.push_back(NodeEvent::Reply { call, result });
        }
        if self.next_counts <= self.now && !self.counter.is_empty() {
            self.next_counts = self.now + self.config.counts_interval;
            self.counter.on_interval();
        }
        self.outgoing.handle_timeout(self.now);
        self.statistics.handle_timeout(self.now);
        self.on_link_timeout();
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Result<(), DialError>) {
        self.advance(now);
        self.on_dialled(id, outcome);
    }

    fn poll_command(&mut self) -> Option<(CommandId, NodeCommand)> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let call = self.call_deadlines.first().map(|(deadline, _)| *deadline);
        let counts = (!self.counter.is_empty()).then_some(self.next_counts);
        let candidates = [
            call,
            counts,
            self.outgoing.paused_until(),
            self.statistics.poll_timeout(),
            self.link.deadline(&self.config),
        ];
        candidates.into_iter().flatten().min()
    }
}

/// Longest delay before a batch of statistics is sent again, milliseconds.
const RETRY_MS_MAX: u32 = 10_000;

/// Overhead of an entry of an ordered table, bytes.
const ENTRY: usize = 32;

impl HubLink {
    fn memory_bytes(&self) -> usize {
        // Each call is in two tables.
        const CALL: usize = 2 * (size_of::<(CallId, Instant)>() + ENTRY);
        const COUNT: usize = size_of::<(CountKey, u64)>() + ENTRY;
        let events: usize = self.events.iter().map(event_bytes).sum();
        let sums = [
            self.outbox_bytes,
            self.outbox.len().saturating_mul(size_of::<Bytes>()),
            self.outgoing.memory_bytes(),
            self.players.memory_bytes(),
            self.live.memory_bytes(),
            self.kv.memory_bytes(),
            self.shard.as_ref().map_or(0, ShardLink::memory_bytes),
            self.statistics.memory_bytes(),
            self.calls.len().saturating_mul(CALL),
            self.groups.len().saturating_mul(8 + ENTRY),
            self.counter.len().saturating_mul(COUNT),
            events,
            self.closing.len().saturating_mul(4),
            self.commands.len().saturating_mul(128),
        ];
        sums.into_iter().fold(0, usize::saturating_add)
    }
}

fn event_bytes(event: &NodeEvent) -> usize {
    let body = if let NodeEvent::KvAnswer { result, .. } = event {
        result.as_ref().map_or(0, KvAnswer::bytes)
    } else if let NodeEvent::KvChanged { change, .. } = event {
        change.value.as_ref().map_or(0, |(value, _)| value.len())
    } else if let NodeEvent::Reply {
        result: Ok(body), ..
    }
    | NodeEvent::Request { body, .. }
    | NodeEvent::Mail { body, .. }
    | NodeEvent::Broadcast { body, .. }
    | NodeEvent::Kicked { reason: body, .. }
    | NodeEvent::StatsAnswer { answer: body, .. }
    | NodeEvent::PlayerPresence(_, Some((_, body))) = event
    {
        body.0.len()
    } else {
        0
    };
    body.saturating_add(size_of::<NodeEvent>())
}

impl HubLink {
    fn on_frame(&mut self, connection: ConnectionId, record: &[u8]) {
        if self.link.connection() != Some(connection) {
            return;
        }
        let Ok(record) = ToNode::decode(record) else {
            self.stats.malformed = self.stats.malformed.saturating_add(1);
            self.on_refused(connection, DownReason::Protocol);
            return;
        };
        if let LinkState::Up { last_received, .. } = &mut self.link {
            *last_received = self.now;
        }
        match (self.link, record) {
            (_, ToNode::Down(reason)) => self.on_refused(connection, reason),
            (
                LinkState::Joining { .. },
                ToNode::Joined {
                    epoch,
                    log,
                    count_mark,
                    ..
                },
            ) => {
                self.counter.on_counted(count_mark);
                // Mail numbers and revisions belong to one log; those of the last log are void.
                let is_new_log = self.log.replace(log).is_some_and(|last| last != log);
                if is_new_log {
                    self.players.forget_marks();
                    self.kv.forget_revisions();
                }
                self.kv.on_up();
                self.on_joined(connection);
                self.epoch = epoch;
                self.events.push_back(NodeEvent::Joined { epoch, log });
            }
            (LinkState::Up { .. }, record) => self.on_record(connection, record),
            _ => {}
        }
    }

    fn on_record(&mut self, connection: ConnectionId, record: ToNode<'_>) {
        match record {
            ToNode::Request(request) => self.on_request(connection, &request),
            ToNode::Reply { call, result } => self.on_reply(call, result),
            ToNode::MailSettled {
                first,
                last,
                verdict,
                retry_ms,
            } => self.on_settled((first, last), verdict, retry_ms),
            ToNode::MailPartRefused { seq, part } => {
                self.events.extend(self.outgoing.settle_part(seq, &part));
            }
            ToNode::Deliver(delivery) => self.on_delivery(&delivery),
            ToNode::Granted {
                player,
                claim,
                lease,
            } => self.on_granted(player, claim, lease),
            ToNode::Revoked {
                player,
                claim,
                reason,
            } => self.on_revoked(player, claim, reason),
            ToNode::Broadcast { from, topic, body } => {
                if self.events.len() >= self.config.events_max {
                    self.stats.broadcasts_dropped = self.stats.broadcasts_dropped.saturating_add(1);
                    return;
                }
                let body = body.to_bytes();
                self.events
                    .push_back(NodeEvent::Broadcast { from, topic, body });
            }
            ToNode::Counted { upto } => self.counter.on_counted(upto),
            ToNode::PresenceReset => self.events.push_back(NodeEvent::PresenceReset),
            ToNode::PresenceNode { node, info } => {
                self.events.push_back(NodeEvent::NodePresence(node, info));
            }
            ToNode::PresencePlayer { player, holder } => {
                let holder = holder.map(|(node, meta)| (node, meta.to_bytes()));
                self.events
                    .push_back(NodeEvent::PlayerPresence(player, holder));
            }
            ToNode::PresenceComplete => self.events.push_back(NodeEvent::PresenceComplete),
            ToNode::Cancelled { request } => {
                let link = connection;
                let ticket = Ticket { link, request };
                self.events.push_back(NodeEvent::Cancelled(ticket));
            }
            ToNode::MailboxEmpty {
                player,
                claim,
                settled,
            } => self.on_mailbox_empty(player, claim, settled),
            ToNode::HasRoom => {
                if self.outgoing.resume(self.now, &mut self.generator) {
                    self.events.push_back(NodeEvent::HubHasRoom);
                }
            }
            ToNode::Live(record) => self.on_live_record(record),
            ToNode::Group(answer) => self.events.extend(self.groups.on_answer(answer)),
            ToNode::Kv(record) => {
                if !self.kv.on_record(record, &mut self.events) {
                    self.stats.kv_stray = self.stats.kv_stray.saturating_add(1);
                }
            }
            ToNode::Stats(record) => self.on_stats_record(record),
            ToNode::Heartbeat | ToNode::Joined { .. } | ToNode::Down(_) => {}
        }
    }

    fn on_stats_record(&mut self, record: StatsToNode<'_>) {
        match record {
            StatsToNode::Settled {
                batch,
                verdict,
                retry_ms,
            } => {
                let max = u64::from(retry_ms.min(RETRY_MS_MAX));
                // Random between half and the whole delay, so that nodes do not send in step.
                let wait = Duration::from_millis(self.generator.between(max / 2, max));
                let retry_at = self.now + wait;
                self.statistics.on_settled(batch, verdict, retry_at);
            }
            StatsToNode::Answer { query, bytes } => {
                if self.statistics.on_answer(query) {
                    let answer = bytes.to_bytes();
                    self.events
                        .push_back(NodeEvent::StatsAnswer { query, answer });
                }
            }
        }
    }

    fn on_request(&mut self, connection: ConnectionId, request: &Request<'_>) {
        if self.events.len() >= self.config.events_max {
            self.stats.requests_refused = self.stats.requests_refused.saturating_add(1);
            // If not even this fits, the caller's timeout ends the call.
            if self.outbox_bytes < self.config.outbox_bytes_max {
                self.push(&ToHub::Reply {
                    request: request.request,
                    result: Err(CallError::Busy),
                });
            }
            return;
        }
        self.events.push_back(NodeEvent::Request {
            ticket: Ticket {
                link: connection,
                request: request.request,
            },
            from: request.from,
            instance: request.instance,
            to: request.to,
            body: request.body.to_bytes(),
        });
    }

    fn on_reply(&mut self, call: CallId, result: Result<Redacted<&[u8]>, CallError>) {
        if !self.end_call(call) {
            self.stats.replies_unknown = self.stats.replies_unknown.saturating_add(1);
            return;
        }
        let result = result.map(Redacted::to_bytes);
        self.events.push_back(NodeEvent::Reply { call, result });
    }

    fn on_settled(&mut self, run: (SenderSeq, SenderSeq), verdict: MailVerdict, retry_ms: u32) {
        let (first, last) = run;
        let wait = Duration::from_millis(retry_ms.into());
        let run = (last, verdict);
        let generator = &mut self.generator;
        let event = self.outgoing.on_verdict(run, self.now, wait, generator);
        self.events.extend(event);
        if !verdict.is_final() {
            return;
        }
        for seq in self.outgoing.settle(first, last) {
            if matches!(verdict, MailVerdict::Refused(_)) && self.live.on_mail_refused(seq) {
                self.stats.live_dropped = self.stats.live_dropped.saturating_add(1);
            }
            self.events.push_back(match verdict {
                MailVerdict::Refused(reason) => NodeEvent::MailRefused(seq, reason),
                MailVerdict::Stored
                | MailVerdict::Busy
                | MailVerdict::Full
                | MailVerdict::OverShare => NodeEvent::MailStored(seq),
            });
        }
    }

    fn on_delivery(&mut self, delivery: &Delivery<'_>) {
        let (player, claim) = (delivery.player, delivery.claim);
        match self.players.deliver(player, claim, delivery.seq) {
            Delivered::New(claim) => {
                let (seq, from, body) = (delivery.seq, delivery.from, delivery.body.to_bytes());
                // A mail that was spilled must not overtake the live messages before it.
                let mail = PlayerMessage::Mail { seq, from, body };
                if let Some(PlayerMessage::Mail { seq, from, body }) =
                    self.live.push_mail(player, mail)
                {
                    self.events.push_back(NodeEvent::Mail {
                        claim,
                        seq,
                        from,
                        body,
                    });
                }
            }
            Delivered::Repeated => {
                self.stats.mail_repeated = self.stats.mail_repeated.saturating_add(1);
            }
            Delivered::Stray => self.stats.mail_stray = self.stats.mail_stray.saturating_add(1),
        }
    }

    fn on_granted(&mut self, player: ClientId, number: ClaimNumber, lease: Lease) {
        if let Some(entry) = self.players.get_mut(player, number) {
            entry.lease = lease;
            self.events.push_back(NodeEvent::Claimed(entry.claim));
        }
    }

    fn on_revoked(&mut self, player: ClientId, number: ClaimNumber, reason: RevokeReason) {
        // Ignored if it concerns an earlier claim.
        let claim = self
            .players
            .get_mut(player, number)
            .map(|entry| entry.claim);
        if let Some(claim) = claim {
            self.end_session(player);
            self.players.remove(player);
            self.events.push_back(NodeEvent::ClaimLost(claim, reason));
        }
    }
}

impl fmt::Debug for HubLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubLink")
            .field("is_joined", &self.is_joined())
            .field("mails_waiting", &self.mails_waiting())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
