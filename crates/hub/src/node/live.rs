//! Live messages: to players and topics, with outcomes.

mod queues;
mod waiting;

use bytes::Bytes;
use wire::{ClientId, Instant, NodeId};

use super::{ClaimId, HubLink, MailOptions, NodeEvent, SendError};
use crate::field::{Addr, ClaimNumber, GroupId, GroupRequest, LiveSeq, Name, Redacted, SenderSeq};
use crate::record::{
    GROUP_BODY_BYTES_MAX, GroupAction, GroupToHub, LiveOutcome, LiveToHub, LiveToNode,
    META_BYTES_MAX, MailTo, PlayerList, TOPICS_MAX, ToHub,
};
pub(super) use queues::LiveQueues;
use queues::Queued;
pub use queues::{LiveOverflow, PlayerMessage};

impl HubLink {
    pub(super) fn multicast(
        &mut self,
        now: Instant,
        players: &[ClientId],
        body: Bytes,
    ) -> Result<LiveSeq, SendError> {
        self.advance(now);
        let mut ids = Vec::new();
        let Some(players) = PlayerList::encode_into(players, &mut ids) else {
            return Err(SendError::Players(body.into()));
        };
        if body.len() > players.body_bytes_max() {
            return Err(SendError::TooLong(body.into()));
        }
        let body = self.check_live(body)?;
        let live = self.next_live();
        self.push(&ToHub::Live(LiveToHub::Forward {
            live,
            players,
            body: Redacted(&body),
        }));
        Ok(live)
    }

    pub(super) fn cast(
        &mut self,
        now: Instant,
        topic: Name,
        body: Bytes,
    ) -> Result<LiveSeq, SendError> {
        self.advance(now);
        let body = self.check_live(body)?;
        let live = self.next_live();
        self.push(&ToHub::Live(LiveToHub::Cast {
            live,
            topic,
            body: Redacted(&body),
        }));
        self.deliver_cast(None, topic, &Redacted(body));
        Ok(live)
    }

    pub(super) fn cast_locally(&mut self, now: Instant, body: &Redacted<Bytes>) -> usize {
        self.advance(now);
        let players = self.live.players();
        let took = |player: &ClientId| self.queue_live(*player, PlayerMessage::Local(body.clone()));
        players.iter().copied().filter(took).count()
    }

    pub(super) fn subscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) -> bool {
        self.advance(now);
        if self.outbox_bytes >= self.config.outbox_bytes_max {
            return false;
        }
        let first = self.live.subscribe(claim, topic, TOPICS_MAX);
        if first == Some(true) && self.up().is_some() {
            self.push(&ToHub::Live(LiveToHub::Subscribe(topic)));
        }
        first.is_some()
    }

    pub(super) fn unsubscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) {
        self.advance(now);
        if self.live.unsubscribe(claim, topic) {
            self.end_topic(topic);
        }
    }

    pub(super) fn kick(
        &mut self,
        now: Instant,
        player: ClientId,
        reason: Bytes,
    ) -> Result<LiveSeq, SendError> {
        self.advance(now);
        if reason.len() > META_BYTES_MAX {
            return Err(SendError::TooLong(reason.into()));
        }
        let reason = self.check_live(reason)?;
        let live = self.next_live();
        self.push(&ToHub::Live(LiveToHub::Kick {
            live,
            player,
            reason: Redacted(&reason),
        }));
        Ok(live)
    }

    pub(super) fn next_message(&mut self, claim: ClaimId) -> Option<PlayerMessage> {
        self.live.pop(claim)
    }

    pub(super) fn message_count(&self, claim: ClaimId) -> usize {
        self.live.len(claim)
    }

    pub(super) fn join_group(
        &mut self,
        now: Instant,
        group: GroupId,
        player: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::Join(player))
    }

    pub(super) fn leave_group(
        &mut self,
        now: Instant,
        group: GroupId,
        player: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::Leave(player))
    }

    pub(super) fn list_group(
        &mut self,
        now: Instant,
        group: GroupId,
        first: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::List(first))
    }

    pub(super) fn send_group(
        &mut self,
        now: Instant,
        group: GroupId,
        body: Bytes,
    ) -> Result<GroupRequest, SendError> {
        if body.len() > GROUP_BODY_BYTES_MAX {
            return Err(SendError::TooLong(body.into()));
        }
        self.request_group(now, group, GroupAction::Send(Redacted(&body)))
    }

    pub(super) fn mail_many(
        &mut self,
        now: Instant,
        players: &[ClientId],
        body: Bytes,
        options: MailOptions,
    ) -> Result<SenderSeq, SendError> {
        self.advance(now);
        let mut ids = Vec::new();
        let Some(players) = PlayerList::encode_into(players, &mut ids) else {
            return Err(SendError::Players(body.into()));
        };
        if body.len() > players.body_bytes_max() {
            return Err(SendError::TooLong(body.into()));
        }
        let to = MailTo::Many(players.to_ids());
        self.outgoing.push(to, options, body, &self.config)
    }

    pub(super) fn mail_group(
        &mut self,
        now: Instant,
        group: GroupId,
        body: Bytes,
        options: MailOptions,
    ) -> Result<SenderSeq, SendError> {
        self.advance(now);
        if body.len() > GROUP_BODY_BYTES_MAX {
            return Err(SendError::TooLong(body.into()));
        }
        let to = MailTo::One(Addr::Group(group));
        self.outgoing.push(to, options, body, &self.config)
    }

    /// Returns an error if no request about a group can be sent now.
    pub(super) fn check_group(&self) -> Result<(), SendError> {
        self.check_live(Bytes::new())?;
        if self.groups.len() >= self.config.group_requests_max {
            return Err(SendError::Full(Bytes::new().into()));
        }
        Ok(())
    }

    pub(super) fn request_group(
        &mut self,
        now: Instant,
        group: GroupId,
        action: GroupAction<'_>,
    ) -> Result<GroupRequest, SendError> {
        self.advance(now);
        let body = match action {
            GroupAction::Send(body) => Bytes::copy_from_slice(&body),
            GroupAction::Join(_) | GroupAction::Leave(_) | GroupAction::List(_) => Bytes::new(),
        };
        let body = self.check_live(body)?;
        if self.groups.len() >= self.config.group_requests_max {
            return Err(SendError::Full(body.into()));
        }
        let request = self.groups.begin();
        self.push(&ToHub::Group(GroupToHub {
            request,
            group,
            action,
        }));
        Ok(request)
    }

    pub(super) fn on_live_record(&mut self, record: LiveToNode<'_>) {
        match record {
            LiveToNode::Forward {
                from,
                players,
                body,
            } => {
                let body = body.to_bytes();
                for player in players.iter() {
                    let body = body.clone();
                    self.queue_live(player, PlayerMessage::Forward { from, body });
                }
            }
            LiveToNode::Cast { from, topic, body } => {
                let body = body.to_bytes();
                match &mut self.shard {
                    Some(shard) => shard.on_cast(from, topic, body),
                    None => self.deliver_cast(Some(from), topic, &body),
                }
            }
            LiveToNode::Kick {
                player,
                claim,
                from,
                reason,
            } => {
                if let Some(entry) = self.players.get_mut(player, claim) {
                    let claim = entry.claim;
                    let reason = reason.to_bytes();
                    self.events.push_back(NodeEvent::Kicked {
                        claim,
                        from,
                        reason,
                    });
                }
            }
            LiveToNode::Sent {
                first,
                last,
                outcome,
            } => self.on_live_sent(first, last, outcome),
            LiveToNode::Missed(count) => {
                self.stats.missed = self.stats.missed.saturating_add(count);
                self.events.push_back(NodeEvent::Missed(count));
            }
        }
    }

    pub(super) fn on_mailbox_empty(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
        settled: SenderSeq,
    ) {
        if let Some(entry) = self.players.get_mut(player, number) {
            let claim = entry.claim;
            self.live.on_mailbox_empty(claim, settled);
            self.events.push_back(NodeEvent::MailboxEmpty(claim));
        }
    }

    const fn next_live(&mut self) -> LiveSeq {
        self.live_sent.0 = self.live_sent.0.next();
        self.live_sent.0
    }

    pub(super) fn deliver_cast(
        &mut self,
        from: Option<NodeId>,
        topic: Name,
        body: &Redacted<Bytes>,
    ) {
        for player in self.live.subscribers(topic) {
            let body = body.clone();
            self.queue_live(player, PlayerMessage::Cast { from, topic, body });
        }
    }

    /// Queues a message for a player; returns whether it was queued or mailed.
    fn queue_live(&mut self, player: ClientId, message: PlayerMessage) -> bool {
        let stats = &mut self.stats;
        match self.live.push(player, message, &self.config) {
            Queued::First(claim) => {
                stats.live_queued = stats.live_queued.saturating_add(1);
                self.events.push_back(NodeEvent::MessageReady(claim));
                true
            }
            Queued::Behind => {
                stats.live_queued = stats.live_queued.saturating_add(1);
                true
            }
            Queued::Replaced(dropped) => {
                stats.live_queued = stats.live_queued.saturating_add(1);
                stats.live_dropped = stats.live_dropped.saturating_add(dropped);
                true
            }
            Queued::Dropped => {
                stats.live_dropped = stats.live_dropped.saturating_add(1);
                false
            }
            Queued::Slow(claim) => {
                stats.live_dropped = stats.live_dropped.saturating_add(1);
                self.events.push_back(NodeEvent::SlowPlayer(claim));
                false
            }
            Queued::Spill(message) => self.spill(player, message.into_body()),
            Queued::Unclaimed => {
                stats.live_stray = stats.live_stray.saturating_add(1);
                false
            }
        }
    }

    fn spill(&mut self, player: ClientId, body: Bytes) -> bool {
        let (now, ttl) = (self.now, self.config.spill_ttl);
        // The other half is for mail of this node itself.
        let has_room = self.outgoing.len() < self.config.mails_max / 2
            && self.outgoing.bytes() < self.config.mail_bytes_max / 2;
        let mailed = has_room.then(|| self.mail(now, player, body, ttl));
        if let Some(Ok(seq)) = mailed {
            self.live.on_spilled(player, seq);
            self.stats.live_spilled = self.stats.live_spilled.saturating_add(1);
            true
        } else {
            self.stats.live_dropped = self.stats.live_dropped.saturating_add(1);
            false
        }
    }

    fn on_live_sent(&mut self, first: LiveSeq, last: LiveSeq, outcome: LiveOutcome) {
        let (sent, known) = self.live_sent;
        if first > known && last >= first && last <= sent {
            self.live_sent.1 = last;
            let outcome = Some(outcome);
            self.events.push_back(NodeEvent::LiveSent {
                first,
                last,
                outcome,
            });
        }
    }

    /// Reports the messages without an outcome, since the link has closed.
    pub(super) fn on_live_lost(&mut self) {
        let (last, known) = self.live_sent;
        self.live_sent.1 = last;
        if known < last {
            self.events.push_back(NodeEvent::LiveSent {
                first: known.next(),
                last,
                outcome: None,
            });
        }
    }

    pub(super) fn end_session(&mut self, player: ClientId) {
        for topic in self.live.end(player) {
            self.end_topic(topic);
        }
    }

    fn end_topic(&mut self, topic: Name) {
        match &mut self.shard {
            Some(shard) => shard.on_topic_ended(topic),
            None => self.unsubscribe_node(topic),
        }
    }

    /// Ends the subscription of this node to a topic of this hub.
    pub(super) fn unsubscribe_node(&mut self, topic: Name) {
        if let Some(shard) = &mut self.shard {
            shard.unsubscribe(topic);
        }
        if self.up().is_some() {
            self.push(&ToHub::Live(LiveToHub::Unsubscribe(topic)));
        }
    }

    /// Subscribes this node to a topic of this hub.
    pub(super) fn subscribe_node(&mut self, topic: Name) {
        if let Some(shard) = &mut self.shard {
            shard.subscribe(topic);
        }
        if self.up().is_some() {
            self.push(&ToHub::Live(LiveToHub::Subscribe(topic)));
        }
    }

    pub(super) fn subscribe_again(&mut self) {
        let topics: Vec<_> = match &self.shard {
            Some(shard) => shard.topics().collect(),
            None => self.live.topics().collect(),
        };
        for topic in topics {
            self.push(&ToHub::Live(LiveToHub::Subscribe(topic)));
        }
    }
}
