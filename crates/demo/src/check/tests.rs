use super::*;
use crate::message::Place;
use crate::message::Quantiles;
use crate::plan::{NodeRole, PlanOptions};

fn plan(seed: u64, players: u16) -> Plan {
    let options = PlanOptions {
        seed,
        players,
        ..PlanOptions::default()
    };
    Plan::new(options, "127.70.1".parse().unwrap())
}

#[test]
fn each_player_must_play_in_its_assigned_seat() {
    let plan = plan(1, 2);
    let place = |seat| Place {
        match_id: "m".to_owned(),
        seat,
    };
    let is_ok = |seated: &[(u16, Place, Place)]| {
        let mut observed = Observations::default();
        for (player, given, played) in seated {
            let places = (given.clone(), played.clone());
            observed.seated.insert(*player, places);
        }
        let mut report = Report::default();
        seats(&plan, &observed, &mut report);
        report.checks[0].ok
    };
    let other = Place {
        match_id: "n".to_owned(),
        seat: 1,
    };
    assert!(is_ok(&[(0, place(1), place(1)), (1, place(0), place(0))]));
    assert!(!is_ok(&[(0, place(1), place(1))]), "one is missing");
    assert!(!is_ok(&[(0, place(1), place(0)), (1, place(0), place(1))]));
    assert!(!is_ok(&[(0, place(1), place(1)), (1, place(1), place(1))]));
    assert!(!is_ok(&[(0, place(1), other), (1, place(0), place(0))]));
}

#[test]
fn the_mail_check_needs_64_mails_in_flight() {
    let is_ok = |mail: Mail| {
        let observed = Observations {
            mail,
            ..Observations::default()
        };
        let mut report = Report::default();
        super::mail(&observed, &mut report);
        assert_eq!(report.mail, mail);
        report.checks[0].ok
    };
    let whole = Mail {
        sent: 200,
        acknowledged: 200,
        delivered: 200,
        duplicates: 0,
        in_flight_at_kill: 64,
    };
    assert!(is_ok(whole));
    assert!(!is_ok(Mail {
        in_flight_at_kill: 63,
        ..whole
    }));
    assert!(!is_ok(Mail {
        delivered: 199,
        ..whole
    }));
    assert!(!is_ok(Mail {
        duplicates: 1,
        ..whole
    }));
}

fn small_plan() -> Plan {
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
        let best = plan.hosts_with_role(NodeRole::Entry).filter_map(over).min();
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
    verdicts_on(&small_plan(), observed)
}

fn verdicts_on(plan: &Plan, observed: &Observations) -> Vec<bool> {
    let mut report = Report::default();
    round_trips(plan, observed, &mut report);
    player_round_trips(plan, &History::new(), observed, &mut report);
    report.checks.iter().map(|check| check.ok).collect()
}

#[test]
fn the_mesh_must_gain_15_of_100() {
    let mut observed = assigned(&small_plan());
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
fn the_mesh_must_not_be_worse_on_any_map() {
    let mut options = *small_plan().options();
    options.any_map = true;
    let plan = Plan::new(options, small_plan().block());
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
    let plan = small_plan();
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
    let mut observed = assigned(&small_plan());
    assert_eq!(verdicts(&observed)[3..], [true, true]);
    let slow = observed.medians.iter_mut().find(|medians| medians.is_mesh);
    slow.unwrap().accelerated_us += 100_000;
    assert_eq!(verdicts(&observed)[3..], [true, false]);
    let mut observed = assigned(&small_plan());
    observed.medians[0].played_us = observed.medians[0].direct_us * 2;
    assert_eq!(verdicts(&observed)[3..], [false, true]);
}
