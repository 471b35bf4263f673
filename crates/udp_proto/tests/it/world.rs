//! Sessions in worlds with every kind of network fault.

mod events;
mod faults;
mod matrix;
mod platforms;
mod storm;

use core::time::Duration;
use std::collections::BTreeSet;

use netsim::{Chance, Host, LinkConfig, Loss, NodeConfig, for_each_seed, test_site};
use udp_proto::{CloseCode, CloseReason, Config, Credentials, KeyLimits, Listen};
use wire::Seed;

use crate::harness::{
    Log, RELIABLE, SERVER, Testbed, UNRELIABLE, address, endpoint, runs_its_own_seeds,
};
use storm::{Storm, Way};

#[test]
fn sim_twp_m1_m2_r2_t6_message_storms_deliver_each_once() {
    let (mut alive, mut delivered) = (0, 0);
    for_each_seed(&test_site!(), 60, |seed| {
        let storm = Storm::run(seed);
        let server = storm.testbed.log(storm.testbed.server);
        alive += server.sessions().len();
        delivered += server.messages.len();
    });
    if runs_its_own_seeds() {
        assert!(alive >= 100, "{alive} of 120 sessions opened");
        assert!(delivered >= 8_000, "{delivered}");
    }
}

/// The same with key updates every 16 packets: with delayed, lost, duplicated and damaged packets
/// both ends stay within one phase of each other.
#[test]
fn sim_twp_m1_m2_r2_storms_with_key_updates_every_16_packets() {
    let limits = KeyLimits::default().with_phase_packets(16);
    let (mut sessions, mut changes) = (0, 0);
    for_each_seed(&test_site!(), 60, |seed| {
        let storm = Storm::run_with(seed, limits, |storm| {
            for (ours, theirs) in storm.open_sessions() {
                for (sender, receiver) in [(&ours, &theirs), (&theirs, &ours)] {
                    let behind = sender.key_phase_sent - receiver.key_phase_received;
                    assert!(behind <= 1, "{sender:?} {receiver:?}");
                    let fill_policy = sender.key_phase_sent.abs_diff(sender.key_phase_received);
                    assert!(fill_policy <= 1, "{sender:?}");
                    changes += receiver.key_phase_received;
                }
                sessions += 1;
            }
        });
        let handles = storm.players.iter().map(|player| player.client);
        for handle in handles.chain([storm.testbed.server]) {
            for (_, reason) in storm.testbed.log(handle).closes() {
                let (CloseReason::Local(code) | CloseReason::Peer(code)) = reason else {
                    continue;
                };
                assert_eq!(code, CloseCode::App, "{reason}");
            }
        }
    });
    if runs_its_own_seeds() {
        assert!(sessions >= 80, "{sessions} of 120 sessions");
        assert!(changes >= 1_000, "{changes} changes");
    }
}

/// Runs twice in this process; `kind xtask sim` runs it in two profiles and compares the lines that
/// begin with `trace`.
#[test]
fn sim_twp_d1_one_seed_gives_one_trace() {
    let mut traces = BTreeSet::new();
    let mut all = 0_u64;
    for_each_seed(&test_site!(), 5, |seed| {
        let [first, second] = [(), ()].map(|()| Storm::run(seed).testbed.world.trace().hash());
        assert_eq!(first, second);
        traces.insert(first);
        all = all.wrapping_mul(0x100_0000_01B3) ^ first;
    });
    eprintln!("trace: {all:016x}");
    assert!(!runs_its_own_seeds() || traces.len() == 5);
}

/// A1: a packet acknowledged at one end was opened at the other.
#[test]
fn sim_twp_a1_only_arrived_packets_are_acknowledged() {
    let (mut compared, mut acknowledged, mut lost) = (0, 0, 0);
    for_each_seed(&test_site!(), 20, |seed| {
        let mut storm = Storm::new(seed);
        for _ in 0..10 {
            for _ in 0..12 {
                for player in 0..storm.players.len() {
                    storm.send_plaintext(player, Way::Up);
                    storm.send_plaintext(player, Way::Down);
                }
                storm.testbed.run(15);
            }
            for (client, server) in storm.open_sessions() {
                assert!(client.packets_acknowledged <= server.packets_received);
                assert!(server.packets_acknowledged <= client.packets_received);
                compared += 1;
                acknowledged += client.packets_acknowledged + server.packets_acknowledged;
                lost += client.packets_sent - server.packets_received;
            }
        }
    });
    // `sent::tests::pipe` compares the packets by number. This checks that the comparison is not
    // empty and that much was lost.
    if runs_its_own_seeds() {
        assert!(compared >= 200, "{compared}");
        assert!(
            acknowledged >= 10_000 && lost >= 1_500,
            "{acknowledged}, {lost}"
        );
    }
}

/// A2: with 30 % loss each way and a thousand packets per second, every received packet is
/// eventually acknowledged.
#[test]
fn sim_twp_a2_every_arrival_is_acknowledged_eventually() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut testbed = Testbed::new(seed);
        let link = LinkConfig::default().with_delay(Duration::from_millis(50));
        testbed.world.set_default_link(link);
        let (client, session) = testbed.join(1);
        testbed.run(1_000);
        testbed
            .world
            .set_default_link(link.with_loss(Loss::Bernoulli(Chance::percent(30))));
        for _ in 0..2_000 {
            testbed.send(client, session, UNRELIABLE, b"one in a packet");
            testbed.run(1);
        }
        testbed.world.set_default_link(link);
        testbed.run(3_000);
        let theirs = testbed.log(testbed.server).sessions()[0];
        let server = &testbed.peer(testbed.server).machine;
        let sent = testbed.peer(client).machine.session_stats(session).unwrap();
        let received = server.session_stats(theirs).unwrap();
        // Each message has its own packet; packets with only an ACK are not counted.
        let share = sent.packets_acknowledged * 1_000 / received.messages_received;
        assert!(share >= 999, "{share} of 1,000: {sent:?} {received:?}");
    });
}

/// U3: at 20 % loss each way and an RTT of 100 ms.
#[test]
fn sim_twp_u3_of_1000_clients_all_but_one_connect_within_10_s() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut testbed = Testbed::with(seed, Config::default(), Listen::with_open_mode);
        testbed.world.set_default_link(
            LinkConfig::default()
                .with_delay(Duration::from_millis(50))
                .with_loss(Loss::Bernoulli(Chance::percent(20))),
        );
        let mut clients = Vec::new();
        for number in 0..1_000 {
            let client = if number % 2 == 0 {
                testbed.join(number).0
            } else {
                let client = testbed.client();
                testbed.dial(client, Credentials::Open);
                client
            };
            clients.push((client, testbed.world.now()));
            testbed.run(5);
        }
        // The default timeout is 10 s, so a client not connected by then has failed.
        testbed.run(10_100);
        let failed = clients
            .iter()
            .filter(|(client, _)| testbed.log(*client).sessions().is_empty())
            .count();
        assert!(failed <= 1, "{failed} of 1,000");
    });
}

/// Clocks that drift, jump and start at any time do not affect a session.
#[test]
fn twp_t1_wall_clock_jumps_affect_no_session() {
    let seed = Seed::from_number(1);
    let mut testbed = Testbed::new(seed);
    let client = {
        let at = NodeConfig::at(address("203.0.113.5:1")).with_clock(Duration::from_hours(9), 200);
        testbed.world.add(at, |now| {
            Host::new(endpoint(seed, Config::default(), now), Log::default())
        })
    };
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let session = testbed.dial(client, credentials);
    testbed.run(1_000);
    for hours in [24_i64, -24, 0] {
        let server = testbed.server;
        testbed.world.apply(server, |host, now| {
            let unix = unix + Duration::from_hours(48);
            let unix = wire::UnixTime::from_secs(
                unix.as_secs()
                    .checked_add_signed((hours - 48) * 3_600)
                    .unwrap(),
            );
            host.machine.set_unix_time(now, unix);
        });
        testbed.send(client, session, RELIABLE, b"all the same");
        testbed.run(5_000);
    }
    assert!(testbed.log(client).closes().is_empty());
    assert_eq!(testbed.log(testbed.server).messages.len(), 3);
}
