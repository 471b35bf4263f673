//! The wire format of a hosted match, frozen in `testdata/hosted.hex`: written and read bytes
//! agree.

use super::*;
use crate::input::Width;
use crate::message::Ticks;
use proptest::prelude::*;

const FROZEN: &str = include_str!("../../../testdata/hosted.hex");

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
fn written(message: &HostedMessage<'_>, seats: u16) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        HostedMessage::Presence(presence) => write_presence(&mut out, *presence),
        HostedMessage::Leave => write_hosted_leave(&mut out),
        HostedMessage::Statement { epoch, statement } => {
            write_hosted_statement(&mut out, *epoch, statement, seats);
        }
        HostedMessage::Decision { epoch, decision } => {
            write_hosted_decision(&mut out, *epoch, decision, seats);
        }
        HostedMessage::Ask { first } => write_hosted_ask(&mut out, *first),
        HostedMessage::Forward { first, bundles } => {
            write_hosted_forward_head(&mut out, *first);
            assert_eq!(out.len(), FORWARD_HEAD_LEN);
            bundles.iter().for_each(|bundle| out.extend(bundle));
        }
    }
    out
}

/// Ticks of seats 0 and 3.
fn ticks() -> Ticks {
    let mut ticks = Ticks::default();
    (ticks[0], ticks[3]) = (Tick(300), Tick(70_000));
    ticks
}

#[test]
fn hosted_vectors_are_unchanged() {
    let (members, next, leaving) = (0x0e, 0x06, 0x08);
    let meanings = [
        (
            "presence",
            HostedMessage::Presence(Presence {
                epoch: 0,
                members: 0x0f,
                host_suspected: false,
            }),
        ),
        (
            "presence_doubt",
            HostedMessage::Presence(Presence {
                epoch: 2,
                members: 6,
                host_suspected: true,
            }),
        ),
        ("leave", HostedMessage::Leave),
        (
            "statement",
            HostedMessage::Statement {
                epoch: 1,
                statement: Statement {
                    members,
                    suspects: 8,
                    leaving,
                    held: ticks(),
                },
            },
        ),
        (
            "decision",
            HostedMessage::Decision {
                epoch: 2,
                decision: Decision {
                    members,
                    next,
                    leaving,
                    cuts: ticks(),
                },
            },
        ),
        (
            "ask",
            HostedMessage::Ask {
                first: Tick(70_000),
            },
        ),
    ];
    for (name, message) in &meanings {
        let bytes = vector(name);
        assert_eq!(decode_hosted(&bytes, SHAPE).as_ref(), Ok(message), "{name}");
        assert_eq!(written(message, 4), bytes, "{name}");
    }
    let bytes = vector("forward");
    let Ok(HostedMessage::Forward { first, bundles }) = decode_hosted(&bytes, SHAPE) else {
        panic!("no forward: {:?}", decode_hosted(&bytes, SHAPE));
    };
    let lens: Vec<_> = bundles.iter().map(<[u8]>::len).collect();
    assert_eq!((first, lens), (Tick(300), vec![1, 2, 1]));
}

#[test]
fn invalid_hosted_messages_are_refused() {
    for name in [
        "presence",
        "presence_doubt",
        "leave",
        "statement",
        "decision",
        "ask",
    ] {
        let mut bytes = vector(name);
        for len in 0..bytes.len() {
            assert!(decode_hosted(&bytes[..len], SHAPE).is_err(), "{name} {len}");
        }
        bytes.push(0);
        assert!(decode_hosted(&bytes, SHAPE).is_err(), "{name}");
    }
    // Version; epoch; no members; a seat that is no member; doubt flag.
    for (at, value) in [(1, 3), (2, 16), (4, 0), (3, 1), (5, 2)] {
        let mut bytes = vector("presence");
        bytes[at] = value;
        assert!(decode_hosted(&bytes, SHAPE).is_err(), "{at} {value}");
    }
    // Epoch; suspects that are no members; all members suspected.
    for (at, value) in [(1, 16), (5, 1), (5, 0x0e)] {
        let mut bytes = vector("statement");
        bytes[at] = value;
        assert!(decode_hosted(&bytes, SHAPE).is_err(), "{at} {value}");
    }
    let error = decode_hosted(&[0x56], SHAPE);
    assert_eq!(error, Err(DecodeError::UnknownKind(0x56)));
    let error = decode_hosted(&[0x82, 0, 0, 0, 0, 0], SHAPE);
    assert_eq!(error, Err(DecodeError::UnknownKind(0x82)));
}

proptest! {
    #[test]
    fn ls_10_hosted_bytes_are_refused_or_the_one_encoding(
        kind in 0x4f_u8..0x57,
        rest in proptest::collection::vec(any::<u8>(), 0..40),
        seats in 2_u16..=16,
    ) {
        let shape = Shape { seats, ..SHAPE };
        let bytes = [&[kind], &rest[..]].concat();
        if let Ok(message) = decode_hosted(&bytes, shape) {
            prop_assert_eq!(written(&message, seats), bytes);
        }
    }
}
