//! Checks of round trips: measured by the players' packets, compared with the map.

use std::time::Duration;

use wire::Seat;

use crate::history::History;
use crate::message::Medians;
use crate::observations::Observations;
use crate::plan::{Damage, Plan};
use crate::report::{Check, PlayerTrips, Report, millis};
use crate::role::players::routes::gain_min;

/// Checks the round trips of all players: the mesh gains what the map promises.
pub(crate) fn all(plan: &Plan, observed: &Observations, report: &mut Report) {
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
        report.checks.push(Check {
            name,
            ok: is_measured && is_carried && accelerated.p50_us <= most,
            detail: format!(
                "{:.1} ms accelerated, {:.1} ms direct, of {} and {} round trips; {:.1} ms through \
                 the mesh alone",
                millis(accelerated.p50_us),
                millis(direct.p50_us),
                accelerated.samples,
                direct.samples,
                millis(mesh.p50_us),
            ),
        });
    }
    if is_any {
        return;
    }
    let assigned: Vec<String> = plan
        .seats()
        .filter_map(|player| wrong_assignment(plan, observed, player))
        .collect();
    report.checks.push(Check {
        name: "each player is assigned the best route of the map".to_owned(),
        ok: assigned.is_empty(),
        detail: if assigned.is_empty() {
            let through = observed.routes.values().flatten().count();
            format!("{through} of {} through the mesh", observed.routes.len())
        } else {
            assigned.join("; ")
        },
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
pub(crate) fn each(plan: &Plan, history: &History, observed: &Observations, report: &mut Report) {
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
        report.checks.push(Check {
            name: name.to_owned(),
            ok: is_measured && found.is_empty(),
            detail: if found.is_empty() {
                best.clone()
            } else {
                found.join("; ")
            },
        });
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
/// Scheduling noise.
const NOISE_US: u64 = 1_000;
const SLACK_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Quantiles;
    use crate::plan::{NodeRole, PlanOptions};

    fn plan() -> Plan {
        let options = PlanOptions::default();
        Plan::new(options, "127.70.1".parse().unwrap())
    }

    const fn quantiles(p50_us: u64) -> Quantiles {
        Quantiles {
            p50_us,
            p99_us: p50_us,
            samples: 100,
        }
    }

    /// The assignments of all players if they measure what the map has.
    fn assigned(plan: &Plan) -> Observations {
        let mut observed = Observations::default();
        let whole = Damage::default();
        for player in plan.seats() {
            let over = |entry| {
                let path = plan.best_path(entry, &whole)?;
                Some((plan.over(player, entry, &path, &whole), entry))
            };
            let best = plan.on_duty(NodeRole::Entry).filter_map(over).min();
            let entry = best.filter(|(route, _)| *route < plan.direct(player));
            observed
                .routes
                .insert(player.0, entry.map(|(_, entry)| entry));
            let accelerated_us = micros(plan.optimum(player, &whole));
            observed.medians.push(Medians {
                player: player.0,
                is_mesh: entry.is_some(),
                direct_us: micros(plan.direct(player)),
                accelerated_us,
                played_us: accelerated_us,
            });
        }
        observed
    }

    fn verdicts(observed: &Observations) -> Vec<bool> {
        verdicts_on(&plan(), observed)
    }

    fn verdicts_on(plan: &Plan, observed: &Observations) -> Vec<bool> {
        let mut report = Report::default();
        all(plan, observed, &mut report);
        each(plan, &History::new(), observed, &mut report);
        report.checks.iter().map(|check| check.ok).collect()
    }

    #[test]
    fn the_mesh_must_gain_15_of_100() {
        let mut observed = assigned(&plan());
        let mut judged = |direct, accelerated, mesh| {
            observed.measured = Some([direct, accelerated, mesh].map(quantiles));
            verdicts(&observed)
        };
        assert_eq!(judged(200_000, 170_000, 150_000), [true; 5]);
        assert_eq!(judged(200_000, 170_001, 150_000)[..2], [false, true]);
        assert!(judged(200_000, 201_000, 150_000)[1]);
        assert!(!judged(200_000, 201_001, 150_000)[1]);
        observed.measured = None;
        assert_eq!(verdicts(&observed)[..2], [false; 2], "nothing was measured");
    }

    #[test]
    fn on_any_map_the_mesh_must_do_no_harm() {
        let mut options = *plan().options();
        options.any_map = true;
        let plan = Plan::new(options, plan().block());
        assert!(!plan.has_scenario(), "the first map that is drawn");
        assert_eq!(plan.check_scenario(), Ok(()));
        let mut observed = assigned(&plan);
        observed.measured = Some([200_000, 201_000, 0].map(quantiles));
        assert_eq!(verdicts_on(&plan, &observed), [true; 2]);
        observed.measured = Some([200_000, 201_001, 0].map(quantiles));
        assert_eq!(verdicts_on(&plan, &observed), [false, true]);
        observed.medians[0].played_us = observed.medians[0].direct_us * 2;
        assert_eq!(verdicts_on(&plan, &observed), [false, false]);
    }

    #[test]
    fn a_player_assigned_a_longer_route_is_found() {
        let plan = plan();
        let mut observed = assigned(&plan);
        assert!(verdicts(&observed)[2]);
        let gainer = plan.seats().find(|player| {
            let best = plan.optimum(*player, &Damage::default());
            best + tolerance(best) < plan.direct(*player)
        });
        observed.routes.insert(gainer.unwrap().0, None);
        assert!(!verdicts(&observed)[2]);
        observed = assigned(&plan);
        observed.routes.remove(&0);
        assert!(!verdicts(&observed)[2]);
    }

    #[test]
    fn a_slow_mesh_is_found_although_no_player_uses_it() {
        let mut observed = assigned(&plan());
        assert_eq!(verdicts(&observed)[3..], [true, true]);
        let slow = observed.medians.iter_mut().find(|medians| medians.is_mesh);
        slow.unwrap().accelerated_us += 100_000;
        assert_eq!(verdicts(&observed)[3..], [true, false]);
        let mut observed = assigned(&plan());
        observed.medians[0].played_us = observed.medians[0].direct_us * 2;
        assert_eq!(verdicts(&observed)[3..], [false, true]);
    }
}
