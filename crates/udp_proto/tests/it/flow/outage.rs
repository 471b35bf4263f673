//! An outage has no lasting effect if the path has room.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use netsim::{LinkConfig, Rate};
use udp_proto::{ChannelConfig, ChannelTable, Config};
use wire::Instant;

use super::lane::{GAME, Lane, config};

fn near(millis: u64) -> LinkConfig {
    LinkConfig::default().with_delay(Duration::from_millis(millis))
}

/// A client sends `len` bytes every `step_millis`; in between its path is down for `away`. Returns
/// the rate two round trips and a second after the outage, and the percentage of the next second's
/// messages that arrive.
fn after_outage(
    (seed, delay): (u64, u64),
    (len, step_millis): (usize, u64),
    away: u64,
) -> (u32, usize) {
    let link = near(delay);
    let mut lane = Lane::new(seed, 1, &config(), [link, link]);
    let play = |lane: &mut Lane, millis: u64| {
        let mut sent = 0;
        for milli in 0..millis {
            if milli % step_millis == 0 {
                lane.send(0, GAME, len);
                sent += 1;
            }
            lane.step();
        }
        sent
    };
    play(&mut lane, 4_000);
    let down = LinkConfig::default().with_down();
    lane.set_path(down, down);
    play(&mut lane, away);
    lane.set_path(link, link);
    play(&mut lane, 4 * delay + 1_000);
    let rate = lane.stats(0).realtime_rate;
    let since = lane.now();
    let sent = play(&mut lane, 1_000);
    let in_it = |(_, _, at, _): &&(_, _, Instant, _)| *at >= since;
    lane.run(2 * delay + 200, &[]);
    let came = lane.came.iter().filter(in_it).count();
    (rate, came * 100 / sent)
}

#[test]
fn sim_the_rate_is_back_two_round_trips_and_a_second_after_an_outage() {
    for (number, away) in (0..).zip([200, 400, 700, 1_500, 3_000, 8_000]) {
        for (delay, pattern) in [
            (10, (100, 16)),
            (20, (1_000, 5)),
            (50, (2_000, 10)),
            (150, (200, 1)),
            (100, (20, 100)),
        ] {
            let (rate, part) = after_outage((30 + number, delay), pattern, away);
            println!("{away} ms away, {delay} ms, {pattern:?}: {rate} B/s, {part} %");
            assert_eq!(rate, 262_144, "{away} ms away, {delay} ms, {pattern:?}");
            assert!(
                part >= 99,
                "{part} %: {away} ms away, {delay} ms, {pattern:?}"
            );
        }
    }
}

/// A path that loses a third of the packets, and one that works two of every three seconds.
#[test]
fn sim_a_congested_path_still_reduces_the_rate() {
    for is_narrow in [true, false] {
        let link = near(20);
        let mut lane = Lane::new(40, 1, &config(), [link, link]);
        if is_narrow {
            let narrow = link.with_rate(Rate {
                bytes_per_second: NonZeroU64::new(60_000).unwrap(),
                queue_bytes: 6_000,
            });
            lane.set_path(narrow, link);
        }
        let mut least = u32::MAX;
        for milli in 0..20_000_u64 {
            if !is_narrow && milli % 1_500 == 0 {
                let down = LinkConfig::default().with_down();
                let up = if milli % 4_500 == 0 { down } else { link };
                lane.set_path(up, link);
            }
            if milli % 5 == 0 {
                lane.send(0, GAME, 1_000);
            }
            lane.step();
            if milli > 8_000 {
                least = least.min(lane.stats(0).realtime_rate);
            }
        }
        let rate = lane.stats(0).realtime_rate;
        assert!(
            least <= 131_072 && rate <= 131_072 * 12 / 10,
            "{least} {rate}"
        );
    }
}

/// Messages of several fragments at twice the rate: each is sent completely or not at all.
#[test]
fn sim_messages_over_the_rate_are_sent_complete_or_not_at_all() {
    for (rate, len, step_millis) in [
        (73_000, 2_000, 16),
        (73_000, 1_300, 8),
        (73_000, 12_000, 100),
        (262_144, 30_000, 50),
        (262_144, 60_000, 100),
    ] {
        let mut game = ChannelConfig::unreliable();
        game.message_bytes_max = 64_000;
        let mut config = Config::default();
        config.channels = ChannelTable::new(&[game]).unwrap();
        config.realtime_rate = NonZeroU32::new(rate).unwrap();
        let link = near(20);
        let mut lane = Lane::new(41, 1, &config, [link, link]);
        lane.run(1_000, &[]);
        let since = lane.now();
        for milli in 0..10_000 {
            if milli % step_millis == 0 {
                lane.send(0, GAME, len);
            }
            lane.step();
        }
        let bytes = lane.count(GAME, since) * len / 10;
        let rate = usize::try_from(rate).unwrap();
        println!("{len} bytes each {step_millis} ms at {rate} B/s: {bytes} B/s arrive");
        assert!(bytes * 10 >= rate * 8, "{len}: {bytes} of {rate}");
        assert!(bytes <= rate * 105 / 100 + len, "{len}: {bytes} of {rate}");
    }
}
