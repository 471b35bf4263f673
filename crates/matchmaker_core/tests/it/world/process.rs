//! A game server's process, and the tokens for it.

use std::collections::{BTreeMap, BTreeSet};

use matchmaker_core::{ServerLink, Slot};
use wire::{ClientId, CommandId, Instant, MatchId, UnixTime};

use crate::harness::Server;

/// A process that runs a game server.
pub(super) struct Process {
    pub(super) server: Server,
    pub(super) slot: Option<Slot>,
    /// The command that started it, and in which life of the matchmaker.
    pub(super) run: Option<(CommandId, u64)>,
    /// It ends itself then: its lease was not renewed.
    pub(super) lease_until: Instant,
    pub(super) call_at: Instant,
    pub(super) must_register: bool,
    /// Nothing it says arrives until then.
    pub(super) cut_until: Instant,
    /// Matches that it had when it was cut off before it could tell a new matchmaker of them: their
    /// players may be elsewhere by now.
    pub(super) unheard: BTreeSet<MatchId>,
    /// When each match ends that somebody has entered; the others never do by themselves.
    pub(super) ends: BTreeMap<MatchId, Instant>,
    /// When each match was taken, or a token for it was last seen.
    pub(super) wanted_at: BTreeMap<MatchId, Instant>,
}

impl Process {
    /// Whether a token of `client` for the match would be taken.
    pub(super) fn lets_in(&self, client: ClientId, match_id: MatchId) -> bool {
        let seats = self.server.matches.get(&match_id);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.client_id == client))
    }
}

/// A token that a player has.
pub(super) struct Token {
    pub(super) client: ClientId,
    pub(super) server: ServerLink,
    pub(super) match_id: MatchId,
    pub(super) expires_at: UnixTime,
    /// The life of the matchmaker that made it.
    pub(super) life: u64,
    /// It was good while another one for another match was.
    pub(super) is_stray: bool,
}
