//! A steady stream of parties.

use std::collections::BTreeSet;

use matchmaker_core::matching::{Curve, FoundMatch, Party, Rating, WaitingTickets};
use wire::{Generator, Instant, Seed};

use super::{check, find_all, party, tickets, two_teams, widening};

/// Ratings around 1,500, parties of 1 to 5, and one to three of eight regions.
pub(super) fn random_party(generator: &mut Generator, ticket: u64, since: Instant) -> Party {
    let draw = |generator: &mut Generator, end: u64| generator.next_u64() % end;
    // The sum of twelve uniform numbers has the deviation 1.
    let sum: u64 = (0..12).map(|_| draw(generator, 1_000)).sum();
    let rating = 1_500 + (i32::try_from(sum).unwrap() - 6_000) * 350 / 1_000;
    let size = match draw(generator, 100) {
        0..60 => 1,
        60..80 => 2,
        80..90 => 3,
        90..95 => 4,
        _ => 5,
    };
    let mut trips = [Party::NO_REGION; 8];
    let home = usize::try_from(draw(generator, 8)).unwrap();
    for step in 0..=usize::try_from(draw(generator, 3)).unwrap() {
        trips[(home + step) % 8] = u16::try_from(20 + 40 * step).unwrap();
    }
    let ratings: Vec<_> = (0..size)
        .map(|_| rating + i32::try_from(draw(generator, 60)).unwrap() - 30)
        .collect();
    party(ticket, &ratings, &trips, since)
}

/// Feeds `per_second` tickets a second for `seconds`, with a search every 100 ms.
fn run(seed: u8, per_second: u64, seconds: u64) -> (Vec<(Instant, FoundMatch)>, WaitingTickets) {
    let mut generator = Seed([seed; 32]).generator(0);
    let mut waiting = WaitingTickets::new(two_teams(5).with_window(widening()));
    let mut found = Vec::new();
    let mut ticket = 0;
    for step in 0..seconds * 10 {
        let now = Instant::from_millis(step * 100);
        for _ in 0..per_second / 10 {
            ticket += 1;
            let party = random_party(&mut generator, ticket, now);
            waiting.insert(now, party).unwrap();
        }
        found.extend(
            find_all(&mut waiting, now)
                .into_iter()
                .map(|one| (now, one)),
        );
    }
    (found, waiting)
}

#[test]
fn mm_2_every_match_of_a_population_is_mutual() {
    let (window, cap) = (widening(), Curve::constant(u32::MAX));
    let rules = two_teams(5);
    let (found, waiting) = run(1, 200, 60);
    let mut seen = BTreeSet::new();
    for (now, one) in &found {
        check(&rules, &window, &cap, one, *now);
        for ticket in tickets(one) {
            assert!(seen.insert(ticket), "ticket {ticket} is in two matches");
        }
    }
    assert_eq!(seen.len() + waiting.len(), 12_000);
    assert!(waiting.len() < 1_500, "{} wait", waiting.len());
}

#[test]
fn mm_3_nobody_waits_for_ever_while_others_of_the_same_kind_play() {
    let (found, waiting) = run(2, 100, 180);
    let longest = found.iter().map(|(_, one)| one.quality.waited_ms).max();
    assert!(longest.unwrap() < 150_000, "{longest:?}");
    drop(waiting);
}

#[test]
fn mm_8_the_same_tickets_make_the_same_matches() {
    let of = |seed| run(seed, 100, 20).0;
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn teams_are_closer_than_their_players() {
    let (found, _) = run(5, 200, 60);
    let median = |mut values: Vec<u32>| {
        values.sort_unstable();
        values[values.len() / 2]
    };
    let gaps = median(found.iter().map(|(_, one)| one.quality.team_gap).collect());
    let spreads = median(found.iter().map(|(_, one)| one.quality.spread).collect());
    assert!(gaps * 4 < spreads, "gap {gaps}, spread {spreads}");
    assert!(Rating(0).distance(Rating(-5)) == 5);
}
