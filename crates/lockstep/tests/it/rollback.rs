//! Games that predict reach the same states as games that wait for closed ticks.

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientEvent, Config, InputDelay, PeerId, SavePolicy, ServerEvent, SnapshotSource,
    StartPolicy, Substitute, Tick,
};
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Generator, Seat, Seed};

use crate::rollback_world::RollbackWorld;
use crate::world::{Link, World, config, stick};

fn client(window: u8, save_policy: SavePolicy) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.window = window;
    config.save_policy = save_policy;
    config
}

fn dense(window: u8) -> ClientConfig {
    client(window, SavePolicy::Dense)
}

/// A link with this latency in milliseconds, without loss or jitter.
fn quiet(millis: u64) -> Link {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(millis);
    link
}

fn delayed(input_delay: u8) -> Config {
    let mut config = config(2);
    config.input_delay = InputDelay::fixed(input_delay).unwrap();
    config
}

fn any_link(generator: &mut Generator) -> Link {
    Link {
        latency: Duration::from_millis(generator.below(120)),
        jitter: Duration::from_millis(generator.below(30)),
        loss: u32::try_from(generator.below(200_000)).unwrap(),
        duplicate: 0,
        corrupt: 0,
    }
}

#[test]
fn sim_ls_2_final_states_stay_and_ls_3_rollback_equals_lockstep() {
    for_each_seed(&test_site!(), 24, |seed| {
        let mut generator = seed.generator(77);
        let policies = [SavePolicy::Dense, SavePolicy::Sparse, SavePolicy::Auto];
        let clients: Vec<_> = (0..generator.between(2, 5))
            .map(|_| {
                let window = u8::try_from(generator.below(33)).unwrap();
                client(
                    window,
                    policies[usize::try_from(generator.below(3)).unwrap()],
                )
            })
            .collect();
        let mut config = delayed(u8::try_from(generator.between(1, 20)).unwrap());
        config.forward_inputs = generator.chance(500_000);
        if generator.chance(500_000) {
            config.input_delay = InputDelay::adaptive(2, 20).unwrap();
        }
        if generator.chance(300_000) {
            config.substitute = Substitute::Neutral;
        }
        let mut world = RollbackWorld::new(seed, config, &clients, Link::perfect());
        for player in &mut world.players {
            player.link = any_link(&mut generator);
            let nanos = |generator: &mut Generator| Duration::from_nanos(generator.below(9_000));
            let (save, step) = (nanos(&mut generator), nanos(&mut generator));
            player.rollback.set_costs(save, step);
        }
        world.run(400);
        world.assert_final(360);
    });
}

#[test]
fn ls_3_every_window_from_0_to_32_gives_the_same_states() {
    for window in 0..=32 {
        let clients = [
            dense(window),
            dense(0),
            client(32 - window, SavePolicy::Auto),
        ];
        let seed = Seed::from_number(3);
        let mut world = RollbackWorld::new(seed, delayed(8), &clients, Link::lossy(5));
        world.run(240);
        world.assert_final(240);
        world.assert_none_silent();
        let loads = world.players[0].rollback.steps().loads.len();
        assert_eq!(loads > 0, window > 0, "{window}");
    }
}

#[test]
fn a_window_over_32_counts_as_32() {
    let clients = [dense(33), dense(255), dense(32)];
    let mut world = RollbackWorld::new(Seed::from_number(4), delayed(60), &clients, quiet(400));
    world.run(200);
    world.assert_final(150);
    let [one, other, widest] = &world.players[..] else {
        panic!("three play")
    };
    for player in [one, other, widest] {
        assert_eq!(lockstep::Steps::window(player.machine()), 32);
        assert_eq!(player.behind.last(), Some(&(61 - 32)));
    }
}

/// Boundaries per thousand at which the game had not yet simulated the tick of the input just
/// stamped.
fn late_per_mille(world: &RollbackWorld) -> usize {
    let behind = world
        .players
        .iter()
        .flat_map(|player| &player.behind[100..]);
    let (late, all) = behind.fold((0, 0), |(late, all), &behind| {
        (late + usize::from(behind > 0), all + 1)
    });
    assert!(all > 1_000, "{all}");
    late * 1_000 / all
}

#[test]
fn sim_ls_own_inputs_show_in_their_frame_with_a_window_of_8_at_50_ms() {
    for_each_seed(&test_site!(), 4, |seed| {
        let clients = [dense(8), dense(8), dense(8), dense(8)];
        let mut world = RollbackWorld::new(seed, delayed(7), &clients, quiet(50));
        world.run(600);
        world.assert_final(600);
        assert_eq!(late_per_mille(&world), 0);
        // A loss costs at most one tick of waiting, if it affects the oldest tick.
        let mut world = RollbackWorld::new(seed, delayed(7), &clients, Link::lossy(2));
        world.run(600);
        world.assert_final(600);
        world.assert_none_silent();
        let late = late_per_mille(&world);
        eprintln!("{late} of 1,000 frames wait for a tick");
        assert!(late <= 40, "{late}");
    });
}

#[test]
fn with_too_small_a_window_own_inputs_show_later_at_a_steady_delay() {
    let clients = [dense(5), dense(5)];
    let mut world = RollbackWorld::new(Seed::from_number(5), delayed(7), &clients, quiet(50));
    world.run(600);
    for player in &world.players {
        assert!(player.behind[100..].iter().all(|behind| *behind == 3));
    }
}

#[test]
fn ls_4_a_substituted_own_input_causes_a_rollback() {
    let clients = [dense(8), dense(8)];
    let mut world = RollbackWorld::new(Seed::from_number(6), delayed(7), &clients, quiet(50));
    world.run(120);
    let loads = |world: &RollbackWorld| world.players[0].rollback.steps().loads.clone();
    let before = loads(&world).len();
    // Only its own inputs can be mispredicted.
    world.players[1].sends_nothing = true;
    world.run_for(Duration::from_secs(1));
    let settled = loads(&world).len();
    world.players[0].sends_nothing = true;
    world.run_for(Duration::from_millis(300));
    world.players[0].sends_nothing = false;
    world.run_for(Duration::from_secs(1));
    let reported: Vec<_> = world.players[0]
        .events
        .iter()
        .filter_map(|event| {
            if let ClientEvent::Substituted { tick } = event {
                Some(*tick)
            } else {
                None
            }
        })
        .filter(|tick| *tick > Tick(100))
        .collect();
    assert!(reported.len() >= 10, "{reported:?}");
    assert!(settled > before);
    let back = loads(&world);
    for tick in &reported {
        assert!(
            back[settled..].contains(tick),
            "{tick} was simulated with what its owner did"
        );
    }
    let own = &world.players[0].rollback.steps().finals;
    assert_eq!(own[..], world.own_hashes[..own.len()]);
}

#[test]
fn costs_given_before_the_match_choose_the_save_policy() {
    let saves = |save: u64, step: u64| {
        let auto = client(10, SavePolicy::Auto);
        let seed = Seed::from_number(8);
        let mut world = RollbackWorld::new(seed, delayed(7), &[auto.clone(), auto], quiet(50));
        for player in &mut world.players {
            let (save, step) = (Duration::from_micros(save), Duration::from_micros(step));
            player.rollback.set_costs(save, step);
        }
        world.run(900);
        world.assert_final(900);
        world.players[0].machine().stats().saves
    };
    let (cheap, dear) = (saves(1, 10), saves(100, 1));
    assert!(cheap > 3 * dear, "{cheap} {dear}");
}

#[test]
fn costs_measured_during_the_match_choose_the_save_policy() {
    let saves = |save: u64, step: u64| {
        let auto = client(10, SavePolicy::Auto);
        let seed = Seed::from_number(8);
        let mut world = RollbackWorld::new(seed, delayed(7), &[auto.clone(), auto], quiet(50));
        for player in &mut world.players {
            let costs = (Duration::from_micros(save), Duration::from_micros(step));
            player.rollback.game_mut().costs = Some(costs);
        }
        world.run(900);
        world.assert_final(900);
        world.players[0].machine().stats().saves
    };
    let (cheap, dear) = (saves(1, 10), saves(100, 1));
    assert!(cheap > 3 * dear, "{cheap} {dear}");
}

#[test]
fn sim_ls_12_a_desync_is_named_by_tick_and_section() {
    for_each_seed(&test_site!(), 8, |seed| {
        let mut generator = seed.generator(78);
        let tick = u32::try_from(generator.between(150, 250)).unwrap();
        let victim = usize::try_from(generator.below(3)).unwrap();
        let policy =
            [SavePolicy::Dense, SavePolicy::Sparse][usize::from(generator.chance(500_000))];
        let clients = [client(8, policy), client(8, policy), client(8, policy)];
        let interval = [1, 8][usize::from(generator.chance(500_000))];
        let mut config = delayed(7);
        config.hash_interval = u8::try_from(interval).unwrap().try_into().unwrap();
        let mut world = RollbackWorld::new(seed, config, &clients, Link::lossy(3));
        world.run(100);
        world.assert_final(100);
        let flipped = world.players[victim].rollback.game().at + tick;
        world.diverge(victim, flipped);
        world.run(400 + flipped);
        let desyncs: Vec<_> = world
            .server_events
            .iter()
            .filter_map(|event| {
                if let ServerEvent::Desync { tick, seats, .. } = event {
                    Some((*tick, seats.clone()))
                } else {
                    None
                }
            })
            .collect();
        let seat = Seat(u16::try_from(victim).unwrap());
        let step = flipped.next_multiple_of(interval);
        let [(named, seats)] = &desyncs[..] else {
            panic!("{desyncs:?}");
        };
        // If hashes of the first step are lost, a later one shows the difference.
        let steps = Tick(step)..=Tick(step + 4 * interval);
        assert!(steps.contains(named), "{named} {step}");
        assert!(named.0.is_multiple_of(interval) && *seats == [seat]);
        let found = world.server_events.iter().find_map(|event| {
            if let ServerEvent::Divergence {
                seat,
                tick,
                section,
                ..
            } = event
            {
                Some((
                    *seat,
                    *tick,
                    section.map(|section| section.name.to_string()),
                ))
            } else {
                None
            }
        });
        let units = Some("units".to_owned());
        assert_eq!(found, Some((seat, Tick(flipped), units)));
    });
}

#[test]
fn sim_ls_14_games_with_rollback_offer_and_load_snapshots() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut generator = seed.generator(79);
        let mut config = delayed(7);
        config.start = StartPolicy::ByHand;
        config.snapshots = SnapshotSource::Players;
        config.forward_inputs = generator.chance(500_000);
        let policies = [SavePolicy::Dense, SavePolicy::Sparse, SavePolicy::Auto];
        let mut any = || policies[usize::try_from(generator.below(3)).unwrap()];
        let clients = [client(8, any()), client(8, any()), client(8, any())];
        let mut world = RollbackWorld::new(seed, config, &clients, Link::lossy(2));
        world.keep_out(2);
        world.run_for(Duration::from_millis(400));
        world.server.start(world.now).unwrap();
        world.run(1_100);
        world.reconnect(2);
        world.run_for(Duration::from_secs(6));
        world.assert_final(1_400);
        let late = world.players[2].rollback.steps();
        assert!(late.begun > 900, "it had a snapshot: {}", late.begun);
        let behind = &world.players[2].behind;
        assert!(
            behind.len() > 100 && behind.last() <= Some(&1),
            "{behind:?}"
        );
    });
}

#[test]
fn forwarded_early_inputs_are_predicted_correctly() {
    let steps_again = |forward_inputs: bool| {
        let mut config = delayed(9);
        config.forward_inputs = forward_inputs;
        let clients = [dense(10), dense(10)];
        let seed = Seed::from_number(7);
        let mut world = RollbackWorld::new(seed, config, &clients, quiet(60));
        // The other player is close to the server: its inputs arrive eight ticks before the close.
        world.players[1].link = quiet(2);
        world.run(1_200);
        world.assert_final(1_200);
        let stats = *world.players[0].machine().stats();
        let reported = world.server.stats().inputs_forwarded;
        assert_eq!(reported > 0, forward_inputs);
        assert!(reported < 1_200, "what repeats is left out: {reported}");
        stats.steps - stats.turns
    };
    let (without, with) = (steps_again(false), steps_again(true));
    assert!(without > 300 && with * 3 < without, "{without} {with}");
}

#[test]
fn ls_10_each_false_early_input_costs_at_most_one_rollback() {
    let clients = [dense(8), dense(8)];
    let mut world = RollbackWorld::new(Seed::from_number(9), delayed(7), &clients, quiet(50));
    world.run(60);
    let now = world.now;
    let rollback = &mut world.players[0].rollback;
    let (end, at) = (rollback.steps().settled.0, rollback.game().at);
    assert!(at > end + 4, "{end} {at}");
    let memory = rollback.steps().machine.memory_len();
    let state = rollback.game().state;
    for round in 0..2_000_u32 {
        // Both seats press one of 16 buttons in a tick that is closed, open, or far ahead; then
        // come turns without ticks.
        let [_, _, high, low] = (end + round % 200).wrapping_sub(20).to_be_bytes();
        let button = u8::try_from(round / 200).unwrap();
        let mut bits = 0xe0_u16 << 8 | u16::from(button) << 8;
        bits |= 0b0111_0000 | u16::from(button) >> 1;
        let [one, two] = bits.to_be_bytes();
        let three = button << 7;
        let [_, _, first, second] = end.to_be_bytes();
        let mut datagram = vec![
            0x85, high, low, one, two, three, 0x82, 0, 0, 0x80, first, second,
        ];
        let loads = rollback.steps().loads.len();
        let machine = &mut rollback.steps_mut().machine;
        machine.handle_datagram(now, Arrival::from(PeerId(9_999)), &mut datagram);
        rollback.run(now);
        let back = rollback.steps().loads.len() - loads;
        assert!(back <= 1);
        assert!(back == 0 || round < 200, "the first word counts");
    }
    let machine = &rollback.steps().machine;
    assert_eq!(machine.stats().dropped_malformed, 0);
    assert_eq!(machine.memory_len(), memory);
    let back = rollback.steps().loads.len();
    assert!(back >= 4, "{back}");
    assert_ne!(rollback.game().state, state, "it was believed, for now");
    assert_eq!(rollback.game().at, at);
    world.run(200);
    world.assert_final(200);
}

#[test]
fn early_inputs_never_make_a_datagram_too_long() {
    for (seats, datagram_len_max) in [(32, 220), (8, 120)] {
        let mut config = config(seats);
        config.forward_inputs = true;
        config.datagram_len_max = datagram_len_max;
        let mut link = Link::lossy(5);
        link.latency = Duration::from_millis(20);
        let mut world = World::new(11, config, link, stick);
        world.run(120);
        world
            .outages
            .push((1, world.now, world.now + Duration::from_millis(500)));
        world.run(300);
        assert!(
            world.longest <= datagram_len_max.into(),
            "{}",
            world.longest
        );
        let stats = world.server.stats();
        assert!(stats.inputs_forwarded > 1_000, "{stats:?}");
        assert!(stats.catch_up_datagrams > 0);
        for player in &world.players {
            assert_eq!(player.states[..200], world.players[0].states[..200]);
        }
    }
}

#[test]
fn hashes_between_hash_steps_are_requested_if_kept() {
    for (kept, is_wanted) in [(1_024, true), (0, false)] {
        let mut client = dense(8);
        client.hashes_kept = kept;
        let mut config = delayed(7);
        config.hash_interval = 8.try_into().unwrap();
        let link = Link::perfect();
        let mut world = RollbackWorld::new(Seed::from_number(3), config, &[client], link);
        world.run(60);
        let machine = world.players[0].machine();
        assert_eq!(machine.wants_hash(Tick(43)), is_wanted);
        assert!(machine.wants_hash(Tick(40)));
    }
}
