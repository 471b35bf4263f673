//! Floods of HELLOs, directly into one server, 200,000 per second.
//!
//! Hashes are counted as in [`CallCounts::hash`](netsim::provider::CallCounts::hash): one for each
//! SHA-256 and each HMAC of any length. A HELLO with an invalid token costs at most three: the
//! cookie's MAC, the attempt's hash, and the token's key or a RETRY's cookie. A stolen token
//! without its PSK costs four more of fixed length, for the key schedule that checks its MAC.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use netsim::provider::{Counting, Counts, SimProvider};
use udp_proto::{Config, Credentials, Listen, SessionId};
use wire::{Generator, Instant, Seed};

use crate::direct::{Party, START, Sent, UNIX, again};
use crate::harness::{Keys, RELIABLE, SERVER, UNRELIABLE, address};
use crate::rogue::Rogue;

type Counted = Counting<SimProvider>;

/// Time between two datagrams at 200,000 per second.
const GAP: Duration = Duration::from_micros(5);
/// One-way delay between an honest client and the server.
const DELAY: Duration = Duration::from_millis(25);
/// Maximum hashes for a HELLO with a token that no token key sealed.
const HASHES_MAX: u64 = 3;
/// Maximum hashes for a HELLO with a stolen token.
const HASHES_STOLEN_MAX: u64 = 7;

fn server(number: u64, config: Config) -> (Party<Counted>, Keys, Counts) {
    let seed = Seed::from_number(number);
    let (keys, counts) = (Keys::new(seed), Counts::default());
    let provider = Counting::new(SimProvider::new(seed), &counts);
    let server = Party::server(config, &keys, provider, Listen::with_open_mode);
    (server, keys, counts)
}

/// A random IPv4 address, as a forged source.
fn anywhere(generator: &mut Generator) -> SocketAddr {
    let [a, b, c, d] = generator.next_u32().to_be_bytes();
    SocketAddr::from(([a % 126 + 1, b, c, d], 4_000))
}

/// Forged HELLOs of each kind, each valid except for its one fault.
struct Forgeries {
    hellos: Vec<Vec<u8>>,
    /// The id of a pending attempt, so that the server has to hash the forged HELLO.
    pending: [u8; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Open mode, without a cookie.
    NoCookie,
    /// Open mode, with a forged cookie of the current second.
    ForgedCookie,
    /// A token with a valid head and a random body.
    RandomToken,
    /// The same, with a forged cookie and the id of a pending attempt.
    RandomTokenKnownId,
    /// A valid token, and a MAC made with a guessed PSK.
    StolenToken,
    /// The same, with a forged cookie and the id of a pending attempt.
    StolenTokenKnownId,
}

const KINDS: [Kind; 6] = [
    Kind::NoCookie,
    Kind::ForgedCookie,
    Kind::RandomToken,
    Kind::RandomTokenKnownId,
    Kind::StolenToken,
    Kind::StolenTokenKnownId,
];

impl Forgeries {
    fn new(keys: &mut Keys, pending: &[u8]) -> Self {
        let token = keys.token(UNIX, 900, address(SERVER));
        Self {
            hellos: vec![
                Rogue::new(1, &Credentials::Open).hello,
                Rogue::new(2, &token).hello,
            ],
            pending: pending[17..25].try_into().unwrap(),
        }
    }

    fn make(&self, now: Instant, kind: Kind, generator: &mut Generator) -> Vec<u8> {
        let is_open = matches!(kind, Kind::NoCookie | Kind::ForgedCookie);
        let mut hello = self.hellos[usize::from(!is_open)].clone();
        generator.fill(&mut hello[17..25]);
        let is_known_id = matches!(kind, Kind::RandomTokenKnownId | Kind::StolenTokenKnownId);
        if is_known_id || kind == Kind::ForgedCookie {
            let seconds = u32::try_from(now.as_millis() / 1_000).unwrap();
            generator.fill(&mut hello[102..134]);
            hello[101] = 32;
            hello[102..106].fill(0);
            hello[106..110].copy_from_slice(&seconds.to_be_bytes());
        }
        if matches!(kind, Kind::RandomToken | Kind::RandomTokenKnownId) {
            generator.fill(&mut hello[157..173]);
            generator.fill(&mut hello[190..220]);
        }
        if is_known_id {
            hello[17..25].copy_from_slice(&self.pending);
        }
        if matches!(kind, Kind::StolenToken | Kind::StolenTokenKnownId) {
            generator.fill(&mut hello[134..150]);
        }
        hello
    }
}

#[test]
fn twp_f1_a_refused_hello_costs_few_hashes_no_curve_no_slot_and_no_memory() {
    let (mut server, mut keys, counts) = server(1, Config::default());
    let waiting = Rogue::new(9, &keys.token(UNIX, 1, address(SERVER)));
    server.take(START, address("203.0.113.1:1"), &waiting.hello);
    server.drain(START);
    let forgeries = Forgeries::new(&mut keys, &waiting.hello);
    let mut generator = Seed::from_number(1).generator(1);
    let mut now = START;
    let before = (counts.now(), server.machine.memory());
    let held = crate::alloc::held();
    let mut worst = BTreeMap::new();
    for round in 0..10_000_usize {
        let kind = KINDS[round % KINDS.len()];
        let hello = forgeries.make(now, kind, &mut generator);
        let source = anywhere(&mut generator);
        let count = counts.now();
        server.take(now, source, &hello);
        for Sent { to, bytes } in server.drain(now) {
            assert_eq!(to, source);
            let is_short = matches!((bytes[0], bytes.len()), (0xC2, 45) | (0xC4, 31));
            assert!(is_short, "{kind:?} gets a RETRY or REFUSE at most");
        }
        let hashes = (counts.now() - count).hash();
        let most = worst.entry(format!("{kind:?}")).or_insert(0);
        *most = hashes.max(*most);
        let is_stolen = matches!(kind, Kind::StolenToken | Kind::StolenTokenKnownId);
        let limit = if is_stolen {
            HASHES_STOLEN_MAX
        } else {
            HASHES_MAX
        };
        assert!(hashes <= limit, "{kind:?}: {hashes}");
        now += GAP;
    }
    // The limits are reached, so they are tight.
    assert_eq!(worst["StolenTokenKnownId"], HASHES_STOLEN_MAX, "{worst:?}");
    assert_eq!(worst["RandomTokenKnownId"], HASHES_MAX, "{worst:?}");
    assert_eq!((counts.now() - before.0).elliptic_curve(), 0);
    assert_eq!(server.machine.session_count(), 1);
    assert_eq!(server.machine.memory(), before.1);
    let growth = crate::alloc::held() - held;
    assert!(growth < 1 << 20, "{growth} bytes");
}

/// Receiver (`None`: the server), source and bytes.
type Mail = (Option<usize>, SocketAddr, Vec<u8>);

/// Honest clients on a line with delay, and a flood without delay.
struct Flood {
    now: Instant,
    server: Party<Counted>,
    clients: Vec<Party>,
    mail: BTreeMap<(Instant, u64), Mail>,
    posted: u64,
}

impl Flood {
    fn post(&mut self, to: Option<usize>, from: SocketAddr, bytes: Vec<u8>) {
        self.posted += 1;
        self.mail
            .insert((self.now + DELAY, self.posted), (to, from, bytes));
    }

    /// Delivers what has arrived, and sends the answers.
    fn turn(&mut self) {
        while let Some(entry) = self.mail.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, from, bytes) = entry.remove();
            match to {
                None => self.server.take(self.now, from, &bytes),
                Some(index) => self.clients[index].take(self.now, from, &bytes),
            }
        }
        self.server.wake(self.now);
        for Sent { to, bytes } in self.server.drain(self.now) {
            if let Some(index) = self.clients.iter().position(|client| client.at == to) {
                self.post(Some(index), self.server.at, bytes);
            }
        }
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            client.wake(self.now);
            let from = client.at;
            for Sent { bytes, .. } in client.drain(self.now) {
                self.post(None, from, bytes);
            }
        }
    }

    fn run(&mut self, until: Instant, mut each: impl FnMut(&mut Self)) {
        while self.now < until {
            self.now += Duration::from_millis(1);
            each(self);
            self.turn();
        }
    }
}

fn honest(index: u16, seed: u64) -> Party {
    let [high, low] = index.to_be_bytes();
    let at = SocketAddr::from(([203, high, low, 9], 4_000));
    let provider = SimProvider::new(Seed::from_number(seed).generator(index.into()).seed());
    Party::new(&at.to_string(), Config::default(), provider)
}

/// 200 forged HELLOs of all kinds per millisecond, from random addresses. Meanwhile 100 clients
/// dial, half with tokens and half without, and 8 players play.
#[test]
fn twp_f1_honest_clients_connect_and_players_play_through_a_flood() {
    let (server, mut keys, counts) = server(2, Config::default());
    let mut world = Flood {
        now: START,
        server,
        clients: (0..108).map(|index| honest(index, 2)).collect(),
        mail: BTreeMap::new(),
        posted: 0,
    };
    let mut sessions = Vec::new();
    for index in 0..8 {
        let token = keys.token(UNIX, u64::try_from(index).unwrap(), address(SERVER));
        sessions.push(world.clients[index].dial(START, &keys, token));
    }
    world.run(START + Duration::from_millis(300), |_| {});
    assert_eq!(world.server.sessions().len(), 8);

    let waiting = Rogue::new(9, &keys.token(UNIX, 800, address(SERVER)));
    world
        .server
        .take(world.now, address("192.0.2.1:1"), &waiting.hello);
    let forgeries = Forgeries::new(&mut keys, &waiting.hello);
    let mut generator = Seed::from_number(2).generator(1);
    let (mut dialled, mut sent, mut forged, mut ticks) = (8, 0, 0_usize, 0);
    let before = counts.now();
    world.run(START + Duration::from_millis(800), |world| {
        ticks += 1;
        for _ in 0..200 {
            let hello = forgeries.make(world.now, KINDS[forged % KINDS.len()], &mut generator);
            world
                .server
                .take(world.now, anywhere(&mut generator), &hello);
            forged += 1;
        }
        if ticks % 3 == 0 && dialled < 108 {
            let credentials = if dialled % 2 == 0 {
                keys.token(UNIX, u64::try_from(dialled).unwrap(), address(SERVER))
            } else {
                Credentials::Open
            };
            world.clients[dialled].dial(world.now, &keys, credentials);
            dialled += 1;
        }
        if ticks % 16 == 0 && ticks < 400 {
            for (index, session) in sessions.iter().enumerate() {
                let now = world.now;
                world.clients[index]
                    .machine
                    .send(now, *session, UNRELIABLE, b"tick")
                    .unwrap();
                sent += 1;
            }
        }
    });
    let calls = counts.now() - before;
    // The last client dialled 200 ms ago, and each had less than a second.
    let connected = world.clients[8..]
        .iter()
        .filter(|client| !client.sessions().is_empty())
        .count();
    assert_eq!(forged, 100_000);
    assert!(connected >= 99, "{connected} of 100");
    assert_eq!(world.server.messages.len(), sent, "no player lost a packet");
    // Three for each honest client, none for the flood.
    assert!(calls.elliptic_curve() <= 300, "{calls:?}");
    assert_eq!(world.server.sessions().len(), connected + 8);
    assert_eq!(
        world.server.machine.stats().accepted,
        u64::try_from(connected).unwrap() + 9
    );
}

/// The owner of a /24 that answers cookies gets an eighth of the slots and of the public-key
/// budget.
#[test]
fn twp_f1_a_flood_with_good_cookies_from_one_network_gets_an_eighth() {
    let config = Config::default();
    let (mut server, mut keys, counts) = server(3, config.clone());
    let mut rogue = Rogue::new(1, &Credentials::Open);
    let mut generator = Seed::from_number(3).generator(1);
    let before = counts.now();
    let seconds = 3;
    let mut now = START;
    for _ in 0..seconds * 1_000 {
        for _ in 0..2 {
            let [octet, ..] = generator.next_u32().to_be_bytes();
            let source = SocketAddr::from(([192, 0, 2, octet], 4_000));
            generator.fill(&mut rogue.hello[17..25]);
            rogue.hello[101..134].fill(0);
            server.take(now, source, &rogue.hello);
            for Sent { bytes, .. } in server.drain(now) {
                if bytes[0] == 0xC2 {
                    rogue.follow(&bytes);
                    server.take(now, source, &rogue.hello);
                }
            }
            server.drain(now);
        }
        now += Duration::from_millis(1);
        server.wake(now);
    }
    let calls = counts.now() - before;
    let share = u64::from(100 / 8 + seconds * config.accept_rate / 8);
    assert!(calls.ephemeral <= share, "{} of {share}", calls.ephemeral);
    let slots = config.half_open_max / 8;
    assert_eq!(server.machine.session_count(), slots, "it took its share");
    assert!(server.machine.stats().dropped_half_open > 0);
    // Clients from other networks connect, with a token or without.
    let mut client = honest(1, 3);
    let token = keys.token(UNIX, 1, address(SERVER));
    let target = again(&token);
    client.machine.set_unix_time(now, UNIX);
    client.dial(now, &keys, target);
    exchange(now, &mut client, &mut server);
    assert_eq!(client.sessions().len(), 1);
}

/// An attacker with many /24s answers cookies, never confirms and sends 2.1 MB/s of HELLOs. New
/// clients still get a slot at once.
#[test]
fn twp_f1_half_open_slots_held_from_24_and_160_networks_delay_no_newcomer() {
    for networks in [24_u16, 160] {
        let (server, keys, _) = server(5, Config::default());
        let mut world = Flood {
            now: START,
            server,
            clients: (0..40).map(|index| honest(index, 5)).collect(),
            mail: BTreeMap::new(),
            posted: 0,
        };
        let mut rogue = Rogue::new(1, &Credentials::Open);
        let mut generator = Seed::from_number(5).generator(u64::from(networks));
        let (mut bytes, mut ticks, mut dialled) = (0_u64, 0_u64, Vec::new());
        world.run(START + Duration::from_millis(4_500), |world| {
            ticks += 1;
            while bytes < ticks * 2_100 {
                let [a, b, ..] = generator.next_u32().to_be_bytes();
                let network = u8::try_from(u16::from(a) % networks).unwrap();
                let source = SocketAddr::from(([100, 64, network, b], 4_000));
                generator.fill(&mut rogue.hello[17..25]);
                rogue.hello[101..134].fill(0);
                world.server.take(world.now, source, &rogue.hello);
                bytes += 1_200;
                for Sent { to, bytes: reply } in world.server.drain(world.now) {
                    if reply[0] == 0xC2 && to == source {
                        rogue.follow(&reply);
                        world.server.take(world.now, source, &rogue.hello);
                        bytes += 1_200;
                    } else if let Some(index) =
                        world.clients.iter().position(|client| client.at == to)
                    {
                        world.post(Some(index), world.server.at, reply);
                    }
                }
            }
            if ticks > 2_000 && ticks % 40 == 0 && dialled.len() < 40 {
                let client = &mut world.clients[dialled.len()];
                client.dial(world.now, &keys, Credentials::Open);
                dialled.push((world.now, None));
            }
            for (index, (at, took)) in dialled.iter_mut().enumerate() {
                if took.is_none() && !world.clients[index].sessions().is_empty() {
                    *took = Some(world.now.saturating_since(*at));
                }
            }
        });
        let mut took: Vec<Duration> = dialled.iter().filter_map(|(_, took)| *took).collect();
        took.sort_unstable();
        assert_eq!(took.len(), 40, "{networks} networks: no newcomer failed");
        // Two round trips: RETRY and ACCEPT.
        let ways = DELAY * 4 + Duration::from_millis(5);
        assert!(took[20] <= ways, "{networks} networks: {took:?}");
        let stats = world.server.machine.stats();
        let worst = &took[30..];
        assert!(took[38] <= ways, "{networks}: {worst:?} {stats:?}");
        assert!(stats.half_open_evicted > 1_000, "{stats:?}");
    }
}

fn exchange(now: Instant, client: &mut Party, server: &mut Party<Counted>) {
    for _ in 0..6 {
        for Sent { bytes, .. } in client.drain(now) {
            server.take(now, client.at, &bytes);
        }
        for Sent { to, bytes } in server.drain(now) {
            if to == client.at {
                client.take(now, server.at, &bytes);
            }
        }
    }
}

/// Random packets for a session from another address do not affect it.
#[test]
fn twp_f2_random_packets_on_a_known_connection_id_change_no_delivery() {
    let (mut server, mut keys, _) = server(4, Config::default());
    let mut client = honest(1, 4);
    let token = keys.token(UNIX, 1, address(SERVER));
    let session: SessionId = client.dial(START, &keys, token);
    exchange(START, &mut client, &mut server);
    client
        .machine
        .send(START, session, UNRELIABLE, b"a sample")
        .unwrap();
    let sample = client.drain(START).remove(0).bytes;
    let mut generator = Seed::from_number(4).generator(1);
    let mut now = START;
    for round in 0..1_000_u32 {
        for _ in 0..50 {
            let mut forged = sample.clone();
            generator.fill(&mut forged[5..]);
            server.take(now, anywhere(&mut generator), &forged);
        }
        client
            .machine
            .send(now, session, RELIABLE, &round.to_be_bytes())
            .unwrap();
        exchange(now, &mut client, &mut server);
        now += Duration::from_millis(1);
    }
    assert_eq!(server.messages.len(), 1_000);
    assert_eq!(
        client.machine.session_stats(session).unwrap().packets_lost,
        1
    );
}
