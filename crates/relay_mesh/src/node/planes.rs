//! The node's data planes, its own and those of its other shards, and the frames that they handle.

use core::net::{IpAddr, SocketAddr};

use crypto::Provider;
use udp_proto::SessionId;
use wire::{Instant, Transmit};

use super::path_set::PathSet;
use super::{Node, RELIABLE};
use crate::data_plane::DataPlane;
use crate::event::{Command, Event};
use crate::grant::LinkGate;
use crate::hop::{LabelName, ShardId};
use crate::label::LabelRefusal;
use crate::link::{End, Link, LinkId, LinkRoot, LinkSet};
use crate::link_terms::KeyEpoch;
use crate::peer_addr::PeerAddr;
use crate::shard::{Forwarder, plane_of};
use crate::stats::FrameStats;
use crate::trunk;
use crate::trunk::Frames;

impl<P: Provider> Node<P> {
    /// Returns the forwarder of the shard with this number, from 1, for a thread of its own; `None`
    /// if there is none. Without a forwarder, the node forwards the shard's frames itself.
    pub fn forwarder(&self, place: u8, provider: P) -> Option<Forwarder<P>> {
        let shard = ShardId::new(place)?;
        let planes = self.shards.shared();
        plane_of(&planes, shard)?;
        Some(Forwarder::new(shard, planes, provider))
    }

    /// Returns the counters of hop frames, summed over all shards.
    pub fn frame_stats(&self) -> FrameStats {
        self.fold_planes(FrameStats::default(), |sum, plane| sum.plus(plane.stats))
    }

    /// Returns the approximate memory use, in bytes.
    pub fn memory(&self) -> usize {
        let parts = [
            self.endpoint.memory(),
            self.peers.memory(),
            self.flows.memory(),
            self.planes_memory(),
            self.path_sets.values().map(PathSet::memory).sum(),
            self.releases.memory(),
            self.events.len().saturating_mul(size_of::<Event>()),
            self.commands.len().saturating_mul(size_of::<Command>()),
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Runs `work` on the plane of a shard, if it exists.
    pub(super) fn with_plane<R>(
        &mut self,
        shard: ShardId,
        work: impl FnOnce(&P, &mut DataPlane<P::Aead>) -> R,
    ) -> Option<R> {
        let provider = self.endpoint.provider();
        if shard == ShardId::FIRST {
            return Some(work(provider, &mut self.plane));
        }
        let mut plane = self.shards.lock(shard)?;
        Some(work(provider, &mut plane))
    }

    fn fold_planes<T>(&self, start: T, mut add: impl FnMut(T, &DataPlane<P::Aead>) -> T) -> T {
        let first = add(start, &self.plane);
        self.shards
            .each()
            .fold(first, |sum, plane| add(sum, &plane))
    }

    fn on_planes(&mut self, mut work: impl FnMut(&mut DataPlane<P::Aead>)) {
        work(&mut self.plane);
        for mut plane in self.shards.each() {
            work(&mut plane);
        }
    }

    /// Reserves a transit label on the next shard in turn that has room.
    pub(super) fn reserve_transit(
        &mut self,
        now: Instant,
        owner: LinkId,
        previous: LinkId,
    ) -> Result<LabelName, LabelRefusal> {
        let mut turns = self.shards.turns();
        let label = turns.find_map(|shard| {
            let reserve =
                |plane: &mut DataPlane<P::Aead>| plane.labels.reserve(now, owner, previous).ok();
            match self.shards.lock(shard) {
                Some(mut plane) => reserve(&mut plane),
                None => reserve(&mut self.plane),
            }
        });
        label.ok_or(LabelRefusal::Full)
    }

    /// The next datagram of the shards for which this node has forwarded frames.
    pub(super) fn poll_shards(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        self.shards.poll_transmit(buf)
    }

    /// Returns the number of labels that this node has granted and that have not ended.
    #[must_use]
    pub fn labels(&self) -> u32 {
        self.fold_planes(0, |sum: u32, plane| sum.saturating_add(plane.labels.len()))
    }

    pub(super) fn transit_labels(&self) -> u32 {
        let now = self.now;
        self.fold_planes(0, |sum: u32, plane| {
            sum.saturating_add(plane.labels.transit(now))
        })
    }

    pub(super) fn sends_over(&self, link: LinkId) -> bool {
        let sends = |plane: &DataPlane<P::Aead>| {
            let link = plane.links.get(link);
            link.is_some_and(|link| link.live() > 0)
        };
        sends(&self.plane) || self.shards.each().any(|plane| sends(&plane))
    }

    /// Links that bound labels use, as owner or next hop.
    pub(super) fn links_bound(&self) -> LinkSet {
        self.links_of_planes(|plane, held| {
            let sends = plane.links.iter().filter(|(_, link)| link.live() > 0);
            held.extend(sends.map(|(id, _)| id));
            plane.labels.add_held(held);
        })
    }

    /// Links that labels refer to, and those of their owners.
    pub(super) fn links_referenced(&self) -> LinkSet {
        self.links_of_planes(|plane, named| plane.labels.add_named(named))
    }

    fn links_of_planes(&self, add: impl Fn(&DataPlane<P::Aead>, &mut LinkSet)) -> LinkSet {
        self.fold_planes(LinkSet::default(), |mut links, plane| {
            add(plane, &mut links);
            links
        })
    }

    fn planes_memory(&self) -> usize {
        self.fold_planes(0, |sum: usize, plane| {
            let labels = sum.saturating_add(plane.labels.memory());
            labels.saturating_add(plane.outbox.memory())
        })
    }

    pub(super) fn free_label(&mut self, label: LabelName) {
        self.with_plane(label.shard(), |_, plane| plane.free(label));
    }

    pub(super) fn sweep_labels(&mut self, now: Instant) {
        self.on_planes(|plane| {
            plane.sweep(now);
        });
    }

    /// Derives the keys of a link in all planes; returns false if the session has ended.
    pub(super) fn make_link(&mut self, link: LinkId, session: SessionId) -> bool {
        let (Some(exporter), Some(role), Some(remote)) = (
            self.endpoint.exporter(session),
            self.endpoint.role(session),
            self.endpoint.peer_address(session),
        ) else {
            return false;
        };
        let root = LinkRoot {
            exporter,
            end: End::from(role),
        };
        let (provider, local) = (self.endpoint.provider(), self.endpoint.local(session));
        let kind = self.kind_of(link);
        let mut serial = self.next_serial;
        let mut set_link = |plane: &mut DataPlane<P::Aead>| {
            let mut made = Link::new(provider, root, remote, (plane.shard, serial));
            made.local = local;
            plane.drop_link(link);
            plane.links.set(link, Some(made));
            serial = serial.wrapping_add(1);
        };
        set_link(&mut self.plane);
        for mut plane in self.shards.each() {
            set_link(&mut plane);
        }
        self.next_serial = serial;
        self.gates
            .set(link, Some(LinkGate::new(provider, root, kind)));
        true
    }

    pub(super) fn send_epochs(&mut self, now: Instant) {
        let links: Vec<LinkId> = self.peers.up().map(|(link, _, _)| link).collect();
        let mut news = Vec::new();
        self.on_planes(|plane| {
            for id in &links {
                let unannounced = plane.links.get(*id).map(Link::unannounced_epochs);
                news.extend(unannounced.into_iter().flatten().map(|epoch| (*id, epoch)));
            }
        });
        for (id, epoch) in news {
            if self.send_with(now, id, RELIABLE, |message| epoch.encode(message)) {
                self.with_plane(epoch.from, |_, plane| {
                    if let Some(link) = plane.links.get_mut(id) {
                        link.on_announced(epoch);
                    }
                });
            }
        }
    }

    pub(super) fn on_key_epoch(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let epoch = KeyEpoch::decode(message).ok();
        let is_valid = epoch.and_then(|epoch| {
            self.with_plane(epoch.to, |provider, plane| {
                let link = plane.links.get_mut(link)?;
                Some(link.reach(provider, now, epoch))
            })
        });
        if is_valid.flatten() != Some(true) {
            self.count_malformed();
        }
    }

    /// Whether a shard other than `but` has bound a label of a neighbour. Each shard tracks packet
    /// numbers on its own, so two would both move the label's replay window.
    pub(super) fn is_bound_on_other_shard(
        &self,
        link: LinkId,
        name: LabelName,
        but: ShardId,
    ) -> bool {
        let holds = |plane: &DataPlane<P::Aead>| {
            let link = plane.links.get(link);
            link.is_some_and(|link| link.holds(name))
        };
        let is_own = but != ShardId::FIRST && holds(&self.plane);
        is_own || self.shards.others(but).any(|plane| holds(&plane))
    }

    pub(super) fn transit_owners(&self) -> LinkSet {
        self.links_of_planes(|plane, owners| plane.labels.add_transit_owners(owners))
    }

    pub(super) fn free_transit_of(&mut self, owners: &LinkSet) {
        self.on_planes(|plane| {
            plane.free_where(|label| {
                let owner = label.transit_owner();
                owner.is_some_and(|owner| owners.contains(owner))
            });
        });
    }

    /// Removes a link from all planes, with its labels.
    pub(super) fn drop_link(&mut self, link: LinkId) {
        self.gates.set(link, None);
        self.on_planes(|plane| {
            plane.drop_link(link);
        });
    }

    pub(super) fn move_link(
        &mut self,
        link: LinkId,
        (remote, local): (SocketAddr, Option<IpAddr>),
    ) {
        let is_moved = |known: &Link<P::Aead>| (known.remote, known.local) != (remote, local);
        if self.plane.links.get(link).is_some_and(is_moved) {
            self.change_link(link, |link| (link.remote, link.local) = (remote, local));
        }
    }

    pub(super) fn change_link(&mut self, link: LinkId, change: impl Fn(&mut Link<P::Aead>)) {
        self.on_planes(|plane| {
            if let Some(link) = plane.links.get_mut(link) {
                change(link);
            }
        });
    }

    /// Handles a datagram of the data plane: one frame, or a trunk of frames.
    pub(super) fn on_frames(&mut self, now: Instant, source: SocketAddr, datagram: &mut [u8]) {
        if datagram.first() != Some(&trunk::KIND) {
            self.on_frame(now, source, datagram);
            return;
        }
        let Ok(frames) = Frames::new(datagram) else {
            self.plane.stats.count_bad_trunk();
            return;
        };
        for frame in frames {
            match frame {
                Ok(frame) => self.on_frame(now, source, frame),
                Err(_) => self.plane.stats.count_bad_trunk(),
            }
        }
    }

    fn on_frame(&mut self, now: Instant, source: SocketAddr, frame: &mut [u8]) {
        let shard = ShardId::of_datagram(frame);
        let provider = self.endpoint.provider();
        // Another shard's frame is always forwarded, since flows end only at the first shard.
        let shared = self.shards.lock(shard).map(|mut plane| {
            plane.handle_frame(provider, now, (source, frame));
        });
        if shared.is_some() {
            self.shards.touched.insert(shard);
            return;
        }
        if let Some(arrived) = self.plane.handle_frame(provider, now, (source, frame)) {
            self.on_arrived(now, arrived);
        }
    }

    /// Links that carry frames of flows, or are about to.
    pub(super) fn links_in_use(&self) -> LinkSet {
        let mut used = self.links_bound();
        for (remote, path_set) in &self.path_sets {
            used.insert(*remote);
            for path in path_set.paths.iter() {
                used.insert(path.first);
                let relays = path.path.relays.iter();
                used.extend(relays.filter_map(|relay| self.peers.find(relay)));
            }
        }
        for (link, _) in self.peers.iter() {
            if self.flows.with(link).next().is_some() {
                used.insert(link);
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crypto::{Identity, Secret32};
    use netsim::provider::SimProvider;
    use wire::{InstanceId, Seed};

    #[test]
    fn links_that_labels_of_any_shard_name_are_known_as_such() {
        let now = Instant::ZERO;
        let mut provider = SimProvider::new(Seed::from_number(1));
        let identity = Identity::generate(&mut provider).unwrap();
        let mut config = Config::new(Secret32::new([1; 32]), InstanceId(1));
        config.shards = 3;
        let mut node = Node::new(config, identity, provider, now).unwrap();
        let mut reserve = |owner| node.reserve_transit(now, LinkId(owner), LinkId(owner + 10));
        let labels = [1, 2, 3].map(|owner| reserve(owner).unwrap());
        assert_eq!(labels.map(|label| label.shard().place()), [0, 1, 2]);
        assert_eq!(node.links_referenced().numbers(), [1, 2, 3, 11, 12, 13]);
        assert!(node.links_in_use().numbers().is_empty(), "not bound");
        node.with_plane(labels[2].shard(), |_, plane| {
            plane.labels.bind_terminal(labels[2], (0, 0));
        });
        assert_eq!(node.links_in_use().numbers(), [3, 13]);
        node.free_label(labels[2]);
        assert_eq!(node.links_referenced().numbers(), [1, 2, 11, 12]);
    }
}
