//! Who may join, and as what.

use std::collections::BTreeSet;

use wire::{ClientId, ConnectionId, NodeId, PeerIdentity};

use super::link::{Link, LinkState, Member};
use super::op::Pending;
use super::sweep::Sweep;
use super::watch::{Key, Watch};
use super::{Hub, HubEvent};
use crate::id::Epoch;
use crate::join_file::JoinFile;
use crate::record::{DownReason, Join, ToNode, VERSION};
use crate::role::Role;
use crate::store::{Completed, Outcome, StoreOp};

impl Hub {
    /// Changes who may join; links whose grant is gone are ended.
    pub fn set_join_file(&mut self, join_file: JoinFile) {
        self.join_file = join_file;
        let gone: Vec<_> = self
            .links
            .iter()
            .filter_map(|(id, link)| {
                let refusal = match &link.state {
                    LinkState::Joined(member) => {
                        self.judge(link.node, member.role, &member.services)
                    }
                    // Nobody judges it again once the store has answered.
                    LinkState::Joining(join) => self.judge(link.node, join.role, &join.services),
                    LinkState::Fresh | LinkState::Closing => None,
                };
                Some((*id, refusal?))
            })
            .collect();
        for (id, reason) in gone {
            self.close(id, reason);
        }
    }

    pub(super) fn on_opened(&mut self, id: ConnectionId, peer: &PeerIdentity) {
        let (node, refusal) = match peer {
            PeerIdentity::Node(node) if self.has_failed() => (*node, Some(DownReason::StoreFailed)),
            PeerIdentity::Node(node) if !self.has_link_room(*node) => {
                (*node, Some(DownReason::Busy))
            }
            PeerIdentity::Node(node) if self.join_file.grants_of(*node).next().is_some() => {
                (*node, None)
            }
            PeerIdentity::Node(node) => (*node, Some(DownReason::NotListed)),
            PeerIdentity::Anonymous | _ => (NodeId([0; 32]), Some(DownReason::NotListed)),
        };
        let retry_ms = u32::try_from(self.config.retry_after.as_millis()).unwrap_or(u32::MAX);
        self.links.insert(id, Link::new(node, self.now, retry_ms));
        if let Some(reason) = refusal {
            self.close(id, reason);
        }
    }

    fn has_link_room(&self, node: NodeId) -> bool {
        let own = self
            .links
            .values()
            .filter(|link| link.node == node && !link.is_closing());
        self.links.len() < self.config.links_max && own.count() < self.config.node_links_max
    }

    pub(super) fn on_join(&mut self, id: ConnectionId, join: Join) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let refusal = if !matches!(link.state, LinkState::Fresh) {
            Some(DownReason::Protocol)
        } else if join.version != VERSION {
            Some(DownReason::Version)
        } else {
            let node = link.node;
            self.judge(node, join.role, &join.services)
        };
        if let Some(reason) = refusal {
            self.close(id, reason);
            return;
        }
        if self.ops.len() >= self.config.ops_in_flight {
            self.close(id, DownReason::Busy);
            return;
        }
        if let Some(link) = self.links.get_mut(&id) {
            let op = StoreOp::Join {
                node: link.node,
                instance: join.instance,
                epoch: join.epoch,
            };
            link.state = LinkState::Joining(join);
            self.ops.push(op, Pending::Join(id));
        }
    }

    /// Lets a link join whose epoch is on disk.
    pub(super) fn on_epoch(&mut self, id: ConnectionId, outcome: &Outcome) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let LinkState::Joining(join) = &link.state else {
            return;
        };
        if *outcome == Ok(Completed::Fenced) {
            self.close(id, DownReason::Fenced);
            return;
        }
        let &Ok(Completed::Joined {
            epoch,
            boot,
            log,
            newest,
            mail_mark,
            count_mark,
        }) = outcome
        else {
            self.close(id, DownReason::Busy);
            return;
        };
        let (node, join) = (link.node, join.clone());
        self.boot = self.boot.max(boot);
        if let Some(read) = self.clock.set_floor(newest) {
            self.event(HubEvent::ClockDoubted {
                read,
                believed: None,
            });
        }
        if self.supersede(node, epoch) == Verdict::Fenced {
            self.close(id, DownReason::Fenced);
            return;
        }
        self.begin(id, node, join, epoch);
        self.send(
            id,
            &ToNode::Joined {
                epoch,
                boot,
                log,
                mail_mark,
                count_mark,
            },
        );
    }

    pub(super) fn on_leave(&mut self, id: ConnectionId) {
        let Some(node) = self.links.get(&id).map(|link| link.node) else {
            return;
        };
        self.detach(id);
        self.away.remove(&node);
        self.sweep(Sweep::free(node));
        if let Some(link) = self.links.get_mut(&id) {
            link.close(None);
            self.ready.insert(id);
        }
    }

    /// Takes a link that had joined out of the tables of nodes, services and players.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let node = link.node;
        let Some(member) = link.member() else {
            return;
        };
        let (epoch, services) = (member.epoch, member.services.clone());
        link.state = LinkState::Closing;
        if self.joined.get(&node) == Some(&id) {
            self.joined.remove(&node);
        }
        for service in services {
            self.services.remove(&(service, node));
        }
        self.watchers.remove(id);
        self.sweep(Sweep::unlink(node, id));
        self.away.insert(node, self.now + self.config.lease);
        self.touch(Key::Node(node));
        self.event(HubEvent::NodeDown { node, epoch });
    }

    /// Ends the link of the same node that joined before, unless that is the later run.
    fn supersede(&mut self, node: NodeId, epoch: Epoch) -> Verdict {
        let Some(&other) = self.joined.get(&node) else {
            return Verdict::Newest;
        };
        let known = self
            .links
            .get(&other)
            .and_then(Link::member)
            .map_or(Epoch(0), |member| member.epoch);
        if known > epoch {
            return Verdict::Fenced;
        }
        let reason = if known == epoch {
            DownReason::Replaced
        } else {
            DownReason::Fenced
        };
        self.close(other, reason);
        Verdict::Newest
    }

    fn begin(&mut self, id: ConnectionId, node: NodeId, join: Join, epoch: Epoch) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.heard = self.now;
        for service in &join.services {
            self.services.insert((*service, node));
        }
        self.watchers.insert(id, join.watch);
        let event = HubEvent::NodeUp {
            node,
            instance: join.instance,
            epoch,
            role: join.role,
        };
        link.state = LinkState::Joined(Box::new(Member {
            instance: join.instance,
            epoch,
            role: join.role,
            services: join.services,
            watch: Watch::new(join.watch, self.config.watch_changes_max),
            unacknowledged: 0,
            reading: 0,
            counting: false,
            waiting: BTreeSet::new(),
            blocked: BTreeSet::new(),
            woken: ClientId(0),
        }));
        self.joined.insert(node, id);
        self.ready.insert(id);
        self.touch(Key::Node(node));
        self.event(event);
    }

    /// Says why `node` may not join so, if it may not.
    fn judge(
        &self,
        node: NodeId,
        role: Role,
        services: &[crate::name::Name],
    ) -> Option<DownReason> {
        if self.join_file.grants_of(node).next().is_none() {
            return Some(DownReason::NotListed);
        }
        let Some(grant) = self.join_file.grant(node, role) else {
            return Some(DownReason::RoleRefused);
        };
        let served = services
            .iter()
            .all(|service| grant.services.contains(service));
        (!served).then_some(DownReason::ServiceRefused)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Newest,
    Fenced,
}
