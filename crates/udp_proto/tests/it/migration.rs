//! Peers that change their address, and those who only say so.

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

/// What the server was told of changed addresses.
fn moves(log: &Log) -> Vec<(SessionId, SocketAddr)> {
    let told = |event: &Event| match event {
        Event::AddressChanged { session, address } => Some((*session, *address)),
        _ => None,
    };
    log.events.iter().filter_map(told).collect()
}

/// A game of 100 bytes of both kinds each tick, each answered by 90.
struct Game {
    nat: Nat,
    /// How many messages the server has answered.
    answered: usize,
    /// Milliseconds since its start.
    millis: u64,
    sent: u32,
    /// When an unreliable answer came to the client last.
    received_at: u64,
    longest_gap: u64,
}

impl Game {
    fn new(seed: Seed, link: LinkConfig) -> Self {
        let mut nat = Nat::new(seed, link);
        nat.scene.run(2_000);
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
        let log = self.nat.scene.log(self.nat.client);
        let by_unreliable = |message: &&(_, _, _)| message.1 == UNRELIABLE;
        log.messages.iter().filter(by_unreliable).count()
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            if self.millis.is_multiple_of(TICK_MS) {
                let mut message = [7; 100];
                message[..4].copy_from_slice(&self.sent.to_be_bytes());
                let (client, session) = (self.nat.client, self.nat.session);
                self.nat.scene.send(client, session, UNRELIABLE, &message);
                self.nat.scene.send(client, session, RELIABLE, &message);
                self.sent += 1;
            }
            let before = self.answers();
            self.nat.scene.run(1);
            self.answer();
            self.millis += 1;
            if self.answers() > before {
                self.longest_gap = self.longest_gap.max(self.millis - self.received_at);
                self.received_at = self.millis;
            }
        }
    }

    fn answer(&mut self) {
        let server = self.nat.scene.server;
        let messages = &self.nat.scene.log(server).messages;
        let new: Vec<_> = messages[self.answered..].to_vec();
        self.answered = messages.len();
        for (session, channel, message) in new {
            self.nat
                .scene
                .send(server, session, channel, &message[..90]);
        }
    }

    /// Counts gaps from now on.
    fn mark(&mut self) {
        self.received_at = self.millis;
        self.longest_gap = 0;
    }

    /// Lets what was lost come again.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.nat.scene.run(50);
            self.answer();
        }
    }

    /// Every reliable message has come to the server once and in order, and the answer back.
    fn check_reliable(&self) {
        for log in [
            self.nat.scene.log(self.nat.scene.server),
            self.nat.scene.log(self.nat.client),
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

/// T4, for round trips and moments of all kinds: the gap begins with the rebinding, since what was
/// under way to the old port is lost.
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
            let server = game.nat.scene.log(game.nat.scene.server);
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
        let home = game.nat.rebind(address("192.0.2.77:40000"));
        // The new way is shorter, and the old way's round trips say nothing of it.
        let shorter = Duration::from_millis(one_way / 2);
        game.nat.set_links(link.with_delay(shorter));
        game.run(3_000);
        assert!(
            game.longest_gap <= 4 * one_way + TICK_MS,
            "{} ms",
            game.longest_gap
        );
        assert_eq!(game.nat.peer_address(), Some(home));
        let stats = game.nat.server_stats();
        assert!(stats.rtt_min <= 2 * shorter + Duration::from_millis(2));
        assert!(stats.rtt <= 2 * shorter + Duration::from_millis(20));
        game.settle();
        game.check_reliable();
        assert!(server_and_client_are_open(&game.nat));
    }
}

/// Nobody sends but for keepalives: the session is found again by the first that is answered.
#[test]
fn twp_t4_an_idle_session_migrates_with_its_next_packets() {
    let link = LinkConfig::default().with_delay(Duration::from_millis(40));
    let mut nat = Nat::new(Seed::from_number(9), link);
    nat.scene.run(5_000);
    let port = nat.rebind(address("203.0.113.1:50009"));
    nat.scene.run(2_500);
    assert_eq!(nat.peer_address(), Some(port));
    nat.scene.run(20_000);
    assert!(server_and_client_are_open(&nat));
}

/// Rebindings of either kind at random times, with loss both ways.
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
        let server = game.nat.scene.log(game.nat.scene.server);
        assert!(moves(server).iter().all(|(session, _)| *session == theirs));
        changes += moves(server).len();
    });
    if runs_its_own_seeds() {
        assert!(changes >= 120, "{changes} changes of 150");
    }
}

fn server_and_client_are_open(nat: &Nat) -> bool {
    nat.scene.log(nat.scene.server).closes().is_empty()
        && nat.scene.log(nat.client).closes().is_empty()
}
