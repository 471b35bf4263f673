//! The checks at the end of a run.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use hub::log::FileSegments;
use hub::{LogId, Store, StoreConfig};
use wire::Seat;

use super::message::MAILS_AT_KILL_MIN;
use super::observations::Observations;
use super::plan::{Plan, RELAYS};
use super::report::{Mail, Report};
use super::role::Failure;
use crate::fault::History;
use crate::keyring;
use crate::message::Medians;
use crate::plan::Damage;
use crate::report::{PlayerTrips, millis};
use crate::role::players::routes::gain_min;

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
    let name = "all players have equal states after every tick";
    report.check(name, report.state_hashes_equal, found.join("; "));
    let left: Vec<String> = observed
        .left
        .iter()
        .map(|(seat, reason)| format!("{}: {reason}", observed.in_seat(*seat)))
        .collect();
    report.check_none("nobody drops out", &left, || {
        format!("{} players to the end", plan.options().players)
    });
}

/// Checks that each player plays in the match and the seat of its ticket and token.
pub(super) fn seats(plan: &Plan, observed: &Observations, report: &mut Report) {
    let players = usize::from(plan.options().players);
    let seated = observed.seated.values();
    let right = seated.filter(|(given, played)| given == played).count();
    let seated = observed.seated.iter();
    let (taken, all): (BTreeSet<u16>, Vec<String>) = seated
        .map(|(player, (_, played))| (played.seat, format!("{player} in {}", played.seat)))
        .unzip();
    report.check(
        "each player plays in the seat that the matchmaker gave it",
        right == players && taken.len() == players,
        format!("{right} of {players} do: {}", all.join(", ")),
    );
}

pub(super) fn joins(plan: &Plan, observed: &Observations, report: &mut Report) {
    report.joins_refused = observed.joins_refused.unwrap_or(0);
    let players = plan.options().players;
    let refused = observed.joins_refused;
    report.check(
        "everyone with a token gets in, and nobody else",
        observed.startup.joined == players && refused == Some(0),
        format!(
            "{} of {players} players in by all their sessions, {} attempts refused",
            observed.startup.joined,
            refused.map_or_else(|| "unknown".to_owned(), |count| count.to_string())
        ),
    );
}

/// Checks that all processes were alive at the start of the match.
pub(super) fn processes(report: &mut Report) {
    let least = usize::from(RELAYS).saturating_add(4);
    let found = report.processes;
    report.check(
        format!("at least {least} processes play together"),
        found >= least,
        format!("{found} descendants were alive at the match's start"),
    );
}

/// Checks that the hub's disk, read after its end, holds each count once.
pub(super) fn counts(plan: &Plan, directory: &Path, report: &mut Report) {
    let stored = stored_counts(&keyring::store_path(directory));
    let ticks = u64::from(plan.ticks());
    report.stats_events = *stored.as_ref().unwrap_or(&0);
    report.check(
        "every count is stored once, across the death of the hub",
        stored.as_ref().is_ok_and(|stored| *stored == ticks),
        match stored {
            Ok(stored) => format!("{stored} of {ticks} ticks on the hub's disk"),
            Err(error) => format!("the hub's folder cannot be read: {error}"),
        },
    );
}

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
    report.check(
        "every mail is delivered once, across the death of the hub",
        is_whole && in_flight_at_kill >= MAILS_AT_KILL_MIN,
        format!(
            "{sent} sent, {acknowledged} acknowledged, {delivered} delivered, {duplicates} twice, \
             {in_flight_at_kill} of at least {MAILS_AT_KILL_MIN} in flight at the kill"
        ),
    );
}

/// Checks the round trips of all players: the mesh gains what the map promises.
pub(crate) fn round_trips(plan: &Plan, observed: &Observations, report: &mut Report) {
    let [direct, accelerated, mesh] = observed.measured.unwrap_or_default();
    report.direct_rtt_ms = direct.into();
    report.accelerated_rtt_ms = accelerated.into();
    report.mesh_rtt_ms = mesh.into();
    let is_measured = direct.samples > 0 && accelerated.samples > 0;
    let is_any = plan.options().any_map;
    let part = direct.p50_us.saturating_mul(LEFT_MAX_OF_100) / 100;
    let gains = (!is_any).then(|| {
        let name = format!("accelerated p50 is at most {LEFT_MAX_OF_100} % of direct p50");
        (name, part, mesh.samples > 0)
    });
    let name = "accelerated p50 is at most direct p50 + 1 ms".to_owned();
    let is_no_worse = (name, direct.p50_us.saturating_add(NOISE_US), true);
    for (name, most, is_carried) in gains.into_iter().chain([is_no_worse]) {
        report.check(
            name,
            is_measured && is_carried && accelerated.p50_us <= most,
            format!(
                "{:.1} ms accelerated, {:.1} ms direct, of {} and {} round trips; {:.1} ms through \
                 the mesh alone",
                millis(accelerated.p50_us),
                millis(direct.p50_us),
                accelerated.samples,
                direct.samples,
                millis(mesh.p50_us),
            ),
        );
    }
    if is_any {
        return;
    }
    let assigned: Vec<String> = plan
        .seats()
        .filter_map(|player| wrong_assignment(plan, observed, player))
        .collect();
    let name = "each player is assigned the best route of the map";
    report.check_none(name, &assigned, || {
        let through = observed.routes.values().flatten().count();
        format!("{through} of {} through the mesh", observed.routes.len())
    });
}

/// Returns what is wrong with the route that a player was assigned before the match.
fn wrong_assignment(plan: &Plan, observed: &Observations, player: Seat) -> Option<String> {
    let Some(entry) = observed.routes.get(&player.0) else {
        return Some(format!("player {player} was assigned none"));
    };
    let whole = Damage::default();
    let route = match entry {
        Some(entry) => {
            let path = plan.best_path(*entry, &whole)?;
            plan.over(player, *entry, &path, &whole)
        }
        None => plan.direct(player),
    };
    let best = plan.optimum(player, &whole);
    (route > best.saturating_add(tolerance(best))).then(|| {
        format!(
            "player {player} was assigned a route of {:.1} ms, the best has {:.1} ms",
            millis(micros(route)),
            millis(micros(best))
        )
    })
}

/// Checks round trips by player: the mesh finds the best route, and a player that is fastest
/// directly plays directly.
pub(crate) fn player_round_trips(
    plan: &Plan,
    history: &History,
    observed: &Observations,
    report: &mut Report,
) {
    let mut optima = Vec::new();
    let (mut slower, mut longer) = (Vec::new(), Vec::new());
    for medians in &observed.medians {
        let seat = Seat(medians.player);
        let optimum_us = micros(history.optimum(plan, seat));
        optima.push(optimum_us);
        report.players_rtt_ms.push(trips(plan, medians, optimum_us));
        let change = gain_min(Duration::from_micros(medians.direct_us));
        let change_us = micros(change).saturating_add(NOISE_US);
        if medians.played_us > medians.direct_us.saturating_add(change_us) {
            slower.push(format!(
                "player {} has {:.1} ms and would have {:.1} ms",
                medians.player,
                millis(medians.played_us),
                millis(medians.direct_us)
            ));
        }
        let entry = observed.routes.get(&medians.player).copied().flatten();
        if let Some(entry) = entry.filter(|_| medians.is_mesh) {
            let best = history.best_over(plan, seat, entry);
            if medians.accelerated_us > micros(best.saturating_add(tolerance(best))) {
                longer.push(format!(
                    "player {} has {:.1} ms through the mesh, where {:.1} ms are possible",
                    medians.player,
                    millis(medians.accelerated_us),
                    millis(micros(best))
                ));
            }
        }
    }
    optima.sort_unstable();
    let middle = |at: usize| optima.get(at).copied().unwrap_or(0);
    let (lower, upper) = (optima.len().saturating_sub(1) / 2, optima.len() / 2);
    report.optimum_rtt_ms = millis(u64::midpoint(middle(lower), middle(upper)));
    let is_measured = observed.medians.len() == usize::from(plan.options().players);
    let best = format!(
        "{} players; the best of all routes has a p50 of {:.1} ms",
        observed.medians.len(),
        report.optimum_rtt_ms
    );
    let slower = (
        "nobody is slower than directly by more than what changes sides",
        slower,
    );
    let longer = ("the mesh takes the best of its routes", longer);
    let longer = (!plan.options().any_map).then_some(longer);
    for (name, found) in [slower].into_iter().chain(longer) {
        let detail = if found.is_empty() {
            best.clone()
        } else {
            found.join("; ")
        };
        report.check(name, is_measured && found.is_empty(), detail);
    }
}

fn trips(plan: &Plan, medians: &Medians, optimum_us: u64) -> PlayerTrips {
    let seat = Seat(medians.player);
    let accelerated = millis(medians.accelerated_us);
    PlayerTrips {
        player: medians.player,
        city: plan.city(plan.player(seat)).unwrap_or("?").to_owned(),
        direct: millis(medians.direct_us),
        accelerated,
        mesh: medians.is_mesh.then_some(accelerated),
        played: millis(medians.played_us),
        optimum: millis(optimum_us),
    }
}

/// How much longer than the best a measured route may be: the hysteresis of nodes, and scheduling
/// noise.
fn tolerance(best: Duration) -> Duration {
    SLACK_MIN.max(best.checked_div(10).unwrap_or_default())
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Most of the direct round trip that may be left, in hundredths.
/// [`GAIN_MIN_OF_100`](crate::plan::scenario::GAIN_MIN_OF_100) of maps is 3 more: the hysteresis of
/// nodes, and scheduling noise.
const LEFT_MAX_OF_100: u64 = 85;
const NOISE_US: u64 = 1_000;
const SLACK_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
