//! Retransmissions of messages that the peer has dropped do not affect other traffic.

use core::num::NonZeroU32;
use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};
use udp_proto::{Config, Event, Message, MessageOutcome, SessionStats};
use wire::Seed;

use crate::harness::{Testbed, UNRELIABLE};

/// Bytes of a message of the game.
const GAME_LEN: usize = 200;
/// Game messages per second.
const RATE: u64 = 30;
const SECONDS: u64 = 20;

struct Found {
    outcomes: Vec<MessageOutcome>,
    before: SessionStats,
    after: SessionStats,
    lowest_rate: u32,
    /// Game messages that arrived.
    came: usize,
}

/// Sends `count` split messages. Some of their parts arrive before the path fails in both
/// directions, for longer than the peer's reassembly timeout. Then the path works again, and a game
/// runs over it at `game_hz`.
fn after_an_outage(seed: u64, count: u8, game_hz: u64) -> Found {
    let mut testbed = Testbed::new(Seed::from_number(seed));
    let server = testbed.server;
    testbed
        .world
        .apply(server, |host, _| host.app.is_echo = false);
    let (client, session) = testbed.join(1);
    testbed.run(500);
    let good = LinkConfig::default().with_delay(Duration::from_millis(20));
    testbed.world.set_default_link(good);
    testbed.run(500);
    for number in 0..count {
        let bytes = [number; 2_000];
        let message = Message::new(UNRELIABLE, &bytes)
            .with_ttl(Duration::from_secs(SECONDS))
            .until_deadline();
        testbed
            .world
            .apply(client, |host, now| {
                host.machine.send_tracked(now, session, &message)
            })
            .unwrap();
    }
    for (loss, millis) in [(40, 30), (100, 2_500)] {
        let bad = good.with_loss(Loss::Bernoulli(Chance::percent(loss)));
        testbed.world.set_default_link(bad);
        testbed.run(millis);
    }
    testbed.world.set_default_link(good);
    let stats = |testbed: &Testbed| testbed.peer(client).machine.session_stats(session).unwrap();
    let play = |testbed: &mut Testbed, seconds: u64| {
        let mut lowest_rate = u32::MAX;
        for milli in 0..seconds * 1_000 {
            if milli * game_hz % 1_000 < game_hz {
                testbed.send(client, session, UNRELIABLE, &[9; GAME_LEN]);
            }
            testbed.run(1);
            lowest_rate = lowest_rate.min(stats(testbed).realtime_rate);
        }
        lowest_rate
    };
    // Until the effects of the outage itself are over.
    play(&mut testbed, 4);
    let before = stats(&testbed);
    let lowest_rate = play(&mut testbed, SECONDS);
    let outcomes = testbed
        .log(client)
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Settled { outcome, .. } => Some(*outcome),
            _ => None,
        });
    let came = &testbed.log(server).messages;
    Found {
        outcomes: outcomes.collect(),
        before,
        after: stats(&testbed),
        lowest_rate,
        came: came
            .iter()
            .filter(|(.., bytes)| bytes.len() == GAME_LEN)
            .count(),
    }
}

#[test]
fn sim_u9_messages_abandoned_in_an_outage_cost_a_working_path_nothing() {
    for seed in 0..20 {
        let found = after_an_outage(seed, 8, RATE);
        assert_eq!(found.came as u64, (4 + SECONDS) * RATE, "{seed}");
        let lost = found.after.packets_lost - found.before.packets_lost;
        assert!(lost <= 2, "{seed}: {lost}");
        let rates = (found.lowest_rate, found.before.realtime_rate);
        assert!(rates.0 >= rates.1, "{seed}: {rates:?}");
        assert_eq!(found.after.mtu, found.before.mtu, "{seed}");
        assert_eq!(found.outcomes.len(), 8, "{seed}: each is told of");
    }
}

#[test]
fn sim_u9_abandoned_messages_are_not_retransmitted_alone() {
    for seed in 0..20 {
        let found = after_an_outage(seed, 1, 0);
        let lost = found.after.packets_lost - found.before.packets_lost;
        assert_eq!(lost, 0, "{seed}");
        let rates = (found.lowest_rate, found.before.realtime_rate);
        assert!(rates.0 >= rates.1, "{seed}: {rates:?}");
        assert_eq!(found.outcomes.len(), 1, "{seed}");
    }
}

/// Messages that take 2.9 s at the session's rate, while the peer waits 2 s for the last part:
/// without loss, with and without retransmission.
#[test]
fn sim_u9_too_slow_split_messages_cost_a_working_path_nothing() {
    for (seed, is_repeated) in [(1, false), (2, true)] {
        let mut config = Config::default();
        config.realtime_rate = NonZeroU32::new(6_000).unwrap();
        config.realtime_burst = 1_500;
        let mut testbed = Testbed::new(Seed::from_number(seed));
        let (client, session) = testbed.join_with(1, config);
        testbed.run(500);
        for number in 0..15 {
            let bytes = vec![number; 17_500];
            let mut message = Message::new(UNRELIABLE, &bytes).with_ttl(Duration::from_secs(10));
            message.is_repeated = is_repeated;
            testbed
                .world
                .apply(client, |host, now| {
                    host.machine.send_tracked(now, session, &message)
                })
                .unwrap();
            testbed.run(4_000);
        }
        let stats = testbed.peer(client).machine.session_stats(session).unwrap();
        assert_eq!(stats.packets_lost, 0, "{stats:?}");
        assert_eq!(stats.realtime_rate, 6_000);
        let outcomes = testbed.log(client).events.iter();
        let expired = outcomes.filter(|event| {
            matches!(
                event,
                Event::Settled {
                    outcome: MessageOutcome::Expired,
                    ..
                }
            )
        });
        assert_eq!(expired.count(), 15, "each waited too long");
    }
}
