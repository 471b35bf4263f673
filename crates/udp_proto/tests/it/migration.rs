//! Peers that change their address, or claim to.

#![expect(
    clippy::print_stdout,
    reason = "figures for whoever runs it with --nocapture"
)]

mod abuse;
mod nat;
mod off_path_copies;
mod rebinding;
mod samples;
mod slower;

use core::net::SocketAddr;
use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss, for_each_seed, test_site};
use udp_proto::{Event, SessionId};
use wire::Seed;

use crate::harness::{Log, RELIABLE, UNRELIABLE, address, runs_its_own_seeds};
use nat::Nat;

const TICK_MS: u64 = 16;

/// Address changes that the server reported.
fn moves(log: &Log) -> Vec<(SessionId, SocketAddr)> {
    let reported = |event: &Event| match event {
        Event::AddressChanged { session, address } => Some((*session, *address)),
        _ => None,
    };
    log.events.iter().filter_map(reported).collect()
}

/// A game with 100 bytes of both kinds per tick, each answered with 90.
struct Game {
    nat: Nat,
    /// Messages that the server has answered.
    answered: usize,
    millis: u64,
    sent: u32,
    /// Time of the client's last unreliable answer.
    received_at: u64,
    longest_gap: u64,
}

impl Game {
    fn new(seed: Seed, link: LinkConfig) -> Self {
        let mut nat = Nat::new(seed, link);
        nat.testbed.run(2_000);
        Self {
            nat,
            answered: 0,
            millis: 0,
            sent: 0,
            received_at: 0,
            longest_gap: 0,
        }
    }

    fn answers(&self) -> usize {
        let log = self.nat.testbed.log(self.nat.client);
        let by_unreliable = |message: &&(_, _, _)| message.1 == UNRELIABLE;
        log.messages.iter().filter(by_unreliable).count()
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            if self.millis.is_multiple_of(TICK_MS) {
                let mut message = [7; 100];
                message[..4].copy_from_slice(&self.sent.to_be_bytes());
                let (client, session) = (self.nat.client, self.nat.session);
                self.nat.testbed.send(client, session, UNRELIABLE, &message);
                self.nat.testbed.send(client, session, RELIABLE, &message);
                self.sent += 1;
            }
            let before = self.answers();
            self.nat.testbed.run(1);
            self.answer();
            self.millis += 1;
            if self.answers() > before {
                self.longest_gap = self.longest_gap.max(self.millis - self.received_at);
                self.received_at = self.millis;
            }
        }
    }

    fn answer(&mut self) {
        let server = self.nat.testbed.server;
        let messages = &self.nat.testbed.log(server).messages;
        let new: Vec<_> = messages[self.answered..].to_vec();
        self.answered = messages.len();
        for (session, channel, message) in new {
            self.nat
                .testbed
                .send(server, session, channel, &message[..90]);
        }
    }

    /// Resets the longest gap.
    fn mark(&mut self) {
        self.received_at = self.millis;
        self.longest_gap = 0;
    }

    /// Waits until lost messages were retransmitted.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.nat.testbed.run(50);
            self.answer();
        }
    }

    /// Checks that every reliable message arrived at the server once and in order, and its answer
    /// at the client.
    fn check_reliable(&self) {
        for log in [
            self.nat.testbed.log(self.nat.testbed.server),
            self.nat.testbed.log(self.nat.client),
        ] {
            let numbers: Vec<u32> = log
                .messages
                .iter()
                .filter(|(_, channel, _)| *channel == RELIABLE)
                .map(|(.., message)| u32::from_be_bytes(message[..4].try_into().unwrap()))
                .collect();
            assert_eq!(numbers, (0..self.sent).collect::<Vec<_>>());
        }
    }
}

/// T4, for several RTTs and moments: the gap starts with the rebinding, since datagrams in flight
/// to the old port are lost.
#[test]
fn twp_t4_a_nat_rebinding_costs_a_round_trip_and_a_tick() {
    for (number, one_way) in [10, 30, 75, 150].into_iter().enumerate() {
        for phase in (0..TICK_MS).step_by(3) {
            let link = LinkConfig::default().with_delay(Duration::from_millis(one_way));
            let mut game = Game::new(Seed::from_number(number.try_into().unwrap()), link);
            let theirs = game.nat.theirs();
            game.run(1_008 + phase);
            game.mark();
            let rtt = game.nat.server_stats().rtt;
            let port = game.nat.rebind(address("203.0.113.1:50001"));
            game.run(3_000);
            assert!(
                game.longest_gap <= 2 * one_way + TICK_MS,
                "{} ms at a round trip of {} ms",
                game.longest_gap,
                2 * one_way
            );
            let server = game.nat.testbed.log(game.nat.testbed.server);
            assert_eq!(moves(server), [(theirs, port)]);
            assert_eq!(game.nat.peer_address(), Some(port));
            let stats = game.nat.server_stats();
            assert_eq!(stats.address_changes, 1);
            assert!(stats.rtt.abs_diff(rtt) < Duration::from_millis(20), "kept");
            game.settle();
            game.check_reliable();
            assert!(server_and_client_are_open(&game.nat));
        }
    }
}

#[test]
fn twp_t4_another_network_costs_two_round_trips_and_new_measurements() {
    for (number, one_way) in [20, 50, 150].into_iter().enumerate() {
        let link = LinkConfig::default().with_delay(Duration::from_millis(one_way));
        let mut game = Game::new(Seed::from_number(number.try_into().unwrap()), link);
        game.run(1_008);
        game.mark();
        let first_address = game.nat.rebind(address("192.0.2.77:40000"));
        // The new path is shorter, and samples of the old one do not count.
        let shorter = Duration::from_millis(one_way / 2);
        game.nat.set_links(link.with_delay(shorter));
        game.run(3_000);
        assert!(
            game.longest_gap <= 4 * one_way + TICK_MS,
            "{} ms",
            game.longest_gap
        );
        assert_eq!(game.nat.peer_address(), Some(first_address));
        let stats = game.nat.server_stats();
        assert!(stats.rtt_min <= 2 * shorter + Duration::from_millis(2));
        assert!(stats.rtt <= 2 * shorter + Duration::from_millis(20));
        game.settle();
        game.check_reliable();
        assert!(server_and_client_are_open(&game.nat));
    }
}

/// Only keepalives are sent: the session migrates with the first that is answered.
#[test]
fn twp_t4_an_idle_session_migrates_with_its_next_packets() {
    let link = LinkConfig::default().with_delay(Duration::from_millis(40));
    let mut nat = Nat::new(Seed::from_number(9), link);
    nat.testbed.run(5_000);
    let port = nat.rebind(address("203.0.113.1:50009"));
    nat.testbed.run(2_500);
    assert_eq!(nat.peer_address(), Some(port));
    nat.testbed.run(20_000);
    assert!(server_and_client_are_open(&nat));
}

/// Rebindings of either kind at random times, with loss each way.
#[test]
fn sim_twp_t4_m1_sessions_survive_rebindings_under_loss() {
    let mut changes = 0;
    for_each_seed(&test_site!(), 25, |seed| {
        let mut generator = seed.generator(77);
        let link =
            LinkConfig::default().with_delay(Duration::from_millis(generator.between(5, 120)));
        let mut game = Game::new(seed, link);
        game.nat
            .set_links(link.with_loss(Loss::Bernoulli(Chance::percent(10))));
        let theirs = game.nat.theirs();
        for number in 0..6_u16 {
            game.run(generator.between(1_500, 4_000));
            let [high, low] = (50_000 + number).to_be_bytes();
            let port = u16::from_be_bytes([high, low]);
            let host = if generator.chance(500_000) {
                1
            } else {
                20 + u8::try_from(number).unwrap()
            };
            game.nat
                .rebind(SocketAddr::from(([203, 0, 113, host], port)));
        }
        game.run(4_000);
        game.nat
            .set_links(LinkConfig::default().with_delay(Duration::from_millis(10)));
        game.settle();
        game.check_reliable();
        assert!(server_and_client_are_open(&game.nat));
        assert_eq!(game.nat.peer_address(), Some(game.nat.public()));
        let server = game.nat.testbed.log(game.nat.testbed.server);
        assert!(moves(server).iter().all(|(session, _)| *session == theirs));
        changes += moves(server).len();
    });
    if runs_its_own_seeds() {
        assert!(changes >= 120, "{changes} changes of 150");
    }
}

fn server_and_client_are_open(nat: &Nat) -> bool {
    nat.testbed.log(nat.testbed.server).closes().is_empty()
        && nat.testbed.log(nat.client).closes().is_empty()
}
