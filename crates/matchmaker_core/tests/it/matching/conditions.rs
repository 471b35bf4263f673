//! Avoided players and required properties.

use matchmaker_core::matching::{Accepts, PartyError, Requirement, WaitingTickets};
use wire::{ClientId, Instant};

use super::{find_all, solo, tickets, two_teams};

const MAP: u8 = 0;
const MODE: u8 = 1;

fn requires(property: u8, accepts: Accepts) -> Requirement {
    Requirement { property, accepts }
}

#[test]
fn mm_2_players_who_avoid_each_other_are_in_no_match() {
    for is_first in [true, false] {
        let mut waiting = WaitingTickets::new(two_teams(1));
        let mut parties = [solo(1, 1_000), solo(2, 1_000), solo(3, 1_000)];
        let (by, avoided) = if is_first { (0, 200) } else { (1, 100) };
        parties[by].avoid = vec![ClientId(avoided)];
        for party in parties {
            waiting.insert(Instant::ZERO, party).unwrap();
        }
        let found = find_all(&mut waiting, Instant::ZERO);
        assert_eq!(found.iter().map(tickets).collect::<Vec<_>>(), [[1, 3]]);
    }
}

#[test]
fn a_match_has_a_value_that_all_tickets_accept() {
    let mut waiting = WaitingTickets::new(two_teams(1));
    let wishes = [
        vec![requires(MAP, Accepts::AnyOf(0b011))],
        vec![requires(MAP, Accepts::AnyOf(0b100))],
        vec![requires(MODE, Accepts::Range(5, 9))],
        vec![
            requires(MAP, Accepts::AnyOf(0b110)),
            requires(MODE, Accepts::Range(1, 4)),
        ],
    ];
    for (ticket, wishes) in (1..).zip(wishes) {
        let mut party = solo(ticket, 1_000);
        party.requirements = wishes;
        waiting.insert(Instant::ZERO, party).unwrap();
    }
    let found = find_all(&mut waiting, Instant::ZERO);
    let pairs: Vec<_> = found.iter().map(tickets).collect();
    assert_eq!(pairs, [[1, 3], [2, 4]]);
    assert_eq!(
        found[0].properties,
        [(MAP, Accepts::AnyOf(0b011)), (MODE, Accepts::Range(5, 9))]
    );
    assert_eq!(
        found[1].properties,
        [(MAP, Accepts::AnyOf(0b100)), (MODE, Accepts::Range(1, 4))]
    );
}

#[test]
fn a_party_that_fits_no_team_changes_nothing() {
    let mut waiting = WaitingTickets::new(two_teams(1));
    let party = super::party(1, &[1_000, 1_000], &[20], Instant::ZERO);
    let refused = waiting.insert(Instant::ZERO, party);
    assert_eq!(refused, Err(PartyError::Size(2)));
    assert!(waiting.is_empty());
}
