//! What round trips must be: measured by the players' packets, judged by the map.

use std::time::Duration;

use wire::Seat;

use crate::history::History;
use crate::ledger::Ledger;
use crate::message::Medians;
use crate::plan::{Damage, Plan};
use crate::report::{Check, PlayerTrips, Report, millis};
use crate::role::players::ways::gain_min;

/// Judges the round trips of all: the mesh gives what the map promises.
pub(crate) fn all(plan: &Plan, ledger: &Ledger, report: &mut Report) {
    let [direct, accelerated, mesh] = ledger.measured.unwrap_or_default();
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
    let told: Vec<String> = plan
        .seats()
        .filter_map(|player| told_wrong(plan, ledger, player))
        .collect();
    report.checks.push(Check {
        name: "each player is told the best way of the map".to_owned(),
        ok: told.is_empty(),
        detail: if told.is_empty() {
            let through = ledger.ways.values().flatten().count();
            format!("{through} of {} through the mesh", ledger.ways.len())
        } else {
            told.join("; ")
        },
    });
}

/// Says what is wrong with the way that a player was told before the match.
fn told_wrong(plan: &Plan, ledger: &Ledger, player: Seat) -> Option<String> {
    let Some(entry) = ledger.ways.get(&player.0) else {
        return Some(format!("player {player} was told none"));
    };
    let whole = Damage::default();
    let way = match entry {
        Some(entry) => {
            let path = plan.best_path(*entry, &whole)?;
            plan.over(player, *entry, &path, &whole)
        }
        None => plan.direct(player),
    };
    let best = plan.optimum(player, &whole);
    (way > best.saturating_add(slack(best))).then(|| {
        format!(
            "player {player} was told a way of {:.1} ms, the best has {:.1} ms",
            millis(micros(way)),
            millis(micros(best))
        )
    })
}

/// Judges round trips player by player: the mesh finds the best of its ways, and whoever is served
/// best directly plays directly.
pub(crate) fn each(plan: &Plan, history: &History, ledger: &Ledger, report: &mut Report) {
    let mut optima = Vec::new();
    let (mut slower, mut longer) = (Vec::new(), Vec::new());
    for medians in &ledger.medians {
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
        let entry = ledger.ways.get(&medians.player).copied().flatten();
        if let Some(entry) = entry.filter(|_| medians.is_mesh) {
            let best = history.best_over(plan, seat, entry);
            if medians.accelerated_us > micros(best.saturating_add(slack(best))) {
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
    let is_measured = ledger.medians.len() == usize::from(plan.options().players);
    let best = format!(
        "{} players; the best of all ways has a p50 of {:.1} ms",
        ledger.medians.len(),
        report.optimum_rtt_ms
    );
    let slower = (
        "nobody is slower than directly by more than what changes sides",
        slower,
    );
    let longer = ("the mesh takes the best of its ways", longer);
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

/// By how much a measured way may be longer than the best: what nodes save before they change ways,
/// and what a machine that runs all of this adds.
fn slack(best: Duration) -> Duration {
    SLACK_MIN.max(best.checked_div(10).unwrap_or_default())
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What the mesh may leave of the direct round trip, in hundredths. Maps promise 3 less, as
/// [`GAIN_MIN_OF_100`](crate::plan::errand::GAIN_MIN_OF_100) says: what nodes save before they
/// change ways, and what a machine that runs all of this adds.
const LEFT_MAX_OF_100: u64 = 85;
/// What the machine may add.
const NOISE_US: u64 = 1_000;
const SLACK_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Quantiles;
    use crate::plan::{Duty, PlanOptions};

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

    /// What each player is told where all measure what the map has.
    fn told(plan: &Plan) -> Ledger {
        let mut ledger = Ledger::default();
        let whole = Damage::default();
        for player in plan.seats() {
            let over = |entry| {
                let path = plan.best_path(entry, &whole)?;
                Some((plan.over(player, entry, &path, &whole), entry))
            };
            let best = plan.on_duty(Duty::Entry).filter_map(over).min();
            let entry = best.filter(|(way, _)| *way < plan.direct(player));
            ledger.ways.insert(player.0, entry.map(|(_, entry)| entry));
            let accelerated_us = micros(plan.optimum(player, &whole));
            ledger.medians.push(Medians {
                player: player.0,
                is_mesh: entry.is_some(),
                direct_us: micros(plan.direct(player)),
                accelerated_us,
                played_us: accelerated_us,
            });
        }
        ledger
    }

    fn verdicts(ledger: &Ledger) -> Vec<bool> {
        verdicts_on(&plan(), ledger)
    }

    fn verdicts_on(plan: &Plan, ledger: &Ledger) -> Vec<bool> {
        let mut report = Report::default();
        all(plan, ledger, &mut report);
        each(plan, &History::new(), ledger, &mut report);
        report.checks.iter().map(|check| check.ok).collect()
    }

    #[test]
    fn the_mesh_must_gain_15_of_100() {
        let mut ledger = told(&plan());
        let mut judged = |direct, accelerated, mesh| {
            ledger.measured = Some([direct, accelerated, mesh].map(quantiles));
            verdicts(&ledger)
        };
        assert_eq!(judged(200_000, 170_000, 150_000), [true; 5]);
        assert_eq!(judged(200_000, 170_001, 150_000)[..2], [false, true]);
        assert!(judged(200_000, 201_000, 150_000)[1]);
        assert!(!judged(200_000, 201_001, 150_000)[1]);
        ledger.measured = None;
        assert_eq!(verdicts(&ledger)[..2], [false; 2], "nothing was measured");
    }

    #[test]
    fn on_any_map_the_mesh_must_make_it_no_worse() {
        let mut options = *plan().options();
        options.any_map = true;
        let plan = Plan::new(options, plan().block());
        assert!(!plan.has_errand(), "the first map that is drawn");
        assert_eq!(plan.check_errand(), Ok(()));
        let mut ledger = told(&plan);
        ledger.measured = Some([200_000, 201_000, 0].map(quantiles));
        assert_eq!(verdicts_on(&plan, &ledger), [true; 2]);
        ledger.measured = Some([200_000, 201_001, 0].map(quantiles));
        assert_eq!(verdicts_on(&plan, &ledger), [false, true]);
        ledger.medians[0].played_us = ledger.medians[0].direct_us * 2;
        assert_eq!(verdicts_on(&plan, &ledger), [false, false]);
    }

    #[test]
    fn a_player_that_is_told_a_longer_way_than_the_best_is_found() {
        let plan = plan();
        let mut ledger = told(&plan);
        assert!(verdicts(&ledger)[2]);
        let gainer = plan.seats().find(|player| {
            let best = plan.optimum(*player, &Damage::default());
            best + slack(best) < plan.direct(*player)
        });
        ledger.ways.insert(gainer.unwrap().0, None);
        assert!(!verdicts(&ledger)[2]);
        ledger = told(&plan);
        ledger.ways.remove(&0);
        assert!(!verdicts(&ledger)[2]);
    }

    #[test]
    fn a_mesh_that_is_slow_is_found_although_nobody_plays_by_it() {
        let mut ledger = told(&plan());
        assert_eq!(verdicts(&ledger)[3..], [true, true]);
        let slow = ledger.medians.iter_mut().find(|medians| medians.is_mesh);
        slow.unwrap().accelerated_us += 100_000;
        assert_eq!(verdicts(&ledger)[3..], [true, false]);
        let mut ledger = told(&plan());
        ledger.medians[0].played_us = ledger.medians[0].direct_us * 2;
        assert_eq!(verdicts(&ledger)[3..], [false, true]);
    }
}
