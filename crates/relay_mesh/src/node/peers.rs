//! Known nodes, and the sessions with them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Provider;
use udp_proto::SessionId;
use wire::{Instant, NodeId, TokenBucket};

use super::{Node, Pending};
use crate::config::Config;
use crate::cost::Cost;
use crate::link::{LinkId, LinkSet};
use crate::measure::{Prober, Window};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    /// The addresses of its newest record.
    pub(super) learned: Vec<SocketAddr>,
    /// Its addresses in the bootstrap list. A node with one is dialed even without a live record.
    pub(super) bootstrap: Vec<SocketAddr>,
    /// The address of the last dial that succeeded.
    pub(super) reached: Option<SocketAddr>,
    pub(super) contact: Contact,
    pub(super) last_prober: Option<Box<LastProber>>,
    pub(super) next_dial: Instant,
    /// Consecutive dials that failed or led to a session that did not last.
    pub(super) failures: u32,
    /// Measured cost of the link, and until when it counts after the link is down.
    pub(super) measured: Option<(Cost, Instant)>,
    /// Until when it is not dialed: it was full or did not answer.
    pub(super) refused_until: Option<Instant>,
    /// Until when it gets none of the last free slots.
    pub(super) evicted_until: Option<Instant>,
    evictions: u32,
    /// When it last had a live record or a session, or was in use.
    pub(super) seen: Instant,
    pub(super) limits: PeerLimits,
}

#[derive(Debug)]
pub(super) struct PeerLimits {
    /// Flows that it opens.
    pub(super) opens: TokenBucket,
    /// Labels that it requests.
    pub(super) requests: TokenBucket,
    /// Labels that it releases; not more than it was granted.
    pub(super) releases: TokenBucket,
    /// Bytes that this node relays for it.
    pub(super) relayed: TokenBucket,
    /// Bytes that it relays to this node as no detour's relay.
    pub(super) received: TokenBucket,
}

/// The prober of an ended session, kept for the next one.
#[derive(Debug)]
pub(super) struct LastProber {
    prober: Prober,
    address: SocketAddr,
    ended_at: Instant,
}

#[derive(Debug)]
pub(super) enum Contact {
    None,
    Dialling(SessionId),
    Up(Box<Up>),
}

#[derive(Debug)]
pub(super) struct Up {
    pub(super) session: SessionId,
    pub(super) since: Instant,
    /// When this node last selected it, or when an unknown node connected.
    pub(super) chosen_at: Option<Instant>,
    pub(super) prober: Prober,
    /// Whether its direct path carries hop frames.
    pub(super) carries: bool,
    /// Whether datagrams of 1,280 bytes do not pass, so that they are sent in pieces.
    pub(super) is_small: bool,
}

/// All known nodes. A link id is reused once its node is forgotten and unreferenced.
#[derive(Debug)]
pub(super) struct Peers {
    list: Vec<Peer>,
    free: Vec<LinkId>,
    by_node: BTreeMap<NodeId, LinkId>,
    by_session: BTreeMap<SessionId, LinkId>,
    open: BTreeSet<LinkId>,
    max: usize,
    rates: Rates,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    request: u32,
    /// Flows that an entry with this node's configuration opens.
    open: u32,
}

impl Contact {
    const fn up(&self) -> Option<&Up> {
        match self {
            Self::Up(up) => Some(up),
            Self::None | Self::Dialling(_) => None,
        }
    }
}

impl Rates {
    pub(super) const fn of(config: &Config) -> Self {
        Self {
            request: config.request_rate,
            open: config.open_rate,
        }
    }
}

impl Peers {
    pub(super) fn new(max: u16, rates: Rates) -> Self {
        Self {
            list: Vec::new(),
            free: Vec::new(),
            by_node: BTreeMap::new(),
            by_session: BTreeMap::new(),
            open: BTreeSet::new(),
            max: usize::from(max),
            rates,
        }
    }

    /// The link id of `node`, assigned if it is new; `None` if too many are known.
    pub(super) fn intern(&mut self, now: Instant, node: NodeId) -> Option<LinkId> {
        if let Some(&link) = self.by_node.get(&node) {
            return Some(link);
        }
        let peer = Peer::new(now, node, self.rates);
        let link = if let Some(link) = self.free.pop() {
            *self.get_mut(link)? = peer;
            link
        } else {
            let index = self.list.len();
            let link = LinkId(u16::try_from(index).ok().filter(|_| index < self.max)?);
            self.list.push(peer);
            link
        };
        self.by_node.insert(node, link);
        Some(link)
    }

    /// Frees the link id of a node without a session or references.
    pub(super) fn forget(&mut self, now: Instant, link: LinkId) {
        let rates = self.rates;
        if let Some(peer) = self.get_mut(link).filter(|peer| peer.node != NOBODY) {
            let gone = core::mem::replace(peer, Peer::new(now, NOBODY, rates));
            self.by_node.remove(&gone.node);
            self.free.push(link);
        }
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (LinkId, &Peer)> {
        let all = (0..).map(LinkId).zip(&self.list);
        all.filter(|(_, peer)| peer.node != NOBODY)
    }

    pub(super) fn up(&self) -> impl Iterator<Item = (LinkId, &Peer, &Up)> {
        self.open.iter().filter_map(|&link| {
            let peer = self.get(link)?;
            Some((link, peer, peer.contact.up()?))
        })
    }

    pub(super) fn up_of(&self, link: LinkId) -> Option<&Up> {
        self.get(link)?.contact.up()
    }

    pub(super) fn up_mut(&mut self, link: LinkId) -> Option<&mut Up> {
        match &mut self.get_mut(link)?.contact {
            Contact::Up(up) => Some(up),
            Contact::None | Contact::Dialling(_) => None,
        }
    }

    pub(super) fn session(&self, link: LinkId) -> Option<SessionId> {
        Some(self.up_of(link)?.session)
    }

    pub(super) fn drop_old_probers(&mut self, now: Instant) {
        for peer in &mut self.list {
            peer.last_prober.take_if(|last| !last.is_fresh(now));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_node.len()
    }

    pub(super) fn has_links(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn has_contact(&self, link: LinkId) -> bool {
        let peer = self.get(link);
        peer.is_some_and(|peer| !matches!(peer.contact, Contact::None))
    }

    pub(super) fn carries(&self, link: LinkId) -> bool {
        self.up_of(link).is_some_and(|up| up.carries)
    }

    /// Whether the link does not carry hop frames of full length.
    pub(super) fn is_small(&self, link: LinkId) -> bool {
        self.up_of(link).is_some_and(|up| up.is_small)
    }

    /// Ends the session with a node at `address`. If the link was up, keeps its prober.
    pub(super) fn end_session(&mut self, now: Instant, link: LinkId, address: Option<SocketAddr>) {
        if let Contact::Up(up) = self.set_contact(link, Contact::None)
            && up.prober.was_up()
            && let Some(address) = address
            && let Some(peer) = self.get_mut(link)
        {
            peer.last_prober = Some(Box::new(LastProber {
                prober: up.prober,
                address,
                ended_at: now,
            }));
        }
    }

    /// Sets the contact of a node; returns the previous one.
    pub(super) fn set_contact(&mut self, link: LinkId, contact: Contact) -> Contact {
        let Some(peer) = self.list.get_mut(usize::from(link.0)) else {
            return Contact::None;
        };
        if let Contact::Dialling(session) = &peer.contact {
            self.by_session.remove(session);
        }
        if let Contact::Up(up) = &peer.contact {
            self.by_session.remove(&up.session);
            self.open.remove(&link);
        }
        match &contact {
            Contact::None => {}
            Contact::Dialling(session) => {
                self.by_session.insert(*session, link);
            }
            Contact::Up(up) => {
                self.by_session.insert(up.session, link);
                self.open.insert(link);
            }
        }
        core::mem::replace(&mut peer.contact, contact)
    }

    pub(super) fn contacts(&self) -> usize {
        self.by_session.len()
    }

    pub(super) fn memory(&self) -> usize {
        const UP: usize = size_of::<Up>() + 12 * 1_024;
        const LAST: usize = size_of::<LastProber>() + 12 * 1_024;
        let last = self.list.iter().filter(|peer| peer.last_prober.is_some());
        let known = self.list.capacity().saturating_mul(size_of::<Peer>());
        known
            .saturating_add(last.count().saturating_mul(LAST))
            .saturating_add(self.by_session.len().saturating_mul(UP))
    }
}

impl Peer {
    const fn new(now: Instant, node: NodeId, rates: Rates) -> Self {
        Self {
            node,
            learned: Vec::new(),
            bootstrap: Vec::new(),
            reached: None,
            contact: Contact::None,
            last_prober: None,
            next_dial: now,
            failures: 0,
            measured: None,
            refused_until: None,
            evicted_until: None,
            evictions: 0,
            seen: now,
            limits: PeerLimits::new(now, rates),
        }
    }

    /// Addresses to dial, at most [`ADDRESSES_MAX`]: the last that was reached, those of records,
    /// those of the bootstrap list. After a failure the next dial starts with those that the last
    /// had no time for.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.learned.iter().chain(&self.bootstrap);
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for &address in self.reached.iter().chain(known) {
            if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let tried = usize::try_from(self.failures).unwrap_or(0);
        let start = tried.saturating_mul(TRIED_BY_A_DIAL);
        let start = start.checked_rem(addresses.len()).unwrap_or(0);
        addresses.rotate_left(start);
        addresses
    }

    /// The prober of the last session if that ended recently at the same address.
    pub(super) fn take_prober(&mut self, now: Instant, address: SocketAddr) -> Option<Prober> {
        let last = *self.last_prober.take()?;
        let is_same = last.address == address && last.is_fresh(now);
        let mut prober = is_same.then_some(last.prober)?;
        prober.renew(now);
        Some(prober)
    }

    /// Keeps the evicted peer from taking one of the last free slots for 20 to 80 s.
    pub(super) fn evict(&mut self, now: Instant) {
        let span = EVICTED_FOR.saturating_mul(1 << self.evictions.min(2));
        self.evictions = self.evictions.saturating_add(1);
        self.evicted_until = Some(now + span);
    }

    /// Schedules the next dial after this node closed a session itself.
    pub(super) fn schedule_redial(&mut self, now: Instant, spread: Duration) {
        self.next_dial = now + BACK_OFF + spread;
    }

    /// Schedules the next dial after a failed dial or a session that this node did not end.
    pub(super) fn back_off(&mut self, now: Instant, spread: Duration) {
        let span = BACK_OFF
            .saturating_mul(1 << self.failures.min(5))
            .min(BACK_OFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.reached = None;
        self.next_dial = now + span + spread;
    }
}

impl PeerLimits {
    const fn new(now: Instant, rates: Rates) -> Self {
        let labels = TokenBucket::new(rates.request, rates.request.saturating_mul(4), now);
        let (opens, burst) = (
            rates.open.saturating_mul(OPEN_RATE_FACTOR),
            rates.open.saturating_mul(OPEN_BURST),
        );
        let bytes = TokenBucket::new(DETOUR_RATE, DETOUR_RATE, now);
        Self {
            opens: TokenBucket::new(opens, burst, now),
            requests: labels,
            releases: labels,
            relayed: bytes,
            received: bytes,
        }
    }
}

impl LastProber {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_since(self.ended_at) < Window::SPAN
    }
}

impl<P: Provider> Node<P> {
    /// Removes nodes that were not seen for 10 minutes. At most [`Config::peers_max`] nodes have a
    /// link id at a time.
    pub(super) fn forget_nodes(&mut self, now: Instant) {
        let mut gone: Vec<LinkId> = Vec::new();
        let links: Vec<LinkId> = self.peers.iter().map(|(link, _)| link).collect();
        for link in links {
            let table = self.gossip.table();
            let Some(peer) = self.peers.get_mut(link) else {
                continue;
            };
            let has_contact = !matches!(peer.contact, Contact::None);
            if has_contact || !peer.bootstrap.is_empty() || table.is_live(&peer.node) {
                peer.seen = now;
            } else if now.saturating_since(peer.seen) >= FORGET_AFTER && gone.len() < FORGOTTEN_MAX
            {
                gone.push(link);
            }
        }
        if gone.is_empty() {
            return;
        }
        let referenced = self.referenced();
        for link in gone {
            if !referenced.contains(link) && !self.detours.refers_to(link) {
                self.peers.forget(now, link);
                self.stats.nodes_forgotten = self.stats.nodes_forgotten.saturating_add(1);
            } else if let Some(peer) = self.peers.get_mut(link) {
                peer.seen = now;
            }
        }
    }

    /// Links that are still referenced, except by detours or for seconds after a session.
    fn referenced(&self) -> LinkSet {
        let mut referenced = self.links_in_use();
        referenced.add_all(&self.links_referenced());
        referenced.extend(self.pending.values().filter_map(|pending| match pending {
            Pending::Upstream(_, remote, _) => Some(*remote),
            Pending::Port(_) | Pending::Measure | Pending::Close => None,
        }));
        referenced
    }
}

const NOBODY: NodeId = NodeId([0; 32]);
/// Bytes per second relayed for one node, and the burst: twice the control traffic of a node in a
/// mesh of 1,000 nodes.
pub(super) const DETOUR_RATE: u32 = 64 << 10;
/// Open rate of another node, relative to an entry's own.
const OPEN_RATE_FACTOR: u32 = 2;
/// The burst, in seconds of an entry's rate: messages saved up for 4 s may arrive 12 s late and all
/// at once. After a longer silence the session times out.
const OPEN_BURST: u32 = 16;
/// Wait after the first failed dial; doubled after each further one.
const BACK_OFF: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(16);
/// How long an evicted peer gets no slot; four times as long from the third eviction on.
const EVICTED_FOR: Duration = Duration::from_secs(20);
/// Addresses of one dial, as many as `udp_proto` accepts.
const ADDRESSES_MAX: usize = 8;
/// Addresses that one dial has time for: 10 s at 2.5 s each.
const TRIED_BY_A_DIAL: usize = 4;
/// Longer than records are kept, and as long as measurements.
const FORGET_AFTER: Duration = Duration::from_secs(600);
const FORGOTTEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dial_begins_where_the_last_one_succeeded_and_a_failure_moves_on() {
        let rates = Rates {
            request: 1,
            open: 1,
        };
        let mut peers = Peers::new(1, rates);
        let link = peers.intern(Instant::ZERO, NodeId([1; 32])).unwrap();
        let peer = peers.get_mut(link).unwrap();
        assert_eq!(peer.addresses(), []);
        let at = |host: u8| SocketAddr::from(([192, 0, 2, host], 9));
        peer.learned = (1..=4).map(at).collect();
        peer.bootstrap = (4..=6).map(at).collect();
        let hosts = |list: &[u8]| list.iter().copied().map(at).collect::<Vec<_>>();
        assert_eq!(peer.addresses(), hosts(&[1, 2, 3, 4, 5, 6]));
        peer.reached = Some(at(5));
        assert_eq!(peer.addresses(), hosts(&[5, 1, 2, 3, 4, 6]));
        peer.schedule_redial(Instant::ZERO, Duration::ZERO);
        assert_eq!(peer.addresses(), hosts(&[5, 1, 2, 3, 4, 6]));
        assert_eq!(
            (peer.failures, peer.next_dial),
            (0, Instant::ZERO + BACK_OFF)
        );
        peer.back_off(Instant::ZERO, Duration::ZERO);
        assert_eq!(peer.addresses(), hosts(&[5, 6, 1, 2, 3, 4]));
        peer.back_off(Instant::ZERO, Duration::ZERO);
        assert_eq!(peer.addresses(), hosts(&[3, 4, 5, 6, 1, 2]));
        // A newer record replaces the earlier one.
        peer.learned = vec![at(9)];
        peer.failures = 0;
        assert_eq!(peer.addresses(), hosts(&[9, 4, 5, 6]));
    }

    #[test]
    fn an_entry_at_its_open_rate_is_refused_nothing() {
        let rate = 256;
        let rates = Rates {
            request: 1,
            open: rate,
        };
        let at = Instant::from_millis;
        for late in [0, 1_000, 12_000] {
            // The entry's own limiter; nothing arrives before `late`, and then all at once.
            let mut newcomers = TokenBucket::new(rate, rate * 4, at(0));
            let mut peer = Peer::new(at(0), NOBODY, rates);
            for millis in 0..30_000 {
                while newcomers.take(at(millis), 1) {
                    assert!(
                        peer.limits.opens.take(at(millis.max(late)), 1),
                        "{late} {millis}"
                    );
                }
            }
        }
        let mut peer = Peer::new(at(0), NOBODY, rates);
        let flood = (0..20_000).filter(|millis| peer.limits.opens.take(at(millis / 10), 1));
        assert_eq!(flood.count(), 4_096 + 1_023, "in two seconds");
    }
}
