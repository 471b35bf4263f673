//! What is done to the network while the match runs, and to whom.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::Ledger;
use super::plan::errand::most;
use super::plan::{Damage, Duty, Plan};
use super::report::{Cause, Check, Reroute, millis};
use super::wan;

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accident {
    pub(super) cause: Cause,
    /// Players whose datagrams passed there.
    pub(super) players: Vec<u16>,
    /// Entries whose way passed there, and what it was.
    pub(super) paths: BTreeMap<u8, Vec<u8>>,
    /// What it was done to, in words.
    pub(super) place: String,
    /// What is left of the network.
    pub(super) damage: Damage,
}

/// The link to make worse: the first one behind the entry that most players use.
pub(super) fn link_to_degrade(
    plan: &Plan,
    ledger: &Ledger,
    mut damage: Damage,
) -> Option<(u8, u8, Accident)> {
    let entry = busiest_entry(ledger)?;
    let path = ledger.paths.get(&entry)?;
    let next = *path.first()?;
    let delay = Duration::from_millis(wan::Accident::DEGRADED.delay_ms);
    damage.degrade((entry, next), delay);
    let accident = Accident {
        cause: Cause::Degraded,
        players: players_of(ledger, &[entry]),
        paths: BTreeMap::from([(entry, path.clone())]),
        place: format!(
            "the link from {} to {}",
            place(plan, entry),
            place(plan, next)
        ),
        damage,
    };
    Some((entry, next, accident))
}

/// The node to kill: of those between entries and the exit, the one that carries most players.
///
/// An entry carries as many as any node behind it, but has no other to take its place: it is
/// killed only where nothing stands between it and the exit.
pub(super) fn relay_to_kill(
    plan: &Plan,
    ledger: &Ledger,
    mut damage: Damage,
) -> Option<(u8, Accident)> {
    let mut counts = BTreeMap::<u8, usize>::new();
    let paths = entered(ledger).filter_map(|(_, entry)| ledger.paths.get(&entry));
    for relay in paths
        .flatten()
        .filter(|node| plan.duty(**node) == Duty::Relay)
    {
        let count = counts.entry(*relay).or_default();
        *count = count.saturating_add(1);
    }
    let victim = most(&counts).or_else(|| busiest_entry(ledger))?;
    damage.kill(victim);
    let paths: BTreeMap<u8, Vec<u8>> = ledger
        .paths
        .iter()
        .filter(|(entry, path)| {
            plan.duty(**entry) == Duty::Entry && (**entry == victim || path.contains(&victim))
        })
        .map(|(entry, path)| (*entry, path.clone()))
        .collect();
    let entries: Vec<u8> = paths.keys().copied().collect();
    let accident = Accident {
        cause: Cause::Killed,
        players: players_of(ledger, &entries),
        paths,
        place: format!("the relay in {}", place(plan, victim)),
        damage,
    };
    Some((victim, accident))
}

/// Judges one accident: each entry whose way was hit has found another one before the next
/// accident. An entry that was killed itself has none; its players must have left it.
pub(super) fn judge(
    plan: &Plan,
    (number, accident): (u8, &Accident),
    ledger: &Ledger,
) -> (Reroute, Check) {
    let of_this = ledger
        .gaps
        .iter()
        .filter(|gap| gap.accident == number && accident.players.contains(&gap.player));
    let (mut gap_us, mut lost_datagrams, mut told) = (0, 0_u32, 0_usize);
    for gap in of_this {
        gap_us = gap_us.max(gap.silence_us);
        lost_datagrams = lost_datagrams.saturating_add(gap.lost_datagrams);
        told = told.saturating_add(1);
    }
    let moves: Vec<(u8, Option<&Vec<u8>>)> = accident
        .paths
        .iter()
        .map(|(entry, old)| {
            let later = ledger.moves.iter().filter(|(after, of, path)| {
                after.checked_sub(1) == Some(number) && of == entry && path != old
            });
            (*entry, later.map(|(_, _, path)| path).next())
        })
        .collect();
    let is_aside = |entry: u8| {
        let is_dead = plan.best_path(entry, &accident.damage).is_none();
        is_dead && players_of(ledger, &[entry]).is_empty()
    };
    let has_moved = moves
        .iter()
        .all(|(entry, path)| path.is_some() || is_aside(*entry));
    let is_carried = !accident.players.is_empty();
    let is_heard = gap_us < GAP_MAX_US && told == accident.players.len();
    let ways: Vec<String> = moves
        .iter()
        .map(|(entry, path)| match path {
            Some(path) => format!("now {}", route(plan, *entry, path)),
            None if is_aside(*entry) => {
                format!("{} is left for the direct way", place(plan, *entry))
            }
            None => format!("{} has found no other", place(plan, *entry)),
        })
        .collect();
    let verb = match accident.cause {
        Cause::Degraded => "degraded",
        Cause::Killed => "killed",
    };
    let check = Check {
        name: format!("players go on when {} is {verb}", accident.place),
        ok: is_carried && has_moved && is_heard,
        detail: format!(
            "{} players, {:.0} ms without a datagram, {lost_datagrams} datagrams lost, {}",
            accident.players.len(),
            millis(gap_us),
            ways.join(", ")
        ),
    };
    let reroute = Reroute {
        cause: accident.cause,
        gap_ms: millis(gap_us),
        lost_datagrams,
    };
    (reroute, check)
}

/// The checks of planned accidents that were not done, for want of somebody to hit or of time:
/// `count` of them were. A run that shows less than it shall is no good run.
pub(super) fn undone(count: usize, why: &str) -> impl Iterator<Item = Check> {
    PLANNED.iter().skip(count).map(move |name| Check {
        name: format!("players go on when {name}"),
        ok: false,
        detail: why.to_owned(),
    })
}

/// Names the cities that a player's datagrams pass.
pub(super) fn route(plan: &Plan, entry: u8, path: &[u8]) -> String {
    let nodes = [entry].into_iter().chain(path.iter().copied());
    let names: Vec<&str> = nodes.map(|node| place(plan, node)).collect();
    names.join(" > ")
}

fn place(plan: &Plan, node: u8) -> &'static str {
    plan.city(plan.relay(node).ip()).unwrap_or("nowhere")
}

/// The entry that most players use.
fn busiest_entry(ledger: &Ledger) -> Option<u8> {
    let mut counts = BTreeMap::<u8, usize>::new();
    for (_, entry) in entered(ledger) {
        let count = counts.entry(entry).or_default();
        *count = count.saturating_add(1);
    }
    most(&counts)
}

/// Returns whether any player plays through the mesh now.
pub(super) fn is_anyone_carried(ledger: &Ledger) -> bool {
    entered(ledger).next().is_some()
}

fn players_of(ledger: &Ledger, entries: &[u8]) -> Vec<u16> {
    let of_these = entered(ledger).filter(|(_, entry)| entries.contains(entry));
    of_these.map(|(player, _)| player).collect()
}

/// The players that play through the mesh now, and where they enter it.
fn entered(ledger: &Ledger) -> impl Iterator<Item = (u16, u8)> {
    let ways = ledger.ways.iter();
    ways.filter_map(|(player, entry)| {
        let is_entered = ledger.statuses.get(player)?.is_entered;
        Some((*player, (*entry)?)).filter(|_| is_entered)
    })
}

/// What is done, in order.
pub(super) const PLANNED: [&str; 2] = ["the link in use is degraded", "the relay in use is killed"];

/// A player that hears nothing for so long is not going on.
const GAP_MAX_US: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Gap;
    use crate::message::Status;
    use crate::plan::PlanOptions;

    fn plan() -> Plan {
        let options = PlanOptions::default();
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    /// Numbers of entries, relays between, and the exit.
    fn nodes(plan: &Plan) -> ([u8; 2], [u8; 2], u8) {
        let of = |duty| plan.on_duty(duty).collect::<Vec<_>>();
        let pair = |duty| <[u8; 2]>::try_from(of(duty)).unwrap();
        (pair(Duty::Entry), pair(Duty::Relay), of(Duty::Exit)[0])
    }

    /// Players by entry: those that are listed play through it.
    fn ledger(entries: &[(u8, &[u16])]) -> Ledger {
        let mut ledger = Ledger::default();
        for (entry, players) in entries {
            for player in *players {
                ledger.ways.insert(*player, Some(*entry));
                let status = Status {
                    player: *player,
                    is_entered: true,
                    ..Status::default()
                };
                ledger.statuses.insert(*player, status);
            }
        }
        ledger
    }

    #[test]
    fn an_accident_that_was_not_done_is_a_check_that_fails() {
        let names = |count| {
            undone(count, "why")
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
    fn nothing_is_done_to_a_mesh_that_carries_nobody() {
        let plan = plan();
        let ([one, _], [relay, _], exit) = nodes(&plan);
        let mut ledger = ledger(&[(one, &[0, 1])]);
        ledger.paths.insert(one, vec![relay, exit]);
        assert!(is_anyone_carried(&ledger));
        assert!(link_to_degrade(&plan, &ledger, Damage::default()).is_some());
        for status in ledger.statuses.values_mut() {
            status.is_entered = false;
        }
        assert!(!is_anyone_carried(&ledger));
        assert!(link_to_degrade(&plan, &ledger, Damage::default()).is_none());
        assert!(relay_to_kill(&plan, &ledger, Damage::default()).is_none());
    }

    #[test]
    fn the_relay_that_carries_most_is_killed_and_an_entry_only_where_there_is_none() {
        let plan = plan();
        let ([one, other], [first, second], exit) = nodes(&plan);
        let mut ledger = ledger(&[(one, &[0, 1, 2]), (other, &[3, 4])]);
        // The busiest entry needs no relay.
        ledger.paths.insert(one, vec![exit]);
        ledger.paths.insert(other, vec![second, exit]);
        let (victim, accident) = relay_to_kill(&plan, &ledger, Damage::default()).unwrap();
        assert_eq!((victim, &*accident.players), (second, &[3, 4][..]));
        ledger.paths.insert(one, vec![first, exit]);
        let (victim, accident) = relay_to_kill(&plan, &ledger, Damage::default()).unwrap();
        assert_eq!((victim, &*accident.players), (first, &[0, 1, 2][..]));
        ledger.paths = BTreeMap::from([(one, vec![exit]), (other, vec![exit])]);
        let (victim, accident) = relay_to_kill(&plan, &ledger, Damage::default()).unwrap();
        assert_eq!((victim, &*accident.players), (one, &[0, 1, 2][..]));
        assert_eq!(plan.best_path(one, &accident.damage), None);
    }

    #[test]
    fn an_entry_that_was_hit_must_find_another_path_in_time() {
        let plan = plan();
        let ([one, _], [first, second], exit) = nodes(&plan);
        let mut ledger = ledger(&[(one, &[0])]);
        ledger.paths.insert(one, vec![first, exit]);
        let (_, accident) = relay_to_kill(&plan, &ledger, Damage::default()).unwrap();
        ledger.gaps.push(Gap {
            accident: 0,
            player: 0,
            silence_us: 300_000,
            lost_datagrams: 2,
        });
        let judged = |ledger: &Ledger| judge(&plan, (0, &accident), ledger).1.ok;
        assert!(!judged(&ledger), "it has said nothing");
        ledger.moves.push((0, one, vec![second, exit]));
        assert!(!judged(&ledger), "before the accident");
        ledger.moves.push((1, one, vec![first, exit]));
        assert!(!judged(&ledger), "the same");
        ledger.moves.push((2, one, vec![second, exit]));
        assert!(!judged(&ledger), "after the next accident");
        ledger.moves.push((1, one, vec![second, exit]));
        assert!(judged(&ledger));
        ledger.gaps[0].silence_us = GAP_MAX_US;
        assert!(!judged(&ledger), "too long");
        ledger.gaps.clear();
        assert!(!judged(&ledger), "a player has not told");
    }
}
