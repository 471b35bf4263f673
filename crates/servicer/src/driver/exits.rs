//! Trusted exits, and the player addresses that they report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use wire::proxy_header::{self, BadHeader, BlockRead, Ends, Family, SIGNATURE, Subject, Transport};
use wire::{Instant, Machine};

use super::application::PeerAddress;
use crate::counters::Ledger;
use crate::socket::{Envelope, SocketIndex};

/// Trusted exits, and the player address of each of their flows.
///
/// A flow is an address of an exit and one of our sockets. Only the exit's IP address authenticates
/// a header, so anyone who can forge that address could set the player address of any of its flows.
/// Two rules limit this: an active flow keeps its player address, and a flow without a session can
/// keep its entry from others only for the time of a handshake, however often its header is
/// repeated.
///
/// An exit sends its header until it has received a datagram from us. A datagram without a header
/// soon after we have sent is therefore the player's own, and so is any header at its start. So a
/// flow also counts as active while we send.
#[derive(Debug, Default)]
pub(super) struct Exits {
    list: Vec<Exit>,
    flows_max: usize,
    refreshed_at: Option<Instant>,
}

#[derive(Debug)]
struct Exit {
    ip: IpAddr,
    flows: BTreeMap<Flow, FlowState>,
}

/// The exit's port, and our socket.
type Flow = (u16, SocketIndex);

#[derive(Clone, Copy, Debug)]
struct FlowState {
    source: SocketAddr,
    /// When the entry was created, or last had a session.
    placed_at: Instant,
    /// When a datagram was last received from or sent to the flow.
    moved_at: Instant,
    has_session: bool,
}

impl FlowState {
    fn is_expired(&self, now: Instant) -> bool {
        !self.has_session && now.saturating_since(self.placed_at) > HANDSHAKE_MAX
    }

    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_since(self.moved_at) > HANDSHAKE_MAX
    }
}

/// Time for a flow's handshake, and silence after which a flow may be reassigned.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Minimum time between two session checks. Each iterates over all sessions and all flows.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

impl Exits {
    pub(super) fn new(trusted: &[IpAddr], flows_max: usize) -> Self {
        let exit = |ip: &IpAddr| Exit {
            ip: ip.to_canonical(),
            flows: BTreeMap::new(),
        };
        Self {
            list: trusted.iter().map(exit).collect(),
            flows_max,
            refreshed_at: None,
        }
    }

    /// Strips the PROXY header of a datagram from a trusted exit. Returns the player's address, if
    /// known, and the rest of the datagram. Returns `None` if the datagram must be dropped.
    pub(super) fn unwrap<'a, M: Machine<Peer: PeerAddress>>(
        &mut self,
        (now, envelope): (Instant, &Envelope),
        datagram: &'a mut [u8],
        machine: &M,
        ledger: &Ledger,
    ) -> Option<(Option<SocketAddr>, &'a mut [u8])> {
        let ip = envelope.remote.ip();
        let Some(place) = self.list.iter().position(|exit| exit.ip == ip) else {
            return Some((None, datagram));
        };
        let flow = (envelope.remote.port(), envelope.socket);
        let known = self.flow_mut(place, flow);
        let (source, len) = match read_header(datagram) {
            Ok(Some(header)) => header,
            Ok(None) => {
                let source = known.map(|state| {
                    state.moved_at = now;
                    state.source
                });
                return Some((source, datagram));
            }
            Err(_) => {
                ledger.dropped_in_exit_header.add(1);
                return None;
            }
        };
        ledger.exit_headers.add(1);
        let rest = datagram.get_mut(len..)?;
        let before = known.map(|state| state.source);
        if before != source && !self.may_change(now, (place, flow), machine) {
            ledger.dropped_in_exit_taken.add(1);
            return None;
        }
        if before.is_none() && source.is_some() && !self.has_room(now, place, machine) {
            ledger.dropped_in_exit_full.add(1);
            return None;
        }
        let flows = &mut self.list.get_mut(place)?.flows;
        match source {
            Some(source) => {
                let new = FlowState {
                    source,
                    placed_at: now,
                    moved_at: now,
                    has_session: false,
                };
                if before == Some(source) {
                    flows.entry(flow).or_insert(new).moved_at = now;
                } else {
                    flows.insert(flow, new);
                }
            }
            None => drop(flows.remove(&flow)),
        }
        Some((source, rest))
    }

    fn flow_mut(&mut self, place: usize, flow: Flow) -> Option<&mut FlowState> {
        self.list.get_mut(place)?.flows.get_mut(&flow)
    }

    fn may_change<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        (place, flow): (usize, Flow),
        machine: &M,
    ) -> bool {
        let is_silent = |state: &mut FlowState| state.is_silent(now);
        if self.flow_mut(place, flow).is_some_and(is_silent) {
            self.refresh_sessions(now, machine);
        }
        self.flow_mut(place, flow)
            .is_none_or(|state| state.is_silent(now) && !state.has_session)
    }

    pub(super) fn on_sent<P: PeerAddress>(&mut self, now: Instant, peer: &P) {
        self.each_of(peer, |state| state.moved_at = now);
    }

    /// Calls `act` for the flows of a peer. If the peer names no socket, there may be several.
    fn each_of<P: PeerAddress>(&mut self, peer: &P, act: impl FnMut(&mut FlowState)) {
        if self.list.is_empty() {
            return;
        }
        let address = peer.address();
        let ip = address.ip().to_canonical();
        let Some(exit) = self.list.iter_mut().find(|exit| exit.ip == ip) else {
            return;
        };
        let any = (SocketIndex(0), SocketIndex(u32::MAX));
        let (first, last) = peer.socket().map_or(any, |socket| (socket, socket));
        let port = address.port();
        let flows = exit.flows.range_mut((port, first)..=(port, last));
        flows.map(|(_, state)| state).for_each(act);
    }

    /// Returns whether an exit may have another flow, after removal of expired ones.
    fn has_room<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        place: usize,
        machine: &M,
    ) -> bool {
        let flows_max = self.flows_max;
        let is_full = |exits: &Self| {
            let exit = exits.list.get(place);
            exit.is_none_or(|exit| exit.flows.len() >= flows_max)
        };
        if is_full(self) && self.refresh_sessions(now, machine) {
            for exit in &mut self.list {
                exit.flows.retain(|_, state| !state.is_expired(now));
            }
        }
        !is_full(self)
    }

    /// Updates which flows have a session, if [`REFRESH_INTERVAL`] has passed; returns that.
    fn refresh_sessions<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        machine: &M,
    ) -> bool {
        let is_due = |at: Instant| now.saturating_since(at) >= REFRESH_INTERVAL;
        if !self.refreshed_at.is_none_or(is_due) {
            return false;
        }
        self.refreshed_at = Some(now);
        for exit in &mut self.list {
            for state in exit.flows.values_mut() {
                state.has_session = false;
            }
        }
        machine.for_each_peer(&mut |peer| {
            self.each_of(&peer, |state| {
                (state.has_session, state.placed_at) = (true, now);
            });
        });
        true
    }
}

/// Reads the PROXY header with which an exit names the player of a flow: the player's address, and
/// the header's length. Extensions are skipped.
///
/// Returns no address if the exit speaks for itself or names none, and `None` if there is no
/// header.
fn read_header(datagram: &[u8]) -> Result<Option<(Option<SocketAddr>, usize)>, BadHeader> {
    // No datagram of our protocols begins with this byte.
    if datagram.first() != SIGNATURE.first() {
        return Ok(None);
    }
    let BlockRead::Whole(header) = proxy_header::read(datagram, HEADER_MAX)? else {
        return Err(BadHeader::Short);
    };
    let source = match header.subject {
        Subject::Flow(ends) if is_player(&ends) => Some(ends.source),
        Subject::Unnamed if header.family == Family::None => None,
        Subject::Proxy => None,
        Subject::Flow(_) | Subject::Unnamed => return Err(BadHeader::Family),
    };
    Ok(Some((source, header.bytes.len())))
}

const fn is_player(ends: &Ends) -> bool {
    let ip = ends.source.ip();
    matches!(ends.transport, Transport::Datagram) && !ip.is_unspecified() && !ip.is_multicast()
}

/// Maximum length of a header. An exit needs no more.
const HEADER_MAX: usize = 256;

#[cfg(test)]
mod tests;
