//! Label requests from other nodes.

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_table::{FLOW_LABELS_MAX, probe_flow};
use super::{Node, RELIABLE};
use crate::data_plane::Unbound;
use crate::flow_key::FlowId;
use crate::grant::Grant;
use crate::hop::{LabelName, NextLabel};
use crate::hop_seal::BindError;
use crate::label::LabelRefusal;
use crate::link::{LinkId, LinkSet};
use crate::link_state::Roles;
use crate::route_request::{Granted, GrantedNext, Refused, RouteReply, RouteRequest};

impl<P: Provider> Node<P> {
    /// Answers a label request of a neighbour.
    pub(super) fn on_route_request(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok((id, request)) = RouteRequest::decode(message) else {
            self.count_malformed();
            return;
        };
        let Some(peer) = self.peers.get_mut(link) else {
            return;
        };
        let node = peer.node;
        let reply = if peer.limits.requests.take(now, request.count().into()) {
            self.answer(now, (link, node), &request)
        } else {
            Err(Refused::TooMany)
        };
        let reply = match reply {
            Ok(granted) => RouteReply::Done(granted),
            Err(why) => {
                self.stats.requests_refused.count(why);
                RouteReply::Refused(why)
            }
        };
        let mut message = Vec::new();
        reply.encode(id, &mut message);
        if !self.send(now, link, RELIABLE, &message)
            && let RouteReply::Done(granted) = &reply
        {
            // The neighbour will not receive the reply, so free the labels.
            for granted in granted.iter().filter(|granted| !granted.is_none()) {
                self.free_owned(link, granted.label);
            }
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        (link, node): (LinkId, NodeId),
        request: &RouteRequest,
    ) -> Result<Vec<Granted>, Refused> {
        match request {
            RouteRequest::ReserveTransit { previous, count } => {
                self.may_relay_for(node)?;
                let previous = self.hop(previous)?;
                self.grant((previous, node), (*count).into(), |own| {
                    own.reserve_transit(now, link, previous)
                })
            }
            RouteRequest::ReserveTerminal {
                previous,
                flows,
                path,
            } => {
                let previous = self.hop(previous)?;
                self.reserve_terminal(now, (link, node), (previous, *path), flows)
            }
            RouteRequest::Bind { next, binds } => {
                let next = self.hop(next)?;
                for (done, bind) in binds.iter().enumerate() {
                    let onto = (next, &bind.next, &bind.grant);
                    if let Err(why) = self.bind(now, (link, node), bind.label, onto) {
                        for bind in binds.iter().take(done) {
                            self.free_label(bind.label);
                        }
                        return Err(why);
                    }
                }
                Ok(Vec::new())
            }
            RouteRequest::PassOn { next, to } => {
                self.may_relay_for(node)?;
                let hops = [self.hop(&node)?, self.hop(next)?];
                self.reserve_and_bind((now, link, node), hops, to)
            }
        }
    }

    /// Reserves labels and binds them: all or none.
    fn reserve_and_bind(
        &mut self,
        (now, link, node): (Instant, LinkId, NodeId),
        [previous, next]: [LinkId; 2],
        to: &[GrantedNext],
    ) -> Result<Vec<Granted>, Refused> {
        let all = self.grant((previous, node), to.len(), |own| {
            own.reserve_transit(now, link, previous)
        })?;
        for (granted, to) in all.iter().zip(to) {
            let onto = (next, &to.next, &to.grant);
            if let Err(why) = self.bind(now, (link, node), granted.label, onto) {
                for granted in &all {
                    self.free_label(granted.label);
                }
                return Err(why);
            }
        }
        Ok(all)
    }

    fn may_relay_for(&self, node: NodeId) -> Result<(), Refused> {
        if !self.is_end(node) || !self.is_relay() {
            Err(Refused::Policy)
        } else if self.gossip.publisher().is_leaving() {
            Err(Refused::Full)
        } else {
            Ok(())
        }
    }

    /// Returns whether `node` may be an entry or exit.
    fn is_end(&self, node: NodeId) -> bool {
        let is_member = self.may_act_as(&node, &[Roles::ENTRY, Roles::EXIT]);
        let document = self.document();
        is_member && document.is_none_or(|document| document.may_send(&node))
    }

    /// Frees the transit labels of all nodes that are no longer an entry or exit. If this node is
    /// no longer a relay, other labels stay, so that entries switch away without loss.
    pub(super) fn free_disallowed_labels(&mut self) {
        let owners = self.transit_owners();
        let mut excluded = LinkSet::default();
        let peers = self.peers.iter();
        excluded.extend(peers.filter_map(|(link, peer)| {
            let is_barred = owners.contains(link) && !self.is_end(peer.node);
            is_barred.then_some(link)
        }));
        if !excluded.is_empty() {
            self.free_transit_of(&excluded);
        }
    }

    /// Returns whether this node is a relay.
    pub(super) fn is_relay(&self) -> bool {
        self.may_act_as(&self.own, &[Roles::RELAY])
            && self.config.profile.roles.contains(Roles::RELAY)
    }

    /// Returns whether the members, if they are configured, give a node one of `roles`.
    pub(super) fn may_act_as(&self, node: &NodeId, roles: &[Roles]) -> bool {
        let members = self.config.members.as_ref();
        members.is_none_or(|members| {
            let given = members.get(node);
            given.is_some_and(|given| roles.iter().any(|role| given.contains(*role)))
        })
    }

    fn hop(&self, node: &NodeId) -> Result<LinkId, Refused> {
        let link = self.peers.find(node);
        let link = link.filter(|link| self.peers.carries(*link));
        link.ok_or(Refused::NoLink)
    }

    /// Returns the flow index that terminal labels of a flow of `link` deliver to.
    fn terminal(&self, link: LinkId, flow: FlowId) -> Option<u32> {
        if flow == FlowId::PROBE {
            let is_known = self.path_sets.contains_key(&link);
            return is_known.then(|| probe_flow(link));
        }
        self.flows.of_id(link, flow)
    }

    /// Reserves one label for each flow; [`Granted::NONE`] if it is unknown or has too many.
    fn reserve_terminal(
        &mut self,
        now: Instant,
        (link, node): (LinkId, NodeId),
        (previous, path): (LinkId, u8),
        flows: &[FlowId],
    ) -> Result<Vec<Granted>, Refused> {
        let indices = flows.iter().map(|flow| self.terminal(link, *flow));
        let indices: Vec<Option<u32>> = indices.collect();
        if indices.iter().all(Option::is_none) {
            return Err(Refused::UnknownFlow);
        }
        let labels = self.grant((previous, node), flows.len(), |own| {
            own.plane.labels.reserve(now, link, previous)
        })?;
        let granted = labels.into_iter().zip(indices).map(|(granted, index)| {
            let index = index.filter(|index| self.add_label(link, *index, granted.label));
            let Some(index) = index else {
                self.free_label(granted.label);
                return Granted::NONE;
            };
            let labels = &mut self.plane.labels;
            labels.bind_terminal(granted.label, (index, path));
            granted
        });
        Ok(granted.collect())
    }

    /// Records a label that delivers to a flow, or to the probes of `link`; false at
    /// [`FLOW_LABELS_MAX`].
    fn add_label(&mut self, link: LinkId, index: u32, label: LabelName) -> bool {
        let slab = &mut self.plane.labels;
        let path_set = self.path_sets.get_mut(&link);
        let flow = self.flows.get_mut(index).map(|flow| &mut flow.labels);
        let Some(labels) = flow.or_else(|| Some(path_set?.probe_flow.labels_mut())) else {
            return false;
        };
        if labels.len() >= FLOW_LABELS_MAX {
            labels.retain(|label| slab.get_mut(*label).is_some());
        }
        let has_room = labels.len() < FLOW_LABELS_MAX;
        if has_room {
            labels.push(label);
        }
        has_room
    }

    /// Allocates `count` labels with `label`, each with its frame form and grant.
    fn grant(
        &mut self,
        (previous, node): (LinkId, NodeId),
        count: usize,
        mut label: impl FnMut(&mut Self) -> Result<LabelName, LabelRefusal>,
    ) -> Result<Vec<Granted>, Refused> {
        if self.gates.get(previous).is_none() {
            return Err(Refused::NoLink);
        }
        let mut granted: Vec<Granted> = Vec::with_capacity(count);
        for _ in 0..count {
            let Ok(label) = label(self) else {
                for granted in granted {
                    self.free_label(granted.label);
                }
                return Err(Refused::Full);
            };
            let provider = self.endpoint.provider();
            let gate = self.gates.get_mut(previous).ok_or(Refused::NoLink)?;
            let form = gate.form(provider, label);
            let next = NextLabel { name: label, form };
            let grant = gate.grants.grant(provider, &next, node);
            let form = next.form;
            self.with_plane(label.shard(), |_, plane| {
                if let Some(reserved) = plane.labels.get_mut(label) {
                    reserved.form = form.clone();
                }
            });
            granted.push(Granted { label, form, grant });
        }
        Ok(granted)
    }

    fn bind(
        &mut self,
        now: Instant,
        (link, node): (LinkId, NodeId),
        label: LabelName,
        (link_on, next, grant): (LinkId, &NextLabel, &Grant),
    ) -> Result<(), Refused> {
        // Checked before the grant, so that a neighbour learns nothing about labels of others.
        let is_reserved = self.with_plane(label.shard(), |_, plane| {
            plane.labels.check_reserved(label, link).is_ok()
        });
        if is_reserved != Some(true) {
            return Err(Refused::BadLabel);
        }
        let provider = self.endpoint.provider();
        let gate = self.gates.get(link_on).ok_or(Refused::NoLink)?;
        if !gate.grants.check(provider, next, node, grant) {
            return Err(Refused::BadGrant);
        }
        if !gate.allows(&next.form) {
            return Err(Refused::Policy);
        }
        if self.is_bound_on_other_shard(link_on, next.name, label.shard()) {
            return Err(Refused::LabelTaken);
        }
        let bound = self.with_plane(label.shard(), |provider, plane| {
            let onward = (link_on, next.clone());
            plane.bind_transit(provider, now, (label, link), onward)
        });
        bound.ok_or(Refused::BadLabel)?.map_err(|why| match why {
            Unbound::Label(_) => Refused::BadLabel,
            Unbound::NoLink => Refused::NoLink,
            Unbound::Next(BindError::LabelTaken) => Refused::LabelTaken,
            Unbound::Next(BindError::Full) => Refused::Full,
        })
    }
}
