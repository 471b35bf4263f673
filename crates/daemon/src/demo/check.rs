//! What must hold at the end of a run.

use std::path::Path;

use hub::id::LogId;
use hub::log::FileSegments;
use hub::{Store, StoreConfig};

use wire::Seat;

use super::history::History;
use super::ledger::Ledger;
use super::plan::{Plan, RELAYS};
use super::report::{Check, Mail, PlayerTrips, Report, millis};
use super::role::Failure;
use crate::keyring;

/// Judges the match: all states equal on all players, for every tick.
pub(super) fn states(plan: &Plan, ledger: &Ledger, report: &mut Report) {
    report.ticks = ledger.ticks_by_all(plan);
    let is_complete = report.ticks == plan.ticks();
    report.state_hashes_equal =
        is_complete && ledger.desyncs.is_empty() && ledger.first_difference().is_none();
    let mut found = vec![format!("{} of {} ticks on all", report.ticks, plan.ticks())];
    for (tick, players) in &ledger.desyncs {
        let names: Vec<String> = players
            .iter()
            .map(|player| format!("player {player}"))
            .collect();
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
        .map(|(player, reason)| format!("player {player}: {reason}"))
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

/// Judges round trips: the mesh is never slower than going directly.
pub(super) fn round_trips(ledger: &Ledger, report: &mut Report) {
    let (direct, accelerated) = ledger.measured.unwrap_or_default();
    report.direct_rtt_ms = direct.into();
    report.accelerated_rtt_ms = accelerated.into();
    let is_measured = direct.samples > 0 && accelerated.samples > 0;
    let limit_us = direct.p50_us.saturating_add(RTT_SLACK_US);
    report.checks.push(Check {
        name: "accelerated p50 is at most direct p50 + 1 ms".to_owned(),
        ok: is_measured && accelerated.p50_us <= limit_us,
        detail: format!(
            "{:.1} ms accelerated, {:.1} ms direct, of {} and {} round trips",
            millis(accelerated.p50_us),
            millis(direct.p50_us),
            accelerated.samples,
            direct.samples
        ),
    });
}

/// Judges round trips player by player: whoever is served best directly goes directly.
pub(super) fn each_round_trip(
    plan: &Plan,
    history: &History,
    ledger: &Ledger,
    report: &mut Report,
) {
    let mut optima = Vec::new();
    let mut slower = Vec::new();
    for medians in &ledger.medians {
        let seat = Seat(medians.player);
        let optimum = history.optimum(plan, seat);
        let optimum_us = u64::try_from(optimum.as_micros()).unwrap_or(u64::MAX);
        optima.push(optimum_us);
        report.players_rtt_ms.push(PlayerTrips {
            player: medians.player,
            city: plan.city(plan.player(seat)).unwrap_or("?").to_owned(),
            direct: millis(medians.direct_us),
            accelerated: millis(medians.accelerated_us),
            optimum: millis(optimum_us),
        });
        let slack = GAIN_MIN_US.max(medians.direct_us / GAIN_MIN_SHARE) + RTT_SLACK_US;
        if medians.accelerated_us > medians.direct_us.saturating_add(slack) {
            slower.push(format!(
                "player {} has {:.1} ms and would have {:.1} ms",
                medians.player,
                millis(medians.accelerated_us),
                millis(medians.direct_us)
            ));
        }
    }
    optima.sort_unstable();
    let middle = |at: usize| optima.get(at).copied().unwrap_or(0);
    let (lower, upper) = (optima.len().saturating_sub(1) / 2, optima.len() / 2);
    report.optimum_rtt_ms = millis(u64::midpoint(middle(lower), middle(upper)));
    let is_measured = ledger.medians.len() == usize::from(plan.options().players);
    report.checks.push(Check {
        name: "nobody is slower than directly by more than what changes sides".to_owned(),
        ok: is_measured && slower.is_empty(),
        detail: if slower.is_empty() {
            format!(
                "{} players; the best of all ways has a p50 of {:.1} ms",
                ledger.medians.len(),
                report.optimum_rtt_ms
            )
        } else {
            slower.join("; ")
        },
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
    } = ledger.mail;
    let at_kill = ledger.mails_at_kill.unwrap_or(0);
    let is_whole = sent == acknowledged && acknowledged == delivered && duplicates == 0;
    report.checks.push(Check {
        name: "every mail is delivered once, across the death of the hub".to_owned(),
        ok: is_whole && sent > 0 && at_kill > 0,
        detail: format!(
            "{sent} sent, {acknowledged} acknowledged, {delivered} delivered, \
             {duplicates} twice, {at_kill} in flight at the kill"
        ),
    });
}

/// A player changes sides where the other one saves this, or a twentieth if that is more.
const GAIN_MIN_US: u64 = 3_000;
const GAIN_MIN_SHARE: u64 = 20;
/// What the mesh may cost where the direct way is the best.
const RTT_SLACK_US: u64 = 1_000;
