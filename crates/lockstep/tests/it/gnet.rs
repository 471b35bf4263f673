//! Tick-handling faults of `game_network`, each with a test that it would fail.

use core::time::Duration;

use lockstep::message::{Up, decode_up};
use lockstep::{
    ClientConfig, ClientPeer, Config, InputDelay, MatchServer, Origin, PeerId, StartPolicy,
};
use wire::{Arrival, Instant, Seat, Seed};

use crate::world::{Link, MATCH, World, config, pad};

/// A client and its server, without a network between them.
struct Bench {
    now: Instant,
    server: MatchServer<u16>,
    client: ClientPeer<u16>,
}

/// The period at 1,000 Hz.
const TICK: Duration = Duration::from_millis(1);

impl Bench {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let mut config = Config::default();
        config.seats = 1;
        config.input_delay = InputDelay::fixed(20).unwrap();
        config.tick_rate = lockstep::TickRate::new(1_000).unwrap();
        let mut server = MatchServer::new(config, MATCH, Seed::from_number(1), now).unwrap();
        server.join(now, PeerId(1), Seat(0)).unwrap();
        let seed = Seed::from_number(2);
        let client = ClientPeer::new(ClientConfig::default(), PeerId(0), seed, now);
        Self {
            now,
            server,
            client,
        }
    }

    /// Advances both by a millisecond; returns the client's datagrams.
    fn step(&mut self, input: u16) -> Vec<Vec<u8>> {
        self.now += TICK;
        self.server.handle_timeout(self.now);
        let mut buf = Vec::new();
        while self.server.poll_transmit(self.now, &mut buf).is_some() {
            let arrival = Arrival::from(PeerId(0));
            self.client.handle_datagram(self.now, arrival, &mut buf);
            buf.clear();
        }
        self.client.submit(self.now, &input).ok();
        self.client.handle_timeout(self.now);
        while self.client.poll_turn(self.now).is_some() {}
        let mut sent = Vec::new();
        while self.client.poll_transmit(self.now, &mut buf).is_some() {
            sent.push(core::mem::take(&mut buf));
        }
        sent
    }

    fn deliver(&mut self, sent: &[Vec<u8>]) {
        for datagram in sent {
            let arrival = Arrival::from(PeerId(1));
            let mut datagram = datagram.clone();
            self.server
                .handle_datagram(self.now, arrival, &mut datagram);
        }
    }
}

fn inputs(datagram: &[u8]) -> u32 {
    match decode_up(datagram, lockstep::Width::bits::<16>()) {
        Ok(Up::Report(report)) => report.inputs.map_or(0, |inputs| inputs.count),
        _ => 0,
    }
}

#[test]
fn gnet_g3_an_ack_of_six_of_ten_leaves_four() {
    // `game_network` kept 6 of 10 ticks after an acknowledgement of 6, with wrong tick numbers, and
    // removed none after a full one.
    let mut bench = Bench::new();
    for _ in 0..100 {
        let sent = bench.step(7);
        bench.deliver(&sent);
    }
    let held: Vec<_> = (0..10).map(|_| bench.step(7)).collect();
    let newest = inputs(held[9].last().unwrap());
    assert_eq!(
        newest,
        inputs(held[0].last().unwrap()) + 9,
        "ten more are on their way"
    );
    // The server receives the sixth of them, and acknowledges it.
    bench.deliver(&held[5]);
    let sent = bench.step(7);
    assert_eq!(inputs(sent.last().unwrap()), newest + 1 - 6);
    // A full acknowledgement leaves only the input submitted since.
    bench.deliver(&sent);
    let sent = bench.step(7);
    assert_eq!(inputs(sent.last().unwrap()), 1);
}

#[test]
fn gnet_g4_overlapping_reports_make_one_history() {
    // `game_network` merged ten ticks and ten more from the eighth on into twelve instead of
    // eighteen.
    let mut bench = Bench::new();
    let mut sent = Vec::new();
    for tick in 0..60_u16 {
        // Each report overlaps the previous ones, and every second one is lost.
        let report = bench.step(tick);
        if tick % 2 == 0 {
            bench.deliver(&report);
        }
        sent.push(report);
    }
    for report in &sent {
        bench.deliver(report);
    }
    let mut played = Vec::new();
    while let Some(turn) = bench.server.poll_turn() {
        let (input, origin) = turn.input(Seat(0)).unwrap();
        if origin == Origin::Confirmed {
            played.push(input);
        }
    }
    assert!(played.len() > 20);
    assert!(
        played.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{played:?}"
    );
}

#[test]
fn gnet_g5_a_fast_client_delays_no_slow_one() {
    // `game_network` used one counter for the inputs of all clients.
    let mut world = World::new(5, config(3), Link::perfect(), pad);
    world.links[0].latency = Duration::from_millis(55);
    world.run(300);
    for player in &world.players {
        let own = player.own[60..].iter();
        let late = own
            .filter(|(_, origin)| *origin != Origin::Confirmed)
            .count();
        assert_eq!(late, 0);
    }
}

#[test]
fn gnet_g10_a_client_sends_once_a_tick_at_any_poll_rate() {
    let mut config = Config::default();
    config.seats = 1;
    config.start = StartPolicy::ByHand;
    let now = Instant::from_millis(1);
    let mut server = MatchServer::<u16>::new(config, MATCH, Seed::from_number(1), now).unwrap();
    server.join(now, PeerId(1), Seat(0)).unwrap();
    server.start(now).unwrap();
    let seed = Seed::from_number(2);
    let mut client = ClientPeer::<u16>::new(ClientConfig::default(), PeerId(0), seed, now);
    let mut buf = Vec::new();
    for tenths in 0..20_000_u64 {
        let now = Instant::from_nanos(2_000_000 + tenths * 100_000);
        server.handle_timeout(now);
        client.handle_timeout(now);
        while server.poll_transmit(now, &mut buf).is_some() {
            client.handle_datagram(now, Arrival::from(PeerId(0)), &mut buf);
            buf.clear();
        }
        client.submit(now, &1).ok();
        while client.poll_transmit(now, &mut buf).is_some() {
            server.handle_datagram(now, Arrival::from(PeerId(1)), &mut buf);
            buf.clear();
        }
        while client.poll_turn(now).is_some() {}
    }
    // Two seconds at 60 Hz, polled 10,000 times per second.
    let sent = client.stats().datagrams_sent;
    assert!((115..=125).contains(&sent), "{sent}");
}
