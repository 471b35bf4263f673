//! The faults of a run: which link or node they hit, and how the run judges their effect.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Seat;

use super::observations::Observations;
use super::plan::scenario::most;
use super::plan::{Damage, LinkFault, NodeRole, Plan};
use super::report::{Cause, Check, Reroute, millis};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) cause: Cause,
    /// Players with datagrams that it hit.
    pub(super) players: Vec<u16>,
    /// Entries with a path that it hit, and that path.
    pub(super) paths: BTreeMap<u8, Vec<u8>>,
    pub(super) place: String,
    pub(super) damage: Damage,
}

/// Returns the link to degrade: the first one behind the entry that most players use.
pub(super) fn link_to_degrade(
    plan: &Plan,
    observed: &Observations,
    mut damage: Damage,
) -> Option<(u8, u8, Fault)> {
    let entry = busiest_entry(observed)?;
    let path = observed.paths.get(&entry)?;
    let next = *path.first()?;
    let delay = Duration::from_millis(LinkFault::DEGRADED.delay_ms);
    damage.degrade((entry, next), delay);
    let fault = Fault {
        cause: Cause::Degraded,
        players: players_of(observed, &[entry]),
        paths: BTreeMap::from([(entry, path.clone())]),
        place: format!(
            "the link from {} to {}",
            place(plan, entry),
            place(plan, next)
        ),
        damage,
    };
    Some((entry, next, fault))
}

/// Returns the node to kill: between entries and exit, the one that carries most players.
///
/// An entry carries as many, but nothing can replace it. So it is killed only if there is no node
/// between it and the exit.
pub(super) fn relay_to_kill(
    plan: &Plan,
    observed: &Observations,
    mut damage: Damage,
) -> Option<(u8, Fault)> {
    let mut counts = BTreeMap::<u8, usize>::new();
    let paths = entered(observed).filter_map(|(_, entry)| observed.paths.get(&entry));
    for relay in paths
        .flatten()
        .filter(|node| plan.node_role(**node) == NodeRole::Relay)
    {
        let count = counts.entry(*relay).or_default();
        *count = count.saturating_add(1);
    }
    let victim = most(&counts).or_else(|| busiest_entry(observed))?;
    damage.kill(victim);
    let paths: BTreeMap<u8, Vec<u8>> = observed
        .paths
        .iter()
        .filter(|(entry, path)| {
            plan.node_role(**entry) == NodeRole::Entry
                && (**entry == victim || path.contains(&victim))
        })
        .map(|(entry, path)| (*entry, path.clone()))
        .collect();
    let entries: Vec<u8> = paths.keys().copied().collect();
    let fault = Fault {
        cause: Cause::Killed,
        players: players_of(observed, &entries),
        paths,
        place: format!("the relay in {}", place(plan, victim)),
        damage,
    };
    Some((victim, fault))
}

/// Judges one fault. It passes if it hit players, each reported a silence shorter than
/// [`GAP_MAX_US`], and each entry with a path that was hit took another path before the next fault.
/// An entry that has no path left passes if no player uses it any more.
pub(super) fn judge(
    plan: &Plan,
    (number, fault): (u8, &Fault),
    observed: &Observations,
) -> (Reroute, Check) {
    let of_this = observed
        .faults
        .gaps
        .iter()
        .filter(|gap| gap.fault == number && fault.players.contains(&gap.player));
    let (mut gap_us, mut lost_datagrams, mut assigned) = (0, 0_u32, 0_usize);
    for gap in of_this {
        gap_us = gap_us.max(gap.silence_us);
        lost_datagrams = lost_datagrams.saturating_add(gap.lost_datagrams);
        assigned = assigned.saturating_add(1);
    }
    let moves: Vec<(u8, Option<&Vec<u8>>)> = fault
        .paths
        .iter()
        .map(|(entry, old)| {
            let later = observed.faults.moves.iter().filter(|(after, of, path)| {
                after.checked_sub(1) == Some(number) && of == entry && path != old
            });
            (*entry, later.map(|(_, _, path)| path).next())
        })
        .collect();
    let is_aside = |entry: u8| {
        let is_dead = plan.best_path(entry, &fault.damage).is_none();
        is_dead && players_of(observed, &[entry]).is_empty()
    };
    let has_moved = moves
        .iter()
        .all(|(entry, path)| path.is_some() || is_aside(*entry));
    let is_carried = !fault.players.is_empty();
    let recovered = gap_us < GAP_MAX_US && assigned == fault.players.len();
    let routes: Vec<String> = moves
        .iter()
        .map(|(entry, path)| match path {
            Some(path) => format!("now {}", route(plan, *entry, path)),
            None if is_aside(*entry) => {
                format!("{} is left for the direct way", place(plan, *entry))
            }
            None => format!("{} has found no other", place(plan, *entry)),
        })
        .collect();
    let verb = match fault.cause {
        Cause::Degraded => "degraded",
        Cause::Killed => "killed",
    };
    let check = Check {
        name: format!("players go on when {} is {verb}", fault.place),
        ok: is_carried && has_moved && recovered,
        detail: format!(
            "{} players, {:.0} ms without a datagram, {lost_datagrams} datagrams lost, {}",
            fault.players.len(),
            millis(gap_us),
            routes.join(", ")
        ),
    };
    let reroute = Reroute {
        cause: fault.cause,
        gap_ms: millis(gap_us),
        lost_datagrams,
    };
    (reroute, check)
}

/// The failed checks of the last `count` planned faults, which were not applied.
pub(super) fn not_applied(count: usize, why: &str) -> impl Iterator<Item = Check> {
    PLANNED.iter().skip(count).map(move |name| Check {
        name: format!("players go on when {name}"),
        ok: false,
        detail: why.to_owned(),
    })
}

pub(super) fn route(plan: &Plan, entry: u8, path: &[u8]) -> String {
    let nodes = [entry].into_iter().chain(path.iter().copied());
    let names: Vec<&str> = nodes.map(|node| place(plan, node)).collect();
    names.join(" > ")
}

fn place(plan: &Plan, node: u8) -> &'static str {
    plan.city(plan.relay(node).ip()).unwrap_or("nowhere")
}

fn busiest_entry(observed: &Observations) -> Option<u8> {
    let mut counts = BTreeMap::<u8, usize>::new();
    for (_, entry) in entered(observed) {
        let count = counts.entry(entry).or_default();
        *count = count.saturating_add(1);
    }
    most(&counts)
}

pub(super) fn carries_any_flow(observed: &Observations) -> bool {
    entered(observed).next().is_some()
}

fn players_of(observed: &Observations, entries: &[u8]) -> Vec<u16> {
    let of_these = entered(observed).filter(|(_, entry)| entries.contains(entry));
    of_these.map(|(player, _)| player).collect()
}

/// The players that play through the mesh now, and their entries.
fn entered(observed: &Observations) -> impl Iterator<Item = (u16, u8)> {
    let routes = observed.routes.iter();
    routes.filter_map(|(player, entry)| {
        let is_entered = observed.statuses.get(player)?.is_entered;
        Some((*player, (*entry)?)).filter(|_| is_entered)
    })
}

pub(super) const PLANNED: [&str; 2] = ["the link in use is degraded", "the relay in use is killed"];

/// A player with a longer silence is not playing on.
const GAP_MAX_US: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct History {
    /// Start of each state since the start of the match; the first one at zero.
    states: Vec<(Duration, Damage)>,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            states: vec![(Duration::ZERO, Damage::default())],
        }
    }

    pub(super) fn damage(&self) -> Damage {
        let last = self.states.last();
        last.map(|(_, damage)| damage.clone()).unwrap_or_default()
    }

    pub(super) fn push(&mut self, at: Duration, damage: Damage) {
        self.states.push((at, damage));
    }

    /// Returns the time-weighted median over the match of the best route's round trip.
    pub(super) fn optimum(&self, plan: &Plan, seat: Seat) -> Duration {
        self.median(plan, |damage| plan.optimum(seat, damage))
    }

    /// Returns the same for the best route over an entry, while there was one.
    pub(super) fn best_over(&self, plan: &Plan, seat: Seat, entry: u8) -> Duration {
        self.median(plan, |damage| {
            let path = plan.best_path(entry, damage);
            path.map_or(Duration::MAX, |path| plan.over(seat, entry, &path, damage))
        })
    }

    fn median(&self, plan: &Plan, route: impl Fn(&Damage) -> Duration) -> Duration {
        let ends = self.states.iter().skip(1).map(|(at, _)| *at);
        let mut spans: Vec<(Duration, Duration)> = self
            .states
            .iter()
            .zip(ends.chain([plan.length()]))
            .map(|((from, damage), to)| (route(damage), to.saturating_sub(*from)))
            .collect();
        spans.sort_unstable();
        let mut passed = Duration::ZERO;
        let half = plan.length().checked_div(2).unwrap_or_default();
        let at_half = spans.iter().find(|(_, span)| {
            passed = passed.saturating_add(*span);
            passed >= half
        });
        at_half
            .or_else(|| spans.last())
            .map_or(Duration::ZERO, |(route, _)| *route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Gap;
    use crate::message::Status;
    use crate::plan::{NodeRole, PlanOptions};

    fn plan() -> Plan {
        let options = PlanOptions::default();
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    /// Numbers of the entries, the relays between, and the exit.
    fn nodes(plan: &Plan) -> ([u8; 2], [u8; 2], u8) {
        let of = |node_role| plan.hosts_with_role(node_role).collect::<Vec<_>>();
        let pair = |node_role| <[u8; 2]>::try_from(of(node_role)).unwrap();
        (
            pair(NodeRole::Entry),
            pair(NodeRole::Relay),
            of(NodeRole::Exit)[0],
        )
    }

    /// Players by entry; those listed play through it.
    fn observed(entries: &[(u8, &[u16])]) -> Observations {
        let mut observed = Observations::default();
        for (entry, players) in entries {
            for player in *players {
                observed.routes.insert(*player, Some(*entry));
                let status = Status {
                    player: *player,
                    is_entered: true,
                    ..Status::default()
                };
                observed.statuses.insert(*player, status);
            }
        }
        observed
    }

    #[test]
    fn a_fault_that_was_not_applied_is_a_failed_check() {
        let names = |count| {
            not_applied(count, "why")
                .map(|check| (check.ok, check.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(2), []);
        let second = (
            false,
            "players go on when the relay in use is killed".to_owned(),
        );
        assert_eq!(names(1), [second]);
        assert_eq!(names(0).len(), 2);
    }

    #[test]
    fn no_fault_is_applied_if_the_mesh_carries_no_flow() {
        let plan = plan();
        let ([one, _], [relay, _], exit) = nodes(&plan);
        let mut observed = observed(&[(one, &[0, 1])]);
        observed.paths.insert(one, vec![relay, exit]);
        assert!(carries_any_flow(&observed));
        assert!(link_to_degrade(&plan, &observed, Damage::default()).is_some());
        for status in observed.statuses.values_mut() {
            status.is_entered = false;
        }
        assert!(!carries_any_flow(&observed));
        assert!(link_to_degrade(&plan, &observed, Damage::default()).is_none());
        assert!(relay_to_kill(&plan, &observed, Damage::default()).is_none());
    }

    #[test]
    fn the_busiest_relay_is_killed_or_an_entry_if_there_is_none() {
        let plan = plan();
        let ([one, other], [first, second], exit) = nodes(&plan);
        let mut observed = observed(&[(one, &[0, 1, 2]), (other, &[3, 4])]);
        // The busiest entry needs no relay.
        observed.paths.insert(one, vec![exit]);
        observed.paths.insert(other, vec![second, exit]);
        let (victim, fault) = relay_to_kill(&plan, &observed, Damage::default()).unwrap();
        assert_eq!((victim, &*fault.players), (second, &[3, 4][..]));
        observed.paths.insert(one, vec![first, exit]);
        let (victim, fault) = relay_to_kill(&plan, &observed, Damage::default()).unwrap();
        assert_eq!((victim, &*fault.players), (first, &[0, 1, 2][..]));
        observed.paths = BTreeMap::from([(one, vec![exit]), (other, vec![exit])]);
        let (victim, fault) = relay_to_kill(&plan, &observed, Damage::default()).unwrap();
        assert_eq!((victim, &*fault.players), (one, &[0, 1, 2][..]));
        assert_eq!(plan.best_path(one, &fault.damage), None);
    }

    #[test]
    fn an_entry_that_was_hit_must_reroute_in_time() {
        let plan = plan();
        let ([one, _], [first, second], exit) = nodes(&plan);
        let mut observed = observed(&[(one, &[0])]);
        observed.paths.insert(one, vec![first, exit]);
        let (_, fault) = relay_to_kill(&plan, &observed, Damage::default()).unwrap();
        observed.faults.gaps.push(Gap {
            fault: 0,
            player: 0,
            silence_us: 300_000,
            lost_datagrams: 2,
        });
        let judged = |observed: &Observations| judge(&plan, (0, &fault), observed).1.ok;
        assert!(!judged(&observed), "it has said nothing");
        observed.faults.moves.push((0, one, vec![second, exit]));
        assert!(!judged(&observed), "before the fault");
        observed.faults.moves.push((1, one, vec![first, exit]));
        assert!(!judged(&observed), "the same");
        observed.faults.moves.push((2, one, vec![second, exit]));
        assert!(!judged(&observed), "after the next fault");
        observed.faults.moves.push((1, one, vec![second, exit]));
        assert!(judged(&observed));
        observed.faults.gaps[0].silence_us = GAP_MAX_US;
        assert!(!judged(&observed), "too long");
        observed.faults.gaps.clear();
        assert!(!judged(&observed), "a player has not told");
    }

    #[test]
    fn the_optimum_is_weighted_by_time() {
        let options = PlanOptions::default();
        let plan = Plan::new(options, "127.70.1".parse().unwrap());
        let whole = Damage::default();
        let carried = |seat: &Seat| plan.optimum(*seat, &whole) < plan.direct(*seat);
        let seat = plan.seats().find(carried).unwrap();
        let mut dead = Damage::default();
        for entry in plan.hosts_with_role(NodeRole::Entry) {
            dead.kill(entry);
        }
        let after = |seconds| {
            let mut history = History::new();
            assert_eq!(history.damage(), whole);
            history.push(Duration::from_secs(seconds), dead.clone());
            assert_eq!(history.damage(), dead);
            history.optimum(&plan, seat)
        };
        assert_eq!(after(16), plan.optimum(seat, &whole));
        assert_eq!(after(14), plan.direct(seat));
    }
}
