//! Sessions that a server or a node has lost: it says so, and its peer believes it.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Arrival, Instant};

use super::{Endpoint, ReplyBody, Slot};
use crate::budget::prefix_of;
use crate::handshake::reset::{self, ResetToken};
use crate::packet::Cid;
use crate::session::Session;
use crate::slots::SessionId;

/// Sessions with one address that a datagram may be compared with.
const COMPARED_MAX: usize = 32;
/// Dials whose HELLO a packet of an unknown session may repeat.
const RESENT_MAX: usize = 64;

impl<P: Provider> Endpoint<P> {
    /// Answers a packet of `len` bytes for a session that is not known, where there is a secret.
    pub(super) fn offer_reset(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        (cid, len): (Cid, usize),
    ) {
        let resets = self
            .listener
            .as_mut()
            .and_then(|listener| listener.resets.as_mut());
        let source = prefix_of(arrival.peer.ip());
        if resets.is_some_and(|resets| resets.take(now, source, len)) {
            self.stats.resets_sent = self.stats.resets_sent.saturating_add(1);
            self.reply(arrival, ReplyBody::Reset(cid));
        }
    }

    /// Appends the reset for `cid`; returns whether there is one.
    pub(super) fn write_reset(&mut self, cid: Cid, buf: &mut Vec<u8>) -> bool {
        let resets = self
            .listener
            .as_ref()
            .and_then(|listener| listener.resets.as_ref());
        let Some(token) = resets.and_then(|resets| resets.token(&self.provider, cid)) else {
            return false;
        };
        reset::encode(&token, &mut self.generator, buf);
        true
    }

    /// Returns the token that ends the session that a dial of ours becomes, for its peer; `None` where we do not
    /// listen with a secret.
    pub(super) fn token_of_dial(&self, id: SessionId) -> Option<ResetToken> {
        let Some(Slot::Dial(dial)) = self.slots.get(id) else {
            return None;
        };
        let resets = self.listener.as_ref()?.resets.as_ref()?;
        resets.token(&self.provider, dial.client_cid())
    }

    /// Enters a session whose peer may reset it, at the address where the peer is now.
    pub(super) fn note_resettable(&mut self, id: SessionId) {
        if let Some(session) = self.session(id).filter(|session| session.is_resettable()) {
            let entry = (session.peer_address(), id);
            self.resettable.insert(entry);
        }
    }

    /// Takes note that the peer of a session has moved.
    pub(super) fn move_resettable(&mut self, id: SessionId) {
        if self.session(id).is_some_and(Session::is_resettable) {
            self.resettable.retain(|(_, other)| *other != id);
            self.note_resettable(id);
        }
    }

    /// Repeats the HELLOs of dials to `from`, where a packet of an unknown session came from: the peer still has a
    /// session that ended here, and the path carries packets again.
    pub(super) fn resend_hellos_to(&mut self, now: Instant, from: SocketAddr) {
        let mut resent = Vec::new();
        for id in self.dials.values().take(RESENT_MAX) {
            if let Some(Slot::Dial(dial)) = self.slots.get_mut(*id)
                && dial.on_packet_from(now, from)
            {
                resent.push(*id);
            }
        }
        for id in resent {
            self.arm(id);
        }
    }

    /// Looks at a datagram that opened no packet: it may be a reset of the peer's.
    pub(super) fn on_unopened(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) {
        if self.resettable.is_empty() || datagram.len() < reset::LEN {
            return;
        }
        let from_server = (arrival.peer, SessionId::MIN)..=(arrival.peer, SessionId::MAX);
        let ended = self
            .resettable
            .range(from_server)
            .take(COMPARED_MAX)
            .map(|(_, id)| *id)
            .find(|id| match self.slots.get_mut(*id) {
                Some(Slot::Session(session)) => session.on_reset(datagram),
                _ => false,
            });
        if let Some(id) = ended {
            self.stats.resets_taken = self.stats.resets_taken.saturating_add(1);
            self.settle(now, id);
        }
    }
}
