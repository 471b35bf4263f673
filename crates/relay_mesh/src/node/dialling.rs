//! Whom to dial, and who makes room where too many came.

use core::time::Duration;

use crypto::{Provider, Role};
use udp_proto::{CloseCode, CloseReason, ConnectFailure};
use wire::{Instant, NodeId};

use super::Node;
use super::peers::Contact;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::selection::{Guest, parting_order};

/// Why a dial came to nothing or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The other end had no place for us.
    Full,
    /// It does not answer.
    Silent,
    /// Anything else.
    Other,
}

impl From<CloseReason> for Ending {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Peer(CloseCode::Full) => Self::Full,
            CloseReason::Timeout => Self::Silent,
            CloseReason::Local(_) | CloseReason::Peer(_) | CloseReason::Reset | _ => Self::Other,
        }
    }
}

impl From<ConnectFailure> for Ending {
    fn from(failure: ConnectFailure) -> Self {
        if failure == ConnectFailure::Refused(CloseCode::Full) {
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
        if !self.selecting.is_choosing && self.peers.len() > self.selecting.places.all {
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
        let wanting = self.selecting.wanting.iter().copied();
        let mut due: Vec<LinkId> = wanting
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
        if due.len() < room && !lost.iter().any(|link| self.peers.has_contact(*link)) {
            let mut lost = lost.into_iter().filter(|link| self.may_dial(now, *link));
            due.extend(lost.next());
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

    /// Keeps some places free, at the cost of the newest guest whose link nobody uses: who comes
    /// is let in for long enough to learn of others, and whoever needs this node begins to use it.
    fn make_room_for_links(&mut self, now: Instant) {
        let places = self.selecting.places;
        let contacts = self.peers.contacts();
        if !self.selecting.is_choosing || contacts <= places.calm {
            return;
        }
        let stay = if contacts < places.max {
            STAY
        } else {
            STAY_CROWDED
        };
        let guests = self.peers.up().filter(|(link, _, up)| {
            now.saturating_since(up.since) >= stay
                && !self.selecting.chosen.contains_key(link)
                && self.endpoint.role(up.session) == Some(Role::Accepter)
        });
        let guests = guests.map(|(link, peer, up)| Guest {
            link,
            since: up.since,
            has_cause: self.has_cause(&peer.node),
        });
        let order = parting_order(guests);
        if let Some(link) = order.into_iter().find(|link| !self.is_in_use(*link)) {
            self.part(now, link, CloseCode::Full);
        }
    }

    /// Whether a guest is likely to need this node: it has players, for an exit.
    fn has_cause(&self, guest: &NodeId) -> bool {
        let roles = self.gossip.table().profile(guest);
        self.config.profile.roles.contains(Roles::EXIT)
            && roles.is_some_and(|(_, roles)| roles.contains(Roles::ENTRY))
    }

    /// Guests with a cause, whom this node did not choose itself.
    pub(super) fn guests_with_cause(&self) -> usize {
        let guests = self.peers.up().filter(|(link, peer, up)| {
            self.endpoint.role(up.session) == Some(Role::Accepter)
                && !self.selecting.chosen.contains_key(link)
                && self.has_cause(&peer.node)
        });
        guests.count()
    }

    /// Plans when to dial again. Who had no place, or does not answer, is left alone for longer
    /// where there are others to be had.
    pub(super) fn leave_alone(&mut self, now: Instant, link: LinkId, ending: Ending) {
        self.back_off(now, link);
        let is_far_end = self.selecting.far_ends.contains(&link);
        let millis = match ending {
            Ending::Full if is_far_end => FULL_NEEDED_MS,
            Ending::Full => FULL_MS,
            Ending::Silent if self.selecting.is_choosing => SILENT_MS,
            Ending::Silent | Ending::Other => return,
        };
        let millis = millis.saturating_add(self.generator.below(millis));
        let is_full = ending == Ending::Full;
        self.stats.dials_refused = self.stats.dials_refused.saturating_add(u64::from(is_full));
        if let Some(peer) = self.peers.get_mut(link) {
            peer.refused_until = Some(now + Duration::from_millis(millis));
        }
    }
}

/// Dials that a beat begins, where nodes are many.
const DIALS: usize = 2;
/// Time that a guest has whom nobody needs; where no place is left, less.
const STAY: Duration = Duration::from_secs(20);
const STAY_CROWDED: Duration = Duration::from_secs(3);
/// Milliseconds for which who had no place is not dialled again, and up to as many more by lot; of
/// an exit of this node's games, and of others.
const FULL_NEEDED_MS: u64 = 10_000;
const FULL_MS: u64 = 90_000;
/// The same of those who do not answer.
const SILENT_MS: u64 = 20_000;
