//! PROXY headers of streams: inbound from trusted proxies at an entry, outbound to game servers at
//! an exit.

use core::net::SocketAddr;
use core::time::Duration;

use wire::Instant;

use super::open_record::OpenRecord;
use crate::game::{HeaderExtras, ServerHeader};
use crate::peer_addr::is_single_host;
use crate::proxy_header::{
    BadBlock, BadHeader, Ends, Found, LEN_USUAL, PolicyViolation, Subject, Tlv, TlvKind, Transport,
    TrustedProxies, Version, WriteError, read, write_block, write_line,
};

/// Reads the PROXY protocol header that a connection begins with, for games with trusted
/// proxies. An untrusted peer may not send a header: it would reach a server that trusts
/// it.
#[derive(Debug)]
pub struct InboundHeader {
    peer: SocketAddr,
    local: SocketAddr,
    deadline: Instant,
    /// Received bytes that may be part of a header.
    bytes: Vec<u8>,
}

/// A connection of a known player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundConn {
    /// The player's address.
    pub player: SocketAddr,
    /// The address that the player connected to.
    pub listen: SocketAddr,
    /// The bytes after the header: the first of the game's own.
    pub rest: Vec<u8>,
}

impl InboundHeader {
    /// Starts for a connection from `peer`, accepted at `local`.
    #[must_use]
    pub fn new((peer, local): (SocketAddr, SocketAddr), now: Instant) -> Self {
        Self {
            peer,
            local,
            deadline: now + TIMEOUT,
            bytes: Vec::new(),
        }
    }

    /// Returns the time by which the header must be complete: 5 s from the start.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Handles the connection's next bytes; `None` if more are needed. Buffers fewer than 536 bytes
    /// besides the last input.
    ///
    /// # Errors
    ///
    /// [`InboundHeaderError`] if the connection must be reset.
    pub fn take(
        &mut self,
        trusted: &TrustedProxies,
        bytes: &[u8],
    ) -> Result<Option<InboundConn>, InboundHeaderError> {
        self.bytes.extend_from_slice(bytes);
        let found = read(&self.bytes, LEN_USUAL).map_err(InboundHeaderError::Header)?;
        let (header, len) = match &found {
            Found::Partial { .. } => return Ok(None),
            Found::Nothing => (None, 0),
            Found::Header(header) => (Some(header), header.len),
        };
        let ends = trusted.judge(self.peer.ip(), header);
        let ends = ends.map_err(InboundHeaderError::PolicyViolation)?;
        if let Some(ends) = &ends {
            if ends.transport != Transport::Stream {
                return Err(InboundHeaderError::Header(BadBlock::Family.into()));
            }
            // The game server receives this address and may treat it as one that it can reach.
            if !is_single_host(ends.source) {
                return Err(InboundHeaderError::Address);
            }
        }
        Ok(Some(self.inbound(ends, len)))
    }

    /// Decides on a connection after its [`deadline`](Self::deadline): it is valid if it
    /// sent nothing and needs no header.
    ///
    /// # Errors
    ///
    /// [`InboundHeaderError`] if it must be reset.
    pub fn on_timeout(
        &mut self,
        trusted: &TrustedProxies,
    ) -> Result<InboundConn, InboundHeaderError> {
        if !self.bytes.is_empty() {
            return Err(InboundHeaderError::Slow);
        }
        let ends = trusted.judge(self.peer.ip(), None);
        ends.map_err(InboundHeaderError::PolicyViolation)?;
        Ok(self.inbound(None, 0))
    }

    fn inbound(&mut self, ends: Option<Ends>, len: usize) -> InboundConn {
        let mut rest = core::mem::take(&mut self.bytes);
        rest.drain(..len.min(rest.len()));
        InboundConn {
            player: ends.map_or(self.peer, |ends| ends.source),
            listen: ends.map_or(self.local, |ends| ends.destination),
            rest,
        }
    }
}

/// Why a connection is reset at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboundHeaderError {
    /// Its header is malformed.
    Header(BadHeader),
    /// It has a header that is not allowed, or lacks a required one.
    PolicyViolation(PolicyViolation),
    /// A header was incomplete at the deadline.
    Slow,
    /// The header's source is no host: a broadcast, multicast or unspecified address, or port 0.
    Address,
}

wire::error_text! { InboundHeaderError {
    Self::Header(bad) => "{bad}",
    Self::PolicyViolation(distrust) => "{distrust}",
    Self::Address => "a PROXY protocol header names an address that no host can have",
    Self::Slow => "a PROXY protocol header was incomplete after 5 s",
}}

/// The specification, section 2, requires proxies to send the header at once, in the first segment.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An exit's data for a stream's header, besides its open record.
#[derive(Clone, Copy, Debug)]
pub struct OutboundHeader<'a> {
    /// The form of the header.
    pub header: ServerHeader,
    /// The stream's unique id: 8 bytes of the exit's run, 8 of the stream within it.
    pub session: [u8; 16],
    /// The nodes on the route, 8 bytes each, the entry first.
    pub nodes: &'a [u8],
}

impl OutboundHeader<'_> {
    /// Appends the header of a stream that began with `open`.
    ///
    /// Its destination is the address that the player connected to; the specification, section 2.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the header is invalid; nothing is appended then. No decoded record is
    /// known to cause it.
    pub fn write(&self, open: &OpenRecord, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let ends = Ends {
            transport: Transport::Stream,
            source: open.player,
            destination: open.listen,
        };
        let extras = self.header.extras;
        let session = Tlv {
            kind: TlvKind::SESSION_ID,
            value: &self.session,
        };
        let nodes = Tlv {
            kind: TlvKind::NODES,
            value: self.nodes,
        };
        let has = |extra| extras.contains(extra);
        let tlvs: &[Tlv<'_>] = match (has(HeaderExtras::SESSION_ID), has(HeaderExtras::NODES)) {
            (true, true) => &[session, nodes],
            (true, false) => &[session],
            (false, true) => &[nodes],
            (false, false) => &[],
        };
        match self.header.version {
            Version::One => write_line(&ends, out),
            Version::Two => write_block(&Subject::Flow(ends), tlvs, extras.checksum(), out),
        }
    }
}

#[cfg(test)]
mod tests;
