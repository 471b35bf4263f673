use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use proptest::prelude::*;
use wire::{Instant, Seed};

use super::*;
use crate::Chance;

const COUNT: u64 = 100_000;

#[test]
fn a_perfect_link_delivers_each_datagram_at_once_and_draws_nothing() {
    let mut link = link(LinkConfig::default());
    for number in 0..100 {
        let now = Instant::from_nanos(number);
        let deliveries: Vec<Delivery> = link.send(now, 1_200).collect();
        let expected = Delivery {
            at: now,
            len: 1_200,
            damage: None,
        };
        assert_eq!(deliveries, [expected]);
    }
    assert_eq!(link.generator.next_u64(), generator().next_u64());
}

#[test]
fn the_configured_share_is_lost() {
    for percent in [1, 10, 50] {
        let loss = Loss::Bernoulli(Chance::percent(percent));
        let (stats, _) = send_many(LinkConfig::default().with_loss(loss));
        assert_share(stats.lost, percent * 10_000, 5_000);
    }
}

#[test]
fn losses_occur_in_bursts_of_the_configured_length() {
    let run_len = NonZeroU32::new(5).unwrap();
    let loss = Loss::bursts(Chance::percent(10), run_len);
    let (stats, arrived) = send_many(LinkConfig::default().with_loss(loss));
    assert_share(stats.lost, 100_000, 10_000);
    let runs: Vec<usize> = arrived
        .chunk_by(|a, b| a == b)
        .filter(|run| !run[0])
        .map(<[bool]>::len)
        .collect();
    let mean_milli = 1_000 * runs.iter().sum::<usize>() / runs.len();
    assert!((4_700..5_300).contains(&mean_milli), "{mean_milli}");
}

#[test]
fn bursts_are_clamped_at_extreme_loss() {
    let run_len = NonZeroU32::new(3).unwrap();
    let with = |mean| LinkConfig::default().with_loss(Loss::bursts(mean, run_len));
    assert_eq!(send_many(with(Chance::NEVER)).0.lost, 0);
    // Good periods of one datagram between runs of three.
    assert_share(send_many(with(Chance::ALWAYS)).0.lost, 750_000, 5_000);
}

#[test]
fn a_bottleneck_sends_its_bytes_in_exactly_their_time() {
    // At seven bytes per second, the nanoseconds per byte are not a whole number.
    let mut link = link(LinkConfig::default().with_rate(rate(7, 1_000_000)));
    let last = (0..7_000).filter_map(|_| link.send(Instant::ZERO, 1).last());
    assert_eq!(last.last().unwrap().at, Instant::from_millis(1_000_000));
}

#[test]
fn a_bottleneck_accumulates_no_idle_time() {
    let mut link = link(LinkConfig::default().with_rate(rate(1_000, 10_000)));
    let mut arrival = |now| link.send(now, 500).next().unwrap().at;
    assert_eq!(arrival(Instant::ZERO), Instant::from_millis(500));
    assert_eq!(
        arrival(Instant::from_millis(100)),
        Instant::from_millis(1_000)
    );
    assert_eq!(
        arrival(Instant::from_millis(9_000)),
        Instant::from_millis(9_500)
    );
}

#[test]
fn a_full_queue_drops_until_it_has_emptied() {
    let mut link = link(LinkConfig::default().with_rate(rate(1_000, 1_000)));
    let mut fate = |millis, len| link.send(Instant::from_millis(millis), len).fate();
    assert_eq!(
        fate(0, 5_000),
        Outcome::Delivered,
        "an idle link takes any length"
    );
    assert_eq!(fate(0, 1), Outcome::QueueFull);
    assert_eq!(fate(4_499, 500), Outcome::QueueFull, "501 bytes still wait");
    assert_eq!(fate(4_500, 500), Outcome::Delivered);
    assert_eq!(link.stats().queue_dropped, 2);
}

#[test]
fn jitter_stays_in_its_range_and_reaches_both_ends() {
    let max = Duration::from_millis(10);
    let spikes = Jitter::Spikes {
        usual: Duration::from_millis(1),
        rare: max,
        share: Chance::percent(10),
    };
    for (jitter, mean_micros) in [
        (Jitter::Uniform(max), 5_000),
        (Jitter::Bell(max), 5_000),
        (spikes, 950),
    ] {
        let mut generator = generator();
        let draws: Vec<Duration> = (0..COUNT).map(|_| jitter.draw(&mut generator)).collect();
        let mean = draws.iter().sum::<Duration>() / u32::try_from(COUNT).unwrap();
        let off = mean.abs_diff(Duration::from_micros(mean_micros));
        assert!(off < Duration::from_micros(50), "{jitter:?}: {mean:?}");
        assert!(draws.iter().all(|draw| *draw <= max));
        assert!(draws.iter().any(|draw| *draw > max * 9 / 10));
        assert!(draws.iter().any(|draw| *draw < max / 10));
    }
}

#[test]
fn jitter_alone_keeps_the_order_by_default() {
    let config = LinkConfig::default().with_jitter(Jitter::Uniform(Duration::from_millis(50)));
    assert!(arrivals(config).is_sorted());
    assert!(!arrivals(config.with_order(Order::ByDelay)).is_sorted());
}

#[test]
fn the_configured_share_is_reordered() {
    let config = LinkConfig::default()
        .with_delay(Duration::from_millis(20))
        .with_reorder(Chance::percent(3), Duration::from_micros(6_500));
    let arrivals = arrivals(config);
    let held = |pair: &&[Instant]| pair[0] > pair[1];
    let late = arrivals.windows(2).filter(held).count();
    // Sent a millisecond apart; two held back in a row make one step back in time.
    assert_share(u64::try_from(late).unwrap(), 29_100, 2_000);
    let (stats, _) = send_many(config);
    assert_share(stats.reordered, 30_000, 2_000);
}

#[test]
fn the_configured_shares_are_duplicated_corrupted_and_truncated() {
    let config = LinkConfig::default()
        .with_duplicate(Chance::percent(5))
        .with_corrupt(Chance::percent(4))
        .with_truncate(Chance::percent(2));
    let (stats, _) = send_many(config);
    assert_share(stats.duplicated, 50_000, 3_000);
    assert_share(stats.corrupted, 42_000, 3_000);
    assert_share(stats.truncated, 21_000, 3_000);
}

#[test]
fn corruption_changes_one_datagram_only() {
    let mut corrupting = link(LinkConfig::default().with_corrupt(Chance::ALWAYS));
    let mut truncating = link(LinkConfig::default().with_truncate(Chance::ALWAYS));
    let sent = [7; 40];
    for _ in 0..1_000 {
        let mut bytes = sent;
        let delivery = corrupting.send(Instant::ZERO, bytes.len()).next().unwrap();
        let arrived = delivery.edit(&mut bytes);
        let changed = arrived.iter().zip(sent).filter(|(a, b)| **a != *b).count();
        assert_eq!((arrived.len(), changed), (sent.len(), 1));

        let mut bytes = sent;
        let delivery = truncating.send(Instant::ZERO, bytes.len()).next().unwrap();
        let arrived = delivery.edit(&mut bytes);
        assert!(arrived.len() < sent.len());
        assert_eq!(arrived, &sent[..arrived.len()]);
    }
}

#[test]
fn datagrams_over_the_mtu_are_dropped() {
    let mut link = link(LinkConfig::default().with_mtu(1_200));
    assert_eq!(link.send(Instant::ZERO, 1_200).fate(), Outcome::Delivered);
    assert_eq!(link.send(Instant::ZERO, 1_201).fate(), Outcome::TooLong);
    assert_eq!(link.stats().too_long, 1);
}

#[test]
fn a_cut_link_delivers_nothing_until_it_is_restored() {
    let mut link = link(LinkConfig::default());
    link.set_config(link.config().with_down());
    assert_eq!(link.send(Instant::ZERO, 1).fate(), Outcome::Partitioned);
    link.set_config(link.config().with_up());
    assert_eq!(link.send(Instant::ZERO, 1).fate(), Outcome::Delivered);
    assert_eq!(link.stats().partitioned, 1);
}

#[test]
fn datagrams_on_a_shorter_path_overtake_earlier_ones() {
    let mut link = link(LinkConfig::default().with_delay(Duration::from_millis(100)));
    let long = link.send(Instant::ZERO, 1).next().unwrap();
    link.set_config(link.config().with_delay(Duration::from_millis(10)));
    let short = link.send(Instant::from_millis(1), 1).next().unwrap();
    assert_eq!(long.at, Instant::from_millis(100));
    assert_eq!(short.at, Instant::from_millis(11));
}

proptest! {
    #[test]
    fn every_datagram_has_one_outcome_at_extreme_values_too(
        config in any_config(),
        sends in proptest::collection::vec((any::<u64>(), 0..70_000_usize), 1..200),
        number in any::<u64>(),
    ) {
        let mut link = Link::new(config, Seed::from_number(number).generator(0));
        let mut copies = 0;
        for (nanos, len) in sends {
            let now = Instant::from_nanos(nanos);
            for delivery in link.send(now, len) {
                copies += 1;
                prop_assert!(delivery.at >= now);
                let mut bytes = vec![0; len];
                prop_assert_eq!(delivery.edit(&mut bytes).len(), delivery.len);
            }
        }
        let stats = link.stats();
        prop_assert_eq!(stats.delivered, copies);
        let ends = stats.delivered + stats.lost + stats.queue_dropped + stats.too_long
            + stats.partitioned;
        prop_assert_eq!(stats.sent + stats.duplicated, ends);
    }
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let chance = || (0..=1_000_000_u32).prop_map(Chance::per_million);
    let span = || any::<u64>().prop_map(Duration::from_nanos);
    let shape = (span(), span(), any::<[bool; 3]>());
    let fates = (chance(), chance(), chance(), chance(), chance());
    let queue = (1..=u64::MAX, any::<u64>());
    (shape, fates, queue).prop_map(|((delay, jitter, flags), fates, queue)| {
        let (loss, reorder, duplicate, corrupt, truncate) = fates;
        let mut config = LinkConfig::default()
            .with_delay(delay)
            .with_jitter(Jitter::Bell(jitter))
            .with_loss(Loss::Bernoulli(loss))
            .with_reorder(reorder, jitter)
            .with_duplicate(duplicate)
            .with_corrupt(corrupt)
            .with_truncate(truncate);
        if flags[0] {
            config = config.with_rate(rate(queue.0, queue.1));
        }
        if flags[1] {
            config = config.with_mtu(1_200).with_order(Order::ByDelay);
        }
        config
    })
}

/// Sends datagrams of 100 bytes; returns which of them arrived.
fn send_many(config: LinkConfig) -> (LinkStats, Vec<bool>) {
    let mut link = link(config);
    let arrived = (0..COUNT)
        .map(|_| link.send(Instant::ZERO, 100).fate() == Outcome::Delivered)
        .collect();
    (*link.stats(), arrived)
}

/// Arrival times of datagrams sent one millisecond apart.
fn arrivals(config: LinkConfig) -> Vec<Instant> {
    let mut link = link(config);
    (0..COUNT)
        .flat_map(|millis| link.send(Instant::from_millis(millis), 100))
        .map(|delivery| delivery.at)
        .collect()
}

#[track_caller]
fn assert_share(count: u64, per_million: u32, tolerance: u32) {
    let share = u32::try_from(count * 1_000_000 / COUNT).unwrap();
    assert!(share.abs_diff(per_million) <= tolerance, "{share}");
}

fn rate(bytes_per_second: u64, queue_bytes: u64) -> Rate {
    Rate {
        bytes_per_second: NonZeroU64::new(bytes_per_second).unwrap(),
        queue_bytes,
    }
}

fn link(config: LinkConfig) -> Link {
    Link::new(config, generator())
}

fn generator() -> Generator {
    Seed::from_number(1).generator(0)
}
