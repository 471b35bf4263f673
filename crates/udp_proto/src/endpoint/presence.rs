//! Who is here: a player or a node has one session at a time.

use core::net::SocketAddr;

use crypto::{Provider, Role};
use wire::{Instant, NodeId};

use super::admission::Admitted;
use super::{Endpoint, Present, Slot};
use crate::config::DuplicatePolicy;
use crate::error::CloseCode;
use crate::event::{Event, Grant, Peer, Proof};
use crate::session::Session;
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    /// A player has come in: the token is used up, and an older session of the player gives way.
    pub(super) fn seat(&mut self, now: Instant, id: SessionId, grant: &Grant) {
        self.tokens.consume(grant.token_id);
        let rivals: Vec<SessionId> = self
            .slots
            .ids()
            .filter(|other| match self.slots.get(*other) {
                Some(Slot::HalfOpen(half_open)) => matches!(
                    &half_open.grant,
                    Admitted::Token(rival) if rival.token_id == grant.token_id
                ),
                _ => false,
            })
            .collect();
        for rival in rivals {
            self.remove(now, rival);
        }
        if !self.session(id).is_some_and(Session::is_open) {
            // Its first packet broke the protocol: it takes nobody's place.
            return;
        }
        let present = Present {
            session: id,
            issued_at: grant.issued_at,
            token_id: grant.token_id,
        };
        if let Some(old) = self.players.insert(grant.client_id, present) {
            self.end_replaced(now, old.session);
        }
    }

    /// Returns whether the player of `grant` is here and stays.
    pub(super) fn is_outdone(&self, grant: &Grant) -> bool {
        self.players.get(&grant.client_id).is_some_and(|present| {
            let is_newer =
                (grant.issued_at, grant.token_id) > (present.issued_at, present.token_id);
            !is_newer || self.config.duplicate == DuplicatePolicy::Reject
        })
    }

    /// Ends a session that another has replaced.
    pub(super) fn end_replaced(&mut self, now: Instant, old: SessionId) {
        if let Some(Slot::Session(session)) = self.slots.get_mut(old) {
            session.abort(now, CloseCode::Replaced);
            self.settle(now, old);
        }
    }

    /// Tells the application of a new session, whose HELLO came or left at `began`.
    pub(super) fn connected(
        &mut self,
        now: Instant,
        (id, began): (SessionId, Instant),
        address: SocketAddr,
        proof: Proof,
    ) {
        self.stats.sessions_opened = self.stats.sessions_opened.saturating_add(1);
        let node = match &proof {
            Proof::Node(node) => Some(*node),
            Proof::Token(_) | Proof::Anonymous | Proof::Server(_) => None,
        };
        self.events.push_back(Event::Connected {
            session: id,
            peer: Box::new(Peer { address, proof }),
        });
        self.settle(now, id);
        if let Some(node) = node
            && self.session(id).is_some_and(Session::is_open)
        {
            self.keep_one(now, (id, began), node);
        }
    }

    /// Ends all but one session with a node: the newer one stays. A node that dials has no session that
    /// it knows of, so the older one is dead at its end: it was restarted, or heard nothing for its idle timeout.
    ///
    /// Only where both ends dialled within a round trip of each other, neither knew of the other's
    /// attempt. Then both ends choose the session that the smaller node id dialled.
    fn keep_one(&mut self, now: Instant, (new, began): (SessionId, Instant), node: NodeId) {
        let ours = self.listener.as_ref().map(|listener| listener.node);
        let old = self.nodes.get(&node).copied();
        let (Some(old), Some(ours)) = (old, ours) else {
            self.nodes.insert(node, new);
            return;
        };
        let traits = |id| match self.slots.get(id) {
            Some(Slot::Session(session)) => {
                Some((session.boot_id(), session.role(), session.may_cross(began)))
            }
            _ => None,
        };
        let new_stays = match (traits(old), traits(new)) {
            (Some((old_boot, old_role, may_cross)), Some((new_boot, new_role, _))) => {
                old_boot != new_boot
                    || old_role == new_role
                    || !may_cross
                    || (new_role == Role::Dialler) == (ours < node)
            }
            _ => true,
        };
        let (stays, goes) = if new_stays { (new, old) } else { (old, new) };
        self.nodes.insert(node, stays);
        self.end_replaced(now, goes);
    }
}
