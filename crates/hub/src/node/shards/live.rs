//! Live messages, groups, and mail to many, over several links.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::{ClientId, Instant};

use super::super::{ClaimId, MailOptions, PlayerMessage, SendError};
use super::sums::{GroupSum, LiveSum, MailSum};
use super::{Node, Shard};
use crate::field::{Addr, GroupId, GroupRequest, LiveSeq, Name, Redacted, SenderSeq};
use crate::record::{
    GROUP_BODY_BYTES_MAX, GroupAction, GroupError, MailTo, PlayerList, TOPICS_MAX,
};

/// Live messages. They reach players that are connected now, at most once, and are not stored.
impl Node {
    /// Sends `body` to `player`, at most once, if a connected node holds it.
    /// [`NodeEvent::LiveSent`](crate::NodeEvent::LiveSent) reports the outcome. The player's node queues the
    /// message, see [`NodeConfig::live_overflow`](crate::NodeConfig::live_overflow).
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
    /// however many of its players are listed.
    /// [`NodeEvent::LiveSent`](crate::NodeEvent::LiveSent) reports how many were reached. Players of a hub
    /// that is away, while another is not, count as busy.
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
        let mut parts = self.split(players);
        if parts.len() <= 1 {
            let index = parts.pop_first().map_or(0, |(index, _)| index);
            let live = self.links.get(index).multicast(now, players, body)?;
            return Ok(LiveSeq(self.links.to_unique(index, live.0)));
        }
        let body = check_list(players, body)?;
        if self.live.len() >= self.multicasts_max {
            return Err(SendError::Full(body.into()));
        }
        let mut sum = LiveSum::default();
        let mut sent = Vec::new();
        let mut failed = None;
        for (index, players) in &parts {
            let link = self.links.get(*index);
            match link.multicast(now, players, body.clone()) {
                Ok(live) => sent.push((*index, live.0)),
                Err(error) => {
                    sum.add_busy(players.len());
                    failed = Some(error);
                }
            }
        }
        if let (Some(error), true) = (failed, sent.is_empty()) {
            return Err(error);
        }
        let number = self.live.begin(&sent, sum);
        Ok(LiveSeq(self.links.sum_number(number)))
    }

    /// Sends `body` to the subscribers of `topic`: to those of this node at once, to others
    /// through the hub, with one record a node.
    /// [`NodeEvent::LiveSent`](crate::NodeEvent::LiveSent) reports how many other nodes were reached.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward). Then no subscriber gets the message.
    pub fn cast(&mut self, now: Instant, topic: Name, body: Bytes) -> Result<LiveSeq, SendError> {
        let index = Shard::of_topic(topic, self.links.count());
        let live = self.links.get(index).cast(now, topic, body.clone())?;
        let body = Redacted(body);
        // That link has delivered it to its own players.
        for (other, link) in (0_u8..).zip(self.links.iter_mut()) {
            if other != index {
                link.deliver_cast(None, topic, &body);
            }
        }
        Ok(LiveSeq(self.links.to_unique(index, live.0)))
    }

    /// Sends `body` to all players of this node. Returns how many queues took it.
    pub fn cast_locally(&mut self, now: Instant, body: Bytes) -> usize {
        let body = Redacted(body);
        let links = self.links.iter_mut();
        links.map(|link| link.cast_locally(now, &body)).sum()
    }

    /// Subscribes a player to `topic` until its claim ends. Returns false if the claim is not
    /// current, the player has 32 topics, this node has 1,024, or the outbox is full.
    pub fn subscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) -> bool {
        if self.links.first.shard.is_none() {
            return self.links.first.subscribe(now, claim, topic);
        }
        let index = self.links.index_of(claim.player());
        let hub = self.links.get(Shard::of_topic(topic, self.links.count()));
        if !self.topics.has_room(topic) || hub.outbox_bytes >= hub.config.outbox_bytes_max {
            return false;
        }
        let link = self.links.get(index);
        link.advance(now);
        let Some(is_first) = link.live.subscribe(claim, topic, TOPICS_MAX) else {
            return false;
        };
        if is_first && self.topics.add(topic, index) {
            let hub = self.links.get(Shard::of_topic(topic, self.links.count()));
            hub.subscribe_node(topic);
        }
        true
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, now: Instant, claim: ClaimId, topic: Name) {
        let index = self.links.index_of(claim.player());
        self.links.get(index).unsubscribe(now, claim, topic);
        self.settle_topics(index);
    }

    /// The players of a link do not subscribe to a topic any more.
    pub(super) fn end_topic(&mut self, index: u8, topic: Name) {
        if self.topics.remove(topic, index) {
            let hub = self.links.get(Shard::of_topic(topic, self.links.count()));
            hub.unsubscribe_node(topic);
        }
    }

    /// Requests that the node of `player` disconnects it; that node gets
    /// [`NodeEvent::Kicked`](crate::NodeEvent::Kicked). `reason` is for that node, at most 256 bytes. The
    /// hub permits it to the roles of [`HubConfig::kick_roles`](crate::HubConfig::kick_roles).
    /// [`NodeEvent::LiveSent`](crate::NodeEvent::LiveSent) reports the outcome.
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
        let index = self.links.index_of(player);
        let live = self.links.get(index).kick(now, player, reason)?;
        Ok(LiveSeq(self.links.to_unique(index, live.0)))
    }

    /// Removes the next message that waits for a player.
    ///
    /// [`NodeEvent::MessageReady`](crate::NodeEvent::MessageReady) reports the first message of an empty
    /// queue. Take only as many as the player's connection accepts: what waits here is bounded, see
    /// [`NodeConfig::live_queue_max`](crate::NodeConfig::live_queue_max).
    pub fn next_message(&mut self, claim: ClaimId) -> Option<PlayerMessage> {
        self.links.of_player(claim.player()).next_message(claim)
    }

    /// Returns how many messages wait for a player.
    pub fn message_count(&self, claim: ClaimId) -> usize {
        let links = self.links.iter();
        links.map(|link| link.message_count(claim)).sum()
    }

    /// Makes `player` a member of `group`, also if it is offline.
    /// [`NodeEvent::GroupDone`](crate::NodeEvent::GroupDone) follows; a member may join again. Memberships
    /// are on the disk of the player's hub until the player leaves.
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
        let index = self.links.index_of(player);
        let request = self.links.get(index).join_group(now, group, player)?;
        Ok(GroupRequest(self.links.to_unique(index, request.0)))
    }

    /// Ends the membership of `player`. [`NodeEvent::GroupDone`](crate::NodeEvent::GroupDone) follows, also
    /// if it was no member.
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
        let index = self.links.index_of(player);
        let request = self.links.get(index).leave_group(now, group, player)?;
        Ok(GroupRequest(self.links.to_unique(index, request.0)))
    }

    /// Reads a page of the members of `group`, from `first` on.
    /// [`NodeEvent::GroupMembers`](crate::NodeEvent::GroupMembers) follows. It needs all hubs.
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
        if !self.links.are_several() {
            return self.links.first.list_group(now, group, first);
        }
        for link in self.links.iter() {
            link.check_group()?;
        }
        self.ask_all(now, group, GroupAction::List(first), GroupSum::list())
    }

    /// Sends `body`, at most 32 KiB, to each member of `group` that is connected, at most once. Each hub
    /// reads the members from its store, and then sends one record to each node.
    /// [`NodeEvent::GroupSent`](crate::NodeEvent::GroupSent) reports the outcome, in which a hub that is
    /// away counts as one busy receiver; or [`NodeEvent::GroupDone`](crate::NodeEvent::GroupDone) an error.
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
        if !self.links.are_several() || body.len() > GROUP_BODY_BYTES_MAX {
            return self.links.first.send_group(now, group, body);
        }
        let action = GroupAction::Send(Redacted(&body));
        self.ask_all(now, group, action, GroupSum::default())
    }

    /// Sends a request about a group to all hubs.
    fn ask_all(
        &mut self,
        now: Instant,
        group: GroupId,
        action: GroupAction<'_>,
        mut sum: GroupSum,
    ) -> Result<GroupRequest, SendError> {
        let mut sent = Vec::new();
        let mut failed = None;
        for (index, link) in (0_u8..).zip(self.links.iter_mut()) {
            match link.request_group(now, group, action) {
                Ok(request) => sent.push((index, request.0)),
                Err(error) => {
                    sum.on_error(match error {
                        SendError::HubDown(_) => GroupError::HubDown,
                        SendError::Full(_) | SendError::TooLong(_) | SendError::Players(_) => {
                            GroupError::Busy
                        }
                    });
                    failed = Some(error);
                }
            }
        }
        if let (Some(error), true) = (failed, sent.is_empty()) {
            return Err(error);
        }
        let number = self.groups.begin(&sent, sum);
        Ok(GroupRequest(self.links.sum_number(number)))
    }

    /// Sends `body` to the mailbox of each of `players`. Each hub stores it once for all of its players.
    ///
    /// [`NodeEvent::MailStored`](crate::NodeEvent::MailStored) follows if all mailboxes have it,
    /// [`MailRefused`](crate::NodeEvent::MailRefused) if none has, else
    /// [`MailPartRefused`](crate::NodeEvent::MailPartRefused); with several hubs, once each has given its
    /// verdict. Use it with one player for a mail with a priority. Otherwise as [`mail`](Self::mail).
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
        let mut parts = self.split(players);
        if parts.len() <= 1 {
            let index = parts.pop_first().map_or(0, |(index, _)| index);
            let link = self.links.get(index);
            let seq = link.mail_many(now, players, body, options)?;
            return Ok(SenderSeq(self.links.to_unique(index, seq.0)));
        }
        let body = check_list(players, body)?;
        let mut lists = BTreeMap::new();
        for (index, players) in parts {
            if let Some(list) = PlayerList::encode_into(&players, &mut Vec::new()) {
                lists.insert(index, list.to_ids());
            }
        }
        let to = lists.iter();
        let to = to.map(|(index, ids)| (*index, MailTo::Many(ids.clone())));
        let to = to.collect();
        self.mail_parts(now, to, (options, body), MailSum::new(lists))
    }

    /// Sends `body`, at most 32 KiB, to the mailbox of each member of `group`: of those that it has when
    /// its hub stores the mail, and as one record of each hub. With several hubs,
    /// [`MailPartRefused`](crate::NodeEvent::MailPartRefused) counts only the members of hubs that have
    /// rejected some. Otherwise as [`mail_many`](Self::mail_many).
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
        if !self.links.are_several() || body.len() > GROUP_BODY_BYTES_MAX {
            return self.links.first.mail_group(now, group, body, options);
        }
        let to = MailTo::One(Addr::Group(group));
        let to = (0..self.links.count()).map(|index| (index, to.clone()));
        let to = to.collect();
        self.mail_parts(now, to, (options, body), MailSum::default())
    }

    /// Queues one mail for each of several hubs, or none.
    fn mail_parts(
        &mut self,
        now: Instant,
        to: Vec<(u8, MailTo)>,
        (options, body): (MailOptions, Bytes),
        sum: MailSum,
    ) -> Result<SenderSeq, SendError> {
        for (index, to) in &to {
            let link = self.links.get(*index);
            if !link.outgoing.has_room(to, &body, &link.config) {
                return Err(SendError::Full(body.into()));
            }
        }
        let mut parts = Vec::new();
        for (index, to) in to {
            let link = self.links.get(index);
            link.advance(now);
            let seq = link
                .outgoing
                .push(to, options, body.clone(), &link.config)?;
            parts.push((index, seq.0));
        }
        let number = self.mails.begin(&parts, sum);
        Ok(SenderSeq(self.links.sum_number(number)))
    }

    /// Returns the players of each link.
    fn split(&self, players: &[ClientId]) -> BTreeMap<u8, Vec<ClientId>> {
        let mut parts: BTreeMap<u8, Vec<ClientId>> = BTreeMap::new();
        // The only link checks the list itself.
        let is_valid = self.links.are_several() && players.len() <= PlayerList::LEN_MAX;
        for player in players.iter().filter(|_| is_valid) {
            let index = self.links.index_of(*player);
            parts.entry(index).or_default().push(*player);
        }
        for players in parts.values_mut() {
            players.sort_unstable();
            players.dedup();
        }
        parts
    }
}

/// Returns `body` if it fits one record with `players`, whatever hubs they belong to.
fn check_list(players: &[ClientId], body: Bytes) -> Result<Bytes, SendError> {
    let mut ids = Vec::new();
    let Some(list) = PlayerList::encode_into(players, &mut ids) else {
        return Err(SendError::Players(body.into()));
    };
    if body.len() > list.body_bytes_max() {
        return Err(SendError::TooLong(body.into()));
    }
    Ok(body)
}
