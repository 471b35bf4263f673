//! Whole endpoints with datagrams from unknown peers.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use crypto::Identity;
use netsim::provider::SimProvider;
use udp_proto::{
    AppId, Config, Credentials, Endpoint, Listen, Network, ServerIdentity, SessionId, Target,
};
use wire::{Arrival, Instant, Reader, Seed, Truncated};

use crate::crypto_token::{AUDIENCE, NOW, key};

/// The app id of all endpoints.
pub(crate) const APP: AppId = AppId(AUDIENCE.app_id);
/// Address of the server.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7_777));
/// Address of the client.
pub(crate) const CLIENT: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 4_000));

/// Returns a server with all modes, and the identity that its clients pin. It is deterministic.
pub(crate) fn server(config: Config) -> (Endpoint<SimProvider>, ServerIdentity) {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let identity = Identity::generate(&mut provider).expect("seeded");
    let pinned = ServerIdentity::Keys(vec![*identity.public_key()]);
    let mut server = Endpoint::new(config, APP, provider, Instant::ZERO).expect("seeded");
    let network = Network {
        secret: crypto::Secret32::new([3; 32]),
        previous: None,
    };
    let listen = Listen::new(identity, AUDIENCE.server_id)
        .with_open_mode()
        .with_network(network);
    server.listen(Instant::ZERO, listen).expect("seeded");
    assert!(server.add_token_key(key()));
    server.set_unix_time(Instant::ZERO, NOW);
    (server, pinned)
}

/// Returns a client which has started to connect to the server in open mode. It is deterministic.
pub(crate) fn client(config: Config, pinned: ServerIdentity) -> (Endpoint<SimProvider>, SessionId) {
    let provider = SimProvider::new(Seed::from_number(2));
    let mut client = Endpoint::new(config, APP, provider, Instant::ZERO).expect("seeded");
    let target = Target {
        addresses: vec![SERVER],
        server: pinned,
        credentials: Credentials::Open,
    };
    let session = client
        .connect(Instant::ZERO, target)
        .expect("one address, free slots");
    (client, session)
}

/// Delivers arbitrary datagrams from a few addresses to a server and to a connecting client.
/// Exactly one counter counts each. Until a peer has proved a session's key, the server sends at
/// most one reply per datagram, and never more than a fraction of the received bytes.
pub fn first_bytes(data: &[u8]) {
    let (server, pinned) = server(Config::default());
    let (client, _) = client(Config::default(), pinned);
    let mut strangers = Strangers {
        machines: [server, client],
        fed: [0; 2],
        now: Instant::ZERO,
    };
    let mut reader = Reader::new(data);
    while let Ok(op) = reader.u8() {
        if strangers.step(op, &mut reader).is_err() {
            break;
        }
    }
}

struct Strangers {
    machines: [Endpoint<SimProvider>; 2],
    /// Datagrams delivered to each.
    fed: [u64; 2],
    now: Instant,
}

impl Strangers {
    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let mut datagram = datagram(op, reader)?;
        if op & 2 != 0 {
            self.now += Duration::from_millis(150);
        }
        let source = SocketAddr::from(([203, 0, 113, op >> 6], 5_000));
        let source = if op & 4 == 0 { source } else { SERVER };
        let which = usize::from(op & 1);
        let [server, client] = &mut self.machines;
        let machine = if which == 0 { server } else { client };
        machine.handle_datagram(self.now, Arrival::from(source), &mut datagram);
        if let Some(fed) = self.fed.get_mut(which) {
            *fed += 1;
        }
        self.check();
        Ok(())
    }

    fn check(&mut self) {
        let mut out = Vec::new();
        for (machine, fed) in self.machines.iter_mut().zip(self.fed) {
            if machine.poll_timeout().is_some_and(|at| at <= self.now) {
                machine.handle_timeout(self.now);
            }
            while machine.poll_transmit(self.now, &mut out).is_some() {}
            out.clear();
            while machine.poll_event().is_some() {}
            assert_eq!(machine.stats().datagrams_received(), fed, "not one fate");
        }
        let [server, _] = &self.machines;
        let (stats, [fed, _]) = (server.stats(), self.fed);
        if stats.sessions_opened == 0 {
            assert!(stats.datagrams_sent <= fed, "two answers to one");
            let allowed = stats.bytes_received * 35 / 100;
            assert!(stats.bytes_sent <= allowed, "amplified: {stats:?}");
        }
        assert!(server.session_count() <= 1_024, "half-open slots");
    }
}

/// Reads the next datagram: a length in 2 bytes, then up to that many bytes. If `op` says so, it is
/// padded with zeros to the length of a HELLO.
fn datagram(op: u8, reader: &mut Reader<'_>) -> Result<Vec<u8>, Truncated> {
    let len = usize::from(reader.u16()? % 2_048);
    let mut datagram = reader.bytes(len.min(reader.len()))?.to_vec();
    if op & 8 != 0 && datagram.len() < 1_200 {
        datagram.resize(1_200, 0);
    }
    Ok(datagram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_a_half_open_slot() {
        let script = include_bytes!("../corpus/udp_first_bytes/seed_to_server");
        let (machine, pinned) = server(Config::default());
        let mut strangers = Strangers {
            machines: [machine, client(Config::default(), pinned).0],
            fed: [0; 2],
            now: Instant::ZERO,
        };
        let mut reader = Reader::new(script);
        while let Ok(op) = reader.u8() {
            strangers.step(op, &mut reader).unwrap();
        }
        let [server, _] = &strangers.machines;
        let stats = server.stats();
        let seen = (stats.accepted, stats.accept_repeated, stats.retried);
        assert_eq!(seen, (1, 1, 3), "{stats:?}");
    }
}
