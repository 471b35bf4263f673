use super::*;

const SEATS: [Seat; 3] = [Seat(0), Seat(1), Seat(2)];

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(3);
    for seat in SEATS {
        ledger.admit(seat);
    }
    ledger
}

fn insert(ledger: &mut Ledger, step: u32, hashes: [u32; 3]) {
    for (seat, hash) in SEATS.into_iter().zip(hashes) {
        assert!(ledger.insert(seat, step, hash));
    }
}

fn differs(step: u32, seats: &[Seat], verdict: Verdict) -> Compared {
    let seats = seats.to_vec();
    Compared::Differs(Divergence {
        step,
        seats,
        verdict,
    })
}

#[test]
fn waits_for_everybody_and_names_the_minority_once() {
    let mut ledger = ledger();
    assert!(ledger.insert(Seat(0), 0, 7));
    assert!(ledger.insert(Seat(2), 0, 7));
    assert_eq!(ledger.compare(10), None, "seat 1 has not said");
    assert!(ledger.insert(Seat(1), 0, 8));
    assert_eq!(
        ledger.compare(10),
        Some(differs(0, &[Seat(1)], Verdict::Minority))
    );
    insert_two(&mut ledger);
    let equal = Compared::Equal {
        reports: 2,
        missing: 0,
    };
    assert_eq!(ledger.compare(10), Some(equal), "seat 1 takes no part now");
    assert!(!ledger.insert(Seat(1), 2, 9));
}

fn insert_two(ledger: &mut Ledger) {
    assert!(ledger.insert(Seat(0), 1, 3));
    assert!(ledger.insert(Seat(2), 1, 3));
}

#[test]
fn without_a_majority_all_are_named() {
    let mut ledger = ledger();
    ledger.dismiss(Seat(2));
    assert!(ledger.insert(Seat(0), 0, 1));
    assert!(ledger.insert(Seat(1), 0, 2));
    let all = [Seat(0), Seat(1)];
    assert_eq!(
        ledger.compare(1),
        Some(differs(0, &all, Verdict::Undecided))
    );
}

#[test]
fn the_server_outvotes_everybody() {
    let mut ledger = ledger();
    assert!(ledger.insert_server(0, 5));
    insert(&mut ledger, 0, [4, 4, 5]);
    let named = [Seat(0), Seat(1)];
    assert_eq!(ledger.compare(1), Some(differs(0, &named, Verdict::Server)));
}

#[test]
fn the_first_word_counts() {
    let mut ledger = ledger();
    insert(&mut ledger, 0, [1, 1, 2]);
    assert!(ledger.insert(Seat(2), 0, 1));
    assert_eq!(
        ledger.compare(1),
        Some(differs(0, &[Seat(2)], Verdict::Minority))
    );
}

#[test]
fn a_silent_player_is_waited_for_no_longer_than_patience() {
    let mut ledger = ledger();
    assert!(ledger.insert(Seat(0), 0, 1));
    assert!(ledger.insert(Seat(1), 0, 1));
    assert_eq!(ledger.compare(PATIENCE), None);
    let late = Compared::Equal {
        reports: 2,
        missing: 1,
    };
    assert_eq!(ledger.compare(PATIENCE + 1), Some(late));
    assert!(ledger.insert(Seat(2), 0, 9), "too late to matter");
    assert_eq!(ledger.compare(PATIENCE + 1), None);
}

#[test]
fn a_hole_is_asked_for_once_a_round_trip() {
    let mut ledger = ledger();
    let now = Instant::from_millis(100);
    assert!(ledger.insert(Seat(0), 0, 1));
    assert_eq!(ledger.ask(now, Seat(0), 50), None, "nothing is missing");
    assert!(ledger.insert(Seat(0), 3, 1));
    assert_eq!(ledger.ask(now, Seat(0), 1_000), Some(1));
    let soon = Instant::from_nanos(now.as_nanos() + 999);
    assert_eq!(ledger.ask(soon, Seat(0), 1_000), None);
    let later = Instant::from_nanos(now.as_nanos() + 1_000);
    assert_eq!(ledger.ask(later, Seat(0), 1_000), Some(1));
    assert!(ledger.insert(Seat(0), 1, 1));
    assert_eq!(ledger.ask(later, Seat(0), 1_000), Some(2), "the next hole");
    assert!(ledger.insert(Seat(0), 2, 1));
    assert_eq!(ledger.ask(later, Seat(0), 0), None);
}

#[test]
fn steps_past_the_ring_are_refused() {
    let mut ledger = ledger();
    assert!(!ledger.insert(Seat(0), STEPS, 1));
    assert!(ledger.insert(Seat(0), STEPS - 1, 1));
    assert!(
        !ledger.insert(Seat(3), 0, 1),
        "no such seat: the server's place"
    );
    assert!(!ledger.insert(Seat(4), 0, 1));
}
