//! The machine contract, checked for a server, its clients and mesh nodes together.

use core::cell::Cell;
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{LazyLock, Mutex};

use crypto::{Identity, Provider, PublicKey, Role, Secret32};
use netsim::contract::PeerOf;
use netsim::provider::SimProvider;
use netsim::{ContractSubject, Limits, check_contract, test_site};
use udp_proto::handshake::hello::Hello;
use udp_proto::{
    CloseCode, Config, Credentials, Endpoint, IdleTimeout, Listen, Network, ServerIdentity,
    SessionId, Target,
};
use wire::{Generator, InstanceId, Instant, NodeId, Seed, UnixTime};

use crate::harness::{APP, INSTANCE, Keys, RELIABLE, UNRELIABLE, runs_its_own_seeds};
use crate::rogue::{Rogue, no_point};

/// Machine 0 accepts tokens and strangers; 1 and 2 are its clients; 3 and 4 are mesh nodes.
#[derive(Default)]
struct Group {
    /// Sessions opened and datagrams dropped, by machine, in the runs that call `stuck`.
    seen: [Cell<(u64, u64)>; 5],
}

const SERVER: usize = 0;
const NODES: [usize; 2] = [3, 4];

fn at(index: usize) -> SocketAddr {
    let octet = u8::try_from(index).unwrap();
    SocketAddr::from(([198, 51, octet, 1], 7_000))
}

/// The same in every run, so that pokes need no state; made once, since key generation is slow.
fn with_keys<R>(act: impl FnOnce(&mut Keys) -> R) -> R {
    static KEYS: LazyLock<Mutex<Keys>> =
        LazyLock::new(|| Mutex::new(Keys::new(Seed::from_number(77))));
    act(&mut KEYS.lock().unwrap())
}

fn node_identity(index: usize) -> Identity {
    static NODES: LazyLock<[Identity; 2]> = LazyLock::new(|| {
        [3, 4].map(|number| {
            let seed = Seed::from_number(900 + number);
            Identity::generate(&mut SimProvider::new(seed)).unwrap()
        })
    });
    Identity::from_pem(&NODES[index - 3].to_pem()).unwrap()
}

/// A stranger's HELLO. Its key is one of a few: the contract does not test key generation, and a
/// flood has thousands of HELLOs.
fn hello(number: u64, credentials: &Credentials, change: impl FnOnce(&mut Hello<'_>)) -> Vec<u8> {
    static KEYS: LazyLock<Vec<PublicKey>> = LazyLock::new(|| {
        let mut provider = SimProvider::new(Seed::from_number(78));
        let mut key = || provider.ephemeral(Role::Dialler).unwrap().1;
        (0..16).map(|_| key()).collect()
    });
    let provider = SimProvider::new(Seed::from_number(number));
    let key = KEYS[usize::try_from(number % 16).unwrap()];
    Rogue::with_key(provider, key, credentials, change).hello
}

/// Wall clock of the contract's worlds at their start, a day after the origin of time.
fn unix(now: Instant) -> UnixTime {
    UnixTime::from_secs(1_735_689_600) + now.saturating_since(Instant::from_millis(86_400_000))
}

impl Group {
    fn token(now: UnixTime, generator: &mut Generator) -> Credentials {
        let player = generator.below(4);
        with_keys(|keys| {
            keys.reseed(generator.seed());
            keys.token(now, player, at(SERVER))
        })
    }

    fn target(index: usize, now: Instant, generator: &mut Generator) -> Target {
        if let Some(other) = NODES.iter().rev().find(|_| NODES.contains(&index)) {
            let other = if *other == index { NODES[0] } else { *other };
            return Target {
                addresses: vec![at(other)],
                server: ServerIdentity::Node(node_identity(other).node_id()),
                credentials: Credentials::Peer,
            };
        }
        let credentials = if generator.chance(700_000) {
            Self::token(unix(now), generator)
        } else {
            Credentials::Open
        };
        Target {
            addresses: vec![at(SERVER)],
            server: ServerIdentity::Keys(vec![with_keys(|keys| keys.public())]),
            credentials,
        }
    }

    fn any_session(
        machine: &Endpoint<SimProvider>,
        generator: &mut Generator,
    ) -> Option<SessionId> {
        let sessions: Vec<_> = machine.sessions().collect();
        let index = generator.below(u64::try_from(sessions.len()).unwrap().max(1));
        sessions.get(usize::try_from(index).unwrap()).copied()
    }
}

impl ContractSubject for Group {
    type Machine = Endpoint<SimProvider>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine> {
        let mut seeds = seed.generator(9);
        (0..5)
            .map(|index| {
                let mut config = Config::default();
                config.half_open_max = 64;
                config.idle_timeout = IdleTimeout::new(Duration::from_secs(2)).unwrap();
                let provider = SimProvider::new(seeds.seed());
                let mut machine = Endpoint::new(config, APP, provider, now).unwrap();
                if index == SERVER {
                    with_keys(|keys| {
                        let listen = Listen::new(keys.identity(), INSTANCE).with_open_mode();
                        machine.listen(now, listen).unwrap();
                        machine.add_token_key(keys.token_key.clone());
                    });
                } else if NODES.contains(&index) {
                    let network = Network {
                        secret: Secret32::new([7; 32]),
                        previous: None,
                    };
                    let instance = InstanceId(u64::try_from(index).unwrap());
                    let listen = Listen::new(node_identity(index), instance);
                    machine.listen(now, listen.with_network(network)).unwrap();
                }
                machine
            })
            .collect()
    }

    fn route(&self, sender: usize, destination: SocketAddr) -> Option<(usize, SocketAddr)> {
        let receiver = (0..5).find(|index| at(*index) == destination)?;
        Some((receiver, at(sender)))
    }

    fn poke(
        &self,
        index: usize,
        machine: &mut Self::Machine,
        now: Instant,
        generator: &mut Generator,
    ) {
        let session = Self::any_session(machine, generator);
        let Some(session) = session else {
            if index != SERVER && machine.session_count() < 3 {
                let target = Self::target(index, now, generator);
                machine.connect(now, target).unwrap();
            }
            return;
        };
        match generator.below(20) {
            0 => machine.close(now, session, CloseCode::App, b"bye").unwrap(),
            1 if index != SERVER && machine.session_count() < 3 => {
                let target = Self::target(index, now, generator);
                machine.connect(now, target).unwrap();
            }
            2 if generator.chance(100_000) => machine.shutdown(now),
            3..=8 => {
                let mut message = Vec::new();
                while machine.receive(now, session, &mut message).is_some() {
                    message.clear();
                }
            }
            _ => {
                let channel = [UNRELIABLE, RELIABLE][usize::from(generator.chance(500_000))];
                let longest = [40, 1_200, 18_000, 70_000][usize::from(generator.chance(100_000))
                    + 2 * usize::from(generator.chance(20_000))];
                let len = usize::try_from(generator.below(longest)).unwrap();
                // An error for length or room is a valid outcome, too.
                let _result = machine.send(now, session, channel, &vec![1; len]);
            }
        }
    }

    fn unknown_peer(&self, index: usize, generator: &mut Generator) -> PeerOf<Self> {
        let known = usize::try_from(generator.below(6)).unwrap();
        if known == index { at(99) } else { at(known) }
    }

    fn hostile(&self, _index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let number = generator.next_u64();
        let token = Self::token(unix(Instant::from_millis(86_400_000)), generator);
        Some(match generator.below(7) {
            // A valid HELLO without a follow-up.
            0 => hello(number, &token, |_| {}),
            1 => hello(number, &Credentials::Open, |_| {}),
            // A stolen token without the PSK.
            2 => {
                let Credentials::Token { token, .. } = token else {
                    return None;
                };
                let psk = Secret32::new([9; 32]);
                hello(number, &Credentials::Token { token, psk }, |_| {})
            }
            // A valid client with a key that is no point on the curve.
            3 => hello(number, &token, |hello| hello.client_ephemeral = no_point()),
            // An unsupported version.
            4 => hello(number, &token, |hello| hello.version_max = u32::MAX),
            // A packet of a session that may exist.
            5 => {
                let mut packet = vec![0x40, 0, 0];
                packet.extend_from_slice(&number.to_be_bytes());
                packet[2] = number.to_be_bytes()[0] % 8;
                packet.resize(60, 3);
                packet
            }
            // An unsolicited reply.
            _ => {
                let mut reply = vec![0xC2 + number.to_be_bytes()[1] % 4];
                reply.extend_from_slice(&0x5457_0001_u32.to_be_bytes());
                reply.extend_from_slice(&number.to_be_bytes());
                reply.resize([45, 211, 31, 14][usize::from(reply[0] - 0xC2)], 5);
                reply
            }
        })
    }

    fn memory(&self, machine: &Self::Machine) -> usize {
        machine.memory()
    }

    /// Memory of 8 sessions and 64 attempts: window, queues, reassembly and sent packets of each
    /// session.
    fn limits(&self) -> Limits {
        let session = (1 << 20) + 2 * (64 << 10) + (64 << 10) + (128 << 10) + (384 << 10);
        let mut limits = Limits::new(12 * session + 64 * 1_300);
        limits.steps = 24;
        limits.settle = Duration::from_secs(4);
        limits
    }

    /// No command is pending, so nothing is stuck; counts what happened.
    fn stuck(&self, machines: &[Self::Machine]) -> Option<String> {
        for (seen, machine) in self.seen.iter().zip(machines) {
            let (opened, dropped) = seen.get();
            let stats = machine.stats();
            seen.set((opened + stats.sessions_opened, dropped + stats.dropped()));
        }
        None
    }
}

#[test]
fn sim_contract() {
    let group = Group::default();
    check_contract(&test_site!(), 200, &group);
    // A single seed may open no session; most do.
    let is_whole_run = runs_its_own_seeds();
    for (index, seen) in group.seen.iter().enumerate() {
        let (opened, dropped) = seen.get();
        assert!(
            !is_whole_run || (opened > 50 && dropped > 200),
            "{index}: {seen:?}"
        );
    }
}

#[test]
fn nodes_of_the_group_have_different_names() {
    let names: Vec<NodeId> = NODES
        .iter()
        .map(|index| node_identity(*index).node_id())
        .collect();
    assert_ne!(names[0], names[1]);
}
