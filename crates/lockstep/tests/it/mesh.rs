//! Equal peers play the same game, whatever the network does.

use core::time::Duration;

use lockstep::{MeshConfig, MeshEvent, Origin, Repair, SavePolicy, StateHasher, Tick, TickRate};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Instant, Seat, Seed};

use crate::mesh_world::{MeshPlayer, MeshWorld, all, assert_agreement, mesh};
use crate::world::{Link, MATCH, pad, stick};

fn clean(latency: u64) -> Link {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(latency);
    link
}

/// A random link, up to a bad one.
fn any_link(generator: &mut Generator) -> Link {
    Link {
        latency: Duration::from_millis(generator.below(120)),
        jitter: Duration::from_millis(generator.below(40)),
        loss: u32::try_from(generator.below(200_000)).unwrap(),
        duplicate: 20_000,
        corrupt: 0,
    }
}

/// A mesh of random size, links, delays and window.
fn any_world(seed: Seed) -> MeshWorld<u16> {
    let mut generator = seed.generator(77);
    let mut config = mesh(u16::try_from(generator.between(2, 6)).unwrap());
    let window = generator.between(0, 12);
    config.window = u8::try_from(window.saturating_sub(4)).unwrap();
    config.save = [SavePolicy::Dense, SavePolicy::Sparse, SavePolicy::Auto]
        [usize::try_from(generator.below(3)).unwrap()];
    let mut world = MeshWorld::new(seed, &config, Link::perfect(), pad);
    for from in 0..world.players.len() {
        for to in 0..world.players.len() {
            world.links[from][to] = any_link(&mut generator);
        }
        world.players[from].drift_ppm = i64::try_from(generator.below(401)).unwrap() - 200;
        let delay = u8::try_from(generator.below(16)).unwrap();
        let now = world.now;
        world.players[from].machine.set_input_delay(now, delay);
    }
    world
}

fn has_desync<I>(player: &MeshPlayer<I>) -> bool {
    let is_desync = |event: &MeshEvent| matches!(event, MeshEvent::Desync { .. });
    player.events.iter().any(is_desync)
}

/// Every own input in a turn is the newest one submitted for that tick.
fn assert_own_inputs(world: &MeshWorld<u16>) {
    for (index, player) in world.players.iter().enumerate() {
        for (tick, turn) in (0..).map(Tick).zip(&player.turns) {
            let (input, origin) = turn[index];
            assert_eq!(origin, Origin::Confirmed);
            // An increased delay repeats the previous input, which is reported.
            let is_repeated = player.events.iter().any(|event| {
                matches!(event, MeshEvent::InputDelay { tick: next, repeated, .. }
                    if tick < *next && tick.plus(*repeated) >= *next)
            });
            if let Some(submitted) = player.submitted.get(&tick)
                && !is_repeated
            {
                assert_eq!(input, *submitted, "{tick}");
            }
        }
    }
}

#[test]
fn sim_ls_1_mesh_agrees_on_every_tick_and_sim_ls_12_no_false_alarm() {
    for_each_seed(&test_site!(), 30, |seed| {
        let mut world = any_world(seed);
        world.run_for(Duration::from_secs(3));
        // One of them is paused for a while.
        let paused = world.players.len() - 1;
        world.players[paused].is_paused = true;
        world.run_for(Duration::from_millis(300));
        world.players[paused].is_paused = false;
        world.run_for(Duration::from_secs(4));
        assert_agreement(&all(&world));
        assert_own_inputs(&world);
        for player in &world.players {
            assert!(player.states.len() > 100, "{}", player.states.len());
            assert!(!has_desync(player) && player.closed().is_none());
            assert!(player.left().is_empty());
        }
    });
}

/// The state after all turns of a player.
fn replayed(player: &MeshPlayer<u16>) -> u64 {
    player.turns.iter().fold(0, |state, turn| {
        let mut hasher = StateHasher::new(MATCH);
        hasher.u64(state);
        for (input, origin) in turn {
            hasher.u8(origin.code());
            hasher.bytes(&input.to_be_bytes());
        }
        hasher.finish()
    })
}

#[test]
fn sim_ls_3_mesh_rollback_equals_its_own_replay_for_every_window() {
    for_each_seed(&test_site!(), 33, |seed| {
        let number = seed.generator(0).below(33);
        let mut config = mesh(3);
        config.window = u8::try_from(number).unwrap();
        config.input_delay = 1;
        let mut world = MeshWorld::new(seed, &config, Link::lossy(5), pad);
        world.run_for(Duration::from_secs(5));
        assert_agreement(&all(&world));
        for player in &world.players {
            assert_eq!(player.states.last().copied(), Some(replayed(player)));
            assert!(player.steps.1 > 0 || config.window == 0, "it went back");
            assert!(player.states.len() > 40);
        }
    });
}

#[test]
fn mesh_with_a_window_needs_no_delay() {
    // 50 ms are 3 ticks: with a window of 8, own inputs are in the next step.
    let mut config = mesh(4);
    config.input_delay = 0;
    config.window = 8;
    let mut world = MeshWorld::new(Seed::from_number(1), &config, Link::lossy(2), pad);
    world.run_for(Duration::from_secs(20));
    assert_agreement(&all(&world));
    for player in &world.players {
        let end = usize::try_from(player.machine.boundary()).unwrap();
        assert_eq!(player.stepped_at.len(), end, "each at its boundary");
        assert!(rate(player, 2, 20) > 59.9, "{}", rate(player, 2, 20));
    }
    assert_own_inputs(&world);
}

/// Ticks per second between two times, in seconds from the start.
fn rate<I>(player: &MeshPlayer<I>, from: u64, to: u64) -> f64 {
    let at = |secs: u64| Instant::from_millis(1_000 + secs * 1_000);
    let count = |end: Instant| player.stepped_at.partition_point(|stepped| *stepped < end);
    let ticks = u32::try_from(count(at(to)) - count(at(from))).unwrap();
    f64::from(ticks) / f64::from(u32::try_from(to - from).unwrap())
}

#[test]
fn ls_g6_mesh_runs_60_ticks_a_second_at_a_delay_of_4_and_50_ms() {
    for seats in [2, 4, 8] {
        let mut config = mesh(seats);
        config.input_delay = 4;
        let mut world = MeshWorld::new(Seed::from_number(6), &config, clean(50), pad);
        world.run_for(Duration::from_secs(21));
        for player in &world.players {
            let rate = rate(player, 1, 21);
            assert!((59.99..60.06).contains(&rate), "{seats}: {rate}");
            let late =
                player.stepped_at.windows(2).skip(30).filter(|pair| {
                    pair[1].saturating_since(pair[0]) > Duration::from_micros(17_100)
                });
            assert_eq!(late.count(), 0, "{seats}: no tick waits");
        }
    }
}

#[test]
fn ls_g7_mesh_runs_59_9_ticks_a_second_at_a_delay_of_6_with_loss() {
    let mut world = MeshWorld::new(Seed::from_number(7), &mesh(4), Link::lossy(2), pad);
    world.run_for(Duration::from_secs(61));
    for player in &world.players {
        let rate = rate(player, 1, 61);
        assert!(rate >= 59.9, "{rate}");
        assert!(
            player.machine.stats().holds <= 10,
            "{:?}",
            player.machine.stats()
        );
    }
    assert_agreement(&all(&world));
}

#[test]
fn ls_g10_mesh_of_eight_pads_sends_at_most_15_kb_a_second() {
    let mut link = clean(50);
    link.loss = 20_000;
    let mut world = MeshWorld::new(Seed::from_number(10), &mesh(8), link, pad);
    world.run_for(Duration::from_secs(2));
    let sent = |world: &MeshWorld<u16>| {
        let stats = world.players[3].machine.stats();
        (stats.bytes_sent, stats.datagrams_sent)
    };
    let before = sent(&world);
    world.run_for(Duration::from_secs(20));
    let after = sent(&world);
    let (bytes, datagrams) = (after.0 - before.0, after.1 - before.1);
    let (payload, with_headers) = (bytes / 20, (bytes + 28 * datagrams) / 20);
    eprintln!("{payload} B/s payload, {with_headers} B/s with headers");
    assert!(payload <= 15_000 && with_headers <= 30_000);
}

#[test]
fn sim_ls_g16_mesh_begins_within_two_round_trips() {
    let mut waits = Vec::new();
    for_each_seed(&test_site!(), 100, |seed| {
        let mut link = clean(50);
        let is_lossy = seed.generator(5).chance(500_000);
        link.loss = if is_lossy { 20_000 } else { 0 };
        let mut world = MeshWorld::new(seed, &mesh(4), link, pad);
        let begin = world.now;
        world.run_for(Duration::from_secs(2));
        let firsts = world.players.iter().map(|player| player.stepped_at[0]);
        let (first, last) = (firsts.clone().min().unwrap(), firsts.max().unwrap());
        let wait = last.saturating_since(begin);
        assert!(is_lossy || wait <= Duration::from_millis(200), "{wait:?}");
        let spread = last.saturating_since(first);
        assert!(is_lossy || spread <= Duration::from_millis(1), "{spread:?}");
        waits.push(wait);
    });
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    assert!(
        waits.len() < 100 || p99 <= Duration::from_millis(350),
        "{p99:?}"
    );
}

#[test]
fn mesh_clocks_stay_synchronized_despite_drift() {
    let mut world = MeshWorld::new(Seed::from_number(4), &mesh(4), Link::lossy(2), pad);
    for (player, drift) in world.players.iter_mut().zip([200, -200, 150, -50]) {
        player.drift_ppm = drift;
    }
    world.run_for(Duration::from_secs(240));
    // Without clock synchronisation 400 ppm would be 6 ticks by now.
    let boundaries = world.players.iter().map(|player| player.machine.boundary());
    let (low, high) = (boundaries.clone().min().unwrap(), boundaries.max().unwrap());
    assert!(high - low <= 1, "{low} {high}");
    let rates = world.players.iter().map(|player| rate(player, 1, 240));
    for rate in rates {
        assert!((59.95..60.05).contains(&rate), "{rate}");
    }
}

#[test]
fn mesh_a_paused_peer_is_named_and_the_ticks_are_recovered() {
    let mut world = MeshWorld::new(Seed::from_number(8), &mesh(4), clean(30), pad);
    world.run_for(Duration::from_secs(3));
    world.players[2].is_paused = true;
    world.run_for(Duration::from_millis(500));
    let known = world.players[0].machine.ticks_confirmed();
    world.players[2].is_paused = false;
    world.run_for(Duration::from_secs(10));
    for (index, player) in world.players.iter().enumerate() {
        let stalls: Vec<_> = player
            .events
            .iter()
            .filter_map(|event| {
                if let MeshEvent::Stalled { seat, tick } = event {
                    Some((*seat, tick.0))
                } else {
                    None
                }
            })
            .collect();
        if index != 2 {
            assert_eq!(stalls.first(), Some(&(Seat(2), known)), "{stalls:?}");
            let resumed = MeshEvent::Resumed { tick: Tick(0) };
            let is_resumed = |event: &&MeshEvent| {
                core::mem::discriminant(*event) == core::mem::discriminant(&resumed)
            };
            assert_eq!(
                player.events.iter().filter(is_resumed).count(),
                stalls.len()
            );
        }
        assert!(player.left().is_empty() && player.closed().is_none());
        assert!(rate(player, 8, 13) > 59.9, "{}", rate(player, 8, 13));
    }
    assert_agreement(&all(&world));
}

#[test]
fn sim_ls_13_mesh_delays_change_while_ticks_run() {
    for_each_seed(&test_site!(), 16, |seed| {
        let mut generator = seed.generator(13);
        let mut world = MeshWorld::new(seed, &mesh(3), Link::lossy(3), pad);
        world.run_for(Duration::from_secs(1));
        for _ in 0..12 {
            world.run_for(Duration::from_millis(generator.between(50, 600)));
            let index = usize::try_from(generator.below(3)).unwrap();
            let delay = u8::try_from(generator.below(14)).unwrap();
            let now = world.local(index);
            let machine = &mut world.players[index].machine;
            let before = machine.input_delay();
            machine.set_input_delay(now, delay);
            assert_eq!(machine.input_delay(), delay);
            world.run_for(Duration::from_millis(40));
            let events = &world.players[index].events;
            let reported = events.iter().rev().find_map(|event| {
                if let MeshEvent::InputDelay {
                    delay,
                    repeated,
                    dropped,
                    ..
                } = event
                {
                    Some((*delay, *repeated, *dropped))
                } else {
                    None
                }
            });
            if delay != before {
                let (reported, repeated, dropped) = reported.unwrap();
                assert_eq!(reported, delay);
                assert!(repeated == 0 || delay > before);
                assert!(dropped == 0 || repeated == 0);
            }
        }
        world.run_for(Duration::from_secs(2));
        assert_agreement(&all(&world));
        assert_own_inputs(&world);
    });
}

#[test]
fn sim_ls_12_mesh_names_a_desync_by_seat_and_tick() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut generator = seed.generator(12);
        let mut config = mesh(4);
        config.window = u8::try_from(generator.below(2) * 8).unwrap();
        let mut world = MeshWorld::new(seed, &config, Link::lossy(5), pad);
        let tick = Tick(u32::try_from(generator.between(10, 200)).unwrap());
        let wrong = usize::try_from(generator.below(4)).unwrap();
        world.players[wrong].diverges_at = Some(tick);
        world.run_for(Duration::from_secs(6));
        for player in &world.players {
            let named = player.events.iter().find_map(|event| {
                if let MeshEvent::Desync { tick, seats, .. } = event {
                    Some((*tick, seats.clone()))
                } else {
                    None
                }
            });
            let wrong = Seat(u16::try_from(wrong).unwrap());
            assert_eq!(named, Some((tick, vec![wrong])));
        }
    });
}

#[test]
fn ls_8_mesh_repair_is_bounded_and_each_input_is_encoded_once() {
    let mut config = mesh(3);
    config.datagram_len_max = 300;
    config.catch_up_rate = 6_000;
    config.catch_up_burst = 2_000;
    config.repair = Repair::new(3).unwrap();
    config.peer_timeout = Duration::from_secs(6);
    config.input_delay = 30;
    let mut world = MeshWorld::new(Seed::from_number(3), &config, Link::lossy(10), stick);
    world.run_for(Duration::from_secs(2));
    world.part(&[0], &[1, 2], Duration::from_secs(2));
    let before = *world.players[1].machine.stats();
    world.run_for(Duration::from_secs(6));
    let after = *world.players[1].machine.stats();
    assert!(world.longest <= 300, "{}", world.longest);
    let ticks = after.datagrams_sent - before.datagrams_sent;
    // Three bundles of at most 6 bytes and a head of 21 with one or two hashes, plus the catch-up
    // budget.
    let bound = ticks * (3 * 6 + 40) + 2_000 + 2 * 6_000 * 6;
    assert!(after.bytes_sent - before.bytes_sent <= bound, "{after:?}");
    assert!(after.catch_up_datagrams > 0);
    assert_agreement(&all(&world));
    let stamped = world.players[1].machine.boundary();
    assert_eq!(after.inputs, u64::from(stamped), "each once, for two peers");
}

#[test]
fn mesh_of_another_match_does_not_begin() {
    type Change = fn(&mut MeshConfig);
    let changes: [Change; 3] = [
        |config| config.content = 7,
        |config| config.tick_rate = TickRate::new(30).unwrap(),
        |config| config.hash_interval = core::num::NonZeroU8::new(2).unwrap(),
    ];
    for change in changes {
        let mut world = MeshWorld::new(Seed::from_number(2), &mesh(3), clean(10), pad);
        let mut config = mesh(3);
        change(&mut config);
        world.replace(1, &config);
        world.run_for(Duration::from_secs(2));
        let mismatch = |seat| [MeshEvent::Mismatch { seat: Seat(seat) }];
        assert_eq!(world.players[0].events, mismatch(1));
        assert_eq!(world.players[2].events, mismatch(1));
        assert_eq!(world.players[1].events.len(), 2);
        assert!(world.players.iter().all(|player| player.states.is_empty()));
    }
}

#[test]
fn mesh_runs_at_any_rate_and_save_policy_with_late_starters() {
    for hz in [1, 20, 1_000] {
        let mut config = mesh(2);
        config.tick_rate = TickRate::new(hz).unwrap();
        config.input_delay = 2;
        config.save = SavePolicy::Sparse;
        let mut world = MeshWorld::new(Seed::from_number(5), &config, Link::perfect(), pad);
        world.players[1].is_paused = true;
        world.run_for(Duration::from_secs(3));
        assert!(world.players[0].states.is_empty(), "it waits");
        world.players[1].is_paused = false;
        world.run_for(Duration::from_secs(4));
        let expected = usize::from(hz) * 4;
        for player in &world.players {
            let ticks = player.states.len();
            let is_near = ticks <= expected && ticks + 2 + expected / 10 >= expected;
            assert!(is_near, "{hz}: {ticks}");
        }
        assert_agreement(&all(&world));
    }
}
