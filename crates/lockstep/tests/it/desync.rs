//! A desync is reported by player and tick; clean games raise no alarm.

use core::time::Duration;

use lockstep::{
    ClientConfig, InputDelay, MatchServer, SavePolicy, ServerEvent, StateHasher, Tick, Verdict,
};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Seat, Seed};

use crate::rollback_world::RollbackWorld;
use crate::world::{Link, MATCH, World, config, pad};

fn desyncs<I>(world: &World<I>) -> Vec<(Tick, Vec<Seat>, Verdict)> {
    let found = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Desync {
            tick,
            seats,
            verdict,
        } = event
        {
            Some((*tick, seats.clone(), *verdict))
        } else {
            None
        }
    });
    found.collect()
}

/// Asserts that the `expected` seats were reported in turn: at the first step that differs, or soon
/// after it if hashes may be lost. Each player in the minority is reported with the exact tick.
fn assert_named(
    world: &mut World<u16>,
    expected: &[(Tick, Vec<Seat>, Verdict)],
    (interval, loss): (u32, u32),
) {
    let found = desyncs(world);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let most = if loss > 0 { 24 * interval } else { 0 };
    for ((tick, seats, verdict), named) in expected.iter().zip(&found) {
        assert_eq!((seats, verdict), (&named.1, &named.2));
        let step = tick.0.next_multiple_of(interval);
        let late = named.0.0.checked_sub(step).unwrap();
        assert!(late <= most, "{tick:?}: {named:?}");
        let limit = world.now + Duration::from_secs(10);
        while began(world, seats).is_empty() {
            assert!(world.now < limit, "{seats:?} began at {tick:?}: not told");
            world.step();
        }
        assert!(began(world, seats).iter().all(|at| at == tick));
    }
}

/// Ticks at which one of `seats` was reported to differ.
fn began(world: &World<u16>, seats: &[Seat]) -> Vec<Tick> {
    let reported = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Divergence { seat, tick, .. } = event
            && seats.contains(seat)
        {
            Some(*tick)
        } else {
            None
        }
    });
    reported.collect()
}

fn draw(seed: Seed) -> (Generator, Link) {
    let mut generator = seed.generator(31);
    let percent = u32::try_from(generator.below(21)).unwrap();
    (generator, Link::lossy(percent))
}

#[test]
fn sim_ls_12_an_injected_desync_is_reported_by_player_and_tick() {
    for_each_seed(&test_site!(), 20, |seed| {
        let (mut generator, link) = draw(seed);
        let mut config = config(5);
        config.hash_interval = [1, 1, 3, 8].map(|n| n.try_into().unwrap())
            [usize::try_from(generator.below(4)).unwrap()];
        let interval = u32::from(config.hash_interval.get());
        let mut world = World::seeded(seed, config, link, pad);
        let diverging = usize::try_from(generator.below(5)).unwrap();
        let tick = u32::try_from(generator.between(1, 250)).unwrap();
        world.players[diverging].diverges_at = Some(Tick(tick));
        world.run(300);
        let seat = crate::world::seat(diverging);
        let expected = [(Tick(tick), vec![seat], Verdict::Minority)];
        assert_named(&mut world, &expected, (interval, link.loss));
    });
}

#[test]
fn sim_ls_12_two_desyncs_are_two_reports() {
    for_each_seed(&test_site!(), 4, |seed| {
        let (_, link) = draw(seed);
        let mut world = World::seeded(seed, config(5), link, pad);
        world.players[1].diverges_at = Some(Tick(50));
        world.players[3].diverges_at = Some(Tick(120));
        world.run(200);
        let expected = [
            (Tick(50), vec![Seat(1)], Verdict::Minority),
            (Tick(120), vec![Seat(3)], Verdict::Minority),
        ];
        assert_named(&mut world, &expected, (1, link.loss));
    });
}

#[test]
fn sim_ls_12_clean_matches_raise_no_alarm_at_20_percent_loss() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut world = World::seeded(seed, config(4), Link::lossy(20), pad);
        world.run(300);
        assert_eq!(desyncs(&world), []);
        let stats = world.server.stats();
        // A repeatedly lost hash delays comparison by at most 2 s.
        assert!(stats.hashes_compared >= 4 * 230, "{stats:?}");
        // Some are lost repeatedly for 2 s; in one match of hundreds, several in a row.
        let missing = stats.hashes_missing.saturating_mul(20);
        assert!(missing <= stats.hashes_compared, "{stats:?}");
    });
}

#[test]
fn sim_ls_12_clean_matches_with_rollback_raise_no_alarm() {
    for_each_seed(&test_site!(), 6, |seed| {
        let (mut generator, link) = draw(seed);
        let policies = [SavePolicy::Dense, SavePolicy::Sparse, SavePolicy::Auto];
        let clients: Vec<_> = (0..generator.between(2, 4))
            .map(|_| {
                let mut client = ClientConfig::default();
                client.window = u8::try_from(generator.between(1, 16)).unwrap();
                client.save_policy = policies[usize::try_from(generator.below(3)).unwrap()];
                client
            })
            .collect();
        let mut config = config(2);
        let delay = u8::try_from(generator.between(1, 8)).unwrap();
        config.input_delay = InputDelay::fixed(delay).unwrap();
        let mut world = RollbackWorld::new(generator.seed(), config, &clients, link);
        world.run(200);
        let is_alarm = |event: &&ServerEvent| {
            matches!(
                event,
                ServerEvent::Desync { .. } | ServerEvent::Divergence { .. }
            )
        };
        let alarms: Vec<_> = world.server_events.iter().filter(is_alarm).collect();
        assert!(alarms.is_empty(), "{alarms:?}");
        // Predictions were wrong, but no wrong state was reported.
        let loads = world.players.iter();
        let loads: u64 = loads.map(|player| player.machine().stats().loads).sum();
        assert!(loads > 0, "nobody went back");
        let stats = world.server.stats();
        assert!(stats.hashes_compared > 100, "{stats:?}");
    });
}

#[test]
fn of_two_players_both_are_reported() {
    let mut world = World::new(1, config(2), Link::lossy(5), pad);
    world.players[1].diverges_at = Some(Tick(77));
    world.run(150);
    let both = vec![Seat(0), Seat(1)];
    assert_named(&mut world, &[(Tick(77), both, Verdict::Undecided)], (1, 5));
}

/// Simulates on the server up to now.
fn simulate(server: &mut MatchServer<u16>, state: &mut u64) {
    while let Some(turn) = server.poll_turn() {
        let tick = turn.tick();
        let mut hasher = StateHasher::new(MATCH);
        hasher.u64(*state);
        for (seat, _, origin) in turn.inputs() {
            hasher.u8(origin.code());
            hasher.bytes(turn.bits(seat));
        }
        *state = hasher.finish();
        server.report(tick, *state).unwrap();
        assert!(server.report(Tick(tick.0 + 1), *state).is_err());
    }
}

#[test]
fn a_server_that_simulates_decides() {
    let mut world = World::new(1, config(2), Link::lossy(5), pad);
    world.players[1].diverges_at = Some(Tick(77));
    let mut state = 0;
    while world.server.ticks_closed() < 200 {
        world.step();
        simulate(&mut world.server, &mut state);
    }
    assert_eq!(
        desyncs(&world),
        [(Tick(77), vec![Seat(1)], Verdict::Server)]
    );
    let player = &world.players[0];
    let last = player.logs.len() - 1;
    assert!(last > 150);
    assert_eq!(player.states.len(), player.logs.len());
}

/// When the server first reported `seat`, running for at most `limit`.
fn time_until_named(world: &mut World<u16>, seat: Seat, limit: Duration) -> Option<Duration> {
    let from = world.now;
    while world.now <= from + limit {
        if desyncs(world)
            .iter()
            .any(|(_, seats, _)| seats.contains(&seat))
        {
            return Some(world.now.saturating_since(from));
        }
        world.step();
    }
    None
}

fn silent<I>(world: &World<I>) -> Vec<(Seat, Tick)> {
    let found = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Silent { seat, tick } = event {
            Some((*seat, *tick))
        } else {
            None
        }
    });
    found.collect()
}

fn run_until_closed(world: &mut World<u16>, ticks: u32) {
    while world.server.ticks_closed() < ticks {
        world.step();
    }
}

#[test]
fn sim_ls_12_omitted_hashes_raise_no_alarm() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut world = World::seeded(seed, config(3), Link::lossy(5), pad);
        // After the ring has wrapped, a gap could be mistaken for old hashes.
        world.players[0].unreported = 1_100..1_110;
        world.players[1].unreported = 20..30;
        world.players[2].unreported = 1_105..1_400;
        world.run(1_500);
        assert_eq!(desyncs(&world), []);
        let stats = world.server.stats();
        // And those lost, while the server asks for hashes that never existed.
        let left_out = 10 + 10 + 295;
        assert!(stats.hashes_missing >= 300, "{stats:?}");
        assert!(stats.hashes_missing <= left_out + 15, "{stats:?}");
    });
}

#[test]
fn a_silent_player_is_named_and_delays_no_more_than_one_report() {
    // 60 Hz: 2 s, four ticks, and the hash interval twice.
    for (interval, peer_timeout) in [(1, 2_100), (8, 2_334), (255, 10_567)] {
        let mut config = config(4);
        config.hash_interval = interval.try_into().unwrap();
        let mut world = World::new(5, config, Link::lossy(2), pad);
        world.players[3].unreported = 0..u32::MAX;
        world.players[0].diverges_at = Some(Tick(20));
        // When the first differing hash step closes.
        let step = 20_u32.next_multiple_of(interval.into());
        run_until_closed(&mut world, step + 1);
        let peer_timeout = Duration::from_millis(peer_timeout);
        let wait = time_until_named(
            &mut world,
            Seat(0),
            peer_timeout + Duration::from_millis(100),
        );
        assert!(wait.is_some(), "interval {interval}");
        let found = [(Tick(step), vec![Seat(0)], Verdict::Minority)];
        assert_eq!(desyncs(&world), found);
        assert_eq!(silent(&world), [(Seat(3), Tick(0))]);
        // From then on the silent player is not awaited.
        let next = (world.server.ticks_closed() + 30).next_multiple_of(interval.into());
        world.players[1].diverges_at = Some(Tick(next));
        run_until_closed(&mut world, next + 1);
        let wait = time_until_named(&mut world, Seat(1), Duration::from_millis(450));
        assert!(wait.is_some(), "interval {interval}");
        assert_eq!(silent(&world).len(), 1, "told once");
    }
}

#[test]
fn a_silent_player_delays_nothing_where_the_server_simulates() {
    let mut world = World::new(6, config(3), Link::lossy(2), pad);
    world.players[2].unreported = 0..u32::MAX;
    world.players[0].diverges_at = Some(Tick(20));
    let mut state = 0;
    while desyncs(&world).is_empty() {
        world.step();
        simulate(&mut world.server, &mut state);
    }
    let wait = world.now.saturating_since(world.players[0].turned_at[20]);
    assert!(wait <= Duration::from_millis(450), "{wait:?}");
    let found = [(Tick(20), vec![Seat(0)], Verdict::Server)];
    assert_eq!(desyncs(&world), found, "the honest player is not named");
    while world.server.ticks_closed() < 400 {
        world.step();
        simulate(&mut world.server, &mut state);
    }
    assert_eq!(silent(&world), [(Seat(2), Tick(0))]);
    assert_eq!(desyncs(&world).len(), 1);
    assert!(
        world.server.stats().hashes_compared > 350,
        "player 1 goes on"
    );
}

#[test]
fn a_player_that_was_silent_is_compared_when_it_returns() {
    let mut world = World::new(7, config(3), Link::lossy(2), pad);
    world.players[2].unreported = 100..500;
    world.players[2].diverges_at = Some(Tick(620));
    world.run(700);
    assert_eq!(silent(&world), [(Seat(2), Tick(100))]);
    let found = [(Tick(620), vec![Seat(2)], Verdict::Minority)];
    assert_eq!(desyncs(&world), found);
}
