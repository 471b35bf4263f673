use super::super::*;

const MATCH: MatchId = MatchId([7; 16]);

#[test]
fn a_head_covers_all_earlier_inputs_match_and_seat() {
    let heads = |match_id, seat, bundles: [&[u8]; 3]| {
        let first = first_head(match_id, Seat(seat));
        bundles
            .iter()
            .fold(first, |head, bundle| next_head(&head, [3; 8], bundle))
    };
    let all = [
        heads(MATCH, 1, [&[0x20], &[0x43], &[0x20]]),
        heads(MATCH, 1, [&[0x43], &[0x20], &[0x20]]),
        heads(MATCH, 1, [&[0x20, 0x43], &[], &[0x20]]),
        heads(MATCH, 2, [&[0x20], &[0x43], &[0x20]]),
        heads(MatchId([8; 16]), 1, [&[0x20], &[0x43], &[0x20]]),
    ];
    for (index, head) in all.iter().enumerate() {
        assert!(!all[..index].contains(head));
    }
    let head = first_head(MATCH, Seat(1));
    assert_ne!(next_head(&head, [3; 8], &[]), next_head(&head, [4; 8], &[]));
}

#[test]
fn salts_differ_by_secret_match_seat_and_tick_and_nothing_prints_them() {
    let salts = |byte, match_id, seat, tick| {
        let secret = CommitSecret::new([byte; 32]);
        Salts::new(&secret, match_id, Seat(seat)).of(Tick(tick))
    };
    let all = [
        salts(1, MATCH, 1, 1),
        salts(2, MATCH, 1, 1),
        salts(1, MatchId([8; 16]), 1, 1),
        salts(1, MATCH, 2, 1),
        salts(1, MATCH, 1, 2),
    ];
    for (index, salt) in all.iter().enumerate() {
        assert!(!all[..index].contains(salt));
    }
    let secret = CommitSecret::new([0x5a; 32]);
    assert_eq!(format!("{secret:?}"), "CommitSecret(..)");
    let salts = Salts::new(&secret, MATCH, Seat(1));
    assert_eq!(format!("{salts:?}"), "Salts(..)");
}

#[test]
fn heads_and_salts_agree_with_an_independent_implementation() {
    // Computed by Python's hashlib.
    let head = first_head(MatchId(*b"AAAAAAAAAAAAAAAA"), Seat(1));
    let next = next_head(&head, *b"saltsalt", b"\x20");
    let salts = Salts::new(
        &CommitSecret::new([b'k'; 32]),
        MatchId(*b"AAAAAAAAAAAAAAAA"),
        Seat(1),
    );
    assert_eq!(head, FIRST);
    assert_eq!(next, NEXT);
    assert_eq!(salts.of(Tick(5)), SALT);
}

const FIRST: Head = [
    0x84, 0xd2, 0x99, 0x82, 0x34, 0xca, 0x81, 0x0b, 0x98, 0x27, 0x30, 0x03, 0x7f, 0x8f, 0xa6, 0x9d,
];
const NEXT: Head = [
    0x10, 0x26, 0x86, 0x2b, 0x7e, 0xda, 0xee, 0x8b, 0x74, 0x7c, 0xf2, 0xc4, 0x69, 0x75, 0x26, 0x3f,
];
const SALT: Salt = [0x5a, 0x40, 0xc0, 0x49, 0x7b, 0xdc, 0xcb, 0xf4];
