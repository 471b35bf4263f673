//! The seats that the matchmaker assigned, and what a token is valid for.

use std::collections::BTreeMap;

use matchmaker_core::record::Assign;
use udp_proto::Grant;
use wire::{ClientId, MatchId, Seat};

use crate::game_protocol::{SessionKind, playing_client};

#[derive(Debug, Default)]
pub(super) struct Seats {
    assigned: BTreeMap<MatchId, BTreeMap<ClientId, Seat>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    match_id: MatchId,
    client_id: ClientId,
    seat: Seat,
    user: &'a [u8],
}

impl<'a> From<&'a Grant> for Claim<'a> {
    fn from(grant: &'a Grant) -> Self {
        Self {
            match_id: grant.match_id,
            client_id: grant.client_id,
            seat: grant.seat,
            user: &grant.user,
        }
    }
}

/// What a token admits its holder to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) match_id: MatchId,
    pub(super) kind: SessionKind,
    /// The match and seat in which its player plays.
    pub(super) plays: (MatchId, Seat),
}

impl Seats {
    pub(super) fn assign(&mut self, assign: &Assign) {
        let players = assign.players.iter();
        let seats = players.map(|seated| (seated.client_id, seated.seat));
        self.assigned.insert(assign.match_id, seats.collect());
    }

    pub(super) fn release(&mut self, match_id: MatchId) {
        self.assigned.remove(&match_id);
    }

    pub(super) fn matches(&self) -> impl Iterator<Item = MatchId> {
        self.assigned.keys().copied()
    }

    /// Returns what a token is valid for; `None` if the matchmaker assigned no such seat.
    ///
    /// The token of a play session names its own seat. A fallback or measuring session leads to the
    /// seat of its player's play session.
    pub(super) fn pass(&self, claim: Claim<'_>) -> Option<Admitted> {
        let kind = SessionKind::of_user(claim.user)?;
        let playing = playing_client(claim.client_id, kind)?;
        let assigned = self.assigned.get(&claim.match_id)?.get(&claim.client_id)?;
        if *assigned != claim.seat {
            return None;
        }
        let plays = match kind {
            SessionKind::Play => (claim.match_id, claim.seat),
            SessionKind::Measure | SessionKind::Fallback => self.seat_of(playing)?,
        };
        Some(Admitted {
            match_id: claim.match_id,
            kind,
            plays,
        })
    }

    fn seat_of(&self, client: ClientId) -> Option<(MatchId, Seat)> {
        let mut matches = self.assigned.iter();
        matches.find_map(|(match_id, seats)| Some((*match_id, *seats.get(&client)?)))
    }
}

#[cfg(test)]
mod tests {
    use matchmaker_core::Seated;
    use wire::{InstanceId, Team};

    use super::*;
    use crate::game_protocol::client_of;

    const PLAYED: MatchId = MatchId([1; 16]);
    const FALLBACK: MatchId = MatchId([2; 16]);

    fn claim(match_id: MatchId, player: u16, kind: SessionKind, seat: u16) -> Claim<'static> {
        Claim {
            match_id,
            client_id: client_of(Seat(player), kind),
            seat: Seat(seat),
            user: kind.user(),
        }
    }

    /// Players 0 and 1 play in seats 1 and 0; their other sessions have the opposite seats.
    fn seats() -> Seats {
        let mut seats = Seats::default();
        for (match_id, kind, numbers) in [
            (PLAYED, SessionKind::Play, [1, 0]),
            (FALLBACK, SessionKind::Fallback, [0, 1]),
        ] {
            let seated = |(player, seat): (u16, u16)| Seated {
                client_id: client_of(Seat(player), kind),
                seat: Seat(seat),
                team: Team(0),
            };
            seats.assign(&Assign {
                instance: InstanceId(1),
                match_id,
                players: (0..).zip(numbers).map(seated).collect(),
            });
        }
        seats
    }

    #[test]
    fn all_sessions_of_a_player_have_the_seat_of_its_token() {
        let seats = seats();
        for (player, seat) in [(0, 1), (1, 0)] {
            let plays = (PLAYED, Seat(seat));
            let play = seats.pass(claim(PLAYED, player, SessionKind::Play, seat));
            assert_eq!(play.unwrap().plays, plays);
            let fallback = claim(FALLBACK, player, SessionKind::Fallback, player);
            let pass = seats.pass(fallback).unwrap();
            assert_eq!((pass.match_id, pass.plays), (FALLBACK, plays));
        }
    }

    #[test]
    fn a_token_without_an_assigned_seat_is_refused() {
        let mut seats = seats();
        let (play, fallback) = (SessionKind::Play, SessionKind::Fallback);
        for (what, wrong) in [
            ("another's seat", claim(PLAYED, 0, play, 0)),
            ("no seat there is", claim(PLAYED, 0, play, 2)),
            ("a stranger", claim(PLAYED, 2, play, 1)),
            ("another match", claim(FALLBACK, 0, play, 1)),
            ("no match there is", claim(MatchId([3; 16]), 0, play, 1)),
            ("another kind", claim(PLAYED, 0, fallback, 1)),
        ] {
            assert_eq!(seats.pass(wrong), None, "{what}");
        }
        seats.release(PLAYED);
        assert_eq!(seats.pass(claim(PLAYED, 0, play, 1)), None);
        // Its player has no seat any more.
        assert_eq!(seats.pass(claim(FALLBACK, 0, fallback, 0)), None);
        assert_eq!(seats.matches().collect::<Vec<_>>(), [FALLBACK]);
    }
}
