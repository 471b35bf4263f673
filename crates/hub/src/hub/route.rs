//! Live traffic: calls, replies, broadcasts.

use core::time::Duration;

use bytes::Bytes;
use wire::{ConnectionId, NodeId};

use super::Hub;
use super::call::OpenCall;
use super::link::Link;
use crate::address::Addr;
use crate::id::{CallId, RequestId};
use crate::name::Name;
use crate::record::{CallError, Request, ToNode};

/// A call as a node asks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) call: CallId,
    pub(super) timeout_ms: u32,
    pub(super) to: Addr,
    pub(super) body: &'a [u8],
}

impl Hub {
    pub(super) fn on_call(&mut self, caller: ConnectionId, asked: Asked<'_>) {
        match self.pass_on(caller, asked) {
            Ok(()) => self.stats.calls = self.stats.calls.saturating_add(1),
            Err(error) => {
                self.stats.calls_failed = self.stats.calls_failed.saturating_add(1);
                let result = Err(error);
                self.send(
                    caller,
                    &ToNode::Reply {
                        call: asked.call,
                        result,
                    },
                );
            }
        }
    }

    fn pass_on(&mut self, caller: ConnectionId, asked: Asked<'_>) -> Result<(), CallError> {
        let callee = self.route(asked.to)?;
        if asked.timeout_ms == 0 {
            return Err(CallError::TimedOut);
        }
        let link = self.links.get(&caller).ok_or(CallError::NodeDown)?;
        let member = link.member().ok_or(CallError::NodeDown)?;
        let (from, instance) = (link.node, member.instance);
        let asking = self.calls.asking(from);
        let bytes = asking.bytes.saturating_add(asked.body.len());
        // Half of what the one asked takes, so that one caller does not take it from all others.
        let is_too_much = asking.count > 0 && bytes > self.config.link_bytes_max / 2;
        if asking.count >= self.config.calls_max || is_too_much {
            return Err(CallError::Busy);
        }
        let target = self.links.get_mut(&callee).ok_or(CallError::NodeDown)?;
        if target.outbox_bytes().saturating_add(asked.body.len()) > self.config.link_bytes_max {
            return Err(CallError::Busy);
        }
        let timeout =
            Duration::from_millis(asked.timeout_ms.into()).min(self.config.call_timeout_max);
        let request = self.calls.open(OpenCall {
            caller,
            from,
            call: asked.call,
            callee,
            len: asked.body.len(),
            deadline: self.now + timeout,
        });
        let record = ToNode::Request(Request {
            request,
            from,
            instance,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            to: asked.to,
            body: asked.body,
        });
        target.push_request(request, &record, &mut self.scratch);
        self.ready.insert(callee);
        Ok(())
    }

    pub(super) fn on_reply(
        &mut self,
        callee: ConnectionId,
        request: RequestId,
        result: Result<&[u8], CallError>,
    ) {
        let Some(call) = self.calls.answer(request, callee) else {
            self.stats.replies_unknown = self.stats.replies_unknown.saturating_add(1);
            return;
        };
        let waiting = self.links.get(&call.caller).map_or(0, Link::outbox_bytes);
        // An answer that finds no room fails; that it has failed is short and always told.
        let result = result.and_then(|body| {
            let is_full = waiting.saturating_add(body.len()) > self.config.link_bytes_max;
            if is_full {
                Err(CallError::Busy)
            } else {
                Ok(body)
            }
        });
        self.send(
            call.caller,
            &ToNode::Reply {
                call: call.call,
                result,
            },
        );
    }

    pub(super) fn on_broadcast(&mut self, from: ConnectionId, topic: Name, body: &[u8]) {
        let Some(node) = self.links.get(&from).map(|link| link.node) else {
            return;
        };
        let record = ToNode::Broadcast {
            from: node,
            topic,
            body,
        };
        self.scratch.clear();
        record.encode(&mut self.scratch);
        // Encoded once, shared by all receivers.
        let record = Bytes::copy_from_slice(&self.scratch);
        for id in self.joined.values().filter(|id| **id != from) {
            let Some(link) = self.links.get_mut(id) else {
                continue;
            };
            let waiting = link.outbox_bytes().saturating_add(record.len());
            // Half of the room: news does not keep requests and answers out.
            if waiting > self.config.link_bytes_max / 2 {
                self.stats.broadcasts_dropped = self.stats.broadcasts_dropped.saturating_add(1);
            } else {
                self.stats.broadcasts = self.stats.broadcasts.saturating_add(1);
                link.push_encoded(record.clone());
                self.ready.insert(*id);
            }
        }
    }

    /// Finds who answers at an address.
    fn route(&self, to: Addr) -> Result<ConnectionId, CallError> {
        match to {
            Addr::Player(player) => {
                let claim = self.claims.get(player).ok_or(CallError::Unreachable)?;
                self.live_link(claim).ok_or(CallError::NodeDown)
            }
            Addr::Node(node) => self
                .joined
                .get(&node)
                .copied()
                .ok_or(CallError::Unreachable),
            Addr::Service(service) => {
                let first = (service, NodeId([0; 32]));
                let last = (service, NodeId([u8::MAX; 32]));
                // The least busy, and of those the lowest id.
                self.services
                    .range(first..=last)
                    .filter_map(|(_, node)| self.joined.get(node).copied())
                    .min_by_key(|id| self.calls.load(*id))
                    .ok_or(CallError::Unreachable)
            }
            Addr::Topic(_) => Err(CallError::Unreachable),
        }
    }
}
