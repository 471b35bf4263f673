//! Who is made to leave, and who is not let in again.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::{Provider, Role};
use wire::{ClientId, Instant};

use super::listener::{is_exempt, is_trusted_exit};
use super::{Endpoint, Slot};
use crate::block_list::{BlockError, BlockList, Prefix};
use crate::error::{CloseCode, CloseReason, NoSession};
use crate::event::Proof;
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    /// Ends a session at once with [`CloseCode::Kicked`]: what is queued is not sent, and what became
    /// of it not waited for. The end comes as an event. The peer is told `reason`, cut at 128 bytes: no
    /// address and no secret belongs in it.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where its slot is free again. While one that has ended says so to its peer, nothing
    /// happens.
    pub fn kick(
        &mut self,
        now: Instant,
        session: SessionId,
        reason: &[u8],
    ) -> Result<(), NoSession> {
        let at = self.advance(now);
        let Some(Slot::Session(open)) = self.slots.get_mut(session) else {
            return self.close(now, session, CloseCode::Kicked, reason);
        };
        open.kick(at, reason);
        self.settle(at, session);
        Ok(())
    }

    /// Hears nothing from `prefix` any more, from the next datagram on, for `span` or until
    /// [`unblock`](Self::unblock); of two calls for one prefix the later counts. Sessions from there
    /// end by their silence; [`kick`](Self::kick) ends them at once.
    ///
    /// What a trusted exit sends for a player is judged by the player's address, and where it does not
    /// say whom it speaks for it is always heard.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] where 65,536 prefixes are blocked.
    pub fn block(
        &mut self,
        now: Instant,
        prefix: Prefix,
        span: Option<Duration>,
    ) -> Result<(), BlockError> {
        let now = self.advance(now);
        self.blocked
            .insert(now, prefix, span.map(|span| now + span))
    }

    /// Hears `prefix` again; returns whether it was blocked. Longer and shorter prefixes that are
    /// blocked stay so.
    pub fn unblock(&mut self, prefix: &Prefix) -> bool {
        self.blocked.remove(prefix)
    }

    /// Returns the blocked prefixes.
    pub const fn blocked(&self) -> &BlockList {
        &self.blocked
    }

    /// Returns whether nothing of a datagram is looked at.
    pub(super) fn is_blocked(
        &mut self,
        now: Instant,
        (peer, real_source): (SocketAddr, Option<SocketAddr>),
    ) -> bool {
        if real_source.is_none() && is_trusted_exit(&self.config, peer) {
            return false;
        }
        self.blocked.contains(now, real_source.unwrap_or(peer).ip())
    }

    /// Lets a player in again whom [`Config::block_breaches`](crate::Config::block_breaches) keeps
    /// out; returns whether he was kept out.
    pub fn pardon(&mut self, player: ClientId) -> bool {
        self.barred.until.remove(&player).is_some()
    }

    /// Keeps out whose session ended with a breach of the protocol, where that is asked for: a player
    /// by his id, else the address, and that only where he has answered from there. Nobody else
    /// can have sent what was sealed.
    pub(super) fn judge_end(&mut self, now: Instant, id: SessionId, reason: CloseReason) {
        let Some(span) = self.config.block_breaches else {
            return;
        };
        let CloseReason::Local(code) = reason else {
            return;
        };
        let Some(session) = self
            .session(id)
            .filter(|session| is_breach(code) && session.role() == Role::Accepter)
        else {
            return;
        };
        let is_added = match session.proof() {
            Proof::Token(grant) => {
                let player = grant.client_id;
                self.barred.insert(now, player, now + span)
            }
            Proof::Anonymous if session.is_at_proved_address() => {
                let peer = session.peer_address();
                let told = session.counted_source();
                let source = told.filter(|_| is_trusted_exit(&self.config, peer));
                let source = SocketAddr::new(source.unwrap_or_else(|| peer.ip()), 0);
                let prefix = Prefix::of_host(source.ip());
                !is_exempt(&self.config, source)
                    && self.blocked.insert(now, prefix, Some(now + span)).is_ok()
            }
            Proof::Anonymous | Proof::Node(_) | Proof::Server(_) => false,
        };
        self.stats.blocked_for_breaches = self
            .stats
            .blocked_for_breaches
            .saturating_add(u64::from(is_added));
    }
}

/// Returns whether only a peer that keeps to no protocol makes us close with `code`.
const fn is_breach(code: CloseCode) -> bool {
    matches!(
        code,
        CloseCode::Frame
            | CloseCode::AckUnsent
            | CloseCode::Fragment
            | CloseCode::Flow
            | CloseCode::KeyUpdate
            | CloseCode::Flood
    )
}

/// Players who are not let in.
#[derive(Debug, Default)]
pub(crate) struct Barred {
    until: BTreeMap<ClientId, Instant>,
}

/// Most players who are kept out at a time.
const BARRED_MAX: usize = 65_536;

impl Barred {
    pub(super) fn contains(&self, now: Instant, player: ClientId) -> bool {
        self.until.get(&player).is_some_and(|until| *until > now)
    }

    /// Returns whether there was room.
    fn insert(&mut self, now: Instant, player: ClientId, until: Instant) -> bool {
        if self.until.len() >= BARRED_MAX && !self.until.contains_key(&player) {
            // Rare: each entry has cost its player a token and a session.
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= BARRED_MAX {
                return false;
            }
        }
        self.until.insert(player, until);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u13_at_most_65_536_players_are_kept_out_and_those_whose_time_is_over_make_place() {
        let mut barred = Barred::default();
        let at = Instant::from_millis;
        for player in 0..65_536 {
            assert!(barred.insert(at(0), ClientId(player), at(10)));
        }
        assert!(!barred.insert(at(9), ClientId(70_000), at(20)));
        assert!(barred.insert(at(9), ClientId(1), at(20)), "again");
        assert!(barred.insert(at(10), ClientId(70_000), at(20)));
        assert_eq!(barred.until.len(), 2);
        assert!(barred.contains(at(19), ClientId(1)) && !barred.contains(at(20), ClientId(1)));
    }
}
