//! Whom to dial, and when again.

use core::time::Duration;

use crypto::Provider;
use udp_proto::{CloseCode, CloseReason, ConnectFailure};
use wire::Instant;

use super::Node;
use super::peers::Contact;
use crate::link::LinkId;

/// Why a dial came to nothing or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The other end had no place for us.
    Full,
    /// The other end chose others.
    Parted,
    /// It does not answer.
    Silent,
    /// It knows nothing of the session: it was started again, or gave it up.
    Lost,
    /// The other end does not accept our identity: we are not among its members.
    NotMember,
    /// Anything else.
    Other,
}

impl From<CloseReason> for Ending {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Peer(CloseCode::Full) => Self::Full,
            CloseReason::Peer(CloseCode::NoError) => Self::Parted,
            CloseReason::Peer(CloseCode::PeerIdentity) => Self::NotMember,
            CloseReason::Timeout => Self::Silent,
            CloseReason::Reset => Self::Lost,
            CloseReason::Local(_) | CloseReason::Peer(_) | _ => Self::Other,
        }
    }
}

impl From<ConnectFailure> for Ending {
    fn from(failure: ConnectFailure) -> Self {
        if matches!(
            failure,
            ConnectFailure::Refused(CloseCode::Full | CloseCode::SourceFull)
        ) {
            Self::Full
        } else {
            Self::Silent
        }
    }
}

impl<P: Provider> Node<P> {
    /// Dials those that there should be a link with: all who are alive or of the bootstrap list;
    /// where they are too many, those that were chosen.
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

    /// Those that were chosen. Of the bootstrap list who is not alive by the records held is
    /// dialled too: so a network that was cut in two finds its other half.
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
        // One that is up and says nothing of itself is no reason to wait for long.
        let is_awaited = |link: &LinkId| match self.peers.get(*link).map(|peer| &peer.contact) {
            Some(Contact::Dialling(_)) => true,
            Some(Contact::Up(up)) => now.saturating_since(up.since) < HEARD_WITHIN,
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

    /// Dials as soon as may be after a session that lasted fell silent or was lost.
    pub(super) fn dial_again(&mut self, now: Instant, link: LinkId) {
        let spread = self.dial_spread();
        if let Some(peer) = self.peers.get_mut(link) {
            (peer.failures, peer.next_dial) = (0, now + spread);
        }
    }

    /// Plans when to dial again. Who had no place, or does not answer, is left alone for longer
    /// where there are others to be had.
    pub(super) fn back_off_after(&mut self, now: Instant, link: LinkId, ending: Ending) {
        self.back_off(now, link);
        let is_far_end = self.selecting.far_ends.contains(&link);
        let millis = match ending {
            Ending::Full if is_far_end => FULL_NEEDED_MS,
            Ending::Full => FULL_MS,
            Ending::Silent if self.selecting.is_choosing => SILENT_MS,
            Ending::Silent | Ending::Lost | Ending::Parted | Ending::NotMember | Ending::Other => {
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

/// Dials that a beat begins, where nodes are many: 20 a second. Chosen so that the 40 nodes that are chosen of 64
/// places are dialled within two seconds, and not all at once.
const DIALS: usize = 2;
/// Time that a node of the bootstrap list has to be heard of over its link before another is dialled. Chosen so
/// that its hello, which it says first, has come also where it was lost and sent again several times.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// Milliseconds for which who had no place is not dialled again, and up to as many more by lot, where it is an exit
/// of this node's games: chosen half of the 20 s that its guests have, so that a place that becomes free is found.
const FULL_NEEDED_MS: u64 = 10_000;
/// The same of others: chosen so that a full node to which 1,000 others come turns away some seven a second
/// (1,000 / 135 s).
const FULL_MS: u64 = 90_000;
/// The same of those who do not answer: chosen so that of the time no more than a third goes to dials of such a node,
/// each of which takes 10 s.
const SILENT_MS: u64 = 20_000;
