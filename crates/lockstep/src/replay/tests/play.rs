//! Playback, seeking and verification.

use proptest::prelude::*;

use super::*;

/// States before each tick, and the state after the last.
fn linear(replay: &ReplayReader<'_>) -> Vec<u64> {
    let mut player = player(replay);
    let mut states = vec![player.sim().state];
    while player.step().is_some() {
        states.push(player.sim().state);
    }
    states
}

#[test]
fn ls_15_seeking_equals_linear_play_for_every_tick() {
    let rows = mixed_rows(4, 230, 1);
    for interval in [0_u32, 1, 7, 50, 115, 400] {
        let file = file(config(4, 8, interval), &rows);
        let replay = open(&file);
        let states = linear(&replay);
        assert_eq!(states.len(), 231);
        let longest = if interval == 0 { 230 } else { interval };
        let mut player = player(&replay);
        let mut generator = Seed::from_number(2).generator(interval.into());
        let anywhere = (0..400).map(|_| u32::try_from(generator.below(231)).unwrap());
        for tick in (0..=230).chain((0..=230).rev()).chain(anywhere) {
            let steps = player.seek(Tick(tick)).unwrap();
            assert!(steps <= longest, "{steps} steps to {tick}, {interval}");
            assert_eq!(player.next(), Tick(tick));
            assert_eq!(player.sim().state, states[usize::try_from(tick).unwrap()]);
        }
        player.seek(Tick(201)).unwrap();
        while player.step().is_some() {}
        assert_eq!(player.sim().state, states[230]);
        assert_eq!(
            player.seek(Tick(231)),
            Err(SeekError::PastEnd { ticks: 230 })
        );
        assert_eq!(player.next(), Tick(230), "nothing has changed");
    }
}

#[test]
fn ls_15_verify_names_the_first_tick_with_a_different_state() {
    let rows = mixed_rows(3, 100, 3);
    let file = file(config(3, 8, 30), &rows);
    let replay = open(&file);
    let all = Verified {
        ticks: 100,
        hashes: 13,
        keyframes: 3,
    };
    assert_eq!(player(&replay).verify(), Ok(all));
    for wrong in 0..100 {
        let game = Game {
            diverges_at: Some(Tick(wrong)),
            ..Game::default()
        };
        let mut player = ReplayPlayer::new(&replay, game).unwrap();
        // A keyframe shows the difference if it is before the next hash.
        let (hash, keyframe) = (wrong.next_multiple_of(8), (wrong + 1).next_multiple_of(30));
        match player.verify() {
            Err(Mismatch::State { tick, .. }) => {
                assert_eq!(tick, Tick(hash));
                assert!(hash < keyframe);
            }
            Err(Mismatch::Keyframe { tick }) => {
                assert_eq!(tick, Tick(keyframe));
                assert!(keyframe <= hash);
            }
            Ok(verified) => {
                assert_eq!(verified, all);
                assert!(wrong > 96, "no hash and no keyframe behind {wrong}");
            }
        }
    }
}

#[test]
fn verify_finds_a_keyframe_that_is_another_state() {
    let rows = rows(2, 40, 4);
    let mut file = Vec::new();
    let mut writer = ReplayWriter::<Pad>::new(config(2, 8, 20), &mut file).unwrap();
    let mut game = Game::default();
    for (tick, row) in (0..).map(Tick).zip(&rows) {
        if writer.needs_keyframe() {
            writer.keyframe(&State(7), &mut file).unwrap();
        }
        game.step(&Turn::new(tick, row));
        writer
            .turn(&Turn::new(tick, row), || hash(&game), &mut file)
            .unwrap();
    }
    writer.finish(&mut file);
    let replay = open(&file);
    let mismatch = Mismatch::Keyframe { tick: Tick(20) };
    assert_eq!(player(&replay).verify(), Err(mismatch));
}

#[test]
fn a_keyframe_that_the_game_rejects_is_named() {
    let rows = rows(2, 40, 5);
    let mut file = Vec::new();
    let mut writer = ReplayWriter::<Pad>::new(config(2, 0, 20), &mut file).unwrap();
    for (tick, row) in (0..).map(Tick).zip(&rows) {
        if writer.needs_keyframe() {
            writer.keyframe(&vec![1_u8, 2, 3], &mut file).unwrap();
        }
        writer.turn(&Turn::new(tick, row), || 0, &mut file).unwrap();
    }
    writer.finish(&mut file);
    let replay = open(&file);
    let mut player = player(&replay);
    let unread = Err(SeekError::Keyframe { tick: Tick(20) });
    assert_eq!(player.seek(Tick(30)), unread);
    assert_eq!((player.next(), player.sim().state), (Tick(0), 0));
    let mismatch = Mismatch::Keyframe { tick: Tick(20) };
    assert_eq!(player.verify(), Err(mismatch));
}

#[test]
fn another_games_replay_is_not_played() {
    #[derive(Debug, Default)]
    struct Wide;
    impl Sim for Wide {
        type Input = u16;
        type Snapshot = ();
        fn step(&mut self, _: &Turn<'_, u16>) {}
        fn save(&self, (): &mut ()) {}
        fn load(&mut self, (): &()) {}
        fn hash(&self, _: &mut StateHasher) {}
    }
    let file = file(config(2, 8, 0), &rows(2, 9, 6));
    assert!(ReplayPlayer::new(&open(&file), Wide).is_none());
}

#[test]
fn the_first_difference_of_two_replays_is_named() {
    let rows = mixed_rows(3, 90, 7);
    let first = file(config(3, 8, 0), &rows);
    let compare = |other: &[u8]| first_difference(&open(&first), &open(other));
    // Recorders of the same match with other intervals agree.
    assert_eq!(compare(&file(config(3, 5, 20), &rows)), None);
    let shorter = file(config(3, 8, 0), &rows[..70]);
    let length = Difference::Length { tick: Tick(70) };
    assert_eq!(compare(&shorter), Some(length));
    for tick in 0..90 {
        let mut other = rows.clone();
        let row = &mut other[usize::try_from(tick).unwrap()];
        let origin = row.origins[2];
        row.set(Seat(2), &[0x77, 0x70], origin);
        let inputs = Difference::Inputs { tick: Tick(tick) };
        assert_eq!(compare(&file(config(3, 8, 0), &other)), Some(inputs));
    }
    let mut other = Vec::new();
    let mut writer = ReplayWriter::<Pad>::new(config(3, 4, 0), &mut other).unwrap();
    let mut game = Game {
        diverges_at: Some(Tick(41)),
        ..Game::default()
    };
    for (tick, row) in (0..).map(Tick).zip(&rows) {
        let turn = Turn::new(tick, row);
        game.step(&turn);
        writer.turn(&turn, || hash(&game), &mut other).unwrap();
    }
    writer.finish(&mut other);
    // Only one of the files has a hash for tick 44.
    let state = Difference::State { tick: Tick(48) };
    assert_eq!(compare(&other), Some(state));
    let mut config = config(3, 8, 0);
    config.seed = vec![1];
    assert_eq!(compare(&file(config, &rows)), Some(Difference::Match));
}

#[test]
fn ls_g19_an_hour_of_eight_pads_takes_at_most_a_megabyte() {
    let (hour, seats) = (60 * 60 * 60, 8);
    let rows = rows(seats, hour, 8);
    let file = file(config(seats, 8, 0), &rows);
    eprintln!("{} bytes, {hour} ticks", file.len());
    assert!(file.len() <= 1_000_000, "{}", file.len());
    let replay = open(&file);
    let verified = player(&replay).verify().unwrap();
    assert_eq!((verified.ticks, verified.hashes), (hour, hour / 8));
}

proptest! {
    #[test]
    fn any_recording_is_played_back_unchanged(
        seed: u64,
        seats in 1_u16..9,
        ticks in 0_u32..150,
        hash_interval: u8,
        keyframe_interval in 0_u32..80,
        names: [Vec<u8>; 2],
        is_flushed: [bool; 150],
    ) {
        let rows = mixed_rows(seats, ticks, seed);
        let mut config = config(seats, hash_interval % 20, keyframe_interval);
        config.game = names[0].iter().copied().take(64).collect();
        config.seed = names[1].iter().copied().take(64).collect();
        let (mut file, mut game) = (Vec::new(), Game::default());
        let mut writer = ReplayWriter::<Pad>::new(config.clone(), &mut file).unwrap();
        for ((tick, row), is_flushed) in (0..).map(Tick).zip(&rows).zip(is_flushed) {
            if writer.needs_keyframe() {
                writer.keyframe(&State(game.state), &mut file).unwrap();
            }
            game.step(&Turn::new(tick, row));
            writer.turn(&Turn::new(tick, row), || hash(&game), &mut file).unwrap();
            if is_flushed {
                writer.flush(&mut file);
            }
        }
        let head = writer.finish(&mut file);
        let replay = open(&file);
        prop_assert_eq!(replay.ending(), Ending::Complete);
        prop_assert_eq!((replay.ticks(), replay.head()), (ticks, head));
        let header = replay.header();
        prop_assert_eq!((&header.game, &header.seed), (&config.game, &config.seed));
        let mut player = player(&replay);
        for (tick, row) in (0..).map(Tick).zip(&rows) {
            let turn = player.step().unwrap();
            prop_assert_eq!(turn.tick(), tick);
            prop_assert_eq!(turn.row(), row);
        }
        prop_assert!(player.step().is_none());
        prop_assert_eq!(player.sim().state, game.state);
        prop_assert_eq!(player.verify().map(|verified| verified.ticks), Ok(ticks));
    }
}
