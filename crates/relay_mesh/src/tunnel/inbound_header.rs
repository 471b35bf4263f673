//! The inbound PROXY header of a connection at an entry.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use wire::Instant;

use crate::node::is_of_one_host;
use crate::proxy_header::{
    BadHeader, Ends, Found, LEN_USUAL, PolicyViolation, Transport, TrustedProxies, read,
};

/// Reads the PROXY protocol header that a connection begins with, from trusted proxies only.
///
/// Use it for games whose entry names trusted proxies; connections of other games are passed on
/// whole. An untrusted peer may not send a header: it would reach a server that trusts it.
#[derive(Debug)]
pub struct InboundHeader {
    peer: SocketAddr,
    local: SocketAddr,
    deadline: Instant,
    /// Received bytes that may be part of a header.
    bytes: Vec<u8>,
}

/// A connection whose player is known.
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
            deadline: now + PATIENCE,
            bytes: Vec::new(),
        }
    }

    /// Returns the time by which the header must be complete: 5 s from the start, even if bytes
    /// trickle in.
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
                return Err(InboundHeaderError::Header(BadHeader::Family));
            }
            // The game server receives this address and may treat it as one that it can reach.
            if !is_of_one_host(ends.source) {
                return Err(InboundHeaderError::Address);
            }
        }
        Ok(Some(self.inbound(ends, len)))
    }

    /// Decides on a connection whose [`deadline`](Self::deadline) has passed: it is valid if it
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
        let judged = trusted.judge(self.peer.ip(), None);
        judged.map_err(InboundHeaderError::PolicyViolation)?;
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

impl fmt::Display for InboundHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(bad) => bad.fmt(f),
            Self::PolicyViolation(distrust) => distrust.fmt(f),
            Self::Address => {
                f.write_str("a PROXY protocol header names an address that no host can have")
            }
            Self::Slow => f.write_str("a PROXY protocol header was incomplete after 5 s"),
        }
    }
}

impl core::error::Error for InboundHeaderError {}

/// The specification, section 2, requires proxies to send the header at once, in the first segment.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_header::HeaderPolicy;

    const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n";

    fn trusted(need: HeaderPolicy) -> TrustedProxies {
        TrustedProxies::parse(["10.0.0.0/8"], need).unwrap()
    }

    fn inbound_header(peer: &str, need: HeaderPolicy) -> (TrustedProxies, InboundHeader) {
        let ends = (peer.parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        let trusted = trusted(need);
        let inbound_header = InboundHeader::new(ends, Instant::ZERO);
        (trusted, inbound_header)
    }

    fn inbound(player: &str, listen: &str, rest: &[u8]) -> InboundConn {
        InboundConn {
            player: player.parse().unwrap(),
            listen: listen.parse().unwrap(),
            rest: rest.to_vec(),
        }
    }

    #[test]
    fn pgx10_a_header_of_a_trusted_proxy_names_the_player_however_it_is_cut() {
        let bytes = [LINE, b"GET /"].concat();
        for cut in 0..bytes.len() {
            let (trusted, mut inbound_header) =
                inbound_header("10.0.0.1:9", HeaderPolicy::Required);
            let (first, second) = bytes.split_at(cut);
            let told = match inbound_header.take(&trusted, first).unwrap() {
                Some(mut told) => {
                    told.rest.extend_from_slice(second);
                    told
                }
                None => inbound_header.take(&trusted, second).unwrap().unwrap(),
            };
            let expected = inbound("203.0.113.9:4000", "198.51.100.1:443", b"GET /");
            assert_eq!(told, expected, "cut at {cut}");
        }
    }

    #[test]
    fn pgx10_a_header_of_a_stranger_is_refused_and_its_other_bytes_pass() {
        let (trusted, mut stranger) = inbound_header("192.0.2.9:9", HeaderPolicy::Required);
        let refused = stranger.take(&trusted, LINE);
        assert_eq!(
            refused,
            Err(InboundHeaderError::PolicyViolation(
                PolicyViolation::Untrusted
            ))
        );

        let (trusted, mut stranger) = inbound_header("192.0.2.9:9", HeaderPolicy::Required);
        assert_eq!(stranger.take(&trusted, b"P"), Ok(None));
        let expected = inbound("192.0.2.9:9", "192.0.2.1:443", b"PING");
        assert_eq!(stranger.take(&trusted, b"ING"), Ok(Some(expected)));
    }

    #[test]
    fn mesh_c1_a_header_that_names_no_host_or_datagrams_is_refused() {
        let taken = |bytes: &[u8]| {
            let (trusted, mut inbound_header) =
                inbound_header("10.0.0.1:9", HeaderPolicy::Required);
            inbound_header.take(&trusted, bytes)
        };
        for (source, port) in [
            ("255.255.255.255", 1),
            ("224.0.0.1", 1),
            ("0.0.0.0", 1),
            ("203.0.113.9", 0),
        ] {
            let line = format!("PROXY TCP4 {source} 198.51.100.1 {port} 443\r\n");
            let refused = taken(line.as_bytes());
            assert_eq!(refused, Err(InboundHeaderError::Address), "{line}");
        }
        let refused = taken(b"PROXY TCP6 ff02::1 2001:db8::1 1 443\r\n");
        assert_eq!(refused, Err(InboundHeaderError::Address));
        let block = |family: u8| {
            let addresses = [203, 0, 113, 9, 198, 51, 100, 1, 0, 9, 1, 187];
            let signature = b"\r\n\r\n\0\r\nQUIT\n";
            [&signature[..], &[0x21, family, 0, 12], &addresses].concat()
        };
        let expected = inbound("203.0.113.9:9", "198.51.100.1:443", b"");
        assert_eq!(taken(&block(0x11)), Ok(Some(expected)));
        let refused = taken(&block(0x12));
        assert_eq!(refused, Err(InboundHeaderError::Header(BadHeader::Family)));
    }

    #[test]
    fn pgx10_a_proxy_that_dribbles_or_says_nothing_is_not_waited_for() {
        let (trusted, mut slow) = inbound_header("10.0.0.1:9", HeaderPolicy::Optional);
        for byte in &LINE[..LINE.len() - 1] {
            assert_eq!(slow.take(&trusted, &[*byte]), Ok(None));
        }
        assert_eq!(slow.deadline(), Instant::from_millis(5_000));
        assert_eq!(slow.on_timeout(&trusted), Err(InboundHeaderError::Slow));

        let (trusted, mut silent) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
        let bare = Err(InboundHeaderError::PolicyViolation(
            PolicyViolation::Missing,
        ));
        assert_eq!(silent.on_timeout(&trusted), bare);
        for (peer, need) in [
            ("10.0.0.1:9", HeaderPolicy::Optional),
            ("192.0.2.9:9", HeaderPolicy::Required),
        ] {
            let (trusted, mut silent) = inbound_header(peer, need);
            let expected = inbound(peer, "192.0.2.1:443", b"");
            assert_eq!(silent.on_timeout(&trusted), Ok(expected));
        }
    }

    #[test]
    fn mesh_c1_what_can_be_no_header_is_refused_at_once_and_bounded() {
        let (trusted, mut bad) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
        let refused = bad.take(&trusted, b"PROXY UDP9 ");
        assert!(
            matches!(refused, Err(InboundHeaderError::Header(_))),
            "{refused:?}"
        );

        let (trusted, mut long) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
        let mut taken = 0;
        let signature = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
        for byte in signature.iter().chain(&[0; 1_000]) {
            if long.take(&trusted, &[*byte]).is_err() {
                break;
            }
            taken += 1;
        }
        assert!(taken < LEN_USUAL, "{taken}");
    }
}
