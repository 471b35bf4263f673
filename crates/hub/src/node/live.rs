//! Live messages: to players and topics, with outcomes.

mod queues;
mod waiting;

use bytes::Bytes;
use wire::{ClientId, Instant, NodeId};

use super::{ClaimId, MailOptions, Node, NodeEvent, SendError};
use crate::field::{Addr, ClaimNumber, GroupId, GroupRequest, LiveSeq, Name, Redacted, SenderSeq};
use crate::record::{
    GROUP_BODY_BYTES_MAX, GroupAction, GroupToHub, LiveOutcome, LiveToHub, LiveToNode,
    META_BYTES_MAX, MailTo, PlayerList, TOPICS_MAX, ToHub,
};
pub(super) use queues::LiveQueues;
use queues::Queued;
pub use queues::{LiveOverflow, PlayerMessage};

/// Live messages. They reach players that are connected now, at most once, and are not stored.
impl Node {
    /// Sends `body` to `player`, at most once, if a connected node holds it.
    /// [`NodeEvent::LiveSent`] reports the outcome. The player's node queues the message, see
    /// [`NodeConfig::live_overflow`](crate::NodeConfig::live_overflow).
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` if no link is up, the outbox is full, or it exceeds 64 KiB.
    pub fn forward(
        &mut self,
        now: Instant,
        player: ClientId,
        body: Bytes,
    ) -> Result<LiveSeq, SendError> {
        self.multicast(now, &[player], body)
    }

    /// Sends `body` to each of `players`, at most once. The hub sends one record to each node,
    /// however many of its players are listed. [`NodeEvent::LiveSent`] reports how many were
    /// reached.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward); or if there are no players or more than 4,096. Each player
    /// takes 8 bytes of the 64 KiB.
    pub fn multicast(
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

    /// Sends `body` to the subscribers of `topic`: to those of this node at once, to others
    /// through the hub, with one record a node. [`NodeEvent::LiveSent`] reports how many other
    /// nodes were reached.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward). Then no subscriber gets the message.
    pub fn cast(&mut self, now: Instant, topic: Name, body: Bytes) -> Result<LiveSeq, SendError> {
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

    /// Sends `body` to all players of this node. Returns how many queues took it.
    pub fn cast_locally(&mut self, now: Instant, body: Bytes) -> usize {
        self.advance(now);
        let body = Redacted(body);
        let players = self.live.players();
        let took = |player: &ClientId| self.queue_live(*player, PlayerMessage::Local(body.clone()));
        players.iter().copied().filter(took).count()
    }

    /// Subscribes a player to `topic` until its claim ends. Returns false if the claim is not
    /// current, the player has 32 topics, this node has 1,024, or the outbox is full.
    pub fn subscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) -> bool {
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

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) {
        self.advance(now);
        if self.live.unsubscribe(claim, topic) {
            self.end_topic(topic);
        }
    }

    /// Requests that the node of `player` disconnects it; that node gets [`NodeEvent::Kicked`].
    /// `reason` is for that node, at most 256 bytes. The hub permits it to the roles of
    /// [`HubConfig::kick_roles`](crate::HubConfig::kick_roles). [`NodeEvent::LiveSent`] reports the
    /// outcome.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `reason` if no link is up, the outbox is full, or it is too long.
    pub fn kick(
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

    /// Removes the next message that waits for a player.
    ///
    /// [`NodeEvent::MessageReady`] reports the first message of an empty queue. Take only as many
    /// as the player's connection accepts: what waits here is bounded, see
    /// [`NodeConfig::live_queue_max`](crate::NodeConfig::live_queue_max).
    pub fn next_message(&mut self, claim: ClaimId) -> Option<PlayerMessage> {
        self.live.pop(claim)
    }

    /// Returns how many messages wait for a player.
    pub fn message_count(&self, claim: ClaimId) -> usize {
        self.live.len(claim)
    }

    /// Makes `player` a member of `group`, also if it is offline. [`NodeEvent::GroupDone`] follows; a
    /// member may join again. Memberships are on the hub's disk until the player leaves.
    ///
    /// # Errors
    ///
    /// [`SendError`] if no link is up, the outbox is full, or too many requests are open.
    pub fn join_group(
        &mut self,
        now: Instant,
        group: GroupId,
        player: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::Join(player))
    }

    /// Ends the membership of `player`. [`NodeEvent::GroupDone`] follows, also if it was no member.
    ///
    /// # Errors
    ///
    /// As [`join_group`](Self::join_group).
    pub fn leave_group(
        &mut self,
        now: Instant,
        group: GroupId,
        player: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::Leave(player))
    }

    /// Reads a page of the members of `group`, from `first` on. [`NodeEvent::GroupMembers`] follows.
    ///
    /// # Errors
    ///
    /// As [`join_group`](Self::join_group).
    pub fn list_group(
        &mut self,
        now: Instant,
        group: GroupId,
        first: ClientId,
    ) -> Result<GroupRequest, SendError> {
        self.request_group(now, group, GroupAction::List(first))
    }

    /// Sends `body`, at most 32 KiB, to each member of `group` that is connected, at most once. The hub
    /// reads the members from its store, and then sends one record to each node.
    /// [`NodeEvent::GroupSent`] reports the outcome, or [`NodeEvent::GroupDone`] an error.
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` as for [`join_group`](Self::join_group), or if it is too long.
    pub fn send_group(
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

    /// Sends `body` to the mailbox of each of `players`. The hub stores it once for all of them.
    ///
    /// [`NodeEvent::MailStored`] follows if all mailboxes have it,
    /// [`MailRefused`](NodeEvent::MailRefused) if none has, else
    /// [`MailPartRefused`](NodeEvent::MailPartRefused). Use it with one player for a mail with a
    /// priority. Otherwise as [`mail`](Self::mail).
    ///
    /// # Errors
    ///
    /// As [`mail`](Self::mail); or if there are no players or more than 4,096. Each player takes 8
    /// bytes of the 64 KiB.
    pub fn mail_many(
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

    /// Sends `body`, at most 32 KiB, to the mailbox of each member of `group`: of those that it has when
    /// the hub stores the mail, and as one record. Otherwise as [`mail_many`](Self::mail_many).
    ///
    /// # Errors
    ///
    /// [`SendError`] returns `body` if too many mails wait, or it is too long.
    pub fn mail_group(
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

    fn request_group(
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
                self.deliver_cast(Some(from), topic, &body.to_bytes());
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

    fn deliver_cast(&mut self, from: Option<NodeId>, topic: Name, body: &Redacted<Bytes>) {
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
        if self.up().is_some() {
            self.push(&ToHub::Live(LiveToHub::Unsubscribe(topic)));
        }
    }

    pub(super) fn subscribe_again(&mut self) {
        let topics: Vec<_> = self.live.topics().collect();
        for topic in topics {
            self.push(&ToHub::Live(LiveToHub::Subscribe(topic)));
        }
    }
}
