//! Sessions that a server has lost: it says so, and the client believes it.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Arrival, Instant};

use super::{Endpoint, ReplyBody, Slot};
use crate::handshake::reset;
use crate::packet::Cid;
use crate::slots::SessionId;

/// Sessions with one server address that a datagram may be compared with.
const COMPARED_MAX: usize = 32;

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
        if resets.is_some_and(|resets| resets.take(now, len)) {
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

    /// Looks at a datagram that opened no packet: it may be a reset, from a server that we dialled.
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
