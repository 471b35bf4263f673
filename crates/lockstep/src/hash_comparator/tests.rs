use super::*;

const SEATS: [Seat; 3] = [Seat(0), Seat(1), Seat(2)];

fn hash_comparator() -> HashComparator {
    let mut hash_comparator = HashComparator::new(3, SettlePolicy::Early);
    for seat in SEATS {
        hash_comparator.admit(seat);
    }
    hash_comparator
}

fn insert(hash_comparator: &mut HashComparator, step: u32, hashes: [u32; 3]) {
    for (seat, hash) in SEATS.into_iter().zip(hashes) {
        assert!(hash_comparator.insert(seat, step, hash));
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

/// A step without a difference.
const EQUAL: Settled = Settled { finding: None };

const fn found(finding: Finding) -> Settled {
    let finding = Some(finding);
    Settled { finding }
}

fn counts(compared: u64, missing: u64) -> Counts {
    Counts { compared, missing }
}

#[test]
fn waits_for_all_hashes_and_names_the_minority_once() {
    let mut hash_comparator = hash_comparator();
    assert!(hash_comparator.insert(Seat(0), 0, 7));
    assert!(hash_comparator.insert(Seat(2), 0, 7));
    assert_eq!(hash_comparator.settle(10), None, "seat 1 has not said");
    assert!(hash_comparator.insert(Seat(1), 0, 8));
    let difference = differs(0, &[Seat(1)], Verdict::Minority);
    assert_eq!(hash_comparator.settle(10), Some(found(difference)));
    assert!(hash_comparator.insert(Seat(0), 1, 3));
    assert!(hash_comparator.insert(Seat(2), 1, 3));
    assert_eq!(
        hash_comparator.settle(10),
        Some(EQUAL),
        "seat 1 takes no part now"
    );
    assert_eq!(hash_comparator.counts, counts(5, 0));
    assert!(!hash_comparator.insert(Seat(1), 2, 9));
}

#[test]
fn without_a_majority_all_are_named() {
    let mut hash_comparator = hash_comparator();
    hash_comparator.exclude(Seat(2));
    assert!(hash_comparator.insert(Seat(0), 0, 1));
    assert!(hash_comparator.insert(Seat(1), 0, 2));
    let difference = differs(0, &[Seat(0), Seat(1)], Verdict::Undecided);
    assert_eq!(hash_comparator.settle(1), Some(found(difference)));
}

#[test]
fn the_servers_hash_outvotes_all_and_waits_for_none() {
    let mut hash_comparator = hash_comparator();
    insert(&mut hash_comparator, 0, [4, 4, 5]);
    assert!(hash_comparator.insert(Seat(0), 1, 1));
    assert!(hash_comparator.insert_server(0, 5));
    assert!(hash_comparator.insert_server(1, 6));
    let difference = differs(0, &[Seat(0), Seat(1)], Verdict::Server);
    assert_eq!(hash_comparator.settle(2), Some(found(difference)));
    assert_eq!(
        hash_comparator.settle(2),
        Some(EQUAL),
        "nobody has said yet"
    );
    assert!(hash_comparator.insert(Seat(2), 1, 7));
    let difference = differs(1, &[Seat(2)], Verdict::Server);
    assert_eq!(hash_comparator.review(Seat(2)), Some(difference));
    assert_eq!(hash_comparator.review(Seat(2)), None);
}

#[test]
fn without_a_server_hash_the_majority_decides() {
    let mut hash_comparator = hash_comparator();
    assert!(hash_comparator.insert_server(0, 5));
    assert!(hash_comparator.insert_server(2, 5));
    insert(&mut hash_comparator, 0, [5, 5, 5]);
    insert(&mut hash_comparator, 1, [5, 5, 9]);
    insert(&mut hash_comparator, 3, [5, 5, 5]);
    assert_eq!(hash_comparator.settle(4), Some(EQUAL));
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(hash_comparator.settle(4), Some(found(difference)));
    assert_eq!(hash_comparator.settle(4), Some(EQUAL));
    assert_eq!(hash_comparator.settle(4), None, "the server comes yet");
    (0..4).for_each(|_| hash_comparator.expire());
    assert_eq!(hash_comparator.settle(4), Some(EQUAL), "or does not");
}

#[test]
fn the_first_vote_counts() {
    let mut hash_comparator = hash_comparator();
    insert(&mut hash_comparator, 0, [1, 1, 2]);
    assert!(hash_comparator.insert(Seat(2), 0, 1));
    let difference = differs(0, &[Seat(2)], Verdict::Minority);
    assert_eq!(hash_comparator.settle(1), Some(found(difference)));
}

#[test]
fn a_silent_player_is_waited_for_once() {
    let mut hash_comparator = hash_comparator();
    for step in 0..4 {
        assert!(hash_comparator.insert(Seat(0), step, 1));
        assert!(hash_comparator.insert(Seat(1), step, 1));
    }
    assert_eq!(hash_comparator.settle(4), None);
    hash_comparator.expire();
    assert_eq!(hash_comparator.settle(4), Some(EQUAL));
    assert_eq!(
        hash_comparator.settle(4),
        None,
        "not found to be silent yet"
    );
    let silent = Finding::Silent {
        seat: Seat(2),
        step: 0,
    };
    assert_eq!(hash_comparator.review(Seat(2)), Some(silent));
    assert_eq!(hash_comparator.review(Seat(2)), None);
    assert_eq!(hash_comparator.settle(4), Some(EQUAL));
    assert_eq!(hash_comparator.settle(4), Some(EQUAL));
    assert!(hash_comparator.insert(Seat(2), 0, 9), "too late to matter");
    assert_eq!(hash_comparator.review(Seat(2)), None);
    // Its hash of a later step counts, and it is awaited again.
    assert!(hash_comparator.insert(Seat(2), 1, 1));
    assert_eq!(hash_comparator.review(Seat(2)), None);
    assert_eq!(hash_comparator.settle(4), None);
    assert_eq!(hash_comparator.counts, counts(7, 1));
}

#[test]
fn a_late_vote_is_counted_in_the_order_of_steps() {
    let silent_until = |hashes: [u32; 3], late: u32| {
        let mut hash_comparator = hash_comparator();
        hash_comparator.expire();
        for step in 0..3 {
            assert!(hash_comparator.insert(Seat(0), step, hashes[0]));
            assert!(hash_comparator.insert(Seat(1), step, hashes[1]));
        }
        assert_eq!(hash_comparator.settle(3), Some(EQUAL));
        assert!(matches!(
            hash_comparator.review(Seat(2)),
            Some(Finding::Silent { .. })
        ));
        while hash_comparator.settle(3).is_some() {}
        assert!(hash_comparator.insert(Seat(2), 2, late));
        if late == 5 {
            assert_eq!(hash_comparator.review(Seat(2)), None, "step 1 is to come");
        }
        assert!(hash_comparator.insert(Seat(2), 1, hashes[2]));
        hash_comparator
    };
    let mut equal = silent_until([5, 5, 5], 5);
    assert_eq!(equal.review(Seat(2)), None);
    assert_eq!(equal.last_match(Seat(2)), Some(2));
    let mut later = silent_until([5, 5, 5], 6);
    let difference = differs(2, &[Seat(2)], Verdict::Minority);
    assert_eq!(later.review(Seat(2)), Some(difference));
    let mut sooner = silent_until([5, 5, 6], 6);
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(sooner.review(Seat(2)), Some(difference));
}

#[test]
fn with_one_player_silent_two_different_hashes_are_undecided() {
    let mut hash_comparator = hash_comparator();
    hash_comparator.exclude(Seat(2));
    hash_comparator.expire();
    for step in 0..2 {
        assert!(hash_comparator.insert(Seat(0), step, 1));
    }
    assert_eq!(hash_comparator.settle(2), Some(EQUAL));
    assert!(matches!(
        hash_comparator.review(Seat(1)),
        Some(Finding::Silent { .. })
    ));
    assert_eq!(hash_comparator.settle(2), Some(EQUAL));
    assert!(hash_comparator.insert(Seat(1), 1, 2));
    let difference = differs(1, &[Seat(0), Seat(1)], Verdict::Undecided);
    assert_eq!(hash_comparator.review(Seat(1)), Some(difference));
}

#[test]
fn steps_past_the_ring_are_refused() {
    let mut hash_comparator = hash_comparator();
    assert!(!hash_comparator.insert(Seat(0), STEPS, 1));
    assert!(hash_comparator.insert(Seat(0), STEPS - 1, 1));
    assert!(!hash_comparator.insert_server(STEPS, 1));
    assert!(!hash_comparator.insert(Seat(3), 0, 1), "no such seat");
}

#[test]
fn a_slot_of_the_ring_is_reused_for_another_step_only_when_empty() {
    let mut hash_comparator = hash_comparator();
    let silent = |finding| matches!(finding, Some(Finding::Silent { .. }));
    for step in 0..3 * STEPS {
        // A step closes before any hash of it is reported.
        for _ in 0..2 {
            while let Some(settled) = hash_comparator.settle(step + 1) {
                assert_eq!(settled, EQUAL);
            }
            assert!(hash_comparator.insert(Seat(0), step, step));
            assert!(hash_comparator.insert(Seat(1), step, step));
        }
        // Seat 2 reports nothing for 1.5 times the ring, and correct hashes after that.
        if step < STEPS * 3 / 2 {
            assert!(!silent(hash_comparator.review(Seat(2))) || step > SETTLED);
        } else {
            assert!(hash_comparator.insert(Seat(2), step, step));
            assert!(!silent(hash_comparator.review(Seat(2))), "told once");
        }
    }
    while hash_comparator.settle(3 * STEPS).is_some() {}
    assert_eq!(hash_comparator.review(Seat(2)), None);
    let all = u64::from(STEPS) * 3;
    let missing_hashes = u64::from(STEPS) * 3 / 2;
    assert_eq!(
        hash_comparator.counts.compared,
        2 * all + all - missing_hashes
    );
    assert_eq!(hash_comparator.counts.missing, missing_hashes);
}

#[test]
fn a_missing_hash_is_requested_once_a_round_trip() {
    let mut hash_comparator = hash_comparator();
    let now = Instant::from_millis(100);
    assert!(hash_comparator.insert(Seat(0), 0, 1));
    assert_eq!(
        hash_comparator.ask(now, Seat(0), 50),
        None,
        "nothing is missing"
    );
    assert!(hash_comparator.insert(Seat(0), 3, 1));
    assert_eq!(hash_comparator.ask(now, Seat(0), 1_000), Some(1));
    let soon = Instant::from_nanos(now.as_nanos() + 999);
    assert_eq!(hash_comparator.ask(soon, Seat(0), 1_000), None);
    let later = Instant::from_nanos(now.as_nanos() + 1_000);
    assert_eq!(hash_comparator.ask(later, Seat(0), 1_000), Some(1));
    assert!(hash_comparator.insert(Seat(0), 1, 1));
    assert_eq!(
        hash_comparator.ask(later, Seat(0), 1_000),
        Some(2),
        "the next hole"
    );
    assert!(hash_comparator.insert(Seat(0), 2, 1));
    assert_eq!(hash_comparator.ask(later, Seat(0), 0), None);
}

/// Settles all possible steps, and returns the findings.
fn findings(hash_comparator: &mut HashComparator) -> Vec<Finding> {
    let mut found = Vec::new();
    while let Some(settled) = hash_comparator.settle(100) {
        found.extend(settled.finding);
    }
    for seat in SEATS {
        found.extend(core::iter::from_fn(|| hash_comparator.review(seat)));
    }
    found
}

#[test]
fn a_lost_hash_delays_no_divergence_report() {
    let mut hash_comparator = hash_comparator();
    insert(&mut hash_comparator, 0, [1, 1, 1]);
    // Seat 0's hash of step 1 and seat 1's hash of step 3 are lost.
    for (seat, hash) in [(1, 2), (2, 2)] {
        assert!(hash_comparator.insert(Seat(seat), 1, hash));
    }
    insert(&mut hash_comparator, 2, [3, 3, 3]);
    for (seat, hash) in [(0, 4), (2, 9)] {
        assert!(hash_comparator.insert(Seat(seat), 3, hash));
    }
    assert_eq!(
        findings(&mut hash_comparator),
        [],
        "nobody knows what seat 0 said"
    );
    assert_eq!(hash_comparator.ask(Instant::ZERO, Seat(0), 0), Some(1));
    insert(&mut hash_comparator, 4, [5, 5, 8]);
    // At step 3 two hashes differ, and the third, which would decide, is missing.
    let difference = differs(4, &[Seat(2)], Verdict::Minority);
    assert_eq!(findings(&mut hash_comparator), [difference]);
    assert!(hash_comparator.is_compared(Seat(0)) && hash_comparator.is_compared(Seat(1)));
    assert_eq!(hash_comparator.last_match(Seat(0)), Some(4));
    assert_eq!(
        hash_comparator.last_equal(Some(Seat(0)), Some(Seat(2)), 4),
        Some(2)
    );
    // Seats 0 and 1 are compared and awaited as before.
    assert!(hash_comparator.insert(Seat(0), 5, 6));
    assert!(hash_comparator.insert(Seat(0), 6, 6));
    assert!(hash_comparator.insert(Seat(1), 6, 6));
    assert_eq!(findings(&mut hash_comparator), []);
    assert_eq!(hash_comparator.ask(Instant::ZERO, Seat(1), 0), Some(5));
    assert!(hash_comparator.insert(Seat(1), 5, 6));
    assert_eq!(findings(&mut hash_comparator), []);
    assert_eq!(hash_comparator.last_match(Seat(1)), Some(6));
}

#[test]
fn the_first_step_with_enough_votes_is_named() {
    let mut hash_comparator = hash_comparator();
    // No other seat reported step 0.
    assert!(hash_comparator.insert(Seat(0), 0, 1));
    for step in [1, 2] {
        for (seat, hash) in [(0, 7), (1, 7), (2, 6)] {
            assert!(hash_comparator.insert(Seat(seat), step, hash));
        }
    }
    let difference = differs(1, &[Seat(2)], Verdict::Minority);
    assert_eq!(findings(&mut hash_comparator), [difference]);
}

#[test]
fn a_player_with_a_lost_hash_is_compared_with_the_server_at_once() {
    let mut hash_comparator = hash_comparator();
    for (step, hash) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
        assert!(hash_comparator.insert_server(step, hash));
    }
    insert(&mut hash_comparator, 0, [1, 1, 1]);
    assert_eq!(findings(&mut hash_comparator), []);
    for (seat, step, hash) in [(0, 2, 3), (1, 2, 9), (1, 3, 9)] {
        assert!(hash_comparator.insert(Seat(seat), step, hash));
    }
    let difference = differs(2, &[Seat(1)], Verdict::Server);
    assert_eq!(findings(&mut hash_comparator), [difference]);
    assert_eq!(
        hash_comparator.last_match(Seat(0)),
        Some(0),
        "its step 1 may come yet"
    );
    assert!(hash_comparator.insert(Seat(0), 1, 2));
    assert_eq!(findings(&mut hash_comparator), []);
    assert_eq!(hash_comparator.last_match(Seat(0)), Some(2));
}

/// Five players: two report the same wrong hash from step 1 on, and one joins late. The seats in
/// `ready` reported step 1.
fn two_diverging(ready: &[u16]) -> HashComparator {
    let mut hash_comparator = HashComparator::new(6, SettlePolicy::Early);
    let reported = |seat: u16, step: u32| {
        if seat < 3 || step == 0 {
            step
        } else {
            90 + step
        }
    };
    (0..5).for_each(|seat| hash_comparator.admit(Seat(seat)));
    hash_comparator.admit_late(Seat(5), 0);
    for seat in 0..5 {
        assert!(hash_comparator.insert(Seat(seat), 0, reported(seat, 0)));
    }
    for seat in ready {
        assert!(hash_comparator.insert(Seat(*seat), 1, reported(*seat, 1)));
    }
    for seat in 0..5 {
        assert!(hash_comparator.insert(Seat(seat), 2, reported(seat, 2)));
    }
    let difference = differs(2, &[Seat(3), Seat(4)], Verdict::Minority);
    assert_eq!(findings(&mut hash_comparator), [difference], "{ready:?}");
    hash_comparator
}

#[test]
fn a_step_with_too_few_votes_names_no_late_player() {
    for ready in [&[3, 4][..], &[0, 3, 4], &[3], &[0, 1, 3, 4]] {
        let mut hash_comparator = two_diverging(ready);
        for step in 0..3 {
            assert!(hash_comparator.insert(Seat(5), step, step));
            assert_eq!(hash_comparator.review(Seat(5)), None, "{ready:?} at {step}");
        }
        assert!((0..3).all(|seat| hash_comparator.is_compared(Seat(seat))));
        assert_eq!(hash_comparator.last_match(Seat(5)), Some(2));
    }
}

#[test]
fn the_hash_of_a_single_player_is_no_reference() {
    let mut hash_comparator = two_diverging(&[3, 4]);
    assert!(hash_comparator.insert(Seat(5), 0, 7) && hash_comparator.insert(Seat(5), 1, 7));
    let difference = differs(0, &[Seat(5)], Verdict::Minority);
    assert_eq!(hash_comparator.review(Seat(5)), Some(difference));
    let mut hash_comparator = two_diverging(&[3, 4]);
    hash_comparator.admit_late(Seat(5), 1);
    assert!(hash_comparator.insert(Seat(5), 1, 7));
    assert_eq!(hash_comparator.review(Seat(5)), None);
    assert_eq!(hash_comparator.last_match(Seat(5)), None);
}

#[test]
fn the_servers_hash_decides_also_if_a_later_step_differs() {
    let mut hash_comparator = hash_comparator();
    for (step, hash) in [(1, 2), (2, 3)] {
        assert!(hash_comparator.insert_server(step, hash));
    }
    // The server reported no step 0, and seat 0's hashes are missing.
    for step in 0..3 {
        let wrong = if step == 0 { 1 } else { 9 };
        assert!(hash_comparator.insert(Seat(1), step, step + 1));
        assert!(hash_comparator.insert(Seat(2), step, wrong));
    }
    let difference = differs(1, &[Seat(2)], Verdict::Server);
    assert_eq!(findings(&mut hash_comparator), [difference]);
    assert!(hash_comparator.insert(Seat(0), 1, 2));
    assert_eq!(findings(&mut hash_comparator), []);
    assert_eq!(hash_comparator.last_match(Seat(0)), Some(1));
}
