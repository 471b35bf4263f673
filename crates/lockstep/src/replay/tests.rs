//! Written replays read back, changes are detected, and playback reaches the same states.

mod bounds;
mod damage;
mod play;
mod proof;

use wire::{Generator, MatchId, Seat, Seed};

use super::*;
use crate::bits::{BitReader, BitWriter};
use crate::checksum::StateHasher;
use crate::input::{Input, Width};
use crate::input::{Origin, Row, Turn};
use crate::sim::{Sim, SnapshotBytes};
use crate::tick::Tick;

const ID: MatchId = MatchId([0x3c; 16]);

/// A pad of 12 buttons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pad(u16);

impl Input for Pad {
    const WIDTH: Width = Width::bits::<12>();
    fn write(&self, out: &mut BitWriter<'_>) {
        out.bits(self.0.into(), 12);
    }
    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        u16::try_from(bits.bits(12).ok()?).ok().map(Self)
    }
}

/// A game with a state that depends on the order of all inputs and origins.
#[derive(Clone, Debug, Default)]
struct Game {
    state: u64,
    /// Tick at which it diverges, once.
    diverges_at: Option<Tick>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State(u64);

impl Sim for Game {
    type Input = Pad;
    type Snapshot = State;

    fn step(&mut self, turn: &Turn<'_, Pad>) {
        let mut hasher = StateHasher::new(ID);
        hasher.u64(self.state);
        hasher.u32(turn.tick().0);
        for (_, pad, origin) in turn.inputs() {
            hasher.u32(pad.0.into());
            hasher.u8(origin.code());
        }
        self.state = hasher.finish() ^ u64::from(self.diverges_at == Some(turn.tick()));
    }
    fn save(&self, into: &mut State) {
        *into = State(self.state);
    }
    fn load(&mut self, from: &State) {
        self.state = from.0;
    }
    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u64(self.state);
    }
}

impl SnapshotBytes for State {
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

fn hash(game: &Game) -> u64 {
    let mut hasher = StateHasher::new(ID);
    game.hash(&mut hasher);
    hasher.finish()
}

/// Each player toggles one of 12 buttons in one frame of ten.
fn rows(seats: u16, ticks: u32, seed: u64) -> Vec<Row> {
    let mut generator = Seed::from_number(seed).generator(0);
    let mut row = Row::initial(seats, Pad::WIDTH, &[0, 0]);
    let mut pads = vec![0_u64; seats.into()];
    let mut rows = Vec::new();
    for _ in 0..ticks {
        for (seat, pad) in (0..).map(Seat).zip(&mut pads) {
            if generator.chance(100_000) {
                *pad ^= 1 << generator.below(12);
            }
            let mut bits = Vec::new();
            BitWriter::new(&mut bits).bits(*pad, 12);
            row.set(seat, &bits, Origin::Confirmed);
        }
        rows.push(row.clone());
    }
    rows
}

/// Like `rows`, with some inputs of other origins.
fn mixed_rows(seats: u16, ticks: u32, seed: u64) -> Vec<Row> {
    let mut generator = Seed::from_number(seed).generator(1);
    let mut rows = rows(seats, ticks, seed);
    for origin in rows.iter_mut().flat_map(|row| &mut row.origins) {
        if generator.chance(50_000) {
            *origin = any_origin(&mut generator);
        }
    }
    rows
}

fn any_origin(generator: &mut Generator) -> Origin {
    Origin::from_code(u8::try_from(generator.below(4)).unwrap())
}

fn config(seats: u16, hash_interval: u8, keyframe_interval: u32) -> ReplayConfig {
    let mut config = ReplayConfig::new(ID, seats);
    config.hash_interval = hash_interval;
    config.keyframe_interval = keyframe_interval;
    config
}

/// Plays and records `rows`, with a seal before each tick of `seals` and without an end.
fn recording(
    config: ReplayConfig,
    rows: &[Row],
    seals: &[u32],
) -> (ReplayWriter<Pad>, Game, Vec<u8>) {
    let (mut file, mut game) = (Vec::new(), Game::default());
    let mut writer = ReplayWriter::<Pad>::new(config, &mut file).unwrap();
    for (tick, row) in (0..).map(Tick).zip(rows) {
        if writer.needs_keyframe() {
            let mut snapshot = State::default();
            game.save(&mut snapshot);
            writer.keyframe(&snapshot, &mut file).unwrap();
        }
        if seals.contains(&tick.0) {
            writer.seal(&[0x5e; 9], &mut file).unwrap();
        }
        let turn = Turn::new(tick, row);
        game.step(&turn);
        writer.turn(&turn, || hash(&game), &mut file).unwrap();
    }
    (writer, game, file)
}

fn file(config: ReplayConfig, rows: &[Row]) -> Vec<u8> {
    let (writer, _, mut file) = recording(config, rows, &[]);
    writer.finish(&mut file);
    file
}

fn open(bytes: &[u8]) -> ReplayReader<'_> {
    ReplayReader::open(bytes, &ReplayLimits::default()).unwrap()
}

fn player<'a>(replay: &'a ReplayReader<'a>) -> ReplayPlayer<'a, Game> {
    ReplayPlayer::new(replay, Game::default()).unwrap()
}
