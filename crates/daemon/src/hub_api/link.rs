//! The API's node: it sends what requests ask for, and watches presence.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use hub::kv::{KvError, KvKey, KvPut, KvRange, Revision};
use hub::record::{DownReason, LiveOutcome, MailRefusal};
use hub::{KvAnswer, KvRequest, LiveSeq, Name, Node, NodeEvent, SendError, SenderSeq};
use servicer::HubApplication;
use tokio::sync::oneshot;
use wire::{ClientId, Instant, NodeId};

use super::presence::Presence;

/// A request of the API to its node.
#[derive(Debug)]
pub(super) enum LinkRequest {
    Mail {
        player: ClientId,
        body: Bytes,
        /// Zero for the hub's own limit.
        ttl: Duration,
        answer: oneshot::Sender<Result<(), SendFault>>,
    },
    Live(LiveMessage, oneshot::Sender<Result<LiveOutcome, SendFault>>),
    Kv(KvCall, oneshot::Sender<KvSent>),
}

/// A request to the key-value store.
#[derive(Debug)]
pub(super) enum KvCall {
    Put(KvPut),
    Delete(KvKey, Option<Revision>),
    Get(KvKey),
    Range(KvRange, u16),
}

/// What the store answered to a request that was sent.
type KvSent = Result<Result<KvAnswer, KvError>, SendFault>;

/// A message that is not stored.
#[derive(Debug)]
pub(super) enum LiveMessage {
    Forward(ClientId, Bytes),
    Cast(Name, Bytes),
    Kick(ClientId, Bytes),
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFault {
    /// The link is down, or was before the hub answered.
    HubDown,
    Full,
    TooLong,
    Refused(MailRefusal),
}

impl From<SendError> for SendFault {
    fn from(error: SendError) -> Self {
        match error {
            SendError::HubDown(_) => Self::HubDown,
            SendError::TooLong(_) => Self::TooLong,
            SendError::Full(_) | SendError::Players(_) | _ => Self::Full,
        }
    }
}

/// The application of the API's node.
pub(super) struct ApiLink {
    /// Its own id, which is that of the hub; it is not shown.
    own: NodeId,
    presence: Presence,
    /// Mails without a verdict; as many as the node keeps.
    mails: BTreeMap<SenderSeq, oneshot::Sender<Result<(), SendFault>>>,
    /// Live messages without an outcome.
    live: BTreeMap<LiveSeq, oneshot::Sender<Result<LiveOutcome, SendFault>>>,
    /// Requests to the key-value store; as many as the node has open.
    kv: BTreeMap<KvRequest, oneshot::Sender<KvSent>>,
}

/// Live messages without an outcome, at most.
const LIVE_MAX: usize = 4_096;

impl ApiLink {
    pub(super) const fn new(own: NodeId, presence: Presence) -> Self {
        Self {
            own,
            presence,
            mails: BTreeMap::new(),
            live: BTreeMap::new(),
            kv: BTreeMap::new(),
        }
    }

    fn send_live(
        &self,
        now: Instant,
        node: &mut Node,
        message: LiveMessage,
    ) -> Result<LiveSeq, SendFault> {
        if self.live.len() >= LIVE_MAX {
            return Err(SendFault::Full);
        }
        let sent = match message {
            LiveMessage::Forward(player, body) => node.forward(now, player, body),
            LiveMessage::Cast(topic, body) => node.cast(now, topic, body),
            LiveMessage::Kick(player, reason) => node.kick(now, player, reason),
        };
        Ok(sent?)
    }

    fn on_mail(&mut self, seq: SenderSeq, result: Result<(), SendFault>) {
        if let Some(answer) = self.mails.remove(&seq) {
            // The receiver may be gone, here and below.
            answer.send(result).unwrap_or_default();
        }
    }

    fn on_live(&mut self, first: LiveSeq, last: LiveSeq, outcome: Option<LiveOutcome>) {
        let mut rest = self.live.split_off(&first);
        let mut after = rest.split_off(&last.next());
        for answer in rest.into_values() {
            let result = outcome.ok_or(SendFault::HubDown);
            answer.send(result).unwrap_or_default();
        }
        self.live.append(&mut after);
    }
}

impl HubApplication for ApiLink {
    type Request = LinkRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: LinkRequest,
    ) -> ControlFlow<()> {
        match request {
            LinkRequest::Mail {
                player,
                body,
                ttl,
                answer,
            } => match node.mail(now, player, body, ttl) {
                Ok(seq) => drop(self.mails.insert(seq, answer)),
                Err(error) => drop(answer.send(Err(error.into()))),
            },
            LinkRequest::Live(message, answer) => match self.send_live(now, node, message) {
                Ok(live) => drop(self.live.insert(live, answer)),
                Err(fault) => drop(answer.send(Err(fault))),
            },
            LinkRequest::Kv(call, answer) => {
                let kv = node.kv();
                let sent = match call {
                    KvCall::Put(put) => kv.put(put),
                    KvCall::Delete(key, expected) => kv.delete(key, expected),
                    KvCall::Get(key) => kv.get(key),
                    KvCall::Range(range, limit) => kv.range(range, limit),
                };
                match sent {
                    Ok(request) => drop(self.kv.insert(request, answer)),
                    Err(error) => drop(answer.send(Ok(Err(error)))),
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::MailStored(seq) => self.on_mail(seq, Ok(())),
            NodeEvent::MailRefused(seq, refusal) => {
                self.on_mail(seq, Err(SendFault::Refused(refusal)));
            }
            NodeEvent::LiveSent {
                first,
                last,
                outcome,
            } => self.on_live(first, last, outcome),
            NodeEvent::KvAnswer { request, result } => {
                if let Some(answer) = self.kv.remove(&request) {
                    drop(answer.send(Ok(result)));
                }
            }
            NodeEvent::PresenceReset => self.presence.begin(),
            NodeEvent::NodePresence(node, info) if node != self.own => {
                self.presence.set_node(node, info);
            }
            NodeEvent::PlayerPresence(player, holder) => {
                let holder = holder.map(|(node, note)| (node, note.0));
                self.presence.set_player(player, holder);
            }
            NodeEvent::PresenceComplete => self.presence.complete(),
            NodeEvent::Request { ticket, .. } => {
                // Nobody calls the API by the hub.
                let refused = Err(hub::record::CallError::Unreachable);
                drop(node.reply(now, ticket, refused));
            }
            NodeEvent::Refused(reason) if reason != DownReason::Draining => {
                tracing::error!(%reason, "the hub refuses the node of its own API");
            }
            NodeEvent::Joined { .. }
            | NodeEvent::HubDown
            | NodeEvent::NodePresence(..)
            | NodeEvent::Refused(_)
            | NodeEvent::Reply { .. }
            | NodeEvent::Mail { .. }
            | NodeEvent::Claimed(_)
            | NodeEvent::ClaimLost(..)
            | NodeEvent::Broadcast { .. }
            | NodeEvent::MessageReady(_)
            | NodeEvent::SlowPlayer(_)
            | NodeEvent::MailboxEmpty(_)
            | NodeEvent::Missed(_)
            | NodeEvent::Kicked { .. }
            | NodeEvent::Cancelled(_)
            | NodeEvent::KvReset(_)
            | NodeEvent::KvChanged { .. }
            | NodeEvent::KvComplete { .. }
            | _ => {}
        }
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node) {
        node.leave(now);
    }
}
