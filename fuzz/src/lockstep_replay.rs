//! Replay files.

use lockstep::bits::{BitReader, BitWriter};
use lockstep::replay::{
    Ending, ReplayConfig, ReplayError, ReplayLimits, ReplayPlayer, ReplayReader, ReplayWriter,
    first_difference,
};
use lockstep::{Input, Sim, StateHasher, Tick, Turn, Width};
use wire::MatchId;

/// Opens `data` as a file, and the file that `forged` makes of it. An accepted file uses bounded
/// memory, plays to its end, gives equal states from every tick, and can be recorded again with
/// equal inputs. A damaged file opens up to the damage.
pub fn file(data: &[u8]) {
    read(data);
    read(&forged(data));
}

fn read(bytes: &[u8]) -> Option<Ending> {
    let replay = match ReplayReader::open(bytes, &ReplayLimits::default()) {
        Ok(replay) => replay,
        Err(ReplayError::Damaged { offset, ticks, .. }) => {
            let before = bytes.get(..offset).expect("it lies in the file");
            let replay = ReplayReader::open(before, &ReplayLimits::default())
                .expect("what is before the damage opens");
            assert!(replay.ticks() <= ticks);
            assert_eq!(replay.ending(), Ending::Cut { unchecked: 0 });
            return None;
        }
        Err(_) => return None,
    };
    let keyframes = replay.keyframes().count();
    let held = replay.memory_len();
    assert!(held <= 16 * 1_024 + 2 * 16 * keyframes, "{held} bytes");
    assert_eq!(first_difference(&replay, &replay), None);
    let Some(mut player) = ReplayPlayer::new(&replay, Game::default()) else {
        return Some(replay.ending());
    };
    let mut states = vec![player.sim().0];
    let (mut again, mut config) = (Vec::new(), ReplayConfig::new(MatchId([0; 16]), 1));
    let header = replay.header();
    config.match_id = header.match_id;
    config.seats = header.shape.seats;
    config.game.clone_from(&header.game);
    config.seed.clone_from(&header.seed);
    let mut writer = ReplayWriter::new(config, &mut again).expect("a header that was read");
    while let Some(turn) = player.step() {
        writer.turn(&turn, || 0, &mut again).expect("in order");
        states.push(player.sim().0);
    }
    assert_eq!(u32::try_from(states.len()), Ok(replay.ticks() + 1));
    let head = writer.finish(&mut again);
    let recorded = ReplayReader::open(&again, &ReplayLimits::default()).expect("as it was written");
    assert_eq!(recorded.ending(), Ending::Complete);
    // A different tick rate makes it a different match.
    if recorded.header().period_nanos == header.period_nanos {
        assert_eq!(replay.head(), head);
    }
    let ticks = (0..=replay.ticks()).map(Tick).rev();
    for (tick, state) in ticks.zip(states.iter().rev()) {
        // This game's snapshots are its states; a foreign file's keyframes are arbitrary. If the
        // file has keyframes, only the tick after a successful seek is checked.
        if keyframes == 0 {
            player.seek(tick).expect("it is there");
            assert_eq!((player.next(), player.sim().0), (tick, *state));
        } else if player.seek(tick).is_ok() {
            assert_eq!(player.next(), tick);
        }
    }
    player.verify().ok();
    Some(replay.ending())
}

/// Creates a file with valid checksums: one byte each for seats, hash interval and keyframe
/// interval, then records of `kind 1, length 1, body`.
fn forged(data: &[u8]) -> Vec<u8> {
    let Some(([seats, hashes, keyframes], mut data)) = data.split_first_chunk() else {
        return Vec::new();
    };
    let mut file = b"TWRP\x01".to_vec();
    file.extend([7; 16]);
    file.extend([0, *seats, 0, 12, 0, 0xfe, 0x50, 0x2a, 0, 0, 0, 0]);
    file.extend([hashes % 20, 0, 0, 0, keyframes % 20]);
    let mut checksum = crc32c::crc32c(&file);
    file.extend(checksum.to_be_bytes());
    while let Some(([kind, len], rest)) = data.split_first_chunk() {
        let (body, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        data = behind;
        let [_, low] = u16::try_from(body.len()).expect("below 256").to_be_bytes();
        let head = [*kind, 0, 0, low, !(kind ^ low)];
        let record = [&head[..], body].concat();
        checksum = crc32c::crc32c_append(checksum, &record);
        file.extend(record);
        file.extend(checksum.to_be_bytes());
    }
    file
}

/// Twelve buttons, as in the format's test vector.
#[derive(Default)]
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

#[derive(Default)]
struct Game(u64);

impl Sim for Game {
    type Input = Pad;
    type Snapshot = Vec<u8>;

    fn step(&mut self, turn: &Turn<'_, Pad>) {
        let mut hasher = StateHasher::new(MatchId([0; 16]));
        hasher.u64(self.0);
        for (_, pad, origin) in turn.inputs() {
            hasher.u32(pad.0.into());
            hasher.u8(origin.code());
        }
        self.0 = hasher.finish();
    }

    fn save(&self, into: &mut Vec<u8>) {
        into.clear();
        into.extend(self.0.to_be_bytes());
    }

    fn load(&mut self, from: &Vec<u8>) {
        self.0 = from.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    }

    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u64(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_the_end_keyframes_and_cuts() {
        let file = include_bytes!("../corpus/lockstep_replay/seed_five_ticks");
        assert_eq!(read(file), Some(Ending::Complete));
        let script = include_bytes!("../corpus/lockstep_replay/seed_all_kinds");
        let cut = Ending::Cut { unchecked: 0 };
        assert_eq!(read(&forged(script)), Some(cut));
        let file = forged(script);
        let replay = ReplayReader::open(&file, &ReplayLimits::default()).unwrap();
        assert_eq!((replay.ticks(), replay.keyframes().count()), (6, 1));
        assert_eq!(replay.seals().count(), 1);
    }
}
