//! Which nodes to dial, and when to retry.

use core::time::Duration;

use crypto::Provider;
use udp_proto::{CloseCode, CloseReason, ConnectFailure};
use wire::Instant;

use super::Node;
use super::peers::Contact;
use crate::link::LinkId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Full,
    /// The peer chose other neighbours.
    Deselected,
    Silent,
    /// The peer does not know the session: it restarted, or dropped it.
    Lost,
    /// This node is not a member at the peer.
    NotMember,
    Other,
}

impl From<CloseReason> for Ending {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Peer(CloseCode::Full) => Self::Full,
            CloseReason::Peer(CloseCode::NoError) => Self::Deselected,
            CloseReason::Peer(CloseCode::PeerIdentity) => Self::NotMember,
            CloseReason::Timeout => Self::Silent,
            CloseReason::Reset => Self::Lost,
            CloseReason::Local(_) | CloseReason::Peer(_) | _ => Self::Other,
        }
    }
}

impl From<ConnectFailure> for Ending {
    fn from(failure: ConnectFailure) -> Self {
        let full = ConnectFailure::Refused(CloseCode::Full);
        if failure == full || failure == ConnectFailure::Refused(CloseCode::SourceFull) {
            Self::Full
        } else {
            Self::Silent
        }
    }
}

impl<P: Provider> Node<P> {
    /// Dials the nodes to link with: all that are live or on the bootstrap list or, in a large
    /// mesh, the selected ones.
    pub(super) fn dial_due(&mut self, now: Instant) {
        if !self.selecting.is_choosing && self.peers.len() > self.selecting.slots.full_mesh_max {
            self.select_links(now);
        }
        self.make_room_for_links(now);
        let room = self.config.links_max.saturating_sub(self.peers.contacts());
        let due = if self.selecting.is_choosing {
            self.chosen_due(now, room.min(DIALS))
        } else {
            self.all_due(now, room)
        };
        for link in due {
            self.dial(now, link);
        }
    }

    fn all_due(&self, now: Instant, room: usize) -> Vec<LinkId> {
        let due = self.peers.iter().filter(|(link, peer)| {
            self.may_dial(now, *link)
                && (!peer.bootstrap.is_empty()
                    || (!peer.learned.is_empty() && self.gossip.table().is_live(&peer.node)))
        });
        due.map(|(link, _)| link).take(room).collect()
    }

    /// The selected nodes that are due, and at most one bootstrap node without a live record, so
    /// that the parts of a partitioned network find each other.
    fn chosen_due(&self, now: Instant, room: usize) -> Vec<LinkId> {
        let wanted_links = self.selecting.wanted_links.iter().copied();
        let mut due: Vec<LinkId> = wanted_links
            .filter(|link| self.may_dial(now, *link))
            .take(room)
            .collect();
        let is_lost = |link: &LinkId| {
            self.peers.get(*link).is_some_and(|peer| {
                !peer.bootstrap.is_empty() && !self.gossip.table().is_live(&peer.node)
            })
        };
        let lost: Vec<LinkId> = self
            .peers
            .iter()
            .map(|(link, _)| link)
            .filter(is_lost)
            .collect();
        // A bootstrap node that is linked but sends no record delays the others only briefly.
        let is_awaited = |link: &LinkId| match self.peers.get(*link).map(|peer| &peer.contact) {
            Some(Contact::Dialling(_)) => true,
            Some(Contact::Up(up)) => now.saturating_since(up.since) < RECORD_WAIT,
            Some(Contact::None) | None => false,
        };
        if due.len() < room && !lost.iter().any(is_awaited) {
            let lost = lost.into_iter().filter(|link| self.may_dial(now, *link));
            let next_dial = |link: &LinkId| self.peers.get(*link).map(|peer| peer.next_dial);
            due.extend(lost.min_by_key(next_dial));
        }
        due
    }

    fn may_dial(&self, now: Instant, link: LinkId) -> bool {
        self.peers.get(link).is_some_and(|peer| {
            let is_refused = peer.refused_until.is_some_and(|until| now < until);
            matches!(peer.contact, Contact::None)
                && peer.next_dial <= now
                && !(is_refused && self.peers.has_links())
                && self.is_member(&peer.node)
        })
    }

    /// Redials after only a random delay: a session that had lasted timed out or was reset.
    pub(super) fn dial_again(&mut self, now: Instant, link: LinkId) {
        let spread = self.dial_spread();
        if let Some(peer) = self.peers.get_mut(link) {
            (peer.failures, peer.next_dial) = (0, now + spread);
        }
    }

    /// Sets when to redial: later if the node was full or, in a large mesh, did not answer. The
    /// longer wait applies only while this node has links.
    pub(super) fn back_off_after(&mut self, now: Instant, link: LinkId, ending: Ending) {
        self.back_off(now, link);
        let is_remote_end = self.selecting.survey.remote_ends.contains(&link);
        let millis = match ending {
            Ending::Full if is_remote_end => FULL_NEEDED_MS,
            Ending::Full => FULL_MS,
            Ending::Silent if self.selecting.is_choosing => SILENT_MS,
            Ending::Silent
            | Ending::Lost
            | Ending::Deselected
            | Ending::NotMember
            | Ending::Other => {
                return;
            }
        };
        let millis = millis.saturating_add(self.generator.below(millis));
        let is_full = ending == Ending::Full;
        self.stats.dials_refused = self.stats.dials_refused.saturating_add(u64::from(is_full));
        if let Some(peer) = self.peers.get_mut(link) {
            peer.refused_until = Some(now + Duration::from_millis(millis));
        }
    }
}

/// Dials per tick in a large mesh: the 40 nodes selected for 64 slots take two seconds.
const DIALS: usize = 2;
/// How long a linked bootstrap node may take to send its record before another one is dialed:
/// several retransmissions of its first message.
const RECORD_WAIT: Duration = Duration::from_secs(5);
/// Milliseconds before a full exit of this node's games is dialed again, plus up to as many at
/// random: half of the 20 s that unneeded inbound peers stay.
const FULL_NEEDED_MS: u64 = 10_000;
/// The same for other full nodes: one that 1,000 nodes dial rejects about seven per second.
const FULL_MS: u64 = 90_000;
/// The same for nodes that do not answer: the dial of 10 s takes at most a third of the time.
const SILENT_MS: u64 = 20_000;
