//! All routes that a player's packets can take, by exhaustive search.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use netsim::{Chance, Jitter, LinkConfig, Loss};
use serde::{Deserialize, Serialize};
use wire::Seat;

use super::{NodeRole, Plan};

/// Faults applied to the network so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Extra one-way delay of each link between two nodes; the lower number is first.
    degraded: BTreeMap<(u8, u8), Duration>,
    dead: BTreeSet<u8>,
}

impl Damage {
    /// Adds delay to the link between two nodes.
    pub fn degrade(&mut self, (one, other): (u8, u8), delay: Duration) {
        let link = (one.min(other), one.max(other));
        let added = self.degraded.entry(link).or_default();
        *added = added.saturating_add(delay);
    }

    /// Marks a node as killed.
    pub fn kill(&mut self, node: u8) {
        self.dead.insert(node);
    }

    fn added(&self, one: u8, other: u8) -> Duration {
        let link = (one.min(other), one.max(other));
        self.degraded.get(&link).copied().unwrap_or_default()
    }
}

/// Extra delay and loss of a link, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFault {
    /// Extra delay, milliseconds.
    pub delay_ms: u64,
    /// Extra loss, datagrams per million.
    pub loss_per_million: u32,
}

impl LinkFault {
    /// The fault that a run applies after a third of the match.
    pub const DEGRADED: Self = Self {
        delay_ms: 100,
        loss_per_million: 100_000,
    };

    pub(crate) fn worsen(self, usual: LinkConfig) -> LinkConfig {
        // The map has no other loss model.
        let usual_loss = if let Loss::Bernoulli(chance) = usual.loss {
            chance.as_per_million()
        } else {
            0
        };
        // Losses are independent: a datagram passes if both let it through.
        let passed = |lost: u32| u64::from(1_000_000_u32.saturating_sub(lost));
        let survives = passed(usual_loss).saturating_mul(passed(self.loss_per_million)) / 1_000_000;
        let delay = Duration::from_millis(self.delay_ms);
        let lost = u32::try_from(1_000_000_u64.saturating_sub(survives)).unwrap_or(1_000_000);
        usual
            .with_delay(usual.delay.saturating_add(delay))
            .with_loss(Loss::Bernoulli(Chance::per_million(lost)))
    }
}

impl Plan {
    /// Returns the median round trip of the direct route.
    #[must_use]
    pub fn direct(&self, seat: Seat) -> Duration {
        self.expected(self.player(seat), self.server().ip())
    }

    /// Returns the median round trip of the best route: direct, or from any entry over any relays
    /// in any order to the exit.
    #[must_use]
    pub fn optimum(&self, seat: Seat, damage: &Damage) -> Duration {
        let over = self.hosts_with_role(NodeRole::Entry).filter_map(|entry| {
            let path = self.best_path(entry, damage)?;
            Some(self.over(seat, entry, &path, damage))
        });
        over.fold(self.direct(seat), Duration::min)
    }

    /// Returns the best path from an entry to the exit: the nodes after the entry, the exit last.
    /// `None` if the entry or all exits are killed.
    #[must_use]
    pub fn best_path(&self, entry: u8, damage: &Damage) -> Option<Vec<u8>> {
        self.paths(entry, damage)
            .min_by_key(|path| self.inner(entry, path, damage))
    }

    /// Returns the median round trip of a player over `entry` and the nodes of `path`.
    #[must_use]
    pub fn over(&self, seat: Seat, entry: u8, path: &[u8], damage: &Damage) -> Duration {
        let exit = path.last().copied().unwrap_or(entry);
        self.expected(self.player(seat), self.relay(entry).ip())
            .saturating_add(self.inner(entry, path, damage))
            .saturating_add(self.expected(self.relay(exit).ip(), self.server().ip()))
    }

    /// Lists the paths from an entry to an exit over living nodes, each once.
    pub(super) fn paths(&self, entry: u8, damage: &Damage) -> impl Iterator<Item = Vec<u8>> {
        let lives = |node: &u8| !damage.dead.contains(node);
        let relays: Vec<u8> = self
            .hosts_with_role(NodeRole::Relay)
            .filter(lives)
            .collect();
        let exits: Vec<u8> = self.hosts_with_role(NodeRole::Exit).filter(lives).collect();
        let entry = Some(entry).filter(lives);
        // Longer and longer, until no relay is left.
        let orders = iter::successors(Some(vec![Vec::new()]), move |shorter: &Vec<Vec<u8>>| {
            let longer = shorter.iter().flat_map(|order: &Vec<u8>| {
                let left = relays.iter().filter(|relay| !order.contains(relay));
                left.map(|relay| [order.as_slice(), &[*relay]].concat())
            });
            Some(longer.collect::<Vec<_>>()).filter(|longer| !longer.is_empty())
        });
        let to_exits = move |order: Vec<u8>| {
            let paths: Vec<Vec<u8>> = exits
                .iter()
                .map(|exit| [order.as_slice(), &[*exit]].concat())
                .collect();
            paths
        };
        let all: Vec<Vec<u8>> = orders.flatten().flat_map(to_exits).collect();
        entry.into_iter().flat_map(move |_| all.clone())
    }

    /// Returns the median round trip between an entry and the end of `path`.
    pub(super) fn inner(&self, entry: u8, path: &[u8], damage: &Damage) -> Duration {
        let nodes = iter::once(entry).chain(path.iter().copied());
        let hops = nodes.zip(path.iter().copied());
        let one = |(from, to): (u8, u8)| {
            self.expected(self.relay(from).ip(), self.relay(to).ip())
                .saturating_add(damage.added(from, to).saturating_mul(2))
        };
        hops.map(one).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Returns the median round trip. Jitter is uniform, so half of it counts in each direction.
    fn expected(&self, from: IpAddr, to: IpAddr) -> Duration {
        let one_way = |link: LinkConfig| {
            // The map has no other jitter model.
            if let Jitter::Uniform(most) = link.jitter {
                let mean = most.checked_div(2).unwrap_or_default();
                link.delay.saturating_add(mean)
            } else {
                link.delay
            }
        };
        self.link(from, to)
            .map_or(Duration::MAX, |link| one_way(link).saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PlanOptions, RELAYS};

    fn plan() -> Plan {
        let options = PlanOptions {
            seed: 3,
            players: 4,
            ..PlanOptions::default()
        };
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    #[test]
    fn all_orders_of_two_relays_are_tried() {
        let plan = plan();
        let entry = plan.hosts_with_role(NodeRole::Entry).next().unwrap();
        let exit = plan.hosts_with_role(NodeRole::Exit).next().unwrap();
        let [one, other] = plan.hosts_with_role(NodeRole::Relay).collect::<Vec<_>>()[..] else {
            panic!("two relays");
        };
        let paths: BTreeSet<Vec<u8>> = plan.paths(entry, &Damage::default()).collect();
        let expected = [
            vec![exit],
            vec![one, exit],
            vec![other, exit],
            vec![one, other, exit],
            vec![other, one, exit],
        ];
        assert_eq!(paths, BTreeSet::from(expected));
    }

    #[test]
    fn killed_nodes_and_degraded_links_are_avoided() {
        let plan = plan();
        let entry = plan.hosts_with_role(NodeRole::Entry).next().unwrap();
        let relays: Vec<u8> = plan.hosts_with_role(NodeRole::Relay).collect();
        let mut damage = Damage::default();
        let best = plan.best_path(entry, &damage).unwrap();
        damage.degrade((best[0], entry), Duration::from_secs(1));
        let next = plan.best_path(entry, &damage).unwrap();
        assert_ne!(best[0], next[0]);
        let seat = Seat(0);
        assert_eq!(
            plan.over(seat, entry, &best, &damage),
            plan.over(seat, entry, &best, &Damage::default()) + Duration::from_secs(2)
        );
        for relay in relays {
            damage.kill(relay);
        }
        assert_eq!(plan.paths(entry, &damage).count(), 1);
        damage.kill(entry);
        assert_eq!(plan.best_path(entry, &damage), None);
        for other in 0..RELAYS {
            damage.kill(other);
        }
        assert_eq!(plan.optimum(seat, &damage), plan.direct(seat));
    }

    #[test]
    fn the_optimum_is_at_most_any_route() {
        let plan = plan();
        let damage = Damage::default();
        for seat in plan.seats() {
            let optimum = plan.optimum(seat, &damage);
            let mut all = vec![plan.direct(seat)];
            for entry in plan.hosts_with_role(NodeRole::Entry) {
                let over = |path: Vec<u8>| plan.over(seat, entry, &path, &damage);
                all.extend(plan.paths(entry, &damage).map(over));
            }
            assert_eq!(all.into_iter().min(), Some(optimum));
        }
    }
}
