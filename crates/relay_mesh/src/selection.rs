//! Selects the links that a node keeps when there are more nodes than link slots.
//!
//! Up to [`LinkSlots::full_mesh_max`] other nodes, a node links with all of them. Above it, and
//! until the count falls to [`LinkSlots::full_mesh_resume`], it selects
//!
//! - *required* nodes: exits of its games, and relays on the best routes to them;
//! - *low-latency* nodes: the nearest of those measured, relays first, since a route's first and
//!   last relay is usually near one of its ends;
//! - *random* nodes: a random graph with a few links per node is connected and has a small
//!   diameter, whatever the topology.
//!
//! The other slots are for inbound peers. To find near nodes, the node dials one node at a time
//! that it has not measured recently, usually one with a low link-state cost.
//!
//! All functions here are pure; `node::selecting` applies their results.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use wire::Generator;

use crate::cost::Cost;
use crate::link::LinkId;
use crate::link_state::NEIGHBOURS_MAX;

/// Number of link slots for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkSlots {
    /// Up to this many other nodes, a node links with all.
    pub(crate) full_mesh_max: usize,
    pub(crate) required: usize,
    /// Of `required`, those for remote ends; the rest are for relays.
    pub(crate) remote_ends: usize,
    pub(crate) low_latency: usize,
    pub(crate) random: usize,
    /// Above this many links, unused links of inbound peers are evicted.
    pub(crate) soft_max: usize,
    pub(crate) max: usize,
}

impl LinkSlots {
    /// Divides [`Config::links_max`](crate::Config::links_max); all above 64 is for inbound peers.
    pub(crate) fn new(links_max: usize) -> Self {
        let links = links_max.min(NEIGHBOURS_MAX);
        let share = |part: usize| links.checked_div(part).unwrap_or(0).max(1);
        Self {
            full_mesh_max: links.saturating_sub(links / 4),
            required: share(4),
            remote_ends: (share(4).saturating_mul(3) / 4).max(1),
            low_latency: share(4),
            random: share(8),
            soft_max: links_max.saturating_sub(links_max / 8),
            max: links_max,
        }
    }

    /// Slots that needed inbound peers take before all others.
    pub(crate) const fn needed_inbound(&self) -> usize {
        self.soft_max
            .saturating_sub(self.required.saturating_add(self.random))
    }

    /// The node count at which a node links with all again. The gap below [`Self::full_mesh_max`]
    /// keeps a mesh of about that size from switching back and forth.
    pub(crate) const fn full_mesh_resume(&self) -> usize {
        self.full_mesh_max.saturating_sub(self.full_mesh_max / 8)
    }

    /// Reserves slots for needed inbound peers, if necessary in place of low-latency ones.
    pub(crate) const fn with_needed_inbound(mut self, needed_inbound: usize) -> Self {
        let fixed = self.required.saturating_add(self.random);
        let chosen = fixed.saturating_add(self.low_latency);
        let room = self.soft_max.saturating_sub(chosen);
        let missing = needed_inbound.saturating_sub(room);
        self.low_latency = self.low_latency.saturating_sub(missing);
        self
    }
}

/// A node to link with: it is a member, and its record is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) link: LinkId,
    pub(crate) state: DialState,
    /// Measured cost of the link, at most some minutes old; unroutable if the node did not answer.
    pub(crate) measured: Option<Cost>,
    /// Cost of the cheapest route to it by link state.
    pub(crate) estimate: Cost,
    /// Cost of the cheapest route through it to a remote end by link state.
    pub(crate) via_cost: Cost,
    pub(crate) may_relay: bool,
    /// Its random number; the lowest are selected.
    pub(crate) random_key: u64,
}

/// Whether a node is linked or may be dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialState {
    /// There is a session, or a dial in progress.
    Linked,
    Available,
    /// It recently had no free slot for this node, or did not answer.
    BackedOff,
}

/// Why a link is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkReason {
    /// The node is an end or a relay of routes.
    Required,
    LowLatency,
    /// The node was drawn at random.
    Random,
}

/// `needed` lists required nodes, the most important first; `before` is the previous selection.
pub(crate) fn select(
    slots: &LinkSlots,
    candidates: &[Candidate],
    needed: &[LinkId],
    before: &BTreeMap<LinkId, LinkReason>,
) -> BTreeMap<LinkId, LinkReason> {
    let open = candidates
        .iter()
        .filter(|of| of.state != DialState::BackedOff);
    let mut open: BTreeMap<LinkId, &Candidate> = open.map(|of| (of.link, of)).collect();
    let mut chosen = BTreeMap::new();
    let needed = needed.iter().filter(|link| open.contains_key(link));
    for &link in needed.take(slots.required) {
        chosen.insert(link, LinkReason::Required);
    }
    // A required node needs a session only, not a good link: paths may reach it through others.
    open.retain(|_, of| !of.is_dead());
    let random = (slots.random, LinkReason::Random);
    take(&mut chosen, &open, random, |of| of.random_key);
    let nearest = (slots.low_latency, LinkReason::LowLatency);
    take(&mut chosen, &open, nearest, |of| {
        let cost = if before.get(&of.link) == Some(&LinkReason::LowLatency) {
            of.cost_with_hysteresis()
        } else {
            of.cost()
        };
        (!of.may_relay, of.measured.is_none(), cost, of.random_key)
    });
    chosen
}

/// Selects an unmeasured node to measure: in half the cases the one with the lowest estimate, in a
/// quarter the one with the lowest `via_cost`, else a random one.
pub(crate) fn try_one(
    candidates: &[Candidate],
    chosen: &BTreeMap<LinkId, LinkReason>,
    generator: &mut Generator,
) -> Option<LinkId> {
    let is_unknown = |of: &&Candidate| {
        of.state == DialState::Available && of.measured.is_none() && !chosen.contains_key(&of.link)
    };
    let unknown: Vec<&Candidate> = candidates.iter().filter(is_unknown).collect();
    let turn = generator.below(4);
    let cost = |of: &Candidate| match turn {
        0 => Cost::ZERO,
        1 => of.via_cost,
        _ => of.estimate,
    };
    let drawn = generator.next_u64();
    let key = |of: &&&Candidate| (!of.may_relay, cost(of), of.random_key ^ drawn);
    unknown.iter().min_by_key(key).map(|of| of.link)
}

impl Candidate {
    fn is_dead(&self) -> bool {
        self.measured.is_some_and(|cost| !cost.is_routable())
    }

    fn cost(&self) -> Cost {
        self.measured.unwrap_or(self.estimate)
    }

    /// The cost minus a margin, for nodes that hold a slot.
    fn cost_with_hysteresis(&self) -> Cost {
        let cost = self.cost();
        cost.less(MARGIN.max(cost.percent(MARGIN_PERCENT)))
    }
}

/// Adds up to `count` nodes with the lowest keys.
fn take<K: Ord>(
    chosen: &mut BTreeMap<LinkId, LinkReason>,
    open: &BTreeMap<LinkId, &Candidate>,
    (count, why): (usize, LinkReason),
    key: impl Fn(&Candidate) -> K,
) {
    let left = open.iter().filter(|(link, _)| !chosen.contains_key(link));
    let mut left: Vec<(K, LinkId)> = left.map(|(link, of)| (key(of), *link)).collect();
    left.sort_unstable();
    chosen.extend(left.into_iter().take(count).map(|(_, link)| (link, why)));
}

/// A peer that opened its link to this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundPeer<T> {
    pub(crate) link: LinkId,
    pub(crate) since: T,
    /// Whether it probably needs this node: this node is an exit, and the peer is an entry.
    pub(crate) is_needed: bool,
}

/// The order of eviction: the newest first; needed peers last.
pub(crate) fn eviction_order<T: Ord + Copy>(
    peers: impl Iterator<Item = InboundPeer<T>>,
) -> Vec<LinkId> {
    let mut peers: Vec<_> = peers
        .map(|peer| (peer.is_needed, Reverse(peer.since), peer.link))
        .collect();
    peers.sort_unstable();
    peers.into_iter().map(|(.., link)| link).collect()
}

/// Advantage that a node needs to replace a low-latency neighbour; also in percent.
const MARGIN: Cost = Cost::from_millis(2);
const MARGIN_PERCENT: u16 = 10;

#[cfg(test)]
mod tests;
