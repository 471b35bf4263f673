//! Delivery times of reliable messages.

use core::time::Duration;

use netsim::{Chance, LinkConfig, Loss};

use super::lane::{BULK, Lane, RELIABLE, config, percentile};

fn both(link: LinkConfig) -> [LinkConfig; 2] {
    [link, link]
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The replaced system takes 34 s: one fragment of 1 KiB per tick of 1/30 s.
#[test]
fn sim_b5_a_megabyte_takes_at_most_450_ms_at_50_ms_round_trip() {
    let mut lane = Lane::new(
        5,
        1,
        &config(),
        both(LinkConfig::default().with_delay(ms(25))),
    );
    let start = lane.now();
    let (mut left, mut came) = (1_000_000_usize, 0);
    while came < 1_000_000 {
        while left > 0 && lane.send(0, BULK, left.min(50_000)) {
            left -= left.min(50_000);
        }
        lane.step();
        let messages = &lane.testbed.log(lane.testbed.server).messages;
        came = messages.iter().map(|(_, _, message)| message.len()).sum();
        assert!(
            lane.now().saturating_since(start) < Duration::from_secs(5),
            "{came}"
        );
    }
    let took = lane.now().saturating_since(start);
    println!("1 MB at a round trip of 50 ms: {took:?}");
    assert!(took <= ms(450), "{took:?}");
}

/// The replaced system retransmits after a second.
#[test]
fn sim_b6_at_10_percent_loss_99_percent_arrive_within_200_ms() {
    let mut all = Vec::new();
    for seed in 0..5 {
        let link = LinkConfig::default()
            .with_delay(ms(25))
            .with_loss(Loss::Bernoulli(Chance::percent(10)));
        let mut lane = Lane::new(600 + seed, 1, &config(), both(link));
        let since = lane.now();
        let mut sent = 0;
        for milli in 0..20_000 {
            if milli % 16 == 0 {
                sent += usize::from(lane.send(0, RELIABLE, 100));
            }
            lane.step();
        }
        for _ in 0..3_000 {
            lane.step();
        }
        assert_eq!(lane.count(RELIABLE, since), sent, "each of them");
        all.extend(lane.ways(RELIABLE, since));
    }
    all.sort_unstable();
    let [half, most] = [50, 99].map(|percent| percentile(&all, percent));
    println!("reliable at 10 % loss and 50 ms: {half:?} for half, {most:?} for 99 of 100");
    assert!(half <= ms(60), "{half:?}");
    assert!(most <= ms(200), "{most:?}");
}
