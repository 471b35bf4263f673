//! The hub: composes links, calls, claims and the commands to its store.

mod admission;
mod call;
mod claim;
mod clock;
mod config;
mod event;
mod link;
mod machine;
mod mail;
mod memory;
mod op;
mod presence;
mod route;
mod sweep;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{ClientId, ConnectionId, Instant, NodeId, Outbound, UnixTime};

pub use config::{DuplicateClaim, HubConfig};
pub use event::{HubEvent, HubStats};

use crate::id::MailSeq;
use crate::join_file::JoinFile;
use crate::name::Name;
use crate::record::{CallError, DownReason, ToHub, ToNode};
use crate::store::{Completed, Outcome, StoreError, StoreOp};
use call::Calls;
use claim::Claims;
use clock::WallClock;
use link::{Link, LinkState, Next};
use op::{Ops, Pending};
use sweep::Sweep;
use watch::Watchers;

/// The message switch: nodes join it, and talk through it.
///
/// It speaks in records over streams whose ends have proved their keys, keeps nothing itself, and
/// asks for what shall be kept by [`Command::Store`](crate::Command::Store); a [`Store`](crate::Store) does it. It never
/// waits: a store that completes nothing holds up mail and joins, and no call, broadcast or
/// presence.
pub struct Hub {
    config: HubConfig,
    join_file: JoinFile,
    /// The latest time given.
    now: Instant,
    clock: WallClock,
    /// How often the hub has started, as the store says with the first join.
    boot: u32,
    /// Leases given since.
    leases: u32,
    links: BTreeMap<ConnectionId, Link>,
    /// The link of every node that has joined.
    joined: BTreeMap<NodeId, ConnectionId>,
    /// Who serves what.
    services: BTreeSet<(Name, NodeId)>,
    /// Links that may have something to write that their credit covers.
    ready: BTreeSet<ConnectionId>,
    /// The link that was written to last.
    turn: ConnectionId,
    calls: Calls,
    claims: Claims,
    watchers: Watchers,
    /// What is yet to be done for players of nodes that are gone.
    sweeps: VecDeque<Sweep>,
    next_sweep: Instant,
    /// Nodes whose link is away, and when their players are free.
    away: BTreeMap<NodeId, Instant>,
    ops: Ops,
    /// Players whose mail can be read as soon as there is room for a command.
    hungry: BTreeSet<ClientId>,
    /// The player that was read last.
    fed: ClientId,
    /// Players whose acknowledgement the store has yet to take.
    acknowledging: BTreeSet<ClientId>,
    /// Players whose mailbox the store could not read; read again with the next tick.
    unread: BTreeSet<ClientId>,
    /// The same, after the store had no room; tried again with the next tick.
    deferred: BTreeSet<ClientId>,
    /// Last acknowledgements of claims that are gone.
    parting: BTreeMap<ClientId, MailSeq>,
    /// Whether the store has been told the time, and has not answered.
    expiring: bool,
    events: VecDeque<HubEvent>,
    next_tick: Instant,
    next_expiry: Instant,
    /// Takes one record at a time.
    scratch: Vec<u8>,
    /// Whether the store has failed.
    health: Health,
    stats: HubStats,
}

/// Whether the store has failed: for good, and told to the application, though `events` be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Sound,
    /// It has, and that is yet to be told.
    Failing,
    Failed,
}

/// How finely silences and leases are measured.
const TICK: Duration = Duration::from_millis(250);

/// Pause between two parts of a sweep.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

/// How often the store is told the time.
const EXPIRY: Duration = Duration::from_secs(1);

impl Hub {
    /// Makes a hub that lets join whom `join_file` lists.
    ///
    /// It takes no seed: nothing in it is drawn at random.
    #[must_use]
    pub fn new(config: HubConfig, join_file: JoinFile, now: Instant) -> Self {
        Self {
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
            turn: ConnectionId(0),
            calls: Calls::default(),
            claims: Claims::default(),
            watchers: Watchers::default(),
            sweeps: VecDeque::new(),
            next_sweep: now,
            away: BTreeMap::new(),
            ops: Ops::default(),
            hungry: BTreeSet::new(),
            fed: ClientId(0),
            acknowledging: BTreeSet::new(),
            unread: BTreeSet::new(),
            deferred: BTreeSet::new(),
            parting: BTreeMap::new(),
            expiring: false,
            events: VecDeque::new(),
            next_tick: now + TICK,
            next_expiry: now + EXPIRY,
            scratch: Vec::new(),
            health: Health::Sound,
            stats: HubStats::default(),
        }
    }

    /// Returns what was counted.
    pub const fn stats(&self) -> HubStats {
        self.stats
    }

    /// Returns the node that holds `player` and whose link is up.
    pub fn holder(&self, player: ClientId) -> Option<NodeId> {
        let claim = self.claims.get(player)?;
        self.live_link(claim).map(|_| claim.node)
    }

    /// Returns the nodes that have joined, in the order of their ids.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.joined.keys().copied()
    }

    /// Returns how many players are claimed, those of nodes that are away included.
    pub fn player_count(&self) -> usize {
        self.claims.len()
    }

    fn on_record(&mut self, id: ConnectionId, record: ToHub<'_>) {
        let joined = self
            .links
            .get(&id)
            .is_some_and(|link| link.member().is_some());
        match record {
            ToHub::Join(join) => self.on_join(id, join),
            _ if !joined => self.close(id, DownReason::Protocol),
            ToHub::Heartbeat => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.answer_heartbeat();
                    self.ready.insert(id);
                }
            }
            ToHub::Leave => self.on_leave(id),
            ToHub::Call {
                call,
                timeout_ms,
                to,
                body,
            } => self.on_call(
                id,
                route::Asked {
                    call,
                    timeout_ms,
                    to,
                    body,
                },
            ),
            ToHub::Reply { request, result } => self.on_reply(id, request, result),
            ToHub::Mail(mail) => self.on_mail(id, &mail),
            ToHub::MailAck { player, upto } => self.on_mail_ack(id, player, upto),
            ToHub::Claim {
                player,
                claim,
                lease,
                delivered,
                acknowledged,
                meta,
            } => self.on_claim(
                id,
                player,
                presence::Claimed {
                    number: claim,
                    lease,
                    delivered,
                    acknowledged,
                    meta,
                },
            ),
            ToHub::Release { player, claim } => self.on_release(id, player, claim),
            ToHub::Broadcast { topic, body } => self.on_broadcast(id, topic, body),
            ToHub::Counts { batch, entries } => self.on_counts(id, batch, entries),
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
                self.expiring = false;
                let Ok(Completed::Expired { count }) = outcome else {
                    return;
                };
                self.stats.mail_expired = self.stats.mail_expired.saturating_add(count.into());
                if count > 0 {
                    self.expire();
                }
            }
            (Pending::Part, _) => {}
        }
    }

    fn has_failed(&self) -> bool {
        self.health != Health::Sound
    }

    /// The disk has failed: nothing is promised any more, and everybody is told.
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
        let over: Vec<_> = self
            .links
            .iter()
            .filter_map(|(id, link)| {
                let (limit, reason) = match link.state {
                    LinkState::Fresh => (self.config.join_timeout, DownReason::Silent),
                    LinkState::Joining(_) => (self.config.join_timeout, DownReason::Busy),
                    LinkState::Joined(_) => (self.config.silence_max, DownReason::Silent),
                    LinkState::Closing => return None,
                };
                (now.saturating_since(link.heard) >= limit).then_some((*id, reason))
            })
            .collect();
        for (id, reason) in over {
            self.close(id, reason);
        }
        let free: Vec<_> = self
            .away
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(node, _)| *node)
            .collect();
        for node in free {
            self.away.remove(&node);
            self.sweep(Sweep::free(node));
        }
        self.acknowledging.append(&mut self.deferred);
        self.hungry.append(&mut self.unread);
        if self.next_expiry <= now {
            self.next_expiry = now + EXPIRY;
            self.expire();
        }
    }

    fn expire(&mut self) {
        if let Some(now) = self.unix_now()
            && !self.has_failed()
            && !self.expiring
        {
            self.expiring = true;
            self.ops.push(StoreOp::Expire { now }, Pending::Expire);
        }
    }

    /// Ends a link; what hangs on it ends in the same turn.
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

    /// Takes a link out of everything but the table of links.
    fn detach(&mut self, id: ConnectionId) {
        while let Some(call) = self.calls.close_one_of(id) {
            self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
            if call.caller != id {
                let result = Err(CallError::NodeDown);
                self.send(
                    call.caller,
                    &ToNode::Reply {
                        call: call.call,
                        result,
                    },
                );
            }
        }
        for request in self.links.get(&id).into_iter().flat_map(Link::requests) {
            self.calls.on_written(request);
        }
        self.leave(id);
    }

    /// Sends what must not be dropped; a link that does not read it is ended.
    fn send(&mut self, id: ConnectionId, record: &ToNode<'_>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.push(record, &mut self.scratch);
        self.ready.insert(id);
        if link.outbox_bytes() > self.config.link_bytes_max.saturating_mul(2) {
            self.close(id, DownReason::Overrun);
        }
    }

    fn event(&mut self, event: HubEvent) {
        if self.events.len() < self.config.events_max {
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

    /// Writes the next record of `id`, or says why there is none.
    fn write(&mut self, id: ConnectionId, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.tell_presence(id);
        let link = self.links.get_mut(&id)?;
        let next = link.next();
        let close = link.is_closing();
        if let Next::Record(record, request) = &next {
            buf.extend_from_slice(record);
            if let Some(request) = request {
                self.calls.on_written(*request);
            }
        }
        match next {
            Next::Record(..) if !close => {
                self.on_room(id);
                return Some(Outbound {
                    connection: id,
                    close: false,
                });
            }
            Next::Record(..) => {}
            // A reason that the credit does not cover stays unsaid.
            Next::Empty | Next::Blocked if close => {}
            Next::Empty | Next::Blocked => {
                self.ready.remove(&id);
                return None;
            }
        }
        self.links.remove(&id);
        self.ready.remove(&id);
        Some(Outbound {
            connection: id,
            close: true,
        })
    }
}
