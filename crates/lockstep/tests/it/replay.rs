//! A replay equals the match that was played, and files have the documented size.

use lockstep::replay::{
    Ending, ReplayConfig, ReplayLimits, ReplayPlayer, ReplayReader, ReplayWriter, first_difference,
};
use lockstep::{Sim, SnapshotBytes, StateHasher, Tick, Turn};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Seat};

use crate::alloc::{Bench, allocations, held};
use crate::world::{Link, MATCH, World, config, pad};

/// The game of [`World`]; its state depends on the order of all inputs and origins.
#[derive(Clone, Debug, Default)]
struct HashComparator(u64);

#[derive(Debug, Default)]
struct Page(u64);

impl Sim for HashComparator {
    type Input = u16;
    type Snapshot = Page;

    fn step(&mut self, turn: &Turn<'_, u16>) {
        let mut hasher = StateHasher::new(MATCH);
        hasher.u64(self.0);
        for seat in (0..).map(Seat).take(turn.seat_count()) {
            hasher.u8(turn.input(seat).unwrap().1.code());
            hasher.bytes(turn.bits(seat));
        }
        self.0 = hasher.finish();
    }
    fn save(&self, into: &mut Page) {
        into.0 = self.0;
    }
    fn load(&mut self, from: &Page) {
        self.0 = from.0;
    }
    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u64(self.0);
    }
}

impl SnapshotBytes for Page {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes
            .try_into()
            .ok()
            .map(|bytes| Self(u64::from_be_bytes(bytes)))
    }
}

/// Records the ticks that the server closes, as a simulating server does.
struct Recorder {
    writer: ReplayWriter<u16>,
    game: HashComparator,
    file: Vec<u8>,
}

impl Recorder {
    fn new(config: ReplayConfig) -> Self {
        let mut file = Vec::new();
        Self {
            writer: ReplayWriter::new(config, &mut file).unwrap(),
            game: HashComparator::default(),
            file,
        }
    }

    fn take(&mut self, turn: &Turn<'_, u16>) {
        if self.writer.needs_keyframe() {
            let page = Page(self.game.0);
            self.writer.keyframe(&page, &mut self.file).unwrap();
        }
        self.game.step(turn);
        let state_hash = || {
            let mut hasher = StateHasher::new(MATCH);
            self.game.hash(&mut hasher);
            hasher.finish()
        };
        self.writer.turn(turn, state_hash, &mut self.file).unwrap();
    }
}

fn any_config(seats: u16, generator: &mut Generator) -> ReplayConfig {
    let mut config = ReplayConfig::new(MATCH, seats);
    config.hash_interval = u8::try_from(generator.below(10)).unwrap();
    config.keyframe_interval = u32::try_from(generator.below(90)).unwrap();
    config
}

#[test]
fn sim_ls_3_replay_equals_lockstep() {
    for_each_seed(&test_site!(), 12, |seed| {
        let mut generator = seed.generator(91);
        let seats = u16::try_from(generator.between(2, 6)).unwrap();
        let link = Link::lossy(u32::try_from(generator.below(21)).unwrap());
        let mut world = World::seeded(seed, config(seats), link, pad);
        let recorders = [1, 2].map(|_| any_config(seats, &mut generator));
        let mut recorders = recorders.map(Recorder::new);
        while world.server.ticks_closed() < 250 {
            world.step();
            while let Some(turn) = world.server.poll_turn() {
                for recorder in &mut recorders {
                    recorder.take(&turn);
                }
            }
        }
        // The last turns arrive.
        world.run_for(core::time::Duration::from_secs(1));
        let files = recorders.map(|mut recorder| {
            recorder.writer.finish(&mut recorder.file);
            recorder.file
        });
        let limits = ReplayLimits::default();
        let replays = [&files[0], &files[1]].map(|it| ReplayReader::open(it, &limits).unwrap());
        assert_eq!(first_difference(&replays[0], &replays[1]), None);
        assert_eq!(replays[0].head(), replays[1].head());
        for replay in &replays {
            assert_eq!(replay.ending(), Ending::Complete);
            let mut player = ReplayPlayer::new(replay, HashComparator::default()).unwrap();
            assert_eq!(player.verify().unwrap().ticks, replay.ticks());
            for tick in 0..replay.ticks() {
                player.seek(Tick(tick + 1)).unwrap();
                for played in &world.players {
                    let state = played.states[usize::try_from(tick).unwrap()];
                    assert_eq!(player.sim().0, state, "tick {tick}");
                }
            }
        }
    });
}

#[test]
fn ls_9_recording_and_playing_allocate_nothing() {
    let mut bench = Bench::new(8, 0);
    let mut config = ReplayConfig::new(MATCH, 8);
    config.keyframe_interval = 100;
    let mut recorder = Recorder::new(config);
    let mut run = |ticks: u32, file: &mut Vec<u8>| {
        for _ in 0..ticks * 5 {
            bench.step(50_000);
            while let Some(turn) = bench.server.poll_turn() {
                recorder.take(&turn);
                file.extend_from_slice(&recorder.file);
                recorder.file.clear();
            }
        }
    };
    let mut file = Vec::with_capacity(1 << 20);
    run(1_000, &mut file);
    let (before, bytes) = (allocations(), held());
    run(10_000, &mut file);
    assert_eq!((allocations() - before, held() - bytes), (0, 0));

    let replay = ReplayReader::open(&file, &ReplayLimits::default()).unwrap();
    assert!(replay.ticks() > 11_000, "{}", replay.ticks());
    assert!(replay.keyframes().count() > 110);
    let mut player = ReplayPlayer::new(&replay, HashComparator::default()).unwrap();
    let before = allocations();
    player.verify().unwrap();
    for tick in (0..replay.ticks()).step_by(777) {
        player.seek(Tick(tick)).unwrap();
    }
    assert_eq!(allocations() - before, 0);
}

#[test]
fn ls_10_no_file_makes_a_reader_exceed_its_limits() {
    let mut bench = Bench::new(8, 0);
    let mut config = ReplayConfig::new(MATCH, 8);
    config.keyframe_interval = 1;
    let mut recorder = Recorder::new(config);
    for _ in 0..20_000 {
        bench.step(0);
        while let Some(turn) = bench.server.poll_turn() {
            recorder.take(&turn);
        }
    }
    let file = recorder.file;
    let mut limits = ReplayLimits::default();
    let opened = ReplayReader::open(&file, &limits);
    assert!(opened.is_err(), "more keyframes than 4,096");
    limits.keyframes_max = 5_000;
    let before = held();
    let replay = ReplayReader::open(&file, &limits).unwrap();
    let bytes = held() - before;
    // 4,800 keyframes in a vector that doubles, and three rows.
    assert!(replay.keyframes().count() > 4_096);
    assert!(bytes < 2 * 5_000 * 16 + 4_096, "{bytes}");
    let counted = i64::try_from(replay.memory_len()).unwrap();
    assert!(counted.abs_diff(bytes) < 1_024, "{counted} {bytes}");
    drop(replay);

    // For hostile or damaged files as well, memory stays within the bound and is freed.
    limits.keyframes_max = 16;
    let mut generator = wire::Seed::from_number(5).generator(0);
    let mut below =
        |len: usize| usize::try_from(generator.below(u64::try_from(len).unwrap())).unwrap();
    let short = &file[..3_000];
    for _ in 0..2_000 {
        let mut changed = short[..below(short.len())].to_vec();
        for _ in 0..below(4) {
            let at = below(changed.len() + 1);
            if let Some(byte) = changed.get_mut(at) {
                *byte = u8::try_from(below(256)).unwrap();
            }
        }
        let before = held();
        if let Ok(replay) = ReplayReader::open(&changed, &limits) {
            assert!(held() - before < 16 * 16 * 2 + 1_024);
            assert!(replay.ticks() <= 3_000);
        }
        assert_eq!(held(), before);
    }
}
