use super::*;

const SEATS: [Seat; 3] = [Seat(0), Seat(1), Seat(2)];

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(3, Haste::Early);
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

fn differs(step: u32, seats: &[Seat], verdict: Verdict) -> Finding {
    let seats = seats.to_vec();
    Finding::Differs(Divergence {
        step,
        seats,
        verdict,
    })
}

/// A step in which nothing differs.
const EQUAL: Settled = Settled { finding: None };

const fn found(finding: Finding) -> Settled {
    let finding = Some(finding);
    Settled { finding }
}

fn counts(compared: u64, missing: u64) -> Counts {
    Counts { compared, missing }
}

#[test]
fn waits_for_everybody_and_names_the_minority_once() {
    let mut ledger = ledger();
    assert!(ledger.insert(Seat(0), 0, 7));
    assert!(ledger.insert(Seat(2), 0, 7));
    assert_eq!(ledger.settle(10), None, "seat 1 has not said");
    assert!(ledger.insert(Seat(1), 0, 8));
    let difference = differs(0, &[Seat(1)], Verdict::Minority);
    assert_eq!(ledger.settle(10), Some(found(difference)));
    assert!(ledger.insert(Seat(0), 1, 3));
    assert!(ledger.insert(Seat(2), 1, 3));
    assert_eq!(ledger.settle(10), Some(EQUAL), "seat 1 takes no part now");
    assert_eq!(ledger.counts(), counts(5, 0));
    assert!(!ledger.insert(Seat(1), 2, 9));
}

#[test]
fn without_a_majority_all_are_named() {
    let mut ledger = ledger();
    ledger.dismiss(Seat(2));
    assert!(ledger.insert(Seat(0), 0, 1));
    assert!(ledger.insert(Seat(1), 0, 2));
    let difference = differs(0, &[Seat(0), Seat(1)], Verdict::Undecided);
    assert_eq!(ledger.settle(1), Some(found(difference)));
}

#[test]
fn the_server_outvotes_everybody_and_waits_for_nobody() {
    let mut ledger = ledger();
    insert(&mut ledger, 0, [4, 4, 5]);
    assert!(ledger.insert(Seat(0), 1, 1));
    assert!(ledger.insert_server(0, 5));
    assert!(ledger.insert_server(1, 6));
    let difference = differs(0, &[Seat(0), Seat(1)], Verdict::Server);
    assert_eq!(ledger.settle(2), Some(found(difference)));
    assert_eq!(ledger.settle(2), Some(EQUAL), "nobody has said yet");
    assert!(ledger.insert(Seat(2), 1, 7));
    let difference = differs(1, &[Seat(2)], Verdict::Server);
    assert_eq!(ledger.review(Seat(2)), Some(difference));
    assert_eq!(ledger.review(Seat(2)), None);
}

#[test]
fn what_the_server_leaves_out_is_left_to_the_players() {
    let mut ledger = ledger();
    assert!(ledger.insert_server(0, 5));
    assert!(ledger.insert_server(2, 5));
    insert(&mut ledger, 0, [5, 5, 5]);
    insert(&mut ledger, 1, [5, 5, 9]);
    insert(&mut ledger, 3, [5, 5, 5]);
    assert_eq!(ledger.settle(4), Some(EQUAL));
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(ledger.settle(4), Some(found(difference)));
    assert_eq!(ledger.settle(4), Some(EQUAL));
    assert_eq!(ledger.settle(4), None, "the server comes yet");
    (0..4).for_each(|_| ledger.expire());
    assert_eq!(ledger.settle(4), Some(EQUAL), "or does not");
}

#[test]
fn the_first_word_counts() {
    let mut ledger = ledger();
    insert(&mut ledger, 0, [1, 1, 2]);
    assert!(ledger.insert(Seat(2), 0, 1));
    let difference = differs(0, &[Seat(2)], Verdict::Minority);
    assert_eq!(ledger.settle(1), Some(found(difference)));
}

#[test]
fn a_silent_player_is_waited_for_once() {
    let mut ledger = ledger();
    for step in 0..4 {
        assert!(ledger.insert(Seat(0), step, 1));
        assert!(ledger.insert(Seat(1), step, 1));
    }
    assert_eq!(ledger.settle(4), None);
    ledger.expire();
    assert_eq!(ledger.settle(4), Some(EQUAL));
    assert_eq!(ledger.settle(4), None, "not found to be silent yet");
    let silent = Finding::Silent {
        seat: Seat(2),
        step: 0,
    };
    assert_eq!(ledger.review(Seat(2)), Some(silent));
    assert_eq!(ledger.review(Seat(2)), None);
    assert_eq!(ledger.settle(4), Some(EQUAL));
    assert_eq!(ledger.settle(4), Some(EQUAL));
    assert!(ledger.insert(Seat(2), 0, 9), "too late to matter");
    assert_eq!(ledger.review(Seat(2)), None);
    // What it says of a later step counts, and it is waited for again.
    assert!(ledger.insert(Seat(2), 1, 1));
    assert_eq!(ledger.review(Seat(2)), None);
    assert_eq!(ledger.settle(4), None);
    assert_eq!(ledger.counts(), counts(7, 1));
}

#[test]
fn a_late_word_is_judged_in_the_order_of_steps_and_has_a_vote() {
    let silent_until = |hashes: [u32; 3], late: u32| {
        let mut ledger = ledger();
        ledger.expire();
        for step in 0..3 {
            assert!(ledger.insert(Seat(0), step, hashes[0]));
            assert!(ledger.insert(Seat(1), step, hashes[1]));
        }
        assert_eq!(ledger.settle(3), Some(EQUAL));
        assert!(matches!(
            ledger.review(Seat(2)),
            Some(Finding::Silent { .. })
        ));
        while ledger.settle(3).is_some() {}
        assert!(ledger.insert(Seat(2), 2, late));
        if late == 5 {
            assert_eq!(ledger.review(Seat(2)), None, "step 1 is to come");
        }
        assert!(ledger.insert(Seat(2), 1, hashes[2]));
        ledger
    };
    let mut equal = silent_until([5, 5, 5], 5);
    assert_eq!(equal.review(Seat(2)), None);
    assert_eq!(equal.last_right(Seat(2)), Some(2));
    let mut later = silent_until([5, 5, 5], 6);
    let difference = differs(2, &[Seat(2)], Verdict::Minority);
    assert_eq!(later.review(Seat(2)), Some(difference));
    let mut sooner = silent_until([5, 5, 6], 6);
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(sooner.review(Seat(2)), Some(difference));
}

#[test]
fn of_two_one_of_whom_was_silent_neither_is_believed() {
    let mut ledger = ledger();
    ledger.dismiss(Seat(2));
    ledger.expire();
    for step in 0..2 {
        assert!(ledger.insert(Seat(0), step, 1));
    }
    assert_eq!(ledger.settle(2), Some(EQUAL));
    assert!(matches!(
        ledger.review(Seat(1)),
        Some(Finding::Silent { .. })
    ));
    assert_eq!(ledger.settle(2), Some(EQUAL));
    assert!(ledger.insert(Seat(1), 1, 2));
    let difference = differs(1, &[Seat(0), Seat(1)], Verdict::Undecided);
    assert_eq!(ledger.review(Seat(1)), Some(difference));
}

#[test]
fn steps_past_the_ring_are_refused() {
    let mut ledger = ledger();
    assert!(!ledger.insert(Seat(0), STEPS, 1));
    assert!(ledger.insert(Seat(0), STEPS - 1, 1));
    assert!(!ledger.insert_server(STEPS, 1));
    assert!(!ledger.insert(Seat(3), 0, 1), "no such seat");
}

#[test]
fn a_place_of_the_ring_is_used_again_for_another_step_only_when_it_is_empty() {
    let mut ledger = ledger();
    let silent = |finding| matches!(finding, Some(Finding::Silent { .. }));
    for step in 0..3 * STEPS {
        // A step is closed before anybody reports it.
        for _ in 0..2 {
            while let Some(settled) = ledger.settle(step + 1) {
                assert_eq!(settled, EQUAL);
            }
            assert!(ledger.insert(Seat(0), step, step));
            assert!(ledger.insert(Seat(1), step, step));
        }
        // Seat 2 says nothing for a ring and a half, and then what is true.
        if step < STEPS * 3 / 2 {
            assert!(!silent(ledger.review(Seat(2))) || step > SETTLED);
        } else {
            assert!(ledger.insert(Seat(2), step, step));
            assert!(!silent(ledger.review(Seat(2))), "told once");
        }
    }
    while ledger.settle(3 * STEPS).is_some() {}
    assert_eq!(ledger.review(Seat(2)), None);
    let all = u64::from(STEPS) * 3;
    let unsaid = u64::from(STEPS) * 3 / 2;
    assert_eq!(ledger.counts().compared, 2 * all + all - unsaid);
    assert_eq!(ledger.counts().missing, unsaid);
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

/// Settles all that can be settled, and returns what was found.
fn findings(ledger: &mut Ledger) -> Vec<Finding> {
    let mut found = Vec::new();
    while let Some(settled) = ledger.settle(100) {
        found.extend(settled.finding);
    }
    for seat in SEATS {
        found.extend(core::iter::from_fn(|| ledger.review(seat)));
    }
    found
}

#[test]
fn a_lost_hash_holds_no_divergence_back() {
    let mut ledger = ledger();
    insert(&mut ledger, 0, [1, 1, 1]);
    // What seat 0 said of step 1 is lost, and what seat 1 said of step 3.
    for (seat, hash) in [(1, 2), (2, 2)] {
        assert!(ledger.insert(Seat(seat), 1, hash));
    }
    insert(&mut ledger, 2, [3, 3, 3]);
    for (seat, hash) in [(0, 4), (2, 9)] {
        assert!(ledger.insert(Seat(seat), 3, hash));
    }
    assert_eq!(findings(&mut ledger), [], "nobody knows what seat 0 said");
    assert_eq!(ledger.ask(Instant::ZERO, Seat(0), 0), Some(1));
    insert(&mut ledger, 4, [5, 5, 8]);
    // One against one at step 3, and a third that might have been on either side.
    let difference = differs(4, &[Seat(2)], Verdict::Minority);
    assert_eq!(findings(&mut ledger), [difference]);
    assert!(ledger.is_sound(Seat(0)) && ledger.is_sound(Seat(1)));
    assert_eq!(ledger.last_right(Seat(0)), Some(4));
    assert_eq!(ledger.last_equal(Some(Seat(0)), Some(Seat(2)), 4), Some(2));
    // Those two go on, and are waited for as before.
    assert!(ledger.insert(Seat(0), 5, 6));
    assert!(ledger.insert(Seat(0), 6, 6));
    assert!(ledger.insert(Seat(1), 6, 6));
    assert_eq!(findings(&mut ledger), []);
    assert_eq!(ledger.ask(Instant::ZERO, Seat(1), 0), Some(5));
    assert!(ledger.insert(Seat(1), 5, 6));
    assert_eq!(findings(&mut ledger), []);
    assert_eq!(ledger.last_right(Seat(1)), Some(6));
}

#[test]
fn the_first_step_is_named_where_enough_said_it() {
    let mut ledger = ledger();
    // Nobody else said step 0 yet.
    assert!(ledger.insert(Seat(0), 0, 1));
    for step in [1, 2] {
        for (seat, hash) in [(0, 7), (1, 7), (2, 6)] {
            assert!(ledger.insert(Seat(seat), step, hash));
        }
    }
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(findings(&mut ledger), [difference]);
}

#[test]
fn a_player_whose_hash_was_lost_is_compared_with_the_server_at_once() {
    let mut ledger = ledger();
    for (step, hash) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
        assert!(ledger.insert_server(step, hash));
    }
    insert(&mut ledger, 0, [1, 1, 1]);
    assert_eq!(findings(&mut ledger), []);
    for (seat, step, hash) in [(0, 2, 3), (1, 2, 9), (1, 3, 9)] {
        assert!(ledger.insert(Seat(seat), step, hash));
    }
    let difference = differs(2, &[Seat(1)], Verdict::Server);
    assert_eq!(findings(&mut ledger), [difference]);
    assert_eq!(
        ledger.last_right(Seat(0)),
        Some(0),
        "its step 1 may come yet"
    );
    assert!(ledger.insert(Seat(0), 1, 2));
    assert_eq!(findings(&mut ledger), []);
    assert_eq!(ledger.last_right(Seat(0)), Some(2));
}

/// Five players, of whom two agree on what is wrong from step 1 on, and one who comes late; `heard` said
/// step 1.
fn two_liars(heard: &[u16]) -> Ledger {
    let mut ledger = Ledger::new(6, Haste::Early);
    let said = |seat: u16, step: u32| {
        if seat < 3 || step == 0 {
            step
        } else {
            90 + step
        }
    };
    (0..5).for_each(|seat| ledger.admit(Seat(seat)));
    ledger.admit_late(Seat(5), 0);
    for seat in 0..5 {
        assert!(ledger.insert(Seat(seat), 0, said(seat, 0)));
    }
    for seat in heard {
        assert!(ledger.insert(Seat(*seat), 1, said(*seat, 1)));
    }
    for seat in 0..5 {
        assert!(ledger.insert(Seat(seat), 2, said(seat, 2)));
    }
    let difference = differs(2, &[Seat(3), Seat(4)], Verdict::Minority);
    assert_eq!(findings(&mut ledger), [difference], "{heard:?}");
    ledger
}

#[test]
fn a_step_that_too_few_said_proves_nobody_wrong_who_comes_late() {
    for heard in [&[3, 4][..], &[0, 3, 4], &[3], &[0, 1, 3, 4]] {
        let mut ledger = two_liars(heard);
        for step in 0..3 {
            assert!(ledger.insert(Seat(5), step, step));
            assert_eq!(ledger.review(Seat(5)), None, "{heard:?} at {step}");
        }
        assert!((0..3).all(|seat| ledger.is_sound(Seat(seat))));
        assert_eq!(ledger.last_right(Seat(5)), Some(2));
    }
}

#[test]
fn what_nobody_else_said_proves_nobody_right() {
    let mut ledger = two_liars(&[3, 4]);
    assert!(ledger.insert(Seat(5), 0, 7) && ledger.insert(Seat(5), 1, 7));
    let difference = differs(0, &[Seat(5)], Verdict::Minority);
    assert_eq!(ledger.review(Seat(5)), Some(difference));
    let mut ledger = two_liars(&[3, 4]);
    ledger.admit_late(Seat(5), 1);
    assert!(ledger.insert(Seat(5), 1, 7));
    assert_eq!(ledger.review(Seat(5)), None);
    assert_eq!(ledger.last_right(Seat(5)), None);
}

#[test]
fn the_server_is_believed_also_where_a_later_step_differs() {
    let mut ledger = ledger();
    for (step, hash) in [(1, 2), (2, 3)] {
        assert!(ledger.insert_server(step, hash));
    }
    // The server left step 0 out, and what seat 0 said of all three is not there yet.
    for step in 0..3 {
        let wrong = if step == 0 { 1 } else { 9 };
        assert!(ledger.insert(Seat(1), step, step + 1));
        assert!(ledger.insert(Seat(2), step, wrong));
    }
    let difference = differs(1, &[Seat(2)], Verdict::Server);
    assert_eq!(findings(&mut ledger), [difference]);
    assert!(ledger.insert(Seat(0), 1, 2));
    assert_eq!(findings(&mut ledger), []);
    assert_eq!(ledger.last_right(Seat(0)), Some(1));
}
