//! A diverging game is reported with the first tick and section that differ.

use core::time::Duration;
use std::sync::LazyLock;

use lockstep::{
    Cause, ClientConfig, ClientEvent, ClientPeer, MatchServer, PeerId, Recovery, ServerEvent,
    SnapshotSource, StateHasher, Tick, Turn,
};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Instant, Seat, Seed};

use crate::world::{Link, MATCH, World, config, pad};

/// The maximum number of section names.
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = (0..64).map(|index| &*format!("part{index}").leak());
    names.collect()
});

/// A divergence: after the step of `tick`, one bit of a section is flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) tick: Tick,
    pub(crate) section: usize,
    pub(crate) bit: u64,
}

/// A game of several parts, each of which depends on the previous one.
#[derive(Clone, Debug)]
pub(crate) struct Game {
    parts: Vec<u64>,
    pub(crate) flip: Option<Flip>,
    /// Only multiples of this tick are reported.
    pub(crate) reported: u32,
}

impl Game {
    fn new(sections: usize) -> Self {
        Self {
            parts: (0..64).take(sections).collect(),
            flip: None,
            reported: 1,
        }
    }

    fn step(&mut self, turn: &Turn<'_, u16>) {
        let mut before = 0;
        for part in &mut self.parts {
            let mut hasher = StateHasher::new(MATCH);
            hasher.u64(before);
            hasher.u64(*part);
            turn.inputs()
                .for_each(|(_, buttons, _)| hasher.u32(buttons.into()));
            before = *part;
            *part = hasher.finish();
        }
        if let Some(flip) = self.flip.take_if(|flip| flip.tick == turn.tick()) {
            self.parts[flip.section] ^= 1 << flip.bit;
        }
    }

    fn state(&self) -> StateHasher {
        let mut hasher = StateHasher::new(MATCH);
        for (part, name) in self.parts.iter().zip(NAMES.iter()) {
            hasher.section(name);
            hasher.u64(*part);
        }
        hasher
    }
}

/// A world with this game instead of its own.
pub(crate) struct Match {
    pub(crate) world: World<u16>,
    pub(crate) games: Vec<Game>,
    /// The server's game, if it simulates.
    server_game: Option<Game>,
    /// When a player's game diverged, when the server reported the player, and when it reported
    /// tick and section.
    pub(crate) wrong_at: Option<Instant>,
    pub(crate) named_at: Option<Instant>,
    pub(crate) found_at: Option<Instant>,
}

impl Match {
    pub(crate) fn new(world: World<u16>, sections: usize) -> Self {
        let mut world = world;
        world.players.iter_mut().for_each(|player| {
            player.is_frozen = true;
        });
        Self {
            games: vec![Game::new(sections); world.players.len()],
            world,
            server_game: None,
            wrong_at: None,
            named_at: None,
            found_at: None,
        }
    }

    fn step(&mut self) {
        self.world.step();
        let now = self.world.now;
        for (player, game) in self.world.players.iter_mut().zip(&mut self.games) {
            if player.is_paused {
                continue;
            }
            while let Some(turn) = player.machine.poll_turn(now) {
                let tick = turn.tick();
                let was_right = game.flip.is_some();
                game.step(&turn);
                if was_right && game.flip.is_none() {
                    self.wrong_at = Some(now);
                }
                if tick.0.is_multiple_of(game.reported) {
                    player.machine.report_state(tick, &game.state()).unwrap();
                }
            }
            while let Some(event) = player.machine.poll_event() {
                exchange(&mut player.machine, now, game, &event);
                player.events.push(event);
            }
        }
        if let Some(game) = &mut self.server_game {
            play_along(&mut self.world.server, game);
        }
        for event in &self.world.server_events {
            if matches!(event, ServerEvent::Desync { .. }) {
                self.named_at.get_or_insert(now);
            } else if matches!(event, ServerEvent::Divergence { .. }) {
                self.found_at.get_or_insert(now);
            }
        }
    }

    /// Runs until the result is known and `reported` players were notified, for at most `limit`.
    pub(crate) fn run(&mut self, reported: usize, limit: Duration) {
        let end = self.world.now + limit;
        while self.world.now < end
            && (self.found_at.is_none() || reports_of(&self.world).len() < reported)
        {
            self.step();
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        while self.world.now < end {
            self.step();
        }
    }
}

/// Offers a state if one is wanted, and continues from a received one.
fn exchange(machine: &mut ClientPeer<u16>, now: Instant, game: &mut Game, event: &ClientEvent) {
    if matches!(event, ClientEvent::SnapshotWanted) {
        let parts = game.parts.iter().flat_map(|part| part.to_be_bytes());
        let bytes: Vec<_> = parts.collect();
        machine.offer_snapshot(now, &bytes).unwrap();
    } else if let ClientEvent::Snapshot { next } = event {
        let bytes = machine.take_snapshot().unwrap();
        let parts = bytes.chunks(8).map(|part| part.try_into().unwrap());
        game.parts = parts.map(u64::from_be_bytes).collect();
        let tick = Tick(next.0 - 1);
        machine.report_state(tick, &game.state()).unwrap();
    }
}

fn play_along(server: &mut MatchServer<u16>, game: &mut Game) {
    while let Some(turn) = server.poll_turn() {
        let tick = turn.tick();
        game.step(&turn);
        server.report_state(tick, &game.state()).unwrap();
    }
}

/// A reported divergence: seat, compared seat, tick, cause, and section.
type Reported = (Seat, Option<Seat>, Tick, Cause, Option<(u8, String)>);

pub(crate) fn divergences(world: &World<u16>) -> Vec<Reported> {
    let found = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Divergence {
            seat,
            against,
            tick,
            cause,
            section,
        } = event
        {
            let section = section.map(|section| (section.index, section.name.to_string()));
            Some((*seat, *against, *tick, *cause, section))
        } else {
            None
        }
    });
    found.collect()
}

fn alarms(world: &World<u16>) -> usize {
    let is_alarm = |event: &&ServerEvent| {
        matches!(
            event,
            ServerEvent::Desync { .. }
                | ServerEvent::Divergence { .. }
                | ServerEvent::Silent { .. }
        )
    };
    world.server_events.iter().filter(is_alarm).count()
}

/// Players that were notified, with the contents.
fn reports_of(world: &World<u16>) -> Vec<(usize, Seat, Tick, Cause, Option<&'static str>)> {
    let mut all = Vec::new();
    for (index, player) in world.players.iter().enumerate() {
        for event in &player.events {
            if let ClientEvent::Diverged {
                tick,
                seat,
                cause,
                section,
            } = event
            {
                all.push((index, *seat, *tick, *cause, *section));
            }
        }
    }
    all
}

fn pick<T: Copy>(generator: &mut Generator, from: &[T]) -> T {
    let index = generator.below(u64::try_from(from.len()).unwrap());
    from[usize::try_from(index).unwrap()]
}

/// A match with random parameters.
fn draw(seed: Seed) -> (Generator, Match) {
    let mut generator = seed.generator(71);
    let players = u16::try_from(generator.between(2, 6)).unwrap();
    let mut config = config(players);
    let interval = u8::try_from(generator.between(1, 16)).unwrap();
    config.hash_interval = interval.try_into().unwrap();
    let link = Link::lossy(u32::try_from(generator.below(21)).unwrap());
    let world = World::seeded(generator.seed(), config, link, pad);
    let sections = pick(&mut generator, &[1, 2, 5, 9, 64]);
    let mut game = Match::new(world, sections);
    if generator.chance(500_000) {
        game.server_game = Some(Game::new(sections));
    }
    (generator, game)
}

pub(crate) fn flip(generator: &mut Generator, sections: usize) -> Flip {
    Flip {
        tick: Tick(u32::try_from(generator.between(0, 60)).unwrap()),
        section: usize::try_from(generator.below(sections as u64)).unwrap(),
        bit: generator.below(64),
    }
}

#[test]
fn sim_ls_12_a_flipped_bit_is_reported_with_tick_and_section() {
    for_each_seed(&test_site!(), 48, |seed| {
        let (mut generator, mut game) = draw(seed);
        let players = game.games.len();
        let diverging = usize::try_from(generator.below(players as u64)).unwrap();
        let sections = game.games[0].parts.len();
        let flip = flip(&mut generator, sections);
        game.games[diverging].flip = Some(flip);
        let simulates = game.server_game.is_some();
        // The diverging player and, without a simulating server, its witness.
        let reported = if simulates { 1 } else { 2 };
        game.run(reported, Duration::from_secs(20));

        let found = divergences(&game.world);
        assert_eq!(found.len(), 1, "{flip:?}: {:?}", game.world.server_events);
        let (seat, against, tick, cause, section) = found[0].clone();
        let named = (
            u8::try_from(flip.section).unwrap(),
            NAMES[flip.section].to_owned(),
        );
        assert_eq!((tick, cause), (flip.tick, Cause::State));
        assert_eq!(section, Some(named));
        let diverging = crate::world::seat(diverging);
        assert_eq!(simulates, against.is_none());
        if simulates || players > 2 {
            assert_eq!(seat, diverging);
        } else {
            assert!(seat == diverging || against == Some(diverging));
        }
        let mut reports = reports_of(&game.world);
        reports.sort_by_key(|(index, ..)| *index != usize::from(seat.0));
        let expected = [Some(seat), against].into_iter().flatten();
        let name = Some(NAMES[flip.section]);
        let expected = expected.map(|who| (who.0.into(), seat, flip.tick, Cause::State, name));
        assert!(
            reports.into_iter().eq(expected),
            "{:?}",
            reports_of(&game.world)
        );
    });
}

#[test]
fn sim_ls_12_clean_matches_with_sections_raise_no_alarm() {
    for_each_seed(&test_site!(), 24, |seed| {
        let (_, mut game) = draw(seed);
        game.run_for(Duration::from_secs(2));
        // With few hashes and 20 % loss, the first comparison may take longer.
        if game.world.server.stats().hashes_compared == 0 {
            game.run_for(Duration::from_secs(4));
        }
        assert_eq!(alarms(&game.world), 0, "{:?}", game.world.server_events);
        assert_eq!(game.world.server.stats().bisect_questions, 0);
        let stats = game.world.server.stats();
        assert!(stats.hashes_compared > 0, "{stats:?}");
    });
}

#[test]
fn players_that_diverge_in_one_step_are_each_reported() {
    // Both flips are within one hash step, in different ticks and sections; with and without the
    // server.
    for simulates in [false, true] {
        let mut config = config(5);
        config.hash_interval = 8.try_into().unwrap();
        let mut game = Match::new(World::new(5, config, Link::lossy(5), pad), 9);
        game.server_game = simulates.then(|| Game::new(9));
        for (player, tick, section) in [(1, 42, 7), (3, 46, 2)] {
            game.games[player].flip = Some(Flip {
                tick: Tick(tick),
                section,
                bit: 3,
            });
        }
        game.run_for(Duration::from_secs(4));
        let reported: Vec<_> = divergences(&game.world)
            .into_iter()
            .map(|(seat, _, tick, cause, section)| (seat, tick, cause, section.unwrap()))
            .collect();
        let expected = |seat, tick, section: u8| {
            let name = NAMES[usize::from(section)].to_owned();
            (Seat(seat), Tick(tick), Cause::State, (section, name))
        };
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(reported.contains(&expected(1, 42, 7)), "{reported:?}");
        assert!(reported.contains(&expected(3, 46, 2)), "{reported:?}");
    }
}

#[test]
fn the_next_divergence_of_a_replaced_state_is_found() {
    let mut config = config(4);
    config.hash_interval = 8.try_into().unwrap();
    config.recovery = Recovery::Reload;
    config.snapshots = SnapshotSource::Players;
    let mut game = Match::new(World::new(8, config, Link::lossy(5), pad), 5);
    let mut expected = Vec::new();
    for (tick, section) in [(50, 3), (203, 1), (358, 0)] {
        game.games[1].flip = Some(Flip {
            tick: Tick(tick),
            section,
            bit: 1,
        });
        while game.world.server.ticks_closed() < tick + 80 {
            game.step();
        }
        expected.push((
            Seat(1),
            Tick(tick),
            Cause::State,
            Some(NAMES[section].to_owned()),
        ));
    }
    let found = divergences(&game.world).into_iter();
    let found = found
        .map(|(seat, _, tick, cause, section)| (seat, tick, cause, section.map(|(_, name)| name)));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(game.games[0].parts.len(), game.games[1].parts.len());
}

#[test]
fn in_a_tie_the_first_hash_is_the_reference() {
    let mut game = Match::new(World::new(6, config(4), Link::lossy(5), pad), 5);
    let (tick, section, bit) = (Tick(70), 4, 9);
    for player in [0, 3] {
        game.games[player].flip = Some(Flip { tick, section, bit });
    }
    game.run_for(Duration::from_secs(4));
    let found = divergences(&game.world);
    let mut pairs: Vec<_> = found.iter().map(|found| (found.0, found.2)).collect();
    pairs.sort();
    assert_eq!(pairs, [(Seat(1), tick), (Seat(2), tick)]);
    assert!(
        found
            .iter()
            .all(|found| matches!(found.1, Some(Seat(0 | 3))))
    );
}

#[test]
fn a_game_that_reports_hash_steps_only_gets_its_step() {
    let mut config = config(3);
    config.hash_interval = 8.try_into().unwrap();
    let mut game = Match::new(World::new(7, config, Link::lossy(5), pad), 5);
    game.games.iter_mut().for_each(|game| game.reported = 8);
    let (tick, section, bit) = (Tick(50), 4, 9);
    game.games[2].flip = Some(Flip { tick, section, bit });
    game.run(2, Duration::from_secs(20));
    let found = &divergences(&game.world)[0];
    assert_eq!(
        (found.0, found.2, found.3),
        (Seat(2), Tick(56), Cause::State)
    );
}

#[test]
fn a_ring_that_is_too_short_reports_its_first_tick() {
    // The flip is in tick 50, the hash step in 56; a few ticks later the result is known.
    for (kept, ticks, has_section) in [(0, 56..=56, false), (6, 51..=56, true)] {
        let mut config = config(3);
        config.hash_interval = 8.try_into().unwrap();
        let mut world = World::new(7, config, Link::perfect(), pad);
        let mut config = ClientConfig::default();
        config.hashes_kept = kept;
        for (player, seed) in world.players.iter_mut().zip(1_000..) {
            let seed = Seed::from_number(seed);
            player.machine = ClientPeer::new(config.clone(), PeerId(9_999), seed, world.now);
        }
        let mut game = Match::new(world, 5);
        let flip = Flip {
            tick: Tick(50),
            section: 4,
            bit: 9,
        };
        game.games[2].flip = Some(flip);
        game.run(2, Duration::from_secs(20));
        let found = &divergences(&game.world)[0];
        assert_eq!(found.0, Seat(2));
        assert!(ticks.contains(&found.2.0), "{kept}: {found:?}");
        assert_eq!(found.4.is_some(), has_section, "{kept}");
    }
}
