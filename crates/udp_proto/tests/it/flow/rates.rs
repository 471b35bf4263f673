//! Each rate of the configuration is enforced.

use core::num::NonZeroU32;
use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};
use udp_proto::{CloseCode, CloseReason, Event, FloodPolicy, MessageOutcome};
use wire::Instant;

use super::lane::{BULK, BULK_LEN, GAME, Lane, RELIABLE, config};

fn both(link: LinkConfig) -> [LinkConfig; 2] {
    [link, link]
}

fn near() -> [LinkConfig; 2] {
    both(LinkConfig::default().with_delay(Duration::from_millis(10)))
}

fn sent(lane: &Lane) -> u64 {
    lane.stats(0).bytes_sent
}

#[test]
fn realtime_rate_and_realtime_burst_hold_for_all_realtime_messages() {
    for channel in [GAME, RELIABLE] {
        let mut config = config();
        config.realtime_rate = NonZeroU32::new(50_000).unwrap();
        config.realtime_burst = 10_000;
        let mut lane = Lane::new(1, 1, &config, near());
        let before = sent(&lane);
        let at_once = lane.room();
        for milli in 0..10_000 {
            while lane.send(0, channel, 900) && milli % 5 != 4 && channel == RELIABLE {}
            lane.step();
        }
        assert_eq!(at_once, 10_000);
        // Acknowledgements and keepalives are not counted; they are few.
        let bytes = sent(&lane) - before;
        assert!((500_000..=520_000).contains(&bytes), "{bytes}");
        assert!(lane.room() < 1_200);
        let stats = lane.stats(0);
        assert_eq!(stats.realtime_rate, 50_000);
        // Messages that wait too long are dropped, reliable ones are not.
        let dropped = stats.messages_expired + stats.messages_displaced;
        assert_eq!(dropped > 5_000, channel == GAME, "{stats:?}");
    }
}

#[test]
fn rate_limited_messages_are_sent_when_due_and_expiry_is_reported() {
    let mut config = config();
    config.realtime_rate = NonZeroU32::new(12_000).unwrap();
    config.realtime_burst = 1_452;
    let mut lane = Lane::new(2, 1, &config, near());
    let (client, session) = lane.clients[0];
    lane.run(1_000, &[]);
    lane.testbed.world.apply(client, |host, now| {
        for _ in 0..4 {
            let message = udp_proto::Message::new(GAME, &[0; 1_100]);
            host.machine.send_tracked(now, session, &message).unwrap();
        }
    });
    lane.run(2_000, &[]);
    let events = &lane.testbed.log(client).events;
    let outcomes: Vec<MessageOutcome> = events
        .iter()
        .filter_map(|event| match event {
            Event::Settled { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect();
    // One is sent at once, one 74 ms later; the others would miss their 100 ms.
    let expired = |outcome: &&MessageOutcome| **outcome == MessageOutcome::Expired;
    assert_eq!(outcomes.len(), 4);
    assert_eq!(outcomes.iter().filter(expired).count(), 2, "{outcomes:?}");
}

#[test]
fn send_rate_max_and_endpoint_send_rate_max_cap_all_sending() {
    for is_endpoint in [true, false] {
        let mut config = config();
        let cap = NonZeroU32::new(100_000);
        if is_endpoint {
            config.endpoint_send_rate_max = cap;
        } else {
            config.send_rate_max = cap;
        }
        let mut lane = Lane::new(3, 1, &config, near());
        lane.add_session(2);
        lane.run(1_000, &[]);
        let client = lane.clients[0].0;
        let before = lane.testbed.peer(client).machine.stats().bytes_sent;
        lane.run(10_000, &[0, 1]);
        let bytes = lane.testbed.peer(client).machine.stats().bytes_sent - before;
        let expected = if is_endpoint { 1_000_000 } else { 2_000_000 };
        assert!(
            (expected * 97 / 100..=expected * 102 / 100).contains(&bytes),
            "{bytes}"
        );
        let parts = [0, 1].map(|client| lane.count_of(client, BULK, Instant::ZERO));
        assert!(parts.iter().all(|part| *part > 300), "{parts:?}: in turn");
    }
}

#[test]
fn sim_b3_a_third_of_loss_halves_the_rate_until_it_ends() {
    let lossy = LinkConfig::default()
        .with_delay(Duration::from_millis(20))
        .with_loss(Loss::Bernoulli(Chance::percent(35)));
    let mut lane = Lane::new(4, 1, &config(), near());
    lane.set_path(lossy, lossy);
    lane.play(30_000, &[]);
    let rate = lane.stats(0).realtime_rate;
    assert!(rate <= 262_144 >> 5, "{rate}");
    let [up, down] = near();
    lane.set_path(up, down);
    lane.play(60_000, &[]);
    assert_eq!(lane.stats(0).realtime_rate, 262_144);
    let (client, session) = lane.clients[0];
    let rates: Vec<u32> = lane
        .testbed
        .log(client)
        .events
        .iter()
        .filter_map(|event| match event {
            Event::RateChanged {
                session: of,
                realtime_rate,
            } if *of == session => Some(*realtime_rate),
            _ => None,
        })
        .collect();
    assert_eq!(rates.first(), Some(&131_072), "{rates:?}");
    assert_eq!(rates.last(), Some(&262_144), "{rates:?}");
    assert!((6..20).contains(&rates.len()), "{rates:?}");
}

#[test]
fn a_silent_path_halves_the_rate_and_resets_the_window() {
    let mut lane = Lane::new(5, 1, &config(), near());
    lane.play(3_000, &[0]);
    assert!(lane.stats(0).congestion_window > 12_000);
    let down = LinkConfig::default().with_down();
    lane.set_path(down, down);
    lane.play(1_000, &[0]);
    let stats = lane.stats(0);
    assert_eq!(stats.realtime_rate, 131_072);
    assert_eq!(stats.congestion_window, 2_400);
    let [up, down] = near();
    lane.set_path(up, down);
    lane.play(3_000, &[0]);
    assert!(
        lane.stats(0).congestion_window > 12_000,
        "{:?}",
        lane.stats(0)
    );
}

/// A peer with a session's keys makes its peer open at most as many packets as
/// [`udp_proto::InboundLimits`] allows.
#[test]
fn b9_inbound_limits_bound_the_decryptions_for_an_authenticated_peer() {
    for policy in [FloodPolicy::Drop, FloodPolicy::Close] {
        let mut config = config();
        config.realtime_rate = NonZeroU32::MAX;
        config.realtime_burst = u32::MAX;
        config.inbound.packets = 100;
        config.inbound.packets_burst = 50;
        config.inbound.bytes = 1 << 20;
        config.inbound.policy = policy;
        let mut lane = Lane::new(6, 1, &config, near());
        let server = lane.testbed.server;
        let before = *lane.testbed.peer(server).machine.stats();
        for _ in 0..15_000 {
            lane.send(0, GAME, 40);
            lane.step();
        }
        let after = *lane.testbed.peer(server).machine.stats();
        let closes = lane.testbed.log(server).closes();
        let opened = after.packets - before.packets;
        let seconds = if policy == FloodPolicy::Drop { 15 } else { 10 };
        assert!(opened <= 50 + 100 * (seconds + 2), "{opened}");
        assert!(after.dropped_over_limit > 5_000, "{after:?}");
        match policy {
            FloodPolicy::Drop => assert_eq!(closes, []),
            FloodPolicy::Close => {
                let [(_, reason)] = closes[..] else {
                    panic!("{closes:?}")
                };
                assert_eq!(reason, CloseReason::Local(CloseCode::Flood));
            }
        }
    }
}

#[test]
fn b9_inbound_bytes_bound_what_long_packets_cost() {
    let mut config = config();
    config.realtime_rate = NonZeroU32::MAX;
    config.realtime_burst = u32::MAX;
    config.inbound.bytes = 100_000;
    let mut lane = Lane::new(7, 1, &config, near());
    let server = lane.testbed.server;
    let theirs = lane.testbed.log(server).sessions()[0];
    let received = |lane: &Lane| {
        let machine = &lane.testbed.peer(server).machine;
        machine.session_stats(theirs).unwrap()
    };
    let before = received(&lane).bytes_received;
    for _ in 0..5_000 {
        lane.send(0, GAME, BULK_LEN);
        lane.step();
    }
    let after = received(&lane);
    let bytes = after.bytes_received - before;
    assert!((500_000..=560_000).contains(&bytes), "{bytes}");
    assert!(after.packets_over_limit > 3_000, "{after:?}");
}
