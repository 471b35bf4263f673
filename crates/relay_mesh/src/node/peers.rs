//! Nodes that this one knows of, and its sessions with them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::SessionId;
use udp_proto::budget::TokenBucket;
use wire::{Instant, NodeId};

use crate::link::LinkId;
use crate::measure::Prober;

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    /// Where it may be reached; at most 8.
    pub(super) addresses: Vec<SocketAddr>,
    /// Dialled whether or not it is alive by its records.
    pub(super) is_bootstrap: bool,
    pub(super) contact: Contact,
    /// When to dial next.
    pub(super) next_dial: Instant,
    /// Dials in a row that failed.
    pub(super) failures: u32,
    /// Labels that it may ask for.
    pub(super) requests: TokenBucket,
}

/// How this node stands with another.
#[derive(Debug)]
pub(super) enum Contact {
    /// No session.
    None,
    /// We dial.
    Dialling(SessionId),
    /// A session is open.
    Up(Box<Up>),
}

/// An open session.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) session: SessionId,
    pub(super) prober: Prober,
    /// Whether its path carries hop frames.
    pub(super) carries: bool,
}

/// All nodes known of, by link and by name. A link id is given once in the life of the process.
#[derive(Debug)]
pub(super) struct Peers {
    list: Vec<Peer>,
    by_node: BTreeMap<NodeId, LinkId>,
    by_session: BTreeMap<SessionId, LinkId>,
    max: usize,
    request_rate: u32,
}

impl Peers {
    pub(super) fn new(max: u16, request_rate: u32) -> Self {
        Self {
            list: Vec::new(),
            by_node: BTreeMap::new(),
            by_session: BTreeMap::new(),
            max: usize::from(max),
            request_rate,
        }
    }

    /// Returns the link of `node`, made where it is new; `None` where too many are known.
    pub(super) fn intern(&mut self, now: Instant, node: NodeId) -> Option<LinkId> {
        if let Some(&link) = self.by_node.get(&node) {
            return Some(link);
        }
        let index = self.list.len();
        let link = LinkId(u16::try_from(index).ok().filter(|_| index < self.max)?);
        self.list.push(Peer {
            node,
            addresses: Vec::new(),
            is_bootstrap: false,
            contact: Contact::None,
            next_dial: now,
            failures: 0,
            requests: TokenBucket::new(self.request_rate, self.request_rate.saturating_mul(4), now),
        });
        self.by_node.insert(node, link);
        Some(link)
    }

    pub(super) fn find(&self, node: &NodeId) -> Option<LinkId> {
        self.by_node.get(node).copied()
    }

    pub(super) fn of_session(&self, session: SessionId) -> Option<LinkId> {
        self.by_session.get(&session).copied()
    }

    pub(super) fn get(&self, link: LinkId) -> Option<&Peer> {
        self.list.get(usize::from(link.0))
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Peer> {
        self.list.get_mut(usize::from(link.0))
    }

    /// All nodes known of, by link.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LinkId, &Peer)> {
        (0..).map(LinkId).zip(&self.list)
    }

    /// Those with an open session.
    pub(super) fn up(&self) -> impl Iterator<Item = (LinkId, &Peer, &Up)> {
        self.iter().filter_map(|(link, peer)| match &peer.contact {
            Contact::Up(up) => Some((link, peer, &**up)),
            Contact::None | Contact::Dialling(_) => None,
        })
    }

    pub(super) fn up_mut(&mut self, link: LinkId) -> Option<&mut Up> {
        match &mut self.get_mut(link)?.contact {
            Contact::Up(up) => Some(up),
            Contact::None | Contact::Dialling(_) => None,
        }
    }

    pub(super) fn session(&self, link: LinkId) -> Option<SessionId> {
        match &self.get(link)?.contact {
            Contact::Up(up) => Some(up.session),
            Contact::None | Contact::Dialling(_) => None,
        }
    }

    /// Whether hop frames may go to and come from a node.
    pub(super) fn carries(&self, link: LinkId) -> bool {
        self.get(link)
            .is_some_and(|peer| matches!(&peer.contact, Contact::Up(up) if up.carries))
    }

    /// Sets how we stand with a node, and keeps the sessions findable.
    pub(super) fn set_contact(&mut self, link: LinkId, contact: Contact) {
        let Some(peer) = self.list.get_mut(usize::from(link.0)) else {
            return;
        };
        if let Contact::Dialling(session) = &peer.contact {
            self.by_session.remove(session);
        }
        if let Contact::Up(up) = &peer.contact {
            self.by_session.remove(&up.session);
        }
        match &contact {
            Contact::None => {}
            Contact::Dialling(session) => {
                self.by_session.insert(*session, link);
            }
            Contact::Up(up) => {
                self.by_session.insert(up.session, link);
            }
        }
        peer.contact = contact;
    }

    /// Sessions and dials.
    pub(super) fn contacts(&self) -> usize {
        self.by_session.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Peer>()
            + self.by_session.len() * (size_of::<Up>() + 12 * 1_024)
    }
}

impl Peer {
    /// Plans the next dial after one that failed or a session that ended.
    pub(super) fn back_off(&mut self, now: Instant, spread: Duration) {
        let span = BACK_OFF
            .saturating_mul(1 << self.failures.min(5))
            .min(BACK_OFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.next_dial = now + span + spread;
    }
}

/// Wait after the first dial that failed; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(16);
