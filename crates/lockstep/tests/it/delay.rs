//! The input delay that each client adapts.

use core::time::Duration;

use lockstep::{ClientEvent, InputDelay, Origin};
use netsim::{for_each_seed, test_site};
use wire::Seed;

use crate::world::{Link, World, config, pad};

fn world(seed: Seed, delay: InputDelay, link: Link) -> World<u16> {
    let mut config = config(4);
    config.input_delay = delay;
    World::seeded(seed, config, link, pad)
}

fn adaptive(seed: Seed, link: Link) -> World<u16> {
    world(seed, InputDelay::adaptive(1, 40).unwrap(), link)
}

/// Substituted inputs of `player` from its tick `from` on.
fn late(world: &World<u16>, player: usize, from: usize) -> usize {
    let own = world.players[player].own.iter().skip(from);
    own.filter(|(_, origin)| *origin == Origin::Substituted)
        .count()
}

/// The delays of `player` over time.
fn delays(world: &World<u16>, player: usize) -> Vec<u8> {
    let events = world.players[player].events.iter();
    let delays = events.filter_map(|event| {
        if let ClientEvent::InputDelay { ticks } = event {
            Some(*ticks)
        } else {
            None
        }
    });
    delays.collect()
}

#[test]
fn sim_ls_13_delay_changes_revoke_no_accepted_input() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut generator = seed.generator(13);
        let mut world = adaptive(seed, Link::lossy(2));
        for _ in 0..6 {
            for link in &mut world.links {
                link.latency = Duration::from_millis(generator.below(150));
                link.jitter = Duration::from_millis(generator.between(1, 40));
            }
            world.run_for(Duration::from_secs(3));
        }
        world.run_for(Duration::from_secs(1));
        crate::agreement::assert_guarantees(&world);
        assert!((0..4).any(|player| delays(&world, player).len() > 1));
    });
}

#[test]
fn ls_13_a_clients_delay_rises_at_once_and_falls_slowly() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(20);
    let mut world = adaptive(Seed::from_number(1), link);
    world.run(600);
    let calm = delays(&world, 0).last().copied().unwrap();
    // A round trip of 40 ms is 2.4 ticks.
    assert!((3..=4).contains(&calm), "{calm}");
    let others = delays(&world, 1);
    // The latency of player 0 increases. The uplink's part is compensated in a round trip, the
    // downlink's once the clock has followed.
    world.links[0].latency = Duration::from_millis(100);
    let from = world.players[0].own.len();
    world.run_for(Duration::from_millis(600));
    let worse = delays(&world, 0).last().copied().unwrap();
    assert!((7..=9).contains(&worse), "{worse}");
    world.run_for(Duration::from_secs(8));
    let worse = delays(&world, 0).last().copied().unwrap();
    assert!((11..=15).contains(&worse), "{worse}");
    let late = late(&world, 0, from);
    assert!(late <= 40, "{late}");
    // The latency decreases again: unchanged for about 10 s, then one tick per 5 s.
    world.links[0].latency = Duration::from_millis(20);
    world.run_for(Duration::from_secs(4));
    // A reordered input counts as late.
    let still = delays(&world, 0).last().copied().unwrap();
    assert!(still == worse || still == worse + 1, "{still}");
    let steps = delays(&world, 0).len();
    world.run_for(Duration::from_secs(40));
    let down = delays(&world, 0)[steps..].to_vec();
    assert!((4..=8).contains(&down.len()), "{down:?}");
    assert!(
        down.windows(2).all(|pair| pair[1] + 1 == pair[0]),
        "{down:?}"
    );
    // Other players are not affected.
    assert_eq!(delays(&world, 1), others);
}

#[test]
fn ls_g8_adaptive_delay_is_within_a_tenth_of_the_best_fixed_one() {
    // 50 ms to the server, 10 ms jitter, 2 % lost: late inputs and the delay they cost.
    let run = |delay| {
        let mut world = world(Seed::from_number(8), delay, Link::lossy(2));
        world.run(600);
        let from = world.players[0].own.len();
        let waited = |world: &World<u16>| {
            let slack = world
                .players
                .iter()
                .map(|player| player.machine.stats().input_delay);
            slack.map(f64::from).sum::<f64>()
        };
        let (mut sum, mut count) = (0.0, 0);
        for _ in 0..60 {
            world.run_for(Duration::from_secs(1));
            sum += waited(&world);
            count += world.players.len();
        }
        let late: usize = (0..4).map(|player| late(&world, player, from)).sum();
        let mean = sum / f64::from(u32::try_from(count).unwrap());
        // A tick of delay counts as much as one late input per minute and player.
        (mean, late)
    };
    let fixed: Vec<_> = (6..12)
        .map(|ticks| run(InputDelay::fixed(ticks).unwrap()))
        .collect();
    let best = fixed.iter().find(|(_, late)| *late <= 8).unwrap();
    let (mean, late) = run(InputDelay::adaptive(1, 40).unwrap());
    eprintln!("fixed {fixed:?}, adaptive {mean:.2} ticks, {late} late in 4 player-minutes");
    assert!(late <= 8, "{late}");
    // Input to execution takes 50 ms more, and 27 ms of playout.
    let latency = |ticks: f64| ticks * 16.67 + 77.0;
    assert!(latency(mean) <= latency(best.0) * 1.1, "{mean} {best:?}");
}
