#![expect(clippy::arithmetic_side_effects, reason = "numbers of tests are small")]

use std::collections::{BTreeMap, BTreeSet};

use netsim::{for_each_seed, test_site};
use proptest::prelude::*;
use wire::{Generator, Seed};

use super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn fixed(playout: u64) -> InterpolationConfig {
    InterpolationConfig {
        playout: Playout::Fixed(millis(playout)),
        ..InterpolationConfig::default()
    }
}

/// A buffer with states sent at 0, 50, 100, ... ms after 1 s over a path of 40 ms; each state's
/// value is its send time.
fn fed(config: InterpolationConfig, count: u64) -> Interpolation<i64> {
    let mut others = Interpolation::new(config);
    for sent in (1_000..).step_by(50).take(usize::try_from(count).unwrap()) {
        others.push(at(sent + 40), at(sent), i64::try_from(sent).unwrap());
    }
    others
}

fn shown(others: &mut Interpolation<i64>, now: u64) -> i64 {
    let between = others.between(at(now)).unwrap();
    between.mix(*between.from, *between.to)
}

#[test]
fn b1_the_two_surrounding_states_and_the_fraction_are_returned() {
    let mut others = fed(fixed(100), 4);
    // A state that arrives at 1,040 is shown 100 ms later.
    for (now, from, to, ratio) in [
        (1_150, 1_000, 1_050, 0.2_f32),
        (1_165, 1_000, 1_050, 0.5),
        (1_190, 1_050, 1_100, 0.0),
        (1_250, 1_100, 1_150, 0.2),
    ] {
        let between = others.between(at(now)).unwrap();
        assert_eq!((*between.from, *between.to), (from, to));
        assert!((between.ratio() - ratio).abs() < 1e-4, "{between:?}");
        let moment = i64::try_from(now).unwrap() - 140;
        assert_eq!(between.mix(*between.from, *between.to), moment);
        assert!(between.mix(0, i64::MIN) <= 0);
    }
    assert_eq!(others.stats().extrapolated, 0);
}

#[test]
fn before_the_first_state_or_with_one_state_that_one_is_returned() {
    let mut others = Interpolation::new(fixed(100));
    assert_eq!(others.between(at(5)), None);
    others.push(at(1_040), at(1_000), 7);
    for now in [1_040, 1_140, 1_300] {
        let between = others.between(at(now)).unwrap();
        assert_eq!((*between.from, *between.to), (7, 7));
        assert!(between.ratio().abs() < f32::EPSILON);
    }
    // Before the older of two states, that one is shown.
    let mut others = fed(fixed(100), 2);
    assert_eq!(shown(&mut others, 1_050), 1_000);
}

#[test]
fn past_the_newest_state_extrapolation_is_limited() {
    let mut others = fed(fixed(100), 3);
    // The newest state is that of 1,100, shown at 1,240.
    for (now, moment) in [
        (1_240, 1_100),
        (1_300, 1_160),
        (1_340, 1_200),
        (2_000, 1_200),
    ] {
        assert_eq!(shown(&mut others, now), moment);
    }
    assert_eq!(others.stats().extrapolated, 3);
    let mut config = fixed(100);
    config.extrapolation_max = Duration::ZERO;
    let mut others = fed(config, 3);
    assert_eq!(shown(&mut others, 1_300), 1_100);
}

#[test]
fn late_and_duplicate_states_are_dropped_and_others_ordered() {
    let mut others = Interpolation::new(fixed(100));
    for sent in [1_000, 1_100, 1_050, 1_100, 1_000, 1_200] {
        others.push(
            at(sent.max(1_100) + 40),
            at(sent),
            i64::try_from(sent).unwrap(),
        );
    }
    assert_eq!(others.stats().dropped_duplicate, 2);
    let times: Vec<_> = others.states.iter().map(|(_, state)| *state).collect();
    assert_eq!(times, [1_000, 1_050, 1_100, 1_200]);
    // The base is the lowest latency: 40 ms.
    assert_eq!(shown(&mut others, 1_260), 1_120);
    // 1,120 is shown, between 1,100 and 1,200. A state inserted between the two would bend the
    // path.
    others.push(at(1_261), at(1_150), 0);
    others.push(at(1_261), at(1_010), 0);
    assert_eq!(others.stats().dropped_late, 2);
    others.push(at(1_290), at(1_250), 1_250);
    assert_eq!(shown(&mut others, 1_370), 1_230);
}

#[test]
fn the_buffer_is_bounded() {
    for (asked, held) in [(0, 2), (1, 2), (64, 64), (u16::MAX, 1_024)] {
        let mut config = fixed(100);
        config.states = asked;
        let mut others = Interpolation::new(config);
        let slots = others.states.capacity();
        for sent in 0..3_000 {
            others.push(at(5_000), at(sent), 0);
        }
        assert_eq!(others.states.len(), held);
        assert_eq!(others.states.capacity(), slots);
        let dropped = 3_000 - u64::try_from(held).unwrap();
        assert_eq!(others.stats().dropped_full, dropped);
    }
}

#[test]
fn an_older_state_evicts_no_newer_one() {
    let mut config = fixed(100);
    config.states = 3;
    let mut others = Interpolation::new(config);
    for sent in [1_100, 1_150, 1_200, 1_050, 1_000, 1_125] {
        others.push(at(1_240), at(sent), i64::try_from(sent).unwrap());
    }
    let held: Vec<_> = others.states.iter().map(|(_, state)| *state).collect();
    // 1,125 replaces 1,100, which was the oldest; older ones were dropped.
    assert_eq!(held, [1_125, 1_150, 1_200]);
    let stats = others.stats();
    assert_eq!((stats.states, stats.dropped_full), (4, 3));
}

#[test]
fn a_server_with_a_stepped_clock_is_followed() {
    let mut others = fed(fixed(100), 10);
    assert_eq!(shown(&mut others, 1_500), 1_360);
    // The sender's clock jumps an hour ahead.
    for sent in (3_601_500..).step_by(50).take(4) {
        others.push(
            at(sent - 3_600_000 + 40),
            at(sent),
            i64::try_from(sent).unwrap(),
        );
    }
    assert_eq!(shown(&mut others, 1_660), 3_601_520);
    // And back.
    for sent in (1_700..).step_by(50).take(36) {
        others.push(at(sent + 40), at(sent), i64::try_from(sent).unwrap());
    }
    assert_eq!(shown(&mut others, 3_540), 3_400);
    let stats = others.stats();
    assert_eq!((stats.restarts, stats.dropped_late), (2, 32));
    // After a pause in which the game read nothing, the delay is the same.
    for sent in (3_500..).step_by(50).take(40) {
        others.push(at(sent + 40), at(sent), i64::try_from(sent).unwrap());
    }
    assert_eq!(shown(&mut others, 5_540), 5_400);
    assert_eq!(others.stats().jumps, 0);
}

/// A figure on a line that changes direction every 50 ms; at most 4 units per millisecond.
struct Figure {
    generator: Generator,
    speed: i64,
    position: i64,
}

impl Figure {
    fn go(&mut self) -> i64 {
        self.speed += i64::try_from(self.generator.below(3)).unwrap() - 1;
        self.speed = self.speed.clamp(-4, 4);
        self.position += self.speed * 50_000;
        self.position
    }
}

/// States lost in a row; the delay covers one.
#[derive(Default)]
struct Gaps {
    in_row: u64,
    longest: u64,
    /// Time without a state: from when one was due until the next arrived, jitter included.
    missed_ms: u64,
}

impl Gaps {
    const fn on_arrived(&mut self) {
        self.in_row = 0;
    }

    fn on_lost(&mut self) {
        self.in_row += 1;
        self.longest = self.longest.max(self.in_row);
        self.missed_ms += match self.in_row {
            1 => 0,
            2 => 70,
            _ => 50,
        };
    }
}

#[test]
fn sim_b1_others_move_without_jumps_under_loss_and_jitter() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut network = seed.generator(1);
        let mut figure = Figure {
            generator: seed.generator(2),
            speed: 2,
            position: 0,
        };
        let mut others = Interpolation::new(InterpolationConfig::default());
        let mut in_flight = BTreeMap::new();
        let (mut last, mut frozen) = (None, 0);
        let mut gaps = Gaps::default();
        for tick in 0..120_000_u64 {
            let now = at(tick);
            if tick % 50 == 0 {
                let position = figure.go();
                if network.chance(50_000) {
                    gaps.on_lost();
                } else {
                    gaps.on_arrived();
                    let arrival = now + millis(75) + millis(network.below(20));
                    in_flight.insert((arrival, tick), (now, position));
                }
            }
            while let Some(entry) = in_flight.first_entry()
                && entry.key().0 <= now
            {
                let ((arrival, _), (sent_at, position)) = entry.remove_entry();
                others.push(arrival, sent_at, position);
            }
            if tick % 7 != 0 {
                continue;
            }
            let extrapolated = others.stats().extrapolated;
            let Some(between) = others.between(now) else {
                continue;
            };
            let position = between.mix(*between.from, *between.to);
            let is_past = others.stats().extrapolated > extrapolated;
            // At full speed 7 ms are 28,000 units, and an eighth more while the display catches up.
            if let Some((before, was_past)) = last.replace((position, is_past))
                && tick > 10_000
            {
                frozen += u64::from(is_past);
                let step = i64::abs(position - before);
                assert!(is_past || was_past || step <= 31_501, "{step} at {tick}");
            }
        }
        // Plus one frame in a thousand, while the delay adapts to the network.
        let missed = gaps.missed_ms / 7 + 15;
        assert!(frozen <= missed, "{frozen} of {missed}");
        let stats = others.stats();
        assert_eq!((stats.jumps, stats.restarts, stats.dropped_full), (0, 0, 0));
        let delay = others.delay();
        let most = millis((gaps.longest + 2) * 50);
        assert!((millis(100)..=most).contains(&delay), "{delay:?}");
    });
}

proptest! {
    #[test]
    fn b1_agrees_with_a_model_that_keeps_every_state(
        seed in any::<u64>(),
        playout in 0_u64..200,
    ) {
        let mut network = Seed::from_number(seed).generator(0);
        let mut others = Interpolation::new(fixed(playout));
        let mut all = BTreeSet::new();
        let mut now = 0_u64;
        for number in 0..60_u64 {
            now += network.below(60);
            let sent = (number * 20).saturating_sub(network.below(3) * 20) + 1_000;
            let arrival = now.max(sent + 30);
            now = arrival;
            let taken = others.stats().states;
            others.push(at(arrival), at(sent), sent);
            if others.stats().states > taken {
                all.insert(sent);
            }
            if network.chance(500_000) {
                let between = others.between(at(now)).map(|it| (*it.from, *it.to));
                let shown = others.shown.unwrap().0;
                let before = all.iter().rev().find(|sent| at(**sent) <= shown);
                let after = all.iter().find(|sent| at(**sent) > shown);
                let two = between.unwrap();
                if let (Some(before), Some(after)) = (before, after) {
                    prop_assert_eq!(two, (*before, *after));
                } else if let Some(after) = after {
                    prop_assert_eq!(two.0, *after);
                } else {
                    prop_assert_eq!(two.1, *all.iter().next_back().unwrap());
                }
            }
        }
    }
}
