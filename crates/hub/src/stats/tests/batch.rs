use core::fmt::Write as _;

use wire::{ClientId, Seed, UnixTime};

use super::*;
use crate::stats::{BATCH_BYTES_MAX, BatchError, BatchFull};

fn one_of_each() -> Vec<StatRecord> {
    let mut kill = record(1_800_000_000, "kill map=Dust", Sample::Add(2.into()));
    kill.player = Some(ClientId(0x0102_0304_0506_0708));
    vec![
        kill.clone(),
        record(1_800_000_001, "players", Sample::Set(float(0.5))),
        record(1_799_999_999, "players", Sample::Set(float(0.1))),
        record(
            1_800_000_000,
            "round map=Dust",
            Sample::State(text("warm up")),
        ),
        StatRecord {
            sample: Sample::Event((-3).into()),
            ..kill
        },
    ]
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// Formats change by a new version; this release must go on reading version 1.
#[test]
fn hub_h12_version_1_is_read_and_other_versions_are_named() {
    let frozen = concat!(
        "01",
        // Kind, time, series, its definition, player, value.
        "1080c0e285e368000004",
        "6b696c6c0101036d617000044475737400",
        "010203040506070804",
        "05d00f010207706c6179657273003f000000",
        "099f1f013fb999999999999a",
        "02d00f020305726f756e6401010001077761726d207570",
        "1300000005",
    );
    let bytes = encoded(&one_of_each());
    assert_eq!(hex(&bytes), frozen);
    assert_eq!(
        batch(&one_of_each()).records().collect::<Vec<_>>(),
        one_of_each()
    );
    for version in [0, 2, 255] {
        let mut later = bytes.clone();
        later[0] = version;
        let error = Batch::decode(&later).unwrap_err();
        assert_eq!(error, BatchError::Version(version));
        let text = format!("format version {version} is unknown");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn any_records_are_read_as_written() {
    for seed in seeds(50) {
        let mut generator = Seed::from_number(seed).generator(1);
        let records: Vec<_> = (0..200)
            .map(|_| random_record(&mut generator, NOON))
            .collect();
        assert_eq!(batch(&records).records().collect::<Vec<_>>(), records);
    }
}

#[test]
fn times_and_numbers_at_their_limits_are_read_as_written() {
    let numbers = [
        i64::MIN.into(),
        i64::MAX.into(),
        float(f64::MAX),
        float(f64::MIN_POSITIVE / 4.0),
        float(f64::from(f32::MIN_POSITIVE)),
        float(f64::from(f32::MIN_POSITIVE) / 2.0),
        float(f64::from(f32::MAX)),
        float(0.0),
    ];
    let times = [0, u64::MAX, 1, u64::MAX / 2];
    let mut records = Vec::new();
    for number in numbers {
        for time in times {
            records.push(StatRecord {
                time: UnixTime::from_millis(time),
                ..record(0, "a", Sample::Event(number))
            });
        }
    }
    assert_eq!(batch(&records).records().collect::<Vec<_>>(), records);
}

#[test]
fn every_prefix_and_flipped_bit_is_refused_or_has_one_encoding() {
    let bytes = encoded(&one_of_each());
    for cut in 0..bytes.len() {
        check_canonical(&bytes[..cut]);
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1 << bit;
            check_canonical(&flipped);
        }
    }
}

fn check_canonical(bytes: &[u8]) {
    if let Ok(batch) = Batch::decode(bytes) {
        let records: Vec<_> = batch.records().collect();
        assert_eq!(records.len(), batch.record_count());
        assert_eq!(encoded(&records), bytes);
    }
}

#[test]
fn fields_out_of_range_are_refused() {
    let head = [1, 0, 0];
    for (rest, error) in [
        (&[][..], BatchError::Truncated),
        // Series 1, where 0 is the next.
        (&[1], BatchError::Count),
        (&[0, 1], BatchError::Count),
        (&[0, 0, 0], BatchError::Name),
        (&[0, 0, 1, b'A'], BatchError::Name),
        (&[0, 0, 2, b'a'], BatchError::Name),
        // Nine dimensions.
        (&[0, 0, 1, b'a', 9], BatchError::Count),
        // A dimension twice.
        (
            &[0, 0, 1, b'a', 2, 0, 0, 1, b'x', 0, 0],
            BatchError::Repeated,
        ),
        // A name defined twice.
        (&[0, 0, 1, b'a', 1, 1, 1, b'a'], BatchError::Repeated),
        (&[0, 0, 1, b'a', 1, 0, 0, 0], BatchError::Text),
        (&[0, 0, 1, b'a', 1, 0, 0, 1, 0xff], BatchError::Text),
        (&[0, 0, 1, b'a', 1, 0, 0, 1, b'\n'], BatchError::Text),
        (&[0, 0, 1, b'a', 0, 0x80, 0], BatchError::Number),
        // A second record with unknown bits, and a state with a number.
        (&[0, 0, 1, b'a', 0, 0, 0x20], BatchError::Head(0x20)),
        (&[0, 0, 1, b'a', 0, 0, 0x0c], BatchError::Head(0x0c)),
        (&[0, 0, 1, b'a', 0, 0, 6, 0, 0], BatchError::Head(6)),
        // A series defined twice.
        (
            &[0, 0, 1, b'a', 0, 0, 0, 0, 1, 0, 0, 0],
            BatchError::Repeated,
        ),
    ] {
        let bytes = [&head, rest].concat();
        assert_eq!(Batch::decode(&bytes), Err(error), "{bytes:02x?}");
    }
    assert_eq!(Batch::decode(&[1]), Err(BatchError::Truncated));
    // A player defined twice.
    let (first, second) = ([1, 0x10, 0, 0, 0, 1, b'a', 0, 0], [0, 0x10, 0, 0, 1]);
    for (other, error) in [(7, Some(BatchError::Repeated)), (8, None)] {
        let bytes = [&first[..], &[7; 8], &second, &[other; 8], &[0]].concat();
        assert_eq!(Batch::decode(&bytes).err(), error);
    }
    let long = vec![1; BATCH_BYTES_MAX + 1];
    assert_eq!(Batch::decode(&long), Err(BatchError::Count));
}

#[test]
fn floats_have_their_shortest_finite_form() {
    let start = [1, 8, 0, 0, 0, 1, b'a', 0];
    for value in [f64::NAN, f64::INFINITY, -0.0, 0.0, 1.5] {
        let bytes = [&start[..], &value.to_be_bytes()].concat();
        assert_eq!(Batch::decode(&bytes), Err(BatchError::Number), "{value}");
    }
    let start = [1, 4, 0, 0, 0, 1, b'a', 0];
    for value in [f32::NAN, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 2.0] {
        let bytes = [&start[..], &value.to_be_bytes()].concat();
        assert_eq!(Batch::decode(&bytes), Err(BatchError::Number), "{value}");
    }
}

#[test]
fn a_full_batch_fits_a_record_of_a_link() {
    let mut writer = BatchWriter::default();
    let mut count = 0;
    let long = "x".repeat(StatText::LEN_MAX);
    loop {
        let dimensions = (0..8).map(|at| (name(&format!("{at:032}")), text(&long)));
        let mut record = record(count, "a", Sample::State(text(&format!("{count:064}"))));
        record.key = StatKey::new(name(&format!("{count:032}")), dimensions.collect()).unwrap();
        record.player = Some(ClientId(count));
        match writer.push(&record) {
            Ok(()) => count += 1,
            Err(BatchFull) => break,
        }
    }
    let bytes = writer.take();
    assert!(bytes.len() <= BATCH_BYTES_MAX, "{}", bytes.len());
    let batch = Batch::decode(&bytes).unwrap();
    assert_eq!(u64::try_from(batch.record_count()).unwrap(), count);
    assert!(writer.is_empty());
}

/// 60 ticks a second for a minute of a server of 64 players, with its maps, weapons and durations.
#[test]
fn hub_h12_an_event_takes_at_most_20_bytes() {
    let mut generator = Seed::from_number(1).generator(0);
    let (mut writer, mut bytes, mut count) = (BatchWriter::default(), 0, 0);
    let players: Vec<_> = (0..64).map(|_| ClientId(generator.next_u64())).collect();
    for tick in 0..3_600_u64 {
        let time = UnixTime::from_millis(1_800_000_000_000 + tick * 1_000 / 60);
        let player = players[pick(&mut generator, 64)];
        let weapon = ["rifle", "pistol", "knife"][pick(&mut generator, 3)];
        let map = format!("map=dust region=eu weapon={weapon}");
        let micros = f64::from(generator.next_u32()) / 1e6;
        for (words, player, sample) in [
            ("tick_us region=eu", None, Sample::Event(float(micros))),
            (
                "rtt_ms region=eu",
                Some(player),
                Sample::Event(i64::from(generator.next_u32() % 300).into()),
            ),
            (
                &format!("damage {map}"),
                Some(player),
                Sample::Event(i64::from(generator.next_u32() % 100).into()),
            ),
            (&format!("kill {map}"), Some(player), Sample::Add(1.into())),
        ] {
            let record = StatRecord {
                time,
                player,
                key: key(words),
                sample,
            };
            if writer.push(&record).is_err() {
                bytes += writer.take().len();
                writer.push(&record).unwrap();
            }
            count += 1;
        }
        // A batch a second.
        if tick % 60 == 59 {
            bytes += writer.take().len();
        }
    }
    let whole = u32::try_from(bytes).unwrap();
    eprintln!("{:.1} bytes an event", f64::from(whole) / f64::from(count));
    assert!(
        bytes <= 20 * usize::try_from(count).unwrap(),
        "{bytes} bytes for {count}"
    );
}
