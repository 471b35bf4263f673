//! Full stores, segments prepared ahead of need, and broken records in the oldest segment.

use super::many::{mail_many, settle};
use super::*;
use crate::log::Prepared;

fn status(store: &mut Store<MemorySegments>) -> StoreStatus {
    match run(store, StoreOp::Status) {
        Ok(Completed::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// Appends mails of `len` bytes until one is not stored; returns the verdict and how many were.
fn fill(store: &mut Store<MemorySegments>, epoch: Epoch, len: usize) -> (MailVerdict, u64) {
    for seq in 1.. {
        match append(store, mail(epoch, seq, seq % 50, &vec![5; len])).unwrap() {
            MailVerdict::Stored => while store.tidy() {},
            verdict => return (verdict, seq - 1),
        }
    }
    unreachable!("the range has no end");
}

#[test]
fn hub_1_a_full_disk_is_reported_with_its_reason_until_there_is_room() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(3 * segment));
    let epoch = join(&mut store, 1);
    assert_eq!(status(&mut store).full, None);
    let (verdict, stored) = fill(&mut store, epoch, 20_000);
    assert_eq!(verdict, MailVerdict::Full);
    assert_eq!(store.stats().full, 1);
    let found = status(&mut store);
    assert_eq!((found.full, found.mails), (Some(FullReason::Disk), stored));
    store.files_mut().set_capacity(4 * segment);
    assert_eq!(status(&mut store).full, None, "one segment is free");
    let next = mail(epoch, stored + 1, 9, &vec![5; 20_000]);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
}

#[test]
fn hub_1_a_full_limit_is_reported_until_an_eighth_of_a_percent_is_free() {
    let mut config = small();
    config.mails_max = 1_600;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    assert_eq!(fill(&mut store, epoch, 10), (MailVerdict::Full, 1_600));
    for seq in 1..=2 {
        assert_eq!(status(&mut store).full, Some(FullReason::Limit));
        acknowledge(&mut store, seq, MailSeq(seq)).unwrap();
    }
    assert_eq!(status(&mut store).full, None);
}

#[test]
fn hub_1_an_eighth_of_a_segment_is_the_least_room_that_takes_mail() {
    let least = StoreConfig::SEGMENT_BYTES_MIN;
    let mut config = small();
    config.segment_bytes = 8 * least;
    for (free, takes) in [(least - 1, false), (least, true), (3 * least, true)] {
        let mut store = Store::open(MemorySegments::new(8 * least + free), config, LOG).unwrap();
        let epoch = join(&mut store, 1);
        let (_, stored) = fill(&mut store, epoch, 20_000);
        let in_first = 7 * least / 20_100;
        assert_eq!(stored > in_first + 10, takes, "{stored} with {free} bytes");
        let disk = store.into_files();
        let mut store = Store::open(disk, config, LOG).unwrap();
        assert_eq!(store.mail_count() as u64, stored);
        for player in 0..50 {
            for mail in read_all(&mut store, player) {
                acknowledge(&mut store, player, mail.seq).unwrap();
                while store.tidy() {}
            }
        }
        assert_eq!(store.mail_count(), 0);
    }
}

#[test]
fn hub_1_state_that_outgrew_a_short_segment_does_not_end_the_log() {
    let least = StoreConfig::SEGMENT_BYTES_MIN;
    let mut config = small();
    config.segment_bytes = 16 * least;
    let mut store = Store::open(MemorySegments::new(18 * least), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    while store.tidy() {}
    for batch in 1..=190 {
        let entries = (0..64)
            .map(|number| Name::new(&format!("{batch:016}{number:016}")).unwrap())
            .map(|name| (CountKey::from(name), 1))
            .collect();
        let op = StoreOp::Count {
            node: NODE,
            epoch,
            batch: BatchSeq(batch),
            entries,
        };
        run(&mut store, op).unwrap();
    }
    let (verdict, stored) = fill(&mut store, epoch, 20_000);
    assert_eq!(verdict, MailVerdict::Full);
    assert!(!store.is_dead());
    store.files_mut().set_capacity(64 * least);
    assert_eq!(status(&mut store).full, None);
    let next = mail(epoch, stored + 1, 9, &vec![5; 20_000]);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
}

#[test]
fn no_append_waits_for_a_segment_that_was_prepared_in_time() {
    let mut disk = MemorySegments::new(1 << 30);
    disk.prepare_slowly();
    let mut store = open(disk);
    let epoch = join(&mut store, 1);
    let first = store.files_mut().preparation_waits();
    assert_eq!(first, 1, "the first segment");
    let mut prepared = 0;
    for seq in 1..=300 {
        append(&mut store, mail(epoch, seq, seq % 50, &vec![5; 20_000])).unwrap();
        while store.keep_up() {}
        // The other thread takes as long as ten mails.
        if seq % 10 == 0 {
            prepared += u64::from(store.files_mut().finish_preparation());
        }
    }
    assert!(prepared > 8, "{prepared} segments");
    assert_eq!(store.files_mut().preparation_waits(), first);
    // A thread that never ends is waited for, and no mail is lost.
    for seq in 301..=400 {
        append(&mut store, mail(epoch, seq, seq % 50, &vec![5; 20_000])).unwrap();
        while store.keep_up() {}
    }
    assert!(store.files_mut().preparation_waits() > first);
    assert_eq!(open(store.into_files()).mail_count(), 400);
    let mut files = MemorySegments::new(1 << 30);
    assert_eq!(files.prepare(SegmentId(1), 1), Ok(Prepared::Done));
}

#[test]
fn sim_hub_1_broken_records_in_the_oldest_segment_do_not_stop_trimming() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    for seed in 0..40 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        let mut kept = 0;
        for seq in 1..=1_500 {
            // Every tenth mail is never acknowledged, and must be copied.
            let player = if seq % 10 == 0 { 1_000 + seq } else { 9 };
            kept += u64::from(player != 9);
            append(&mut store, mail(epoch, seq, player, &vec![5; 5_000])).unwrap();
            let last = store.log.index.last_mail;
            acknowledge(&mut store, 9, last).unwrap();
            if seq % 100 == 0 {
                let (oldest, len) = store.files_mut().list().unwrap()[0];
                let at = usize::try_from(generator.below(len)).unwrap();
                store.files_mut().flip_bit(oldest, at, 3);
            }
            while store.tidy() {}
            let allowed = 2 * store.log.index.live_bytes() + 6 * segment;
            let used = store.files_mut().used();
            assert!(used <= allowed, "seed {seed}, mail {seq}: {used}");
        }
        let lost = kept - store.mail_count() as u64;
        assert_eq!(lost, store.stats().corrupt, "seed {seed}");
        assert!(lost <= 15, "one mail a flip, at most");
        let mut readable = 0;
        for player in (10..=1_500).step_by(10) {
            readable += read_all(&mut store, 1_000 + player).len() as u64;
        }
        assert_eq!(readable, store.mail_count() as u64);
        assert_eq!(status(&mut store).corrupt, store.stats().corrupt);
    }
}

#[test]
fn hub_1_a_shared_record_behind_a_broken_one_is_copied_once() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    append(&mut store, mail(epoch, 1, 900, &[5; 5_000])).unwrap();
    let (_, broken) = store
        .log
        .index
        .mails_after(ClientId(900), MailSeq(0))
        .next()
        .unwrap();
    let at = usize::try_from(broken.place.offset).unwrap() + 20;
    store.files_mut().flip_bit(broken.place.segment, at, 3);
    let players: Vec<u64> = (1_000..1_100).collect();
    settle(&mut store, mail_many(epoch, 2, &players, &vec![6; 20_000]));
    for seq in 3..=400 {
        append(&mut store, mail(epoch, seq, 9, &vec![5; 20_000])).unwrap();
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 9, last).unwrap();
        while store.tidy() {}
    }
    let (oldest, _) = store.files_mut().list().unwrap()[0];
    assert!(oldest > broken.place.segment, "the segment was not copied");
    assert_eq!((store.mail_count(), store.stats().corrupt), (100, 1));
    let live = store.log.index.live_bytes();
    assert!(live < 25_000, "{live} bytes for one body");
    let mut store = open(store.into_files());
    for player in players {
        assert_eq!(read_all(&mut store, player)[0].body.0, vec![6; 20_000]);
    }
}

#[test]
fn hub_1_on_a_full_disk_one_mail_keeps_no_segment_without_others() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(6 * segment));
    let epoch = join(&mut store, 1);
    append(&mut store, mail(epoch, 1, 900, b"kept")).unwrap();
    let (mut seq, mut verdict) = (1, MailVerdict::Stored);
    while verdict == MailVerdict::Stored {
        seq += 1;
        verdict = append(&mut store, mail(epoch, seq, seq % 50, &vec![5; 20_000])).unwrap();
        while store.tidy() {}
    }
    assert_eq!(verdict, MailVerdict::Full);
    // All but the first mail are read.
    for player in 0..50 {
        let last = store.log.index.last_mail;
        acknowledge(&mut store, player, last).unwrap();
        while store.tidy() {}
    }
    assert_eq!(store.mail_count(), 1);
    assert_eq!(status(&mut store).full, None);
    while store.tidy() {}
    let next = append(&mut store, mail(epoch, seq, 7, &vec![5; 20_000]));
    assert_eq!(next, Ok(MailVerdict::Stored));
    let mut store = open(store.into_files());
    assert_eq!(read_all(&mut store, 900)[0].body.0, "kept");
}
