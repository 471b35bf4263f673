//! Whether the mesh has something to do on a map: for some players before and after both accidents,
//! and not for all.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Seat;

use super::{Damage, Duty, Plan};
use crate::demo::wan::Accident;

impl Plan {
    /// Returns whether the map is one to show the mesh on.
    ///
    /// Some players are clearly faster through it; they still are when the link that most of them
    /// use is degraded, over a relay between entry and exit; and behind every entry that used it
    /// some are when the relay that most of them use is dead. And, unless there is one player
    /// only, somebody's shortest way is the direct one.
    #[must_use]
    pub fn has_errand(&self) -> bool {
        let assigned = self.assigned();
        if assigned.len() == self.seats().count() && assigned.len() > 1 {
            return false;
        }
        self.survives(&assigned).unwrap_or(false)
    }

    /// Does both accidents; `None` where there is nothing to do them to.
    fn survives(&self, assigned: &[(Seat, u8)]) -> Option<bool> {
        let mut damage = Damage::default();
        let entry = self
            .traffic(assigned, &damage)
            .busiest(|_, entry, _| vec![entry])?;
        let path = self.best_path(entry, &damage)?;
        let delay = Duration::from_millis(Accident::DEGRADED.delay_ms);
        damage.degrade((entry, *path.first()?), delay);
        let traffic = self.traffic(assigned, &damage);
        if !traffic.is_carried_by(entry) {
            return Some(false);
        }
        let victim = traffic.busiest(|plan, _, path| {
            let is_relay = |node: &u8| plan.duty(*node) == Duty::Relay;
            path.iter().copied().filter(is_relay).collect()
        })?;
        let hit: Vec<u8> = self
            .on_duty(Duty::Entry)
            .filter(|entry| {
                let path = self.best_path(*entry, &damage);
                path.is_some_and(|path| path.contains(&victim)) && traffic.is_used(*entry)
            })
            .collect();
        if hit.iter().any(|entry| !self.needs(*entry, victim, &damage)) {
            return Some(false);
        }
        damage.kill(victim);
        let traffic = self.traffic(assigned, &damage);
        Some(hit.iter().all(|entry| traffic.is_carried_by(*entry)))
    }

    /// Whether an entry is clearly better off with a relay: else a breath of noise decides whether
    /// it uses it at all.
    fn needs(&self, entry: u8, relay: u8, damage: &Damage) -> bool {
        let best = |with: bool| {
            let paths = self.paths(entry, damage);
            let such = paths.filter(|path| path.contains(&relay) == with);
            such.map(|path| self.inner(entry, &path, damage)).min()
        };
        match (best(true), best(false)) {
            (Some(with), Some(without)) => with + CLEAR_MIN <= without,
            (with, _) => with.is_some(),
        }
    }

    /// The entry of each player who gains by one, on the network as it is before the match.
    fn assigned(&self) -> Vec<(Seat, u8)> {
        let whole = Damage::default();
        let mut paths = BTreeMap::new();
        for entry in self.on_duty(Duty::Entry) {
            paths.extend(self.best_path(entry, &whole).map(|path| (entry, path)));
        }
        let entry = |seat| {
            let over = paths
                .iter()
                .map(|(entry, path)| (self.over(seat, *entry, path, &whole), *entry));
            let (way, entry) = over.min()?;
            (way < self.direct(seat)).then_some((seat, entry))
        };
        self.seats().filter_map(entry).collect()
    }

    /// Who goes where on a network.
    fn traffic(&self, assigned: &[(Seat, u8)], damage: &Damage) -> Traffic<'_> {
        let mut traffic = Traffic {
            plan: self,
            carried: Vec::new(),
        };
        for (seat, entry) in assigned {
            let Some(path) = self.best_path(*entry, damage) else {
                continue;
            };
            let (direct, way) = (self.direct(*seat), self.over(*seat, *entry, &path, damage));
            if way < direct {
                let is_clear = way + CLEAR_MIN.max(direct / 10) <= direct;
                traffic.carried.push((*entry, path, is_clear));
            }
        }
        traffic
    }
}

/// The players for whom the mesh is faster.
struct Traffic<'a> {
    plan: &'a Plan,
    /// Entry and path of each, and whether it is clearly so.
    carried: Vec<(u8, Vec<u8>, bool)>,
}

impl Traffic<'_> {
    /// Of the nodes that `nodes` makes of an entry and its path, the one that most players use,
    /// however those decide for whom it makes little difference; `None` where that is not clear.
    fn busiest(&self, nodes: impl Fn(&Plan, u8, &[u8]) -> Vec<u8>) -> Option<u8> {
        let (mut sure, mut possible) = (BTreeMap::new(), BTreeMap::new());
        for (entry, path, is_clear) in &self.carried {
            for node in nodes(self.plan, *entry, path) {
                *sure.entry(node).or_insert(0) += usize::from(*is_clear);
                *possible.entry(node).or_insert(0) += 1_usize;
            }
        }
        let busiest = most(&sure)?;
        let least = sure.get(&busiest).copied()?;
        let mut others = possible.into_iter().filter(|(node, _)| *node != busiest);
        (least > 0 && others.all(|(_, count)| count < least)).then_some(busiest)
    }

    /// Whether somebody is clearly better off by `entry`.
    fn is_carried_by(&self, entry: u8) -> bool {
        let mut carried = self.carried.iter();
        carried.any(|(of, _, is_clear)| *of == entry && *is_clear)
    }

    /// Whether somebody may use `entry`.
    fn is_used(&self, entry: u8) -> bool {
        self.carried.iter().any(|(of, _, _)| *of == entry)
    }
}

/// The node with the highest count; the lowest number decides between equals.
pub(in crate::demo) fn most(counts: &BTreeMap<u8, usize>) -> Option<u8> {
    let most = counts
        .iter()
        .max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node)));
    most.map(|(node, _)| *node)
}

/// What a way must save of a round trip to be clearly faster; or a tenth, if that is more. Players
/// change sides for 3 ms and a twentieth.
const CLEAR_MIN: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::PlanOptions;

    fn plan(seed: u64, players: u16) -> Plan {
        let options = PlanOptions {
            seed,
            seconds: 30,
            players,
            sabotage: false,
        };
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    #[test]
    fn whatever_the_seed_the_mesh_has_something_to_do() {
        for players in [1, 2, 8, 64] {
            for seed in 0..50 {
                let plan = plan(seed, players);
                assert!(plan.has_errand(), "seed {seed}, {players} players");
                let direct = plan
                    .seats()
                    .filter(|seat| plan.optimum(*seat, &Damage::default()) == plan.direct(*seat));
                assert!(direct.count() > 0 || players == 1);
            }
        }
    }

    #[test]
    fn a_map_on_which_nobody_or_everybody_gains_is_drawn_again() {
        let (mut nobody, mut everybody, mut fine) = (0, 0, 0);
        for map in 0..1_000 {
            let options = *plan(0, 4).options();
            let block = plan(0, 4).block();
            let plan = Plan::draw(options, block, wire::Seed::from_number(map));
            let gains = |seat: &Seat| plan.optimum(*seat, &Damage::default()) < plan.direct(*seat);
            match plan.seats().filter(gains).count() {
                0 => {
                    nobody += 1;
                    assert!(!plan.has_errand());
                }
                4 => {
                    everybody += 1;
                    assert!(!plan.has_errand());
                }
                _ => fine += i32::from(plan.has_errand()),
            }
        }
        assert!(nobody > 0 && everybody > 0, "{nobody} {everybody}");
        assert!((1..100).contains(&fine), "{fine} of 1,000");
    }
}
