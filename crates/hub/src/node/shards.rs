//! A node with a link to each hub of its join file.

mod events;
mod links;
mod live;
mod presence;
mod sums;
mod topics;

use core::fmt;
use core::time::Duration;

use bytes::Bytes;
use wire::{
    ClientId, CloseCause, CommandId, ConnectionId, InstanceId, Instant, Outbound, PeerIdentity,
    Seed, StreamMachine,
};

use super::{
    ClaimId, DialError, HubAddress, HubLink, KvClient, NodeCommand, NodeConfig, NodeEvent,
    NodeStats, QuerySendError, SendError, Statistics, Ticket,
};
use crate::claim_grant::ClaimGrant;
use crate::field::{Addr, CallId, CountKey, LogId, MailSeq, Name, QueryId, SenderSeq};
use crate::join_file::JoinFile;
use crate::record::{CallError, PresenceFilter};
use crate::shard::Shard;
use events::LiveRun;
use links::Links;
use presence::{MergedPresence, filter_of};
use sums::{GroupSum, LiveSum, MailSum, Sums};
use topics::TopicTable;

/// A client of the hubs of a network. It joins each, and rejoins whenever a link closes.
///
/// Mail, acknowledgements, claims and counts survive a link: they are sent again over the next one
/// until the hub has stored them. Calls and broadcasts end with their link.
///
/// If the join file lists several hubs, each has a part of the players, see [`Shard`]. The node has a link
/// to every hub, and uses the one that a player, service or topic belongs to. If a hub is away, only what
/// belongs to it waits or fails. Limits of [`NodeConfig`] apply to each link, except where they are those
/// of all players. Keys, counts and statistics are on the first hub.
pub struct Node {
    links: Links,
    /// The link for broadcasts.
    home: u8,
    players_max: usize,
    multicasts_max: usize,
    topics: TopicTable,
    presence: MergedPresence,
    mails: Sums<MailSum>,
    live: Sums<LiveSum>,
    groups: Sums<GroupSum>,
    /// Outcomes of a link that are not reported yet.
    run: Option<LiveRun>,
}

/// Options and limits of a node with links to several hubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardsConfig {
    /// Number of the only hub to join, for tools that are about one hub; default none. What belongs to
    /// another hub does not work then.
    pub only: Option<u8>,
    /// Players that are watched at several hubs. Default 4,194,304, about 16 bytes each. Changes of further
    /// ones are dropped and counted.
    pub watched_players_max: usize,
    /// Multicasts to players of several hubs without an outcome. Default 16,384.
    pub multicasts_max: usize,
}

impl Default for ShardsConfig {
    fn default() -> Self {
        Self {
            only: None,
            watched_players_max: 1 << 22,
            multicasts_max: 16_384,
        }
    }
}

impl Node {
    /// Creates a node that dials the hubs at the addresses in `join_file` once it is polled.
    ///
    /// Draw `instance` at random once per run of the process. `seed` spreads the redial times of
    /// nodes. Returns `None` if the join file lists no hub, or a hub without an address. A node of
    /// [statistics](NodeConfig::hub_role) dials the first hub of these that has one.
    #[must_use]
    pub fn new(
        config: NodeConfig,
        join_file: &JoinFile,
        instance: InstanceId,
        seed: Seed,
        now: Instant,
    ) -> Option<Self> {
        let hubs: Vec<_> = if config.hub_role == crate::Role::Hub {
            join_file.hubs_to_dial(config.shards.only)?
        } else {
            let mut grants = join_file.with_role(config.hub_role);
            let grant = grants.find(|grant| !grant.addresses.is_empty())?;
            vec![(join_file.shard_of(grant.node), grant)]
        };
        let count = u8::try_from(hubs.len()).ok()?;
        let presence = config.presence.clone();
        let filter = presence.unwrap_or_else(|| PresenceFilter::from_bits(config.watch_bits()));
        let shards = config.shards;
        let players_max = config.players_max;
        let mut links = hubs.into_iter().map(move |(shard, grant)| {
            let hub = HubAddress {
                node: grant.node,
                addresses: grant.addresses.clone(),
                view: join_file.view_of(shard),
            };
            let config = config_of(&config, shard.index(), count);
            HubLink::new(config, hub, instance, seed, now)
        });
        let first = links.next()?;
        Some(Self {
            links: Links::new(first, links.collect()),
            home: Shard::of_instance(instance, count),
            players_max,
            multicasts_max: shards.multicasts_max,
            topics: TopicTable::default(),
            presence: MergedPresence::new(count, &filter, shards.watched_players_max),
            mails: Sums::default(),
            live: Sums::default(),
            groups: Sums::default(),
            run: None,
        })
    }

    /// Calls `to`. [`NodeEvent::Reply`] follows within `timeout`, with the reply or an error.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` if no link is up, too many calls are open, or it exceeds 64
    /// KiB.
    pub fn call(
        &mut self,
        now: Instant,
        to: Addr,
        body: Bytes,
        timeout: Duration,
    ) -> Result<CallId, SendError> {
        let index = Shard::of_address(to, self.links.count());
        // Every hub reaches every node; only a player belongs to one.
        let index = match to {
            Addr::Player(_) => index,
            Addr::Node(_) | Addr::Service(_) | Addr::Topic(_) | Addr::Group(_) => {
                self.links.index_up(index)
            }
        };
        let call = self.links.get(index).call(now, to, body, timeout)?;
        Ok(CallId(self.links.to_unique(index, call.0)))
    }

    /// Cancels a call: its reply is counted and dropped, and the callee gets
    /// [`NodeEvent::Cancelled`] if it has the request. Returns whether the call was open.
    pub fn cancel(&mut self, now: Instant, call: CallId) -> bool {
        let Some((index, call)) = self.links.split_unique(call.0) else {
            return false;
        };
        self.links.get(index).cancel(now, CallId(call))
    }

    /// Replies to a request. If its link has closed, the reply is counted and dropped.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns the body if the outbox is full, or it exceeds 64 KiB.
    pub fn reply(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<Bytes, CallError>,
    ) -> Result<(), SendError> {
        let index = self.links.index_with(ticket.link).unwrap_or_default();
        self.links.get(index).reply(now, ticket, result)
    }

    /// Sends `body` to the mailbox of `player`, which keeps it for `ttl`; if that is zero, for the
    /// hub's own limit.
    ///
    /// It is on the hub's disk once [`NodeEvent::MailStored`] names the returned number. Mails from
    /// one node to one player are delivered in the order sent. It works while no link is up, too.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` if too many mails wait, or it exceeds 64 KiB.
    pub fn mail(
        &mut self,
        now: Instant,
        player: ClientId,
        body: Bytes,
        ttl: Duration,
    ) -> Result<SenderSeq, SendError> {
        let index = self.links.index_of(player);
        let seq = self.links.get(index).mail(now, player, body, ttl)?;
        Ok(SenderSeq(self.links.to_unique(index, seq.0)))
    }

    /// Sends `body` to all other nodes that have joined, at most once; it is not stored.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` if no link is up, the outbox is full, or it exceeds 64 KiB.
    pub fn broadcast(&mut self, now: Instant, topic: Name, body: Bytes) -> Result<(), SendError> {
        let index = self.links.index_up(self.home);
        self.links.get(index).broadcast(now, topic, body)
    }

    /// Claims `player` for this node, and renews the claim until it is released or lost. It
    /// replaces an earlier claim of the player by this node: one claim is one session of the
    /// client.
    ///
    /// `delivered` is the last mail that the player has processed; mail up to it is not delivered
    /// again. The client persists it together with the [`LogId`] from [`log_of`](Self::log_of); if the
    /// log has changed, pass 0. `meta` is a note for watchers, at most 256 bytes.
    /// [`NodeEvent::Claimed`] or [`NodeEvent::ClaimLost`] follows.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `meta` if it is too long, or too many players are claimed.
    pub fn claim(
        &mut self,
        now: Instant,
        player: ClientId,
        delivered: MailSeq,
        meta: Bytes,
    ) -> Result<ClaimId, SendError> {
        let claimed = self.links.iter().map(|link| link.players.len());
        if claimed.sum::<usize>() >= self.players_max {
            return Err(SendError::Full(meta.into()));
        }
        let index = self.links.index_of(player);
        let claim = self.links.get(index).claim(now, player, delivered, meta);
        self.settle_topics(index);
        claim
    }

    /// Proves a claim by a grant; a hub with [`ClaimPolicy::Granted`](crate::ClaimPolicy::Granted) needs
    /// one. Call it right after [`claim`](Self::claim), before the node is polled. The grant is sent
    /// again after each reconnect, so it should last as long as the session; a later one may be given
    /// meanwhile. Returns whether the claim is still held.
    pub fn prove(&mut self, now: Instant, claim: ClaimId, grant: ClaimGrant) -> bool {
        self.links.of_player(claim.player).prove(now, claim, grant)
    }

    /// Releases a claim. Returns whether it was still held.
    pub fn release(&mut self, now: Instant, claim: ClaimId) -> bool {
        let index = self.links.index_of(claim.player);
        let was_held = self.links.get(index).release(now, claim);
        self.settle_topics(index);
        was_held
    }

    /// Acknowledges all mail up to `upto`. Returns whether the claim is still held.
    pub fn acknowledge(&mut self, now: Instant, claim: ClaimId, upto: MailSeq) -> bool {
        let link = self.links.of_player(claim.player);
        link.acknowledge(now, claim, upto)
    }

    /// Returns the log of the hub that has the mailbox of `player`; `None` before that hub was joined. The
    /// numbers of its mail are void if the log has changed.
    pub fn log_of(&self, player: ClientId) -> Option<LogId> {
        let index = self.links.index_of(player);
        self.links.iter().nth(index.into())?.log
    }

    /// Adds `increase` to `key`. Never blocks; if there is no room, the increase is dropped and
    /// counted.
    pub fn count(&mut self, key: CountKey, increase: u64) {
        self.links.first.count(key, increase);
    }

    /// Returns the statistics of this node, to record samples.
    pub const fn statistics(&mut self) -> &mut Statistics {
        self.links.first.statistics()
    }

    /// Sends a query of statistics. [`NodeEvent::StatsAnswer`] follows.
    ///
    /// # Errors
    ///
    /// [`QuerySendError`] if no link is up, too many queries are open, or the text is too long.
    pub fn query_statistics(
        &mut self,
        now: Instant,
        text: &str,
    ) -> Result<QueryId, QuerySendError> {
        self.links.first.query_statistics(now, text)
    }

    /// Leaves the hub: this node's players are released at once, and it does not rejoin. Mail and
    /// counts that wait are lost; see [`mails_waiting`](Self::mails_waiting) and
    /// [`is_counted`](Self::is_counted).
    pub fn leave(&mut self, now: Instant) {
        for link in self.links.iter_mut() {
            link.leave(now);
        }
    }

    /// Watches the presence that `filter` includes, from now on; a snapshot follows
    /// [`NodeEvent::PresenceReset`]. Returns false, and changes nothing, if the lists of the filter exceed
    /// their limits or are not in order.
    pub fn watch_presence(&mut self, now: Instant, filter: PresenceFilter) -> bool {
        if !self.links.are_several() {
            return self.links.first.watch_presence(now, filter);
        }
        if !filter.is_valid() {
            return false;
        }
        for (index, link) in (0_u8..).zip(self.links.iter_mut()) {
            link.watch_presence(now, filter_of(index, &filter));
        }
        self.presence.set_filter(&filter);
        true
    }

    /// Returns the key-value store of the first hub.
    pub const fn kv(&mut self) -> &mut KvClient {
        self.links.first.kv()
    }

    /// Returns the number of hubs that it has links to.
    pub fn hub_count(&self) -> u8 {
        self.links.count()
    }

    /// Returns the counters.
    pub fn stats(&self) -> NodeStats {
        let links = self.links.iter().map(HubLink::stats);
        let mut stats = links.fold(NodeStats::default(), NodeStats::plus);
        stats.presence_dropped = self.presence.dropped();
        stats
    }

    /// Returns how many mails are not confirmed as stored.
    pub fn mails_waiting(&self) -> usize {
        self.links.iter().map(HubLink::mails_waiting).sum()
    }

    /// Returns whether all counts are confirmed as stored.
    pub fn is_counted(&self) -> bool {
        self.links.first.is_counted()
    }

    /// Returns whether this node has joined the first hub and that link is up.
    pub const fn is_joined(&self) -> bool {
        self.links.first.is_joined()
    }

    /// Returns whether the link to the hub of `player` is up.
    pub fn is_joined_for(&self, player: ClientId) -> bool {
        let index = self.links.index_of(player);
        let link = self.links.iter().nth(index.into());
        link.is_some_and(HubLink::is_joined)
    }

    /// Returns about how many bytes the node holds. It visits every player and event: call it for
    /// reports only.
    pub fn memory_bytes(&self) -> usize {
        let links = self.links.iter().map(HubLink::memory_bytes);
        let sums = [
            self.topics.memory_bytes(),
            self.presence.memory_bytes(),
            self.mails.memory_bytes(),
            self.live.memory_bytes(),
            self.groups.memory_bytes(),
        ];
        links.chain(sums).fold(0, usize::saturating_add)
    }
}

/// Returns the configuration of the link to the hub `index`.
fn config_of(config: &NodeConfig, index: u8, count: u8) -> NodeConfig {
    let mut config = config.clone();
    if count > 1 {
        config.watch_nodes &= index == 0;
        let presence = config.presence.as_ref();
        config.presence = presence.map(|filter| filter_of(index, filter));
        let shares = usize::from(count);
        config.live_bytes_max = config
            .live_bytes_max
            .checked_div(shares)
            .unwrap_or_default();
    }
    config
}

impl StreamMachine for Node {
    type Event = NodeEvent;
    type Command = NodeCommand;

    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity) {
        let is_dialled = |link: &HubLink| *peer == PeerIdentity::Node(link.hub);
        let index = self.links.iter().position(is_dialled);
        let index = index.and_then(|index| u8::try_from(index).ok());
        // The first link refuses a peer that is no hub.
        let link = self.links.get(index.unwrap_or_default());
        link.handle_opened(now, connection, peer);
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        if let Some(index) = self.links.index_with(connection) {
            let link = self.links.get(index);
            link.handle_frame(now, connection, record);
            self.settle_topics(index);
        }
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        if let Some(index) = self.links.index_with(connection) {
            let link = self.links.get(index);
            link.handle_credit(now, connection, bytes);
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, cause: CloseCause) {
        if let Some(index) = self.links.index_with(connection) {
            let link = self.links.get(index);
            link.handle_closed(now, connection, cause);
        }
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        let mut links = self.links.iter_mut();
        links.find_map(|link| link.poll_outbound(now, buf))
    }

    fn handle_timeout(&mut self, now: Instant) {
        for link in self.links.iter_mut() {
            link.handle_timeout(now);
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Result<(), DialError>) {
        // One that no link has issued is counted by the first.
        let (index, id) = self.links.split_unique(id.0).unwrap_or((0, id.0));
        let link = self.links.get(index);
        link.handle_completed(now, CommandId(id), outcome);
    }

    fn poll_command(&mut self) -> Option<(CommandId, NodeCommand)> {
        let mut links = (0_u8..).zip(self.links.iter_mut());
        let next = links.find_map(|(index, link)| Some((index, link.poll_command()?)));
        drop(links);
        let (index, (id, command)) = next?;
        Some((CommandId(self.links.to_unique(index, id.0)), command))
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        if self.links.are_several() {
            self.next_event()
        } else {
            self.links.first.poll_event()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.links.iter().filter_map(HubLink::poll_timeout).min()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("hub_count", &self.hub_count())
            .field("is_joined", &self.is_joined())
            .field("mails_waiting", &self.mails_waiting())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
