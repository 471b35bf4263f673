//! Sessions with far ends without a direct path, over an established path.
//!
//! A neighbour that forwards a session's datagrams has a rate limit per node, and cannot
//! distinguish them. That is enough to set up the first path. From then on the datagrams are sent
//! in the path's probe flow, which is sealed end to end and has the rate of a label, so the flows
//! of thousands of players are set up as fast as over a direct path. A few datagrams still use the
//! neighbour: the detour stays up while it receives any, and is available if the path dies.

use crypto::Provider;
use wire::{Arrival, Instant};

use super::Node;
use super::path_set::PathEntry;
use crate::data_plane::DataPlane;
use crate::flow_key::{FlowId, Numbered};
use crate::flow_message::flow_code;
use crate::hop::{HOPS_LEFT_MAX, Piece};
use crate::hop_sealer::Packet;
use crate::link::LinkId;
use crate::pieces::split;

impl<P: Provider> Node<P> {
    /// The active path to a far end, if it answers and uses a relay.
    pub(super) fn path_for_session(&self, now: Instant, far: LinkId) -> Option<u8> {
        let path_set = self.path_sets.get(&far)?;
        let path = path_set.path(path_set.current?)?;
        let is_fit = path.is_watched() && path.is_proved(now) && !path.path.relays.is_empty();
        is_fit.then_some(path.id)
    }

    /// Sends a datagram of the session with a far end over a path.
    pub(super) fn send_session_over(
        &mut self,
        now: Instant,
        (far, path): (LinkId, u8),
        datagram: &[u8],
    ) {
        let mut payload = Vec::with_capacity(datagram.len().saturating_add(1));
        payload.push(flow_code::SESSION_DATAGRAM);
        payload.extend_from_slice(datagram);
        match split(&payload) {
            Some((whole, None)) => {
                self.send_probe_piece(now, (far, path), (Piece::Whole, whole));
            }
            Some((first, Some(second))) => {
                self.send_probe_piece(now, (far, path), (Piece::First, first));
                self.send_probe_piece(now, (far, path), (Piece::Second, second));
            }
            // No session datagram is that long.
            None => {}
        }
    }

    /// Whether a packet of a probe flow is, or may be, a piece of a session datagram.
    pub(super) fn is_of_session(piece: Piece, payload: &[u8]) -> bool {
        piece != Piece::Whole || payload.first() == Some(&flow_code::SESSION_DATAGRAM)
    }

    /// Handles a session datagram, or a piece of one, from the probe flow of a path.
    pub(super) fn on_session_piece(
        &mut self,
        now: Instant,
        far: LinkId,
        (number, piece): (u64, Piece),
        payload: &[u8],
    ) {
        let Some(path_set) = self.path_sets.get_mut(&far) else {
            return;
        };
        let mut datagram = Vec::new();
        let is_whole = path_set
            .session_joiner
            .add(now, (number, piece), payload, &mut datagram);
        if !is_whole {
            return;
        }
        let Some((&mut flow_code::SESSION_DATAGRAM, datagram)) = datagram.split_first_mut() else {
            self.count_malformed();
            return;
        };
        let detour = self.detours.list.get(&far).map(|detour| detour.address);
        let session = self.peers.session(far);
        let address = detour.or_else(|| self.endpoint.peer_address(session?));
        let (Some(address), None) = (address, self.detours.taking) else {
            return;
        };
        self.detours.taking = Some(far);
        self.endpoint
            .handle_datagram(now, Arrival::from(address), datagram);
        self.pump(now);
        self.detours.taking = None;
    }

    /// Sends a payload in the probe flow of a path.
    pub(super) fn send_probe_piece(
        &mut self,
        now: Instant,
        (link, id): (LinkId, u8),
        piece: (Piece, &[u8]),
    ) -> Option<u64> {
        let path_set = self.path_sets.get_mut(&link)?;
        let provider = self.endpoint.provider();
        self.sealed.clear();
        let numbered = path_set
            .probe_sealer
            .seal(provider, now, piece, &mut self.sealed)
            .ok()?;
        let path = path_set.path_mut(id)?;
        let sealed = (numbered, self.sealed.as_slice());
        let is_sent = path.send(&mut self.plane, provider, now, (FlowId::PROBE, sealed));
        is_sent.then_some(numbered.number)
    }
}

impl PathEntry {
    /// Sends a sealed packet of `flow` to the first node of the path; returns false if it has no
    /// label there, or no room.
    pub(super) fn send<P: Provider>(
        &mut self,
        plane: &mut DataPlane<P::Aead>,
        provider: &P,
        now: Instant,
        (flow, (numbered, body)): (FlowId, (Numbered, &[u8])),
    ) -> bool {
        let Some(bound) = self.bound.get_mut(&flow) else {
            return false;
        };
        bound.sent_at = now;
        let packet = Packet {
            number: numbered.number,
            phase: numbered.phase,
            hops_left: HOPS_LEFT_MAX,
            body,
        };
        plane.send(provider, now, (self.first, &mut bound.binding), packet)
    }
}
