//! Every way that a player's packets could take, tried one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use netsim::Jitter;
use wire::Seat;

use super::{Duty, Plan};

/// What has been done to the network so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// What each link between two nodes, the lower number first, has become longer by, one way.
    degraded: BTreeMap<(u8, u8), Duration>,
    dead: BTreeSet<u8>,
}

impl Damage {
    /// Makes the link between two nodes longer.
    pub fn degrade(&mut self, (one, other): (u8, u8), delay: Duration) {
        let link = (one.min(other), one.max(other));
        let added = self.degraded.entry(link).or_default();
        *added = added.saturating_add(delay);
    }

    /// Takes a node away.
    pub fn kill(&mut self, node: u8) {
        self.dead.insert(node);
    }

    fn added(&self, one: u8, other: u8) -> Duration {
        let link = (one.min(other), one.max(other));
        self.degraded.get(&link).copied().unwrap_or_default()
    }
}

impl Plan {
    /// Returns the median round trip of a player's packets that go directly.
    #[must_use]
    pub fn direct(&self, seat: Seat) -> Duration {
        self.expected(self.player(seat), self.server().ip())
    }

    /// Returns the median round trip by the best of all ways: the direct one, and from each entry
    /// over any relays in any order to the exit.
    #[must_use]
    pub fn optimum(&self, seat: Seat, damage: &Damage) -> Duration {
        let over = self.on_duty(Duty::Entry).filter_map(|entry| {
            let path = self.best_path(entry, damage)?;
            Some(self.over(seat, entry, &path, damage))
        });
        over.fold(self.direct(seat), Duration::min)
    }

    /// Returns the best way from an entry to the exit: the nodes behind the entry, the exit last;
    /// `None` where the entry or all exits are dead.
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

    /// Lists the ways from an entry to an exit over living nodes, none twice.
    pub(super) fn paths(&self, entry: u8, damage: &Damage) -> impl Iterator<Item = Vec<u8>> {
        let lives = |node: &u8| !damage.dead.contains(node);
        let relays: Vec<u8> = self.on_duty(Duty::Relay).filter(lives).collect();
        let exits: Vec<u8> = self.on_duty(Duty::Exit).filter(lives).collect();
        let entry = Some(entry).filter(lives);
        // Longer and longer, as far as there are relays.
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

    /// The median time there and back: jitter is uniform, so half of it in each direction.
    fn expected(&self, from: IpAddr, to: IpAddr) -> Duration {
        let one_way = |link: netsim::LinkConfig| {
            // The map knows no other kind.
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
        let entry = plan.on_duty(Duty::Entry).next().unwrap();
        let exit = plan.on_duty(Duty::Exit).next().unwrap();
        let [one, other] = plan.on_duty(Duty::Relay).collect::<Vec<_>>()[..] else {
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
    fn the_dead_carry_nothing_and_what_is_degraded_is_avoided() {
        let plan = plan();
        let entry = plan.on_duty(Duty::Entry).next().unwrap();
        let relays: Vec<u8> = plan.on_duty(Duty::Relay).collect();
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
    fn the_optimum_is_no_longer_than_any_way() {
        let plan = plan();
        let damage = Damage::default();
        for seat in plan.seats() {
            let optimum = plan.optimum(seat, &damage);
            let mut all = vec![plan.direct(seat)];
            for entry in plan.on_duty(Duty::Entry) {
                let over = |path: Vec<u8>| plan.over(seat, entry, &path, &damage);
                all.extend(plan.paths(entry, &damage).map(over));
            }
            assert_eq!(all.into_iter().min(), Some(optimum));
        }
    }
}
