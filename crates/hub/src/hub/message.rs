//! Messages: calls and broadcasts between links, mail through the store, counts.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::{ClientId, ConnectionId, NodeId};

use super::fanout::Submission;
use super::link::Link;
use super::shards::{self, About};
use super::table::{Claim, Generation, MailRead, OpenCall, Pending, Reading};
use super::{Hub, encode, round_robin, upkeep};
use crate::field::{
    Addr, BatchSeq, CallId, CountKey, LiveSeq, MailSeq, Name, Redacted, RequestId, SenderSeq,
};
use crate::record::{
    CallError, CallRequest, Delivery, DownReason, LiveOutcome, LiveToHub, LiveToNode, MailVerdict,
    PartRefusal, PlayerList, Request, TOPICS_MAX, ToNode,
};
use crate::store::{Completed, Mail, Outcome, Settled, StoreOp};

/// Size of one mailbox read, bytes in the log.
const READ_BYTES_MAX: usize = 64 * 1_024;

/// Players that are resumed at most when a link has room again.
const WAKES_MAX: usize = 16;

/// Removes the first player after `last`, or else the first.
fn take_round_robin(players: &mut BTreeSet<ClientId>, last: ClientId) -> Option<ClientId> {
    let next = round_robin(players, last)?;
    players.take(&next)
}

impl Hub {
    pub(super) fn on_call(&mut self, caller: ConnectionId, request: CallRequest<'_>) {
        if self.calls.is_open(caller, request.call) {
            self.close(caller, DownReason::Protocol);
            return;
        }
        match self.forward_call(caller, request) {
            Ok(()) => self.stats.calls = self.stats.calls.saturating_add(1),
            Err(error) => {
                self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
                self.send_reply(caller, request.call, Err(error));
            }
        }
    }

    pub(super) fn fail_call(&mut self, call: OpenCall, error: CallError) {
        if call.is_cancelled {
            return;
        }
        self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
        self.send_reply(call.caller, call.call, Err(error));
    }

    fn send_reply(
        &mut self,
        caller: ConnectionId,
        call: CallId,
        result: Result<Redacted<&[u8]>, CallError>,
    ) {
        self.send(caller, &ToNode::Reply { call, result });
    }

    fn forward_call(
        &mut self,
        caller: ConnectionId,
        request: CallRequest<'_>,
    ) -> Result<(), CallError> {
        if self.is_draining() {
            return Err(CallError::HubDown);
        }
        let callee = self.route(request.to)?;
        if request.timeout_ms == 0 {
            return Err(CallError::TimedOut);
        }
        let link = self.links.get(&caller).ok_or(CallError::NodeDown)?;
        let member = link.member().ok_or(CallError::NodeDown)?;
        let (from, instance) = (link.node, member.join.instance);
        let load_of_caller = self.calls.load_of_caller(from);
        let bytes = load_of_caller.bytes.saturating_add(request.body.len());
        // At most half of the callee's outbox limit, so that one caller leaves room for others.
        let is_too_much = load_of_caller.count > 0 && bytes > self.config.link_bytes_max / 2;
        if load_of_caller.count >= self.config.calls_max || is_too_much {
            return Err(CallError::Busy);
        }
        let target = self.links.get_mut(&callee).ok_or(CallError::NodeDown)?;
        if target.outbox_bytes().saturating_add(request.body.len()) > self.config.link_bytes_max {
            return Err(CallError::Busy);
        }
        let timeout =
            Duration::from_millis(request.timeout_ms.into()).min(self.config.call_timeout_max);
        let number = self.calls.open(OpenCall {
            caller,
            from,
            call: request.call,
            callee,
            len: request.body.len(),
            deadline: self.now + timeout,
            is_cancelled: false,
        });
        let record = ToNode::Request(Request {
            request: number,
            from,
            instance,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            to: request.to,
            body: request.body,
        });
        target.push(encode(&record, &mut self.scratch), Some(number));
        self.ready.insert(callee);
        Ok(())
    }

    pub(super) fn on_reply(
        &mut self,
        callee: ConnectionId,
        request: RequestId,
        result: Result<Redacted<&[u8]>, CallError>,
    ) {
        let Some(call) = self.calls.answer(request, callee) else {
            self.stats.replies_unknown = self.stats.replies_unknown.saturating_add(1);
            return;
        };
        if call.is_cancelled {
            return;
        }
        let waiting = self.links.get(&call.caller).map_or(0, Link::outbox_bytes);
        // If there is no room for the body, the caller gets a short error instead.
        let result = result.and_then(|body| {
            let is_full = waiting.saturating_add(body.len()) > self.config.link_bytes_max;
            (!is_full).then_some(body).ok_or(CallError::Busy)
        });
        self.send_reply(call.caller, call.call, result);
    }

    pub(super) fn on_broadcast(&mut self, from: ConnectionId, topic: Name, body: Redacted<&[u8]>) {
        let Some(node) = self.links.get(&from).map(|link| link.node) else {
            return;
        };
        let record = ToNode::Broadcast {
            from: node,
            topic,
            body,
        };
        let record = encode(&record, &mut self.scratch);
        for id in self.joined.values().filter(|id| **id != from) {
            let Some(link) = self.links.get_mut(id) else {
                continue;
            };
            let count = if link.push_lossy(record.clone(), self.config.link_bytes_max / 2) {
                self.ready.insert(*id);
                &mut self.stats.broadcasts
            } else {
                &mut self.stats.broadcasts_dropped
            };
            *count = count.saturating_add(1);
        }
    }

    /// Cancels a call. If the callee has the request, it gets a notification.
    pub(super) fn on_cancel(&mut self, caller: ConnectionId, call: CallId) {
        // If the call is not open, it has been answered.
        if let Some((request, callee)) = self.calls.cancel(caller, call) {
            self.stats.calls_cancelled = self.stats.calls_cancelled.saturating_add(1);
            if let Some(callee) = callee {
                self.send(callee, &ToNode::Cancelled { request });
            }
        }
    }

    pub(super) fn on_live(&mut self, id: ConnectionId, record: LiveToHub<'_>) {
        match record {
            LiveToHub::Forward {
                live,
                players,
                body,
            } => self.on_forward(id, live, players, body),
            LiveToHub::Cast { live, topic, body } => self.on_cast(id, (live, topic), body),
            LiveToHub::Kick {
                live,
                player,
                reason,
            } => self.on_kick(id, (live, player), reason),
            LiveToHub::Subscribe(topic) => self.on_subscribe(id, topic),
            LiveToHub::Unsubscribe(topic) => self.on_unsubscribe(id, topic),
        }
    }

    fn on_forward(
        &mut self,
        from: ConnectionId,
        live: LiveSeq,
        players: PlayerList<'_>,
        body: Redacted<&[u8]>,
    ) {
        let Some(node) = self.links.get(&from).map(|link| link.node) else {
            return;
        };
        let outcome = self.fan_out((from, node), players, body);
        self.send_outcome(from, live, outcome);
    }

    /// Sends a live message to each of `players`; one record a node, however many of its players are
    /// listed.
    pub(super) fn fan_out(
        &mut self,
        (from, node): (ConnectionId, NodeId),
        players: PlayerList<'_>,
        body: Redacted<&[u8]>,
    ) -> LiveOutcome {
        let mut outcome = LiveOutcome::default();
        let receivers_max = self.config.live_receivers_max;
        if !self.fanout.charge(from, players.len(), receivers_max) {
            outcome.busy = u16::try_from(players.len()).unwrap_or(u16::MAX);
            let count = u64::from(outcome.busy);
            self.stats.forwards_dropped = self.stats.forwards_dropped.saturating_add(count);
            return outcome;
        }
        let mut receivers: BTreeMap<ConnectionId, Vec<ClientId>> = BTreeMap::new();
        for player in players.iter() {
            let claim = self.claims.get(player);
            match claim.and_then(|claim| self.live_link(claim)) {
                Some(link) => receivers.entry(link).or_default().push(player),
                None => outcome.offline = outcome.offline.saturating_add(1),
            }
        }
        let mut ids = Vec::new();
        for (link, players) in receivers {
            let Some(players) = PlayerList::encode_into(&players, &mut ids) else {
                continue;
            };
            let count = u16::try_from(players.len()).unwrap_or(u16::MAX);
            let record = ToNode::Live(LiveToNode::Forward {
                from: node,
                players,
                body,
            });
            let sum = if self.send_live(link, &record) {
                &mut outcome.reached
            } else {
                &mut outcome.busy
            };
            *sum = sum.saturating_add(count);
        }
        let stats = &mut self.stats;
        for (sum, count) in [
            (&mut stats.forwards, outcome.reached),
            (&mut stats.forwards_offline, outcome.offline),
            (&mut stats.forwards_dropped, outcome.busy),
        ] {
            *sum = sum.saturating_add(count.into());
        }
        outcome
    }

    /// Sends a live record; returns false if the outbox has no room for it.
    fn send_live(&mut self, id: ConnectionId, record: &ToNode<'_>) -> bool {
        let Some(link) = self.links.get_mut(&id) else {
            return false;
        };
        let record = encode(record, &mut self.scratch);
        // At most half of the outbox limit, so that requests and replies have room.
        if link.outbox_bytes().saturating_add(record.len()) > self.config.link_bytes_max / 2 {
            return false;
        }
        link.push(record, None);
        self.ready.insert(id);
        true
    }

    fn send_outcome(&mut self, id: ConnectionId, live: LiveSeq, outcome: LiveOutcome) {
        if let Some(link) = self.links.get_mut(&id) {
            link.push_outcome(live, outcome);
            self.ready.insert(id);
            if link.outbox_bytes() > self.config.link_bytes_max.saturating_mul(2) {
                self.close(id, DownReason::Overrun);
            }
        }
    }

    fn on_subscribe(&mut self, id: ConnectionId, topic: Name) {
        let Some(member) = self.member_mut(id) else {
            return;
        };
        member.topics.insert(topic);
        // A node limits itself to as many.
        if member.topics.len() > TOPICS_MAX {
            self.close(id, DownReason::Protocol);
            return;
        }
        self.topics.subscribe(id, topic);
    }

    fn on_unsubscribe(&mut self, id: ConnectionId, topic: Name) {
        if let Some(member) = self.member_mut(id) {
            member.topics.remove(&topic);
        }
        self.topics.unsubscribe(id, topic);
    }

    /// Forwards a message to the other nodes that subscribe to its topic.
    fn on_cast(
        &mut self,
        from: ConnectionId,
        (live, topic): (LiveSeq, Name),
        body: Redacted<&[u8]>,
    ) {
        let Some(node) = self.links.get(&from).map(|link| link.node) else {
            return;
        };
        let record = ToNode::Live(LiveToNode::Cast {
            from: node,
            topic,
            body,
        });
        let record = encode(&record, &mut self.scratch);
        let mut outcome = LiveOutcome::default();
        for id in self.topics.subscribers(topic).filter(|id| *id != from) {
            let Some(link) = self.links.get_mut(&id) else {
                continue;
            };
            let sum = if link.push_lossy(record.clone(), self.config.link_bytes_max / 2) {
                self.ready.insert(id);
                &mut outcome.reached
            } else {
                &mut outcome.busy
            };
            *sum = sum.saturating_add(1);
        }
        let stats = &mut self.stats;
        stats.casts = stats.casts.saturating_add(outcome.reached.into());
        stats.casts_dropped = stats.casts_dropped.saturating_add(outcome.busy.into());
        self.send_outcome(from, live, outcome);
    }

    fn on_kick(
        &mut self,
        from: ConnectionId,
        (live, player): (LiveSeq, ClientId),
        reason: Redacted<&[u8]>,
    ) {
        let Some(link) = self.links.get(&from) else {
            return;
        };
        let (node, role) = (link.node, link.member().map(|member| member.join.role));
        let mut outcome = LiveOutcome::default();
        let holder = self.claims.get(player);
        let holder = holder.and_then(|claim| Some((self.live_link(claim)?, claim.number)));
        if role.is_none_or(|role| !self.config.kick_roles.contains(&role)) {
            outcome.refused = 1;
            self.stats.kicks_refused = self.stats.kicks_refused.saturating_add(1);
        } else if let Some((holder, claim)) = holder {
            let record = ToNode::Live(LiveToNode::Kick {
                player,
                claim,
                from: node,
                reason,
            });
            if self.send_live(holder, &record) {
                outcome.reached = 1;
                self.stats.kicks = self.stats.kicks.saturating_add(1);
            } else {
                outcome.busy = 1;
            }
        } else {
            outcome.offline = 1;
        }
        self.send_outcome(from, live, outcome);
    }

    /// Returns the link of the node that answers at `to`.
    fn route(&self, to: Addr) -> Result<ConnectionId, CallError> {
        match to {
            Addr::Player(player) => {
                let claim = self.claims.get(player).ok_or(CallError::Unreachable)?;
                self.live_link(claim).ok_or(CallError::NodeDown)
            }
            Addr::Node(node) => {
                let link = self.joined.get(&node).copied();
                link.ok_or(CallError::Unreachable)
            }
            Addr::Service(service) => {
                let first = (service, NodeId([0; 32]));
                let last = (service, NodeId([u8::MAX; 32]));
                // The one with the fewest open calls; if equal, the lowest id.
                self.services
                    .range(first..=last)
                    .filter_map(|(_, node)| self.joined.get(node).copied())
                    .min_by_key(|id| self.calls.load(*id))
                    .ok_or(CallError::Unreachable)
            }
            Addr::Topic(_) | Addr::Group(_) => Err(CallError::Unreachable),
        }
    }

    pub(super) fn on_mail(&mut self, id: ConnectionId, mail: Submission<'_>) {
        if !shards::accepts(self, id, &About::Mail(&mail.to)) {
            return;
        }
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let (Some(member), node) = (link.member(), link.node) else {
            return;
        };
        let run = (node, member.epoch);
        // One link may use as much as is left for all others: however many flood, some room
        // remains.
        let own_bytes = self.ops.mail_bytes_of(id);
        let bytes = own_bytes.saturating_add(self.ops.mail_bytes());
        let has_room =
            self.ops.len() < self.config.ops_in_flight && bytes < self.config.store_bytes_in_flight;
        let sender = (node, member.join.role);
        let rate = self.config.access.rates.of(sender.1);
        let access = &mut self.upkeep.access;
        let is_paced = has_room && access.admit_mail(self.now, sender, rate, mail.body.len());
        if has_room && !is_paced {
            self.stats.mail_over_rate = self.stats.mail_over_rate.saturating_add(1);
        }
        // All mail expires, so none is accepted without a wall clock.
        let may_store = is_paced && !self.is_draining();
        let Some(now) = self.unix_now().filter(|_| may_store) else {
            self.stats.mail_busy = self.stats.mail_busy.saturating_add(1);
            self.settle(id, mail.seq, MailVerdict::Busy);
            return;
        };
        let ttl = match mail.ttl_s {
            0 => self.config.mail_ttl,
            secs => Duration::from_secs(secs.into()).min(self.config.mail_ttl),
        };
        self.ops.stage(id, mail.into_mail(run, now + ttl));
    }

    /// Reports verdicts to the senders, and reads the mailboxes of players that are claimed.
    pub(super) fn on_appended(&mut self, settled: &[Settled]) {
        for one in settled {
            if let Some(id) = self.joined.get(&one.node).copied()
                && self
                    .member(id)
                    .is_some_and(|member| member.epoch == one.epoch)
            {
                self.fanout.count(one, &mut self.stats);
                match &one.part {
                    Some(part) => self.settle_part(id, one.seq, part),
                    None => self.settle(id, one.seq, one.verdict),
                }
            }
            if one.verdict != MailVerdict::Stored {
                continue;
            }
            for player in one.to.players() {
                // A node that mails to its own player may wait until that is delivered.
                if let Some(claim) = self.claims.get_mut(player)
                    && claim.node == one.node
                {
                    claim.reports_empty = true;
                }
                self.request_read(player);
            }
        }
    }

    /// Issues reads and acknowledgements, up to half of `ops_in_flight`; the other half is for
    /// joins and new mail.
    pub(super) fn issue_store_ops(&mut self) {
        while self.ops.len() < self.config.ops_in_flight.div_ceil(2) && !self.has_failed() {
            if let Some(player) = self.acknowledging.pop_first() {
                self.acknowledge(player);
                continue;
            }
            if let Some((player, upto)) = self.final_acks.pop_first() {
                self.ops.push(StoreOp::Ack { player, upto }, Pending::Part);
                continue;
            }
            // Mail that is delivered during a shutdown would be delivered again.
            if self.is_draining() {
                return;
            }
            let Some(player) = take_round_robin(&mut self.mail_ready, self.last_read) else {
                return;
            };
            self.last_read = player;
            self.read(player);
        }
    }

    /// Marks that the mailbox of `player` may hold mail that its node does not have.
    pub(super) fn request_read(&mut self, player: ClientId) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        claim.reading = match claim.reading {
            Reading::Done | Reading::Due => Reading::Due,
            Reading::InFlight | Reading::InFlightAndDue => Reading::InFlightAndDue,
        };
        if claim.reading == Reading::Due && claim.link.is_some() {
            self.mail_ready.insert(player);
        }
    }

    fn read(&mut self, player: ClientId) {
        let now = self.clock.expiry_now(self.now).unwrap_or_default();
        let wanted = |claim: &&mut Claim| claim.reading == Reading::Due;
        let Some(claim) = self.claims.get_mut(player).filter(wanted) else {
            return;
        };
        let Some(id) = claim.link else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let outbox = link.outbox_bytes();
        let Some(member) = link.member_mut() else {
            return;
        };
        let is_silent = !claim.unacknowledged.is_empty();
        let own_max = self.config.unacknowledged_player_bytes_max;
        let own_room = own_max.saturating_sub(claim.unacknowledged_bytes());
        if is_silent
            && (own_room == 0 || claim.unacknowledged.len() >= self.config.unacknowledged_mails_max)
        {
            // Its acknowledgement triggers the read.
            return;
        }
        let is_shared_full = member.mail_bytes() >= self.config.unacknowledged_bytes_max;
        if is_shared_full && is_silent {
            member.waiting.insert(player);
            return;
        }
        if outbox.saturating_add(member.reading) >= self.config.link_bytes_max {
            member.waiting_for_outbox.insert(player);
            return;
        }
        member.reading = member.reading.saturating_add(READ_BYTES_MAX);
        let settled = member.settled;
        claim.reading = Reading::InFlight;
        let op = StoreOp::Read {
            player,
            after: claim.given,
            // If the shared limit is used up by others, this player still gets one mail at a time.
            bytes_max: if is_shared_full {
                0
            } else {
                own_room.min(READ_BYTES_MAX)
            },
            now,
        };
        let generation = claim.generation;
        let read = MailRead {
            player,
            generation,
            link: id,
            settled,
        };
        self.ops.push(op, Pending::Read(read));
    }

    pub(super) fn on_mails(&mut self, read: MailRead, outcome: Outcome) {
        if let Some(member) = self.member_mut(read.link) {
            member.reading = member.reading.saturating_sub(READ_BYTES_MAX);
        }
        self.take_mails(read, outcome);
        self.on_capacity_freed(read.link);
    }

    fn take_mails(&mut self, read: MailRead, outcome: Outcome) {
        let player = read.player;
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        if claim.generation != read.generation
            || !matches!(claim.reading, Reading::InFlight | Reading::InFlightAndDue)
        {
            return;
        }
        let wanted = claim.reading == Reading::InFlightAndDue;
        let Ok(Completed::Mails { mails, more }) = outcome else {
            // Retried at the next tick: an immediate retry would loop while the store has no room.
            claim.reading = Reading::Due;
            self.retry_reads.insert(player);
            return;
        };
        claim.reading = Reading::Done;
        if let Some(id) = claim.link {
            for mail in &mails {
                self.deliver(id, player, mail);
            }
        }
        if more || wanted {
            self.request_read(player);
        } else {
            self.report_empty(player, read.settled);
        }
    }

    fn report_empty(&mut self, player: ClientId, settled: SenderSeq) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        if let Some(id) = claim.link
            && core::mem::take(&mut claim.reports_empty)
        {
            let claim = claim.number;
            self.send(
                id,
                &ToNode::MailboxEmpty {
                    player,
                    claim,
                    settled,
                },
            );
        }
    }

    fn deliver(&mut self, id: ConnectionId, player: ClientId, mail: &Mail) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        // A read that began before the node named its last mail may return that mail again.
        if mail.seq <= claim.given {
            return;
        }
        claim.given = mail.seq;
        self.upkeep.on_mail_number(mail.seq);
        let number = claim.number;
        let len = mail.body.len().saturating_add(128);
        claim.unacknowledged.push_back((mail.seq, len));
        if let Some(member) = self.member_mut(id) {
            member.unacknowledged = member.unacknowledged.saturating_add(len);
        }
        self.stats.mail_given = self.stats.mail_given.saturating_add(1);
        self.send(
            id,
            &ToNode::Deliver(Delivery {
                player,
                claim: number,
                seq: mail.seq,
                from: mail.node,
                epoch: mail.epoch,
                sender_seq: mail.sender_seq,
                body: Redacted(&mail.body),
            }),
        );
    }

    pub(super) fn on_mail_ack(&mut self, id: ConnectionId, player: ClientId, upto: MailSeq) {
        let claim = self.claims.get_mut(player);
        let Some(claim) = claim.filter(|claim| claim.link == Some(id)) else {
            self.stats.stale = self.stats.stale.saturating_add(1);
            return;
        };
        let freed = claim.acknowledge(upto);
        let reading = claim.reading;
        self.acknowledging.insert(player);
        if let Some(member) = self.member_mut(id) {
            member.unacknowledged = member.unacknowledged.saturating_sub(freed);
        }
        if reading == Reading::Due {
            self.mail_ready.insert(player);
        }
        self.on_capacity_freed(id);
    }

    pub(super) fn acknowledge(&mut self, player: ClientId) {
        if let Some(claim) = self.claims.get_mut(player)
            && claim.acknowledging.is_none()
        {
            let upto = claim.acknowledged;
            claim.acknowledging = Some(upto);
            let pending = Pending::Ack(player, claim.generation, upto);
            self.ops.push(StoreOp::Ack { player, upto }, pending);
        }
    }

    /// Handles the store's answer: `upto` is acknowledged, or `None` if the store had no room.
    pub(super) fn on_acknowledged(
        &mut self,
        player: ClientId,
        generation: Generation,
        upto: Option<MailSeq>,
    ) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        if claim.generation != generation {
            return;
        }
        claim.acknowledging = None;
        match upto {
            None => {
                self.retry_acks.insert(player);
            }
            Some(upto) if claim.acknowledged > upto => {
                self.acknowledging.insert(player);
            }
            Some(_) => {}
        }
    }

    /// Resumes reads of players that waited for room on this link.
    pub(super) fn on_capacity_freed(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let outbox = link.outbox_bytes();
        let Some(member) = link.member_mut() else {
            return;
        };
        if outbox.saturating_add(member.reading) >= self.config.link_bytes_max {
            return;
        }
        let has_shared_room = member.mail_bytes() < self.config.unacknowledged_bytes_max;
        // Bounded, since this runs for each record that is written.
        for _ in 0..WAKES_MAX {
            let mut next = take_round_robin(&mut member.waiting_for_outbox, member.last_woken);
            if next.is_none() && has_shared_room {
                next = take_round_robin(&mut member.waiting, member.last_woken);
            }
            let Some(player) = next else {
                return;
            };
            member.last_woken = player;
            self.mail_ready.insert(player);
        }
    }

    pub(super) fn on_counts(
        &mut self,
        id: ConnectionId,
        batch: BatchSeq,
        entries: Vec<(CountKey, u64)>,
    ) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let node = link.node;
        let may_store =
            self.ops.len() < self.config.ops_in_flight && matches!(self.drain, super::Drain::Off);
        // A node has one batch in flight, and resends one that was not accepted.
        if let Some(member) = link.member_mut()
            && may_store
            && !core::mem::replace(&mut member.counting, true)
        {
            let op = StoreOp::Count {
                node,
                epoch: member.epoch,
                batch,
                entries,
            };
            self.ops.push(op, Pending::Count(id, batch));
        }
    }

    pub(super) fn on_counted(&mut self, id: ConnectionId, batch: BatchSeq, outcome: &Outcome) {
        if let Some(member) = self.member_mut(id) {
            member.counting = false;
        }
        if outcome.is_ok() {
            self.stats.batches = self.stats.batches.saturating_add(1);
            self.send(id, &ToNode::Counted { upto: batch });
        }
    }

    fn settle(&mut self, id: ConnectionId, seq: SenderSeq, verdict: MailVerdict) {
        if verdict == MailVerdict::Full && self.upkeep.room.on_full(id) {
            upkeep::request_status(self);
        } else if verdict == MailVerdict::OverShare {
            upkeep::on_over_share(self, id);
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.settle(seq, verdict);
            if verdict.is_final() {
                link.note_settled(seq);
            }
            self.ready.insert(id);
            if link.outbox_bytes() > self.config.link_bytes_max.saturating_mul(2) {
                self.close(id, DownReason::Overrun);
            }
        }
    }

    fn settle_part(&mut self, id: ConnectionId, seq: SenderSeq, part: &PartRefusal) {
        if let Some(link) = self.links.get_mut(&id) {
            link.note_settled(seq);
        }
        let part = part.clone();
        self.send(id, &ToNode::MailPartRefused { seq, part });
    }
}
