//! Random schedules of channels, configurations, losses, sizes and migrations, followed by a phase
//! without faults in which all reliable messages arrive.

use core::net::SocketAddr;
use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use netsim::provider::SimProvider;
use netsim::{for_each_seed, test_site};
use udp_proto::channel::{ChannelConfig, ChannelTable, Priority};
use udp_proto::{
    ChannelId, Config, Delivery, Event, KeyLimits, Message, MessageId, MessageOutcome, Mtu,
    MtuSearch, SessionId,
};
use wire::{Generator, Instant, Seed};

use crate::direct::{CLIENT, Party, START, Sent, UNIX, without_rate_limits};
use crate::harness::{Keys, SERVER, address};

/// Maximum length of the phase without faults; the slowest rate takes minutes.
const QUIET: Duration = Duration::from_secs(600);

/// One end, its sent messages and its events.
struct End {
    endpoint: Party,
    session: Option<SessionId>,
    is_readable: bool,
    /// Numbers of received messages, by channel.
    got: BTreeMap<ChannelId, Vec<u32>>,
    sent: BTreeMap<ChannelId, Vec<u32>>,
    tracked: BTreeSet<(ChannelId, MessageId)>,
    settled: BTreeMap<(ChannelId, MessageId), MessageOutcome>,
    closed: Vec<Event>,
    /// Time of the last wakeup, and the number of wakeups at that time.
    woke: (Instant, u32),
}

impl End {
    fn new(endpoint: Party) -> Self {
        Self {
            endpoint,
            session: None,
            is_readable: false,
            got: BTreeMap::new(),
            sent: BTreeMap::new(),
            tracked: BTreeSet::new(),
            settled: BTreeMap::new(),
            closed: Vec::new(),
            woke: (START, 0),
        }
    }

    fn drain(&mut self, now: Instant) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.endpoint.machine.poll_transmit(now, &mut buffer) {
            sent.extend(transmit.datagrams(&buffer).map(|datagram| Sent {
                to: transmit.destination,
                bytes: datagram.to_vec(),
            }));
            buffer.clear();
            assert!(sent.len() < 20_000, "draining must end");
        }
        while let Some(event) = self.endpoint.machine.poll_event() {
            match event {
                Event::Readable { .. } => self.is_readable = true,
                Event::Connected { session, .. } => self.session = Some(session),
                Event::Settled {
                    channel,
                    message,
                    outcome,
                    ..
                } => {
                    let before = self.settled.insert((channel, message), outcome);
                    assert_eq!(before, None, "told twice");
                }
                Event::Closed { .. } | Event::ConnectFailed { .. } => self.closed.push(event),
                _ => {}
            }
        }
        sent
    }

    fn read(&mut self, now: Instant, most: u64) {
        let Some(session) = self.session else {
            return;
        };
        let mut message = Vec::new();
        for _ in 0..most {
            let Some(channel) = self.endpoint.machine.receive(now, session, &mut message) else {
                self.is_readable = false;
                return;
            };
            let number = u32::from_be_bytes(message[..4].try_into().unwrap());
            self.got.entry(channel).or_default().push(number);
        }
    }

    fn send(&mut self, now: Instant, generator: &mut Generator, table: &ChannelTable) {
        let Some(session) = self.session else {
            return;
        };
        let place = generator.below(table.rows().len() as u64);
        let channel = ChannelId(u8::try_from(place).unwrap());
        let (low, high) = match generator.below(10) {
            0..=5 => (4, 200),
            6..=7 => (4, 1_300),
            8 => (1_000, 5_000),
            _ => (4, 30_000),
        };
        let longest = table.get(channel).unwrap().message_bytes_max;
        let len = usize::try_from(generator.between(low, high)).unwrap();
        let number = u32::try_from(self.sent.values().map(Vec::len).sum::<usize>()).unwrap();
        let mut bytes = vec![0; len.min(longest)];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let machine = &mut self.endpoint.machine;
        let is_taken = if generator.chance(400_000) {
            let mut message = Message::new(channel, &bytes);
            if generator.chance(300_000) {
                message = message.with_ttl(Duration::from_millis(generator.below(3_000)));
            }
            if generator.chance(200_000) {
                message = message.until_deadline();
            }
            let id = machine.send_tracked(now, session, &message);
            self.tracked.extend(id.ok().map(|id| (channel, id)));
            id.is_ok()
        } else {
            machine.send(now, session, channel, &bytes).is_ok()
        };
        if is_taken {
            self.sent.entry(channel).or_default().push(number);
        }
    }
}

fn random_rows(generator: &mut Generator) -> Vec<ChannelConfig> {
    let row = |generator: &mut Generator| {
        let mut row = match generator.below(5) {
            0 => ChannelConfig::unreliable(),
            1 => ChannelConfig::sequenced(),
            2 => ChannelConfig::reliable_unordered(),
            3 => ChannelConfig::bulk(),
            _ => ChannelConfig::reliable_ordered(),
        };
        if generator.chance(500_000) {
            row.priority = Priority::new(u8::try_from(generator.below(8)).unwrap()).unwrap();
        }
        row
    };
    (0..generator.between(1, 6))
        .map(|_| row(generator))
        .collect()
}

fn random_config(generator: &mut Generator, rows: &[ChannelConfig]) -> Config {
    let mut config = if generator.chance(500_000) {
        Config::default()
    } else {
        without_rate_limits()
    };
    let mut rate = |low, high| {
        let is_set = generator.chance(300_000);
        let rate = u32::try_from(generator.between(low, high)).unwrap();
        is_set.then(|| NonZeroU32::new(rate).unwrap())
    };
    config.realtime_rate = rate(4_096, 60_000).unwrap_or(config.realtime_rate);
    config.send_rate_max = rate(6_000, 200_000);
    config.endpoint_send_rate_max = rate(6_000, 200_000);
    config.channels = ChannelTable::new(rows).unwrap();
    if generator.chance(500_000) {
        config.mtu_search = MtuSearch::On;
    }
    if generator.chance(300_000) {
        config.mtu_check = Some(Mtu::MESH);
    }
    if generator.chance(400_000) {
        config.key_limits = KeyLimits::default()
            .with_phase_packets(generator.between(5, 300))
            .with_phase_span(Duration::from_millis(generator.between(50, 5_000)));
    }
    if generator.chance(200_000) {
        config.receive_window = 64 << 10;
    }
    config
}

/// Faults of datagrams until the phase without faults.
struct LinkFaults {
    /// Lost and duplicated packets per million.
    loss: u32,
    duplication: u32,
    /// Minimum delay and maximum extra delay, milliseconds.
    delay: u64,
    jitter: u64,
    /// Longer datagrams are lost.
    longest: usize,
    /// Everything is lost in this interval.
    outage: (Instant, Instant),
    moves: bool,
    ends_at: Instant,
}

impl LinkFaults {
    fn random(generator: &mut Generator) -> Self {
        let loss = [0, 20_000, 100_000, 300_000];
        let after = |millis| START + Duration::from_millis(millis);
        let outage_from = generator.between(500, 3_000);
        let outage_len = if generator.chance(200_000) {
            generator.between(200, 4_000)
        } else {
            0
        };
        Self {
            loss: loss[usize::try_from(generator.below(4)).unwrap()],
            duplication: u32::try_from(generator.below(2)).unwrap() * 50_000,
            delay: generator.below(100),
            jitter: generator.between(1, 60),
            longest: if generator.chance(300_000) {
                1_400
            } else {
                2_000
            },
            outage: (after(outage_from), after(outage_from + outage_len)),
            moves: generator.chance(400_000),
            ends_at: after(generator.between(1_500, 4_000)),
        }
    }
}

struct World {
    generator: Generator,
    /// The server and the client.
    ends: [End; 2],
    client_at: SocketAddr,
    table: ChannelTable,
    faults: LinkFaults,
    now: Instant,
    act_at: Instant,
    /// Datagrams in flight by arrival: receiver and source.
    flying: BTreeMap<(Instant, usize), (usize, SocketAddr, Vec<u8>)>,
    serial: usize,
}

impl World {
    fn new(seed: Seed) -> Self {
        let mut generator = seed.generator(77);
        let rows = random_rows(&mut generator);
        let configs = [(); 2].map(|()| random_config(&mut generator, &rows));
        let [of_server, of_client] = configs;
        let table = of_server.channels.clone();
        let mut keys = Keys::new(seed);
        let provider = |purpose| SimProvider::new(seed.generator(purpose).seed());
        let server = Party::server(of_server, &keys, provider(1), |listen| listen);
        let mut client = Party::new(CLIENT, of_client, provider(2));
        let credentials = keys.token(UNIX, 1, address(SERVER));
        client.dial(START, &keys, credentials);
        Self {
            faults: LinkFaults::random(&mut generator),
            generator,
            ends: [End::new(server), End::new(client)],
            client_at: address(CLIENT),
            table,
            now: START,
            act_at: START,
            flying: BTreeMap::new(),
            serial: 0,
        }
    }

    fn is_bad(&self) -> bool {
        self.now < self.faults.ends_at
    }

    /// Lets both send, and reads in the phase without faults.
    fn collect(&mut self) {
        for end in 0..2 {
            loop {
                for sent in self.ends[end].drain(self.now) {
                    self.launch(end, sent);
                }
                if self.is_bad() || !self.ends[end].is_readable {
                    break;
                }
                self.ends[end].read(self.now, u64::MAX);
            }
        }
    }

    fn launch(&mut self, from: usize, Sent { to, bytes }: Sent) {
        let source = if from == 0 {
            address(SERVER)
        } else {
            self.client_at
        };
        let (faults, generator) = (&self.faults, &mut self.generator);
        let is_bad = self.now < faults.ends_at;
        let is_outage = (faults.outage.0..faults.outage.1).contains(&self.now);
        let is_lost = bytes.len() > faults.longest
            || is_outage
            || (from == 0 && to != self.client_at)
            || is_bad && generator.chance(faults.loss);
        if is_lost {
            return;
        }
        let copies = 1 + u32::from(is_bad && generator.chance(faults.duplication));
        for _ in 0..copies {
            let jitter = if is_bad {
                generator.below(faults.jitter)
            } else {
                0
            };
            let way = Duration::from_millis(faults.delay + jitter);
            self.serial += 1;
            let arrival = (self.now + way, self.serial);
            self.flying
                .insert(arrival, (1 - from, source, bytes.clone()));
        }
    }

    /// Random actions of players and networks.
    fn act(&mut self) {
        let generator = &mut self.generator;
        self.act_at = self.now + Duration::from_millis(generator.between(1, 40));
        for end in &mut self.ends {
            for _ in 0..generator.below(6) {
                end.send(self.now, generator, &self.table);
            }
            if generator.chance(500_000) {
                end.read(self.now, generator.below(20));
            }
            if generator.chance(10_000)
                && let Some(session) = end.session
            {
                end.endpoint.machine.update_keys(self.now, session).ok();
            }
        }
        if self.faults.moves && self.ends[0].session.is_some() && generator.chance(10_000) {
            self.client_at = if generator.chance(500_000) {
                SocketAddr::new(self.client_at.ip(), self.client_at.port() + 1)
            } else {
                let host = u8::try_from(generator.between(10, 250)).unwrap();
                SocketAddr::from(([203, 0, 113, host], 4_000))
            };
        }
    }

    /// Whether all outcomes are reported and all reliable data has arrived.
    fn is_done(&self) -> bool {
        let is_complete = |from: &End, to: &End| {
            let has_come = |(channel, sent): (&ChannelId, &Vec<u32>)| {
                let is_reliable = self.table.get(*channel).unwrap().delivery.is_reliable();
                !is_reliable || to.got.get(channel).map_or(0, Vec::len) >= sent.len()
            };
            from.settled.len() >= from.tracked.len() && from.sent.iter().all(has_come)
        };
        let [server, client] = &self.ends;
        let is_open = server.session.is_some() && client.session.is_some();
        is_open && is_complete(server, client) && is_complete(client, server)
    }

    /// Advances to the next event; returns whether there is one.
    fn step(&mut self) -> bool {
        self.collect();
        if !self.is_bad() && self.is_done() {
            return false;
        }
        let timeouts = self
            .ends
            .iter()
            .map(|end| end.endpoint.machine.poll_timeout());
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        let act = self.is_bad().then_some(self.act_at);
        let next = timeouts.chain([arrival, act]).flatten().min();
        let Some(next) = next.filter(|next| *next <= self.faults.ends_at + QUIET) else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(first) = self.flying.first_entry()
            && first.key().0 <= self.now
        {
            let (to, from, bytes) = first.remove();
            self.ends[to].endpoint.take(self.now, from, &bytes);
        }
        for end in &mut self.ends {
            let machine = &mut end.endpoint.machine;
            if machine.poll_timeout().is_some_and(|at| at <= self.now) {
                let times = if end.woke.0 == self.now {
                    end.woke.1 + 1
                } else {
                    0
                };
                assert!(times < 50, "it wakes again and again");
                end.woke = (self.now, times);
                machine.handle_timeout(self.now);
            }
        }
        if self.is_bad() && self.now >= self.act_at {
            self.act();
        }
        true
    }

    /// Checks that messages arrived as their channel promises.
    fn check(&self) {
        for (end, other) in [(0, 1), (1, 0)] {
            let (end, other) = (&self.ends[end], &self.ends[other]);
            assert!(end.closed.is_empty(), "{:?}", end.closed);
            assert!(end.session.is_some());
            assert!(
                end.settled.keys().eq(&end.tracked),
                "{} of {} are told of",
                end.settled.len(),
                end.tracked.len()
            );
            for (channel, sent) in &end.sent {
                let mut got = other.got.get(channel).cloned().unwrap_or_default();
                let delivery = self.table.get(*channel).unwrap().delivery;
                match delivery {
                    Delivery::ReliableOrdered => {}
                    Delivery::Sequenced => assert!(got.is_sorted_by(|a, b| a < b), "back"),
                    _ => got.sort_unstable(),
                }
                if delivery.is_reliable() {
                    assert!(got == *sent, "{channel:?}: {} of {}", got.len(), sent.len());
                } else {
                    got.dedup();
                    let count = other.got.get(channel).map_or(0, Vec::len);
                    assert_eq!(got.len(), count, "once at most");
                    assert!(got.iter().all(|number| sent.binary_search(number).is_ok()));
                }
            }
        }
    }
}

fn run(seed: Seed) {
    let mut world = World::new(seed);
    while world.step() {}
    world.check();
}

#[test]
fn sim_twp_m1_m2_reliable_messages_arrive_under_any_schedule() {
    for_each_seed(&test_site!(), 200, run);
}

/// The first packets were lost, and so much was queued that CONFIRM never got room: the server
/// ignored all packets.
#[test]
fn a_schedule_that_displaces_confirm_opens_its_session() {
    run(Seed::from_number(317));
}
