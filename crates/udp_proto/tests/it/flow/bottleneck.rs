//! Bulk through a bottleneck: throughput and queueing delay.

use core::num::NonZeroU64;
use core::time::Duration;

use netsim::{LinkConfig, Rate};

use super::lane::{BULK, BULK_LEN, GAME, Lane, config, percentile};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Both directions of a path: uplink rate in bytes per second, RTT and queue in ms.
fn path((rate, round_trip, queue): (u64, u64, u64)) -> [LinkConfig; 2] {
    let down = LinkConfig::default().with_delay(ms(round_trip) / 2);
    let up = down.with_rate(Rate {
        bytes_per_second: NonZeroU64::new(rate).unwrap(),
        queue_bytes: rate * queue / 1_000,
    });
    [up, down]
}

/// Bulk with a game on the same path: the used share of the bottleneck in percent, and the 99th
/// percentile of the game's queueing delay.
fn measure((rate, round_trip, queue): (u64, u64, u64)) -> (u64, Duration) {
    let links = path((rate, round_trip, queue));
    let mut lane = Lane::new(rate + round_trip + queue, 1, &config(), links);
    lane.run(5_000, &[0]);
    let since = lane.now();
    lane.play(25_000, &[0]);
    let bytes = lane.count(BULK, since) * BULK_LEN + lane.count(GAME, since) * 100;
    let share = u64::try_from(bytes).unwrap() * 100 / (rate * 25);
    let ways = lane.ways(GAME, since);
    let late = percentile(&ways, 99).saturating_sub(ms(round_trip / 2));
    let lost = lane.stats(0).packets_lost;
    println!(
        "{rate} B/s, {round_trip} ms, queue {queue} ms: {share} %, {late:?} late, {lost} lost"
    );
    (share, late)
}

#[test]
fn sim_b3_bulk_fills_a_bottleneck_and_delays_a_game_by_at_most_50_ms() {
    for rate in [60_000, 250_000, 1_000_000] {
        for round_trip in [20, 60, 200] {
            for queue in [100, 400] {
                let (share, late) = measure((rate, round_trip, queue));
                assert!((85..=100).contains(&share), "{share} %");
                // A packet already being sent cannot be preempted, so one or two are added.
                assert!(late <= ms(50 + 1_800_000 / rate), "{late:?}");
            }
        }
    }
}

/// A queue of three packets on a path that holds ten.
#[test]
fn sim_b3_a_queue_too_short_for_a_window_costs_a_third_at_most() {
    let (share, late) = measure((60_000, 200, 60));
    assert!((66..=100).contains(&share), "{share} %");
    assert!(late <= ms(60), "{late:?}");
}

/// Two sessions of one host share its uplink; the second starts ten seconds later.
#[test]
fn sim_b3_two_flows_share_a_bottleneck_and_neither_collapses() {
    for (rate, round_trip) in [(250_000, 30), (250_000, 100), (1_000_000, 60)] {
        let mut lane = Lane::new(
            rate + round_trip,
            1,
            &config(),
            path((rate, round_trip, 300)),
        );
        lane.add_session(2);
        lane.run(10_000, &[0]);
        let since = lane.now();
        lane.play(60_000, &[0, 1]);
        let parts = [0, 1].map(|client| lane.count_of(client, BULK, since) * BULK_LEN);
        let share = |bytes: usize| u64::try_from(bytes).unwrap() * 100 / (rate * 60);
        let ways = lane.ways(GAME, since);
        let late = percentile(&ways, 99).saturating_sub(ms(round_trip / 2));
        println!(
            "{rate} B/s, {round_trip} ms: {} and {} %, {late:?} late",
            share(parts[0]),
            share(parts[1])
        );
        assert!(share(parts[0] + parts[1]) >= 85);
        assert!(parts.iter().all(|part| share(*part) >= 15));
        assert!(late <= ms(100), "{late:?}");
    }
}

/// A permanently longer path first looks like a queue. In the end its RTT is accepted.
#[test]
fn sim_b3_a_longer_path_is_recognised_within_half_a_minute() {
    let mut lane = Lane::new(1, 1, &config(), path((250_000, 30, 200)));
    lane.run(10_000, &[0]);
    let [up, down] = path((250_000, 130, 200));
    lane.set_path(up, down);
    lane.run(25_000, &[0]);
    let since = lane.now();
    lane.run(10_000, &[0]);
    let share = lane.count(BULK, since) * BULK_LEN * 100 / 2_500_000;
    // Of its data; headers and tags take 3 % more.
    assert!(share >= 80, "{share} %");
}
