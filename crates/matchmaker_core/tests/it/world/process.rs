//! A game server's process, and the tokens for it.

use std::collections::{BTreeMap, BTreeSet};

use matchmaker_core::{ServerLink, Slot};
use wire::{ClientId, CommandId, Instant, MatchId, UnixTime};

use crate::harness::Server;

pub(super) struct Process {
    pub(super) server: Server,
    pub(super) slot: Option<Slot>,
    /// The command that started it, and the matchmaker's life that issued it.
    pub(super) run: Option<(CommandId, u64)>,
    /// It exits at this time unless its lease is renewed.
    pub(super) lease_until: Instant,
    pub(super) call_at: Instant,
    pub(super) must_register: bool,
    /// Its messages are lost until this time.
    pub(super) cut_until: Instant,
    /// Matches it had when it was partitioned before it could report them to a new matchmaker.
    /// Their players may be on other servers by now.
    pub(super) unreported: BTreeSet<MatchId>,
    /// End of each match that a player has entered. The others never end by themselves.
    pub(super) ends: BTreeMap<MatchId, Instant>,
    /// When each match was accepted, or a token for it was last seen.
    pub(super) wanted_at: BTreeMap<MatchId, Instant>,
}

impl Process {
    /// Whether a token of `client` for the match would be accepted.
    pub(super) fn lets_in(&self, client: ClientId, match_id: MatchId) -> bool {
        let seats = self.server.matches.get(&match_id);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.client_id == client))
    }
}

/// A player's token.
pub(super) struct Token {
    pub(super) client: ClientId,
    pub(super) server: ServerLink,
    pub(super) match_id: MatchId,
    pub(super) expires_at: UnixTime,
    /// The matchmaker's life that issued it.
    pub(super) life: u64,
    /// It was valid at the same time as a token for another match.
    pub(super) is_stray: bool,
}
