//! What must hold at the end of a run.

pub(super) mod trips;

use std::collections::BTreeSet;
use std::path::Path;

use hub::id::LogId;
use hub::log::FileSegments;
use hub::{Store, StoreConfig};

use super::ledger::Ledger;
use super::message::{MAILS_AT_KILL_MIN, Place};
use super::plan::{Plan, RELAYS};
use super::report::{Check, Mail, Report};
use super::role::Failure;
use crate::keyring;

/// Judges the match: all states equal on all players, for every tick.
pub(super) fn states(plan: &Plan, ledger: &Ledger, report: &mut Report) {
    report.ticks = ledger.ticks_by_all(plan);
    let is_complete = report.ticks == plan.ticks();
    report.state_hashes_equal =
        is_complete && ledger.desyncs.is_empty() && ledger.first_difference().is_none();
    let mut found = vec![format!("{} of {} ticks on all", report.ticks, plan.ticks())];
    for (tick, seats) in &ledger.desyncs {
        let names: Vec<String> = seats.iter().map(|seat| ledger.in_seat(*seat)).collect();
        found.push(format!(
            "{} differs from tick {tick} on",
            names.join(" and ")
        ));
    }
    if ledger.desyncs.is_empty()
        && let Some(ticks) = ledger.first_difference()
    {
        found.push(format!("some state before tick {ticks} differs"));
    }
    report.checks.push(Check {
        name: "all players have equal states after every tick".to_owned(),
        ok: report.state_hashes_equal,
        detail: found.join("; "),
    });
    let left: Vec<String> = ledger
        .left
        .iter()
        .map(|(seat, reason)| format!("{}: {reason}", ledger.in_seat(*seat)))
        .collect();
    report.checks.push(Check {
        name: "nobody drops out".to_owned(),
        ok: left.is_empty(),
        detail: if left.is_empty() {
            format!("{} players to the end", plan.options().players)
        } else {
            left.join("; ")
        },
    });
}

/// Judges seats: each player plays in the match, and in the seat, that its ticket and token are for.
pub(super) fn seats(plan: &Plan, ledger: &Ledger, report: &mut Report) {
    let players = usize::from(plan.options().players);
    let is_right = |(given, played): &(Place, Place)| given == played;
    let right = ledger
        .seated
        .values()
        .filter(|seats| is_right(seats))
        .count();
    let taken: BTreeSet<u16> = ledger
        .seated
        .values()
        .map(|(_, played)| played.seat)
        .collect();
    let all: Vec<String> = ledger
        .seated
        .iter()
        .map(|(player, (_, played))| format!("{player} in {}", played.seat))
        .collect();
    report.checks.push(Check {
        name: "each player plays in the seat that the matchmaker gave it".to_owned(),
        ok: right == players && taken.len() == players,
        detail: format!("{right} of {players} do: {}", all.join(", ")),
    });
}

/// Judges who was let in.
pub(super) fn joins(plan: &Plan, ledger: &Ledger, report: &mut Report) {
    report.joins_refused = ledger.joins_refused.unwrap_or(0);
    let players = plan.options().players;
    report.checks.push(Check {
        name: "everyone with a token gets in, and nobody else".to_owned(),
        ok: ledger.joined == players && ledger.joins_refused == Some(0),
        detail: format!(
            "{} of {players} players in by all their sessions, {} attempts refused",
            ledger.joined,
            ledger
                .joins_refused
                .map_or_else(|| "unknown".to_owned(), |count| count.to_string())
        ),
    });
}

/// Judges what was alive when the match began: hub, matchmaker, its game server, players, mesh.
pub(super) fn processes(report: &mut Report) {
    let least = usize::from(RELAYS).saturating_add(4);
    report.checks.push(Check {
        name: format!("at least {least} processes play together"),
        ok: report.processes >= least,
        detail: format!(
            "{} descendants were alive at the match's start",
            report.processes
        ),
    });
}

/// Judges counts: the hub's disk, which is read after its end, holds each once.
pub(super) fn counts(plan: &Plan, directory: &Path, report: &mut Report) {
    let stored = stored_counts(&keyring::store_path(directory));
    let ticks = u64::from(plan.ticks());
    report.stats_events = *stored.as_ref().unwrap_or(&0);
    report.checks.push(Check {
        name: "every count is stored once, across the death of the hub".to_owned(),
        ok: stored.as_ref().is_ok_and(|stored| *stored == ticks),
        detail: match stored {
            Ok(stored) => format!("{stored} of {ticks} ticks on the hub's disk"),
            Err(error) => format!("the hub's folder cannot be read: {error}"),
        },
    });
}

/// Adds up all counts in the folder of a hub that has ended.
fn stored_counts(folder: &Path) -> Result<u64, Failure> {
    // There is a log, and no new one is begun.
    let files = FileSegments::open(folder)?;
    let store = Store::open(files, StoreConfig::default(), LogId(0))?;
    Ok(store.totals().map(|(_, total)| total).sum())
}

/// Judges mail: each is delivered once, across the death of the hub.
pub(super) fn mail(ledger: &Ledger, report: &mut Report) {
    report.mail = ledger.mail;
    let Mail {
        sent,
        acknowledged,
        delivered,
        duplicates,
        in_flight_at_kill,
    } = ledger.mail;
    let is_whole = sent == acknowledged && acknowledged == delivered && duplicates == 0;
    report.checks.push(Check {
        name: "every mail is delivered once, across the death of the hub".to_owned(),
        ok: is_whole && in_flight_at_kill >= MAILS_AT_KILL_MIN,
        detail: format!(
            "{sent} sent, {acknowledged} acknowledged, {delivered} delivered, {duplicates} twice, \
             {in_flight_at_kill} of at least {MAILS_AT_KILL_MIN} in flight at the kill"
        ),
    });
}

#[cfg(test)]
mod tests;
