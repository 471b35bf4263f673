//! A bounded queue of live messages for each claimed player, and topics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, NodeId};

use super::super::{ClaimId, NodeConfig};
use super::waiting::Waiting;
use crate::field::{MailSeq, Name, Redacted, SenderSeq};

/// A message for a player, from [`Node::next_message`](crate::Node::next_message).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlayerMessage {
    /// A message to this player, see [`Node::forward`](crate::Node::forward).
    Forward {
        /// The sending node.
        from: NodeId,
        /// The payload.
        body: Redacted<Bytes>,
    },
    /// A message to a topic that the player subscribes to.
    Cast {
        /// The sending node; `None` for this node.
        from: Option<NodeId>,
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<Bytes>,
    },
    /// A message to all players of this node.
    Local(Redacted<Bytes>),
    /// A mail that arrived behind live messages; confirm it with
    /// [`Node::acknowledge`](crate::Node::acknowledge).
    Mail {
        /// Its number in the mailbox.
        seq: MailSeq,
        /// The sending node.
        from: NodeId,
        /// The payload.
        body: Redacted<Bytes>,
    },
}

impl PlayerMessage {
    pub(in crate::node) fn into_body(self) -> Bytes {
        match self {
            Self::Forward { body, .. }
            | Self::Cast { body, .. }
            | Self::Local(body)
            | Self::Mail { body, .. } => body.0,
        }
    }

    /// Returns the payload.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        match self {
            Self::Forward { body, .. }
            | Self::Cast { body, .. }
            | Self::Local(body)
            | Self::Mail { body, .. } => &body.0,
        }
    }

    const fn bytes(&self) -> usize {
        self.body().len().saturating_add(size_of::<Self>())
    }
}

/// What happens to a live message if the player's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveOverflow {
    /// The message is dropped.
    DropNewest,
    /// The oldest live messages of the queue are dropped.
    DropOldest,
    /// The message is mailed to the player. All later ones are mailed too, until that mail was
    /// delivered, so the order stays. The mail's sender is the player's node, not that of the message;
    /// see [`NodeConfig::spill_ttl`](crate::NodeConfig::spill_ttl) for its limits.
    Spill,
    /// The message is dropped, and [`NodeEvent::SlowPlayer`](crate::NodeEvent::SlowPlayer) asks
    /// the application to disconnect the player.
    Kick,
}

/// Result of queueing a message.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::node) enum Queued {
    /// It is the first of the queue.
    First(ClaimId),
    Behind,
    /// It is queued; this many older messages were dropped for it.
    Replaced(u64),
    Dropped,
    /// Dropped; the first one of this session.
    Slow(ClaimId),
    /// To be mailed, see [`LiveQueues::on_spilled`].
    Spill(PlayerMessage),
    /// The player is not claimed here.
    Unclaimed,
}

/// Queues of live messages, and the topics that their players subscribe to.
#[derive(Debug, Default)]
pub(in crate::node) struct LiveQueues {
    queues: BTreeMap<ClientId, LiveQueue>,
    topics: BTreeMap<Name, BTreeSet<ClientId>>,
    /// The last message of each player that was mailed, until the mailbox is empty.
    spilled: BTreeMap<SenderSeq, ClientId>,
    waiting: Waiting,
}

#[derive(Debug)]
struct LiveQueue {
    claim: ClaimId,
    messages: VecDeque<PlayerMessage>,
    bytes: usize,
    topics: BTreeSet<Name>,
    /// The last message that was mailed, until the mailbox is empty.
    spilled: Option<SenderSeq>,
    /// Whether the application knows that the player is slow.
    is_slow: bool,
}

/// Most topics of one player.
pub(in crate::node) const PLAYER_TOPICS_MAX: usize = 32;

impl LiveQueues {
    /// Starts an empty queue for a new session.
    pub(in crate::node) fn start(&mut self, claim: ClaimId) {
        self.queues.insert(
            claim.player,
            LiveQueue {
                claim,
                messages: VecDeque::new(),
                bytes: 0,
                topics: BTreeSet::new(),
                spilled: None,
                is_slow: false,
            },
        );
    }

    /// Ends a session; returns the topics without a subscriber now.
    pub(in crate::node) fn end(&mut self, player: ClientId) -> Vec<Name> {
        let Some(queue) = self.queues.remove(&player) else {
            return Vec::new();
        };
        for message in &queue.messages {
            self.waiting.remove(message);
        }
        if let Some(seq) = queue.spilled {
            self.spilled.remove(&seq);
        }
        let mut ended = Vec::new();
        for topic in queue.topics {
            if self.leave_topic(player, topic) {
                ended.push(topic);
            }
        }
        ended
    }

    /// Queues a message within the limits of `config`.
    pub(in crate::node) fn push(
        &mut self,
        player: ClientId,
        message: PlayerMessage,
        config: &NodeConfig,
    ) -> Queued {
        match self.queues.get_mut(&player) {
            Some(queue) => queue.push(message, &mut self.waiting, config),
            None => Queued::Unclaimed,
        }
    }

    /// Queues a mail behind live messages, if there are any; else returns it.
    ///
    /// The hub limits the mails of a player that are not acknowledged, so these need no other limit.
    pub(in crate::node) fn push_mail(
        &mut self,
        player: ClientId,
        mail: PlayerMessage,
    ) -> Option<PlayerMessage> {
        let Some(queue) = self.queues.get_mut(&player) else {
            return Some(mail);
        };
        if queue.messages.is_empty() {
            return Some(mail);
        }
        queue.add(mail, &mut self.waiting);
        None
    }

    pub(in crate::node) fn pop(&mut self, claim: ClaimId) -> Option<PlayerMessage> {
        let queue = self.queues.get_mut(&claim.player);
        let queue = queue.filter(|queue| queue.claim == claim)?;
        let message = queue.messages.pop_front()?;
        queue.bytes = queue.bytes.saturating_sub(message.bytes());
        self.waiting.remove(&message);
        Some(message)
    }

    /// Records that a message was mailed as `seq`.
    pub(in crate::node) fn on_spilled(&mut self, player: ClientId, seq: SenderSeq) {
        if let Some(queue) = self.queues.get_mut(&player) {
            if let Some(last) = queue.spilled.replace(seq) {
                self.spilled.remove(&last);
            }
            self.spilled.insert(seq, player);
        }
    }

    /// Ends spilling if the hub refuses the last message that was mailed: it is lost, and nothing
    /// waits in the mailbox behind which a later one must queue. Returns whether it was the last.
    pub(in crate::node) fn on_mail_refused(&mut self, seq: SenderSeq) -> bool {
        let Some(player) = self.spilled.remove(&seq) else {
            return false;
        };
        if let Some(queue) = self.queues.get_mut(&player) {
            queue.spilled = None;
        }
        true
    }

    /// Ends spilling if all mail up to `settled` was delivered, and none was spilled after.
    pub(in crate::node) fn on_mailbox_empty(&mut self, claim: ClaimId, settled: SenderSeq) {
        if let Some(queue) = self.queues.get_mut(&claim.player)
            && queue.claim == claim
            && let Some(spilled) = queue.spilled.filter(|spilled| *spilled <= settled)
        {
            queue.spilled = None;
            self.spilled.remove(&spilled);
        }
    }

    /// Subscribes a player; returns whether it is the topic's first subscriber, or `None` if the
    /// claim is not current or a limit is reached.
    pub(in crate::node) fn subscribe(
        &mut self,
        claim: ClaimId,
        topic: Name,
        topics_max: usize,
    ) -> Option<bool> {
        let is_new = !self.topics.contains_key(&topic);
        if is_new && self.topics.len() >= topics_max {
            return None;
        }
        let queue = self.queues.get_mut(&claim.player);
        let queue = queue.filter(|queue| queue.claim == claim)?;
        if !queue.topics.contains(&topic) && queue.topics.len() >= PLAYER_TOPICS_MAX {
            return None;
        }
        queue.topics.insert(topic);
        self.topics.entry(topic).or_default().insert(claim.player);
        Some(is_new)
    }

    /// Ends a subscription; returns whether it was the topic's last one.
    pub(in crate::node) fn unsubscribe(&mut self, claim: ClaimId, topic: Name) -> bool {
        let queue = self.queues.get_mut(&claim.player);
        let Some(queue) = queue.filter(|queue| queue.claim == claim) else {
            return false;
        };
        queue.topics.remove(&topic) && self.leave_topic(claim.player, topic)
    }

    fn leave_topic(&mut self, player: ClientId, topic: Name) -> bool {
        let Some(players) = self.topics.get_mut(&topic) else {
            return false;
        };
        players.remove(&player);
        let is_last = players.is_empty();
        if is_last {
            self.topics.remove(&topic);
        }
        is_last
    }

    pub(in crate::node) fn topics(&self) -> impl Iterator<Item = Name> {
        self.topics.keys().copied()
    }

    pub(in crate::node) fn subscribers(&self, topic: Name) -> Vec<ClientId> {
        self.topics
            .get(&topic)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    pub(in crate::node) fn players(&self) -> Vec<ClientId> {
        self.queues.keys().copied().collect()
    }

    pub(in crate::node) fn len(&self, claim: ClaimId) -> usize {
        let queue = self.queues.get(&claim.player);
        let queue = queue.filter(|queue| queue.claim == claim);
        queue.map_or(0, |queue| queue.messages.len())
    }

    pub(in crate::node) fn memory_bytes(&self) -> usize {
        let topics: usize = self.queues.values().map(|queue| queue.topics.len()).sum();
        let queues = self.queues.len().saturating_mul(QUEUE_BYTES);
        self.waiting
            .memory_bytes()
            .saturating_add(queues)
            // Each subscription is in the queue's set and in the topic's.
            .saturating_add(topics.saturating_mul(SUBSCRIPTION_BYTES))
    }
}

const QUEUE_BYTES: usize = size_of::<LiveQueue>() + 32;
const SUBSCRIPTION_BYTES: usize = size_of::<Name>() + 80;

impl LiveQueue {
    fn push(
        &mut self,
        message: PlayerMessage,
        waiting: &mut Waiting,
        config: &NodeConfig,
    ) -> Queued {
        if self.spilled.is_some() {
            return Queued::Spill(message);
        }
        let bytes = message.bytes();
        // The limit of all queues is no fault of this player.
        let total = waiting.bytes().saturating_add(waiting.growth(&message));
        if total > config.live_bytes_max {
            return Queued::Dropped;
        }
        // A longer one than the queue holds must not drop all others.
        let fits_alone = bytes <= config.live_queue_bytes_max;
        let mut dropped = 0_u64;
        while !self.has_room(bytes, config) {
            match config.live_overflow {
                LiveOverflow::Spill => return Queued::Spill(message),
                LiveOverflow::DropOldest if fits_alone && self.drop_oldest(waiting) => {
                    dropped = dropped.saturating_add(1);
                }
                LiveOverflow::Kick
                    if fits_alone && !core::mem::replace(&mut self.is_slow, true) =>
                {
                    return Queued::Slow(self.claim);
                }
                LiveOverflow::DropNewest | LiveOverflow::DropOldest | LiveOverflow::Kick => {
                    return Queued::Dropped;
                }
            }
        }
        self.add(message, waiting);
        match self.messages.len() {
            _ if dropped > 0 => Queued::Replaced(dropped),
            1 => Queued::First(self.claim),
            _ => Queued::Behind,
        }
    }

    /// Returns whether a message fits. The first always does.
    fn has_room(&self, bytes: usize, config: &NodeConfig) -> bool {
        if self.messages.is_empty() {
            return true;
        }
        self.messages.len() < config.live_queue_max
            && self.bytes.saturating_add(bytes) <= config.live_queue_bytes_max
    }

    fn add(&mut self, message: PlayerMessage, waiting: &mut Waiting) {
        waiting.add(&message);
        self.bytes = self.bytes.saturating_add(message.bytes());
        self.messages.push_back(message);
    }

    /// Drops the oldest message that is no mail; returns false if there is none.
    fn drop_oldest(&mut self, waiting: &mut Waiting) -> bool {
        let is_live = |message: &PlayerMessage| !matches!(message, PlayerMessage::Mail { .. });
        let Some(at) = self.messages.iter().position(is_live) else {
            return false;
        };
        if let Some(message) = self.messages.remove(at) {
            self.bytes = self.bytes.saturating_sub(message.bytes());
            waiting.remove(&message);
        }
        true
    }
}
