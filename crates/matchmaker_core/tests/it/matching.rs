//! Matching by rating, region and conditions.

mod conditions;
mod dwell;
mod population;
mod work;

use std::time::Duration;

use matchmaker_core::TicketId;
use matchmaker_core::matching::{
    Curve, Found, FoundMatch, MatchRules, Party, PartyPlayer, Rating, TeamRule, WaitingTickets,
};
use wire::{ClientId, Instant};

/// Hundredths of a point.
const POINT: u32 = 100;

/// Two teams of `players`.
fn two_teams(players: u8) -> MatchRules {
    let team = TeamRule {
        min: players,
        max: players,
    };
    MatchRules::new(vec![team; 2]).unwrap()
}

/// A window of 50 points that widens by 10 points a second to 500.
fn widening() -> Curve {
    Curve::new(&[
        (Duration::ZERO, 50 * POINT),
        (Duration::from_secs(45), 500 * POINT),
    ])
    .unwrap()
}

/// A party with one player for each of `ratings`, in points.
fn party(ticket: u64, ratings: &[i32], round_trips: &[u16], since: Instant) -> Party {
    let players = (0_u64..).zip(ratings).map(|(index, rating)| PartyPlayer {
        client_id: ClientId(ticket * 100 + index),
        rating: Rating(rating * 100),
    });
    let round_trips = round_trips.to_vec();
    Party::new(TicketId(ticket), players.collect(), round_trips, since)
}

fn solo(ticket: u64, rating: i32) -> Party {
    party(ticket, &[rating], &[20], Instant::ZERO)
}

/// Every match that can be made now.
fn find_all(waiting: &mut WaitingTickets, now: Instant) -> Vec<FoundMatch> {
    let mut found = Vec::new();
    loop {
        match waiting.find(now, &mut 100_000) {
            Found::Match(one) => found.push(one),
            Found::Paused => {}
            Found::Nothing(_) => return found,
        }
    }
}

fn tickets(found: &FoundMatch) -> Vec<u64> {
    let mut tickets: Vec<_> = found.tickets().map(|ticket| ticket.0).collect();
    tickets.sort_unstable();
    tickets
}

/// Checks what every match guarantees.
fn check(rules: &MatchRules, window: &Curve, cap: &Curve, found: &FoundMatch, now: Instant) {
    let mut sizes = [0_u8; 64];
    for (one, team) in &found.parties {
        sizes[usize::from(*team)] += u8::try_from(one.players.len()).unwrap();
        let wait = now.as_millis() - one.since.as_millis();
        let trip = one.round_trips[usize::from(found.region)];
        assert!(trip != Party::NO_REGION && u32::from(trip) <= cap.at(wait));
        for (other, _) in &found.parties {
            assert!(one.rating().distance(other.rating()) <= window.at(wait));
        }
    }
    assert_eq!(u16::from(sizes[0]) + u16::from(sizes[1]), rules.seats());
    assert_eq!(sizes[0], sizes[1]);
}

#[test]
fn mm_2_windows_of_both_sides_must_include_the_other() {
    let window = widening();
    let rules = two_teams(1).with_window(window);
    let mut waiting = WaitingTickets::new(rules);
    waiting.insert(Instant::ZERO, solo(1, 1_000)).unwrap();
    let late = Instant::from_millis(20_000);
    let mut second = solo(2, 1_200);
    second.since = late;
    waiting.insert(late, second).unwrap();
    // The first accepts 250 points by now; the second 50.
    assert_eq!(find_all(&mut waiting, late), []);
    let later = Instant::from_millis(34_990);
    assert_eq!(find_all(&mut waiting, later), []);
    let wide = Instant::from_millis(36_000);
    let found = find_all(&mut waiting, wide);
    assert_eq!(found.iter().map(tickets).collect::<Vec<_>>(), [[1, 2]]);
    assert_eq!(found[0].quality.spread, 200 * POINT);
    assert_eq!(found[0].quality.waited_ms, 36_000);
    assert!(waiting.is_empty());
}

#[test]
fn the_region_is_the_nearest_that_all_accept() {
    const NO: u16 = Party::NO_REGION;
    let cap = Curve::new(&[(Duration::ZERO, 60), (Duration::from_secs(10), 200)]).unwrap();
    let mut waiting = WaitingTickets::new(two_teams(1).with_latency_cap(cap));
    let regions = |ticket, trips: &[u16]| party(ticket, &[1_500], trips, Instant::ZERO);
    for (ticket, trips) in [(1, [20, 50, NO]), (2, [NO, 40, 30]), (3, [NO, NO, 150])] {
        waiting
            .insert(Instant::ZERO, regions(ticket, &trips))
            .unwrap();
    }
    let found = find_all(&mut waiting, Instant::ZERO);
    assert_eq!(found.len(), 1);
    assert_eq!((tickets(&found[0]), found[0].region), (vec![1, 2], 1));
    assert_eq!(found[0].quality.round_trip_max, 50);
    // The third accepts 150 ms after 6.43 s.
    waiting
        .insert(Instant::ZERO, regions(4, &[NO, NO, 10]))
        .unwrap();
    assert_eq!(find_all(&mut waiting, Instant::from_millis(6_000)), []);
    let found = find_all(&mut waiting, Instant::from_millis(7_500));
    assert_eq!((tickets(&found[0]), found[0].region), (vec![3, 4], 2));
}

#[test]
fn parties_stay_together_in_balanced_teams() {
    let mut waiting = WaitingTickets::new(two_teams(3));
    let now = Instant::ZERO;
    for (ticket, ratings) in [
        (1, vec![1_900, 1_900]),
        (2, vec![1_000, 1_000]),
        (3, vec![1_800]),
        (4, vec![900]),
    ] {
        waiting
            .insert(now, party(ticket, &ratings, &[20], now))
            .unwrap();
    }
    let found = find_all(&mut waiting, now);
    assert_eq!(found.len(), 1);
    let team_of = |wanted| {
        let mut parties = found[0].parties.iter();
        parties
            .find(|(party, _)| party.ticket.0 == wanted)
            .unwrap()
            .1
    };
    assert_eq!(team_of(1), team_of(4));
    assert_eq!(team_of(2), team_of(3));
    assert_eq!(
        found[0].quality.team_gap, 30_000,
        "mean 1,566 and 1,266 points"
    );
}

#[test]
fn mm_5_a_ticket_that_returns_is_the_oldest_again() {
    let mut waiting = WaitingTickets::new(two_teams(1));
    let now = Instant::from_millis(1_000);
    for ticket in 1..=2 {
        waiting.insert(now, solo(ticket, 1_000)).unwrap();
    }
    let first = find_all(&mut waiting, now).remove(0);
    let mut late = solo(3, 1_000);
    late.since = now;
    waiting.insert(now, late.clone()).unwrap();
    late.ticket = TicketId(4);
    for (party, _) in first.parties {
        waiting.insert(now, party).unwrap();
    }
    waiting.insert(now, late).unwrap();
    let found: Vec<_> = find_all(&mut waiting, now).iter().map(tickets).collect();
    assert_eq!(found, [[1, 2], [3, 4]].map(Vec::from));
}

#[test]
fn a_removed_ticket_is_in_no_match() {
    let mut waiting = WaitingTickets::new(two_teams(1));
    let slots: Vec<_> = (1..=3)
        .map(|ticket| waiting.insert(Instant::ZERO, solo(ticket, 1_000)).unwrap())
        .collect();
    assert_eq!(
        waiting.remove(slots[1]).map(|party| party.ticket.0),
        Some(2)
    );
    assert_eq!(waiting.remove(slots[1]), None);
    assert_eq!(waiting.get(slots[0]).map(|party| party.ticket.0), Some(1));
    let found = find_all(&mut waiting, Instant::ZERO);
    assert_eq!(tickets(&found[0]), [1, 3]);
    assert_eq!(waiting.len(), 0);
}

#[test]
fn a_team_with_free_seats_plays_once_its_wait_is_over() {
    let team = TeamRule { min: 2, max: 4 };
    let dwell = matchmaker_core::matching::Dwell {
        price: u32::MAX,
        max: Duration::from_secs(5),
    };
    let rules = MatchRules::new(vec![team; 2]).unwrap().with_dwell(dwell);
    let mut waiting = WaitingTickets::new(rules);
    for ticket in 1..=5 {
        waiting.insert(Instant::ZERO, solo(ticket, 1_000)).unwrap();
    }
    assert_eq!(find_all(&mut waiting, Instant::from_millis(4_800)), []);
    let found = find_all(&mut waiting, Instant::from_millis(5_000));
    assert_eq!(
        found.iter().map(tickets).collect::<Vec<_>>(),
        [[1, 2, 3, 4, 5]]
    );
}
