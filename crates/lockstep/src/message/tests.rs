//! The examples of `docs/lockstep-protocol.md`: the library writes and reads these bytes, and the
//! page explains them.

use wire::{MatchId, Seat};

use super::*;
use crate::bundle::{Shape, encode};
use crate::event::{CloseReason, LeaveReason};
use crate::input::Width;
use crate::input::{Origin, Row};
use crate::mesh_peer::commitment::{CommitSecret, Salts, first_head, next_head};
use crate::tick::Tick;

const PAGE: &str = include_str!("../../../../docs/lockstep-protocol.md");
const WORKED: &str = include_str!("../../testdata/worked.hex");

const PAD: Width = Width::bits::<16>();
/// The last button of 16.
const LAST: [u8; 2] = [0, 1];

/// The digits of `hex` as bits.
fn bits_of(hex: &str) -> String {
    let digits = hex.chars().map(|digit| digit.to_digit(16).unwrap());
    let nibbles: Vec<_> = digits.map(|digit| format!("{digit:04b}")).collect();
    nibbles.concat()
}

fn vector(name: &str) -> Vec<u8> {
    let mut lines = WORKED.lines().filter_map(|line| line.split_once(" = "));
    let (_, hex) = lines.find(|(key, _)| *key == name).unwrap();
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| core::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// The bits that the page explains after the mark of `name`, in order.
fn explained(name: &str) -> String {
    let (_, text) = PAGE
        .split_once(&format!("<!-- example: {name} -->"))
        .unwrap();
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('`').nth(1).unwrap());
    cells
        .map(|cell| {
            let bits = cell.strip_prefix("0b").map(str::to_owned);
            bits.unwrap_or_else(|| bits_of(cell))
        })
        .collect()
}

/// Bundles of `seats` that lead from a row of confirmed neutral inputs to each of `rows`.
fn bundles(seats: u16, rows: &[&[([u8; 2], Origin)]]) -> Vec<Vec<u8>> {
    let mut before = Row::initial(seats, PAD, &[0, 0]);
    for seat in (0..seats).map(Seat) {
        before.set(seat, &[0, 0], Origin::Confirmed);
    }
    let mut all = Vec::new();
    for row in rows {
        let mut after = before.clone();
        for (seat, (input, origin)) in (0..).map(Seat).zip(*row) {
            after.set(seat, input, *origin);
        }
        let mut bundle = Vec::new();
        encode(&before, &after, &mut bundle);
        all.push(bundle);
        before = after;
    }
    all
}

fn up() -> Vec<u8> {
    let mut values = [0; 16];
    values[0] = 0x89ab_cdef;
    let hashes = HashSlice {
        back: 1,
        count: 1,
        values,
    };
    let head = ReportHead {
        next_low: Tick(300).low(),
        lag: 1,
        hashes,
        ahead: 5,
        ..ReportHead::default()
    };
    let inputs: [&[u8]; 3] = [&[0, 0], &[0, 0], &LAST];
    let mut out = Vec::new();
    write_report(&mut out, &head, PAD, &[0, 0], inputs.into_iter());
    out
}

fn down() -> Vec<u8> {
    const QUIET: ([u8; 2], Origin) = ([0, 0], Origin::Confirmed);
    const PRESSED: ([u8; 2], Origin) = (LAST, Origin::Confirmed);
    const GUESSED: ([u8; 2], Origin) = ([0, 0], Origin::Substituted);
    let rows: [&[_]; 4] = [
        &[QUIET, QUIET],
        &[QUIET, PRESSED],
        &[QUIET, PRESSED],
        &[GUESSED, PRESSED],
    ];
    let mut out = Vec::new();
    write_turns_head(&mut out, Tick(308).low(), 7, Tick(297).low(), None);
    out.extend(bundles(2, &rows).concat());
    out
}

fn mesh() -> Vec<u8> {
    const QUIET: ([u8; 2], Origin) = ([0, 0], Origin::Confirmed);
    const PRESSED: ([u8; 2], Origin) = (LAST, Origin::Confirmed);
    let head = PlayHead {
        next_low: Tick(300).low(),
        clock: 294 * 256 + 128,
        lead: -3 * 32,
        first_low: Tick(299).low(),
        ..PlayHead::default()
    };
    let mut out = Vec::new();
    write_play_head(&mut out, &head, &(292..293), [0x89ab_cdef].into_iter());
    let rows: [&[_]; 4] = [&[QUIET], &[QUIET], &[PRESSED], &[PRESSED]];
    out.extend(bundles(1, &rows).concat());
    out
}

fn committed() -> Vec<u8> {
    const QUIET: ([u8; 2], Origin) = ([0, 0], Origin::Confirmed);
    const PRESSED: ([u8; 2], Origin) = (LAST, Origin::Confirmed);
    let match_id = MatchId(core::array::from_fn(|index| u8::try_from(index).unwrap()));
    let salts = Salts::new(&CommitSecret::new([0x0b; 32]), match_id, Seat(1));
    let shown = bundles(1, &[&[QUIET], &[PRESSED], &[PRESSED]]);
    let mut head = first_head(match_id, Seat(1));
    for (tick, bundle) in (6..).map(Tick).zip(&shown) {
        head = next_head(&head, salts.of(tick), bundle);
    }
    let mut out = Vec::new();
    write_committed_head(&mut out, Tick(9).low(), &head, 2);
    for tick in [6, 7] {
        out.extend(salts.of(Tick(tick)));
    }
    let play = PlayHead {
        next_low: 7,
        clock: 2 * 256,
        lead: LEAD_UNKNOWN,
        first_low: 6,
        ..PlayHead::default()
    };
    write_play_head(&mut out, &play, &(0..0), core::iter::empty());
    out.extend(shown[..2].concat());
    out
}

#[test]
fn the_examples_of_the_page_are_the_encodings_it_explains() {
    let examples = [
        ("up", up()),
        ("down", down()),
        ("mesh", mesh()),
        ("committed", committed()),
    ];
    for (name, written) in examples {
        let bits: Vec<_> = written.iter().map(|byte| format!("{byte:08b}")).collect();
        assert_eq!(
            bits.concat(),
            explained(name),
            "{name}: the page explains others"
        );
        assert_eq!(written, vector(name), "{name}: worked.hex has others");
    }
    let (marks, lines) = ("<!-- example: ", WORKED.lines().count());
    assert_eq!(PAGE.matches(marks).count(), 4, "each is compared");
    assert_eq!(lines, 1 + 4, "and so is each line of worked.hex");
}

#[test]
fn the_examples_of_the_page_say_what_it_explains() {
    let up = vector("up");
    let Ok(Up::Report(report)) = decode_up(&up, PAD) else {
        panic!("no report");
    };
    assert_eq!(
        (report.next_low, report.is_gap, report.lag),
        (300, false, 1)
    );
    assert_eq!(report.hashes.back, 1);
    assert!(report.hashes.iter().eq([0x89ab_cdef]));
    let inputs = report.inputs.unwrap();
    assert_eq!((inputs.ahead, inputs.count, inputs.is_fresh), (5, 3, false));
    let mut unpacked = Vec::new();
    inputs.unpack(&mut [0, 0], |_, input| unpacked.push(input.to_vec()));
    assert_eq!(unpacked, [vec![0, 0], vec![0, 0], LAST.to_vec()]);

    let shape = Shape {
        seats: 2,
        width: PAD,
    };
    let down = vector("down");
    let Ok(Down::Turns(turns)) = decode_down(&down, Some(shape)) else {
        panic!("no turns");
    };
    assert_eq!((turns.next_input_low, turns.slack), (308, 7));
    assert_eq!((turns.first_low, turns.bundles.iter().count()), (297, 4));

    for (name, first, lead) in [("mesh", 299, -96), ("committed", 6, LEAD_UNKNOWN)] {
        let datagram = vector(name);
        let play = match decode_mesh(&datagram, shape) {
            Ok(MeshMessage::Play(play) | MeshMessage::Committed(_, play)) => play,
            other => panic!("{other:?}"),
        };
        assert_eq!((play.head.first_low, play.head.lead), (first, lead));
    }
}

/// The page lists exactly the kinds that decode.
#[test]
fn the_page_has_a_row_for_each_message_kind() {
    let shape = Shape {
        seats: 4,
        width: PAD,
    };
    let unknown = |kind: u8| {
        let datagram = [kind];
        let is_unknown = |error| error == DecodeError::UnknownKind(kind);
        decode_up(&datagram, PAD).is_err_and(is_unknown)
            && decode_down(&datagram, Some(shape)).is_err_and(is_unknown)
            && decode_mesh(&datagram, shape).is_err_and(is_unknown)
            && decode_hosted(&datagram, shape).is_err_and(is_unknown)
            && [Direction::Up, Direction::Down].into_iter().all(|way| {
                decode_chunk(&datagram, way).is_err_and(is_unknown)
                    && decode_chunk_ack(&datagram, way).is_err_and(is_unknown)
            })
            && crate::state_channel::decode_state_part(&datagram).is_err_and(is_unknown)
            && crate::state_channel::decode_state_ack(&datagram).is_err_and(is_unknown)
    };
    let (kinds, reserved) = PAGE.split_once("\n## 16").unwrap();
    for kind in 0..=u8::MAX {
        let name = format!("0x{kind:02X}");
        let is_in = |line: &str| {
            let ends = line.match_indices(&name).map(|(at, _)| at + name.len());
            let mut rests = ends.map(|end| line[end..].chars().next());
            // The number must not be a prefix of a longer one.
            rests.any(|next| next.is_none_or(|next| !next.is_ascii_hexdigit()))
        };
        let has_row = kinds
            .lines()
            .any(|line| line.starts_with('|') && is_in(line));
        if unknown(kind) {
            let is_told = reserved.contains(&name);
            assert!(!has_row || is_told, "{name} is read by nobody");
        } else {
            assert!(has_row, "{name} has no row");
        }
    }
}

/// Numbers and codes in the page that must follow changes of the code.
#[test]
fn the_page_has_the_enforced_bounds_and_codes() {
    let fragments = crate::state_channel::FRAGMENTS_MAX;
    let bounds = [
        format!("| inputs in one report | {INPUTS_MAX}, "),
        format!("| inputs in early inputs | {INPUT_AHEAD_MAX} a seat |"),
        format!("| hashes in one report or play | {HASHES_MAX} |"),
        format!("| seats of a mesh or hosted match | {MESH_SEATS_MAX} |"),
        format!(
            "| chunks kept past a missing one | {} |",
            with_comma(AHEAD_MAX)
        ),
        format!("| fragments of a state | {fragments} |"),
        format!(
            "| bundles kept | {} of",
            with_comma(crate::chain::CHAIN_LEN)
        ),
        format!("The format version is {VERSION}."),
        format!(
            "hashes and names {} bytes",
            with_comma(u32::try_from(BISECT_SECTIONS_LEN_MAX).unwrap())
        ),
    ];
    for bound in bounds {
        assert!(PAGE.contains(&bound), "{bound}");
    }
    let close = [
        (CloseReason::Ended, "ended"),
        (CloseReason::Removed, "removed"),
        (CloseReason::Behind, "behind"),
        (CloseReason::NotReady, "not ready"),
        (CloseReason::Slow, "slow"),
    ];
    let codes = close.map(|(reason, name)| format!("{} {name}", reason.code()));
    assert!(PAGE.contains(&codes.join(", ")), "{codes:?}");
    let leave = [
        (LeaveReason::Quit, "quit"),
        (LeaveReason::Finished, "finished"),
        (LeaveReason::Refused, "refused"),
    ];
    let codes = leave.map(|(reason, name)| format!("{} {name}", reason.code()));
    assert!(PAGE.contains(&codes.join(", ")), "{codes:?}");
    let codes = 0..=u8::MAX;
    assert_eq!(
        codes.clone().filter_map(CloseReason::from_code).count(),
        close.len()
    );
    let players = codes
        .filter_map(LeaveReason::from_code)
        .filter(|reason| reason.is_players());
    assert_eq!(players.count(), leave.len());
}

/// A number below a million with a comma, as in the page.
fn with_comma(number: u32) -> String {
    let (thousands, rest) = (number / 1_000, number % 1_000);
    if thousands == 0 {
        rest.to_string()
    } else {
        format!("{thousands},{rest:03}")
    }
}
