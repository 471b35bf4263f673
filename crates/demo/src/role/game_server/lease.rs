//! The game server's lease: its offer to the matchmaker, and the matchmaker's requests.

use crypto::token::TokenKey;
use crypto::{AddressList, ServerKeys};
use matchmaker_core::record::{Assign, Verdict};
use servicer::Requests;
use wire::{InstanceId, MatchId};

use super::arena::GameRequest;
use crate::game_protocol::SESSIONS;
use crate::message::ChildEvent;
use crate::plan::{APP, Plan};
use crate::role::{EventWriter, Failure};
use daemon::allocator::SlotEnvironment;
use daemon::link::{GameLink, GameServer, LeaseConfig, LeaseEnd, LinkOptions, Offer};
use daemon::trust;

/// Starts the link to the matchmaker, with the key under which it seals tokens.
pub(super) fn start(
    environment: &SlotEnvironment,
    plan: &Plan,
    (instance, token_key): (InstanceId, TokenKey),
    (game, events): (Requests<GameRequest>, EventWriter),
) -> Result<GameLink, Failure> {
    let identity = trust::read_identity(&environment.identity)?;
    let join_file = trust::read_join_file(&environment.join_file)?;
    let options = LinkOptions {
        identity: &identity,
        join_file: &join_file,
        instance,
        offer: Offer {
            app_id: APP.0,
            capacity: plan.options().players.saturating_mul(SESSIONS.into()),
            identity_keys: ServerKeys::new(&[*identity.public_key()])
                .ok_or("a server has a key")?,
            addresses: AddressList::new(&[environment.listen])?,
        },
        token_key,
        config: LeaseConfig::default(),
    };
    Ok(GameLink::start(options, LeaseListener { game, events })?)
}

/// Forwards the matchmaker's requests to the game's thread.
struct LeaseListener {
    game: Requests<GameRequest>,
    events: EventWriter,
}

impl GameServer for LeaseListener {
    fn on_assigned(&mut self, assign: &Assign) -> Verdict {
        // Queued before any player can hold a token for it.
        match self.game.send(GameRequest::Assign(assign.clone())) {
            Ok(()) => Verdict::Taken,
            Err(_) => Verdict::Full,
        }
    }

    fn on_released(&mut self, match_id: MatchId) {
        // No player holds a token for it, so a seat that stays is never used.
        self.game.send(GameRequest::Release(match_id)).ok();
    }

    fn on_token_key(&mut self, key: &TokenKey) -> bool {
        // Queued before the matchmaker can seal a token under it.
        self.game
            .send(GameRequest::TokenKey(Box::new(key.clone())))
            .is_ok()
    }

    fn on_token_key_lapsed(&mut self, id: u32) {
        // No valid token is left under it; the endpoint drops the oldest of too many keys.
        self.game.send(GameRequest::TokenKeyLapsed(id)).ok();
    }

    fn on_registered(&mut self) {
        self.game.send(GameRequest::Closed(false)).ok();
        self.events.send(ChildEvent::Leased);
    }

    fn on_cut_off(&mut self) {
        self.game.send(GameRequest::Closed(true)).ok();
    }

    fn on_ended(&mut self, _end: LeaseEnd) {
        // The main thread waits for it.
    }
}
