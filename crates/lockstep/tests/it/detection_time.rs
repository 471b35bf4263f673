//! How soon a diverged game is reported, then located; and the cost of hashes.

use core::time::Duration;

use lockstep::Tick;
use netsim::{for_each_seed, test_site};
use wire::Seed;

use crate::sections::{Flip, Match, divergences, flip};
use crate::world::{Link, World, config, pad};

/// Time from a player's divergence to the server's report, and from there to tick and section, at
/// 50 ms each way.
fn search_times(seed: Seed, players: u16, loss: u32, interval: u8) -> (Duration, Duration) {
    let mut generator = seed.generator(72);
    let mut config = config(players);
    config.hash_interval = interval.try_into().unwrap();
    let mut link = Link::lossy(loss);
    link.jitter = Duration::ZERO;
    let world = World::seeded(generator.seed(), config, link, pad);
    let mut game = Match::new(world, 5);
    let flip = Flip {
        // Not before the round trip is measured.
        tick: Tick(u32::try_from(generator.between(60, 120)).unwrap()),
        ..flip(&mut generator, 5)
    };
    game.games[1].flip = Some(flip);
    game.run(0, Duration::from_secs(20));
    let found = divergences(&game.world);
    let section = found[0].4.as_ref().map(|(index, _)| usize::from(*index));
    assert_eq!((found[0].2, section), (flip.tick, Some(flip.section)));
    let [wrong, named, found] = [game.wrong_at, game.named_at, game.found_at].map(Option::unwrap);
    (named.saturating_since(wrong), found.saturating_since(named))
}

/// The second of these times, for 3 players.
fn search_time(seed: Seed, loss: u32, interval: u8) -> Duration {
    search_times(seed, 3, loss, interval).1
}

#[test]
fn sim_ls_g15_a_desync_is_named_within_150_ms() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut seeds = seed.generator(74);
        let limit = Duration::from_millis(150);
        for players in [2, 4] {
            let waits = (0..25).map(|_| search_times(seeds.seed(), players, 2, 1).0);
            let mut waits: Vec<_> = waits.collect();
            waits.sort();
            // One lost hash delays nothing; a burst of losses would.
            eprintln!("{players} players: {:?} at most", waits[24]);
            assert!(waits[24] <= limit, "{players}: {waits:?}");
        }
    });
}

#[test]
fn sim_ls_g15_tick_and_section_are_reported_within_two_more_round_trips() {
    let round_trip = Duration::from_millis(100);
    for_each_seed(&test_site!(), 4, |seed| {
        let mut seeds = seed.generator(73);
        assert_eq!(search_time(seeds.seed(), 0, 1), round_trip);
        assert!(search_time(seeds.seed(), 0, 8) <= 2 * round_trip);
        // At 2 % loss the median is as good. A loss costs a round trip and a few ticks; a second
        // loss of the same datagram costs twice as much.
        let waits = (0..25).map(|_| search_time(seeds.seed(), 2, 8));
        let mut waits: Vec<_> = waits.collect();
        waits.sort();
        let in_time = waits.iter().filter(|wait| **wait <= 2 * round_trip);
        eprintln!("{} of 25 within two round trips", in_time.count());
        assert!(waits[12] <= 2 * round_trip, "{waits:?}");
        assert!(waits[24] <= 12 * round_trip, "{waits:?}");
    });
}

#[test]
fn ls_g15_a_hash_in_each_tick_costs_at_most_300_bytes_a_second() {
    let sent = |loss: u32, reported: u32| {
        let mut link = Link::lossy(loss);
        link.jitter = Duration::ZERO;
        let mut game = Match::new(World::new(1, config(3), link, pad), 5);
        game.games
            .iter_mut()
            .for_each(|game| game.reported = reported);
        game.run_for(Duration::from_secs(60));
        game.world.players[0].machine.stats().bytes_sent
    };
    for loss in [0, 2] {
        let rate = (sent(loss, 1) - sent(loss, u32::MAX)) / 60;
        eprintln!("{loss} % loss: {rate} B/s for hashes");
        assert!((235..=300).contains(&rate), "{rate}");
    }
}
