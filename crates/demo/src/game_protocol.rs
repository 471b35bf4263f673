//! The protocol of the demonstration's game: message kinds, clients and sessions, state digests.

use udp_proto::ChannelId;
use wire::{ClientId, MatchId, Seat};

use lockstep::{StateHasher, Tick};

use crate::message::ChildEvent;
use crate::plan::{Plan, TICK_RATE_HZ};

/// The channel of all messages: an old tick is worth nothing after the next.
pub(crate) const UNRELIABLE: ChannelId = ChannelId(0);

/// First byte of a message: a lockstep datagram follows.
pub(crate) const LOCKSTEP: u8 = 0;
/// A ping; answered by [`ECHO`].
pub(crate) const PING: u8 = 1;
pub(crate) const ECHO: u8 = 2;

/// Returns the clients that receive mail: those of the play sessions.
pub(crate) fn readers(plan: &Plan) -> Vec<ClientId> {
    let reader = |seat| client_of(seat, SessionKind::Play);
    plan.seats().map(reader).collect()
}

/// Sessions of one player, each with its own client id, ticket and token. The tickets of one kind
/// make a match, so each player has a seat in each; it plays in that of the first.
pub(crate) const SESSIONS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SessionKind {
    Play,
    Measure,
    Fallback,
}

impl SessionKind {
    pub(crate) const ALL: [Self; SESSIONS as usize] = [Self::Play, Self::Measure, Self::Fallback];

    pub(crate) const fn user(self) -> &'static [u8] {
        match self {
            Self::Play => b"play",
            Self::Measure => b"measure",
            Self::Fallback => b"fallback",
        }
    }

    pub(crate) fn of_user(user: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.user() == user)
    }

    const fn offset(self) -> u64 {
        match self {
            Self::Play => 0,
            Self::Measure => 1,
            Self::Fallback => 2,
        }
    }
}

/// Returns the client id of one session of a player, by its number in the plan. The matchmaker
/// chooses the seat.
pub(crate) fn client_of(seat: Seat, kind: SessionKind) -> ClientId {
    let first = u64::from(seat.0).saturating_mul(CLIENTS_PER_PLAYER);
    ClientId(first.saturating_add(kind.offset()))
}

/// Returns the client of the play session whose seat the player of `client` uses; `None` if
/// `client` has no session of this kind.
pub(crate) fn playing_client(client: ClientId, kind: SessionKind) -> Option<ClientId> {
    let player = Seat(u16::try_from(client.0 / CLIENTS_PER_PLAYER).ok()?);
    (client_of(player, kind) == client).then(|| client_of(player, SessionKind::Play))
}

const CLIENTS_PER_PLAYER: u64 = 4;

/// Length of a beacon's datagrams, bytes.
pub(crate) const BEACON_LEN: usize = 16;
/// First byte of a request to a beacon.
pub(crate) const BEACON_ASK: u8 = 1;
pub(crate) const BEACON_ANSWER: u8 = 2;

/// A digest over all state hashes of a match so far: equal if all of them are equal.
#[derive(Debug)]
pub(crate) struct Digest {
    player: Option<u16>,
    match_id: MatchId,
    value: u64,
    /// Ticks of the match; later ones do not count.
    ticks: u32,
}

impl Digest {
    /// Starts the digest of a player or, with `None`, of the server, over a match of `ticks`.
    pub(crate) const fn new(match_id: MatchId, player: Option<u16>, ticks: u32) -> Self {
        Self {
            player,
            match_id,
            value: 0,
            ticks,
        }
    }

    /// Adds the hash after `tick`; returns a checkpoint each second and after the last tick.
    pub(crate) fn add(&mut self, tick: Tick, hash: u64) -> Option<ChildEvent> {
        let ticks = tick.0.saturating_add(1);
        if ticks > self.ticks {
            return None;
        }
        let mut hasher = StateHasher::new(self.match_id);
        hasher.u64(self.value);
        hasher.u32(tick.0);
        hasher.u64(hash);
        self.value = hasher.finish();
        let is_due = ticks.is_multiple_of(TICK_RATE_HZ.into()) || ticks == self.ticks;
        is_due.then_some(ChildEvent::Checkpoint {
            player: self.player,
            ticks,
            digest: self.value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_unique_and_map_back_to_the_player() {
        let mut clients = std::collections::BTreeSet::new();
        for seat in (0..64).map(Seat) {
            for kind in SessionKind::ALL {
                let client = client_of(seat, kind);
                assert!(clients.insert(client));
                let playing = client_of(seat, SessionKind::Play);
                assert_eq!(playing_client(client, kind), Some(playing));
                assert_eq!(SessionKind::of_user(kind.user()), Some(kind));
            }
        }
        assert_eq!(playing_client(ClientId(1), SessionKind::Play), None);
        assert_eq!(playing_client(ClientId(u64::MAX), SessionKind::Play), None);
        assert_eq!(SessionKind::of_user(b""), None);
    }
}
