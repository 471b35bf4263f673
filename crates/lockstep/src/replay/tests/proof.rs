//! The chain of inputs, and the bytes of the format.

use sha2::{Digest, Sha256};

use super::*;
use crate::bundle;

#[test]
fn all_recordings_of_a_match_have_the_same_head() {
    let rows = mixed_rows(4, 120, 21);
    let (one, ..) = recording(config(4, 8, 0), &rows, &[]);
    let (other, ..) = recording(config(4, 3, 17), &rows, &[9, 100]);
    assert_eq!(one.head(), other.head());
    assert_eq!(one.head().ticks, 120);
    assert_eq!(one.head().to_bytes().len(), 48);
    assert!(one.head().to_bytes().starts_with(b"twrp head 1\0"));
}

#[test]
fn any_change_of_input_origin_or_match_changes_the_head() {
    let rows = mixed_rows(4, 60, 22);
    let head = |config: ReplayConfig, rows: &[Row]| recording(config, rows, &[]).0.head();
    let first = head(config(4, 8, 0), &rows);
    let mut heads = vec![first];
    for tick in [0, 30, 59] {
        let mut inputs = rows.clone();
        inputs[tick].values[3] ^= 0x40;
        let mut origins = rows.clone();
        let origin = &mut origins[tick].origins[1];
        *origin = Origin::from_code(origin.code() ^ 1);
        heads.extend([&inputs, &origins].map(|rows| head(config(4, 8, 0), rows)));
    }
    let changes: [fn(&mut ReplayConfig); 4] = [
        |config| config.match_id = MatchId([1; 16]),
        |config| config.game = vec![0],
        |config| config.seed = vec![0],
        |config| config.tick_rate = crate::tick::TickRate::new(30).unwrap(),
    ];
    for change in changes {
        let mut config = config(4, 8, 0);
        change(&mut config);
        heads.push(head(config, &rows));
    }
    heads.push(head(config(4, 8, 0), &rows[..59]));
    for (index, head) in heads.iter().enumerate() {
        assert!(!heads[..index].contains(head), "{index}");
    }
}

/// Reads `name = hex` lines of the vectors; `#` begins a comment.
fn vector(name: &str) -> Vec<u8> {
    let file = include_str!("../../../testdata/replay.hex");
    let line = file
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .find(|(key, _)| *key == name);
    let (_, hex) = line.unwrap_or_else(|| panic!("no vector {name}"));
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

/// `testdata/replay.hex`: two seats, five ticks, a hash each two, a keyframe and a seal at three.
#[test]
fn the_format_is_frozen() {
    let mut rows = vec![Row::initial(2, Pad::WIDTH, &[0, 0]); 5];
    for (row, held) in rows.iter_mut().zip([0, 0x10, 0x10, 0x30, 0x30]) {
        row.set(Seat(0), &[0x80, held], Origin::Confirmed);
    }
    let mut config = config(2, 2, 3);
    config.game = b"pad".to_vec();
    config.seed = b"\x07".to_vec();
    let (writer, game, mut file) = recording(config, &rows, &[3]);
    writer.finish(&mut file);
    assert_eq!(file, vector("five_ticks"), "{file:02x?}");
    let replay = open(&file);
    let mut player = player(&replay);
    assert_eq!(player.verify().map(|it| it.ticks), Ok(5));
    assert_eq!(player.sim().state, game.state);
    // The chain calculated from the documented parts.
    let match_part = &file[..31 + 3 + 1 + 2];
    let link = |before: &[u8], bundle: &[u8]| -> Vec<u8> {
        Sha256::digest([&[1], before, bundle].concat()).to_vec()
    };
    let mut head = Sha256::digest([&[0], match_part].concat()).to_vec();
    // Seat 0 arrives with a button pressed; presses one; holds; presses one; holds.
    for bundle in [&b"\x74\x08"[..], b"\x4b\x40", b"\x30", b"\x4a\x40", b"\x30"] {
        let at = bundle::check(bundle, replay.header().shape);
        assert_eq!(at, Ok(bundle.len()));
        head = link(&head, bundle);
    }
    assert_eq!(head, replay.head().digest);
}
