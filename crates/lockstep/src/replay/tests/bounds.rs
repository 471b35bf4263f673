//! Limits of the writer and the reader.

use super::*;
use crate::message::PERIOD_NANOS;
use crate::tick::TickRate;

#[test]
fn invalid_recordings_are_refused() {
    let begin = |config| ReplayWriter::<Pad>::new(config, &mut Vec::new()).map(|_| ());
    let mut long = config(2, 8, 0);
    long.game = vec![0; 65];
    assert_eq!(begin(long.clone()), Err(ReplayConfigError::TooLong));
    long.game = vec![0; 64];
    long.seed = vec![0; 64];
    assert_eq!(begin(long), Ok(()));
    assert_eq!(begin(config(0, 8, 0)), Err(ReplayConfigError::NoSeats));
    let many = config(u16::MAX, 8, 0);
    assert_eq!(begin(many), Err(ReplayConfigError::TooLarge));
    for hz in [1, 60, 1_000] {
        let nanos = TickRate::new(hz).unwrap().period_nanos();
        assert!(PERIOD_NANOS.contains(&nanos), "every rate can be read");
    }
}

#[test]
fn turns_out_of_order_change_nothing() {
    let rows = rows(2, 20, 31);
    let (mut writer, _, mut file) = recording(config(2, 8, 10), &rows[..10], &[]);
    let before = (writer.head(), file.len());
    let turn = |writer: &mut ReplayWriter<Pad>, tick, row: &Row| {
        writer.turn(&Turn::new(Tick(tick), row), || 0, &mut Vec::new())
    };
    let expected = Tick(10);
    let disorder = Err(RecordError::OutOfOrder { expected });
    assert_eq!(turn(&mut writer, 9, &rows[9]), disorder);
    assert_eq!(turn(&mut writer, 11, &rows[11]), disorder);
    let missing = Err(RecordError::KeyframeMissing);
    assert_eq!(turn(&mut writer, 10, &rows[10]), missing);
    let other = Row::initial(3, Pad::WIDTH, &[0, 0]);
    assert_eq!(turn(&mut writer, 10, &other), Err(RecordError::Seats));
    let long = writer.seal(&[0; 1_025], &mut file);
    assert_eq!(long, Err(RecordError::TooLong));
    let huge = writer.keyframe(&vec![0_u8; 1 << 24], &mut file);
    assert_eq!(huge, Err(RecordError::TooLong));
    assert_eq!((writer.head(), file.len()), before);

    writer.keyframe(&State(1), &mut file).unwrap();
    assert_eq!(writer.keyframe(&State(1), &mut file), disorder, "twice");
    assert_eq!(turn(&mut writer, 10, &rows[10]), Ok(()));
    writer.seal(&[0; 1_024], &mut file).unwrap();
}

#[test]
fn limits_are_held() {
    let rows = rows(4, 100, 32);
    let mut config = config(4, 8, 10);
    config.keyframe_interval = 10;
    let file = file(config, &rows);
    let with = |change: fn(&mut ReplayLimits)| {
        let mut limits = ReplayLimits::default();
        change(&mut limits);
        ReplayReader::open(&file, &limits).map(|_| ())
    };
    // 4 seats of 1 + 1 + 2 + 1 + 1 + 12 bits and one more are 10 bytes; 9 keyframes of 8 bytes.
    assert_eq!(open(&file).header().shape.bundle_len_max(), 10);
    assert_eq!(with(|limits| limits.bundle_len_max = 10), Ok(()));
    assert_eq!(with(|limits| limits.keyframe_len_max = 8), Ok(()));
    assert_eq!(with(|limits| limits.keyframes_max = 9), Ok(()));
    let refused: [(fn(&mut ReplayLimits), _); 3] = [
        (|limits| limits.bundle_len_max = 9, "its bundles"),
        (|limits| limits.keyframe_len_max = 7, "a keyframe"),
        (
            |limits| limits.keyframes_max = 8,
            "the number of its keyframes",
        ),
    ];
    for (change, what) in refused {
        assert_eq!(with(change), Err(ReplayError::TooLarge(what)));
    }
}

/// Writes a file with valid checksums, as a forger does.
fn forged(header: &ReplayHeader, records: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    header.write(&mut file);
    for (kind, body) in records {
        let before = u32::from_be_bytes(*file.last_chunk().unwrap());
        let [.., a, b, c] = body.len().to_be_bytes();
        let head = [*kind, a, b, c, !(kind ^ a ^ b ^ c)];
        let record = [&head[..], body].concat();
        let checksum = crc32c::crc32c_append(before, &record);
        file.extend(record);
        file.extend(checksum.to_be_bytes());
    }
    file
}

#[test]
fn invalid_records_with_valid_checksums_are_refused() {
    let plain = file(config(2, 4, 8), &rows(2, 1, 33));
    let header = open(&plain).header().clone();
    // Eight ticks without changes, and two hashes.
    let quiet = [&[0x30][..], &[0; 8], &[0x30; 4], &[0; 8], &[0x30; 3]].concat();
    let (ticks, end) = ((1, quiet), |count: u32| {
        (4, [&count.to_be_bytes()[..], &[0; 32]].concat())
    });
    let keyframe = (2, vec![0x30, 1, 2]);
    let damage = |records: &[(u8, Vec<u8>)]| {
        let file = forged(&header, records);
        match ReplayReader::open(&file, &ReplayLimits::default()) {
            Err(ReplayError::Damaged { damage, .. }) => Some(damage),
            other => panic!("{other:?}"),
        }
    };
    let ok = forged(&header, &[ticks.clone(), keyframe.clone(), ticks.clone()]);
    assert_eq!(open(&ok).ticks(), 16);
    let behind = |record| vec![ticks.clone(), record];
    let cases = [
        (behind(ticks.clone()), Damage::Order),
        (vec![keyframe.clone()], Damage::Order),
        (
            vec![ticks.clone(), keyframe.clone(), keyframe],
            Damage::Order,
        ),
        (behind((2, vec![0x74, 8, 0])), Damage::Keyframe),
        (behind((2, vec![])), Damage::Keyframe),
        (vec![(1, vec![])], Damage::Ticks),
        (vec![(1, vec![0x30, 0, 0])], Damage::Ticks),
        (vec![(1, [&[0x80][..], &[0; 8]].concat())], Damage::Ticks),
        (vec![(3, vec![0; 1_025])], Damage::Seal),
        (behind(end(7)), Damage::End),
        (behind(end(8)), Damage::Chain),
    ];
    for (records, expected) in cases {
        assert_eq!(damage(&records), Some(expected), "{records:?}");
    }
    assert_eq!(damage(&[(5, vec![])]), Some(Damage::Head), "another kind");
}

#[test]
fn invalid_headers_are_refused() {
    let good = open(&file(config(2, 4, 8), &[])).header().clone();
    let refused = |change: fn(&mut ReplayHeader)| {
        let mut header = good.clone();
        change(&mut header);
        let file = forged(&header, &[]);
        ReplayReader::open(&file, &ReplayLimits::default()).unwrap_err()
    };
    let changes: [fn(&mut ReplayHeader); 5] = [
        |header| header.shape.seats = 0,
        |header| header.period_nanos = 0,
        |header| header.period_nanos = 1_000_000_001,
        |header| header.neutral = vec![0, 1],
        |header| header.game = vec![0; 65],
    ];
    for change in changes {
        assert_eq!(refused(change), ReplayError::Header);
    }
    let too_large = refused(|header| header.shape.seats = 60_000);
    assert_eq!(too_large, ReplayError::TooLarge("its bundles"));
}
