//! Bytes that changed on the disk, or are missing.

use super::*;

#[test]
fn corruption_in_an_older_segment_costs_one_mail_and_is_counted() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![5; 20_000])).unwrap();
    }
    store.files_mut().flip_bit(SegmentId(1), 50_000, 3);
    let store = open(store.into_files());
    assert_eq!(store.recovery().corrupt, 1);
    assert_eq!(store.mail_count(), 99);
}

#[test]
fn corruption_of_the_newest_state_stops_the_start() {
    for offset in [0, 10, 20] {
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        append(&mut store, mail(epoch, 1, 9, b"a")).unwrap();
        let mut disk = store.into_files();
        disk.flip_bit(SegmentId(1), offset, 3);
        let error = Store::open(disk, small(), LOG).unwrap_err().error;
        assert_eq!(error, OpenError::Corrupt(SegmentId(1)), "at {offset}");
    }
}

#[test]
fn a_record_of_another_release_stops_the_start() {
    struct Future;
    impl Future {
        fn disk() -> MemorySegments {
            let mut disk = open(MemorySegments::new(1 << 30)).into_files();
            let mut record = Vec::new();
            let start = LogRecord::Start(Start {
                version: 1,
                boot: 1,
                last_mail: MailSeq(0),
                log: LOG,
                time: NOW,
            });
            crate::log::format::encode(&start, SegmentId(1), 0, &mut record);
            // Version 3 with a valid checksum.
            record[HEAD_BYTES + 10] = 3;
            let payload = record.split_off(HEAD_BYTES);
            let mut crc = crc32c::crc32c(&1_u64.to_be_bytes());
            for part in [&0_u64.to_be_bytes()[..], &record[4..8], &payload] {
                crc = crc32c::crc32c_append(crc, part);
            }
            record[..4].copy_from_slice(&crc.to_be_bytes());
            record.extend(payload);
            disk.write(SegmentId(1), 0, &record).unwrap();
            disk
        }
    }
    let error = Store::open(Future::disk(), small(), LOG).unwrap_err().error;
    assert_eq!(error, OpenError::Foreign(SegmentId(1)));
}

#[test]
fn hub_1_no_flipped_bit_in_the_newest_state_loses_mail_silently() {
    let disk = one_acknowledged();
    let newest = *used(&mut disk.clone()).last().unwrap();
    let mut stopped = 0;
    // Start, a node, Ready: every bit of every byte.
    for at in 0..47 + 69 + 9 {
        for bit in 0..8 {
            let mut corrupt = disk.clone();
            corrupt.flip_bit(newest, at, bit);
            match Store::open(corrupt, small(), LOG) {
                Ok(mut store) => assert_eq!(read_all(&mut store, 9).len(), 1, "{at} {bit}"),
                Err(failure) => {
                    assert_eq!(failure.error, OpenError::Corrupt(newest), "{at} {bit}");
                    stopped += 1;
                }
            }
        }
    }
    assert!(stopped > 800, "{stopped}");
}

#[test]
fn hub_1_swapped_segments_stop_the_start() {
    let mut disk = one_acknowledged();
    let used = used(&mut disk);
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        let (one, other) = (used[one], used[other]);
        let mut swapped = disk.clone();
        swapped.swap(one, other);
        let error = Store::open(swapped, small(), LOG).unwrap_err().error;
        assert!(matches!(error, OpenError::Corrupt(_)), "{one:?} {other:?}");
    }
}

#[test]
fn a_corrupt_length_in_an_older_segment_costs_one_mail() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![5; 20_000])).unwrap();
    }
    let (_, entry) = store
        .log
        .index
        .mails_after(ClientId(3), MailSeq(0))
        .next()
        .unwrap();
    let place = usize::try_from(entry.place.offset).unwrap();
    let disk = store.into_files();
    // Each byte of the header, and an unreadable sector.
    for at in place..place + HEAD_BYTES {
        let mut corrupt = disk.clone();
        corrupt.flip_bit(entry.place.segment, at, 1);
        let store = open(corrupt);
        assert_eq!(store.recovery().corrupt, 1);
        assert_eq!(store.mail_count(), 99, "{at}");
    }
    let mut lost = disk;
    lost.write(entry.place.segment, entry.place.offset, &[0; 512])
        .unwrap();
    let store = open(lost);
    assert_eq!(store.recovery().corrupt, 1);
    assert_eq!(store.mail_count(), 99);
}

#[test]
fn a_truncated_segment_loses_only_the_removed_part() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![5; 20_000])).unwrap();
    }
    let disk = store.into_files();
    let segments = disk.clone().list().unwrap();
    for (segment, len) in segments {
        for left in [40, 109, 200, len / 2, len - 1] {
            let mut cut = disk.clone();
            cut.truncate(segment, usize::try_from(left).unwrap());
            let Ok(mut store) = Store::open(cut, small(), LOG) else {
                continue;
            };
            // The remaining mail stays usable.
            let before = store.mail_count();
            let Ok(Completed::Joined {
                epoch, mail_mark, ..
            }) = run(
                &mut store,
                StoreOp::Join {
                    node: NODE,
                    instance: InstanceId(2),
                    epoch: Epoch(0),
                    role: Role::GameNode,
                },
            )
            else {
                panic!("{segment:?} cut to {left}");
            };
            let next = mail(epoch, mail_mark.0 + 1, 200, b"new");
            assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
            let store = open(store.into_files());
            assert_eq!(store.mail_count(), before + 1, "{segment:?} cut to {left}");
        }
    }
}

/// A segment of version 1, as written by the release before the key-value store: a run of `NODE` and
/// one mail.
const LOG_V1: &str = "\
    5d74f1ee000000270054574855424c4f4700010000000100000000000000000000000000000007000000000000\
    0000182fdc9c0000000101d51703810000003d0307070707070707070707070707070707070707070707070707\
    0707070707070700000000000000010000000100000000000000000000000000000000842cddd9000000470400\
    00000000000001000000000000000200000000001e848007070707070707070707070707070707070707070707\
    070707070707070707070000000100000000000000016869\
";

#[test]
fn hub_h12_a_log_of_version_1_is_read_and_continued() {
    let digits = LOG_V1.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap());
    let bytes: Vec<_> = bytes.collect();
    let mut disk = MemorySegments::new(1 << 30);
    disk.allocate(SegmentId(1), StoreConfig::SEGMENT_BYTES_MIN)
        .unwrap();
    disk.write(SegmentId(1), 0, &bytes).unwrap();
    disk.sync(SegmentId(1)).unwrap();
    let mut store = open(disk);
    let mails = read_all(&mut store, 2);
    assert_eq!(&mails[0].body[..], b"hi");
    assert_eq!(join(&mut store, 1), Epoch(1));
    let op = StoreOp::Kv(KvOp::Put {
        by: None,
        lease: false,
        key: crate::kv::KvKey::new("a").unwrap(),
        expected: None,
        value: Redacted(Bytes::from_static(b"b")),
    });
    run(&mut store, op).unwrap();
    let mut store = open(store.into_files());
    assert_eq!(read_all(&mut store, 2), mails);
    let load = KvOp::Load {
        after: None,
        bytes_max: 1,
    };
    let loaded = run(&mut store, StoreOp::Kv(load)).unwrap();
    let Completed::Kv(KvOutcome::Loaded { entries, .. }) = loaded else {
        panic!("{loaded:?}")
    };
    assert_eq!(entries.len(), 1);
}
