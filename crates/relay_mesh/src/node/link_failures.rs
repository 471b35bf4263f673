//! Links that do not come about or do not last: the operator hears of each cause once a minute.

use crypto::Provider;
use udp_proto::ConnectFailure;
use wire::{Instant, NodeId};

use super::Node;
use super::minute_counts::MinuteCounts;
use super::peers::Contact;
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
    own: MinuteCounts<(), ()>,
    /// What the table's counter held when `own` was last brought up to date.
    own_counted: u64,
    /// How many spans of 10 s in a row brought such records.
    spans_with_own: u8,
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

    /// Counts a node that was taken off the members while its session opened.
    pub(super) fn note_non_member(&mut self, now: Instant) {
        self.link_failures
            .refused
            .add(now, NodeRefusal::NotMember, ());
    }

    /// Reports another node with this one's identity. Call it each 10 s.
    ///
    /// After a start, or once a partition heals, neighbours return this node's own earlier records: once, as the next
    /// record is newer. Another node goes on making them.
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

    /// Tells what is due.
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
            // It may have answered since.
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

/// Spans of 10 s in a row with such records that show another node: what comes back after a partition meets two at
/// most.
const SPANS_IN_A_ROW: u8 = 3;
