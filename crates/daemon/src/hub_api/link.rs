//! The API's node: it sends what requests ask for, and watches presence.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hub::kv::{KvError, KvKey, KvLease, KvPrefix, KvPut, KvRange, Revision};
use hub::record::{DownReason, LiveOutcome, MailRefusal};
use hub::{KvAnswer, KvRequest, LiveSeq, Name, Node, NodeEvent, SendError, SenderSeq, WatchId};
use servicer::HubApplication;
use tokio::sync::oneshot;
use wire::{ClientId, Instant, NodeId};

use super::key_feed::{KeyFeed, KeyFeeds, KeyNews};
use super::lease_table::{LeaseFault, LeaseId, LeaseTable, PutEnd};
use super::mail_keys::{Known, MailKey, MailKeyLimits, MailKeys};
use super::presence::Presence;

/// A request of the API to its node.
#[derive(Debug)]
pub(super) enum LinkRequest {
    Mail(MailRequest, oneshot::Sender<Result<(), SendFault>>),
    Live(LiveMessage, oneshot::Sender<Result<LiveOutcome, SendFault>>),
    Kv(KvCall, oneshot::Sender<KvSent>),
    /// Watches the keys with a prefix, from the changes after a revision.
    Watch(
        KvPrefix,
        Revision,
        oneshot::Sender<Result<Arc<KeyFeed>, SendFault>>,
    ),
    Lease(LeaseCall, oneshot::Sender<Result<Lease, SendFault>>),
}

/// A mail to store.
#[derive(Debug)]
pub(super) struct MailRequest {
    pub(super) player: ClientId,
    pub(super) body: Bytes,
    /// Zero for the hub's own limit.
    pub(super) ttl: Duration,
    /// If a repetition must not be stored again.
    pub(super) key: Option<MailKey>,
}

/// A request about a lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseCall {
    Grant(Duration),
    Renew(LeaseId),
    End(LeaseId),
}

/// A lease and its length, which is zero once it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) ttl: Duration,
}

/// A request to the key-value store.
#[derive(Debug)]
pub(super) enum KvCall {
    /// With the lease that it has.
    Put(KvPut, Option<LeaseId>),
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
    /// The `Idempotency-Key` was used for another mail.
    OtherMail,
    /// As many watches as the hub allows a node are open.
    TooManyWatches,
    Lease(LeaseFault),
}

impl From<LeaseFault> for SendFault {
    fn from(fault: LeaseFault) -> Self {
        Self::Lease(fault)
    }
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
    mails: BTreeMap<SenderSeq, MailWaiting>,
    mail_keys: MailKeys,
    /// Live messages without an outcome.
    live: BTreeMap<LiveSeq, oneshot::Sender<Result<LiveOutcome, SendFault>>>,
    /// Requests to the key-value store; as many as the node has open.
    kv: BTreeMap<KvRequest, KvWaiting>,
    feeds: KeyFeeds,
    leases: LeaseTable,
}

/// The requests that wait for the verdict of a mail.
struct MailWaiting {
    answers: Vec<oneshot::Sender<Result<(), SendFault>>>,
    /// Its key.
    id: Option<[u8; 32]>,
}

/// Requests that wait for one mail, at most.
const MAIL_WAITING_MAX: usize = 16;

/// What waits for an answer of the key-value store.
enum KvWaiting {
    Read(oneshot::Sender<KvSent>),
    Put(KvKey, Option<LeaseId>, oneshot::Sender<KvSent>),
    Delete(KvKey, oneshot::Sender<KvSent>),
    /// A key of an ended lease is read.
    EndingRead(KvKey),
    /// A key of an ended lease is deleted.
    EndingDelete(KvKey),
}

/// Live messages without an outcome, at most.
const LIVE_MAX: usize = 4_096;

impl ApiLink {
    /// Creates the application of the node `own`; draw `run` at random.
    pub(super) fn new(own: NodeId, presence: Presence, run: u32, mail_keys: MailKeyLimits) -> Self {
        Self {
            own,
            presence,
            mail_keys: MailKeys::new(mail_keys),
            feeds: KeyFeeds::default(),
            leases: LeaseTable::new(run),
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

    fn send_mail(
        &mut self,
        now: Instant,
        node: &mut Node,
        mail: MailRequest,
        answer: oneshot::Sender<Result<(), SendFault>>,
    ) {
        let MailRequest {
            player,
            body,
            ttl,
            key,
        } = mail;
        let known = key.map_or(Known::New, |key| self.mail_keys.begin(now, &key));
        let result = match known {
            Known::New => {
                let id = key.map(|key| key.id);
                match node.mail(now, player, body, ttl) {
                    Ok(seq) => {
                        if let Some(id) = id {
                            self.mail_keys.sent(id, seq);
                        }
                        let answers = vec![answer];
                        self.mails.insert(seq, MailWaiting { answers, id });
                        return;
                    }
                    Err(error) => {
                        if let Some(id) = id {
                            self.mail_keys.forget(id);
                        }
                        Err(error.into())
                    }
                }
            }
            Known::Open(seq) => match self.mails.get_mut(&seq) {
                Some(waiting) if waiting.answers.len() < MAIL_WAITING_MAX => {
                    waiting.answers.retain(|answer| !answer.is_closed());
                    waiting.answers.push(answer);
                    return;
                }
                Some(_) | None => Err(SendFault::Full),
            },
            Known::Stored => Ok(()),
            Known::OtherMail => Err(SendFault::OtherMail),
            Known::Full => Err(SendFault::Full),
        };
        // The receiver may be gone, here and below.
        answer.send(result).unwrap_or_default();
    }

    fn on_mail(&mut self, now: Instant, seq: SenderSeq, result: Result<(), SendFault>) {
        let Some(MailWaiting { answers, id }) = self.mails.remove(&seq) else {
            return;
        };
        if let Some(id) = id {
            match result {
                Ok(()) => self.mail_keys.stored(now, id),
                Err(_) => self.mail_keys.forget(id),
            }
        }
        for answer in answers {
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

/// Keys.
impl ApiLink {
    fn send_kv(
        &mut self,
        now: Instant,
        node: &mut Node,
        call: KvCall,
        answer: oneshot::Sender<KvSent>,
    ) {
        if let KvCall::Put(_, Some(lease)) = &call
            && let Err(fault) = self.leases.begin_put(now, *lease)
        {
            // The receiver may be gone, here and below.
            drop(answer.send(Err(fault.into())));
            return;
        }
        let kv = node.kv();
        let (sent, waiting) = match call {
            KvCall::Put(mut put, lease) => {
                let key = put.key.clone();
                put.lease = lease.is_some();
                (kv.put(put), KvWaiting::Put(key, lease, answer))
            }
            KvCall::Delete(key, expected) => {
                let sent = kv.delete(key.clone(), expected);
                (sent, KvWaiting::Delete(key, answer))
            }
            KvCall::Get(key) => (kv.get(key), KvWaiting::Read(answer)),
            KvCall::Range(range, limit) => (kv.range(range, limit), KvWaiting::Read(answer)),
        };
        match sent {
            Ok(request) => drop(self.kv.insert(request, waiting)),
            Err(error) => self.end_kv(now, waiting, Err(error)),
        }
    }

    fn on_kv(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: KvRequest,
        result: Result<KvAnswer, KvError>,
    ) {
        match self.kv.remove(&request) {
            None => {}
            Some(KvWaiting::EndingRead(key)) => self.on_ending_read(now, node, key, result),
            Some(waiting) => self.end_kv(now, waiting, result),
        }
    }

    fn end_kv(&mut self, now: Instant, waiting: KvWaiting, result: Result<KvAnswer, KvError>) {
        match waiting {
            KvWaiting::Read(answer) => drop(answer.send(Ok(result))),
            KvWaiting::Put(key, lease, answer) => {
                let end = match &result {
                    Ok(_) => PutEnd::Written,
                    Err(KvError::Unknown) => PutEnd::Unknown,
                    Err(_) => PutEnd::NotWritten,
                };
                self.leases.end_put(now, (&key, lease), end);
                drop(answer.send(Ok(result)));
            }
            KvWaiting::Delete(key, answer) => {
                if result.is_ok() {
                    self.leases.release(&key);
                }
                drop(answer.send(Ok(result)));
            }
            // Its read was not sent.
            KvWaiting::EndingRead(key) => self.leases.retry(now, &key),
            KvWaiting::EndingDelete(key) => match result {
                Ok(_) | Err(KvError::Conflict { .. } | KvError::NotFound) => {
                    self.leases.ended(&key);
                }
                Err(_) => self.leases.retry(now, &key),
            },
        }
    }

    /// Reads keys of ended leases.
    fn end_keys(&mut self, now: Instant, node: &mut Node) {
        while let Some(key) = self.leases.next_ending(now) {
            match node.kv().get(key.clone()) {
                Ok(request) => drop(self.kv.insert(request, KvWaiting::EndingRead(key))),
                Err(_) => self.leases.retry(now, &key),
            }
        }
    }

    fn on_ending_read(
        &mut self,
        now: Instant,
        node: &mut Node,
        key: KvKey,
        result: Result<KvAnswer, KvError>,
    ) {
        if !self.leases.is_ending(&key) {
            return;
        }
        let Ok(KvAnswer::Entry(entry)) = result else {
            self.leases.retry(now, &key);
            return;
        };
        let is_own = |lease: Option<KvLease>| lease.is_some_and(|lease| lease.node == self.own);
        let Some(entry) = entry.filter(|entry| is_own(entry.lease)) else {
            self.leases.ended(&key);
            return;
        };
        match node.kv().delete(key.clone(), Some(entry.revision)) {
            Ok(request) => drop(self.kv.insert(request, KvWaiting::EndingDelete(key))),
            Err(_) => self.leases.retry(now, &key),
        }
    }

    fn on_news(&mut self, node: &mut Node, watch: WatchId, news: KeyNews) {
        if !self.feeds.push(watch, news) {
            node.kv().unwatch(watch);
        }
    }

    fn on_lease(&mut self, now: Instant, call: LeaseCall) -> Result<Lease, SendFault> {
        let (id, ttl) = match call {
            LeaseCall::Grant(ttl) => (self.leases.grant(now, ttl)?, ttl),
            LeaseCall::Renew(id) => (id, self.leases.renew(now, id)?),
            LeaseCall::End(id) => {
                self.leases.end(now, id)?;
                (id, Duration::ZERO)
            }
        };
        Ok(Lease { id, ttl })
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
            LinkRequest::Mail(mail, answer) => self.send_mail(now, node, mail, answer),
            LinkRequest::Live(message, answer) => match self.send_live(now, node, message) {
                Ok(live) => drop(self.live.insert(live, answer)),
                Err(fault) => drop(answer.send(Err(fault))),
            },
            LinkRequest::Kv(call, answer) => self.send_kv(now, node, call, answer),
            LinkRequest::Watch(prefix, from, answer) => {
                while let Some(unread) = self.feeds.remove_unread() {
                    node.kv().unwatch(unread);
                }
                let watch = node.kv().watch(prefix, from);
                let feed = watch.map(|watch| self.feeds.begin(watch));
                drop(answer.send(feed.map_err(|_| SendFault::TooManyWatches)));
            }
            LinkRequest::Lease(call, answer) => {
                answer.send(self.on_lease(now, call)).unwrap_or_default();
                self.end_keys(now, node);
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::MailStored(seq) => self.on_mail(now, seq, Ok(())),
            NodeEvent::MailRefused(seq, refusal) => {
                self.on_mail(now, seq, Err(SendFault::Refused(refusal)));
            }
            NodeEvent::LiveSent {
                first,
                last,
                outcome,
            } => self.on_live(first, last, outcome),
            NodeEvent::KvAnswer { request, result } => {
                self.on_kv(now, node, request, result);
                self.end_keys(now, node);
            }
            NodeEvent::KvReset(watch) => self.on_news(node, watch, KeyNews::Reset),
            NodeEvent::KvChanged { watch, change } => {
                self.on_news(node, watch, KeyNews::Changed(change));
            }
            NodeEvent::KvComplete { watch, revision } => {
                self.on_news(node, watch, KeyNews::Complete(revision));
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
            | _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.leases.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        self.leases.handle_timeout(now);
        self.end_keys(now, node);
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node) {
        node.leave(now);
    }
}
