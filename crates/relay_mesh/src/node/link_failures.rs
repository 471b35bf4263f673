//! Links that cannot be opened or do not last. Each cause is reported at most once a minute.

use crypto::Provider;
use udp_proto::ConnectFailure;
use wire::{Instant, NodeId};

use super::Node;
use super::minute_counts::MinuteCounts;
use super::peers::Contact;
use crate::event::{Event, NodeRefusal};
use crate::link::LinkId;

/// Failed dials of bootstrap nodes, and rejected nodes.
#[derive(Debug, Default)]
pub(super) struct LinkFailures {
    /// At most one entry for each bootstrap node.
    dials: MinuteCounts<NodeId, ConnectFailure>,
    refused: MinuteCounts<NodeRefusal, ()>,
    /// Values of the endpoint's counters when `refused` was last updated.
    counted: [u64; 2],
    /// Records with this node's identity that another node made.
    own: MinuteCounts<(), ()>,
    /// Value of the table's counter when `own` was last updated.
    own_counted: u64,
    /// Number of consecutive 10 s spans with such records.
    spans_with_own: u8,
}

impl<P: Provider> Node<P> {
    /// Counts a failed dial if it was to a bootstrap node. A full node is not counted as a failure:
    /// others are dialled.
    pub(super) fn note_failed_dial(&mut self, now: Instant, link: LinkId, failure: ConnectFailure) {
        let peer = self.peers.get(link);
        if let Some(peer) = peer.filter(|peer| !peer.bootstrap.is_empty()) {
            self.link_failures.dials.add(now, peer.node, failure);
        }
    }

    /// Counts a node that was removed from the members while its session opened.
    pub(super) fn note_non_member(&mut self, now: Instant) {
        self.link_failures
            .refused
            .add(now, NodeRefusal::NotMember, ());
    }

    /// Reports another node with this one's identity. Call it every 10 s.
    ///
    /// After a start, or after a partition heals, neighbours return this node's own earlier
    /// records. That happens once, because its next record is newer. A second node with the
    /// identity keeps making them.
    pub(super) fn report_identity_in_use(&mut self, now: Instant) {
        let count = self.gossip.table().stats().own_from_before;
        let failures = &mut self.link_failures;
        let new = count.saturating_sub(failures.own_counted);
        failures.own_counted = count;
        failures.spans_with_own = if new > 0 {
            failures.spans_with_own.saturating_add(1)
        } else {
            0
        };
        if failures.spans_with_own >= SPANS_IN_A_ROW {
            failures.own.add_many(now, (), (), new);
        }
    }

    /// Emits the counts that are due.
    pub(super) fn emit_link_failures(&mut self, now: Instant) {
        let stats = self.endpoint.stats();
        let counts = [
            (NodeRefusal::WrongSecret, stats.dropped_psk),
            (NodeRefusal::NotMember, stats.refused_identity),
        ];
        let LinkFailures {
            dials,
            refused,
            counted,
            own,
            ..
        } = &mut self.link_failures;
        for ((reason, count), old) in counts.into_iter().zip(counted) {
            refused.add_many(now, reason, (), count.saturating_sub(*old));
            *old = count;
        }
        let (dials, refused) = (dials.take_due(now), refused.take_due(now));
        for ((), (), records) in own.take_due(now) {
            self.emit(Event::IdentityInUse { records });
        }
        for (reason, (), count) in refused {
            self.emit(Event::NodesRefused { reason, count });
        }
        for (node, failure, attempts) in dials {
            let peer = self.peers.find(&node).and_then(|link| self.peers.get(link));
            // It may have connected since.
            let Some(peer) = peer.filter(|peer| !matches!(peer.contact, Contact::Up(_))) else {
                continue;
            };
            let addresses = peer.bootstrap.clone();
            self.emit(Event::BootstrapFailed {
                node,
                addresses,
                failure,
                attempts,
            });
        }
    }
}

/// Consecutive 10 s spans with such records that prove another node. Records returned after a
/// partition span two at most.
const SPANS_IN_A_ROW: u8 = 3;
