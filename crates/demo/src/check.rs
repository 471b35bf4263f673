//! The checks at the end of a run.

pub(super) mod trips;

use std::collections::BTreeSet;
use std::path::Path;

use hub::log::FileSegments;
use hub::{LogId, Store, StoreConfig};

use super::message::{MAILS_AT_KILL_MIN, Place};
use super::observations::Observations;
use super::plan::{Plan, RELAYS};
use super::report::{Check, Mail, Report};
use super::role::Failure;
use crate::keyring;

/// Checks that all players had equal states at every tick.
pub(super) fn states(plan: &Plan, observed: &Observations, report: &mut Report) {
    report.ticks = observed.ticks_by_all(plan);
    let is_complete = report.ticks == plan.ticks();
    report.state_hashes_equal =
        is_complete && observed.desyncs.is_empty() && observed.first_difference().is_none();
    let mut found = vec![format!("{} of {} ticks on all", report.ticks, plan.ticks())];
    for (tick, seats) in &observed.desyncs {
        let names: Vec<String> = seats.iter().map(|seat| observed.in_seat(*seat)).collect();
        found.push(format!(
            "{} differs from tick {tick} on",
            names.join(" and ")
        ));
    }
    if observed.desyncs.is_empty()
        && let Some(ticks) = observed.first_difference()
    {
        found.push(format!("some state before tick {ticks} differs"));
    }
    report.checks.push(Check {
        name: "all players have equal states after every tick".to_owned(),
        ok: report.state_hashes_equal,
        detail: found.join("; "),
    });
    let left: Vec<String> = observed
        .left
        .iter()
        .map(|(seat, reason)| format!("{}: {reason}", observed.in_seat(*seat)))
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

/// Checks that each player plays in the match and the seat of its ticket and token.
pub(super) fn seats(plan: &Plan, observed: &Observations, report: &mut Report) {
    let players = usize::from(plan.options().players);
    let is_right = |(given, played): &(Place, Place)| given == played;
    let right = observed
        .seated
        .values()
        .filter(|seats| is_right(seats))
        .count();
    let taken: BTreeSet<u16> = observed
        .seated
        .values()
        .map(|(_, played)| played.seat)
        .collect();
    let all: Vec<String> = observed
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

/// Checks the rejected joins.
pub(super) fn joins(plan: &Plan, observed: &Observations, report: &mut Report) {
    report.joins_refused = observed.joins_refused.unwrap_or(0);
    let players = plan.options().players;
    report.checks.push(Check {
        name: "everyone with a token gets in, and nobody else".to_owned(),
        ok: observed.joined == players && observed.joins_refused == Some(0),
        detail: format!(
            "{} of {players} players in by all their sessions, {} attempts refused",
            observed.joined,
            observed
                .joins_refused
                .map_or_else(|| "unknown".to_owned(), |count| count.to_string())
        ),
    });
}

/// Checks that all processes were alive at the start of the match.
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

/// Checks that the hub's disk, read after its end, holds each count once.
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

/// Sums all counts in the folder of a hub that has ended.
fn stored_counts(folder: &Path) -> Result<u64, Failure> {
    // Opens the log without starting a new segment.
    let files = FileSegments::open(folder)?;
    let store = Store::open(files, StoreConfig::default(), LogId(0))?;
    Ok(store.totals().map(|(_, total)| total).sum())
}

/// Checks that each mail is delivered once although the hub was killed.
pub(super) fn mail(observed: &Observations, report: &mut Report) {
    report.mail = observed.mail;
    let Mail {
        sent,
        acknowledged,
        delivered,
        duplicates,
        in_flight_at_kill,
    } = observed.mail;
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
