//! Waiting for a better match.

use std::time::Duration;

use matchmaker_core::matching::{Dwell, Found, WaitingTickets};
use wire::{Instant, Seed};

use super::population::random_party;
use super::{POINT, find_all, solo, two_teams, widening};

/// Median wait in milliseconds and median spread in points at a price of waiting.
fn run(price: u32, per_second: u64) -> (u64, u32) {
    let dwell = Dwell {
        price,
        max: Duration::from_secs(30),
    };
    let rules = two_teams(5).with_window(widening()).with_dwell(dwell);
    let mut waiting = WaitingTickets::new(rules);
    let mut generator = Seed([11; 32]).generator(0);
    let (mut waits, mut spreads, mut ticket) = (Vec::new(), Vec::new(), 0);
    for step in 0..600 {
        let now = Instant::from_millis(step * 100);
        for _ in 0..per_second / 10 {
            ticket += 1;
            let party = random_party(&mut generator, ticket, now);
            waiting.insert(now, party).unwrap();
        }
        for found in find_all(&mut waiting, now) {
            spreads.push(found.quality.spread / POINT);
            waits.extend(
                found
                    .parties
                    .iter()
                    .map(|(party, _)| now.as_millis() - party.since.as_millis()),
            );
        }
    }
    waits.sort_unstable();
    spreads.sort_unstable();
    (waits[waits.len() / 2], spreads[spreads.len() / 2])
}

#[test]
fn a_lower_price_of_waiting_gives_longer_waits_and_closer_ratings() {
    let figures: Vec<_> = [u32::MAX, 20 * POINT, 5 * POINT, POINT]
        .map(|price| run(price, 200))
        .to_vec();
    for pair in figures.windows(2) {
        assert!(
            pair[0].0 <= pair[1].0 && pair[0].1 >= pair[1].1,
            "{figures:?}"
        );
    }
    let (first, last) = (figures[0], figures[3]);
    assert!(last.1 * 2 < first.1, "{figures:?}");
}

#[test]
fn a_possible_match_never_waits_longer_than_the_dwell() {
    let dwell = Dwell {
        price: 0,
        max: Duration::from_secs(4),
    };
    let mut waiting = WaitingTickets::new(two_teams(1).with_dwell(dwell));
    waiting.insert(Instant::ZERO, solo(1, 1_000)).unwrap();
    waiting.insert(Instant::ZERO, solo(2, 1_040)).unwrap();
    let Found::Nothing(Some(mut now)) = waiting.find(Instant::ZERO, &mut 1_000) else {
        panic!("it waits");
    };
    while let Found::Nothing(next) = waiting.find(now, &mut 1_000) {
        now = next.unwrap();
    }
    assert_eq!(now, Instant::from_millis(4_000));
}

#[test]
fn without_arrivals_a_match_is_made_at_once() {
    let dwell = Dwell {
        price: POINT,
        max: Duration::from_secs(30),
    };
    let mut waiting = WaitingTickets::new(two_teams(1).with_dwell(dwell));
    waiting.insert(Instant::ZERO, solo(1, 1_000)).unwrap();
    waiting.insert(Instant::ZERO, solo(2, 1_001)).unwrap();
    // The rate of arrivals that these two make is forgotten.
    let found = find_all(&mut waiting, Instant::from_millis(10_000));
    assert_eq!(found.len(), 1);
}
