//! The stall guard: a paused process does not time out its peers because of the pause.

use core::time::Duration;

use netsim::LinkConfig;
use udp_proto::{CloseReason, Config, IdleTimeout};
use wire::{Instant, Seed};

use crate::direct::{Line, config};
use crate::harness::{Testbed, UNRELIABLE};

fn idle(millis: u64) -> Config {
    config(|config| config.idle_timeout = IdleTimeout::new(Duration::from_millis(millis)).unwrap())
}

/// The pause starts after 1.5 s without a packet from the clients, so all of them are silent for
/// longer than the idle timeout when it ends. The driver finds a packet of each in the socket, but
/// most only behind its first batches.
#[test]
fn twp_t2_64_clients_survive_a_pause_of_10_s() {
    let mut testbed = Testbed::with(Seed::from_number(61), idle(11_000), |listen| listen);
    let joined: Vec<_> = (1..=64)
        .map(|player| {
            let client = testbed.client_with(idle(11_000));
            let unix = testbed.world.unix_now();
            let at = crate::harness::address(crate::harness::SERVER);
            let credentials = testbed.keys.token(unix, player, at);
            let session = testbed.dial(client, credentials);
            (client, session)
        })
        .collect();
    testbed.run(1_000);
    let play = |testbed: &mut Testbed, millis: u64| {
        for _ in 0..millis / 50 {
            for (client, session) in &joined {
                testbed.world.apply(*client, |host, now| {
                    // The queue of a stalled peer may be full, which this test does not check.
                    host.machine.send(now, *session, UNRELIABLE, b"tick").ok();
                });
            }
            testbed.run(50);
        }
    };
    play(&mut testbed, 1_000);
    let server = testbed.server;
    for (client, _) in &joined {
        let down = LinkConfig::default().with_down();
        testbed.world.set_link(*client, server, down);
    }
    play(&mut testbed, 1_500);
    testbed.world.stall(server, Duration::from_secs(10));
    play(&mut testbed, 9_900);
    for (client, _) in &joined {
        // Packets sent from now on arrive after the pause.
        let up = LinkConfig::default().with_delay(Duration::from_millis(150));
        testbed.world.set_link(*client, server, up);
    }
    play(&mut testbed, 5_000);
    assert!(testbed.log(server).closes().is_empty());
    for (client, _) in &joined {
        assert!(testbed.log(*client).closes().is_empty());
    }
    let stats = testbed.peer(server).machine.stats();
    assert_eq!(stats.stalls, 1);
}

/// A server with a silent client, and the time of its last packet.
fn deserted(seed: u64) -> (Line, Instant) {
    let mut line = Line::new(seed);
    line.join(1);
    line.run(900);
    let now = line.now;
    let session = line.client.machine.sessions().next().unwrap();
    line.client
        .machine
        .send(now, session, UNRELIABLE, b"farewell")
        .unwrap();
    line.settle();
    (line, now)
}

/// Runs the server's timers as they fall due until the client times out; returns that time.
fn given_up(line: &mut Line) -> Instant {
    while line.server.closes().is_empty() {
        let due = line.server.machine.poll_timeout().expect("a deadline");
        line.now = line.now.max(due);
        line.server.wake(line.now);
        line.server.drain(line.now);
    }
    line.now
}

/// Runs `late` after the next deadline.
fn stall(line: &mut Line, late: Duration) {
    line.now = line.server.machine.poll_timeout().unwrap() + late;
    // One grace for each stall, however often the driver calls: with the socket's datagrams, to run
    // timers, to drain.
    for _ in 0..3 {
        line.server.take(line.now, line.client.at, &[0x40; 60]);
        line.server.wake(line.now);
        line.server.drain(line.now);
    }
}

const IDLE: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_millis(250);

#[test]
fn twp_t2_t3_an_idle_deadline_moves_by_what_a_stall_is_over_250_ms() {
    for (millis, over) in [(0, 0), (250, 0), (251, 1), (5_000, 4_750)] {
        let (mut line, incoming) = deserted(62);
        stall(&mut line, Duration::from_millis(millis));
        let expected = incoming + IDLE + Duration::from_millis(over);
        assert_eq!(given_up(&mut line), expected, "{millis}");
        assert_eq!(line.server.closes(), [CloseReason::Timeout]);
        let stats = line.server.machine.stats();
        assert_eq!(stats.stalls, u64::from(over > 0));
    }
}

#[test]
fn twp_t2_stalls_extend_a_silence_by_at_most_10_s() {
    let (mut line, incoming) = deserted(63);
    for _ in 0..3 {
        stall(&mut line, Duration::from_secs(4));
        assert!(line.server.closes().is_empty());
    }
    // 3 times 3.75 s are more than 10 s.
    assert_eq!(given_up(&mut line), incoming + 2 * IDLE);
    // A received packet resets the grace: the next silence gets it again.
    let (mut line, _) = deserted(64);
    stall(&mut line, Duration::from_secs(4));
    let now = line.now;
    line.client.machine.handle_timeout(now);
    line.settle();
    assert_eq!(line.server.closes(), []);
    assert_eq!(given_up(&mut line), now + IDLE);
}

/// A driver that is always a second late still detects a dead peer.
#[test]
fn a_driver_that_is_always_late_times_out_dead_peers() {
    let (mut line, incoming) = deserted(65);
    while line.server.closes().is_empty() {
        stall(&mut line, Duration::from_secs(1));
        assert!(line.now <= incoming + 2 * IDLE + Duration::from_secs(2));
    }
    assert!(line.now >= incoming + IDLE + LATE);
}

/// A driver that sleeps until its deadline is not late, however long it sleeps.
#[test]
fn suspended_time_is_no_stall() {
    let mut line = Line::new(66);
    line.join(1);
    line.run(60_000);
    assert_eq!(line.server.machine.stats().stalls, 0);
    assert_eq!(line.client.machine.stats().stalls, 0);
}
