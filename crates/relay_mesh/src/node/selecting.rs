//! With whom this node keeps links where there are more nodes than slots: what is known of them,
//! whom it needs, whom it tries, whom it parts from.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{Provider, Role};
use udp_proto::CloseCode;
use wire::{Generator, Instant, NodeId};

use super::Node;
use super::advertised_links::AdvertisedLinks;
use super::peers::Contact;
use crate::config::Config;
use crate::cost::Cost;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::selection::{Candidate, DialState, LinkReason, LinkSlots, select, try_one};
use crate::splitmix;

/// The choice of neighbours, and what it goes by.
#[derive(Debug)]
pub(super) struct Selecting {
    pub(super) slots: LinkSlots,
    /// Whether there are too many nodes to be linked with all.
    pub(super) is_choosing: bool,
    /// Whether a node is new or said something else of itself since [`Node::learn_peers`].
    pub(super) has_news: bool,
    pub(super) chosen: BTreeMap<LinkId, LinkReason>,
    pub(super) advertised: AdvertisedLinks,
    /// Who was chosen and has no session, in the order in which they are dialled.
    pub(super) wanted_links: Vec<LinkId>,
    /// Makes this node's lottery another than those of others.
    lottery: u64,
    /// What the way to each costs by link state, as of the last survey.
    pub(super) estimates: BTreeMap<LinkId, Cost>,
    /// What the way over each to a far end does.
    pub(super) ways: BTreeMap<LinkId, Cost>,
    /// Exits of this node's games; the cheapest first.
    pub(super) far_ends: Vec<LinkId>,
    /// Relays of the best routes to far ends.
    pub(super) relays: Vec<LinkId>,
    pub(super) surveyed_at: Option<Instant>,
    /// Surveys so far.
    pub(super) surveys: usize,
    /// When room for others may be looked for again.
    pub(super) room_at: Instant,
    /// When a guest may be parted from again that carries something.
    pub(super) cut_at: Instant,
    trial: Option<Trial>,
    trial_at: Instant,
    /// Trials so far.
    trials: u32,
}

/// A node that is measured to see whether it is near.
#[derive(Clone, Copy, Debug)]
struct Trial {
    link: LinkId,
    until: Instant,
}

impl Selecting {
    pub(super) fn new(now: Instant, config: &Config, generator: &mut Generator) -> Self {
        let lottery = generator.next_u64();
        Self {
            slots: LinkSlots::new(config.links_max),
            is_choosing: false,
            has_news: false,
            chosen: BTreeMap::new(),
            advertised: AdvertisedLinks::new(splitmix::mix(lottery)),
            wanted_links: Vec::new(),
            lottery,
            estimates: BTreeMap::new(),
            ways: BTreeMap::new(),
            surveys: 0,
            far_ends: Vec::new(),
            relays: Vec::new(),
            surveyed_at: None,
            trial: None,
            room_at: now,
            cut_at: now,
            trial_at: now,
            trials: 0,
        }
    }

    pub(super) fn is_tried(&self, link: LinkId) -> bool {
        self.trial.is_some_and(|trial| trial.link == link)
    }

    /// The number of a node in this node's lottery.
    fn random_key(&self, node: &NodeId) -> u64 {
        let head = node
            .0
            .first_chunk()
            .map_or(0, |head| u64::from_be_bytes(*head));
        splitmix::mix(head ^ self.lottery)
    }

    /// Whom the node needs, in the order of their worth.
    fn needed(&self) -> Vec<LinkId> {
        let far_ends = self.far_ends.iter().take(self.slots.far_ends);
        let relays = self
            .relays
            .iter()
            .filter(|relay| !self.far_ends.contains(relay));
        far_ends.chain(relays).copied().collect()
    }
}

impl<P: Provider> Node<P> {
    /// Looks once a second at whom there should be links with, and parts from others.
    pub(super) fn select_links(&mut self, now: Instant) {
        self.note_measured(now);
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

    /// All that links may be kept with: members that are alive by their records and say where
    /// they are.
    fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let table = self.gossip.table();
        let has_links = self.peers.has_links();
        let alive = self.peers.iter().filter(|(_, peer)| {
            table.is_live(&peer.node)
                && self.is_member(&peer.node)
                && !(peer.learned.is_empty() && peer.bootstrap.is_empty())
        });
        let candidate = |(link, peer): (LinkId, &super::peers::Peer)| {
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
                estimate: cost(&self.selecting.estimates),
                via_cost: cost(&self.selecting.ways),
                may_relay: roles.is_some_and(|roles| roles.contains(Roles::RELAY)),
                random_key: self.selecting.random_key(&peer.node),
            }
        };
        alive.map(candidate).collect()
    }

    /// Remembers what links cost; one that stands and does not answer costs all. One that stands for
    /// as long was worth its dial.
    fn note_measured(&mut self, now: Instant) {
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

    /// Ends a trial, and begins the next one where that is due.
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
            if !is_measured {
                self.give_up(now, trial.link);
            }
        }
        let room = self.selecting.slots.soft_max > self.peers.contacts();
        if now < self.selecting.trial_at || !self.selecting.wanted_links.is_empty() || !room {
            return;
        }
        let Some(link) = try_one(candidates, &self.selecting.chosen, &mut self.generator) else {
            return;
        };
        let is_new_here = self.selecting.trials < QUICK_TRIALS;
        let gap = if is_new_here { TRIAL_QUICK } else { TRIAL_GAP };
        self.selecting.trials = self.selecting.trials.saturating_add(1);
        self.selecting.trial_at = now + gap;
        self.selecting.trial = Some(Trial {
            link,
            until: now + TRIAL_MAX,
        });
        self.dial(now, link);
    }

    /// Notes that a trial brought nothing, so that the next ones are of others.
    fn give_up(&mut self, now: Instant, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(link) {
            let until = now + GIVEN_UP;
            peer.measured = Some((Cost::UNROUTABLE, until));
        }
    }

    /// Closes links that this node dialled and does not want any more. Those that others dialled
    /// are theirs: they want them until they close them.
    fn close_unneeded(&mut self, now: Instant) {
        let ours = self
            .peers
            .up()
            .filter(|(_, _, up)| self.endpoint.role(up.session) == Some(Role::Dialler));
        let ours: Vec<LinkId> = ours.map(|(link, ..)| link).collect();
        let mut unwanted = Vec::new();
        for link in ours {
            let is_tried = self.selecting.is_tried(link);
            let is_chosen = self.selecting.chosen.contains_key(&link);
            let Some(up) = self.peers.up_mut(link) else {
                continue;
            };
            if is_chosen {
                up.chosen_at = Some(now);
            }
            // A trial that brought nothing ends at once; who was chosen may be so again soon, and of
            // whom nothing was known has time to tell what it knows.
            let is_over = |at: Instant| now.saturating_since(at) >= UNWANTED_MAX;
            if !is_tried && !is_chosen && up.chosen_at.is_none_or(is_over) {
                unwanted.push(link);
            }
        }
        if !unwanted.is_empty() {
            let used = self.links_in_use();
            unwanted.retain(|link| !used.contains(*link));
        }
        for link in unwanted.into_iter().take(PARTINGS) {
            self.part(now, link, CloseCode::NoError);
        }
    }

    /// One of both ends chose others: no trouble, which others need not hear of at once.
    pub(super) fn note_parted(&mut self, now: Instant, link: LinkId) {
        if let Some(peer) = self.peers.get(link) {
            self.selecting.advertised.on_parted(now, peer.node);
        }
    }

    /// Closes a link of this node's own accord; it is not dialled again at once.
    pub(super) fn part(&mut self, now: Instant, link: LinkId, code: CloseCode) {
        let Some(session) = self.peers.session(link) else {
            return;
        };
        self.stats.links_parted = self.stats.links_parted.saturating_add(1);
        self.note_parted(now, link);
        self.take_down(now, link);
        let spread = self.dial_spread();
        if let Some(peer) = self.peers.get_mut(link) {
            peer.rest(now, spread);
        }
        self.close_with(now, session, code);
    }
}

/// What was measured of a node without a link counts for so long.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The same of who did not answer in a trial.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// Time after which a link that has not answered often enough to be up costs all.
const SILENT: Duration = Duration::from_secs(10);
/// Between two trials.
const TRIAL_GAP: Duration = Duration::from_secs(10);
/// The same for the first [`QUICK_TRIALS`]: chosen so that a node that begins has looked around after a minute or
/// so.
const TRIAL_QUICK: Duration = Duration::from_secs(1);
/// How many these are: chosen twice as many as nodes are kept for being near where links are 64.
const QUICK_TRIALS: u32 = 32;
/// Time for which a link may be tried, the dial included.
const TRIAL_MAX: Duration = Duration::from_secs(5);
/// Time after which a link is closed that is not wanted.
const UNWANTED_MAX: Duration = Duration::from_secs(30);
/// Links closed in one look.
const PARTINGS: usize = 2;
