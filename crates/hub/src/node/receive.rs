//! What the hub says, and what a node makes of it.

use bytes::Bytes;
use wire::{ClientId, ConnectionId};

use super::held::Delivered;
use super::link::LinkState;
use super::{Node, NodeEvent, Ticket};
use crate::id::{CallId, ClaimNumber, Lease, SenderSeq};
use crate::record::{
    CallError, Delivery, DownReason, MailVerdict, Request, RevokeReason, ToHub, ToNode,
};

impl Node {
    pub(super) fn on_frame(&mut self, connection: ConnectionId, record: &[u8]) {
        if self.link.connection() != Some(connection) {
            return;
        }
        let Ok(record) = ToNode::decode(record) else {
            self.stats.malformed = self.stats.malformed.saturating_add(1);
            self.on_refused(connection, DownReason::Protocol);
            return;
        };
        if let LinkState::Up { heard, .. } = &mut self.link {
            *heard = self.now;
        }
        match (self.link, record) {
            (_, ToNode::Down(reason)) => self.on_refused(connection, reason),
            (
                LinkState::Joining { .. },
                ToNode::Joined {
                    epoch,
                    log,
                    count_mark,
                    ..
                },
            ) => {
                self.counter.on_counted(count_mark);
                // Numbers of mails begin anew with a log: what they said of the last one is void.
                if self.log.replace(log).is_some_and(|last| last != log) {
                    self.players.forget_marks();
                }
                self.on_joined(connection);
                self.epoch = epoch;
                self.events.push_back(NodeEvent::Joined { epoch, log });
            }
            (LinkState::Up { .. }, record) => self.on_record(connection, record),
            _ => {}
        }
    }

    fn on_record(&mut self, connection: ConnectionId, record: ToNode<'_>) {
        match record {
            ToNode::Request(request) => self.on_request(connection, &request),
            ToNode::Reply { call, result } => self.on_reply(call, result),
            ToNode::MailSettled {
                first,
                last,
                verdict,
                retry_ms,
            } => self.on_settled((first, last), verdict, retry_ms),
            ToNode::Deliver(delivery) => self.on_delivery(&delivery),
            ToNode::Granted {
                player,
                claim,
                lease,
            } => self.on_granted(player, claim, lease),
            ToNode::Revoked {
                player,
                claim,
                reason,
            } => self.on_revoked(player, claim, reason),
            ToNode::Broadcast { from, topic, body } => {
                if self.events.len() >= self.config.events_max {
                    self.stats.broadcasts_dropped = self.stats.broadcasts_dropped.saturating_add(1);
                    return;
                }
                let body = Bytes::copy_from_slice(body);
                self.events
                    .push_back(NodeEvent::Broadcast { from, topic, body });
            }
            ToNode::Counted { upto } => self.counter.on_counted(upto),
            ToNode::PresenceReset => self.events.push_back(NodeEvent::PresenceReset),
            ToNode::PresenceNode { node, seen } => {
                self.events.push_back(NodeEvent::NodePresence(node, seen));
            }
            ToNode::PresencePlayer { player, holder } => {
                let holder = holder.map(|(node, meta)| (node, Bytes::copy_from_slice(meta)));
                self.events
                    .push_back(NodeEvent::PlayerPresence(player, holder));
            }
            ToNode::PresenceComplete => self.events.push_back(NodeEvent::PresenceComplete),
            ToNode::Heartbeat | ToNode::Joined { .. } | ToNode::Down(_) => {}
        }
    }

    fn on_request(&mut self, connection: ConnectionId, request: &Request<'_>) {
        if self.events.len() >= self.config.events_max {
            self.stats.requests_refused = self.stats.requests_refused.saturating_add(1);
            // Where even this does not fit, the caller's time runs out.
            if self.outbox_bytes < self.config.outbox_bytes_max {
                self.push(&ToHub::Reply {
                    request: request.request,
                    result: Err(CallError::Busy),
                });
            }
            return;
        }
        self.events.push_back(NodeEvent::Request {
            ticket: Ticket {
                link: connection,
                request: request.request,
            },
            from: request.from,
            instance: request.instance,
            to: request.to,
            body: Bytes::copy_from_slice(request.body),
        });
    }

    fn on_reply(&mut self, call: CallId, result: Result<&[u8], CallError>) {
        if !self.end_call(call) {
            self.stats.replies_unknown = self.stats.replies_unknown.saturating_add(1);
            return;
        }
        let result = result.map(Bytes::copy_from_slice);
        self.events.push_back(NodeEvent::Reply { call, result });
    }

    fn on_settled(&mut self, run: (SenderSeq, SenderSeq), verdict: MailVerdict, retry_ms: u32) {
        let (first, last) = run;
        if verdict == MailVerdict::Busy {
            let wait = core::time::Duration::from_millis(retry_ms.into());
            self.outgoing
                .pause(last, self.now, wait, &mut self.generator);
            return;
        }
        for seq in self.outgoing.settle(first, last) {
            self.events.push_back(match verdict {
                MailVerdict::Refused(reason) => NodeEvent::MailRefused(seq, reason),
                MailVerdict::Stored | MailVerdict::Busy => NodeEvent::MailStored(seq),
            });
        }
    }

    fn on_delivery(&mut self, delivery: &Delivery<'_>) {
        let (player, claim) = (delivery.player, delivery.claim);
        match self.players.deliver(player, claim, delivery.seq) {
            Delivered::New(claim) => self.events.push_back(NodeEvent::Mail {
                claim,
                seq: delivery.seq,
                from: delivery.from,
                body: Bytes::copy_from_slice(delivery.body),
            }),
            Delivered::Repeated => {
                self.stats.mail_repeated = self.stats.mail_repeated.saturating_add(1);
            }
            Delivered::Stray => self.stats.mail_stray = self.stats.mail_stray.saturating_add(1),
        }
    }

    fn on_granted(&mut self, player: ClientId, number: ClaimNumber, lease: Lease) {
        if let Some(held) = self.players.get_mut(player, number) {
            held.lease = lease;
            self.events.push_back(NodeEvent::Claimed(held.claim));
        }
    }

    fn on_revoked(&mut self, player: ClientId, number: ClaimNumber, reason: RevokeReason) {
        // Word of an earlier claim says nothing about this one.
        let claim = self.players.get_mut(player, number).map(|held| held.claim);
        if let Some(claim) = claim {
            self.players.remove(player);
            self.events.push_back(NodeEvent::ClaimLost(claim, reason));
        }
    }
}
