//! The wire format is frozen: the bytes in `testdata` decode to these values.

use core::num::NonZeroU8;

use lockstep::bundle::Shape;
use lockstep::message::{
    Answer, Chunk, DecodeError, Direction, Down, HashRun, Mode, Question, Turns, Up, Welcome,
    decode_chunk, decode_chunk_ack, decode_down, decode_up,
};
use lockstep::transfer::{Incoming, Outgoing, TransferLimits};
use lockstep::{Cause, CloseReason, InputDelay, LeaveReason, Tick, Width};
use wire::{Instant, MatchId, Seat};

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
fn up_vectors_are_unchanged() {
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
    assert_eq!((report.hashes, report.inputs), (HashRun::NONE, None));

    let full = up("report_full");
    let Ok(Up::Report(report)) = decode_up(&full, PAD) else {
        panic!("no report");
    };
    assert_eq!((report.hashes.back, report.hashes.count), (1, 2));
    let hashes: Vec<_> = report.hashes.iter().collect();
    assert_eq!(hashes, [0xdead_beef, 0x0102_0304]);
    let run = report.inputs.unwrap();
    assert_eq!((run.ahead, run.count, run.is_fresh), (7, 6, false));
    let expected = [0x0f00, 0x0f00, 0x0f01, 0x0f01, 0x0f01, 0x70fe];
    assert_eq!(inputs(&full, PAD, 0x0f00), expected);

    let loaded = up("report_loaded");
    let Ok(Up::Report(after)) = decode_up(&loaded, PAD) else {
        panic!("no report");
    };
    assert_eq!(after.loaded, Some(7));
    assert_eq!((after.hashes, after.inputs), (report.hashes, report.inputs));

    let stick = [0x0001_0000, 0x0001_40c0, 0x0001_40c0];
    assert_eq!(inputs(&up("report_stick"), STICK, 0), stick);
}

#[test]
fn down_vectors_are_unchanged() {
    let down = |name| vector(DOWN, name);
    let welcome = Welcome {
        mode: Mode::Quorum,
        shape: SHAPE,
        seat: Some(Seat(2)),
        period_nanos: 16_666_666,
        input_delay: InputDelay::adaptive(6, 20).unwrap(),
        repair: 4,
        hash_interval: NonZeroU8::MIN,
        match_id: MatchId(core::array::from_fn(|index| u8::try_from(index).unwrap())),
    };
    let datagram = down("welcome");
    assert_eq!(decode_down(&datagram, None), Ok(Down::Welcome(welcome)));
    // A match without seats, for a spectator.
    let mut empty = datagram;
    empty[3..7].copy_from_slice(&[0, 0, 0xff, 0xff]);
    assert_eq!(decode_down(&empty, None), Err(DecodeError::Malformed));
    let bye = Ok(Down::Bye(CloseReason::Behind));
    assert_eq!(decode_down(&down("bye"), None), bye);
    let migration = Err(DecodeError::UnknownKind(0x89));
    assert_eq!(decode_down(&down("migration"), None), migration);

    for (name, wanted) in [("turns", None), ("turns_asking", Some(0x0102))] {
        let datagram = down(name);
        let Ok(Down::Turns(turns)) = decode_down(&datagram, Some(SHAPE)) else {
            panic!("no turns");
        };
        assert_eq!(turns.next_input_low, 0x0010);
        assert_eq!((turns.slack, turns.first_low), (-3, 0xfffe));
        assert_eq!((turns.wanted_low, turns.stretch), (wanted, 0));
        let lens: Vec<_> = turns.bundles.iter().map(<[u8]>::len).collect();
        // Three seats arrive; one presses a button and one is substituted; nothing changes.
        assert_eq!(lens, [2, 2, 1]);
    }
    let (usual, mut stretched) = (down("turns"), down("stretched"));
    let turns = decode_down(&usual, Some(SHAPE));
    let Ok(Down::Turns(longer)) = decode_down(&stretched, Some(SHAPE)) else {
        panic!("no turns");
    };
    let usual = Turns {
        stretch: 0,
        ..longer
    };
    assert_eq!((longer.stretch, Ok(Down::Turns(usual))), (52, turns));
    // A stretch of 0; one over a whole tick; a stretch within a stretch; a kind without turns.
    for (high, low, kind) in [(0, 0, 0x82), (3, 0xe9, 0x82), (0, 1, 0x8d), (0, 1, 0x81)] {
        (stretched[1], stretched[2], stretched[3]) = (high, low, kind);
        let read = decode_down(&stretched, Some(SHAPE));
        assert_eq!(read, Err(DecodeError::Malformed));
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

#[test]
fn snapshot_vectors_are_unchanged() {
    // The second chunk of a 70-byte snapshot, and the acknowledgement of that chunk alone.
    let datagram = vector(DOWN, "chunk");
    let mut limits = TransferLimits::default();
    limits.datagram_len_max = 80;
    let bytes: Vec<_> = (0..70).collect();
    let now = Instant::from_millis(1);
    let outgoing = Outgoing::new(Direction::Down, 7, bytes.into(), &limits, now);
    let (mut outgoing, mut sent) = (outgoing.unwrap(), Vec::new());
    assert!(outgoing.poll(now, &mut sent));
    sent.clear();
    assert!(outgoing.poll(now, &mut sent));
    assert_eq!(sent, datagram);
    let chunk = Chunk {
        id: 7,
        total: 70,
        stride: 64,
        index: 1,
        number: 1,
        bytes: &[64, 65, 66, 67, 68, 69],
    };
    assert_eq!(decode_chunk(&datagram, Direction::Down), Ok(chunk));
    let mut incoming = Incoming::new(Direction::Down, 70);
    incoming.on_chunk(now, &chunk);
    let mut said = Vec::new();
    assert!(incoming.poll_ack(Instant::from_millis(21), &mut said));
    assert_eq!(said, vector(UP, "chunk_ack"));

    let datagram = vector(UP, "chunk");
    let empty = decode_chunk(&datagram, Direction::Up).unwrap();
    assert_eq!((empty.id, empty.total, empty.number), (255, 0, 2));
    let datagram = vector(DOWN, "chunk_ack");
    let ack = decode_chunk_ack(&datagram, Direction::Down).unwrap();
    assert_eq!((ack.id, ack.next, ack.latest), (7, 5, 16));
    assert_eq!(ack.arrived().collect::<Vec<_>>(), [7, 14]);

    // Each direction accepts only its own kinds. A truncated or extended datagram is rejected,
    // except for an acknowledgement whose bits are cut between two bytes.
    for (file, direction) in [(UP, Direction::Up), (DOWN, Direction::Down)] {
        let (chunk, ack) = (vector(file, "chunk"), vector(file, "chunk_ack"));
        let kind = Err(DecodeError::UnknownKind(chunk[0]));
        assert_eq!(decode_chunk(&chunk, direction.back()), kind);
        let kind = DecodeError::UnknownKind(ack[0]);
        assert_eq!(decode_chunk_ack(&ack, direction.back()), Err(kind));
        let longer = [&chunk[..], &[0]].concat();
        assert!(decode_chunk(&longer, direction).is_err());
        let longer = [&ack[..], &[0]].concat();
        assert!(decode_chunk_ack(&longer, direction).is_err());
        let whole = |len: &usize| decode_chunk(&chunk[..*len], direction).is_ok();
        assert_eq!(
            (0..=chunk.len()).filter(whole).collect::<Vec<_>>(),
            [chunk.len()]
        );
        let whole = |len: &usize| decode_chunk_ack(&ack[..*len], direction).is_ok();
        let good: Vec<_> = (10..=ack.len()).collect();
        assert_eq!((0..=ack.len()).filter(whole).collect::<Vec<_>>(), good);
    }
}

#[test]
fn bisect_vectors_are_unchanged() {
    let question = |name| match decode_down(&vector(DOWN, name), None) {
        Ok(Down::Question(question)) => question,
        other => panic!("{name}: {other:?}"),
    };
    let (first_low, tick_low, count, seat) = (0x0102, 0x0102, 10, Seat(3));
    let ticks = Question::Ticks { first_low, count };
    assert_eq!(question("question_ticks"), ticks);
    let sections = Question::Sections { tick_low };
    assert_eq!(question("question_sections"), sections);
    for (name, cause, section) in [
        ("question_diverged", Cause::State, Some(1)),
        ("question_diverged_inputs", Cause::Inputs, None),
    ] {
        let diverged = Question::Diverged {
            tick_low,
            seat,
            cause,
            section,
        };
        assert_eq!(question(name), diverged);
    }
    let ticks = vector(UP, "answer_ticks");
    let Ok(Up::Answer(Answer::Ticks(ticks))) = decode_up(&ticks, PAD) else {
        panic!("no ticks");
    };
    assert_eq!((ticks.first_low, ticks.count), (first_low, count));
    let mut hashes = [None; 10];
    (hashes[0], hashes[9]) = (Some(0xdead_beef), Some(0x0102_0304));
    assert!(ticks.iter().eq(hashes));
    let sections = vector(UP, "answer_sections");
    let Ok(Up::Answer(Answer::Sections { known, .. })) = decode_up(&sections, PAD) else {
        panic!("no sections");
    };
    let known = known.unwrap();
    assert_eq!(known.log, 0xc0ff_ee00);
    let sections: Vec<_> = known
        .iter()
        .map(|(hash, name)| (hash, name.to_string()))
        .collect();
    let expected = [(0xdead_beef, "random"), (0x0102_0304, "units")];
    let expected = expected.map(|(hash, name)| (hash, name.to_owned()));
    assert_eq!(sections, expected);
    let known = None;
    let unknown = Ok(Up::Answer(Answer::Sections { tick_low, known }));
    assert_eq!(decode_up(&vector(UP, "answer_unknown"), PAD), unknown);
    let events_seen = Ok(Up::Answer(Answer::Acknowledged { tick_low, seat }));
    assert_eq!(decode_up(&vector(UP, "answer_heard"), PAD), events_seen);
}

/// Values that no sender writes.
#[test]
fn bisect_vectors_with_other_values_are_refused() {
    // Form; no tick; bits past the count; known; sections; a long name; a name that is not UTF-8.
    for (name, at, value) in [
        ("answer_ticks", 1, 3),
        ("answer_ticks", 4, 0),
        ("answer_ticks", 6, 0x60),
        ("answer_ticks", 6, 0x48),
        ("answer_sections", 4, 2),
        ("answer_sections", 9, 3),
        ("answer_sections", 18, 33),
        ("answer_sections", 19, 0x1b),
        ("answer_sections", 19, 0xc3),
        ("answer_unknown", 4, 1),
    ] {
        let mut datagram = vector(UP, name);
        datagram[at] = value;
        assert!(decode_up(&datagram, PAD).is_err(), "{name} {at} {value}");
    }
    // Form; no tick; cause; section 64.
    for (name, at, value) in [
        ("question_ticks", 1, 3),
        ("question_ticks", 4, 0),
        ("question_diverged", 6, 3),
        ("question_diverged", 7, 64),
    ] {
        let mut datagram = vector(DOWN, name);
        datagram[at] = value;
        assert!(decode_down(&datagram, None).is_err(), "{name} {at} {value}");
    }
}

/// Every vector that is truncated or extended by a byte is rejected, unless the cut is between two
/// bundles.
#[test]
fn a_vector_cut_short_is_refused() {
    for name in [
        "ready",
        "leave",
        "report_bare",
        "report_full",
        "answer_ticks",
        "answer_sections",
        "answer_unknown",
        "answer_heard",
    ] {
        let mut datagram = vector(UP, name);
        for len in 0..datagram.len() {
            assert!(decode_up(&datagram[..len], PAD).is_err(), "{name} {len}");
        }
        datagram.push(0);
        assert!(decode_up(&datagram, PAD).is_err(), "{name}");
    }
    for name in ["question_ticks", "question_sections", "question_diverged"] {
        let mut datagram = vector(DOWN, name);
        for len in 0..datagram.len() {
            assert!(decode_down(&datagram[..len], None).is_err(), "{name} {len}");
        }
        datagram.push(0);
        assert!(decode_down(&datagram, None).is_err(), "{name}");
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
