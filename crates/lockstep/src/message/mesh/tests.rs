//! The wire format of a mesh, frozen in `testdata/mesh.hex`: written and read bytes agree.

use super::SeatBundles;
use super::*;
use crate::input::Width;
use proptest::prelude::*;

const FROZEN: &str = include_str!("../../../testdata/mesh.hex");

const SHAPE: Shape = Shape {
    seats: 4,
    width: Width::bits::<16>(),
};

fn vector(name: &str) -> Vec<u8> {
    let line = FROZEN
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once('='))
        .find(|(key, _)| key.trim() == name);
    let (_, hex) = line.unwrap_or_else(|| panic!("no vector {name}"));
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::try_from((pair[0] << 4) | pair[1]).unwrap())
        .collect()
}

/// Encodes a message.
fn written(message: &MeshMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        MeshMessage::Hello(hello) => write_hello(&mut out, hello),
        MeshMessage::Play(play) => {
            let first = u32::from(play.hashes.first_low);
            let count = u32::try_from(play.hashes.iter().count()).unwrap();
            let steps = first..first.saturating_add(count);
            write_play_head(&mut out, &play.head, &steps, play.hashes.iter());
            play.bundles.iter().for_each(|bundle| out.extend(bundle));
        }
        MeshMessage::Committed(commitment, play) => {
            let count = commitment.salts().count().try_into().unwrap();
            write_committed_head(&mut out, commitment.end_low, &commitment.head, count);
            commitment.salts().for_each(|salt| out.extend(salt));
            out.extend(written(&MeshMessage::Play(*play)));
        }
        MeshMessage::Leave => write_mesh_leave(&mut out),
        MeshMessage::Statement(statement) => write_statement(&mut out, statement, SHAPE.seats),
        MeshMessage::Decision(decision) => write_decision(&mut out, decision, SHAPE.seats),
        MeshMessage::Ask { seat, first } => write_ask(&mut out, *seat, *first),
        MeshMessage::Forward {
            seat,
            first,
            bundles,
        } => {
            write_forward_head(&mut out, *seat, *first);
            bundles.iter().for_each(|bundle| out.extend(bundle));
        }
    }
    out
}

fn ticks(ticks: [u32; 4]) -> Ticks {
    let mut all = Ticks::default();
    for (all, tick) in all.iter_mut().zip(ticks) {
        *all = Tick(tick);
    }
    all
}

#[track_caller]
fn assert_means(name: &str, message: &MeshMessage<'_>) {
    let bytes = vector(name);
    assert_eq!(decode_mesh(&bytes, SHAPE).as_ref(), Ok(message), "{name}");
    assert_eq!(written(message), bytes, "{name}");
}

#[test]
fn mesh_vectors_are_unchanged() {
    let hello = Hello {
        parameters: MatchParameters {
            seats: 4,
            width: 16,
            period_nanos: 16_666_666,
            hash_interval: 1,
            commits: false,
            match_id: MatchId([0x5a; 16]),
            content: 7,
        },
        seat: 2,
        delay: 6,
        received: 0b0110,
        sent: 1_000,
        echo: 0,
        held: None,
        starts_in: None,
    };
    assert_means("hello_first", &MeshMessage::Hello(hello));
    let mut commits = hello;
    commits.parameters.commits = true;
    assert_means("hello_commits", &MeshMessage::Hello(commits));
    let hello = Hello {
        received: 0b1111,
        echo: 900,
        held: Some(50),
        starts_in: Some(-2),
        ..hello
    };
    assert_means("hello_late", &MeshMessage::Hello(hello));
    assert_means("leave", &MeshMessage::Leave);
    let statement = Statement {
        members: 0b1111,
        suspects: 0b1000,
        leaving: 0,
        held: ticks([0, 0, 0, 300]),
    };
    assert_means("statement", &MeshMessage::Statement(statement));
    let decision = Decision {
        members: 0b0111,
        next: 0b0101,
        leaving: 0b0010,
        cuts: ticks([0, 77, 0, 300]),
    };
    assert_means("decision", &MeshMessage::Decision(decision));
    let first = Tick(70_000);
    assert_means("ask", &MeshMessage::Ask { seat: 3, first });
}

#[test]
fn mesh_play_vectors_are_unchanged() {
    let bytes = vector("play");
    let Ok(MeshMessage::Play(play)) = decode_mesh(&bytes, SHAPE) else {
        panic!("no play");
    };
    let head = PlayHead {
        is_gap: true,
        next_low: 0x0102,
        clock: 0x03_0405,
        lead: -96,
        wanted_low: Some(9),
        first_low: 0x0100,
    };
    assert_eq!(play.head, head);
    assert_eq!(play.hashes.first_low, 8);
    assert!(play.hashes.iter().eq([0xdead_beef, 1]));
    let bundles: Vec<_> = play.bundles.iter().collect();
    assert_eq!(bundles, [[QUIET].as_slice(), &[0b0100_0011], &[QUIET]]);
    assert_eq!(
        (play.bundles.len(), play.bundles.last()),
        (3, [QUIET].as_slice())
    );
    assert_eq!(written(&MeshMessage::Play(play)), bytes);
    let bytes = vector("forward");
    let Ok(MeshMessage::Forward {
        seat: 3,
        first: Tick(300),
        bundles,
    }) = decode_mesh(&bytes, SHAPE)
    else {
        panic!("no forward");
    };
    assert_eq!(bundles.len(), 2);
    let none = SeatBundles::check(&[], SHAPE).unwrap();
    assert!(none.is_empty() && none.last().is_empty());
}

#[test]
fn mesh_committed_vectors_are_unchanged() {
    let bytes = vector("committed");
    let message = decode_mesh(&bytes, SHAPE).unwrap();
    let MeshMessage::Committed(commitment, play) = message else {
        panic!("no commitment");
    };
    assert_eq!(commitment.end_low, 260);
    assert_eq!(
        u128::from_be_bytes(commitment.head),
        0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f
    );
    assert!(commitment.salts().eq([[0x11; 8], [0x22; 8]]));
    assert_eq!((play.head.first_low, play.bundles.len()), (0x0100, 2));
    assert_eq!(written(&message), bytes);
}

#[test]
fn invalid_mesh_messages_are_refused() {
    let refused = |bytes: &[u8], why: &str| {
        let decoded = decode_mesh(bytes, SHAPE);
        assert!(decoded.is_err(), "{why}: {decoded:?}");
    };
    let changed = |name: &str, at: usize, value: u8| {
        let mut bytes = vector(name);
        bytes[at] = value;
        bytes
    };
    refused(&[], "nothing");
    refused(&[0x48], "reserved");
    assert_eq!(
        decode_mesh(&changed("hello_first", 1, 9), SHAPE),
        Err(DecodeError::Version(9))
    );
    refused(&changed("hello_first", 3, 4), "a seat past the last");
    refused(&changed("hello_first", 36, 61), "a delay past the longest");
    refused(&changed("hello_first", 46, 1), "an echo that never came");
    refused(
        &changed("hello_first", 11, 2),
        "neither with commitments nor without",
    );
    refused(&changed("committed", 20, 1), "one salt for two bundles");
    refused(&changed("committed", 20, 3), "three salts for two bundles");
    refused(
        &changed("committed", 37, 0x42),
        "a commitment in front of a leave",
    );
    refused(&changed("play", 1, 0xe2), "a reserved flag");
    refused(&changed("play", 1, 0xd1), "17 hashes");
    refused(&changed("statement", 4, 0x10), "a suspect who is no member");
    refused(&changed("statement", 4, 0x0f), "everybody is suspected");
    refused(&changed("statement", 2, 0x1f), "a member past the last");
    refused(
        &changed("statement", 6, 0x10),
        "one goes who is past the last",
    );
    refused(&changed("decision", 4, 0x07), "nobody leaves");
    refused(&changed("decision", 4, 0x0d), "one stays who did not play");
    refused(&changed("decision", 4, 0), "nobody stays");
    refused(&changed("ask", 1, 4), "a seat past the last");
    for name in ["hello_late", "statement", "decision", "ask", "leave"] {
        let mut bytes = vector(name);
        bytes.push(0);
        refused(&bytes, "longer");
        refused(&bytes[..bytes.len() - 2], "shorter");
    }
}

proptest! {
    #[test]
    fn any_bytes_of_a_mesh_are_their_own_encoding_or_refused(kind in 0x40_u8..0x49, tail in prop::collection::vec(prop_oneof![0_u8..16, any::<u8>()], 0..70)) {
        let mut bytes = vec![kind];
        bytes.extend(tail);
        if let Ok(message) = decode_mesh(&bytes, SHAPE) {
            prop_assert_eq!(written(&message), bytes);
        }
    }

    #[test]
    fn any_statement_and_decision_is_decoded_as_encoded(members: u16, other: u16, leaving: u16, held: [u32; 4]) {
        let (members, leaving) = (members & 15, leaving & 15);
        let part = other & members;
        prop_assume!(part != members);
        let kept = |staying: Seats| {
            let mut kept = ticks(held);
            for (tick, seat) in kept.iter_mut().zip(0..) {
                if staying & bit(seat) != 0 {
                    *tick = Tick(0);
                }
            }
            kept
        };
        let statement = MeshMessage::Statement(Statement {
            members,
            suspects: part,
            leaving,
            held: kept(members & !part),
        });
        let bytes = written(&statement);
        prop_assert_eq!(decode_mesh(&bytes, SHAPE), Ok(statement));
        prop_assume!(part != 0);
        let decision = MeshMessage::Decision(Decision {
            members,
            next: part,
            leaving,
            cuts: kept(part),
        });
        let bytes = written(&decision);
        prop_assert_eq!(decode_mesh(&bytes, SHAPE), Ok(decision));
    }
}
