//! The node's link state: its reports, the links that it advertises, and publishing.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::{Node, RELIABLE};
use crate::gossip::GossipUpdate;
use crate::link::LinkId;
use crate::link_state::{Message, NEIGHBOURS_MAX};
use crate::measure::LinkReport;
use crate::routes::Graph;
use crate::splitmix;

/// The neighbours that a node advertises: those with lasting links.
///
/// Each change costs every node of the mesh about 1,500 bytes. So trial links are not advertised,
/// changes are spaced, and a lost neighbour stays listed as down until the next change, or for
/// [`GONE_MAX`].
#[derive(Debug, Default)]
pub(super) struct AdvertisedLinks {
    nodes: BTreeMap<NodeId, Presence>,
    changed_at: Option<Instant>,
    changes: u32,
    /// Different at each node, so that nodes that start together do not stay in step.
    salt: u64,
}

#[derive(Clone, Copy, Debug)]
enum Presence {
    Linked,
    /// Without a session. `is_deselected` if an end closed it to choose other neighbours.
    Gone {
        since: Instant,
        is_deselected: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LinkAge {
    pub(super) since: Instant,
    pub(super) is_chosen: bool,
    pub(super) is_up: bool,
}

impl AdvertisedLinks {
    pub(super) fn new(salt: u64) -> Self {
        Self {
            salt,
            ..Self::default()
        }
    }

    pub(super) fn set_all(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.nodes = nodes.map(|node| (node, Presence::Linked)).collect();
    }

    pub(super) fn on_deselected(&mut self, now: Instant, node: NodeId) {
        if let Some(presence @ Presence::Linked) = self.nodes.get_mut(&node) {
            *presence = Presence::Gone {
                since: now,
                is_deselected: true,
            };
        }
    }

    /// Updates the list from the current links, in a mesh of `known` nodes.
    pub(super) fn update(&mut self, now: Instant, known: usize, links: &BTreeMap<NodeId, LinkAge>) {
        for (node, presence) in &mut self.nodes {
            *presence = match *presence {
                _ if links.contains_key(node) => Presence::Linked,
                Presence::Linked => Presence::Gone {
                    since: now,
                    is_deselected: false,
                },
                gone @ Presence::Gone { .. } => gone,
            };
        }
        let is_up = |node: &&NodeId| links.get(*node).is_some_and(|link| link.is_up);
        let is_short = self.nodes.keys().filter(is_up).count() < FEW;
        let is_due = |at: Instant| {
            let spacing = if is_short {
                QUICK
            } else {
                self.spacing(known, at)
            };
            now.saturating_since(at) >= spacing
        };
        if !self.changed_at.is_none_or(is_due) {
            return;
        }
        let mut new: Vec<_> = links
            .iter()
            .filter(|(node, link)| {
                let is_lasting = is_short || now.saturating_since(link.since) >= LASTING;
                link.is_up && is_lasting && !self.nodes.contains_key(*node)
            })
            .collect();
        let is_over = |presence: &Presence| match presence {
            Presence::Linked => false,
            Presence::Gone { since, .. } => now.saturating_since(*since) >= GONE_MAX,
        };
        if new.is_empty() && !self.nodes.values().any(is_over) {
            return;
        }
        self.changed_at = Some(now);
        self.changes = if is_short {
            0
        } else {
            self.changes.saturating_add(1)
        };
        // A chosen neighbour replaces an inbound one; inbound ones that are listed stay.
        let advertised = &self.nodes;
        let is_held = |node: &NodeId| advertised.get(node).is_some_and(Presence::is_linked);
        new.extend(links.iter().filter(|(node, _)| is_held(node)));
        new.sort_by_key(|(node, link)| (!link.is_chosen, !is_held(node), link.since, **node));
        let first = new.into_iter().take(NEIGHBOURS_MAX);
        self.nodes = first.map(|(node, _)| (*node, Presence::Linked)).collect();
    }

    /// Time between two changes: 10 s, then four times as long after each, until all lists together
    /// would cost each node 6 kB per second if all kept changing; randomised by half either way.
    fn spacing(&self, known: usize, changed_at: Instant) -> Duration {
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        let usual = SPACING_MIN.max(SPACING_EACH.saturating_mul(known));
        let early = SPACING_MIN.saturating_mul(4_u32.saturating_pow(self.changes));
        let mean = usual.min(early);
        let moment = changed_at.saturating_since(Instant::ZERO).as_nanos();
        let draw = splitmix::first(self.salt ^ u64::try_from(moment).unwrap_or(u64::MAX));
        let share = u32::try_from(draw % 512).unwrap_or(0);
        let wide = mean.saturating_mul(share.saturating_add(256));
        wide.checked_div(512).unwrap_or_default()
    }

    pub(super) fn contains(&self, node: &NodeId) -> bool {
        self.nodes.contains_key(node)
    }

    /// Whether enough links are listed that new ones can wait.
    pub(super) fn is_settled(&self) -> bool {
        self.nodes.values().filter(|of| of.is_linked()).count() >= FEW
    }

    /// The report of each listed link; `reports` holds the measured ones.
    fn reports(&self, reports: &BTreeMap<NodeId, LinkReport>) -> BTreeMap<NodeId, LinkReport> {
        let report = |node, presence: &Presence| match presence {
            Presence::Gone {
                is_deselected: true,
                ..
            } => LinkReport::PARTED,
            Presence::Linked | Presence::Gone { .. } => {
                reports.get(node).copied().unwrap_or(LinkReport::DOWN)
            }
        };
        let links = self.nodes.iter();
        links
            .map(|(node, presence)| (*node, report(node, presence)))
            .collect()
    }
}

impl Presence {
    const fn is_linked(&self) -> bool {
        matches!(self, Self::Linked)
    }
}

impl<P: Provider> Node<P> {
    pub(super) fn publish(&mut self, now: Instant) {
        self.measure(now);
        let links = self.list_links(now);
        let unix = self.unix.map(|(at, unix)| unix + now.saturating_since(at));
        let provider = self.endpoint.provider_mut();
        if self.gossip.on_tick(now, unix, provider, &links).is_err() {
            self.stats.no_entropy = self.stats.no_entropy.saturating_add(1);
        }
        self.send_gossip(now);
    }

    pub(super) fn send_gossip(&mut self, now: Instant) {
        let mut message = Vec::new();
        while let Some(node) = self.gossip.poll_message(&mut message) {
            if let Some(link) = self.peers.find(&node) {
                // If the session's queue is full, the next digest reveals what is missing.
                self.send(now, link, RELIABLE, &message);
            }
            message.clear();
        }
    }

    /// The graph of all known links. A node without a session to this one cannot be a relay in it,
    /// since labels are requested over that session.
    pub(super) fn make_graph(&self) -> Graph {
        let mut graph = self.gossip.table().graph(&self.config.cost, &self.reports);
        let is_open = |node| {
            self.peers
                .find(node)
                .and_then(|link| self.peers.session(link))
        };
        let apart: Vec<_> = graph
            .nodes()
            .iter()
            .filter(|node| is_open(node).is_none())
            .filter_map(|node| graph.index(node))
            .collect();
        for index in apart {
            graph.forbid_relay(index);
        }
        graph
    }

    pub(super) fn on_control(&mut self, now: Instant, link: LinkId, message: (Message<'_>, usize)) {
        let Some(from) = self.peers.get(link).map(|peer| peer.node) else {
            return;
        };
        if !self.gossip.knows(&from) {
            self.gossip.on_up(now, from);
        }
        let provider = self.endpoint.provider();
        match self.gossip.handle_message(now, provider, from, message) {
            GossipUpdate::None => {}
            GossipUpdate::Links => self.known_routes.on_change(),
            GossipUpdate::Node => {
                self.known_routes.on_change();
                // Handled by the next tick, since records arrive by the hundred.
                self.selecting.has_news = true;
            }
        }
    }

    fn measure(&mut self, now: Instant) {
        let links: Vec<(LinkId, NodeId)> = self
            .peers
            .up()
            .filter(|(_, _, up)| up.carries)
            .map(|(link, peer, _)| (link, peer.node))
            .collect();
        let mut reports = BTreeMap::new();
        for (link, node) in links {
            if let Some(up) = self.peers.up_mut(link) {
                reports.insert(node, up.prober.report(now));
            }
        }
        if reports != self.reports {
            let making = (&self.config.cost, self.route_limits());
            self.known_routes
                .on_reports(self.gossip.table(), making, [&self.reports, &reports]);
            self.reports = reports;
        }
    }

    pub(super) fn list_links(&mut self, now: Instant) -> BTreeMap<NodeId, LinkReport> {
        if !self.selecting.is_choosing {
            let carrying = self.reports.keys().copied();
            self.selecting.advertised.set_all(carrying);
            return self.reports.clone();
        }
        let links = self.peers.up().filter(|(_, _, up)| up.carries);
        let links = links.map(|(link, peer, up)| {
            let report = self.reports.get(&peer.node);
            let age = LinkAge {
                since: up.since,
                is_chosen: self.selecting.chosen.contains_key(&link),
                is_up: report.is_some_and(LinkReport::is_up),
            };
            (peer.node, age)
        });
        let links: BTreeMap<NodeId, LinkAge> = links.collect();
        let known = self.gossip.table().len();
        let advertised = &mut self.selecting.advertised;
        advertised.update(now, known, &links);
        for node in links.keys().filter(|node| advertised.contains(node)) {
            if !self.gossip.knows(node) {
                self.gossip.on_up(now, *node);
            }
        }
        advertised.reports(&self.reports)
    }
}

/// Time between the first two changes.
const SPACING_MIN: Duration = Duration::from_secs(10);
/// Time between changes for each node of the mesh: one 1,500-byte change per list is 6.25 kB per
/// second. Periodic renewal costs 17 kB of goal G1's 25 kB with 1,000 nodes.
const SPACING_EACH: Duration = Duration::from_millis(240);
const QUICK: Duration = Duration::from_secs(1);
/// With fewer listed links up, a link need not last before it is listed.
const FEW: usize = 8;
const LASTING: Duration = Duration::from_secs(30);
const GONE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
