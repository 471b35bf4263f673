//! With whom a node keeps links, where there are more nodes than places for links.
//!
//! Up to [`LinkSlots::all`] others: with all of them. Beyond it, and until they are clearly fewer again, a node
//! chooses
//!
//! - those that it *needs*: exits of its games, and relays of the best routes to them;
//! - the *nearest* of those that it measured, relays first: a route's first and last relay is as
//!   a rule near an end of it;
//! - some by *lot*: a random graph of a few links a node is in one piece, of small diameter, and
//!   stays so whatever the map looks like.
//!
//! The other places are for peers, who chose this node. Who is near is found by trials: one node
//! at a time is dialled that was not measured of late, mostly one to which the cost by link state,
//! which is at least that of the link where that is any use, is low.
//!
//! Everything here is a pure function of what is known; `node::selecting` does what it says.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use wire::Generator;

use crate::cost::Cost;
use crate::link::LinkId;
use crate::link_state::NEIGHBOURS_MAX;

/// How many links a node has for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkSlots {
    /// Up to so many others, a node is linked with all.
    pub(crate) full_mesh_max: usize,
    /// For nodes that are needed.
    pub(crate) required: usize,
    /// Of them, for far ends; the others are for relays.
    pub(crate) far_ends: usize,
    /// For the nearest.
    pub(crate) low_latency: usize,
    /// For those drawn by lot.
    pub(crate) random: usize,
    /// With more links than this, guests whose links nobody uses make room.
    pub(crate) soft_max: usize,
    /// All links and dials.
    pub(crate) max: usize,
}

impl LinkSlots {
    /// Divides what [`Config::links_max`](crate::Config::links_max) allows. What a link record
    /// cannot name is for peers.
    pub(crate) fn new(links_max: usize) -> Self {
        let links = links_max.min(NEIGHBOURS_MAX);
        let share = |part: usize| links.checked_div(part).unwrap_or(0).max(1);
        Self {
            full_mesh_max: links.saturating_sub(links / 4),
            required: share(4),
            far_ends: (share(4).saturating_mul(3) / 4).max(1),
            low_latency: share(4),
            random: share(8),
            soft_max: links_max.saturating_sub(links_max / 8),
            max: links_max,
        }
    }

    /// Guests with a cause that have a place before all others.
    pub(crate) const fn needed_inbound(&self) -> usize {
        self.soft_max
            .saturating_sub(self.required.saturating_add(self.random))
    }

    /// Once nodes were too many, up to so many are few again: a mesh of about [`Self::full_mesh_max`] does not
    /// change between the two.
    pub(crate) const fn full_mesh_resume(&self) -> usize {
        self.full_mesh_max.saturating_sub(self.full_mesh_max / 8)
    }

    /// The same where so many guests have a cause: whom there is no place for takes that of one
    /// who is near.
    pub(crate) const fn with_needed_inbound(mut self, needed_inbound: usize) -> Self {
        let chosen = self
            .required
            .saturating_add(self.low_latency)
            .saturating_add(self.random);
        let room = self.soft_max.saturating_sub(chosen);
        self.low_latency = self
            .low_latency
            .saturating_sub(needed_inbound.saturating_sub(room));
        self
    }
}

/// A node that there may be a link with: alive by its record, and a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) link: LinkId,
    pub(crate) state: DialState,
    /// What the link costs, measured now or not long ago; unroutable where it did not answer.
    pub(crate) measured: Option<Cost>,
    /// What the cheapest way to it costs by link state.
    pub(crate) estimate: Cost,
    /// What the cheapest way over it to a far end costs by link state; unroutable where there is
    /// none to go to.
    pub(crate) via_cost: Cost,
    /// Whether routes may pass it.
    pub(crate) may_relay: bool,
    /// Its number in the lottery; the lowest win.
    pub(crate) random_key: u64,
}

/// How a node stands with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialState {
    /// There is a session, or a dial.
    Linked,
    /// It may be dialled.
    Available,
    /// It had no place for us, or did not answer, not long ago.
    BackedOff,
}

/// Why a link is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkReason {
    /// It is an end or a relay of routes.
    Required,
    /// It is near.
    LowLatency,
    /// It was drawn.
    Random,
}

/// Chooses the nodes to be linked with. `needed` names some in the order of their worth; `before`
/// is what was chosen last.
pub(crate) fn select(
    slots: &LinkSlots,
    candidates: &[Candidate],
    needed: &[LinkId],
    before: &BTreeMap<LinkId, LinkReason>,
) -> BTreeMap<LinkId, LinkReason> {
    let mut open: BTreeMap<LinkId, &Candidate> = candidates
        .iter()
        .filter(|of| of.state != DialState::BackedOff)
        .map(|of| (of.link, of))
        .collect();
    let mut chosen = BTreeMap::new();
    let needed = needed.iter().filter(|link| open.contains_key(link));
    for &link in needed.take(slots.required) {
        chosen.insert(link, LinkReason::Required);
    }
    // Who is needed needs a session, not a good line: paths may lead there over others.
    open.retain(|_, of| !of.is_dead());
    take(
        &mut chosen,
        &open,
        (slots.random, LinkReason::Random),
        |of| of.random_key,
    );
    take(
        &mut chosen,
        &open,
        (slots.low_latency, LinkReason::LowLatency),
        |of| {
            let cost = if before.get(&of.link) == Some(&LinkReason::LowLatency) {
                of.cost_with_hysteresis()
            } else {
                of.cost()
            };
            (!of.may_relay, of.measured.is_none(), cost, of.random_key)
        },
    );
    chosen
}

/// Chooses a node to be measured, of those that were not of late: half the times the one with the
/// lowest estimate, a quarter the one that is least out of the way to a far end, else any.
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
    let best = unknown
        .iter()
        .min_by_key(|of| (!of.may_relay, cost(of), of.random_key ^ drawn));
    best.map(|of| of.link)
}

impl Candidate {
    /// Whether its link was tried and does not answer.
    fn is_dead(&self) -> bool {
        self.measured.is_some_and(|cost| !cost.is_routable())
    }

    /// What counts for nearness.
    fn cost(&self) -> Cost {
        self.measured.unwrap_or(self.estimate)
    }

    /// The same of who holds a place, and leaves it to one who is nearer by a margin.
    fn cost_with_hysteresis(&self) -> Cost {
        let cost = self.cost();
        cost.less(MARGIN.max(cost.percent(MARGIN_PERCENT)))
    }
}

/// Chooses up to so many more, those with the lowest keys.
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

/// A guest, where there are too many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundPeer<T> {
    pub(crate) link: LinkId,
    /// Since when it is there.
    pub(crate) since: T,
    /// Whether it is likely to need this node: it has players for an exit.
    pub(crate) is_needed: bool,
}

/// In which order guests go where they are too many: the newest first, so that those who stay need
/// not look for others; who has a cause goes last.
pub(crate) fn eviction_order<T: Ord + Copy>(
    peers: impl Iterator<Item = InboundPeer<T>>,
) -> Vec<LinkId> {
    let mut peers: Vec<_> = peers
        .map(|peer| (peer.is_needed, Reverse(peer.since), peer.link))
        .collect();
    peers.sort_unstable();
    peers.into_iter().map(|(.., link)| link).collect()
}

/// Least advantage for which a near neighbour is changed; also in percent.
const MARGIN: Cost = Cost::from_millis(2);
const MARGIN_PERCENT: u16 = 10;

#[cfg(test)]
mod tests;
