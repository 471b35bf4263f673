//! The fast path: forwards a hop frame to the next hop or to a flow of this node.

use core::net::SocketAddr;

use crypto::{Aead, Provider};
use wire::Instant;

use crate::hop::{HopError, HopForm, HopHeader, HopKind, LabelName, NextLabel, ShardId};
use crate::hop_seal::{BindError, Binding, Packet};
use crate::label::{LabelLimits, LabelRefusal, LabelSlab, Onward};
use crate::link::{Link, LinkId, LinkTable};
use crate::outbox::Outbox;
use crate::peer_addr::PeerAddr;
use crate::stats::FrameStats;

/// Labels, links and counters of one shard: all that forwarding needs.
pub(crate) struct DataPlane<A> {
    pub(crate) shard: ShardId,
    pub(crate) labels: LabelSlab,
    pub(crate) links: LinkTable<Link<A>>,
    pub(crate) stats: FrameStats,
    pub(crate) outbox: Outbox,
}

/// A frame that ends at this node; its payload is still sealed end to end.
#[derive(Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) flow: u32,
    /// Number of the path at the sending end.
    pub(crate) path: u8,
    pub(crate) header: HopHeader,
    /// End-to-end ciphertext and tag.
    pub(crate) body: &'a mut [u8],
}

impl<A: Aead> DataPlane<A> {
    pub(crate) fn new(shard: ShardId, limits: LabelLimits, outbox_bytes_max: usize) -> Self {
        Self {
            shard,
            labels: LabelSlab::new(shard, limits),
            links: LinkTable::new(),
            stats: FrameStats::default(),
            outbox: Outbox::new(outbox_bytes_max),
        }
    }

    /// Decrypts a frame in place, and forwards, drops or, if its label ends here, returns it.
    pub(crate) fn handle_frame<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (source, frame): (SocketAddr, &'a mut [u8]),
    ) -> Option<Arrived<'a>> {
        let len = frame.len();
        let header = self.decode(frame)?;
        let Some((label, fill, owner)) = self.labels.get_with_owner(header.label) else {
            return count(&mut self.stats.unknown_label);
        };
        if label.is_expired(now) {
            return count(&mut self.stats.expired);
        }
        let previous = label.previous;
        // The address check is a cheap filter; decryption proves the link.
        let link = self.links.get_mut(previous);
        let Some(link) = link.filter(|link| link.remote == source) else {
            return count(&mut self.stats.wrong_link);
        };
        match label.onward() {
            None => return count(&mut self.stats.not_bound),
            Some(onward) if !onward.is_fresh(header.number) => {
                return count(&mut self.stats.replayed);
            }
            Some(Onward::Next(..)) if header.hops_left == 0 => {
                return count(&mut self.stats.hops_spent);
            }
            Some(Onward::Next(..) | Onward::Flow(..)) => {}
        }
        // A tag-only frame is accepted only if the label was assigned with a tag key: an observer
        // could use up a flow's numbers.
        let opened = match (header.kind, &label.form) {
            (HopKind::Sealed, HopForm::Sealed) => link.open(provider, now, &header, frame).ok(),
            (HopKind::TagOnly, HopForm::TagOnly(key)) => key.open(frame),
            (HopKind::TagOnly, HopForm::Sealed) => return count(&mut self.stats.tag_only),
            (HopKind::Sealed, HopForm::TagOnly(_)) => {
                return count(&mut self.stats.not_tag_only);
            }
        };
        let Some(body) = opened else {
            return count(&mut self.stats.wrong_tag);
        };
        label.arrive(header.number);
        if !label.charge(fill, now, len) {
            return count(&mut self.stats.over_rate);
        }
        if !owner.take(now, u32::try_from(len).unwrap_or(u32::MAX)) {
            return count(&mut self.stats.over_owner_rate);
        }
        match label.onward() {
            Some(Onward::Flow((flow, path), _)) => {
                self.stats.arrived = self.stats.arrived.saturating_add(1);
                Some(Arrived {
                    flow,
                    path,
                    header,
                    body,
                })
            }
            Some(Onward::Next(next, binding)) => {
                let packet = Packet {
                    number: header.number,
                    phase: header.phase,
                    hops_left: header.hops_left.saturating_sub(1),
                    body,
                };
                let seal = SealNext {
                    links: &mut self.links,
                    stats: &mut self.stats,
                    outbox: &mut self.outbox,
                };
                seal.pass(provider, now, (next, binding), packet);
                None
            }
            None => None,
        }
    }

    /// Sends one packet of this node over `link`; returns false if it was dropped here.
    pub(crate) fn send<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (link, binding): (LinkId, &mut Binding),
        packet: Packet<'_>,
    ) -> bool {
        let seal = SealNext {
            links: &mut self.links,
            stats: &mut self.stats,
            outbox: &mut self.outbox,
        };
        seal.pass(provider, now, (link, binding), packet)
    }

    /// Binds a reserved label of `owner` to the label that the neighbour `next` granted for it.
    pub(crate) fn bind_transit<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (label, owner): (LabelName, LinkId),
        (next, next_label): (LinkId, NextLabel),
    ) -> Result<(), Unbound> {
        let reserved = self.labels.check_reserved(label, owner);
        reserved.map_err(Unbound::Label)?;
        let next_link = self.links.get_mut(next).ok_or(Unbound::NoLink)?;
        let sealer = next_link.sealer_to(provider, next_label.name.shard());
        let binding = sealer
            .ok_or(Unbound::NoLink)?
            .bind_transit(provider, now, next_label)
            .map_err(Unbound::Next)?;
        if let Some(binding) = self.labels.bind_transit(label, next, binding) {
            next_link.release(binding);
            return Err(Unbound::Label(LabelRefusal::Bound));
        }
        Ok(())
    }

    pub(crate) fn free(&mut self, label: LabelName) {
        if let Some((next, binding)) = self.labels.remove(label)
            && let Some(link) = self.links.get_mut(next)
        {
            link.release(binding);
        }
    }

    /// Removes a neighbour's link and every label that names it.
    pub(crate) fn drop_link(&mut self, link: LinkId) -> u32 {
        self.links.set(link, None);
        self.free_where(|label| label.names(link))
    }

    pub(crate) fn free_where(&mut self, ends: impl Fn(&crate::label::Label) -> bool) -> u32 {
        let links = &mut self.links;
        self.labels.remove_where(ends, |next, binding| {
            if let Some(link) = links.get_mut(next) {
                link.release(binding);
            }
        })
    }

    /// Frees expired labels in a part of the slab.
    pub(crate) fn sweep(&mut self, now: Instant) -> u32 {
        let links = &mut self.links;
        self.labels.sweep(now, |next, binding| {
            if let Some(link) = links.get_mut(next) {
                link.release(binding);
            }
        })
    }

    const fn decode(&mut self, frame: &[u8]) -> Option<HopHeader> {
        match HopHeader::decode(frame) {
            Ok(header) => Some(header),
            Err(HopError::Truncated) => count(&mut self.stats.truncated),
            Err(HopError::Oversize(_)) => count(&mut self.stats.oversize),
            Err(HopError::UnknownKind(_)) => count(&mut self.stats.unknown_kind),
            Err(HopError::Malformed) => count(&mut self.stats.malformed),
        }
    }
}

/// Why a label is not bound to the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbound {
    /// The label is unknown to the requester, or bound.
    Label(LabelRefusal),
    NoLink,
    /// The next hop's label cannot be bound.
    Next(BindError),
}

struct SealNext<'a, A> {
    links: &'a mut LinkTable<Link<A>>,
    stats: &'a mut FrameStats,
    outbox: &'a mut Outbox,
}

impl<A: Aead> SealNext<'_, A> {
    fn pass<P: Provider<Aead = A>>(
        self,
        provider: &P,
        now: Instant,
        (next, binding): (LinkId, &mut Binding),
        packet: Packet<'_>,
    ) -> bool {
        let Some(link) = self.links.get_mut(next) else {
            self.stats.no_link = self.stats.no_link.saturating_add(1);
            return false;
        };
        if self.outbox.is_full() {
            self.stats.outbox_full = self.stats.outbox_full.saturating_add(1);
            return false;
        }
        let route = ((PeerAddr::mesh(link.remote), link.local), link.packing);
        let Some(sealer) = link.sealer_of(binding) else {
            self.stats.not_sealed = self.stats.not_sealed.saturating_add(1);
            return false;
        };
        let lane = (next, binding.name().shard());
        let sealed = self.outbox.push_frame(lane, route, |out| {
            sealer.seal(provider, now, (binding, packet), out)
        });
        match sealed {
            Ok(()) => self.stats.sealed = self.stats.sealed.saturating_add(1),
            Err(_) => self.stats.not_sealed = self.stats.not_sealed.saturating_add(1),
        }
        sealed.is_ok()
    }
}

const fn count<T>(counter: &mut u64) -> Option<T> {
    *counter = counter.saturating_add(1);
    None
}

#[cfg(test)]
mod tests;
