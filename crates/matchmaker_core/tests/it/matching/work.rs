//! Work and memory are bounded.

use matchmaker_core::matching::{Found, WaitingTickets};
use wire::{Instant, Seed};

use super::population::random_party;
use super::{party, two_teams, widening};

#[test]
fn a_search_ends_when_its_work_is_used_up() {
    let mut generator = Seed([7; 32]).generator(0);
    let mut waiting = WaitingTickets::new(two_teams(5).with_window(widening()));
    let now = Instant::ZERO;
    for ticket in 0..5_000 {
        let party = random_party(&mut generator, ticket, now);
        waiting.insert(now, party).unwrap();
    }
    let (mut pauses, mut matched, mut work) = (0, 0, 500);
    loop {
        match waiting.find(now, &mut work) {
            Found::Match(found) => matched += found.parties.len(),
            Found::Paused => {
                assert_eq!(work, 0);
                (pauses, work) = (pauses + 1, 500);
            }
            Found::Nothing(next) => {
                assert!(next.is_some_and(|next| next > now));
                break;
            }
        }
    }
    assert!(pauses > 10, "{pauses}");
    assert_eq!(matched + waiting.len(), 5_000);
    assert!(matched > 3_000, "{matched}");
}

/// Tickets that never match cost a bounded number of visits each, however many there are.
#[test]
fn tickets_that_fit_nobody_are_tried_less_and_less_often() {
    let mut waiting = WaitingTickets::new(two_teams(2));
    for ticket in 0..2_000 {
        let mut party = party(ticket, &[1_000], &[20], Instant::ZERO);
        let others = (0..2_000).filter(|other| *other != ticket).take(32);
        party.avoid = others.map(|other| wire::ClientId(other * 100)).collect();
        party.requirements = vec![matchmaker_core::matching::Requirement {
            property: 0,
            accepts: matchmaker_core::matching::Accepts::Range(
                i32::try_from(ticket).unwrap(),
                i32::try_from(ticket).unwrap(),
            ),
        }];
        waiting.insert(Instant::ZERO, party).unwrap();
    }
    let mut used = Vec::new();
    for step in 0..40 {
        let now = Instant::from_millis(step * 100);
        let mut work = u32::MAX;
        assert!(matches!(
            waiting.find(now, &mut work),
            Found::Nothing(Some(_))
        ));
        used.push(u32::MAX - work);
    }
    // 1,024 visits for each of the tickets.
    assert!(used[0] <= 2_000 * 1_025, "{}", used[0]);
    let last: u32 = used[24..].iter().sum();
    assert!(last <= 3 * used[0], "{last} in the last 1.6 s");
    assert_eq!(waiting.len(), 2_000);
}

#[test]
fn memory_is_that_of_the_tickets() {
    let mut generator = Seed([9; 32]).generator(0);
    let mut waiting = WaitingTickets::new(two_teams(5));
    let empty = waiting.memory_bytes();
    let mut slots = Vec::new();
    for ticket in 0..20_000 {
        let party = random_party(&mut generator, ticket, Instant::ZERO);
        slots.push(waiting.insert(Instant::ZERO, party).unwrap());
    }
    let indexes = 8 * 1_024 * 64;
    let each = (waiting.memory_bytes() - empty - indexes) / 20_000;
    assert!(each < 540, "{each} bytes a ticket");
    for slot in slots {
        waiting.remove(slot).unwrap();
    }
    assert!(waiting.is_empty());
    // Indexes drop removed entries when half are removed, the schedule when their turn is due.
    assert_eq!(
        waiting.find(Instant::from_millis(1_000), &mut 50_000),
        Found::Nothing(None)
    );
    for ticket in 0..20_000 {
        let party = random_party(&mut generator, ticket, Instant::ZERO);
        waiting.insert(Instant::ZERO, party).unwrap();
    }
    let again = (waiting.memory_bytes() - empty - indexes) / 20_000;
    assert!(again < each * 3 / 2, "{again} after {each}");
}
