//! Setup of one path for up to 64 flows, in two rounds of requests.
//!
//! In the first round, every node behind the first relay reserves labels, all in parallel. In the
//! second, each relay binds its labels to those of the next node, and the first relay reserves and
//! binds with one request. This takes two round trips to the farthest node, or one without a relay.
//! Nothing is retransmitted, since sessions are reliable.

use core::time::Duration;

use udp_proto::SessionId;
use wire::{Instant, NodeId};

use crate::flow_key::FlowId;
use crate::hop::{LabelName, NextLabel};
use crate::route_request::{
    Bind, Granted, GrantedNext, Refused, RequestId, RouteReply, RouteRequest,
};

#[derive(Debug)]
pub(crate) struct PathSetup {
    /// Relays in order, then the remote end.
    hops: Vec<Hop>,
    flows: Vec<FlowId>,
    /// Flows that the remote end refused.
    refused: Vec<FlowId>,
    /// Labels that other nodes granted for these flows.
    idle: Vec<HeldLabel>,
    /// When the setup times out.
    deadline: Instant,
}

#[derive(Debug)]
struct Hop {
    node: NodeId,
    /// The pending request.
    waits_for: Option<RequestId>,
    /// The session over which the last answer arrived.
    session: Option<SessionId>,
    /// The labels that it reserved.
    granted: Vec<Granted>,
    /// Whether it forwards frames: its labels are bound, or it is the remote end.
    is_bound: bool,
}

/// A granted label. It may be released only over the same session: after a restart, the node may
/// have granted it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLabel {
    pub(crate) session: SessionId,
    pub(crate) label: LabelName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRequest {
    pub(crate) node: NodeId,
    pub(crate) id: RequestId,
    pub(crate) request: RouteRequest,
}

/// State of a setup after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Send these requests, if any; more replies are pending.
    Pending(Vec<NodeRequest>),
    Ready {
        /// Each flow and its label at the first hop.
        labels: Vec<(FlowId, NextLabel)>,
        /// Flows that the remote end does not know, or that have too many labels there.
        refused: Vec<FlowId>,
    },
    Failed(Refused),
}

impl PathSetup {
    /// Starts the setup of `path` for 1 to 64 flows. Returns the requests to send.
    pub(crate) fn start(
        now: Instant,
        own: NodeId,
        (relays, remote_end, path): (&[NodeId], NodeId, u8),
        flows: Vec<FlowId>,
        ids: &mut impl FnMut() -> RequestId,
    ) -> (Self, Vec<NodeRequest>) {
        let count = u8::try_from(flows.len()).unwrap_or(u8::MAX);
        let mut previous = own;
        let (mut hops, mut requests) = (Vec::new(), Vec::new());
        for &node in relays.iter().chain([&remote_end]) {
            let is_remote_end = hops.len() == relays.len();
            let request = if is_remote_end {
                Some(RouteRequest::ReserveTerminal {
                    previous,
                    flows: flows.clone(),
                    path,
                })
            } else {
                // The first relay's request needs the labels of the next node.
                let is_first = hops.is_empty();
                (!is_first).then_some(RouteRequest::ReserveTransit { previous, count })
            };
            let waits_for = request.is_some().then(&mut *ids);
            let ask = waits_for.zip(request);
            requests.extend(ask.map(|(id, request)| NodeRequest { node, id, request }));
            hops.push(Hop {
                node,
                waits_for,
                session: None,
                granted: Vec::new(),
                is_bound: is_remote_end,
            });
            previous = node;
        }
        let setup = Self {
            hops,
            flows,
            refused: Vec::new(),
            idle: Vec::new(),
            deadline: now + TIMEOUT,
        };
        (setup, requests)
    }

    pub(crate) fn waits_for(&self, node: NodeId, id: RequestId) -> bool {
        let mut hops = self.hops.iter();
        hops.any(|hop| hop.node == node && hop.waits_for == Some(id))
    }

    /// Records the session over which the answer to a request arrives.
    pub(crate) fn record_session(&mut self, id: RequestId, session: Option<SessionId>) {
        let asked = self.hops.iter_mut().find(|hop| hop.waits_for == Some(id));
        if let Some(hop) = asked {
            hop.session = session;
        }
    }

    pub(crate) fn on_reply(
        &mut self,
        id: RequestId,
        reply: RouteReply,
        ids: &mut impl FnMut() -> RequestId,
    ) -> Progress {
        let count = self.flows.len();
        let mut hops = (0..).zip(&mut self.hops);
        let Some((place, hop)) = hops.find(|(_, hop)| hop.waits_for == Some(id)) else {
            return Progress::Pending(Vec::new());
        };
        // A relay does not know flows, so its refusal is about the path.
        let is_remote_end = hops.next().is_none();
        hop.waits_for = None;
        match reply {
            RouteReply::Refused(Refused::UnknownFlow)
                if is_remote_end && !self.flows.contains(&FlowId::PROBE) =>
            {
                return Progress::Ready {
                    labels: Vec::new(),
                    refused: core::mem::take(&mut self.flows),
                };
            }
            RouteReply::Refused(why) => return Progress::Failed(why),
            RouteReply::Done(granted) if !is_remote_end && granted.iter().any(Granted::is_none) => {
                return Progress::Failed(Refused::BadLabel);
            }
            RouteReply::Done(granted) if hop.granted.is_empty() && granted.len() == count => {
                hop.granted = granted;
                hop.is_bound |= place == 0;
            }
            RouteReply::Done(granted) if !hop.granted.is_empty() && granted.is_empty() => {
                hop.is_bound = true;
            }
            RouteReply::Done(_) => return Progress::Failed(Refused::BadLabel),
        }
        if self.hops.iter().any(|hop| hop.waits_for.is_some()) {
            return Progress::Pending(Vec::new());
        }
        self.drop_refused();
        if self.refused.contains(&FlowId::PROBE) {
            return Progress::Failed(Refused::UnknownFlow);
        }
        if self.flows.is_empty() || self.hops.iter().all(|hop| hop.is_bound) {
            return Progress::Ready {
                labels: self.first_labels(),
                refused: core::mem::take(&mut self.refused),
            };
        }
        Progress::Pending(self.bind(ids))
    }

    /// Removes the flows that got no label from the remote end.
    fn drop_refused(&mut self) {
        let remote_end = self.hops.last().map_or(&[][..], |hop| &hop.granted);
        let refused: Vec<bool> = remote_end.iter().map(Granted::is_none).collect();
        for hop in &mut self.hops {
            let mut refused = refused.iter();
            let granted = &mut hop.granted;
            let out = granted.extract_if(.., |_| refused.next() == Some(&true));
            self.idle.extend(held(hop.session, out));
        }
        let mut refused = refused.iter();
        let out = self.flows.extract_if(.., |_| refused.next() == Some(&true));
        self.refused.extend(out);
    }

    pub(crate) fn take_held(&mut self, flow: FlowId) -> Vec<HeldLabel> {
        let Some(place) = self.flows.iter().position(|known| *known == flow) else {
            return Vec::new();
        };
        self.flows.remove(place);
        let mut taken = Vec::with_capacity(self.hops.len());
        for hop in &mut self.hops {
            if place < hop.granted.len() {
                taken.extend(held(hop.session, [hop.granted.remove(place)]));
            }
        }
        taken
    }

    /// Returns all remaining labels that were granted.
    pub(crate) fn into_held(self) -> Vec<HeldLabel> {
        let mut all = self.idle;
        for hop in self.hops {
            all.extend(held(hop.session, hop.granted));
        }
        all
    }

    pub(crate) fn passes(&self, node: NodeId) -> bool {
        self.hops.iter().any(|hop| hop.node == node)
    }

    pub(crate) fn flows(&self) -> &[FlowId] {
        &self.flows
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The second round, starting with the remote end's neighbour.
    fn bind(&mut self, ids: &mut impl FnMut() -> RequestId) -> Vec<NodeRequest> {
        let mut requests = Vec::new();
        let mut next: Option<(NodeId, Vec<Granted>)> = None;
        for (place, hop) in self.hops.iter_mut().enumerate().rev() {
            if let Some((next, granted)) = next
                && !hop.is_bound
            {
                let to = granted.iter().map(|next| GrantedNext {
                    next: next.next(),
                    grant: next.grant,
                });
                let request = if place == 0 {
                    let to = to.collect();
                    RouteRequest::PassOn { next, to }
                } else {
                    let binds = hop.granted.iter().zip(to).map(|(own, to)| Bind {
                        label: own.label,
                        next: to.next,
                        grant: to.grant,
                    });
                    let binds = binds.collect();
                    RouteRequest::Bind { next, binds }
                };
                let id = ids();
                hop.waits_for = Some(id);
                requests.push(NodeRequest {
                    node: hop.node,
                    id,
                    request,
                });
            }
            next = Some((hop.node, hop.granted.clone()));
        }
        requests
    }

    fn first_labels(&self) -> Vec<(FlowId, NextLabel)> {
        let granted = self.hops.first().map_or(&[][..], |hop| &hop.granted);
        let flows = self.flows.iter().copied();
        flows.zip(granted.iter().map(Granted::next)).collect()
    }
}

/// Returns the labels granted over `session`.
pub(crate) fn held(
    session: Option<SessionId>,
    granted: impl IntoIterator<Item = Granted>,
) -> impl Iterator<Item = HeldLabel> {
    let labels = granted.into_iter().filter(|granted| !granted.is_none());
    labels.filter_map(move |granted| {
        session.map(|session| HeldLabel {
            session,
            label: granted.label,
        })
    })
}

/// Timeout of a setup: three times two round trips on the slowest usable path, plus one loss.
const TIMEOUT: Duration = Duration::from_secs(4);

#[cfg(test)]
pub(crate) mod tests;
