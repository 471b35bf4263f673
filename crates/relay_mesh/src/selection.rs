//! With whom a node keeps links, where there are more nodes than places for links.
//!
//! Up to [`Places::all`] others: with all of them. Beyond it, and until they are clearly fewer again, a node
//! chooses
//!
//! - those that it *needs*: exits of its games, and relays of the best routes to them;
//! - the *nearest* of those that it measured, relays first: a route's first and last relay is as
//!   a rule near an end of it;
//! - some by *lot*: a random graph of a few links a node is in one piece, of small diameter, and
//!   stays so whatever the map looks like.
//!
//! The other places are for guests, who chose this node. Who is near is found by trials: one node
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
pub(crate) struct Places {
    /// Up to so many others, a node is linked with all.
    pub(crate) all: usize,
    /// For nodes that are needed.
    pub(crate) needed: usize,
    /// Of them, for far ends; the others are for relays.
    pub(crate) far_ends: usize,
    /// For the nearest.
    pub(crate) near: usize,
    /// For those drawn by lot.
    pub(crate) lot: usize,
    /// With more links than this, guests whose links nobody uses make room.
    pub(crate) calm: usize,
    /// All links and dials.
    pub(crate) max: usize,
}

impl Places {
    /// Divides what [`Config::links_max`](crate::Config::links_max) allows. What a link record
    /// cannot name is for guests.
    pub(crate) fn new(links_max: usize) -> Self {
        let links = links_max.min(NEIGHBOURS_MAX);
        let share = |part: usize| links.checked_div(part).unwrap_or(0).max(1);
        Self {
            all: links.saturating_sub(links / 4),
            needed: share(4),
            far_ends: (share(4).saturating_mul(3) / 4).max(1),
            near: share(4),
            lot: share(8),
            calm: links_max.saturating_sub(links_max / 8),
            max: links_max,
        }
    }

    /// Guests with a cause that have a place before all others.
    pub(crate) const fn with_cause(&self) -> usize {
        self.calm
            .saturating_sub(self.needed.saturating_add(self.lot))
    }

    /// Once nodes were too many, up to so many are few again: a mesh of about [`Self::all`] does not
    /// change between the two.
    pub(crate) const fn few_again(&self) -> usize {
        self.all.saturating_sub(self.all / 8)
    }

    /// The same where so many guests have a cause: whom there is no place for takes that of one
    /// who is near.
    pub(crate) const fn with_guests(mut self, with_cause: usize) -> Self {
        let chosen = self
            .needed
            .saturating_add(self.near)
            .saturating_add(self.lot);
        let room = self.calm.saturating_sub(chosen);
        self.near = self.near.saturating_sub(with_cause.saturating_sub(room));
        self
    }
}

/// A node that there may be a link with: alive by its record, and a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) link: LinkId,
    pub(crate) standing: Standing,
    /// What the link costs, measured now or not long ago; unroutable where it did not answer.
    pub(crate) measured: Option<Cost>,
    /// What the cheapest way to it costs by link state.
    pub(crate) estimate: Cost,
    /// What the cheapest way over it to a far end costs by link state; unroutable where there is
    /// none to go to.
    pub(crate) way: Cost,
    /// Whether routes may pass it.
    pub(crate) may_relay: bool,
    /// Its number in the lottery; the lowest win.
    pub(crate) draw: u64,
}

/// How a node stands with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is a session, or a dial.
    Linked,
    /// It may be dialled.
    Free,
    /// It had no place for us, or did not answer, not long ago.
    Refused,
}

/// Why a link is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is an end or a relay of routes.
    Needed,
    /// It is near.
    Near,
    /// It was drawn.
    Lot,
}

/// Chooses the nodes to be linked with. `needed` names some in the order of their worth; `before`
/// is what was chosen last.
pub(crate) fn select(
    places: &Places,
    candidates: &[Candidate],
    needed: &[LinkId],
    before: &BTreeMap<LinkId, Why>,
) -> BTreeMap<LinkId, Why> {
    let mut open: BTreeMap<LinkId, &Candidate> = candidates
        .iter()
        .filter(|of| of.standing != Standing::Refused)
        .map(|of| (of.link, of))
        .collect();
    let mut chosen = BTreeMap::new();
    let needed = needed.iter().filter(|link| open.contains_key(link));
    for &link in needed.take(places.needed) {
        chosen.insert(link, Why::Needed);
    }
    // Who is needed needs a session, not a good line: paths may lead there over others.
    open.retain(|_, of| !of.is_dead());
    take(&mut chosen, &open, (places.lot, Why::Lot), |of| of.draw);
    take(&mut chosen, &open, (places.near, Why::Near), |of| {
        let price = if before.get(&of.link) == Some(&Why::Near) {
            of.price_held()
        } else {
            of.price()
        };
        (!of.may_relay, of.measured.is_none(), price, of.draw)
    });
    chosen
}

/// Chooses a node to be measured, of those that were not of late: half the times the one with the
/// lowest estimate, a quarter the one that is least out of the way to a far end, else any.
pub(crate) fn try_one(
    candidates: &[Candidate],
    chosen: &BTreeMap<LinkId, Why>,
    generator: &mut Generator,
) -> Option<LinkId> {
    let is_unknown = |of: &&Candidate| {
        of.standing == Standing::Free && of.measured.is_none() && !chosen.contains_key(&of.link)
    };
    let unknown: Vec<&Candidate> = candidates.iter().filter(is_unknown).collect();
    let turn = generator.below(4);
    let cost = |of: &Candidate| match turn {
        0 => Cost::ZERO,
        1 => of.way,
        _ => of.estimate,
    };
    let drawn = generator.next_u64();
    let best = unknown
        .iter()
        .min_by_key(|of| (!of.may_relay, cost(of), of.draw ^ drawn));
    best.map(|of| of.link)
}

impl Candidate {
    /// Whether its link was tried and does not answer.
    fn is_dead(&self) -> bool {
        self.measured.is_some_and(|cost| !cost.is_routable())
    }

    /// What counts for nearness.
    fn price(&self) -> Cost {
        self.measured.unwrap_or(self.estimate)
    }

    /// The same of who holds a place, and leaves it to one who is nearer by a margin.
    fn price_held(&self) -> Cost {
        let cost = self.price();
        cost.less(MARGIN.max(cost.percent(MARGIN_PERCENT)))
    }
}

/// Chooses up to so many more, those with the lowest keys.
fn take<K: Ord>(
    chosen: &mut BTreeMap<LinkId, Why>,
    open: &BTreeMap<LinkId, &Candidate>,
    (count, why): (usize, Why),
    key: impl Fn(&Candidate) -> K,
) {
    let left = open.iter().filter(|(link, _)| !chosen.contains_key(link));
    let mut left: Vec<(K, LinkId)> = left.map(|(link, of)| (key(of), *link)).collect();
    left.sort_unstable();
    chosen.extend(left.into_iter().take(count).map(|(_, link)| (link, why)));
}

/// A guest, where there are too many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<T> {
    pub(crate) link: LinkId,
    /// Since when it is there.
    pub(crate) since: T,
    /// Whether it is likely to need this node: it has players for an exit.
    pub(crate) has_cause: bool,
}

/// In which order guests go where they are too many: the newest first, so that those who stay need
/// not look for others; who has a cause goes last.
pub(crate) fn parting_order<T: Ord + Copy>(guests: impl Iterator<Item = Guest<T>>) -> Vec<LinkId> {
    let mut guests: Vec<_> = guests
        .map(|guest| (guest.has_cause, Reverse(guest.since), guest.link))
        .collect();
    guests.sort_unstable();
    guests.into_iter().map(|(.., link)| link).collect()
}

/// Least advantage for which a near neighbour is changed; also in percent.
const MARGIN: Cost = Cost::from_millis(2);
const MARGIN_PERCENT: u16 = 10;

#[cfg(test)]
mod tests;
