//! What players and server of the demonstration's game agree on besides the protocols.

use udp_proto::ChannelId;
use wire::{ClientId, MatchId, Seat};

use lockstep::{StateHasher, Tick};

use crate::message::News;
use crate::plan::{Plan, TICK_RATE_HZ};

/// The channel for everything: a late tick says nothing that the next does not.
pub(crate) const UNRELIABLE: ChannelId = ChannelId(0);

/// First byte of a message: a lockstep datagram follows.
pub(crate) const LOCKSTEP: u8 = 0;
/// To be sent back at once, as [`ECHO`].
pub(crate) const PING: u8 = 1;
/// A ping, sent back.
pub(crate) const ECHO: u8 = 2;

/// Returns whom mails are for: the clients of the sessions that play.
pub(crate) fn readers(plan: &Plan) -> Vec<ClientId> {
    let reader = |seat| client_of(seat, SessionKind::Play);
    plan.seats().map(reader).collect()
}

/// Sessions of one player, each with a client id, a ticket and a token of its own. The tickets of
/// one kind make a match, so that each player has one seat in each, and plays by that of the first.
pub(crate) const SESSIONS: u8 = 3;

/// What a session of a player is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SessionKind {
    /// To play through the mesh.
    Play,
    /// To measure the direct way.
    Measure,
    /// To play directly.
    Fallback,
}

impl SessionKind {
    pub(crate) const ALL: [Self; SESSIONS as usize] = [Self::Play, Self::Measure, Self::Fallback];

    /// Returns what the token of such a session says about it.
    pub(crate) const fn user(self) -> &'static [u8] {
        match self {
            Self::Play => b"play",
            Self::Measure => b"measure",
            Self::Fallback => b"fallback",
        }
    }

    /// Reads what a token says.
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

/// Returns the client of one session of a player, by its number in the plan: which seat it gets is
/// the matchmaker's to say.
pub(crate) fn client_of(seat: Seat, kind: SessionKind) -> ClientId {
    let first = u64::from(seat.0).saturating_mul(CLIENTS_PER_PLAYER);
    ClientId(first.saturating_add(kind.offset()))
}

/// Returns the client by whose seat the player of `client`, a session of this kind, plays; `None`
/// where no such session has this client.
pub(crate) fn playing_client(client: ClientId, kind: SessionKind) -> Option<ClientId> {
    let player = Seat(u16::try_from(client.0 / CLIENTS_PER_PLAYER).ok()?);
    (client_of(player, kind) == client).then(|| client_of(player, SessionKind::Play))
}

const CLIENTS_PER_PLAYER: u64 = 4;

/// Length of a beacon's datagrams, bytes.
pub(crate) const BEACON_LEN: usize = 16;
/// First byte of a question to a beacon.
pub(crate) const BEACON_ASK: u8 = 1;
/// First byte of its answer.
pub(crate) const BEACON_ANSWER: u8 = 2;

/// One number for all state hashes of a match so far: equal only where each of them was.
#[derive(Debug)]
pub(crate) struct Digest {
    player: Option<u16>,
    match_id: MatchId,
    value: u64,
    /// Ticks of the match; what comes later does not count.
    ticks: u32,
}

impl Digest {
    /// Begins the digest of a player or, with `None`, of the server, over a match of `ticks`.
    pub(crate) const fn new(match_id: MatchId, player: Option<u16>, ticks: u32) -> Self {
        Self {
            player,
            match_id,
            value: 0,
            ticks,
        }
    }

    /// Adds the hash after `tick`; returns a checkpoint each second, and after the last tick.
    pub(crate) fn add(&mut self, tick: Tick, hash: u64) -> Option<News> {
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
        is_due.then_some(News::Checkpoint {
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
    fn every_session_has_a_client_of_its_own_and_leads_back_to_its_player() {
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
