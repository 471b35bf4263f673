//! Links that do not come about or do not last: the operator hears of each cause once a minute.

use crypto::Provider;
use udp_proto::ConnectFailure;
use wire::{Instant, NodeId};

use super::Node;
use super::minute_counts::MinuteCounts;
use super::peers::Peer;
use crate::event::{Event, NodeRefusal};
use crate::link::LinkId;

/// Failed dials of bootstrap nodes, and nodes that were refused.
#[derive(Debug, Default)]
pub(super) struct LinkFailures {
    /// At most one for each node of the bootstrap list.
    dials: MinuteCounts<NodeId, ConnectFailure>,
    refused: MinuteCounts<NodeRefusal, ()>,
    /// What the endpoint's counters held when `refused` was last brought up to date.
    counted: [u64; 2],
    /// Records of this node that another one made.
    copies: MinuteCounts<(), ()>,
    /// The same of the table's counter.
    copies_counted: u64,
}

impl<P: Provider> Node<P> {
    /// Counts a failed dial, if it was of a bootstrap node. A node without a free place is no fault: others are
    /// dialled.
    pub(super) fn note_failed_dial(&mut self, now: Instant, link: LinkId, failure: ConnectFailure) {
        let peer = self.peers.get(link);
        if let Some(peer) = peer.filter(|peer| !peer.bootstrap.is_empty()) {
            self.link_failures.dials.add(now, peer.node, failure);
        }
    }

    /// Tells that another node has this one's identity. After a start neighbours say back what was said before it.
    pub(super) fn tell_copies(&mut self, now: Instant) {
        let count = self.gossip.table().stats().own_from_before;
        let failures = &mut self.link_failures;
        let new = count.saturating_sub(failures.copies_counted);
        failures.copies_counted = count;
        if self.beats >= BEATS_OF_A_START {
            failures.copies.add_many(now, (), (), new);
        }
        for ((), (), records) in failures.copies.take_due(now) {
            self.tell(Event::IdentityInUse { records });
        }
    }

    /// Tells what is due.
    pub(super) fn tell_link_failures(&mut self, now: Instant) {
        let stats = self.endpoint.stats();
        let counts = [
            (NodeRefusal::WrongSecret, stats.dropped_psk),
            (NodeRefusal::NotMember, stats.refused_identity),
        ];
        let LinkFailures {
            dials,
            refused,
            counted,
            ..
        } = &mut self.link_failures;
        for ((reason, count), old) in counts.into_iter().zip(counted) {
            refused.add_many(now, reason, (), count.saturating_sub(*old));
            *old = count;
        }
        let (dials, refused) = (dials.take_due(now), refused.take_due(now));
        for (reason, (), count) in refused {
            self.tell(Event::NodesRefused { reason, count });
        }
        for (node, failure, attempts) in dials {
            let peer = self.peers.find(&node).and_then(|link| self.peers.get(link));
            self.tell(Event::BootstrapFailed {
                node,
                addresses: peer.map(Peer::addresses).unwrap_or_default(),
                failure,
                attempts,
            });
        }
    }
}

/// Beats after which what was said in an earlier life has come back: 10 s.
const BEATS_OF_A_START: u64 = 100;
