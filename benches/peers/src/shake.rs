//! CPU cost of a handshake to the server.

use core::time::Duration;

use benches::measure::cpu_time_of;
use crypto::{Identity, Provider, Ring, Role};

use crate::lane::Lane;
use crate::stack::{End, SERVER, Stack, client_address};

/// A server to which one new client after another connects.
pub struct Handshakes<S: Stack> {
    server: S::Server,
    /// Number of clients so far.
    clients: u32,
    to_server: Lane,
    to_client: Lane,
    now: Duration,
}

/// Time between turns of a handshake, like the round trip of a path.
const TURN: Duration = Duration::from_millis(10);
/// Maximum turns of a handshake.
const TURNS_MAX: u32 = 1_000;

impl<S: Stack> Handshakes<S> {
    /// Creates the server.
    pub fn new() -> Self {
        Self {
            server: S::server(4),
            clients: 0,
            to_server: Lane::default(),
            to_client: Lane::default(),
            now: Duration::ZERO,
        }
    }

    /// Connects `count` clients, one after another. Returns how many, and the server's CPU time.
    pub fn run(&mut self, count: u64) -> (u64, Duration) {
        (count, (0..count).map(|_| self.connect()).sum())
    }

    /// Connects and disconnects one client. Returns the server's CPU time until both ends have
    /// established the connection and have nothing more to send for it.
    fn connect(&mut self) -> Duration {
        self.clients += 1;
        let mut client = S::client(&self.server, self.clients, self.now);
        let (mut time, mut turns) = (Duration::ZERO, 0);
        while client.connections() == 0 || self.server.connections() == 0 {
            time += self.turn(&mut client);
            turns += 1;
            assert!(turns < TURNS_MAX, "{}: no connection", S::NAME);
        }
        // For confirmations: QUIC's HANDSHAKE_DONE with its acknowledgement, and connection ids.
        for _ in 0..2 {
            time += self.turn(&mut client);
        }
        client.close(self.now);
        while self.server.connections() > 0 {
            self.turn(&mut client);
            turns += 1;
            assert!(turns < TURNS_MAX, "{}: it does not end", S::NAME);
        }
        // Until the server has dropped all state and all budgets are restored.
        for _ in 0..20 {
            self.now += TURN * 20;
            self.turn(&mut client);
        }
        time
    }

    /// Runs the client's turn and then the server's. Returns the CPU time of the latter.
    fn turn(&mut self, client: &mut S::Client) -> Duration {
        let now = self.now;
        self.to_client
            .deliver(|_, datagram| client.take(now, SERVER, datagram));
        client.settle(now);
        client.drain(now, &mut self.to_server);
        self.now += TURN / 2;

        let (now, from) = (self.now, client_address(self.clients));
        let time = cpu_time_of(|| {
            self.to_server
                .deliver(|_, datagram| self.server.take(now, from, datagram));
            self.server.settle(now);
            self.server.drain(now, &mut self.to_client);
        });
        self.now += TURN / 2;
        time
    }
}

impl<S: Stack> Default for Handshakes<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Only the elliptic-curve operations of a server, with P-256 and a signature.
pub struct BareServer {
    provider: Ring,
    signing_key: <Ring as Provider>::SigningKey,
    /// A client's public key.
    client: crypto::PublicKey,
}

impl BareServer {
    /// Generates an identity.
    pub fn new() -> Self {
        let mut provider = Ring::new();
        let identity = Identity::generate(&mut provider).expect("entropy");
        let signing_key = provider.signing_key(&identity).expect("entropy");
        let (_, client) = provider.ephemeral(Role::Dialler).expect("entropy");
        Self {
            provider,
            signing_key,
            client,
        }
    }

    /// Runs one key generation, one key agreement and one signature.
    pub fn shake_hands(&mut self) {
        let provider = &mut self.provider;
        let (mut ours, key) = provider.ephemeral(Role::Accepter).expect("entropy");
        let secret = provider.agree(&mut ours, &self.client).expect("a point");
        core::hint::black_box(secret.expose());
        let signature = provider.sign(&self.signing_key, &key.0);
        core::hint::black_box(signature.expect("entropy"));
    }
}

impl Default for BareServer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::enet::Enet;
    use crate::stack::quinn_proto::QuinnProto;
    use crate::stack::renet::Renet;
    use crate::stack::tickwire::Tickwire;

    fn connects_again_and_again<S: Stack>() {
        let mut handshakes = Handshakes::<S>::new();
        let (count, time) = handshakes.run(20);
        assert_eq!((count, handshakes.server.connections()), (20, 0));
        assert!(time > Duration::ZERO);
    }

    #[test]
    fn every_stack_connects_repeatedly() {
        connects_again_and_again::<Tickwire>();
        connects_again_and_again::<Renet>();
        connects_again_and_again::<QuinnProto>();
        connects_again_and_again::<Enet>();
    }
}
