//! Requests about groups that the hub has not answered.

use std::collections::BTreeSet;

use super::NodeEvent;
use crate::field::GroupRequest;
use crate::record::{GroupError, GroupToNode};

#[derive(Debug, Default)]
pub(super) struct GroupRequests {
    last: GroupRequest,
    open: BTreeSet<GroupRequest>,
}

impl GroupRequests {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn begin(&mut self) -> GroupRequest {
        self.last = self.last.next();
        self.open.insert(self.last);
        self.last
    }

    /// Ends a request; returns the event, unless it has ended before.
    pub(super) fn on_answer(&mut self, answer: GroupToNode) -> Option<NodeEvent> {
        let (request, event) = match answer {
            GroupToNode::Done { request, result } => {
                (request, NodeEvent::GroupDone { request, result })
            }
            GroupToNode::Members {
                request,
                players,
                more,
            } => {
                let players = players.iter().flat_map(|players| players.list().iter());
                let players = players.collect();
                let event = NodeEvent::GroupMembers {
                    request,
                    players,
                    more,
                };
                (request, event)
            }
            GroupToNode::Sent { request, outcome } => {
                (request, NodeEvent::GroupSent { request, outcome })
            }
        };
        self.open.remove(&request).then_some(event)
    }

    /// Ends all requests, since the link has closed.
    pub(super) fn on_down(&mut self) -> impl Iterator<Item = NodeEvent> + use<> {
        let open = core::mem::take(&mut self.open);
        open.into_iter().map(|request| NodeEvent::GroupDone {
            request,
            result: Err(GroupError::HubDown),
        })
    }
}
