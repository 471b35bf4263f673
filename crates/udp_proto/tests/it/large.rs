//! Messages of the maximum length.

use core::time::Duration;

use netsim::{Chance, Handle, Jitter, LinkConfig, Loss, Order, for_each_seed, test_site};
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CloseReason, Config, Event, Message, MessageOutcome,
    SessionId,
};
use wire::Seed;

use crate::harness::{Peer, Testbed};

const BULK: ChannelId = ChannelId(0);
/// 7,490 fragments.
const LEN: usize = 8 << 20;

fn config() -> Config {
    let mut row = ChannelConfig::bulk();
    row.message_bytes_max = LEN;
    let mut config = Config::for_server();
    config.channels = ChannelTable::new(&[row]).unwrap();
    config
}

/// A tenth of the packets is lost each way, and the rest is reordered.
fn link() -> LinkConfig {
    LinkConfig::default()
        .with_loss(Loss::Bernoulli(Chance::percent(10)))
        .with_order(Order::ByDelay)
        .with_delay(Duration::from_millis(4))
        .with_jitter(Jitter::Uniform(Duration::from_millis(2)))
}

fn outcomes(testbed: &Testbed, client: Handle<Peer>) -> Vec<MessageOutcome> {
    let events = testbed.log(client).events.iter();
    let settled = events.filter_map(|event| match event {
        Event::Settled { outcome, .. } => Some(*outcome),
        _ => None,
    });
    settled.collect()
}

/// A client of a server that only listens, on a path without loss yet.
fn begin(seed: Seed) -> (Testbed, Handle<Peer>, SessionId) {
    let mut testbed = Testbed::with(seed, config(), |listen| listen);
    let server = testbed.server;
    testbed
        .world
        .apply(server, |host, _| host.app.is_echo = false);
    let (client, session) = testbed.join_with(1, config());
    testbed.run(5_000);
    testbed.world.set_default_link(link());
    (testbed, client, session)
}

fn memory(testbed: &Testbed, of: Handle<Peer>) -> usize {
    testbed.peer(of).machine.memory()
}

#[test]
fn sim_u10_8_mib_arrive_at_10_percent_loss_and_are_reported_once() {
    for_each_seed(&test_site!(), 3, |seed| {
        let (mut testbed, client, session) = begin(seed);
        let server = testbed.server;
        let rest = [client, server].map(|peer| memory(&testbed, peer));
        let mut generator = testbed.world.generator(3);
        let mut most = [0; 2];
        for number in 1..=2 {
            let mut bytes = vec![0; LEN];
            generator.fill(&mut bytes);
            testbed.world.apply(client, |host, now| {
                let message = Message::new(BULK, &bytes);
                host.machine.send_tracked(now, session, &message).unwrap();
            });
            let mut waited = 0;
            while outcomes(&testbed, client).len() < number {
                testbed.run(50);
                waited += 50;
                assert!(waited < 300_000, "not there after 5 minutes");
                for (most, peer) in most.iter_mut().zip([client, server]) {
                    *most = memory(&testbed, peer).max(*most);
                }
            }
            let messages = &testbed.log(server).messages;
            assert_eq!(messages.len(), number);
            assert!(messages[number - 1].2 == bytes, "whole");
        }
        assert_eq!(outcomes(&testbed, client), [MessageOutcome::Delivered; 2]);
        // One copy in our queue. At the peer the fragments, in memory that grows by half, and a
        // copy for the application.
        assert!(most[0] < rest[0] + LEN * 5 / 4, "{most:?}");
        assert!(most[1] < rest[1] + LEN * 11 / 4, "{most:?}");
        testbed.world.set_default_link(LinkConfig::default());
        testbed.run(10_000);
        assert_eq!(outcomes(&testbed, client).len(), 2, "told once");
        for (peer, rest) in [client, server].into_iter().zip(rest) {
            let held = memory(&testbed, peer);
            // Between keepalives, its keys and up to eight packets are held.
            assert!(held <= rest + 8 * 48 + 256, "given back, {held} <= {rest}");
        }
    });
}

#[test]
fn u10_a_partial_8_mib_message_is_released_at_the_timeout() {
    let (mut testbed, client, session) = begin(Seed::from_number(5));
    let server = testbed.server;
    let bytes = vec![1; LEN];
    testbed.world.apply(client, |host, now| {
        let message = Message::new(BULK, &bytes);
        host.machine.send_tracked(now, session, &message).unwrap();
    });
    let mut waited = 0;
    while memory(&testbed, server) < LEN / 2 {
        testbed.run(50);
        waited += 50;
        assert!(waited < 300_000, "half of it never came");
    }
    let gone = LinkConfig::default().with_loss(Loss::Bernoulli(Chance::percent(100)));
    testbed.world.set_default_link(gone);
    testbed.run(30_000);
    for peer in [client, server] {
        let closes = testbed.log(peer).closes();
        assert!(
            matches!(closes[..], [(_, CloseReason::Timeout)]),
            "{closes:?}"
        );
        assert!(
            memory(&testbed, peer) < 1 << 20,
            "{}",
            memory(&testbed, peer)
        );
    }
    assert_eq!(outcomes(&testbed, client), [MessageOutcome::Dropped]);
    assert!(testbed.log(server).messages.is_empty());
}
