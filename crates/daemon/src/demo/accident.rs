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
        *counts.entry(*relay).or_default() += 1;
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
            let later = ledger
                .moves
                .iter()
                .filter(|(after, of, path)| *after == number + 1 && of == entry && path != old);
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
        *counts.entry(entry).or_default() += 1;
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

/// A player that hears nothing for so long is not going on.
const GAP_MAX_US: u64 = 2_000_000;
