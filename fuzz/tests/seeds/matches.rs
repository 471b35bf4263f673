//! Corpus of lockstep players, game servers and matchmakers.

use core::time::Duration;

use crypto::AddressList;
use crypto::client_grant::ServerKeys;
use fuzz::crypto_token::key;
use fuzz::matchmaker_calls::{APP, identity};
use matchmaker_core::Seated;
use matchmaker_core::record::{
    Assign, Intake, RefuseReason, Register, Reply, Verdict, encode_bye, encode_heartbeat,
    encode_left, encode_result,
};
use wire::{ClientId, InstanceId, MatchId, Seat, Team};

use crate::Input;

/// Returns the bytes of a frozen test vector of lockstep.
pub(crate) fn vector(file: &str, name: &str) -> Vec<u8> {
    let mut lines = file.lines().filter_map(|line| line.split_once(" = "));
    let (_, hex) = lines.find(|(key, _)| *key == name).unwrap();
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

pub(crate) fn datagrams() -> Vec<Input> {
    let up = include_str!("../../../crates/lockstep/testdata/up.hex");
    let down = include_str!("../../../crates/lockstep/testdata/down.hex");
    let mut inputs = Vec::new();
    for name in [
        "ready",
        "leave",
        "report_bare",
        "report_full",
        "answer_ticks",
        "answer_sections",
        "answer_heard",
    ] {
        inputs.push((
            "lockstep_up",
            name,
            [vec![0, 15], vector(up, name)].concat(),
        ));
    }
    let stick = [vec![0, 31], vector(up, "report_stick")].concat();
    inputs.push(("lockstep_up", "report_stick", stick));
    for name in [
        "welcome",
        "turns",
        "turns_asking",
        "stretched",
        "bye",
        "question_ticks",
        "question_sections",
        "question_diverged",
    ] {
        let datagram = [vec![0, 2, 0, 15], vector(down, name)].concat();
        inputs.push(("lockstep_down", name, datagram));
    }
    inputs
}

/// A transfer with losses, one with forged chunks, and one with forged acknowledgements.
pub(crate) fn snapshots() -> Vec<Input> {
    let up = include_str!("../../../crates/lockstep/testdata/up.hex");
    let down = include_str!("../../../crates/lockstep/testdata/down.hex");
    // 32 chunks: bursts with losses, 60 ms, an acknowledgement, repeated until all have arrived.
    let round = [0x24, 0x0e, 0x24, 0x80, 0x0f, 0x80];
    let loses = [&[7, 40][..], &round.repeat(6)].concat();
    let chunk = piece(2, &vector(down, "chunk"));
    let mut first = vector(down, "chunk");
    // Its first chunk, whose bytes the function fills in, then one of a later transfer, and a huge
    // one.
    first[11] = 0;
    first.truncate(16);
    let mut later = first.clone();
    later[1] = 8;
    let mut huge = later.clone();
    huge[2] = 0xff;
    let forged = [&[7, 4][..], &chunk, &piece(2, &huge), &piece(2, &first)].concat();
    let forged = [&forged[..], &piece(2, &later), &[0x38, 0x0f]].concat();
    let ack = piece(3, &vector(up, "chunk_ack"));
    let acked = [
        &[7, 9][..],
        &[0x54],
        &ack,
        &[0x54, 0x78],
        &ack,
        &[0x54, 0x0f],
    ]
    .concat();
    vec![
        ("snapshot_chunk", "loses", loses),
        ("snapshot_chunk", "forged_chunks", forged),
        ("snapshot_chunk", "forged_ack", acked),
    ]
}

/// Returns a piece of a script.
pub(crate) fn piece(op: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u8::try_from(bytes.len()).unwrap();
    [&[op, len], bytes].concat()
}

/// Returns a welcome in the script format of `lockstep_client`.
fn welcome(period_nanos: u32) -> Vec<u8> {
    let rest = [&[6, 6, 4, 1][..], &[7; 16]].concat();
    piece(2, &[&period_nanos.to_be_bytes()[..], &rest].concat())
}

/// Returns four ticks of three seats without changes, from the first tick.
fn four_turns() -> Vec<u8> {
    piece(3, &[0, 0, 0x80, 0, 0, 0x10, 0x10, 0x10, 0x10])
}

pub(crate) fn clients() -> Vec<Input> {
    let plays = [
        welcome(16_666_666),
        welcome(16_666_666),
        four_turns(),
        piece(5, &[]),
        piece(6, &[3]),
        piece(4, &[2, 0]),
        // Four more, for a game that has advanced in the meantime: seat 0 is no longer absent.
        piece(5, &[]),
        piece(3, &[0, 0, 0x80, 0, 4, 0x71, 0x80, 0x10, 0x10, 0x10]),
        piece(5, &[]),
        piece(7, &[0x84, 0]),
    ];
    let script = |period: u32| [welcome(period), four_turns()].concat();
    let left = [welcome(16_666_666), four_turns(), piece(255, &[])];
    let kick = [welcome(16_666_666), piece(0, &[0x84, 2])];
    vec![
        ("lockstep_client", "plays", plays.concat()),
        ("lockstep_client", "a_tick_of_1_ms", script(1_000_000)),
        ("lockstep_client", "a_tick_of_1_s", script(1_000_000_000)),
        ("lockstep_client", "a_tick_of_1_ns", script(1)),
        ("lockstep_client", "leaves", left.concat()),
        ("lockstep_client", "is_put_out", kick.concat()),
    ]
}

pub(crate) fn servers() -> Vec<Input> {
    // No gap, no lag, no hash; one fresh input 64 ticks ahead, unchanged.
    let early = piece(3, &[0x68, 0x08, 0x34]);
    // No gap, no lag; one hash, of the newest step; no input. Then the time advances by a tick.
    let lie = [
        piece(3, &[0x54, 0x04, 0x8d, 0x15, 0x9e]),
        piece(4, &[0, 17]),
    ];
    let cut_off = [
        piece(7, &[0xff; 8]),
        piece(4, &[1, 200]),
        piece(7, &[0xaa; 8]),
        piece(4, &[1, 200]),
    ];
    let left = [piece(6, &[]), piece(0, &[1, 2, 0, 0, 0, 0])];
    let quit = [piece(4, &[0, 100]), piece(0, &[3, 0]), piece(5, &[3, 0])];
    vec![
        ("lockstep_server", "presses_everything", early),
        (
            "lockstep_server",
            "lies_about_its_state",
            lie.concat().repeat(120),
        ),
        ("lockstep_server", "loses", cut_off.concat()),
        ("lockstep_server", "leaves", left.concat()),
        ("lockstep_server", "quits", quit.concat()),
    ]
}

pub(crate) fn replays() -> Vec<Input> {
    let file = include_str!("../../../crates/lockstep/testdata/replay.hex");
    // Two seats without changes, a hash every 2 ticks, a keyframe every 4: ticks, keyframe, seal,
    // ticks.
    let quiet = |ticks: usize| {
        [&[0x30; 1][..], &[0; 8], &[0x30]]
            .concat()
            .repeat(ticks / 2)
    };
    let all_kinds = [
        vec![2, 2, 4],
        piece(1, &quiet(4)),
        piece(2, &[0x30, 1, 2, 3]),
        piece(3, &[9; 5]),
        piece(1, &quiet(2)),
    ];
    vec![
        ("lockstep_replay", "five_ticks", vector(file, "five_ticks")),
        ("lockstep_replay", "all_kinds", all_kinds.concat()),
    ]
}

const MATCH: MatchId = MatchId([4; 16]);

fn register(node: u8) -> Vec<u8> {
    let identity = identity(node);
    let record = Register {
        app_id: APP,
        token_key: key(),
        capacity: 8,
        intake: Intake::Open,
        identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
        addresses: AddressList::new(&["192.0.2.1:4433".parse().unwrap()]).unwrap(),
        matches: Vec::new(),
    };
    record.encode().unwrap().to_vec()
}

fn said(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

pub(crate) fn matchmaker() -> Vec<Input> {
    let seated = |client, seat| Seated {
        client_id: ClientId(client),
        seat: Seat(seat),
        team: Team(u8::try_from(seat).unwrap()),
    };
    let assign = Assign {
        instance: InstanceId(5),
        match_id: MATCH,
        players: vec![seated(1, 0), seated(2, 1)],
    };
    let renewed = Reply::Renewed {
        lease: Duration::from_secs(30),
        heartbeat: Duration::from_secs(10),
        release: vec![MATCH, MatchId([5; 16])],
    };
    let refused = Reply::Refused(RefuseReason::OldKey);
    vec![
        (
            "matchmaker_assign",
            "two_players",
            said(|out| assign.encode(out)),
        ),
        (
            "matchmaker_reply",
            "renewed",
            said(|out| renewed.encode(out)),
        ),
        (
            "matchmaker_reply",
            "noted",
            said(|out| Reply::Noted.encode(out)),
        ),
        (
            "matchmaker_reply",
            "refused",
            said(|out| refused.encode(out)),
        ),
        (
            "matchmaker_verdict",
            "taken",
            said(|out| Verdict::Taken.encode(out)),
        ),
        (
            "matchmaker_verdict",
            "other_instance",
            said(|out| Verdict::OtherInstance.encode(out)),
        ),
        ("matchmaker_calls", "plays", plays()),
        ("matchmaker_calls", "fails", fails()),
    ]
}

/// Calls of node 1 in its first run.
const NODE_1: u8 = 8;

fn plays() -> Vec<u8> {
    let heartbeat = said(|out| encode_heartbeat(Intake::Open, [].into_iter(), out));
    let result = said(|out| encode_result(MATCH, b"3:1", out));
    let left = said(|out| encode_left(MATCH, ClientId(1), out));
    let pieces = [
        piece(NODE_1, &register(1)),
        piece(3, &[1]),
        piece(3, &[2]),
        // Completes the start of the pool's process, and the match.
        piece(5, &[]),
        piece(5, &[]),
        piece(NODE_1, &heartbeat),
        piece(NODE_1, &left),
        piece(NODE_1, &result),
        piece(3 * NODE_1, &heartbeat),
        piece(3, &[1]),
        piece(6, &[0]),
        piece(7, &[]),
        piece(NODE_1, &said(encode_bye)),
    ];
    pieces.concat()
}

fn fails() -> Vec<u8> {
    let full = said(|out| Verdict::Full.encode(out));
    let pieces = [
        piece(3, &[1]),
        piece(3, &[2]),
        piece(5, &[1]),
        piece(4, &[0xff, 0xff]),
        piece(2 * NODE_1, &register(2)),
        piece(64 + 2 * NODE_1, &register(2)),
        piece(5, &full),
        piece(5, &full),
        piece(4, &[0x80, 0]),
        piece(0, &register(0)),
        piece(5, &[9]),
    ];
    pieces.concat()
}
