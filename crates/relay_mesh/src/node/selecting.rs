//! Link selection in meshes with more nodes than slots: candidates, trials, closing of unneeded
//! links, and eviction of peers.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{Provider, Role};
use udp_proto::CloseCode;
use wire::{Generator, Instant, NodeId};

use super::Node;
use super::advertised_links::AdvertisedLinks;
use super::peers::{Contact, Peer, Up};
use crate::config::Config;
use crate::cost::Cost;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::selection::{
    Candidate, DialState, InboundPeer, LinkReason, LinkSlots, eviction_order, select, try_one,
};
use crate::splitmix;

#[derive(Debug)]
pub(super) struct Selecting {
    pub(super) slots: LinkSlots,
    /// Whether there are too many nodes to link with all.
    pub(super) is_choosing: bool,
    /// Whether a record is new since [`Node::learn_peers`].
    pub(super) has_news: bool,
    pub(super) chosen: BTreeMap<LinkId, LinkReason>,
    pub(super) advertised: AdvertisedLinks,
    /// Selected nodes without a session, in dial order.
    pub(super) wanted_links: Vec<LinkId>,
    /// Makes this node's random keys differ from those of other nodes.
    salt: u64,
    pub(super) survey: LinkSurvey,
    /// Earliest time of the next search for a peer to evict.
    pub(super) search_at: Instant,
    /// Earliest time of the next eviction of a peer with a link in use.
    pub(super) evict_used_at: Instant,
    trial: Option<Trial>,
    trial_at: Instant,
    trials: u32,
}

/// What link state shows of the nodes that a link could be opened with.
#[derive(Debug, Default)]
pub(super) struct LinkSurvey {
    pub(super) estimates: BTreeMap<LinkId, Cost>,
    /// Cost of the best route through each node to a remote end.
    pub(super) via_costs: BTreeMap<LinkId, Cost>,
    /// Exits of this node's games, the cheapest first.
    pub(super) remote_ends: Vec<LinkId>,
    /// Relays on the best routes to remote ends.
    pub(super) relays: Vec<LinkId>,
    pub(super) taken_at: Option<Instant>,
    pub(super) count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    link: LinkId,
    until: Instant,
}

impl Selecting {
    pub(super) fn new(now: Instant, config: &Config, generator: &mut Generator) -> Self {
        let salt = generator.next_u64();
        Self {
            slots: LinkSlots::new(config.links_max),
            is_choosing: false,
            has_news: false,
            chosen: BTreeMap::new(),
            advertised: AdvertisedLinks::new(splitmix::mix(salt)),
            wanted_links: Vec::new(),
            salt,
            survey: LinkSurvey::default(),
            trial: None,
            search_at: now,
            evict_used_at: now,
            trial_at: now,
            trials: 0,
        }
    }

    fn random_key(&self, node: &NodeId) -> u64 {
        let head = node.0.first_chunk().copied().map_or(0, u64::from_be_bytes);
        splitmix::mix(head ^ self.salt)
    }

    fn needed(&self) -> Vec<LinkId> {
        let LinkSurvey {
            remote_ends,
            relays,
            ..
        } = &self.survey;
        let relays = relays.iter().filter(|relay| !remote_ends.contains(relay));
        let remote_ends = remote_ends.iter().take(self.slots.remote_ends);
        remote_ends.chain(relays).copied().collect()
    }
}

impl<P: Provider> Node<P> {
    /// Selects links and closes unneeded ones; called once a second.
    pub(super) fn select_links(&mut self, now: Instant) {
        self.record_costs(now);
        let candidates = self.candidates(now);
        let slots = self.selecting.slots;
        let few = if self.selecting.is_choosing {
            slots.full_mesh_resume()
        } else {
            slots.full_mesh_max
        };
        self.selecting.is_choosing = candidates.len() > few;
        if !self.selecting.is_choosing {
            self.selecting.chosen.clear();
            self.selecting.wanted_links.clear();
            return;
        }
        self.survey_links(now);
        let needed = self.selecting.needed();
        let slots = self
            .selecting
            .slots
            .with_needed_inbound(self.needed_inbound_peers());
        let chosen = select(&slots, &candidates, &needed, &self.selecting.chosen);
        self.selecting.chosen = chosen;
        self.try_next(now, &candidates);
        self.close_unneeded(now);
        let order = |reason: &LinkReason| match reason {
            LinkReason::Required => 0,
            LinkReason::Random => 1,
            LinkReason::LowLatency => 2,
        };
        let chosen = self.selecting.chosen.iter();
        let mut wanted_links: Vec<(u8, LinkId)> = chosen
            .filter(|(link, _)| !self.peers.has_contact(**link))
            .map(|(link, why)| (order(why), *link))
            .collect();
        wanted_links.sort_unstable();
        self.selecting.wanted_links = wanted_links.into_iter().map(|(_, link)| link).collect();
    }

    /// All nodes to link with: members with a live record and a known address.
    fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let table = self.gossip.table();
        let has_links = self.peers.has_links();
        let alive = self.peers.iter().filter(|(_, peer)| {
            table.is_live(&peer.node)
                && self.is_member(&peer.node)
                && !(peer.learned.is_empty() && peer.bootstrap.is_empty())
        });
        let candidate = |(link, peer): (LinkId, &Peer)| {
            let is_refused = peer.refused_until.is_some_and(|until| now < until);
            let state = match peer.contact {
                Contact::Up(_) | Contact::Dialling(_) => DialState::Linked,
                Contact::None if is_refused && has_links => DialState::BackedOff,
                Contact::None => DialState::Available,
            };
            let roles = table.profile(&peer.node).map(|(_, roles)| roles);
            let is_up = matches!(peer.contact, Contact::Up(_));
            let measured = peer.measured.filter(|(_, until)| is_up || now < *until);
            let cost = |costs: &BTreeMap<LinkId, Cost>| {
                costs.get(&link).copied().unwrap_or(Cost::UNROUTABLE)
            };
            Candidate {
                link,
                state,
                measured: measured.map(|(cost, _)| cost),
                estimate: cost(&self.selecting.survey.estimates),
                via_cost: cost(&self.selecting.survey.via_costs),
                may_relay: roles.is_some_and(|roles| roles.contains(Roles::RELAY)),
                random_key: self.selecting.random_key(&peer.node),
            }
        };
        alive.map(candidate).collect()
    }

    /// Records the costs of links: unroutable if up for [`SILENT`] without a measurement. A link
    /// that lasts that long resets the node's dial failures.
    fn record_costs(&mut self, now: Instant) {
        let mut seen = Vec::new();
        for (link, peer, up) in self.peers.up() {
            let report = self.reports.get(&peer.node).filter(|report| report.is_up());
            let cost = report.map(|report| report.delay.plus(self.config.cost.loss(report.loss)));
            let is_silent = now.saturating_since(up.since) >= SILENT;
            if cost.is_some() || is_silent {
                seen.push((link, cost.unwrap_or(Cost::UNROUTABLE), is_silent));
            }
        }
        for (link, cost, has_lasted) in seen {
            if let Some(peer) = self.peers.get_mut(link) {
                peer.measured = Some((cost, now + REMEMBERED));
                peer.failures = if has_lasted { 0 } else { peer.failures };
            }
        }
    }

    fn try_next(&mut self, now: Instant, candidates: &[Candidate]) {
        if let Some(trial) = self.selecting.trial {
            let is_linked = self.peers.session(trial.link).is_some();
            let is_measured = is_linked
                && candidates
                    .iter()
                    .any(|of| of.link == trial.link && of.measured.is_some());
            let is_over = is_measured || !self.peers.has_contact(trial.link) || trial.until <= now;
            if !is_over {
                return;
            }
            self.selecting.trial = None;
            if !is_measured && let Some(peer) = self.peers.get_mut(trial.link) {
                // So that the next trials are of other nodes.
                peer.measured = Some((Cost::UNROUTABLE, now + GIVEN_UP));
            }
        }
        let room = self.selecting.slots.soft_max > self.peers.contacts();
        if now < self.selecting.trial_at || !self.selecting.wanted_links.is_empty() || !room {
            return;
        }
        let Some(link) = try_one(candidates, &self.selecting.chosen, &mut self.generator) else {
            return;
        };
        let is_new = self.selecting.trials < QUICK_TRIALS;
        let gap = if is_new { TRIAL_QUICK } else { TRIAL_GAP };
        self.selecting.trials = self.selecting.trials.saturating_add(1);
        self.selecting.trial_at = now + gap;
        self.selecting.trial = Some(Trial {
            link,
            until: now + TRIAL_MAX,
        });
        self.dial(now, link);
    }

    /// Closes links that this node dialed and no longer needs; peers close theirs.
    fn close_unneeded(&mut self, now: Instant) {
        let ours = self
            .peers
            .up()
            .filter(|(_, _, up)| self.endpoint.role(up.session) == Some(Role::Dialler));
        let ours: Vec<LinkId> = ours.map(|(link, ..)| link).collect();
        let mut unwanted = Vec::new();
        for link in ours {
            let is_tried = self.selecting.trial.is_some_and(|trial| trial.link == link);
            let is_chosen = self.selecting.chosen.contains_key(&link);
            let Some(up) = self.peers.up_mut(link) else {
                continue;
            };
            if is_chosen {
                up.chosen_at = Some(now);
            }
            // A failed trial is closed at once. A selected node may soon be selected again, and an
            // unknown one needs time to send its records.
            let is_over = |at: Instant| now.saturating_since(at) >= UNWANTED_MAX;
            if !is_tried && !is_chosen && up.chosen_at.is_none_or(is_over) {
                unwanted.push(link);
            }
        }
        if !unwanted.is_empty() {
            let used = self.links_in_use();
            unwanted.retain(|link| !used.contains(*link));
        }
        for link in unwanted.into_iter().take(CLOSES_PER_CALL) {
            self.close_link(now, link, CloseCode::NoError);
        }
    }

    /// Records that an end closed the link to choose other neighbours, which is not a failure.
    pub(super) fn on_deselected(&mut self, now: Instant, link: LinkId) {
        if let Some(peer) = self.peers.get(link) {
            self.selecting.advertised.on_deselected(now, peer.node);
        }
    }

    /// Closes a link by this node's own decision, and does not redial at once.
    pub(super) fn close_link(&mut self, now: Instant, link: LinkId, code: CloseCode) {
        let Some(session) = self.peers.session(link) else {
            return;
        };
        self.stats.links_parted = self.stats.links_parted.saturating_add(1);
        self.on_deselected(now, link);
        self.take_down(now, link);
        let spread = self.dial_spread();
        if let Some(peer) = self.peers.get_mut(link) {
            peer.schedule_redial(now, spread);
        }
        self.close_with(now, session, code);
    }

    /// Keeps slots free by evicting the newest inbound peer with an unused link. It stays long
    /// enough to learn of other nodes, and needed inbound peers keep their share.
    pub(super) fn make_room_for_links(&mut self, now: Instant) {
        let slots = self.selecting.slots;
        let contacts = self.peers.contacts();
        let wanted = contacts.saturating_add(self.reserved_slots());
        let is_full = wanted >= slots.max;
        // While slots are free, link use is checked once a second.
        let is_time = (is_full && self.selecting.search_at <= now) || self.ticks.is_multiple_of(10);
        if !self.selecting.is_choosing || contacts <= slots.soft_max || !is_time {
            return;
        }
        let stay_min = if is_full { STAY_MIN_FULL } else { STAY_MIN };
        let is_over_share = self.needed_inbound_peers() > slots.needed_inbound();
        let mut order = self.inbound_peers();
        order.retain(|peer| {
            now.saturating_since(peer.since) >= stay_min && (is_over_share || !peer.is_needed)
        });
        // If a required node has no slot, the newest inbound peer is evicted even if its link is in
        // use; otherwise inbound peers could hold all slots.
        let needs_slot =
            contacts >= slots.max && self.reserved().any(|why| why == LinkReason::Required);
        let may_evict_used = needs_slot && self.selecting.evict_used_at <= now;
        let is_owed = may_evict_used && order.iter().any(|peer| !peer.is_needed);
        let order = eviction_order(order.into_iter());
        let newest = order.first().filter(|_| is_owed);
        let mut is_evicted_one = self.evict_first_unused(now, &order);
        if let Some(link) = newest.filter(|_| !is_evicted_one) {
            self.selecting.evict_used_at = now + EVICT_USED_GAP;
            is_evicted_one = self.evict(now, *link);
        }
        if !is_evicted_one {
            self.selecting.search_at = now + SEARCH_GAP;
        }
    }

    /// Slots kept free for nodes that are required or drawn at random and have no link yet.
    pub(super) fn reserved_slots(&self) -> usize {
        self.reserved()
            .filter(|why| *why != LinkReason::LowLatency)
            .count()
    }

    fn reserved(&self) -> impl Iterator<Item = LinkReason> {
        let links = self.selecting.wanted_links.iter();
        links.filter_map(|link| self.selecting.chosen.get(link).copied())
    }

    pub(super) fn is_full_for(&self, link: Option<LinkId>) -> bool {
        let is_wanted = link.is_some_and(|link| self.selecting.wanted_links.contains(&link));
        let kept = if is_wanted { 0 } else { self.reserved_slots() };
        self.peers.contacts().saturating_add(kept) >= self.config.links_max
    }

    /// Evicts a peer with an unused link for a needed inbound peer; returns whether it did.
    pub(super) fn make_slot_for(&mut self, now: Instant, node: &NodeId) -> bool {
        if !self.selecting.is_choosing || !self.is_needed(node) {
            return false;
        }
        let mut peers = self.inbound_peers();
        let needed_inbound = peers.iter().filter(|peer| peer.is_needed).count();
        if needed_inbound >= self.selecting.slots.needed_inbound() {
            // Needed peers replace each other once they have their share: one that claims to be an
            // entry may have no players.
            peers.retain(|peer| peer.is_needed && now.saturating_since(peer.since) >= STAY_MIN);
            peers.sort_unstable_by_key(|peer| (peer.since, peer.link));
            let order: Vec<LinkId> = peers.into_iter().map(|peer| peer.link).collect();
            return self.evict_first_unused(now, &order);
        }
        peers.retain(|peer| !peer.is_needed);
        let mut order = eviction_order(peers.into_iter());
        let is_required =
            |link: &LinkId| self.selecting.chosen.get(link) == Some(&LinkReason::Required);
        let ours = self.peers.up().filter(|(link, _, up)| {
            self.endpoint.role(up.session) == Some(Role::Dialler) && !is_required(link)
        });
        let mut ours: Vec<_> = ours
            .map(|(link, ..)| (self.selecting.chosen.contains_key(&link), link))
            .collect();
        ours.sort_unstable();
        order.extend(ours.into_iter().map(|(_, link)| link));
        self.evict_first_unused(now, &order)
    }

    /// Evicts the first peer in `order` with an unused link; returns whether there is one.
    fn evict_first_unused(&mut self, now: Instant, order: &[LinkId]) -> bool {
        if order.is_empty() {
            return false;
        }
        let used = self.links_in_use();
        let Some(link) = order.iter().find(|link| !used.contains(**link)) else {
            return false;
        };
        self.evict(now, *link)
    }

    fn evict(&mut self, now: Instant, link: LinkId) -> bool {
        self.close_link(now, link, CloseCode::Full);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.evict(now);
        }
        true
    }

    /// Whether a connecting node was evicted recently, and slots are scarce.
    pub(super) fn is_evicted(&self, now: Instant, node: &NodeId) -> bool {
        let known = self.peers.find(node).and_then(|link| self.peers.get(link));
        self.selecting.is_choosing
            && self.peers.contacts() >= self.selecting.slots.soft_max
            && known.is_some_and(|peer| peer.evicted_until.is_some_and(|until| now < until))
    }

    /// Whether a peer probably needs this node: it is an entry, and this node an exit.
    fn is_needed(&self, node: &NodeId) -> bool {
        let roles = self.gossip.table().profile(node);
        self.config.profile.roles.contains(Roles::EXIT)
            && roles.is_some_and(|(_, roles)| roles.contains(Roles::ENTRY))
    }

    fn inbound_peers(&self) -> Vec<InboundPeer<Instant>> {
        let inbound = |(link, peer, up): (LinkId, &Peer, &Up)| InboundPeer {
            link,
            since: up.since,
            is_needed: self.is_needed(&peer.node),
        };
        let peers = self.peers.up().filter(|(link, _, up)| {
            self.endpoint.role(up.session) == Some(Role::Accepter)
                && !self.selecting.chosen.contains_key(link)
        });
        peers.map(inbound).collect()
    }

    pub(super) fn needed_inbound_peers(&self) -> usize {
        let peers = self.inbound_peers().into_iter();
        peers.filter(|peer| peer.is_needed).count()
    }
}

/// How long a measured cost counts after the link is down.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The same for a node that did not answer a trial.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// Time after which a link without enough answers to be up is unroutable.
const SILENT: Duration = Duration::from_secs(10);
const TRIAL_GAP: Duration = Duration::from_secs(10);
/// The same for the first [`QUICK_TRIALS`]: a new node explores the mesh in about a minute.
const TRIAL_QUICK: Duration = Duration::from_secs(1);
/// Twice the number of low-latency links of 64.
const QUICK_TRIALS: u32 = 32;
const TRIAL_MAX: Duration = Duration::from_secs(5);
const UNWANTED_MAX: Duration = Duration::from_secs(30);
const CLOSES_PER_CALL: usize = 2;
/// Minimum time between two evictions of peers with links in use: the required node may not answer.
const EVICT_USED_GAP: Duration = Duration::from_secs(60);
/// Wait after a search that found no peer to evict, since each visits all labels.
const SEARCH_GAP: Duration = Duration::from_secs(1);
/// How long an unneeded inbound peer stays: enough to fetch 1,000 records, at 64 a second.
const STAY_MIN: Duration = Duration::from_secs(20);
/// The same if no slot is free: enough to fetch 192 records.
const STAY_MIN_FULL: Duration = Duration::from_secs(3);
