//! All participants simulate the same match under any network conditions.

use core::time::Duration;

use lockstep::{
    ClientEvent, ClosePolicy, Input, InputDelay, Origin, Playout, Repair, ServerEvent, Substitute,
    Tick, TickRate,
};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Seed};

use crate::world::{Link, World, config, pad, stick};

/// All turns that any two players returned are equal and led to the same states.
fn assert_agreement<I>(world: &World<I>) {
    let longest = |a: &&crate::world::Player<I>| a.states.len();
    let first = world.players.iter().max_by_key(longest).unwrap();
    for player in &world.players {
        let len = player.states.len();
        assert_eq!(player.states, first.states[..len]);
        assert_eq!(player.logs, first.logs[..len]);
    }
}

fn has_desync<I>(world: &World<I>) -> bool {
    let is_desync = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
    world.server_events.iter().any(is_desync)
}

#[test]
fn l9_eight_players_agree_after_10_000_ticks_at_5_percent_loss() {
    let mut world = World::new(9, config(8), Link::lossy(5), pad);
    world.run(10_000);
    assert_agreement(&world);
    for player in &world.players {
        assert!(player.states.len() >= 10_000, "{}", player.states.len());
        assert_eq!(player.states[9_999], world.players[0].states[9_999]);
    }
    assert!(!has_desync(&world));
    assert!(world.server.stats().hashes_compared >= 8 * 9_900);
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

fn any_world<I>(seed: Seed, play: fn(&mut Generator, &I) -> I) -> World<I>
where
    I: Input + Clone + PartialEq + core::fmt::Debug,
{
    let mut generator = seed.generator(77);
    let mut config = config(u16::try_from(generator.between(2, 6)).unwrap());
    if generator.chance(500_000) {
        config.substitute = Substitute::Neutral;
    }
    let delay = u8::try_from(generator.between(1, 20)).unwrap();
    config.input_delay = InputDelay::fixed(delay).unwrap();
    let mut world = World::seeded(seed, config, Link::perfect(), play);
    for index in 0..world.links.len() {
        world.links[index] = any_link(&mut generator);
        let drift = i64::try_from(generator.below(401)).unwrap() - 200;
        world.players[index].drift_ppm = drift;
    }
    world
}

/// Asserts guarantees 1, 2, 4 and 12.
pub(crate) fn assert_guarantees<I>(world: &World<I>)
where
    I: Clone + PartialEq + core::fmt::Debug,
{
    assert_agreement(world);
    assert!(!has_desync(world), "no false alarm");
    for player in &world.players {
        assert!(player.states.len() > 300, "{}", player.states.len());
        for (tick, (input, origin)) in (0..).map(Tick).zip(&player.own) {
            let reported = ClientEvent::Substituted { tick };
            let is_reported = player.events.contains(&reported);
            match (origin, player.submitted.get(&tick)) {
                (Origin::Confirmed, Some(submitted)) => {
                    assert_eq!(input, submitted, "{tick}");
                    assert!(!is_reported, "never both");
                }
                (Origin::Substituted, Some(_)) => assert!(is_reported, "never neither: {tick}"),
                (Origin::Confirmed | Origin::Substituted, None) => {}
                (Origin::Absent | Origin::Server, _) => panic!("nobody left"),
            }
        }
    }
}

#[test]
fn sim_ls_1_all_agree_on_every_tick_and_ls_4_no_input_is_lost_silently() {
    for_each_seed(&test_site!(), 24, |seed| {
        if seed.generator(78).chance(500_000) {
            let mut world = any_world(seed, pad);
            world.run(400);
            assert_guarantees(&world);
        } else {
            let mut world = any_world(seed, stick);
            world.run(400);
            assert_guarantees(&world);
        }
    });
}

#[test]
fn sim_ls_1_flipped_bits_affect_only_their_own_player() {
    // An authenticating transport would drop all of these; still nothing breaks.
    for_each_seed(&test_site!(), 8, |seed| {
        let mut world = World::seeded(seed, config(3), Link::lossy(2), pad);
        world.run_for(Duration::from_millis(500));
        world.links[2].corrupt = 300_000;
        world.run(400);
        let (good, bad) = world.players.split_at(2);
        assert_eq!(good[0].states[..399], good[1].states[..399]);
        assert!(bad[0].machine.stats().dropped_malformed > 0 || bad[0].states.len() < 400);
        assert!(world.server.stats().dropped_malformed > 0);
    });
}

#[test]
fn ls_5_ticks_close_on_time_with_any_clients() {
    let mut config = config(3);
    config.close = ClosePolicy::Clock {
        grace: Duration::from_millis(3),
    };
    let mut world = World::new(5, config, Link::lossy(5), pad);
    world.run_for(Duration::from_millis(400));
    world.players[1].is_paused = true;
    world
        .outages
        .push((2, world.now, world.now + Duration::from_secs(60)));
    let (from, closed) = (world.now, world.server.ticks_closed());
    world.run_for(Duration::from_secs(5));
    let ticks = world.server.ticks_closed() - closed;
    let expected = world.now.saturating_since(from).as_nanos() / 16_666_666;
    assert!(
        expected.abs_diff(ticks.into()) <= 1,
        "{ticks} of {expected}"
    );
    assert!(world.players[0].states.len() > 250);
}

#[test]
fn ls_6_ls_g13_one_outage_stalls_no_other_and_is_recovered_at_once() {
    // Without loss or jitter, so that the outage causes every late turn.
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(25);
    let mut world = World::new(6, config(4), link, stick);
    world.run(120);
    let (start, end) = (world.now, world.now + Duration::from_millis(500));
    world.outages.push((3, start, end));
    world.run(420);
    for player in &world.players[..3] {
        let mut pairs = player.turned_at.windows(2);
        let period = Duration::from_nanos(16_666_666);
        assert!(pairs.all(|pair| pair[1].saturating_since(pair[0]) <= period));
        let late = |event: &&ClientEvent| matches!(event, ClientEvent::Substituted { .. });
        assert_eq!(player.events.iter().find(late), None);
    }
    assert_agreement(&world);
    // G13: the victim has every tick of the outage after a round trip and two ticks.
    let others = &world.players[0].turned_at;
    let closed = others.partition_point(|at| at.saturating_since(end) <= link.latency);
    let healed = world.players[3].turned_at[closed - 1].saturating_since(end);
    let bound = 2 * link.latency + Duration::from_nanos(2 * 16_666_667);
    assert!(healed <= bound, "{healed:?}");
    assert!(world.server.stats().catch_up_datagrams > 0);
}

#[test]
fn ls_10_a_match_of_one_bit_and_one_of_256_bytes_agree() {
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Big(Vec<u8>);
    impl Input for Big {
        const WIDTH: lockstep::Width = lockstep::Width::MAX;
        fn write(&self, out: &mut lockstep::bits::BitWriter<'_>) {
            self.0.iter().for_each(|byte| out.bits((*byte).into(), 8));
        }
        fn read(bits: &mut lockstep::bits::BitReader<'_>) -> Option<Self> {
            let byte = |_| u8::try_from(bits.bits(8).ok()?).ok();
            (0..256).map(byte).collect::<Option<_>>().map(Self)
        }
    }
    let mut world = World::new(1, config(2), Link::lossy(5), |generator, held: &bool| {
        held ^ generator.chance(300_000)
    });
    world.run(300);
    assert_guarantees(&world);
    let mut world = World::new(2, config(2), Link::lossy(5), |generator, _: &Big| {
        let mut bytes = vec![0; 256];
        generator.fill(&mut bytes);
        Big(bytes)
    });
    world.run(400);
    assert_agreement(&world);
    assert!(!has_desync(&world));
    assert!(world.players[0].states.len() >= 390);
}

#[test]
fn a_paused_server_resumes() {
    let mut world = World::new(8, config(2), Link::lossy(1), pad);
    world.run(120);
    let closed = world.server.ticks_closed();
    world.now += Duration::from_secs(10);
    world.step();
    assert_eq!(
        world.server.ticks_closed(),
        closed + 1,
        "no rush of 600 ticks"
    );
    assert_eq!(world.server.stats().pauses, 1);
    world.run_for(Duration::from_secs(10));
    let ticks = world.server.ticks_closed() - closed;
    assert!((595..=605).contains(&ticks), "{ticks}");
    assert_agreement(&world);
    assert!(!has_desync(&world));
    let tail = &world.players[0].own[world.players[0].own.len() - 200..];
    let own = tail
        .iter()
        .filter(|(_, origin)| *origin == Origin::Confirmed);
    assert!(own.count() > 180, "inputs are heard again");
}

#[test]
fn playout_evens_out_jitter() {
    let mut link = Link::lossy(0);
    link.jitter = Duration::from_millis(15);
    let uneven = |playout: u64| {
        let mut world = World::new(3, config(2), link, pad);
        world.set_playout(Playout::Fixed(Duration::from_millis(playout)));
        world.run(600);
        let at = &world.players[0].turned_at[200..];
        let gaps = at.windows(2).map(|pair| pair[1].saturating_since(pair[0]));
        gaps.filter(|gap| *gap > Duration::from_millis(18)).count()
    };
    let (without, with) = (uneven(0), uneven(20));
    assert!(without > 50 && with < without / 10, "{without} {with}");
}

#[test]
fn a_match_uses_the_configured_rate_and_repair_copies() {
    assert_eq!((TickRate::new(0), TickRate::new(1_001)), (None, None));
    assert_eq!((Repair::new(0), Repair::new(9)), (None, None));
    for hz in [1, 20, 1_000] {
        let mut config = config(2);
        config.tick_rate = TickRate::new(hz).unwrap();
        config.repair = Repair::new(2).unwrap();
        config.input_delay = InputDelay::fixed(2).unwrap();
        let mut world = World::new(7, config, Link::perfect(), pad);
        world.run_for(Duration::from_secs(4));
        let ticks = world.server.ticks_closed();
        let expected = u32::from(hz) * 4;
        assert!(
            ticks <= expected && ticks + 1 + expected / 100 >= expected,
            "{ticks}"
        );
        assert_agreement(&world);
        let stats = world.server.stats();
        assert!(
            stats.bundles_sent <= 2 * 2 * stats.ticks_closed,
            "{stats:?}"
        );
    }
}
