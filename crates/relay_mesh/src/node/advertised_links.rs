//! Which links a node advertises in link state.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use crate::link_state::NEIGHBOURS_MAX;
use crate::measure::LinkReport;
use crate::splitmix;

/// The neighbours that a node advertises: those with lasting links.
///
/// Each change costs every node of the mesh about 1,500 bytes, with the following link record,
/// duplicates, headers and acknowledgements. So trial links are not advertised, changes are spaced,
/// and a lost neighbour stays listed as down until the next change, or for [`GONE_MAX`].
#[derive(Debug, Default)]
pub(super) struct AdvertisedLinks {
    nodes: BTreeMap<NodeId, Presence>,
    changed_at: Option<Instant>,
    /// Changes since there were fewer than [`FEW`] links.
    changes: u32,
    /// Different at each node, so that nodes that start together do not stay in step.
    lottery: u64,
}

/// Whether a neighbour has a session.
#[derive(Clone, Copy, Debug)]
enum Presence {
    Here,
    /// It has had none since then. `has_parted` is set if an end closed it to choose other
    /// neighbours.
    Gone {
        since: Instant,
        has_parted: bool,
    },
}

/// A link with an open session.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkAge {
    pub(super) since: Instant,
    /// Whether this node chose it.
    pub(super) is_chosen: bool,
    pub(super) is_up: bool,
}

impl AdvertisedLinks {
    pub(super) fn new(lottery: u64) -> Self {
        Self {
            lottery,
            ..Self::default()
        }
    }

    /// Advertises all links; used in small meshes.
    pub(super) fn set_all(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.nodes = nodes.map(|node| (node, Presence::Here)).collect();
    }

    /// Records that an end closed the session with a node to choose other neighbours.
    pub(super) fn on_parted(&mut self, now: Instant, node: NodeId) {
        if let Some(presence @ Presence::Here) = self.nodes.get_mut(&node) {
            *presence = Presence::Gone {
                since: now,
                has_parted: true,
            };
        }
    }

    /// Updates the list from the current links, in a mesh of `known` nodes.
    pub(super) fn update(&mut self, now: Instant, known: usize, links: &BTreeMap<NodeId, LinkAge>) {
        for (node, presence) in &mut self.nodes {
            *presence = match *presence {
                _ if links.contains_key(node) => Presence::Here,
                Presence::Here => Presence::Gone {
                    since: now,
                    has_parted: false,
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
            Presence::Here => false,
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
        let is_held = |node: &NodeId| advertised.get(node).is_some_and(Presence::is_here);
        new.extend(links.iter().filter(|(node, _)| is_held(node)));
        new.sort_by_key(|(node, link)| (!link.is_chosen, !is_held(node), link.since, **node));
        let first = new.into_iter().take(NEIGHBOURS_MAX);
        self.nodes = first.map(|(node, _)| (*node, Presence::Here)).collect();
    }

    /// Time between two changes: 10 s, then four times as long after each, until all lists together
    /// would cost each node 6 kB a second if all kept changing; randomised by half either way. So a
    /// new node's neighbours are known soon, and a mesh whose nodes start together settles within
    /// minutes.
    fn spacing(&self, known: usize, changed_at: Instant) -> Duration {
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        let calm = SPACING_MIN.max(SPACING_EACH.saturating_mul(known));
        let early = SPACING_MIN.saturating_mul(4_u32.saturating_pow(self.changes));
        let mean = calm.min(early);
        let moment = changed_at.saturating_since(Instant::ZERO).as_nanos();
        let draw = splitmix::first(self.lottery ^ u64::try_from(moment).unwrap_or(u64::MAX));
        let share = u32::try_from(draw % 512).unwrap_or(0);
        let wide = mean.saturating_mul(share.saturating_add(256));
        wide.checked_div(512).unwrap_or_default()
    }

    pub(super) fn contains(&self, node: &NodeId) -> bool {
        self.nodes.contains_key(node)
    }

    /// Whether enough links are listed that new ones can wait.
    pub(super) fn is_settled(&self) -> bool {
        self.nodes.values().filter(|of| of.is_here()).count() >= FEW
    }

    /// The report of each listed link; `reports` holds the measured ones.
    fn reports(&self, reports: &BTreeMap<NodeId, LinkReport>) -> BTreeMap<NodeId, LinkReport> {
        let report = |node, presence: &Presence| match presence {
            Presence::Gone {
                has_parted: true, ..
            } => LinkReport::PARTED,
            Presence::Here | Presence::Gone { .. } => {
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
    const fn is_here(&self) -> bool {
        matches!(self, Self::Here)
    }
}

impl<P: Provider> Node<P> {
    /// Updates the list and returns the report of each advertised link.
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

/// Time between the first two changes: a third of [`LASTING`], which a lasting link waits at most
/// in addition.
const SPACING_MIN: Duration = Duration::from_secs(10);
/// Time between changes for each node of the mesh: one 1,500-byte change per list is 6.25 kB a
/// second. Periodic renewal costs 17 kB of goal G1's 25 kB with 1,000 nodes.
const SPACING_EACH: Duration = Duration::from_millis(240);
/// Time between changes while few links are listed.
const QUICK: Duration = Duration::from_secs(1);
/// With fewer listed links up, a link need not last before it is listed.
const FEW: usize = 8;
/// Age at which a link is listed.
const LASTING: Duration = Duration::from_secs(30);
/// How long a lost neighbour stays listed without another change.
const GONE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn up(since: u64) -> LinkAge {
        LinkAge {
            since: Instant::from_millis(since * 1_000),
            is_chosen: true,
            is_up: true,
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    /// A list of ten, and their links.
    fn ten() -> (AdvertisedLinks, BTreeMap<NodeId, LinkAge>) {
        let mut advertised = AdvertisedLinks::default();
        let links: BTreeMap<_, _> = (0..10).map(|number| (id(number), up(0))).collect();
        advertised.update(at(0), 100, &links);
        assert!(
            (0..10).all(|number| advertised.contains(&id(number))),
            "at once"
        );
        (advertised, links)
    }

    #[test]
    fn a_trial_is_not_listed_and_what_lasts_is_after_30_s() {
        let (mut advertised, mut links) = ten();
        links.insert(id(20), up(100));
        for now in 100..130 {
            advertised.update(at(now), 100, &links);
            assert!(!advertised.contains(&id(20)), "{now}");
        }
        advertised.update(at(130), 100, &links);
        assert!(advertised.contains(&id(20)));
    }

    #[test]
    fn changes_wait_for_each_other_and_longer_in_large_meshes() {
        let mut changes = [0, 0];
        for (changes, known) in changes.iter_mut().zip([100, 1_000]) {
            let (mut advertised, mut links) = ten();
            for now in 100..700 {
                // Each second one link begins, one turns 30 s old, and one ends.
                let newest = u8::try_from(now % 150).unwrap() + 20;
                links.insert(id(newest), up(now));
                links.retain(|node, link| {
                    *node < id(10) || link.since + Duration::from_secs(50) > at(now)
                });
                let before = advertised.nodes.keys().copied().collect::<Vec<_>>();
                advertised.update(at(now), known, &links);
                *changes += u32::from(!advertised.nodes.keys().eq(&before));
            }
            assert!(advertised.nodes.len() <= NEIGHBOURS_MAX);
        }
        assert!((20..=30).contains(&changes[0]), "each 24 s: {changes:?}");
        assert!((3..=6).contains(&changes[1]), "{changes:?}");
    }

    #[test]
    fn nodes_that_began_together_do_not_change_their_lists_together() {
        let mut lists: Vec<AdvertisedLinks> = (0..100)
            .map(|node| AdvertisedLinks::new(splitmix::mix(node)))
            .collect();
        let mut links: BTreeMap<_, _> = (0..10).map(|number| (id(number), up(0))).collect();
        let mut changed = Vec::new();
        for now in 0..2_400 {
            // Each second there is a change to advertise.
            let newest = u8::try_from(now % 150).unwrap() + 20;
            links.insert(id(newest), up(now));
            links.retain(|node, link| {
                *node < id(10) || link.since + Duration::from_secs(50) > at(now)
            });
            for advertised in &mut lists {
                let before = advertised.changed_at;
                advertised.update(at(now), 1_000, &links);
                changed.extend((advertised.changed_at != before).then_some(now));
            }
        }
        let count = |times: core::ops::Range<u64>| {
            let within = changed.iter().filter(|at| times.contains(at));
            within.count()
        };
        let early = count(1..240);
        assert!((250..=350).contains(&early), "three in 240 s: {early}");
        let later = count(600..2_400);
        assert!((700..800).contains(&later), "each 240 s: {later}");
        for begin in (600..2_400).step_by(10) {
            let count = count(begin..begin + 10);
            assert!(count <= 20, "{count} of 100 in 10 s from {begin}");
        }
    }

    #[test]
    fn who_is_gone_stands_as_down_for_a_minute_and_finds_its_place_again() {
        let (mut advertised, links) = ten();
        let mut fewer = links.clone();
        fewer.remove(&id(3));
        for now in 100..155 {
            advertised.update(at(now), 100, &fewer);
            assert_eq!(
                advertised.reports(&BTreeMap::new())[&id(3)],
                LinkReport::DOWN
            );
        }
        advertised.update(at(155), 100, &links);
        for now in 156..216 {
            advertised.update(at(now), 100, &fewer);
            assert!(advertised.contains(&id(3)), "{now}");
        }
        advertised.update(at(216), 100, &fewer);
        assert!(!advertised.contains(&id(3)));
    }

    #[test]
    fn who_is_gone_is_told_as_parted_only_where_one_of_both_chose_so() {
        let (mut advertised, mut links) = ten();
        let reported = |advertised: &AdvertisedLinks| {
            [3, 4].map(|node| advertised.reports(&BTreeMap::new())[&id(node)])
        };
        let gone = [3, 4].map(|node| links.remove(&id(node)).unwrap());
        advertised.on_parted(at(1), id(3));
        for now in 1..5 {
            advertised.update(at(now), 100, &links);
            // It is too late to be the reason.
            advertised.on_parted(at(now), id(4));
            assert_eq!(
                reported(&advertised),
                [LinkReport::PARTED, LinkReport::DOWN]
            );
        }
        links.extend([id(3), id(4)].into_iter().zip(gone));
        advertised.update(at(5), 100, &links);
        links.remove(&id(3));
        advertised.update(at(6), 100, &links);
        assert_eq!(
            reported(&advertised)[0],
            LinkReport::DOWN,
            "this time nobody said so"
        );
    }

    #[test]
    fn those_that_were_chosen_come_first_where_the_list_is_full() {
        let mut advertised = AdvertisedLinks::default();
        let mut links: BTreeMap<_, _> = (0..100).map(|number| (id(number), up(0))).collect();
        for (_, link) in links.iter_mut().take(60) {
            link.is_chosen = false;
        }
        advertised.update(at(0), 100, &links);
        assert_eq!(advertised.nodes.len(), NEIGHBOURS_MAX);
        assert!((60..100).all(|number| advertised.contains(&id(number))));
        // A neighbour chosen later replaces listed inbound ones; other inbound ones do not.
        let guests = |advertised: &AdvertisedLinks| {
            (0..60).filter(|of| advertised.contains(&id(*of))).count()
        };
        assert_eq!(guests(&advertised), 24);
        let before: Vec<NodeId> = advertised.nodes.keys().copied().collect();
        links.extend((100..110).map(|number| (id(number), up(50))));
        links.extend((110..120).map(|number| {
            (
                id(number),
                LinkAge {
                    is_chosen: false,
                    ..up(50)
                },
            )
        }));
        advertised.update(at(100), 120, &links);
        assert_eq!(
            (advertised.nodes.len(), guests(&advertised)),
            (NEIGHBOURS_MAX, 14)
        );
        assert!((60..110).all(|number| advertised.contains(&id(number))));
        assert!((0..60).all(|of| before.contains(&id(of)) || !advertised.contains(&id(of))));
    }
}
