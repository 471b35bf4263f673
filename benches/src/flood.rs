//! Server cost of a flood of rejected HELLOs.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crypto::token::TokenKey;
use crypto::{Ring, Secret32};
use udp_proto::{Config, Credentials, Endpoint, EndpointStats, Target};
use wire::{Arrival, ClientId, Instant};

use crate::handshake::token;
use crate::pair::{START, Side};

/// A server and one HELLO which arrives repeatedly, each time from another /24.
pub struct Flood {
    server: Endpoint<Ring>,
    hello: Vec<u8>,
    replies: Vec<u8>,
    sources: u32,
    now: Instant,
}

/// Interval between HELLOs: 200,000 per second.
const INTERVAL: Duration = Duration::from_micros(5);

impl Flood {
    /// HELLOs in open mode without a cookie. The server answers each with a RETRY.
    #[must_use]
    pub fn without_cookie() -> Self {
        Self::of(|_, _| Credentials::Open)
    }

    /// HELLOs with a valid sealed token, from a sender without its PSK. The server drops each after
    /// the check of the PSK MAC.
    #[must_use]
    pub fn with_stolen_token() -> Self {
        Self::of(
            |key, server| match token(key, Instant::ZERO, ClientId(1), server.address) {
                Credentials::Token { token, .. } => Credentials::Token {
                    token,
                    psk: Secret32::new([9; 32]),
                },
                other @ (Credentials::Open | Credentials::Peer) => other,
            },
        )
    }

    fn of(credentials: impl FnOnce(&TokenKey, &Side) -> Credentials) -> Self {
        let (mut server, pinned) = Side::listening("192.0.2.1:7777", Config::default());
        let key = TokenKey::generate(&mut Ring::new(), 1).expect("entropy");
        assert!(server.endpoint.add_token_key(key.clone()));
        let target = Target {
            addresses: vec![server.address],
            server: pinned,
            credentials: credentials(&key, &server),
        };
        let mut client = Side::new("198.51.100.1:4000", Config::default());
        client
            .endpoint
            .connect(Instant::ZERO, target)
            .expect("a target that is allowed");
        let mut hello = Vec::new();
        client
            .endpoint
            .poll_transmit(Instant::ZERO, &mut hello)
            .expect("a HELLO is due");
        Self {
            server: server.endpoint,
            hello,
            replies: Vec::new(),
            sources: 0,
            now: Instant::ZERO,
        }
    }

    /// Delivers one HELLO and sends the reply, if there is one.
    pub fn refuse(&mut self) {
        self.now += INTERVAL;
        if self.sources.is_multiple_of(1_000_000) {
            // The wall clock does not advance, because the token would expire in a long run.
            self.server.set_unix_time(self.now, START);
        }
        self.sources = self.sources.wrapping_add(1);
        // From 1.0.0.0/24 to 223.255.255.0/24, then again from the start.
        let prefix = 0x01_0000 + self.sources % 0xDE_0000;
        let source = SocketAddr::from((Ipv4Addr::from_bits(prefix << 8 | 9), 4_000));
        self.server
            .handle_datagram(self.now, Arrival::from(source), &mut self.hello);
        while self
            .server
            .poll_transmit(self.now, &mut self.replies)
            .is_some()
        {}
        self.replies.clear();
    }

    /// Returns the server's counters.
    #[must_use]
    pub const fn stats(&self) -> &EndpointStats {
        self.server.stats()
    }
}

impl core::fmt::Debug for Flood {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flood")
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hello_is_refused_for_the_measured_reason() {
        let mut flood = Flood::without_cookie();
        (0..10_000).for_each(|_| flood.refuse());
        assert_eq!(flood.stats().retried, 10_000);
        let mut flood = Flood::with_stolen_token();
        (0..10_000).for_each(|_| flood.refuse());
        assert_eq!(flood.stats().dropped_psk, 10_000);
    }
}
