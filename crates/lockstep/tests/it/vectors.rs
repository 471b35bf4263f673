//! The wire format is frozen: bytes in `testdata`, what they mean here.

use core::num::NonZeroU8;

use lockstep::bundle::Shape;
use lockstep::message::{DecodeError, Down, HashRun, Mode, Up, Welcome, decode_down, decode_up};
use lockstep::{CloseReason, InputDelay, LeaveReason, Tick, Width};
use wire::{MatchId, Seat};

/// Reads `name = hex` lines; `#` begins a comment.
fn vector(file: &str, name: &str) -> Vec<u8> {
    let line = file
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once('='))
        .find(|(key, _)| key.trim() == name);
    let (_, hex) = line.unwrap_or_else(|| panic!("no vector {name}"));
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

const UP: &str = include_str!("../../testdata/up.hex");
const DOWN: &str = include_str!("../../testdata/down.hex");

const PAD: Width = Width::bits::<16>();
const STICK: Width = Width::bits::<32>();

const SHAPE: Shape = Shape {
    seats: 3,
    width: PAD,
};

/// Inputs of a vector, unpacked from `before`.
fn inputs(datagram: &[u8], width: Width, before: u32) -> Vec<u32> {
    let Ok(Up::Report(report)) = decode_up(datagram, width) else {
        panic!("no report");
    };
    let len = width.byte_len();
    let mut input = before.to_be_bytes()[4 - len..].to_vec();
    let mut all = Vec::new();
    report.inputs.unwrap().unpack(&mut input, |_, bits| {
        let number = bits
            .iter()
            .fold(0, |number, byte| number << 8 | u32::from(*byte));
        all.push(number);
    });
    all
}

#[test]
fn up_vectors_mean_what_they_meant() {
    let up = |name| vector(UP, name);
    let next = Tick(0x0001_2345);
    assert_eq!(decode_up(&up("ready"), PAD), Ok(Up::Ready { next }));
    assert_eq!(
        decode_up(&up("ready_version_3"), PAD),
        Err(DecodeError::Version(3))
    );
    assert_eq!(
        decode_up(&up("leave"), PAD),
        Ok(Up::Leave(LeaveReason::Finished))
    );
    assert_eq!(
        decode_up(&up("order"), PAD),
        Err(DecodeError::UnknownKind(4))
    );

    let bare = up("report_bare");
    let Ok(Up::Report(report)) = decode_up(&bare, PAD) else {
        panic!("no report");
    };
    assert_eq!(
        (report.next_low, report.is_gap, report.lag),
        (0x1234, true, 2)
    );
    assert_eq!((report.hashes, report.inputs), (HashRun::default(), None));

    let full = up("report_full");
    let Ok(Up::Report(report)) = decode_up(&full, PAD) else {
        panic!("no report");
    };
    let mut values = [0; 16];
    values[..2].copy_from_slice(&[0xdead_beef, 0x0102_0304]);
    let (back, count) = (1, 2);
    assert_eq!(
        report.hashes,
        HashRun {
            back,
            count,
            values
        }
    );
    let run = report.inputs.unwrap();
    assert_eq!((run.ahead, run.count, run.is_fresh), (7, 6, false));
    let expected = [0x0f00, 0x0f00, 0x0f01, 0x0f01, 0x0f01, 0x70fe];
    assert_eq!(inputs(&full, PAD, 0x0f00), expected);

    let stick = [0x0001_0000, 0x0001_40c0, 0x0001_40c0];
    assert_eq!(inputs(&up("report_stick"), STICK, 0), stick);
}

#[test]
fn down_vectors_mean_what_they_meant() {
    let down = |name| vector(DOWN, name);
    let welcome = Welcome {
        mode: Mode::Quorum,
        shape: SHAPE,
        seat: Seat(2),
        period_nanos: 16_666_666,
        input_delay: InputDelay::adaptive(6, 20).unwrap(),
        repair: 4,
        hash_interval: NonZeroU8::MIN,
        match_id: MatchId(core::array::from_fn(|index| u8::try_from(index).unwrap())),
    };
    let datagram = down("welcome");
    assert_eq!(decode_down(&datagram, None), Ok(Down::Welcome(welcome)));
    let bye = Ok(Down::Bye(CloseReason::Behind));
    assert_eq!(decode_down(&down("bye"), None), bye);
    let ladder = Err(DecodeError::UnknownKind(0x88));
    assert_eq!(decode_down(&down("hash_ladder"), None), ladder);

    for (name, wanted) in [("turns", None), ("turns_asking", Some(0x0102))] {
        let datagram = down(name);
        let Ok(Down::Turns(turns)) = decode_down(&datagram, Some(SHAPE)) else {
            panic!("no turns");
        };
        assert_eq!(turns.next_input_low, 0x0010);
        assert_eq!((turns.slack, turns.first_low), (-3, 0xfffe));
        assert_eq!(turns.wanted_low, wanted);
        let lens: Vec<_> = turns.bundles.iter().map(<[u8]>::len).collect();
        // Three arrive; one presses a button and one falls silent; nothing happens.
        assert_eq!(lens, [2, 2, 1]);
    }
    let datagram = down("early");
    let Ok(Down::Early(early, turns)) = decode_down(&datagram, Some(SHAPE)) else {
        panic!("no early inputs");
    };
    assert_eq!((early.first_low, turns.first_low), (0x0001, 0xfffe));
    let mut inputs = Vec::new();
    early.unpack(&mut [9, 9], &[0, 0], |seat, ahead, input| {
        inputs.push((seat.0, ahead, [input[0], input[1]]));
    });
    assert_eq!(
        inputs,
        [(1, 0, [0, 4]), (1, 1, [0, 0]), (2, 3, [0x70, 0xfe])]
    );
    assert_eq!(
        decode_down(&down("turns"), None),
        Err(DecodeError::Malformed)
    );
}

/// Every vector, cut short anywhere or longer by a byte, is refused, but where the cut falls
/// between two bundles.
#[test]
fn a_vector_cut_short_is_refused() {
    for name in ["ready", "leave", "report_bare", "report_full"] {
        let mut datagram = vector(UP, name);
        for len in 0..datagram.len() {
            assert!(decode_up(&datagram[..len], PAD).is_err(), "{name} {len}");
        }
        datagram.push(0);
        assert!(decode_up(&datagram, PAD).is_err(), "{name}");
    }
    let turns = vector(DOWN, "turns");
    let good: Vec<_> = (0..=turns.len())
        .filter(|&len| decode_down(&turns[..len], Some(SHAPE)).is_ok())
        .collect();
    assert_eq!(good, [6, 8, 10, 11]);
    let early = vector(DOWN, "early");
    let head = early.len() - turns.len();
    let good: Vec<_> = (0..=early.len())
        .filter(|&len| decode_down(&early[..len], Some(SHAPE)).is_ok())
        .collect();
    assert_eq!(good, [6, 8, 10, 11].map(|len| head + len));
    for len in 0..30 + 5 {
        let welcome = vector(DOWN, "welcome");
        if len != welcome.len() {
            let cut = welcome
                .get(..len)
                .map_or(Err(DecodeError::Truncated), |cut| decode_down(cut, None));
            assert!(cut.is_err());
        }
    }
}
