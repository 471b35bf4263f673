//! The game server's lease: what it offers to the matchmaker, and what it is asked.

use crypto::token::TokenKey;
use crypto::{AddressList, ServerKeys};
use matchmaker_core::record::{Assign, Verdict};
use servicer::Requests;
use wire::{InstanceId, MatchId};

use super::arena::Ask;
use crate::message::News;
use crate::plan::{APP, Plan};
use crate::role::{Failure, Voice};
use crate::talk::SESSIONS;
use daemon::allocator::SlotEnvironment;
use daemon::link::{GameLink, GameServer, LeaseConfig, LeaseEnd, LinkOptions, Offer};
use daemon::trust;

/// Starts the link to the matchmaker, with the key that it shall seal tokens with.
pub(super) fn start(
    environment: &SlotEnvironment,
    plan: &Plan,
    (instance, token_key): (InstanceId, TokenKey),
    (game, voice): (Requests<Ask>, Voice),
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
    Ok(GameLink::start(options, Leaser { game, voice })?)
}

/// Hands what the matchmaker says to the game's thread.
struct Leaser {
    game: Requests<Ask>,
    voice: Voice,
}

impl GameServer for Leaser {
    fn on_assigned(&mut self, assign: &Assign) -> Verdict {
        // In the queue before any player can have a token for it.
        match self.game.send(Ask::Assign(assign.clone())) {
            Ok(()) => Verdict::Taken,
            Err(_) => Verdict::Full,
        }
    }

    fn on_released(&mut self, match_id: MatchId) {
        // Nobody has a token for it, so a seat that stays is taken by nobody.
        self.game.send(Ask::Release(match_id)).ok();
    }

    fn on_token_key(&mut self, key: &TokenKey) -> bool {
        // In the queue before the matchmaker can seal anything under it.
        self.game.send(Ask::TokenKey(Box::new(key.clone()))).is_ok()
    }

    fn on_token_key_lapsed(&mut self, id: u32) {
        // No token under it is good any more, and of keys that stay the endpoint drops the oldest.
        self.game.send(Ask::TokenKeyLapsed(id)).ok();
    }

    fn on_registered(&mut self) {
        self.game.send(Ask::Closed(false)).ok();
        self.voice.say(News::Leased);
    }

    fn on_cut_off(&mut self) {
        self.game.send(Ask::Closed(true)).ok();
    }

    fn on_ended(&mut self, _end: LeaseEnd) {
        // The main thread waits for it.
    }
}
