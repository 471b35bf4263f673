//! Whether a map is worth demonstrating on: the mesh helps some players before and after both
//! faults, the gain shows in the median of all players, and at least one player is best served
//! directly.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Seat;

use super::LinkFault;
use super::{DRAWS_MAX, Damage, NodeRole, Plan};

impl Plan {
    /// Returns whether the map is worth demonstrating on.
    ///
    /// Some players are clearly faster through the mesh. They still are if the link that most of
    /// them use is degraded. If the relay that most of them use is killed, some are still faster
    /// behind every entry that used it. Over a match with both faults the median of all players is
    /// 18 % shorter. With more than one player, the direct route is the shortest for at least one.
    #[must_use]
    pub fn has_scenario(&self) -> bool {
        let assigned = self.assigned();
        if assigned.len() == self.seats().count() && assigned.len() > 1 {
            return false;
        }
        let states = self.survived(&assigned);
        states.is_some_and(|states| self.gains(&assigned, &states))
    }

    /// Checks that a map was found, unless any map was asked for.
    pub(crate) fn check_scenario(&self) -> Result<(), String> {
        if self.options.any_map || self.has_scenario() {
            return Ok(());
        }
        Err(format!(
            "seed {} has no map for {} players, in {DRAWS_MAX} draws, on which the mesh has something \
             to do: take another seed",
            self.options.seed, self.options.players
        ))
    }

    /// Applies both faults. Returns the network before, between and after them; `None` if no fault
    /// would hit a player, or the mesh helps nobody afterwards.
    fn survived(&self, assigned: &[(Seat, u8)]) -> Option<[Damage; 3]> {
        let whole = Damage::default();
        let entry = self
            .traffic(assigned, &whole)
            .busiest(|_, entry, _| vec![entry])?;
        let path = self.best_path(entry, &whole)?;
        let delay = Duration::from_millis(LinkFault::DEGRADED.delay_ms);
        let mut degraded = whole.clone();
        degraded.degrade((entry, *path.first()?), delay);
        let traffic = self.traffic(assigned, &degraded);
        if !traffic.is_carried_by(entry) {
            return None;
        }
        let victim = traffic.busiest(|plan, _, path| {
            let is_relay = |node: &u8| plan.node_role(*node) == NodeRole::Relay;
            path.iter().copied().filter(is_relay).collect()
        })?;
        let hit: Vec<u8> = self
            .hosts_with_role(NodeRole::Entry)
            .filter(|entry| {
                let path = self.best_path(*entry, &degraded);
                path.is_some_and(|path| path.contains(&victim)) && traffic.is_used(*entry)
            })
            .collect();
        if hit
            .iter()
            .any(|entry| !self.needs(*entry, victim, &degraded))
        {
            return None;
        }
        let mut killed = degraded.clone();
        killed.kill(victim);
        let traffic = self.traffic(assigned, &killed);
        let is_carried = hit.iter().all(|entry| traffic.is_carried_by(*entry));
        is_carried.then_some([whole, degraded, killed])
    }

    /// Returns whether the median of all players is clearly shorter on their assigned routes. Each
    /// player counts with the middle value of the three parts of the match.
    fn gains(&self, assigned: &[(Seat, u8)], states: &[Damage; 3]) -> bool {
        let mut trips: Vec<Duration> = self.seats().map(|seat| self.direct(seat)).collect();
        let direct = middle(&mut trips.clone());
        for (seat, entry) in assigned {
            let mut parts = states.each_ref().map(|damage| {
                let path = self.best_path(*entry, damage);
                path.map_or(Duration::MAX, |path| {
                    self.over(*seat, *entry, &path, damage)
                })
            });
            parts.sort_unstable();
            let [_, part, _] = parts;
            if let Some(trip) = trips.get_mut(usize::from(seat.0)) {
                *trip = part;
            }
        }
        let most = direct.saturating_mul(100 - GAIN_MIN_OF_100);
        middle(&mut trips) <= most.checked_div(100).unwrap_or_default()
    }

    /// Returns whether an entry gains clearly by a relay. Otherwise noise decides whether it is
    /// used.
    fn needs(&self, entry: u8, relay: u8, damage: &Damage) -> bool {
        let best = |with: bool| {
            let paths = self.paths(entry, damage);
            let such = paths.filter(|path| path.contains(&relay) == with);
            such.map(|path| self.inner(entry, &path, damage)).min()
        };
        match (best(true), best(false)) {
            (Some(with), Some(without)) => with.saturating_add(CLEAR_MIN) <= without,
            (with, _) => with.is_some(),
        }
    }

    /// The entry of each player that gains by one, on the network before the match.
    fn assigned(&self) -> Vec<(Seat, u8)> {
        let whole = Damage::default();
        let mut paths = BTreeMap::new();
        for entry in self.hosts_with_role(NodeRole::Entry) {
            paths.extend(self.best_path(entry, &whole).map(|path| (entry, path)));
        }
        let entry = |seat| {
            let over = paths
                .iter()
                .map(|(entry, path)| (self.over(seat, *entry, path, &whole), *entry));
            let (route, entry) = over.min()?;
            (route < self.direct(seat)).then_some((seat, entry))
        };
        self.seats().filter_map(entry).collect()
    }

    fn traffic(&self, assigned: &[(Seat, u8)], damage: &Damage) -> Traffic<'_> {
        let mut traffic = Traffic {
            plan: self,
            carried: Vec::new(),
        };
        for (seat, entry) in assigned {
            let Some(path) = self.best_path(*entry, damage) else {
                continue;
            };
            let (direct, route) = (self.direct(*seat), self.over(*seat, *entry, &path, damage));
            if route < direct {
                let gain = CLEAR_MIN.max(direct.checked_div(10).unwrap_or_default());
                let is_clear = route.saturating_add(gain) <= direct;
                traffic.carried.push((*entry, path, is_clear));
            }
        }
        traffic
    }
}

struct Traffic<'a> {
    plan: &'a Plan,
    /// Entry and path of each, and whether the gain is clear.
    carried: Vec<(u8, Vec<u8>, bool)>,
}

impl Traffic<'_> {
    /// Returns the node that most players use, of those that `nodes` derives from an entry and its
    /// path. `None` if that depends on players with an unclear gain.
    fn busiest(&self, nodes: impl Fn(&Plan, u8, &[u8]) -> Vec<u8>) -> Option<u8> {
        let (mut sure, mut possible) = (BTreeMap::new(), BTreeMap::new());
        for (entry, path, is_clear) in &self.carried {
            for node in nodes(self.plan, *entry, path) {
                let count = sure.entry(node).or_insert(0_usize);
                *count = count.saturating_add(usize::from(*is_clear));
                let count = possible.entry(node).or_insert(0_usize);
                *count = count.saturating_add(1);
            }
        }
        let busiest = most(&sure)?;
        let least = sure.get(&busiest).copied()?;
        let mut others = possible.into_iter().filter(|(node, _)| *node != busiest);
        (least > 0 && others.all(|(_, count)| count < least)).then_some(busiest)
    }

    /// Returns whether some player gains clearly by `entry`.
    fn is_carried_by(&self, entry: u8) -> bool {
        let mut carried = self.carried.iter();
        carried.any(|(of, _, is_clear)| *of == entry && *is_clear)
    }

    fn is_used(&self, entry: u8) -> bool {
        self.carried.iter().any(|(of, _, _)| *of == entry)
    }
}

/// Returns the node with the highest count; the lowest number if there is a tie.
pub(crate) fn most(counts: &BTreeMap<u8, usize>) -> Option<u8> {
    let most = counts
        .iter()
        .max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node)));
    most.map(|(node, _)| *node)
}

/// Returns the median; of an even number of values, the mean of the middle two.
fn middle(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    let at = |at: usize| spans.get(at).copied().unwrap_or_default();
    let (lower, upper) = (spans.len().saturating_sub(1) / 2, spans.len() / 2);
    let sum = at(lower).saturating_add(at(upper));
    sum.checked_div(2).unwrap_or_default()
}

/// Minimum saving of the players' median round trip, percent of the direct one.
pub(crate) const GAIN_MIN_OF_100: u32 = 18;

/// Minimum saving of a clear gain; or a tenth, if that is more. Players change routes for 3 ms and
/// a twentieth.
const CLEAR_MIN: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanOptions;

    fn plan(seed: u64, players: u16) -> Plan {
        let options = PlanOptions {
            seed,
            players,
            ..PlanOptions::default()
        };
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    #[test]
    fn every_seed_has_a_map_where_some_players_gain() {
        for players in [1, 2, 8, 64] {
            for seed in 0..50 {
                let plan = plan(seed, players);
                assert!(plan.has_scenario(), "seed {seed}, {players} players");
                let whole = Damage::default();
                let mut routes: Vec<_> = plan.seats().map(|seat| plan.direct(seat)).collect();
                let direct = middle(&mut routes);
                let mut routes: Vec<_> = plan
                    .seats()
                    .map(|seat| plan.optimum(seat, &whole))
                    .collect();
                let best = middle(&mut routes);
                assert!(
                    best <= direct * 82 / 100,
                    "seed {seed}: {best:?} of {direct:?}"
                );
                let direct = plan
                    .seats()
                    .filter(|seat| plan.optimum(*seat, &Damage::default()) == plan.direct(*seat));
                assert!(direct.count() > 0 || players == 1);
            }
        }
    }

    #[test]
    fn a_map_is_rejected_if_no_player_or_every_player_gains() {
        let (mut nobody, mut everybody, mut fine) = (0, 0, 0);
        for map in 0..1_000 {
            let options = *plan(0, 4).options();
            let block = plan(0, 4).block();
            let plan = Plan::draw(options, block, wire::Seed::from_number(map));
            let gains = |seat: &Seat| plan.optimum(*seat, &Damage::default()) < plan.direct(*seat);
            match plan.seats().filter(gains).count() {
                0 => {
                    nobody += 1;
                    let error = plan.check_scenario().unwrap_err();
                    assert!(
                        error.starts_with("seed 0 has no map for 4 players"),
                        "{error}"
                    );
                }
                4 => {
                    everybody += 1;
                    assert!(!plan.has_scenario());
                }
                _ => fine += i32::from(plan.check_scenario().is_ok()),
            }
        }
        assert!(nobody > 0 && everybody > 0, "{nobody} {everybody}");
        assert!((1..100).contains(&fine), "{fine} of 1,000");
    }
}
