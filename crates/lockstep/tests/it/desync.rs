//! A game that goes wrong is reported by player and tick; one that does not is not.

use core::time::Duration;

use lockstep::{ServerEvent, StateHasher, Tick, Verdict};
use wire::{Generator, Seat, Seed};

use crate::world::{Link, MATCH, World, config, pad, seeds};

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

fn draw(seed: u64) -> (Generator, Link) {
    let mut generator = Seed::from_number(seed).generator(31);
    let percent = u32::try_from(generator.below(21)).unwrap();
    (generator, Link::lossy(percent))
}

#[test]
fn sim_ls_12_an_injected_desync_is_reported_by_player_and_tick() {
    for seed in seeds(20) {
        eprintln!("SEED={seed} cargo test -p tickwire-lockstep sim_ls_12");
        let (mut generator, link) = draw(seed);
        let mut config = config(5);
        config.hash_interval = [1, 1, 3, 8].map(|n| n.try_into().unwrap())
            [usize::try_from(generator.below(4)).unwrap()];
        let interval = u32::from(config.hash_interval.get());
        let mut world = World::new(seed, config, link, pad);
        let culprit = usize::try_from(generator.below(5)).unwrap();
        let tick = u32::try_from(generator.between(1, 250)).unwrap();
        world.players[culprit].diverges_at = Some(Tick(tick));
        world.run(300);
        let step = Tick(tick.next_multiple_of(interval));
        let seat = crate::world::seat(culprit);
        let expected = vec![(step, vec![seat], Verdict::Minority)];
        assert_eq!(desyncs(&world), expected);
    }
}

#[test]
fn sim_ls_12_two_desyncs_are_two_reports() {
    for seed in seeds(4) {
        let (_, link) = draw(seed);
        let mut world = World::new(seed, config(5), link, pad);
        world.players[1].diverges_at = Some(Tick(50));
        world.players[3].diverges_at = Some(Tick(120));
        world.run(200);
        let expected = vec![
            (Tick(50), vec![Seat(1)], Verdict::Minority),
            (Tick(120), vec![Seat(3)], Verdict::Minority),
        ];
        assert_eq!(desyncs(&world), expected);
    }
}

#[test]
fn sim_ls_12_clean_matches_raise_no_alarm_at_20_percent_loss() {
    for seed in seeds(6) {
        let mut world = World::new(seed, config(4), Link::lossy(20), pad);
        world.run(300);
        assert_eq!(desyncs(&world), []);
        assert!(world.server.stats().hashes_compared >= 290);
        assert_eq!(world.server.stats().hashes_missing, 0);
    }
}

#[test]
fn of_two_players_neither_is_believed() {
    let mut world = World::new(1, config(2), Link::lossy(5), pad);
    world.players[1].diverges_at = Some(Tick(77));
    world.run(150);
    let both = vec![Seat(0), Seat(1)];
    assert_eq!(desyncs(&world), [(Tick(77), both, Verdict::Undecided)]);
}

#[test]
fn a_server_that_simulates_decides() {
    let mut world = World::new(1, config(2), Link::lossy(5), pad);
    world.players[1].diverges_at = Some(Tick(77));
    let mut state = 0;
    while world.server.ticks_closed() < 200 {
        world.step();
        while let Some(turn) = world.server.poll_turn() {
            let tick = turn.tick();
            let mut hasher = StateHasher::new(MATCH);
            hasher.u64(state);
            for (seat, _, origin) in turn.inputs() {
                hasher.u8(origin.code());
                hasher.bytes(turn.bits(seat));
            }
            state = hasher.finish();
            world.server.report(tick, state).unwrap();
            assert!(world.server.report(Tick(tick.0 + 1), state).is_err());
        }
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

#[test]
fn sim_ls_g15_a_desync_is_reported_within_150_ms() {
    // 50 ms each way, 2 % lost, each tick hashed; from the wrong step to the server's report.
    let mut waits = Vec::new();
    for seed in seeds(25) {
        let mut link = Link::lossy(2);
        link.jitter = Duration::ZERO;
        let mut world = World::new(seed, config(3), link, pad);
        world.players[1].diverges_at = Some(Tick(100));
        while desyncs(&world).is_empty() {
            world.step();
        }
        waits.push(world.now.saturating_since(world.players[1].turned_at[100]));
    }
    waits.sort();
    let median = waits[waits.len() / 2];
    assert!(median <= Duration::from_millis(150), "{waits:?}");
    // One report lost is one more round trip and two waits for a tick.
    let worst = waits[waits.len() - 1];
    assert!(worst <= Duration::from_millis(450), "{waits:?}");
}
