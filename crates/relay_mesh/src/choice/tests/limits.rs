//! Each configuration value takes effect exactly, to the millisecond and percent.

use super::*;

/// On the first of two routes at 50 and 60 ms.
fn world(config: ChoiceConfig) -> World {
    let mut world = World::with(config, 1, 2);
    world.decide(&[50, 60]);
    world
}

/// The first change if the routes have these costs from now on.
fn change(config: ChoiceConfig, costs: &[u16]) -> Option<(u64, Reason)> {
    let change = world(config).run(30_000, costs);
    change.map(|(at, _, reason)| (at, reason))
}

const BETTER: Option<(u64, Reason)> = Some((5_000, Reason::Better));

#[test]
fn margin_is_the_least_advantage_to_leave_for() {
    for margin in [1, 3, 20] {
        let config = ChoiceConfig {
            margin: Cost::from_millis(margin),
            margin_percent: 0,
            degraded_excess: Cost::from_millis(500),
            ..ChoiceConfig::default()
        };
        assert_eq!(change(config, &[40 + margin, 40]), None, "{margin}");
        assert_eq!(change(config, &[41 + margin, 40]), BETTER, "{margin}");
    }
}

#[test]
fn margin_percent_is_of_the_best_route() {
    for (margin_percent, least) in [(5, 10), (10, 20), (50, 100)] {
        let config = ChoiceConfig {
            margin_percent,
            degraded_excess: Cost::from_millis(500),
            ..ChoiceConfig::default()
        };
        assert_eq!(change(config, &[200 + least, 200]), None, "{least}");
        assert_eq!(change(config, &[201 + least, 200]), BETTER, "{least}");
    }
}

#[test]
fn hold_is_the_least_time_between_two_changes() {
    // An advantage must last for 3 s, even if the hold is shorter.
    for (hold, at) in [(0, 3_200), (5_000, 5_000), (12_000, 12_000)] {
        let config = ChoiceConfig {
            hold: Duration::from_millis(hold),
            ..ChoiceConfig::default()
        };
        assert_eq!(change(config, &[64, 60]), Some((at, Reason::Better)));
    }
}

#[test]
fn confirm_is_how_long_an_advantage_must_last() {
    // The flow also holds its route for 5 s.
    for (confirm, at) in [(1_000, 5_000), (6_000, 6_200), (9_000, 9_200)] {
        let config = ChoiceConfig {
            confirm: Duration::from_millis(confirm),
            ..ChoiceConfig::default()
        };
        assert_eq!(change(config, &[64, 60]), Some((at, Reason::Better)));
    }
}

#[test]
fn degraded_excess_is_the_advantage_at_which_a_window_is_bad() {
    for excess in [10, 25, 100] {
        let config = ChoiceConfig {
            degraded_excess: Cost::from_millis(excess),
            degraded_total: Cost::ZERO,
            // So that only degradation moves the flow.
            hold: Duration::from_secs(3_600),
            ..ChoiceConfig::default()
        };
        assert_eq!(change(config, &[60 + excess, 60]), None, "{excess}");
        let degraded = Some((600, Reason::Degraded));
        assert_eq!(change(config, &[61 + excess, 60]), degraded, "{excess}");
    }
}

#[test]
fn degraded_windows_and_degraded_total_both_must_be_reached() {
    for (windows, worth, at) in [
        (1, 0, 200),
        (3, 0, 600),
        (10, 0, 2_000),
        (1, 40, 400),
        (3, 200, 2_000),
    ] {
        let config = ChoiceConfig {
            degraded_windows: windows,
            degraded_total: Cost::from_millis(worth),
            ..ChoiceConfig::default()
        };
        // 20 ms × s in each window.
        let degraded = Some((at, Reason::Degraded));
        assert_eq!(change(config, &[160, 60]), degraded, "{windows} {worth}");
    }
}

/// Time on a route that is 100 ms worse, after `returns` false alarms and then `seconds`.
fn borne(config: ChoiceConfig, returns: u32, seconds: u64) -> u64 {
    let config = ChoiceConfig {
        hold: Duration::from_secs(3_600),
        ..config
    };
    let mut world = World::exactly(config, 1, 2);
    world.decide(&[50, 50]);
    let bear = |world: &mut World| {
        let current = world.choice.current();
        let costs: Vec<u16> = world
            .paths
            .iter()
            .map(|path| if Some(path) == current { 150 } else { 50 })
            .collect();
        let (millis, _, reason) = world.run(60_000, &costs).unwrap();
        assert_eq!(reason, Reason::Degraded);
        millis
    };
    for _ in 0..returns {
        bear(&mut world);
        world.run(1_000, &[50, 50]);
    }
    world.run(seconds * 1_000, &[50, 50]);
    bear(&mut world)
}

#[test]
fn false_alarm_increase_is_what_each_return_adds() {
    for (increase, millis) in [(0, 800), (1_000, 1_600), (3_000, 3_200)] {
        let config = ChoiceConfig {
            false_alarm_increase: increase,
            ..ChoiceConfig::default()
        };
        assert_eq!(borne(config, 0, 0), 800);
        assert_eq!(borne(config, 1, 0), millis, "{increase}");
    }
}

#[test]
fn false_alarm_increase_max_bounds_what_all_returns_add() {
    for (max, millis) in [(0, 800), (2_000, 2_400), (9_000, 8_000)] {
        let config = ChoiceConfig {
            false_alarm_increase_max: max,
            ..ChoiceConfig::default()
        };
        assert_eq!(borne(config, 20, 0), millis, "{max}");
    }
}

#[test]
fn false_alarm_half_life_is_the_time_in_which_the_increase_halves() {
    for half_life in [60, 600] {
        let config = ChoiceConfig {
            false_alarm_half_life: Duration::from_secs(half_life),
            ..ChoiceConfig::default()
        };
        // Of three times as much.
        let borne = [0, half_life, 2 * half_life].map(|seconds| borne(config, 1, seconds));
        assert_eq!(borne, [2_400, 1_600, 1_200], "{half_life}");
    }
}

/// The first change if the routes lose these shares, in millionths. The current one costs 50 ms.
fn change_at_loss(config: ChoiceConfig, (current, best): (u32, u32), dearer: u16) -> Option<u64> {
    let mut world = world(config);
    world.loss = vec![Loss::from_ppm(current), Loss::from_ppm(best)];
    let change = world.run(30_000, &[50, 50 + dearer]);
    change.map(|(at, _, reason)| {
        assert_eq!(reason, Reason::Degraded);
        at
    })
}

#[test]
fn degraded_loss_is_the_share_lost_at_which_a_window_is_bad() {
    for share in [10_000, 50_000, 200_000] {
        let config = ChoiceConfig {
            degraded_loss: Loss::from_ppm(share),
            degraded_total: Cost::ZERO,
            ..ChoiceConfig::default()
        };
        assert_eq!(change_at_loss(config, (share, 0), 10), None, "{share}");
        assert_eq!(change_at_loss(config, (share + 1, 0), 10), Some(600));
        assert_eq!(
            change_at_loss(config, (share + 1, share + 1), 10),
            None,
            "the other is as bad: {share}"
        );
    }
}

#[test]
fn degraded_loss_cost_is_how_much_more_the_best_may_cost() {
    for worth in [20, 100, 300] {
        let config = ChoiceConfig {
            degraded_loss_cost: Cost::from_millis(worth),
            degraded_total: Cost::ZERO,
            ..ChoiceConfig::default()
        };
        assert_eq!(change_at_loss(config, (90_000, 0), worth), Some(600));
        assert_eq!(change_at_loss(config, (90_000, 0), worth + 1), None);
    }
}

#[test]
fn equal_is_how_near_to_the_best_a_route_is_as_good() {
    for equal in [0, 2, 10] {
        let config = ChoiceConfig {
            equal: Cost::from_millis(equal),
            ..ChoiceConfig::default()
        };
        // The hash selects two of four routes, and the cheaper one is taken. So some flows take an
        // equal route, and none takes a worse one.
        let taken = |others: u16| {
            let costs = [50, 50 + others, 50 + others, 50 + others];
            let decide = |hash| World::with(config, hash, 4).decide(&costs);
            let firsts = (0..100).map(|hash| decide(hash).map(|(index, _)| index));
            firsts.filter(|index| *index != Some(0)).count()
        };
        assert!(taken(equal) > 20, "{equal}");
        assert_eq!(taken(equal + 1), 0, "{equal}");
    }
}
