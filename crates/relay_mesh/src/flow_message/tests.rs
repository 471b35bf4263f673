use super::*;
use proptest::prelude::*;

#[test]
fn each_type_byte_has_one_meaning() {
    use crate::message::code;
    let codes = [
        flow_code::OPEN,
        flow_code::OPENED,
        flow_code::CLOSE,
        flow_code::OPEN_TUNNEL,
        flow_code::GAME_EDGES,
        flow_code::OPEN_MANY,
        flow_code::DATAGRAM,
        flow_code::SESSION_DATAGRAM,
        flow_code::PATH_PROBE,
        flow_code::PATH_ECHO,
        flow_code::PATH_PADDING,
        code::HELLO,
        code::NODE_RECORD,
        code::LINK_RECORD,
        code::DIGEST,
        code::REQUEST,
        code::LINK_TERMS,
        code::KEY_EPOCH,
        code::LINK_DELTA,
        code::HAVE,
        code::GRAFT,
        code::PRUNE,
        code::PART,
        code::ROUTE_REQUEST,
        code::ROUTE_REPLY,
        code::ROUTE_RELEASE,
        code::CONFIG_VERSION,
        code::CONFIG_REQUEST,
        code::CONFIG,
        code::PROBE,
        code::ECHO,
        code::PASS_ON,
        code::PASSED_ON,
    ];
    let distinct: std::collections::BTreeSet<u8> = codes.into_iter().collect();
    assert_eq!(distinct.len(), codes.len());
}

#[test]
fn the_bytes_are_frozen() {
    let mut out = Vec::new();
    FlowMessage::Open {
        flow: FlowId(5),
        player: "192.0.2.1:258".parse().unwrap(),
        game: "doom".into(),
        mode: None,
    }
    .encode(&mut out);
    let expected = [
        0x28, 0, 0, 0, 0, 0, 0, 0, 5, 4, 192, 0, 2, 1, 1, 2, 4, b'd', b'o', b'o', b'm',
    ];
    assert_eq!(out, expected);
    for (byte, mode) in [
        (0x14, Mode::Single),
        (0x24, Mode::Shadow),
        (0x34, Mode::Dup),
    ] {
        out.clear();
        let open = FlowMessage::Open {
            flow: FlowId(5),
            player: "192.0.2.1:258".parse().unwrap(),
            game: "doom".into(),
            mode: Some(mode),
        };
        open.encode(&mut out);
        assert_eq!(out[9], byte);
        assert_eq!(FlowMessage::decode(&out), Ok(open));
    }
    out[9] = 0x44;
    assert_eq!(FlowMessage::decode(&out), Err(DecodeError::BadValue));
    for (byte, mode) in [(0, Mode::Single), (1, Mode::Shadow), (2, Mode::Dup)] {
        let flow = FlowId(5);
        out.clear();
        FlowMessage::OpenTunnel { flow, mode }.encode(&mut out);
        assert_eq!(out, [0x2B, 0, 0, 0, 0, 0, 0, 0, 5, byte]);
    }
    out.clear();
    FlowMessage::OpenMany {
        first: FlowId(5),
        game: "doom".into(),
        players: vec![
            "192.0.2.1:258".parse().unwrap(),
            "192.0.2.2:259".parse().unwrap(),
        ],
        mode: Some(Mode::Shadow),
    }
    .encode(&mut out);
    let expected = [
        0x2D, 0, 0, 0, 0, 0, 0, 0, 5, 0x24, 2, 4, b'd', b'o', b'o', b'm', 192, 0, 2, 1, 1, 2, 192,
        0, 2, 2, 1, 3,
    ];
    assert_eq!(out, expected);
}

#[test]
fn mesh_a1_numbers_of_flows_end_with_the_last_there_is() {
    let numbers = |first: u64| numbers_from(FlowId(first)).take(FLOWS_PER_OPEN_MAX).count();
    assert_eq!(numbers(1), FLOWS_PER_OPEN_MAX);
    assert_eq!([numbers(u64::MAX - 2), numbers(u64::MAX)], [2, 1]);
    let next = numbers_from(FlowId(5)).nth(1);
    assert_eq!(next, Some(FlowId(7)));
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_the_same(
        kind in 0x27_u8..0x2E,
        body in prop::collection::vec(any::<u8>(), 0..40),
        status in 0_u8..7,
        is_short: bool,
    ) {
        let mut bytes = vec![kind];
        bytes.extend(&body);
        if is_short {
            bytes.truncate(9);
            bytes.push(status);
        }
        if let Ok(message) = FlowMessage::decode(&bytes) {
            let mut out = Vec::new();
            message.encode(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn names_are_bounded(len in 0_usize..300) {
        let mut out = Vec::new();
        let message = FlowMessage::Open {
            flow: FlowId(1),
            player: "[::1]:9".parse().unwrap(),
            game: "x".repeat(len),
            mode: None,
        };
        message.encode(&mut out);
        let decoded = FlowMessage::decode(&out).unwrap();
        prop_assert_eq!(decoded == message, len <= GAME_NAME_MAX);
    }
}

proptest! {
    #[test]
    fn a_datagram_is_written_as_it_was_read(bytes in prop::collection::vec(any::<u8>(), 0..1_500), kind in 0x89_u8..0x8C) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let fits = (9..=9 + DATAGRAM_MAX).contains(&bytes.len());
        let read = FlowDatagram::decode(&bytes);
        prop_assert_eq!(read.is_ok(), fits && kind == flow_code::DATAGRAM);
        if let Ok(read) = read {
            let mut written = Vec::new();
            read.encode(&mut written);
            prop_assert_eq!(written, bytes);
        }
    }
}
