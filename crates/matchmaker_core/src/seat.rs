//! Seats: who sits where in a match.

use core::num::NonZeroU8;

use wire::{ClientId, Seat, Team};

/// A player and the seat it has, as the records of a match say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seated {
    /// Who.
    pub client_id: ClientId,
    /// Where.
    pub seat: Seat,
    /// On which side.
    pub team: Team,
}

/// Gives seats in the order of the rule's proposal, and teams in turn: seat 0 to team 0, seat 1 to
/// team 1, and so on. All teams are of one size where the number of seats is a multiple of theirs.
pub(crate) fn plan(
    players: impl IntoIterator<Item = ClientId>,
    teams: NonZeroU8,
) -> impl Iterator<Item = Seated> {
    let teams = (0..teams.get()).cycle();
    players
        .into_iter()
        .zip(0..)
        .zip(teams)
        .map(|((client_id, seat), team)| Seated {
            client_id,
            seat: Seat(seat),
            team: Team(team),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_are_filled_in_turn() {
        let seats: Vec<_> = plan((10..16).map(ClientId), NonZeroU8::new(3).unwrap())
            .map(|seated| (seated.client_id.0, seated.seat.0, seated.team.0))
            .collect();
        let expected = [
            (10, 0, 0),
            (11, 1, 1),
            (12, 2, 2),
            (13, 3, 0),
            (14, 4, 1),
            (15, 5, 2),
        ];
        assert_eq!(seats, expected);
    }
}
