//! Connection setup: from `connect` to a session established at both ends.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::token::{TokenGrant, TokenKey, UserData};
use crypto::{AddressList, Ring, Secret32};
use udp_proto::{CloseCode, Config, Credentials, ServerIdentity, Target};
use wire::{ClientId, Instant, MatchId, Seat, Team};

use crate::measure::{Case, cpu_time_of};
use crate::pair::{APP, INSTANCE, Lane, START, Side};

/// A client that connects to a server, with a new token each time.
pub struct Handshakes {
    client: Side,
    server: Side,
    pinned: ServerIdentity,
    token_key: TokenKey,
    now: Instant,
}

impl Handshakes {
    /// Creates both, and the key of the server's tokens.
    #[must_use]
    pub fn new() -> Self {
        let (mut server, pinned) = Side::listening("192.0.2.1:7777", Config::default());
        let client = Side::new("198.51.100.1:4000", Config::default());
        let token_key = TokenKey::generate(&mut Ring::new(), 1).expect("entropy");
        assert!(server.endpoint.add_token_key(token_key.clone()));
        Self {
            client,
            server,
            pinned,
            token_key,
            now: Instant::ZERO,
        }
    }

    /// Connects once. Returns the CPU time of both ends together.
    pub fn connect(&mut self) -> Duration {
        let target = Target {
            addresses: vec![self.server.address],
            server: self.pinned.clone(),
            credentials: token(&self.token_key, self.now, ClientId(1), self.server.address),
        };
        let time = cpu_time_of(|| {
            self.client
                .endpoint
                .connect(self.now, target)
                .expect("a target that is allowed");
            // HELLO, ACCEPT, CONFIRM.
            while self.client.session.is_none() || self.server.session.is_none() {
                self.round();
            }
        });
        self.part();
        time
    }

    /// Each side sends its datagrams and receives the other's.
    fn round(&mut self) {
        let mut lane = Lane::default();
        lane.drain(self.now, &mut self.client.endpoint);
        lane.deliver(self.now, self.client.address, &mut self.server.endpoint);
        self.server.settle(self.now);
        lane.drain(self.now, &mut self.server.endpoint);
        lane.deliver(self.now, self.server.address, &mut self.client.endpoint);
        self.client.settle(self.now);
    }

    /// Closes the session and waits until both ends have dropped its state.
    fn part(&mut self) {
        let session = self.client.session.expect("connected");
        self.client
            .endpoint
            .close(self.now, session, CloseCode::NoError, &[])
            .expect("open");
        while self.client.endpoint.session_count() + self.server.endpoint.session_count() > 0 {
            self.round();
            self.now += Duration::from_millis(50);
            self.client.settle(self.now);
            self.server.settle(self.now);
        }
        let unix = START + self.now.saturating_since(Instant::ZERO);
        self.server.endpoint.set_unix_time(self.now, unix);
    }
}

impl Default for Handshakes {
    fn default() -> Self {
        Self::new()
    }
}

impl Case for Handshakes {
    fn run(&mut self, count: u32) -> Duration {
        (0..count).map(|_| self.connect()).sum()
    }
}

impl core::fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handshakes")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Returns a token of `client` for the server at `address` with its PSK, as a matchmaker issues
/// them.
#[must_use]
pub fn token(key: &TokenKey, now: Instant, client: ClientId, address: SocketAddr) -> Credentials {
    let mut provider = Ring::new();
    let psk = Secret32::random(&mut provider).expect("entropy");
    let issued_at = START + now.saturating_since(Instant::ZERO);
    let grant = TokenGrant {
        issued_at,
        expires_at: issued_at + Duration::from_secs(60),
        client_id: client,
        psk: psk.clone(),
        server_id: INSTANCE,
        addresses: AddressList::new(&[address]).expect("one"),
        match_id: MatchId([7; 16]),
        seat: Seat(0),
        team: Team(0),
        user: UserData::default(),
    };
    let sealed = key
        .seal(&mut provider, APP.0, &grant)
        .expect("an allowed lifetime");
    Credentials::Token {
        token: sealed.as_bytes().to_vec(),
        psk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handshake_takes_one_hello_and_one_accept() {
        let mut handshakes = Handshakes::new();
        assert!(handshakes.run(20) > Duration::ZERO);
        let stats = handshakes.server.endpoint.stats();
        assert_eq!((stats.accepted, stats.retried), (20, 0));
        assert_eq!(stats.sessions_opened, 20);
    }
}
