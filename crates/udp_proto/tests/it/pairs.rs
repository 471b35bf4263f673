//! K11: endpoints with each pair of providers, in every mode and suite, across a key update.

use core::time::Duration;

use crypto::{Identity, Provider, Secret32, Suite};
use netsim::provider::SimProvider;
use udp_proto::{Config, Credentials, Listen, Network, ServerIdentity, SessionId, Target};
use wire::{InstanceId, Instant, Seed};

use crate::direct::{CLIENT, Party, START, Sent, UNIX};
use crate::harness::{Keys, RELIABLE, SERVER, UNRELIABLE, address};

/// Makes a test for each ordered pair of dialing and accepting provider.
macro_rules! pairs {
    ($($(#[$limiter:meta])* $name:ident: $client:expr, $server:expr;)+) => {$(
        $(#[$limiter])*
        #[test]
        fn $name() {
            super::twp_k11_sessions_of_every_mode_and_suite_work(|| $client, || $server);
        }
    )+};
}

mod twp_k11_sessions_of_every_mode_and_suite_work {
    #[cfg(feature = "aws-lc-rs")]
    use crypto::AwsLcRs;
    #[cfg(feature = "ring")]
    use crypto::Ring;
    use crypto::RustCrypto;

    use super::sim;

    pairs! {
        #[cfg(feature = "ring")]
        ring_with_ring: Ring::new(), Ring::new();
        #[cfg(feature = "ring")]
        ring_with_rustcrypto: Ring::new(), RustCrypto::new();
        #[cfg(feature = "ring")]
        ring_with_sim: Ring::new(), sim(2);
        #[cfg(feature = "ring")]
        rustcrypto_with_ring: RustCrypto::new(), Ring::new();
        rustcrypto_with_rustcrypto: RustCrypto::new(), RustCrypto::new();
        rustcrypto_with_sim: RustCrypto::new(), sim(2);
        #[cfg(feature = "ring")]
        sim_with_ring: sim(1), Ring::new();
        sim_with_rustcrypto: sim(1), RustCrypto::new();
        sim_with_sim: sim(1), sim(2);
        #[cfg(feature = "aws-lc-rs")]
        aws_lc_rs_with_aws_lc_rs: AwsLcRs::new(), AwsLcRs::new();
        #[cfg(all(feature = "aws-lc-rs", feature = "ring"))]
        aws_lc_rs_with_ring: AwsLcRs::new(), Ring::new();
        #[cfg(feature = "aws-lc-rs")]
        aws_lc_rs_with_rustcrypto: AwsLcRs::new(), RustCrypto::new();
        #[cfg(feature = "aws-lc-rs")]
        aws_lc_rs_with_sim: AwsLcRs::new(), sim(2);
        #[cfg(all(feature = "aws-lc-rs", feature = "ring"))]
        ring_with_aws_lc_rs: Ring::new(), AwsLcRs::new();
        #[cfg(feature = "aws-lc-rs")]
        rustcrypto_with_aws_lc_rs: RustCrypto::new(), AwsLcRs::new();
        #[cfg(feature = "aws-lc-rs")]
        sim_with_aws_lc_rs: sim(1), AwsLcRs::new();
    }
}

fn sim(purpose: u64) -> SimProvider {
    SimProvider::new(Seed::from_number(11).generator(purpose).seed())
}

/// How a client connects.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Token,
    Open,
    Peer,
}

fn twp_k11_sessions_of_every_mode_and_suite_work<A: Provider, B: Provider>(
    client: impl Fn() -> A,
    server: impl Fn() -> B,
) {
    for suite in Suite::ALL {
        for mode in [Mode::Token, Mode::Open, Mode::Peer] {
            let mut pair = Pair::new(client(), server(), suite);
            let sessions = pair.connect(mode);
            pair.talk(sessions, &format!("{suite:?} {mode:?}"));
        }
    }
}

/// A client and a server on a line without faults.
struct Pair<A: Provider, B: Provider> {
    now: Instant,
    keys: Keys,
    client: Party<A>,
    server: Party<B>,
    /// First byte of each packet, of the client and of the server.
    flags: [Vec<u8>; 2],
}

impl<A: Provider, B: Provider> Pair<A, B> {
    fn new(client: A, server: B, suite: Suite) -> Self {
        let keys = Keys::new(Seed::from_number(12));
        let mut config = Config::default();
        config.suite = suite;
        let shape = |listen: Listen| listen.with_open_mode().with_network(network());
        Self {
            now: START,
            client: Party::new(CLIENT, Config::default(), client),
            server: Party::server(config, &keys, server, shape),
            keys,
            flags: Default::default(),
        }
    }

    /// Runs the handshake; returns the client's and the server's session.
    fn connect(&mut self, mode: Mode) -> (SessionId, SessionId) {
        let (server, credentials) = match mode {
            Mode::Token => {
                let token = self.keys.token(UNIX, 1, address(SERVER));
                (ServerIdentity::Keys(vec![self.keys.public()]), token)
            }
            Mode::Open => {
                let keys = vec![self.keys.public()];
                (ServerIdentity::Keys(keys), Credentials::Open)
            }
            Mode::Peer => {
                let identity = Identity::generate(&mut sim(3)).unwrap();
                let listen = Listen::new(identity, InstanceId(9)).with_network(network());
                self.client.machine.listen(self.now, listen).unwrap();
                let node = self.keys.public().node_id();
                (ServerIdentity::Node(node), Credentials::Peer)
            }
        };
        let target = Target {
            addresses: vec![address(SERVER)],
            server,
            credentials,
        };
        let session = self.client.machine.connect(self.now, target).unwrap();
        self.settle();
        assert_eq!(self.client.sessions(), [session]);
        (session, self.server.sessions()[0])
    }

    /// 200 packets with a message each way, with a key update after half of them.
    fn talk(&mut self, (ours, theirs): (SessionId, SessionId), what: &str) {
        for number in 0..200_u8 {
            if number == 100 {
                self.client.machine.update_keys(self.now, ours).unwrap();
            }
            let channel = if number % 2 == 0 {
                UNRELIABLE
            } else {
                RELIABLE
            };
            let message = vec![number; usize::from(number) * 5];
            let (now, client, server) =
                (self.now, &mut self.client.machine, &mut self.server.machine);
            client.send(now, ours, channel, &message).unwrap();
            server.send(now, theirs, channel, &message).unwrap();
            self.settle();
            self.now += Duration::from_millis(10);
            self.client.wake(self.now);
            self.server.wake(self.now);
        }
        self.settle();
        for incoming in [&self.client.messages, &self.server.messages] {
            let numbers = (0..200_u8).map(|number| vec![number; usize::from(number) * 5]);
            assert!(
                incoming
                    .iter()
                    .map(|(_, message)| message.clone())
                    .eq(numbers)
            );
        }
        for flags in &self.flags {
            assert!(flags.len() >= 200, "{what}");
            let flips = flags.chunk_by(|a, b| a & 0x20 == b & 0x20).count();
            assert_eq!(flips, 2, "{what}");
        }
        for (stats, bytes) in [
            (self.client.machine.session_stats(ours), "client"),
            (self.server.machine.session_stats(theirs), "server"),
        ] {
            let stats = stats.unwrap();
            let phases = (stats.key_phase_sent, stats.key_phase_received);
            assert_eq!(
                (phases, stats.packets_unopened),
                ((1, 1), 0),
                "{what} {bytes}"
            );
        }
    }

    fn settle(&mut self) {
        loop {
            let (up, down) = (self.client.drain(self.now), self.server.drain(self.now));
            if up.is_empty() && down.is_empty() {
                return;
            }
            for (flags, sent) in self.flags.iter_mut().zip([&up, &down]) {
                let first = sent.iter().map(|sent| sent.bytes[0]);
                flags.extend(first.filter(|first| first & 0xC0 == 0x40));
            }
            for Sent { bytes, .. } in up {
                self.server.take(self.now, self.client.at, &bytes);
            }
            for Sent { bytes, .. } in down {
                self.client.take(self.now, self.server.at, &bytes);
            }
        }
    }
}

fn network() -> Network {
    Network {
        secret: Secret32::new([7; 32]),
        previous: None,
    }
}
