//! One path for up to 64 flows, set up in two rounds of requests.
//!
//! First every node of the path reserves labels, all at once; then each relay binds its labels to
//! those of the node behind it, the far end's neighbour first. With sessions up that takes two
//! round trips to the farthest node, one where no relay is on the path. A set-up sends nothing
//! twice: sessions are reliable, and one that hears nothing for [`PATIENCE`] has failed.

use core::time::Duration;

use wire::{Instant, NodeId};

use crate::flow_key::FlowId;
use crate::hop_key::NextLabel;
use crate::route_request::{Bind, Granted, Refused, RequestId, RouteReply, RouteRequest};

/// A path being set up.
#[derive(Debug)]
pub(crate) struct PathSetup {
    /// Relays in order, then the far end.
    hops: Vec<Hop>,
    flows: Vec<FlowId>,
    /// Of those asked for, what the far end refused.
    refused: Vec<FlowId>,
    /// When it has failed.
    deadline: Instant,
}

#[derive(Debug)]
struct Hop {
    node: NodeId,
    /// The request that is not answered.
    waits_for: Option<RequestId>,
    /// What it reserved.
    granted: Vec<Granted>,
    /// Whether frames pass it: bound, or the far end.
    is_bound: bool,
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
    /// Starts the set-up of a path from `own` through `relays` to `far_end`; returns what to send.
    /// `flows` are 1 to 64.
    pub(crate) fn start(
        now: Instant,
        own: NodeId,
        (relays, far_end): (&[NodeId], NodeId),
        flows: Vec<FlowId>,
        ids: &mut impl FnMut() -> RequestId,
    ) -> (Self, Vec<Ask>) {
        let count = u8::try_from(flows.len()).unwrap_or(u8::MAX);
        let mut previous = own;
        let (mut hops, mut asks) = (Vec::new(), Vec::new());
        for &node in relays.iter().chain([&far_end]) {
            let is_far_end = hops.len() == relays.len();
            let request = if is_far_end {
                RouteRequest::ReserveTerminal {
                    previous,
                    flows: flows.clone(),
                }
            } else {
                RouteRequest::ReserveTransit { previous, count }
            };
            let id = ids();
            asks.push(Ask { node, id, request });
            hops.push(Hop {
                node,
                waits_for: Some(id),
                granted: Vec::new(),
                is_bound: is_far_end,
            });
            previous = node;
        }
        let setup = Self {
            hops,
            flows,
            refused: Vec::new(),
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

    /// Takes the reply to a request of this set-up.
    pub(crate) fn on_reply(
        &mut self,
        id: RequestId,
        reply: RouteReply,
        ids: &mut impl FnMut() -> RequestId,
    ) -> Progress {
        let count = self.flows.len();
        let mut hops = self.hops.iter_mut();
        let Some(hop) = hops.find(|hop| hop.waits_for == Some(id)) else {
            return Progress::Pending(Vec::new());
        };
        // What a relay says of flows, of which it knows nothing, is said of the path.
        let is_far_end = hops.len() == 0;
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

    /// Takes out the flows for which the far end gave no label. What others gave for them expires.
    fn drop_refused(&mut self) {
        let far_end = self.hops.last().map_or(&[][..], |hop| &hop.granted);
        let refused: Vec<bool> = far_end.iter().map(Granted::is_none).collect();
        for hop in &mut self.hops {
            let mut refused = refused.iter();
            hop.granted.retain(|_| refused.next() != Some(&true));
        }
        let mut refused = refused.iter();
        let out = self.flows.extract_if(.., |_| refused.next() == Some(&true));
        self.refused.extend(out);
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
        for hop in self.hops.iter_mut().rev() {
            if let Some((next, granted)) = next
                && !hop.is_bound
            {
                let binds = hop.granted.iter().zip(granted).map(|(own, next)| Bind {
                    label: own.label,
                    next: next.next(),
                    grant: next.grant,
                });
                let request = RouteRequest::Bind {
                    next,
                    binds: binds.collect(),
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

/// How long a set-up waits in all: three times what the slowest path that is worth taking needs
/// for two round trips (500 ms each), and a loss.
const PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    use crate::hop::LabelName;
    use crate::hop_key::{HopForm, HopKey};

    fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn granted(slot: u32) -> Granted {
        Granted {
            label: LabelName {
                slot,
                generation: 0,
            },
            form: HopForm::TagOnly(HopKey([u8::try_from(slot).unwrap(); 16])),
            grant: [u8::try_from(slot).unwrap(); 16],
        }
    }

    fn ready(labels: &[(u64, u32)], refused: &[u64]) -> Progress {
        let labels = labels.iter();
        Progress::Ready {
            labels: labels
                .map(|(flow, slot)| (FlowId(*flow), granted(*slot).next()))
                .collect(),
            refused: refused.iter().copied().map(FlowId).collect(),
        }
    }

    #[test]
    fn a_flow_that_the_far_end_refuses_leaves_the_others_their_labels() {
        let mut ids = counter();
        let flows = vec![FlowId(0), FlowId(1), FlowId(3)];
        let way = (&[node(2)][..], node(4));
        let (mut setup, asks) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
        let far = RouteReply::Done(vec![granted(40), Granted::NONE, granted(42)]);
        let progress = setup.on_reply(asks[1].id, far, &mut ids);
        assert_eq!(progress, Progress::Pending(Vec::new()));
        let relay = RouteReply::Done(vec![granted(20), granted(21), granted(22)]);
        let Progress::Pending(binds) = setup.on_reply(asks[0].id, relay, &mut ids) else {
            panic!("it goes on");
        };
        let RouteRequest::Bind { binds: bound, .. } = &binds[0].request else {
            panic!("{binds:?}");
        };
        let pairs: Vec<_> = bound
            .iter()
            .map(|b| (b.label.slot, b.next.name.slot))
            .collect();
        assert_eq!(pairs, [(20, 40), (22, 42)]);
        assert_eq!(
            setup.on_reply(binds[0].id, RouteReply::Done(Vec::new()), &mut ids),
            ready(&[(0, 20), (3, 22)], &[1])
        );
    }

    #[test]
    fn where_all_flows_are_unknown_the_path_is_not_at_fault() {
        let mut ids = counter();
        let mut answer = |flow, reply| {
            let way = (&[][..], node(4));
            let flows = vec![FlowId(flow)];
            let (mut setup, asks) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
            setup.on_reply(asks[0].id, reply, &mut ids)
        };
        let refused = || RouteReply::Refused(Refused::UnknownFlow);
        let none = || RouteReply::Done(vec![Granted::NONE]);
        assert_eq!(answer(7, refused()), ready(&[], &[7]));
        assert_eq!(answer(7, none()), ready(&[], &[7]));
        // Without its probes a path is none.
        let failed = Progress::Failed(Refused::UnknownFlow);
        assert_eq!(answer(0, refused()), failed);
        assert_eq!(answer(0, none()), failed);
    }

    #[test]
    fn only_the_far_end_may_say_that_a_flow_is_unknown() {
        let mut ids = counter();
        let (relay, far) = (node(2), node(4));
        let mut answer = |to: NodeId, reply| {
            let flows = vec![FlowId(7), FlowId(9)];
            let way = (&[relay][..], far);
            let (mut setup, asks) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
            let (own, other) = asks.iter().partition::<Vec<_>, _>(|ask| ask.node == to);
            let granted = RouteReply::Done(vec![granted(1), granted(2)]);
            setup.on_reply(other[0].id, granted, &mut ids);
            setup.on_reply(own[0].id, reply, &mut ids)
        };
        let unknown = || RouteReply::Refused(Refused::UnknownFlow);
        let none = || RouteReply::Done(vec![Granted::NONE, Granted::NONE]);
        let one = || RouteReply::Done(vec![granted(1), Granted::NONE]);
        assert_eq!(answer(far, unknown()), ready(&[], &[7, 9]));
        assert_eq!(answer(far, none()), ready(&[], &[7, 9]));
        assert!(matches!(answer(far, one()), Progress::Pending(_)));
        let failed = |why| Progress::Failed(why);
        assert_eq!(answer(relay, unknown()), failed(Refused::UnknownFlow));
        assert_eq!(answer(relay, none()), failed(Refused::BadLabel));
        assert_eq!(answer(relay, one()), failed(Refused::BadLabel));
    }

    fn counter() -> impl FnMut() -> RequestId {
        let mut next = 0;
        move || {
            next += 1;
            RequestId(next)
        }
    }

    #[test]
    fn two_rounds_and_the_far_end_first() {
        let mut ids = counter();
        let flows = vec![FlowId(0), FlowId(1)];
        let (mut setup, asks) = PathSetup::start(
            Instant::ZERO,
            node(1),
            (&[node(2), node(3)], node(4)),
            flows.clone(),
            &mut ids,
        );
        let expected = [
            RouteRequest::ReserveTransit {
                previous: node(1),
                count: 2,
            },
            RouteRequest::ReserveTransit {
                previous: node(2),
                count: 2,
            },
            RouteRequest::ReserveTerminal {
                previous: node(3),
                flows,
            },
        ];
        assert!(asks.iter().map(|ask| &ask.request).eq(&expected));
        let mut progress = Progress::Pending(Vec::new());
        for (ask, slot) in asks.iter().zip([20, 30, 40]).rev() {
            assert!(setup.waits_for(ask.node, ask.id));
            assert!(!setup.waits_for(node(9), ask.id), "another node's reply");
            let reply = RouteReply::Done(vec![granted(slot), granted(slot + 1)]);
            progress = setup.on_reply(ask.id, reply, &mut ids);
        }
        let Progress::Pending(binds) = progress else {
            panic!("{progress:?}");
        };
        let bind = |label: u32, next: u32| Bind {
            label: granted(label).label,
            next: granted(next).next(),
            grant: granted(next).grant,
        };
        assert_eq!(binds[0].node, node(3));
        assert_eq!(
            binds[0].request,
            RouteRequest::Bind {
                next: node(4),
                binds: vec![bind(30, 40), bind(31, 41)]
            }
        );
        assert_eq!(binds[1].node, node(2));
        let done = || RouteReply::Done(Vec::new());
        assert_eq!(
            setup.on_reply(binds[1].id, done(), &mut ids),
            Progress::Pending(Vec::new())
        );
        assert_eq!(
            setup.on_reply(binds[0].id, done(), &mut ids),
            ready(&[(0, 20), (1, 21)], &[])
        );
    }

    #[test]
    fn the_direct_path_takes_one_round() {
        let mut ids = counter();
        let (mut setup, asks) = PathSetup::start(
            Instant::ZERO,
            node(1),
            (&[], node(4)),
            vec![FlowId(1)],
            &mut ids,
        );
        assert_eq!(asks.len(), 1);
        assert_eq!(
            setup.on_reply(asks[0].id, RouteReply::Done(vec![granted(4)]), &mut ids),
            ready(&[(1, 4)], &[])
        );
    }

    #[test]
    fn a_refusal_or_another_number_of_labels_ends_it() {
        let start = |ids: &mut dyn FnMut() -> RequestId| {
            let mut ids = || ids();
            PathSetup::start(
                Instant::ZERO,
                node(1),
                (&[node(2)], node(4)),
                vec![FlowId(1)],
                &mut ids,
            )
        };
        let mut ids = counter();
        let (mut setup, asks) = start(&mut ids);
        assert_eq!(
            setup.on_reply(asks[0].id, RouteReply::Refused(Refused::Full), &mut ids),
            Progress::Failed(Refused::Full)
        );
        for wrong in [vec![], vec![granted(1), granted(2)]] {
            let (mut setup, asks) = start(&mut ids);
            assert_eq!(
                setup.on_reply(asks[0].id, RouteReply::Done(wrong), &mut ids),
                Progress::Failed(Refused::BadLabel)
            );
        }
    }
}
