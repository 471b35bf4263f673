//! The application of a client's node: sends requests, and passes outcomes and events on.

use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hub::kv::{KvError, KvKey, KvPrefix, KvPut, KvRange, Revision};
use hub::record::{CallError, LiveOutcome};
use hub::{Addr, CallId, KvRequest, LiveSeq, Name, Node, NodeEvent, SendError, SenderSeq, WatchId};
use servicer::HubApplication;
use wire::{ClientId, Instant};

use super::queue::EventQueue;
use super::reply::Reply;
use super::{HubClientEvent, HubOutcome, HubWatchId, NotSent};

/// A request.
pub(super) enum Op {
    Call(Addr, Bytes, Duration),
    Mail(ClientId, Bytes, Duration),
    Forward(ClientId, Bytes),
    Cast(Name, Bytes),
    Put(KvPut),
    Delete(KvKey, Option<Revision>),
    Get(KvKey),
    Range(KvRange, u16),
}

/// What the client asks of its thread.
pub(super) enum Order {
    Op(Op, Reply),
    Watch(HubWatchId, KvPrefix, Revision),
    Unwatch(HubWatchId),
}

wire::opaque_debug!(Order);

pub(super) struct ClientApplication {
    events: Arc<EventQueue>,
    is_up: Arc<AtomicBool>,
    calls: BTreeMap<CallId, Reply>,
    mails: BTreeMap<SenderSeq, Reply>,
    live: BTreeMap<LiveSeq, Reply>,
    keys: BTreeMap<KvRequest, Reply>,
    watches: BTreeMap<WatchId, HubWatchId>,
}

impl ClientApplication {
    pub(super) const fn new(events: Arc<EventQueue>, is_up: Arc<AtomicBool>) -> Self {
        Self {
            events,
            is_up,
            calls: BTreeMap::new(),
            mails: BTreeMap::new(),
            live: BTreeMap::new(),
            keys: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    fn send(&mut self, now: Instant, node: &mut Node, op: Op, reply: Reply) {
        match op {
            Op::Call(to, body, timeout) => {
                keep(&mut self.calls, node.call(now, to, body, timeout), reply);
            }
            Op::Mail(player, body, ttl) => {
                keep(&mut self.mails, node.mail(now, player, body, ttl), reply);
            }
            Op::Forward(player, body) => {
                keep(&mut self.live, node.forward(now, player, body), reply);
            }
            Op::Cast(topic, body) => keep(&mut self.live, node.cast(now, topic, body), reply),
            Op::Put(put) => self.keep_key(node.kv().put(put), reply),
            Op::Delete(key, expected) => self.keep_key(node.kv().delete(key, expected), reply),
            Op::Get(key) => self.keep_key(node.kv().get(key), reply),
            Op::Range(range, limit) => self.keep_key(node.kv().range(range, limit), reply),
        }
    }

    fn keep_key(&mut self, sent: Result<KvRequest, KvError>, reply: Reply) {
        match sent {
            Ok(request) => drop(self.keys.insert(request, reply)),
            Err(error) => reply.finish(HubOutcome::Key(Err(error))),
        }
    }

    fn on_live(&mut self, first: LiveSeq, last: LiveSeq, outcome: Option<LiveOutcome>) {
        let mut rest = self.live.split_off(&first);
        let mut after = rest.split_off(&last.next());
        for reply in rest.into_values() {
            reply.finish(HubOutcome::Live(outcome));
        }
        self.live.append(&mut after);
    }

    fn on_watch(
        &mut self,
        node: &mut Node,
        id: WatchId,
        event: impl FnOnce(HubWatchId) -> HubClientEvent,
    ) {
        let Some(watch) = self.watches.get(&id).copied() else {
            return;
        };
        if !self.events.try_push(event(watch)) {
            node.kv().unwatch(id);
            self.watches.remove(&id);
            self.events.push_end(HubClientEvent::WatchEnded(watch));
        }
    }

    fn unwatch(&mut self, node: &mut Node, watch: HubWatchId) {
        let mut watches = self.watches.iter();
        if let Some((id, _)) = watches.find(|(_, known)| **known == watch) {
            let id = *id;
            node.kv().unwatch(id);
            self.watches.remove(&id);
        }
    }
}

/// Keeps the reply until the outcome of what was sent.
fn keep<K: Ord>(open: &mut BTreeMap<K, Reply>, sent: Result<K, SendError>, reply: Reply) {
    let error = match sent {
        Ok(number) => {
            open.insert(number, reply);
            return;
        }
        Err(error) => error,
    };
    reply.finish(HubOutcome::NotSent(match error {
        SendError::HubDown(_) => NotSent::HubDown,
        SendError::TooLong(_) => NotSent::TooLong,
        SendError::Full(_) | SendError::Players(_) | _ => NotSent::Full,
    }));
}

fn finish<K: Ord>(open: &mut BTreeMap<K, Reply>, number: &K, outcome: HubOutcome) {
    if let Some(reply) = open.remove(number) {
        reply.finish(outcome);
    }
}

impl HubApplication for ClientApplication {
    type Request = Order;

    fn apply_request(&mut self, now: Instant, node: &mut Node, order: Order) -> ControlFlow<()> {
        match order {
            Order::Op(op, reply) => self.send(now, node, op, reply),
            Order::Watch(watch, prefix, from) => match node.kv().watch(prefix, from) {
                Ok(id) => drop(self.watches.insert(id, watch)),
                Err(_) => self.events.push_end(HubClientEvent::WatchEnded(watch)),
            },
            Order::Unwatch(watch) => self.unwatch(node, watch),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => {
                self.is_up.store(true, Ordering::Relaxed);
                self.events.push(HubClientEvent::Up);
            }
            NodeEvent::HubDown => {
                self.is_up.store(false, Ordering::Relaxed);
                self.events.push(HubClientEvent::Down);
            }
            NodeEvent::Refused(reason) => self.events.push(HubClientEvent::Refused(reason)),
            NodeEvent::Reply { call, result } => {
                finish(&mut self.calls, &call, HubOutcome::Reply(result));
            }
            NodeEvent::MailStored(seq) => finish(&mut self.mails, &seq, HubOutcome::Mail(Ok(()))),
            NodeEvent::MailRefused(seq, refusal) => {
                finish(&mut self.mails, &seq, HubOutcome::Mail(Err(refusal)));
            }
            NodeEvent::LiveSent {
                first,
                last,
                outcome,
            } => self.on_live(first, last, outcome),
            NodeEvent::KvAnswer { request, result } => {
                finish(&mut self.keys, &request, HubOutcome::Key(result));
            }
            NodeEvent::KvReset(id) => self.on_watch(node, id, HubClientEvent::KeyReset),
            NodeEvent::KvChanged { watch, change } => self.on_watch(node, watch, |watch| {
                HubClientEvent::KeyChanged { watch, change }
            }),
            NodeEvent::KvComplete { watch, revision } => self.on_watch(node, watch, |watch| {
                HubClientEvent::KeyComplete { watch, revision }
            }),
            NodeEvent::Request { ticket, .. } => {
                // It provides no service.
                drop(node.reply(now, ticket, Err(CallError::Unreachable)));
            }
            // It holds no player and subscribes to nothing.
            NodeEvent::Mail { .. }
            | NodeEvent::Claimed(_)
            | NodeEvent::ClaimLost(..)
            | NodeEvent::Broadcast { .. }
            | NodeEvent::MessageReady(_)
            | NodeEvent::SlowPlayer(_)
            | NodeEvent::MailboxEmpty(_)
            | NodeEvent::Missed(_)
            | NodeEvent::Kicked { .. }
            | NodeEvent::Cancelled(_)
            | NodeEvent::PresenceReset
            | NodeEvent::NodePresence(..)
            | NodeEvent::PlayerPresence(..)
            | NodeEvent::PresenceComplete
            | _ => {}
        }
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node) {
        node.leave(now);
    }
}
