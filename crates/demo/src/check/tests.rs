use super::*;
use crate::plan::PlanOptions;

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
