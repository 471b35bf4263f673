//! One path for up to 64 flows, set up in two rounds of requests.
//!
//! First every node behind the first relay reserves labels, all at once; then each relay binds its labels to
//! those of the node behind it, the far end's neighbour first, and the first relay reserves and binds by one
//! request. With sessions up that takes two round trips to the farthest node, one where no relay is on the
//! path; and one request to the far end and to the first relay, two to each between them. A set-up sends
//! nothing twice: sessions are reliable, and one that hears nothing for [`PATIENCE`] has failed.

use core::time::Duration;

use udp_proto::SessionId;
use wire::{Instant, NodeId};

use crate::flow_key::FlowId;
use crate::hop::LabelName;
use crate::hop_key::NextLabel;
use crate::route_request::{
    Bind, Granted, GrantedNext, Refused, RequestId, RouteReply, RouteRequest,
};

/// A path being set up.
#[derive(Debug)]
pub(crate) struct PathSetup {
    /// Relays in order, then the far end.
    hops: Vec<Hop>,
    flows: Vec<FlowId>,
    /// Of those asked for, what the far end refused.
    refused: Vec<FlowId>,
    /// What others had given for these.
    idle: Vec<Held>,
    /// When it has failed.
    deadline: Instant,
}

#[derive(Debug)]
struct Hop {
    node: NodeId,
    /// The request that is not answered.
    waits_for: Option<RequestId>,
    /// Over which the last answer came.
    session: Option<SessionId>,
    /// What it reserved.
    granted: Vec<Granted>,
    /// Whether frames pass it: bound, or the far end.
    is_bound: bool,
}

/// A label that a node gave out, to be given back over the same session or not at all: after a new
/// start the node may have given the name to something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) session: SessionId,
    pub(crate) label: LabelName,
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) node: NodeId,
    pub(crate) id: RequestId,
    pub(crate) request: RouteRequest,
}

/// How a set-up stands after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// These are to be sent, if any; more replies must come.
    Pending(Vec<Ask>),
    /// Done.
    Ready {
        /// Each flow and its label at the first hop.
        labels: Vec<(FlowId, NextLabel)>,
        /// Flows that the far end does not know, or has given too many labels.
        refused: Vec<FlowId>,
    },
    /// It cannot be.
    Failed(Refused),
}

impl PathSetup {
    /// Starts the set-up of `path`, from `own` through `relays` to `far_end`; returns what to send.
    /// `flows` are 1 to 64.
    pub(crate) fn start(
        now: Instant,
        own: NodeId,
        (relays, far_end, path): (&[NodeId], NodeId, u8),
        flows: Vec<FlowId>,
        ids: &mut impl FnMut() -> RequestId,
    ) -> (Self, Vec<Ask>) {
        let count = u8::try_from(flows.len()).unwrap_or(u8::MAX);
        let mut previous = own;
        let (mut hops, mut asks) = (Vec::new(), Vec::new());
        for &node in relays.iter().chain([&far_end]) {
            let is_far_end = hops.len() == relays.len();
            let request = if is_far_end {
                Some(RouteRequest::ReserveTerminal {
                    previous,
                    flows: flows.clone(),
                    path,
                })
            } else {
                // The first relay is asked once all is known that it needs.
                let is_first = hops.is_empty();
                (!is_first).then_some(RouteRequest::ReserveTransit { previous, count })
            };
            let waits_for = request.is_some().then(&mut *ids);
            let ask = waits_for.zip(request);
            asks.extend(ask.map(|(id, request)| Ask { node, id, request }));
            hops.push(Hop {
                node,
                waits_for,
                session: None,
                granted: Vec::new(),
                is_bound: is_far_end,
            });
            previous = node;
        }
        let setup = Self {
            hops,
            flows,
            refused: Vec::new(),
            idle: Vec::new(),
            deadline: now + PATIENCE,
        };
        (setup, asks)
    }

    /// Returns whether the request is one of this set-up's.
    pub(crate) fn waits_for(&self, node: NodeId, id: RequestId) -> bool {
        self.hops
            .iter()
            .any(|hop| hop.node == node && hop.waits_for == Some(id))
    }

    /// Takes down over which session the answer to a request comes.
    pub(crate) fn note_session(&mut self, id: RequestId, session: Option<SessionId>) {
        let asked = self.hops.iter_mut().find(|hop| hop.waits_for == Some(id));
        if let Some(hop) = asked {
            hop.session = session;
        }
    }

    /// Takes the reply to a request of this set-up.
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
        // What a relay says of flows, of which it knows nothing, is said of the path.
        let is_far_end = hops.next().is_none();
        hop.waits_for = None;
        match reply {
            RouteReply::Refused(Refused::UnknownFlow)
                if is_far_end && !self.flows.contains(&FlowId::PROBE) =>
            {
                return Progress::Ready {
                    labels: Vec::new(),
                    refused: core::mem::take(&mut self.flows),
                };
            }
            RouteReply::Refused(why) => return Progress::Failed(why),
            RouteReply::Done(granted) if !is_far_end && granted.iter().any(Granted::is_none) => {
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

    /// Takes out the flows for which the far end gave no label.
    fn drop_refused(&mut self) {
        let far_end = self.hops.last().map_or(&[][..], |hop| &hop.granted);
        let refused: Vec<bool> = far_end.iter().map(Granted::is_none).collect();
        for hop in &mut self.hops {
            let mut refused = refused.iter();
            let out = hop
                .granted
                .extract_if(.., |_| refused.next() == Some(&true));
            self.idle.extend(held(hop.session, out));
        }
        let mut refused = refused.iter();
        let out = self.flows.extract_if(.., |_| refused.next() == Some(&true));
        self.refused.extend(out);
    }

    /// Takes the labels of a flow out, in the order of the nodes.
    pub(crate) fn take_held(&mut self, flow: FlowId) -> Vec<Held> {
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

    /// Returns all labels that were given for it, but those taken out.
    pub(crate) fn into_held(self) -> Vec<Held> {
        let mut all = self.idle;
        for hop in self.hops {
            all.extend(held(hop.session, hop.granted));
        }
        all
    }

    /// Returns whether `node` is one of the path's.
    pub(crate) fn passes(&self, node: NodeId) -> bool {
        self.hops.iter().any(|hop| hop.node == node)
    }

    /// Returns the flows that the path is for.
    pub(crate) fn flows(&self) -> &[FlowId] {
        &self.flows
    }

    /// Returns when it has failed.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The second round, the far end's neighbour first.
    fn bind(&mut self, ids: &mut impl FnMut() -> RequestId) -> Vec<Ask> {
        let mut asks = Vec::new();
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
                asks.push(Ask {
                    node: hop.node,
                    id,
                    request,
                });
            }
            next = Some((hop.node, hop.granted.clone()));
        }
        asks
    }

    fn first_labels(&self) -> Vec<(FlowId, NextLabel)> {
        let granted = self.hops.first().map_or(&[][..], |hop| &hop.granted);
        self.flows
            .iter()
            .copied()
            .zip(granted.iter().map(Granted::next))
            .collect()
    }
}

/// Labels given out over `session`.
pub(crate) fn held(
    session: Option<SessionId>,
    granted: impl IntoIterator<Item = Granted>,
) -> impl Iterator<Item = Held> {
    let labels = granted.into_iter().filter(|granted| !granted.is_none());
    labels.filter_map(move |granted| {
        session.map(|session| Held {
            session,
            label: granted.label,
        })
    })
}

/// How long a set-up waits in all: three times what the slowest path that is worth taking needs
/// for two round trips (500 ms each), and a loss.
const PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
pub(crate) mod tests;
