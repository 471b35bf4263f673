//! Migration to much longer paths, and away from a bad path.

use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};
use wire::Seed;

use super::nat::Nat;
use super::{Game, server_and_client_are_open};
use crate::harness::address;

/// Another host, and another port of the same host.
const NEW: [&str; 2] = ["192.0.2.77:40000", "203.0.113.1:50001"];

fn link(one_way: u64) -> LinkConfig {
    LinkConfig::default().with_delay(Duration::from_millis(one_way))
}

fn lossy(one_way: u64, percent: u32) -> LinkConfig {
    link(one_way).with_loss(Loss::Bernoulli(Chance::percent(percent)))
}

/// From a wireless network with 20 ms, through a second without a path, to a mobile one: the old
/// path's probe timeout does not bound the answer time on the new one.
#[test]
fn twp_t4_a_session_migrates_to_a_much_longer_path() {
    for one_way in [40, 60, 70, 80, 100, 150, 300, 600] {
        for (number, new) in (0..).zip(NEW) {
            let mut game = Game::new(Seed::from_number(number), link(10));
            game.run(10_000);
            game.nat.set_links(lossy(10, 100));
            game.run(1_000);
            let new = game.nat.rebind(address(new));
            game.nat.set_links(link(one_way));
            // Until the first packet arrives, two challenge delays, and the first packet.
            game.run(6 * one_way + 200);
            assert_eq!(game.nat.peer_address(), Some(new), "{one_way} ms");
            game.mark();
            game.run(3_000);
            assert!(game.longest_gap <= one_way + 100, "{}", game.longest_gap);
            game.settle();
            game.check_reliable();
            assert!(server_and_client_are_open(&game.nat));
        }
    }
}

/// A client that sends only keepalives: one such packet triggers a challenge.
#[test]
fn twp_t4_an_idle_session_migrates_to_a_longer_path() {
    for (number, new) in (0..).zip(NEW) {
        let mut nat = Nat::new(Seed::from_number(number), link(10));
        nat.testbed.run(10_000);
        let new = nat.rebind(address(new));
        nat.set_links(link(300));
        let before = nat.server_stats().packets_received;
        while nat.server_stats().packets_received == before {
            nat.testbed.run(1);
        }
        // 100 ms until a packet is sent, and a round trip.
        nat.testbed.run(100 + 600 + 10);
        assert_eq!(nat.peer_address(), Some(new));
        nat.testbed.run(20_000);
        assert!(server_and_client_are_open(&nat));
    }
}

/// From a bad path with a probe timeout of two seconds to one with a third lost: challenges are
/// retransmitted as soon as on any new path.
#[test]
fn sim_twp_t4_a_bad_old_path_does_not_delay_challenges() {
    let mut soon = 0;
    for seed in 0..60 {
        let mut game = Game::new(Seed::from_number(seed), link(150));
        game.nat.set_links(lossy(400, 20));
        game.run(2_000);
        game.nat.set_links(lossy(400, 100));
        game.nat.testbed.run(4_000);
        let new = game.nat.rebind(address(NEW[0]));
        game.nat.set_links(lossy(30, 33));
        game.run(2_000);
        soon += u32::from(game.nat.peer_address() == Some(new));
        game.run(4_000);
        assert_eq!(game.nat.peer_address(), Some(new), "{seed}");
        game.nat.set_links(link(30));
        game.settle();
        game.settle();
        game.check_reliable();
        assert!(server_and_client_are_open(&game.nat));
    }
    // Four tries in the first two seconds, each answered with probability 0.45: 91 of 100.
    assert!(soon >= 50, "{soon} of 60");
}
