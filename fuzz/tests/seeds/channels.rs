//! Corpus of mesh peers, state channels, spectator relays and TCP drivers.

use crate::Input;
use crate::matches::{piece, vector};

pub(crate) fn all() -> Vec<Input> {
    [meshes(), hosted(), states(), fans(), records()].concat()
}

fn meshes() -> Vec<Input> {
    let mesh = include_str!("../../../crates/lockstep/testdata/mesh.hex");
    let names = [
        "hello_first",
        "hello_late",
        "hello_commits",
        "committed",
        "play",
        "leave",
        "statement",
        "decision",
        "ask",
        "forward",
    ];
    // Four seats, 16 bits.
    let input = |name| [vec![2, 0, 15], vector(mesh, name)].concat();
    let inputs = names.map(|name| ("lockstep_mesh", name, input(name)));
    inputs.into()
}

fn hosted() -> Vec<Input> {
    let hosted = include_str!("../../../crates/lockstep/testdata/hosted.hex");
    let names = [
        "presence",
        "presence_doubt",
        "leave",
        "statement",
        "decision",
        "ask",
        "forward",
    ];
    let input = |name| [vec![2, 0, 15], vector(hosted, name)].concat();
    let inputs = names.map(|name| ("lockstep_hosted", name, input(name)));
    inputs.into()
}

/// Transfers with losses, with forged parts, and with forged acknowledgements.
fn states() -> Vec<Input> {
    let state = include_str!("../../../crates/lockstep/testdata/state.hex");
    // A short state replaces one of ten parts; some of these are lost, and later all arrive.
    let round = [0x24, 0x0e, 0x24, 0x0f, 0x78];
    let wait = [0xf8, 0xf8, 0xf8, 0xf8, 0xf8];
    let loses = [
        &[0x09, 20, 0x19, 200][..],
        &round.repeat(4),
        &[&wait[..], &round].concat().repeat(6),
        &[0x09, 9],
        &round,
    ]
    .concat();
    let part = |index: u8, count: u8, total: u8| {
        let mut head = vector(state, "fragment");
        head.truncate(11);
        (head[8], head[9], head[10]) = (total, count - 1, index);
        head
    };
    let mut huge = part(0, 3, 8);
    huge[7] = 0x10;
    let forged = [
        part(2, 3, 8),
        part(0, 3, 8),
        part(0, 2, 8),
        huge,
        part(1, 3, 8),
    ];
    let forged = forged.map(|part| piece(2, &part)).concat();
    // Two parts are in flight; a third part was not sent, nor was another state.
    let acks = [
        &[0x09, 150, 0x14][..],
        &piece(3, &[0xc2, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]),
        &piece(3, &vector(state, "ack")),
        &[0x78, 0x14],
    ]
    .concat();
    vec![
        ("lockstep_state", "loses", loses),
        ("lockstep_state", "forged_parts", forged),
        ("lockstep_state", "forged_ack", acks),
    ]
}

/// A spectator relay with children, one which is kicked, and one with a match that is too large.
fn fans() -> Vec<Input> {
    // 60 Hz, delay 6 to 6, repair 4, a hash each tick.
    let fields = [&[0, 0xfe, 0x50, 0x2a, 6, 6, 4, 1][..], &[7; 16]].concat();
    let welcome = piece(1, &fields);
    // Four ticks of two seats without changes.
    let turns = |first: u8| piece(2, &[0, 0, 0x80, 0, first, 0x30, 0x30, 0x30, 0x30]);
    let ready = [1, 2, 0, 0, 0, 0];
    // No gap, no lag, no hash, no input: the first missing tick.
    let report = [2, 0, 0, 4];
    let serves = [
        piece(5, &[]),
        piece(5 + 8, &[]),
        piece(3, &ready),
        welcome.clone(),
        piece(3, &ready),
        piece(3 + 8, &ready),
        turns(0),
        piece(6, &[0, 50]),
        piece(3, &report),
        piece(5 + 0x80 + 8, &[]),
        turns(4),
        piece(6, &[0, 200]),
        piece(3, &[3, 0]),
        piece(5, &[]),
    ];
    let kick = [welcome, turns(0), piece(0, &[0x84, 2])];
    let mut large = vec![0x81, 2, 0, 0, 200, 0xff, 0xff, 0, 16];
    large.extend_from_slice(&fields);
    vec![
        ("lockstep_fan", "serves", serves.concat()),
        ("lockstep_fan", "is_put_out", kick.concat()),
        ("lockstep_fan", "a_match_too_large", piece(0, &large)),
    ]
}

fn records() -> Vec<Input> {
    let record = |len: u8| [&[0, 0, 0, len][..], &vec![len; len.into()]].concat();
    let three = [record(3), record(0), record(39)].concat();
    let long = [record(1), record(41), record(2)].concat();
    vec![
        ("tcp_record", "three", [vec![4, 0], three].concat()),
        (
            "tcp_record",
            "too_long",
            [vec![9, 0], long.clone()].concat(),
        ),
        ("tcp_record", "longer_later", [vec![0, 1], long].concat()),
    ]
}
