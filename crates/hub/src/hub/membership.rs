//! Admission of nodes, members of groups, claims of players, and presence updates for watchers.

use core::cmp::Ordering;
use core::ops::Bound;
use std::collections::{BTreeSet, VecDeque};

use wire::{ClientId, ConnectionId, NodeId, PeerIdentity, UnixTime};

use super::access::{Claimant, GrantFault};
use super::fanout::{GroupPending, group_answer, group_op};
use super::kv::exchange;
use super::link::{Key, Link, LinkState, Member, PresenceUpdate, Watch};
use super::shards::{self, About};
use super::table::{Claim, Generation, Pending, Reading};
use super::{DuplicateClaim, Hub, HubConfig, HubEvent, SWEEP_PAUSE};
use crate::field::{ClaimNumber, Epoch, Lease, MailSeq, Redacted, SenderSeq};
use crate::join_file::JoinFile;
use crate::record::{
    ClaimRequest, DownReason, GroupToHub, GroupToNode, Join, NodeInfo, PlayerFilter, PlayerIds,
    PresenceFilter, RevokeReason, ToNode, VERSION,
};
use crate::store::{Completed, GroupOutcome, Outcome, StoreOp};

impl Hub {
    pub(super) fn on_group(&mut self, id: ConnectionId, record: GroupToHub<'_>) {
        if !shards::accepts(self, id, &About::Group(&record.action)) {
            return;
        }
        let request = record.request;
        let (op, message) = group_op(record);
        let pending = GroupPending {
            link: id,
            request,
            message,
        };
        let may_store = self.ops.len() < self.config.ops_in_flight && !self.is_draining();
        if may_store && self.fanout.begin(&pending) {
            self.ops.push(StoreOp::Group(op), Pending::Group(pending));
        } else {
            self.send(id, &ToNode::Group(GroupToNode::busy(request)));
        }
    }

    pub(super) fn on_group_outcome(&mut self, pending: GroupPending, outcome: Outcome) {
        self.fanout.end(&pending);
        let (id, request) = (pending.link, pending.request);
        let Some(node) = self.links.get(&id).map(|link| link.node) else {
            return;
        };
        let record = match (outcome, pending.message) {
            (Ok(Completed::Group(GroupOutcome::Members { players, .. })), Some(body)) => {
                let body = Redacted(&body.0[..]);
                let fan_out = |players: PlayerIds| self.fan_out((id, node), players.list(), body);
                let outcome = players.map(fan_out).unwrap_or_default();
                GroupToNode::Sent { request, outcome }
            }
            (Ok(Completed::Group(outcome)), _) => group_answer(request, outcome),
            _ => GroupToNode::busy(request),
        };
        self.send(id, &ToNode::Group(record));
    }

    pub(super) fn on_claim(
        &mut self,
        id: ConnectionId,
        mut request: ClaimRequest<'_>,
        grant: Option<&[u8]>,
    ) {
        let (player, claim) = (request.player, request.claim);
        // A lease that this hub never granted would outrank the ones it grants.
        if request.lease > Lease::new(self.boot, self.leases) {
            request.lease = Lease::NONE;
        }
        let Some(node) = shards::node_for(self, id, player) else {
            return;
        };
        let granted = match self.check_claim(node, player, grant) {
            Ok(granted) => granted,
            Err(reason) => {
                self.send_revoked(id, (player, claim), reason);
                return;
            }
        };
        // Two nodes cannot hold leases of the same start while the earlier claim is still there.
        if let Some(current) = self.claims.get(player)
            && current.node != node
            && request.lease.boot() == self.boot
            && request.lease >= current.lease
        {
            request.lease = Lease::NONE;
        }
        if let Some(reason) = self.refusal(node, player, request.lease) {
            self.stats.stale = self.stats.stale.saturating_add(1);
            self.send_revoked(id, (player, claim), reason);
            return;
        }
        let lease = if request.lease == Lease::NONE {
            self.leases = self.leases.saturating_add(1);
            Lease::new(self.boot, self.leases)
        } else {
            request.lease
        };
        // Numbers that no mail has yet would hide or acknowledge later mail.
        let newest = self.upkeep.newest_mail;
        let acknowledged = request.acknowledged.min(newest);
        let new = Claim {
            node,
            generation: Generation::default(),
            link: Some(id),
            number: claim,
            lease,
            granted,
            meta: request.meta.to_bytes().0,
            given: request.delivered.min(newest).max(acknowledged),
            unacknowledged: VecDeque::new(),
            acknowledged,
            acknowledging: None,
            reading: Reading::Done,
            reports_empty: true,
        };
        if let Some(old) = self.claims.insert(player, new) {
            self.revoke(id, player, &old);
            if old.node != node {
                self.stats.players_taken = self.stats.players_taken.saturating_add(1);
                let (from, by) = (old.node, node);
                self.event(HubEvent::PlayerTaken { player, from, by });
            }
        }
        self.send(
            id,
            &ToNode::Granted {
                player,
                claim,
                lease,
            },
        );
        if acknowledged > MailSeq(0) {
            self.acknowledging.insert(player);
        }
        self.request_read(player);
        self.presence_changed(Key::Player(player));
    }

    /// Returns the end of the grant that proves the claim, if it needs one; or why it is rejected.
    fn check_claim(
        &mut self,
        node: NodeId,
        player: ClientId,
        grant: Option<&[u8]>,
    ) -> Result<Option<UnixTime>, RevokeReason> {
        let current = self.claims.get(player);
        let current = current.map(|claim| (claim.node == node, claim.granted));
        let claimant = Claimant {
            node,
            player,
            grant,
            held: current.and_then(|(is_own, granted)| granted.filter(|_| is_own)),
        };
        let times = (self.now, self.unix_now());
        let (config, join_file) = (&self.config.access, &self.join_file);
        let access = &mut self.upkeep.access;
        let checked = access.check_claim(config, join_file, times, claimant);
        let stats = &mut self.stats;
        let granted = checked.map_err(|fault| {
            let count = match fault {
                GrantFault::Missing => &mut stats.claims_ungranted,
                GrantFault::Foreign => &mut stats.claims_foreign,
                GrantFault::Expired => &mut stats.claims_expired,
                GrantFault::Forged => &mut stats.claims_forged,
            };
            *count = count.saturating_add(1);
            fault.reason()
        })?;
        // The player has moved on with a later grant: this one is used again.
        if let Some((false, held)) = current
            && granted < held
        {
            stats.claims_expired = stats.claims_expired.saturating_add(1);
            return Err(RevokeReason::Taken);
        }
        Ok(granted)
    }

    /// Returns why `node` cannot claim `player`; `None` if it can.
    fn refusal(&self, node: NodeId, player: ClientId, lease: Lease) -> Option<RevokeReason> {
        let current = self.claims.get(player);
        let is_own = current.is_some_and(|current| current.node == node);
        if !is_own && self.claims.count_of(node) >= self.config.node_players_max {
            return Some(RevokeReason::Busy);
        }
        let Some(current) = current else {
            let is_full = self.claims.len() >= self.config.players_max;
            return is_full.then_some(RevokeReason::Busy);
        };
        if is_own {
            // A node that reconnects names its lease. If that is older, another node has claimed in
            // between.
            return (lease != Lease::NONE && lease < current.lease).then_some(RevokeReason::Taken);
        }
        if lease != Lease::NONE {
            return (lease < current.lease).then_some(RevokeReason::Taken);
        }
        match self.config.duplicate_claim {
            DuplicateClaim::NewestWins => None,
            DuplicateClaim::Refuse => Some(RevokeReason::Held),
        }
    }

    /// Releases what a replaced claim held, and notifies its holder.
    fn revoke(&mut self, by: ConnectionId, player: ClientId, old: &Claim) {
        self.keep_final_ack(player, old);
        let Some(holder) = old.link else {
            return;
        };
        self.forget_unacknowledged(holder, player, old);
        if holder != by {
            self.send_revoked(holder, (player, old.number), RevokeReason::Taken);
        }
    }

    fn send_revoked(
        &mut self,
        id: ConnectionId,
        (player, claim): (ClientId, ClaimNumber),
        reason: RevokeReason,
    ) {
        let record = ToNode::Revoked {
            player,
            claim,
            reason,
        };
        self.send(id, &record);
    }

    pub(super) fn on_release(&mut self, id: ConnectionId, player: ClientId, number: ClaimNumber) {
        let claim = self.claims.get(player);
        if claim.is_some_and(|claim| claim.link == Some(id) && claim.number == number) {
            self.remove_claim(player);
        } else {
            self.stats.stale = self.stats.stale.saturating_add(1);
        }
    }

    pub(super) fn remove_claim(&mut self, player: ClientId) {
        let Some(claim) = self.claims.remove(player) else {
            return;
        };
        self.keep_final_ack(player, &claim);
        self.mail_ready.remove(&player);
        self.retry_reads.remove(&player);
        if let Some(holder) = claim.link {
            self.forget_unacknowledged(holder, player, &claim);
        }
        self.presence_changed(Key::Player(player));
    }

    /// Queues the last acknowledgement of a claim that ends; its completion is ignored.
    fn keep_final_ack(&mut self, player: ClientId, claim: &Claim) {
        let waits = self.acknowledging.remove(&player) | self.retry_acks.remove(&player);
        let stored = claim.acknowledging.unwrap_or_default();
        if claim.acknowledged <= stored || !(waits || stored > MailSeq(0)) {
            return;
        }
        let is_full = self.final_acks.len() >= self.config.players_max;
        match self.final_acks.get_mut(&player) {
            Some(upto) => *upto = claim.acknowledged.max(*upto),
            None if is_full => {
                self.stats.acks_dropped = self.stats.acks_dropped.saturating_add(1);
            }
            None => {
                self.final_acks.insert(player, claim.acknowledged);
            }
        }
    }

    fn forget_unacknowledged(&mut self, holder: ConnectionId, player: ClientId, claim: &Claim) {
        let freed = claim.unacknowledged_bytes();
        if let Some(member) = self.member_mut(holder) {
            member.unacknowledged = member.unacknowledged.saturating_sub(freed);
            member.waiting.remove(&player);
            member.waiting_for_outbox.remove(&player);
        }
        self.on_capacity_freed(holder);
    }

    pub(super) fn presence_changed(&mut self, key: Key) {
        let join = match key {
            Key::Node(node) => self.join_of(node).cloned(),
            Key::Player(_) => None,
        };
        for id in self.watchers.of(key) {
            if let Some(member) = self.links.get_mut(&id).and_then(|link| link.member_mut())
                && member.watch.note(key, join.as_ref())
            {
                self.ready.insert(id);
            }
        }
    }

    /// Queues the next presence update for a watcher, if its link has sent the last one.
    pub(super) fn queue_presence(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get(&id).filter(|link| link.has_presence_slot()) else {
            return;
        };
        let Some(member) = link.member() else {
            return;
        };
        let Some(update) = member.watch.next() else {
            return;
        };
        let reached = match update {
            PresenceUpdate::Reset => None,
            PresenceUpdate::After(last) => self.key_after(last, member.watch.filter()),
            PresenceUpdate::Changed(key) => Some(key),
        };
        let mut encoded = Vec::new();
        let mut shown = None;
        match (update, reached) {
            (PresenceUpdate::Reset, _) => ToNode::PresenceReset.encode(&mut encoded),
            (_, None) => ToNode::PresenceComplete.encode(&mut encoded),
            (_, Some(Key::Node(node))) => {
                let join = self.join_of(node);
                shown = join.filter(|join| member.watch.filter().nodes.includes(join));
                self.encode_node_presence(node, shown, &mut encoded);
            }
            (_, Some(Key::Player(player))) => self.encode_player_presence(player, &mut encoded),
        }
        let shown = shown.cloned();
        if let Some(link) = self.links.get_mut(&id) {
            if let Some(member) = link.member_mut() {
                member.watch.advance(update, reached);
                if let Some(Key::Node(node)) = reached {
                    member.watch.on_node_sent(node, shown.as_ref());
                }
            }
            link.push_presence(encoded.into());
        }
    }

    /// Replaces what a node watches; it gets a snapshot.
    pub(super) fn on_watch(&mut self, id: ConnectionId, filter: PresenceFilter) {
        let changes_max = self.config.watch_changes_max;
        if let Some(member) = self.links.get_mut(&id).and_then(Link::member_mut) {
            self.watchers.set(id, &filter);
            member.watch = Watch::of(filter, changes_max);
            self.ready.insert(id);
        }
    }

    fn join_of(&self, node: NodeId) -> Option<&Join> {
        let member = self.member(*self.joined.get(&node)?)?;
        Some(&member.join)
    }

    fn encode_node_presence(&self, node: NodeId, join: Option<&Join>, out: &mut Vec<u8>) {
        let member = self.joined.get(&node).and_then(|id| self.member(*id));
        let info = member.zip(join).map(|(member, join)| NodeInfo {
            instance: join.instance,
            epoch: member.epoch,
            role: join.role,
            services: join.services.clone(),
        });
        ToNode::PresenceNode { node, info }.encode(out);
    }

    fn encode_player_presence(&self, player: ClientId, out: &mut Vec<u8>) {
        let claim = self.claims.get(player);
        let claim = claim.filter(|claim| self.live_link(claim).is_some());
        let holder = claim.map(|claim| (claim.node, Redacted(&claim.meta[..])));
        ToNode::PresencePlayer { player, holder }.encode(out);
    }

    /// Returns the first key after `last` that `filter` includes: nodes first, then players.
    fn key_after(&self, last: Option<Key>, filter: &PresenceFilter) -> Option<Key> {
        let (first, last_player) = match last {
            None => (Some(Bound::Unbounded), None),
            Some(Key::Node(last)) => (Some(Bound::Excluded(last)), None),
            Some(Key::Player(last)) => (None, Some(last)),
        };
        let nodes = first.map(|first| self.joined.range((first, Bound::Unbounded)));
        let mut nodes = nodes.into_iter().flatten();
        let node = nodes.find(|(_, id)| {
            let member = self.member(**id);
            member.is_some_and(|member| filter.nodes.includes(&member.join))
        });
        if let Some((node, _)) = node {
            return Some(Key::Node(*node));
        }
        let player = match &filter.players {
            PlayerFilter::None => None,
            PlayerFilter::All => self.claims.after(last_player),
            PlayerFilter::Range(first, end) => {
                let before = first.0.checked_sub(1).map(ClientId);
                let player = self.claims.after(last_player.max(before));
                player.filter(|player| player <= end)
            }
            PlayerFilter::List(players) => {
                let from = players.partition_point(|player| Some(*player) <= last_player);
                let mut rest = players.iter().skip(from);
                rest.find(|player| self.claims.get(**player).is_some())
                    .copied()
            }
        };
        player.map(Key::Player)
    }
}

impl Hub {
    /// Replaces the limits, except those of the key-value store and who may claim a player. What exceeds
    /// a new limit stays; nothing is added to it.
    pub fn set_limits(&mut self, config: HubConfig) {
        self.config = HubConfig {
            kv: self.config.kv,
            access: self.config.access.clone(),
            ..config
        };
    }

    /// Replaces the join file; closes links without a grant.
    pub fn set_join_file(&mut self, join_file: JoinFile) {
        self.shards.set_join_file(&join_file);
        self.join_file = join_file;
        let links = self.links.iter();
        // Includes links that are joining: they are not checked again when the store has answered.
        let refused: Vec<_> = links
            .filter_map(|(id, link)| Some((*id, self.check_grant(link.node, link.join()?)?)))
            .collect();
        for (id, reason) in refused {
            self.close(id, reason);
        }
    }

    pub(super) fn on_opened(&mut self, id: ConnectionId, peer: &PeerIdentity) {
        let (node, refusal) = match peer {
            PeerIdentity::Node(node) if self.has_failed() => (*node, Some(DownReason::StoreFailed)),
            PeerIdentity::Node(node) if self.is_draining() => (*node, Some(DownReason::Draining)),
            PeerIdentity::Node(node) if !self.has_link_room(*node) => {
                (*node, Some(DownReason::Busy))
            }
            PeerIdentity::Node(node) => {
                let is_listed = self.join_file.grants_of(*node).next().is_some();
                (*node, (!is_listed).then_some(DownReason::NotListed))
            }
            PeerIdentity::Anonymous | _ => (NodeId([0; 32]), Some(DownReason::NotListed)),
        };
        let retry_ms = u32::try_from(self.config.retry_after.as_millis()).unwrap_or(u32::MAX);
        self.links.insert(id, Link::new(node, self.now, retry_ms));
        if let Some(reason) = refusal {
            self.close(id, reason);
        }
    }

    fn has_link_room(&self, node: NodeId) -> bool {
        let links = self.links.values();
        let own = links.filter(|link| link.node == node && !link.is_closing());
        self.links.len() < self.config.links_max && own.count() < self.config.node_links_max
    }

    pub(super) fn on_join(&mut self, id: ConnectionId, join: Join) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let node = link.node;
        let refusal = if !matches!(link.state, LinkState::Fresh) {
            Some(DownReason::Protocol)
        } else if join.version != VERSION {
            Some(DownReason::Version)
        } else if self.is_draining() {
            Some(DownReason::Draining)
        } else {
            let is_full = self.ops.len() >= self.config.ops_in_flight;
            let refusal = self.shards.refusal(id);
            let refusal = refusal.or_else(|| self.check_grant(node, &join));
            refusal.or_else(|| is_full.then_some(DownReason::Busy))
        };
        if let Some(reason) = refusal {
            self.close(id, reason);
        } else if let Some(link) = self.links.get_mut(&id) {
            let op = StoreOp::Join {
                node,
                instance: join.instance,
                epoch: join.epoch,
                role: join.role,
            };
            link.state = LinkState::Joining(join);
            self.ops.push(op, Pending::Join(id));
            self.kv.begin();
            exchange::flush(self);
        }
    }

    /// Completes the join of a link, now that its epoch is on disk.
    pub(super) fn on_epoch(&mut self, id: ConnectionId, outcome: &Outcome) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let LinkState::Joining(join) = &link.state else {
            return;
        };
        if *outcome == Ok(Completed::Fenced) {
            self.close(id, DownReason::Fenced);
            return;
        }
        let &Ok(Completed::Joined {
            epoch,
            boot,
            log,
            newest,
            ran,
            last_mail,
            mail_mark,
            count_mark,
        }) = outcome
        else {
            self.close(id, DownReason::Busy);
            return;
        };
        let (node, join) = (link.node, join.clone());
        self.boot = self.boot.max(boot);
        self.stats_router.set_log(log);
        self.upkeep.on_mail_number(last_mail);
        if let Some(read) = self.clock.set_floor(self.now, newest, ran) {
            self.event(HubEvent::ClockRejected {
                read,
                believed: None,
            });
        }
        if !self.supersede(node, epoch) {
            self.close(id, DownReason::Fenced);
            return;
        }
        self.begin(id, node, join, (epoch, mail_mark));
        self.send(
            id,
            &ToNode::Joined {
                epoch,
                boot,
                log,
                mail_mark,
                count_mark,
            },
        );
    }

    pub(super) fn on_leave(&mut self, id: ConnectionId) {
        let Some(node) = self.links.get(&id).map(|link| link.node) else {
            return;
        };
        self.detach(id);
        self.lease_ends.remove(&node);
        self.kv.on_left(node, self.now);
        exchange::flush(self);
        self.sweep(Sweep::free(node));
        if let Some(link) = self.links.get_mut(&id) {
            link.close(None);
            self.ready.insert(id);
        }
    }

    pub(super) fn leave(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let node = link.node;
        let Some(member) = link.member() else {
            return;
        };
        let (epoch, services) = (member.epoch, member.join.services.clone());
        let topics = member.topics.clone();
        link.state = LinkState::Closing;
        if self.joined.get(&node) == Some(&id) {
            self.joined.remove(&node);
        }
        for service in services {
            self.services.remove(&(service, node));
        }
        for topic in topics {
            self.topics.unsubscribe(id, topic);
        }
        self.watchers.remove(id);
        self.sweep(Sweep::unlink(node, id));
        let end = self.now + self.config.lease;
        self.lease_ends.insert(node, end);
        self.kv.on_closed(id, node, end);
        self.presence_changed(Key::Node(node));
        self.event(HubEvent::NodeDown { node, epoch });
    }

    /// Closes an earlier link of the same node; returns false if that belongs to a later run.
    fn supersede(&mut self, node: NodeId, epoch: Epoch) -> bool {
        let Some(&other) = self.joined.get(&node) else {
            return true;
        };
        let known = self.member(other).map_or(Epoch(0), |member| member.epoch);
        match known.cmp(&epoch) {
            Ordering::Less => self.close(other, DownReason::Fenced),
            Ordering::Equal => self.close(other, DownReason::Replaced),
            Ordering::Greater => return false,
        }
        true
    }

    fn begin(
        &mut self,
        id: ConnectionId,
        node: NodeId,
        join: Join,
        (epoch, settled): (Epoch, SenderSeq),
    ) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.last_received = self.now;
        for service in &join.services {
            self.services.insert((*service, node));
        }
        self.watchers
            .set(id, &PresenceFilter::from_bits(join.watch));
        let event = HubEvent::NodeUp {
            node,
            instance: join.instance,
            epoch,
            role: join.role,
        };
        link.state = LinkState::Joined(Box::new(Member {
            epoch,
            watch: Watch::new(join.watch, self.config.watch_changes_max),
            join,
            settled,
            topics: BTreeSet::new(),
            unacknowledged: 0,
            reading: 0,
            counting: false,
            waiting: BTreeSet::new(),
            waiting_for_outbox: BTreeSet::new(),
            last_woken: ClientId(0),
        }));
        self.joined.insert(node, id);
        self.ready.insert(id);
        self.kv.on_joined(node, epoch, self.now);
        exchange::flush(self);
        self.presence_changed(Key::Node(node));
        self.event(event);
    }

    /// Returns why `node` may not join like this; `None` if it may.
    fn check_grant(&self, node: NodeId, join: &Join) -> Option<DownReason> {
        if self.join_file.grants_of(node).next().is_none() {
            return Some(DownReason::NotListed);
        }
        let Some(grant) = self.join_file.grant(node, join.role) else {
            return Some(DownReason::RoleRefused);
        };
        let mut services = join.services.iter();
        let is_granted = services.all(|service| grant.services.contains(service));
        (!is_granted).then_some(DownReason::ServiceRefused)
    }
}

/// Work for all players of one node. A node may have many thousands, so it is done in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    node: NodeId,
    action: Action,
    after: Option<ClientId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The link has ended: its claims have no link any more.
    Unlink(ConnectionId),
    /// The lease has ended: claims without a link are removed.
    Free,
}

impl Sweep {
    const fn new(node: NodeId, action: Action) -> Self {
        Self {
            node,
            action,
            after: None,
        }
    }

    pub(super) const fn unlink(node: NodeId, link: ConnectionId) -> Self {
        Self::new(node, Action::Unlink(link))
    }

    pub(super) const fn free(node: NodeId) -> Self {
        Self::new(node, Action::Free)
    }
}

/// Players that one turn processes.
const PLAYERS_PER_TURN: usize = 2_048;

impl Hub {
    /// Queues a sweep, and runs it now if none ran in this turn. Sweeps of one node run in order.
    pub(super) fn sweep(&mut self, sweep: Sweep) {
        self.sweeps.push_back(sweep);
        if self.next_sweep <= self.now {
            self.run_sweeps();
        }
    }

    pub(super) fn run_sweeps(&mut self) {
        let mut left = PLAYERS_PER_TURN;
        while left > 0
            && let Some(sweep) = self.sweeps.pop_front()
        {
            let players = self.claims.of_node(sweep.node, sweep.after, left);
            left = left.saturating_sub(players.len().max(1));
            for player in &players {
                self.apply_sweep(*player, sweep.action);
            }
            if let (Some(last), 0) = (players.last(), left) {
                let after = Some(*last);
                self.sweeps.push_front(Sweep { after, ..sweep });
            }
        }
        self.next_sweep = self.now + SWEEP_PAUSE;
    }

    /// Returns the link of a claim, if it is still up.
    pub(super) fn live_link(&self, claim: &Claim) -> Option<ConnectionId> {
        let joined = self.joined.get(&claim.node).copied();
        claim.link.filter(|link| joined == Some(*link))
    }

    fn apply_sweep(&mut self, player: ClientId, action: Action) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        match action {
            Action::Unlink(link) if claim.link == Some(link) => {
                claim.link = None;
                self.mail_ready.remove(&player);
                self.retry_reads.remove(&player);
                self.presence_changed(Key::Player(player));
            }
            Action::Free if claim.link.is_none() => self.remove_claim(player),
            Action::Unlink(_) | Action::Free => {}
        }
    }
}
