//! Trusted exits, and the player addresses that they report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

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
        let header = match ProxyHeader::read(datagram) {
            Ok(Some(header)) => header,
            Ok(None) => {
                let source = known.map(|state| {
                    state.moved_at = now;
                    state.source
                });
                return Some((source, datagram));
            }
            Err(BadHeader) => {
                ledger.dropped_in_exit_header.add(1);
                return None;
            }
        };
        ledger.exit_headers.add(1);
        let rest = datagram.get_mut(header.len..)?;
        let before = known.map(|state| state.source);
        if before != header.source && !self.may_change(now, (place, flow), machine) {
            ledger.dropped_in_exit_taken.add(1);
            return None;
        }
        if before.is_none() && header.source.is_some() && !self.has_room(now, place, machine) {
            ledger.dropped_in_exit_full.add(1);
            return None;
        }
        let flows = &mut self.list.get_mut(place)?.flows;
        match header.source {
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
        Some((header.source, rest))
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
        machine.tell_peers(&mut |peer| {
            self.each_of(&peer, |state| {
                (state.has_session, state.placed_at) = (true, now);
            });
        });
        true
    }
}

/// A PROXY protocol header, version 2, with which an exit names the player of a flow.
///
/// W. Tarreau, "The PROXY protocol, versions 1 and 2", section 2.2: 12 bytes of signature, version
/// and command, family and protocol, the length of the rest, then source and destination address,
/// source and destination port, and extensions, which are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProxyHeader {
    /// The player's address; `None` if the exit speaks for itself or names no address.
    source: Option<SocketAddr>,
    len: usize,
}

/// The signature is present, but the header is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BadHeader;

impl ProxyHeader {
    /// Parses the header at the start of `datagram`; `None` if there is none.
    fn read(datagram: &[u8]) -> Result<Option<Self>, BadHeader> {
        let [first, ..] = SIGNATURE;
        if datagram.first() != Some(&first) {
            return Ok(None);
        }
        let (fixed, rest) = datagram.split_first_chunk::<FIXED_LEN>().ok_or(BadHeader)?;
        let [signature @ .., command, family, high, low] = fixed;
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if *signature != SIGNATURE || len > REST_MAX {
            return Err(BadHeader);
        }
        let addresses = rest.get(..len).ok_or(BadHeader)?;
        let source = match command {
            // LOCAL, for example a health check: the addresses are ignored.
            0x20 => None,
            0x21 => source(*family, addresses)?,
            _ => return Err(BadHeader),
        };
        Ok(Some(Self {
            source,
            len: len.saturating_add(FIXED_LEN),
        }))
    }
}

fn source(family: u8, addresses: &[u8]) -> Result<Option<SocketAddr>, BadHeader> {
    let (ip, port) = match family {
        // AF_UNSPEC.
        0x00 => return Ok(None),
        0x12 => {
            let [a, b, c, d, _, _, _, _, high, low, _, _] =
                addresses.first_chunk::<12>().ok_or(BadHeader)?;
            (IpAddr::from([*a, *b, *c, *d]), [*high, *low])
        }
        0x22 => {
            let [ip @ .., high, low, _, _] = addresses.first_chunk::<36>().ok_or(BadHeader)?;
            let (ip, _) = ip.split_first_chunk::<16>().ok_or(BadHeader)?;
            (IpAddr::from(*ip).to_canonical(), [*high, *low])
        }
        _ => return Err(BadHeader),
    };
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(BadHeader);
    }
    Ok(Some(SocketAddr::new(ip, u16::from_be_bytes(port))))
}

/// The first bytes of every header. No datagram of our protocols begins with its first byte.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const FIXED_LEN: usize = 16;
/// Maximum length of the rest. An exit needs no more.
const REST_MAX: usize = 240;

#[cfg(test)]
mod tests;
