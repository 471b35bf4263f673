use super::*;
use crate::signed_config::fixture::node;

fn at(secs: u64) -> Instant {
    Instant::from_millis(1_000 * secs)
}

const fn of(version: u64) -> HeldVersion {
    HeldVersion { version, keys: 3 }
}

/// Accepts versions above this one.
fn above(version: u64) -> impl Fn(HeldVersion) -> bool {
    move |reported| reported.version > version
}

const fn request(version: u64, offset: u32) -> ConfigMessage<'static> {
    ConfigMessage::Request { version, offset }
}

/// Serves `bundle` from `from`; returns the received bytes and the number of pieces.
fn serve(spread: &mut Spread, from: NodeId, version: u64, bundle: &[u8]) -> (Vec<u8>, usize) {
    let mut offset = 0;
    for pieces in 1.. {
        let piece = Piece::cut(version, bundle, offset).unwrap();
        match spread.on_piece(at(0), from, piece) {
            PieceOutcome::More(ConfigMessage::Request {
                version: of,
                offset: next,
            }) => {
                assert_eq!(of, version);
                offset = next;
            }
            PieceOutcome::Whole(bytes) => return (bytes, pieces),
            other @ (PieceOutcome::More(_) | PieceOutcome::Dropped) => panic!("{other:?}"),
        }
    }
    unreachable!("it ends")
}

#[test]
fn pg14_what_is_newer_is_fetched_in_pieces_from_any_neighbour() {
    let mut spread = Spread::default();
    let bundle: Vec<u8> = (0..20_000_u32).map(|byte| byte.to_be_bytes()[3]).collect();
    for number in 1..4 {
        spread.on_version(at(0), node(number), of(5));
    }
    assert_eq!(spread.poll_request(at(0), above(5)), None, "nothing newer");
    assert_eq!(spread.poll_timeout(above(5)), None);
    assert_eq!(
        spread.poll_request(at(0), above(4)),
        Some((node(1), request(5, 0)))
    );
    assert_eq!(
        spread.poll_request(at(0), above(4)),
        None,
        "one transfer at a time"
    );
    let (bytes, pieces) = serve(&mut spread, node(1), 5, &bundle);
    assert_eq!(bytes, bundle);
    assert_eq!(pieces, 3);
    spread.on_judged(at(0), node(1), Judged::Accepted);
    assert_eq!(spread.poll_request(at(0), above(5)), None);
}

#[test]
fn pgx7_a_liar_with_the_highest_version_costs_a_bounded_retry() {
    let mut spread = Spread::default();
    let (byzantine, honest) = (node(1), node(2));
    spread.on_version(at(0), byzantine, of(u64::MAX));
    spread.on_version(at(0), honest, of(5));
    assert_eq!(
        spread.poll_request(at(0), above(4)),
        Some((byzantine, request(u64::MAX, 0)))
    );
    assert_eq!(spread.poll_timeout(above(4)), Some(at(5)));
    assert_eq!(spread.poll_request(at(4), above(4)), None);
    assert_eq!(
        spread.poll_request(at(5), above(4)),
        Some((honest, request(5, 0)))
    );
    serve(&mut spread, honest, 5, b"bundle");
    spread.on_judged(at(5), honest, Judged::Accepted);

    // From now on only this neighbour advertises more than is held. Reconnecting does not reset its
    // backoff.
    let mut asked = 0;
    for second in 5..(24 * 3_600) {
        spread.on_gone(byzantine);
        spread.on_version(at(second), byzantine, of(u64::MAX));
        if let Some((from, _)) = spread.poll_request(at(second), above(5)) {
            assert_eq!(from, byzantine);
            asked += 1;
            spread.on_judged(at(second), byzantine, Judged::Refused);
        }
    }
    // 30 s + 1 + 2 + 4 + 8 + 16 min, then 32 min each.
    assert!((45..=52).contains(&asked), "{asked} times in a day");
}

/// Refused each time: the document has expired, or this node's clock is wrong.
fn refuse(
    spread: &mut Spread,
    (from, to): (u64, u64),
    mut says: impl FnMut(u64) -> u64,
) -> Vec<u64> {
    let mut asked = Vec::new();
    for second in from..to {
        spread.on_version(at(second), node(1), of(says(second)));
        if spread.poll_request(at(second), above(8)).is_some() {
            asked.push(second);
            spread.on_judged(at(second), node(1), Judged::Refused);
        }
    }
    asked
}

#[test]
fn pgx7_a_version_above_the_one_refused_is_asked_for_after_half_a_minute() {
    let mut spread = Spread::default();
    let asked = refuse(&mut spread, (0, 7_200), |_| 9);
    let last = *asked.last().unwrap();
    assert!(asked.len() <= 9, "{asked:?}");
    assert_eq!(spread.poll_timeout(above(8)), Some(at(last + 32 * 60)));
    spread.on_version(at(last + 1), node(1), of(10));
    assert_eq!(spread.poll_timeout(above(8)), Some(at(last + 30)));
    assert_eq!(spread.poll_request(at(last + 29), above(8)), None);
    let asked = spread.poll_request(at(last + 30), above(8));
    assert_eq!(asked, Some((node(1), request(10, 0))));

    // A lying neighbour gains nothing from higher versions.
    let mut spread = Spread::default();
    let asked = refuse(&mut spread, (0, 86_400), |second| 9 + second);
    assert_eq!(asked.len(), 86_400 / 30);
    let mut spread = Spread::default();
    let asked = refuse(&mut spread, (0, 86_400), |second| 9 + second % 2);
    assert!(asked.len() <= 54, "{} times in a day", asked.len());
}

#[test]
fn a_slow_neighbour_has_a_minute_for_all() {
    let mut spread = Spread::default();
    let bundle = vec![7; BUNDLE_LEN_MAX];
    spread.on_version(at(0), node(1), of(5));
    spread.on_version(at(0), node(2), of(5));
    assert_eq!(spread.poll_request(at(0), above(4)).unwrap().0, node(1));
    let mut offset = 0;
    for second in (4..60).step_by(4) {
        let piece = Piece::cut(5, &bundle, offset).unwrap();
        let taken = spread.on_piece(at(second), node(1), piece);
        offset += 8_192;
        assert_eq!(taken, PieceOutcome::More(request(5, offset)));
        assert_eq!(spread.poll_request(at(second), above(4)), None);
    }
    assert_eq!(spread.poll_timeout(above(4)), Some(at(60)));
    assert_eq!(
        spread.poll_request(at(60), above(4)),
        Some((node(2), request(5, 0)))
    );
}

#[test]
fn unrequested_pieces_are_dropped() {
    let mut spread = Spread::default();
    let bundle = vec![7; 20_000];
    let first = Piece::cut(5, &bundle, 0).unwrap();
    assert_eq!(
        spread.on_piece(at(0), node(1), first),
        PieceOutcome::Dropped
    );
    spread.on_version(at(0), node(1), of(5));
    spread.poll_request(at(0), above(4)).unwrap();
    assert_eq!(
        spread.on_piece(at(0), node(2), first),
        PieceOutcome::Dropped
    );
    for wrong in [
        Piece {
            version: 6,
            ..first
        },
        Piece {
            offset: 8_192,
            ..first
        },
    ] {
        assert_eq!(
            spread.on_piece(at(0), node(1), wrong),
            PieceOutcome::Dropped
        );
    }
    assert_eq!(
        spread.on_piece(at(0), node(1), first),
        PieceOutcome::More(request(5, 8_192))
    );
    let longer = Piece {
        len: 30_000,
        offset: 8_192,
        ..first
    };
    assert_eq!(
        spread.on_piece(at(0), node(1), longer),
        PieceOutcome::Dropped
    );
    assert_eq!(
        spread.on_piece(at(0), node(1), first),
        PieceOutcome::Dropped,
        "again"
    );
}

#[test]
fn neighbours_remembered_are_bounded() {
    let mut spread = Spread::default();
    for number in 0..3_000_u64 {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        let byzantine = NodeId(id);
        spread.on_version(at(0), byzantine, of(9));
        spread.on_judged(at(0), byzantine, Judged::Refused);
        spread.on_gone(byzantine);
    }
    assert_eq!(spread.neighbours.len(), NEIGHBOURS_MAX);
    spread.on_version(at(31), node(255), of(9));
    assert_eq!(
        spread.neighbours.len(),
        1,
        "who may be asked again is forgotten"
    );
    assert!(spread.poll_request(at(31), above(1)).is_some());
}

#[test]
fn messages_are_read_as_written_and_nothing_else() {
    let bundle = [3; 9_000];
    let piece = Piece::cut(7, &bundle, 8_192).unwrap();
    assert_eq!(piece.bytes.len(), 808);
    assert_eq!(Piece::cut(7, &bundle, 9_000), None);
    assert_eq!(Piece::cut(7, &bundle, u32::MAX), None);
    for message in [
        ConfigMessage::Version(of(u64::MAX)),
        request(5, 8_192),
        ConfigMessage::Piece(piece),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(ConfigMessage::decode(&bytes), Ok(message));
        if !matches!(message, ConfigMessage::Piece(_)) {
            bytes.push(0);
            assert!(ConfigMessage::decode(&bytes).is_err());
            bytes.truncate(bytes.len() - 2);
            assert!(ConfigMessage::decode(&bytes).is_err());
        }
    }
    for bad in [
        Piece {
            bytes: &[],
            ..piece
        },
        Piece {
            offset: 8_193,
            ..piece
        },
        Piece {
            offset: u32::MAX,
            ..piece
        },
        Piece {
            len: 1_048_577,
            ..piece
        },
        Piece {
            bytes: &bundle[..8_193],
            offset: 0,
            ..piece
        },
    ] {
        let mut bytes = Vec::new();
        ConfigMessage::Piece(bad).encode(&mut bytes);
        assert!(ConfigMessage::decode(&bytes).is_err(), "{bad:?}");
    }
    assert!(ConfigMessage::decode(&[0x33]).is_err());
    assert!(ConfigMessage::decode(&[]).is_err());
}
