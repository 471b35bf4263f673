//! Disks that fail temporarily or permanently, fill up, or are never idle.

use super::*;

fn read(store: &mut Store<MemorySegments>, player: u64) -> Outcome {
    let read = StoreOp::Read {
        player: ClientId(player),
        after: MailSeq(0),
        bytes_max: 1 << 20,
        now: NOW,
    };
    run(store, read)
}

#[test]
fn hub_1_a_read_that_fails_once_loses_no_mail() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=40 {
        append(&mut store, mail(epoch, seq, 9, &vec![5; 20_000])).unwrap();
    }
    store.files_mut().fail_reads(0, 1);
    assert_eq!(read(&mut store, 9), Err(StoreError::Busy));
    assert_eq!(store.stats().unreadable, 1);
    while store.tidy() {}
    assert!(!store.is_dead());
    assert_eq!(read_all(&mut store, 9).len(), 40);
    assert_eq!(store.stats().corrupt, 0);
}

#[test]
fn hub_1_mail_read_before_a_failed_read_is_delivered_and_the_rest_waits() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=3 {
        append(&mut store, mail(epoch, seq, 9, b"well met")).unwrap();
    }
    store.files_mut().fail_reads(2, 1);
    let Ok(Completed::Mails { mails, more }) = read(&mut store, 9) else {
        panic!("two of three can be read");
    };
    assert_eq!((mails.len(), more), (2, true));
    assert_eq!(read_all(&mut store, 9).len(), 3);
}

#[test]
fn corruption_found_by_a_read_costs_that_mail_and_is_counted() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=3 {
        append(&mut store, mail(epoch, seq, 9, b"well met")).unwrap();
    }
    let (_, entry) = store
        .log
        .index
        .mails_after(ClientId(9), MailSeq(1))
        .next()
        .unwrap();
    let at = usize::try_from(entry.place.offset).unwrap() + 20;
    store.files_mut().flip_bit(entry.place.segment, at, 1);
    assert_eq!(read_all(&mut store, 9).len(), 2);
    assert_eq!((store.stats().corrupt, store.mail_count()), (1, 2));
}

#[test]
fn hub_6_a_store_that_is_never_idle_stays_within_its_disk_limit() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let mut most = 0;
    for seq in 1..=3_000 {
        // One of ten mails waits while 200 others arrive, so each segment has mail to copy.
        let (slow, is_slow) = (seq / 10 % 20, seq % 10 == 0);
        let player = if is_slow { 1 + slow } else { 0 };
        append(&mut store, mail(epoch, seq, player, &vec![5; 20_000])).unwrap();
        let last = store.log.index.last_mail;
        let reader = if is_slow { 1 + (slow + 1) % 20 } else { 0 };
        acknowledge(&mut store, reader, last).unwrap();
        // Never idle: `tidy` is not called.
        while store.keep_up() {}
        let allowed = 2 * store.log.index.live_bytes() + 6 * segment;
        assert!(store.files_mut().used() <= allowed, "at mail {seq}");
        most = most.max(store.files_mut().list().unwrap().len());
    }
    assert!(most > 4, "nothing was ever to be removed");
}

#[test]
fn the_next_segment_is_preallocated_also_under_load() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let mut without = 0;
    for seq in 1..=200 {
        append(&mut store, mail(epoch, seq, 9, &vec![5; 5_000])).unwrap();
        while store.keep_up() {}
        let allocated = store.files_mut().list().unwrap().len();
        let is_ready = allocated > used(store.files_mut()).len();
        without = if is_ready { 0 } else { without + 1 };
        assert!(
            without < 20,
            "at mail {seq}, a hundred of which fill a segment"
        );
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 9, last).unwrap();
    }
}

#[test]
fn a_missing_segment_in_the_middle_stops_the_start() {
    let mut disk = one_acknowledged();
    let used = used(&mut disk);
    assert!(used.len() > 2);
    for (place, segment) in used.iter().enumerate() {
        let mut without = disk.clone();
        without.remove(*segment).unwrap();
        let opened = Store::open(without, small(), LOG).map(drop);
        let error = opened.map_err(|failure| failure.error);
        match place {
            // It cannot be distinguished from one that was removed when its mail was acknowledged.
            0 => assert_eq!(error, Ok(())),
            _ if *segment == *used.last().unwrap() => {}
            _ => assert_eq!(error, Err(OpenError::Missing(*segment))),
        }
    }
}

#[test]
fn hub_2_an_acknowledgement_for_another_log_drops_no_mail() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=5 {
        append(&mut store, mail(epoch, seq, 9, b"well met")).unwrap();
    }
    assert_eq!(
        acknowledge(&mut store, 9, MailSeq(500)),
        Ok(Completed::Acked)
    );
    assert_eq!(read_all(&mut store, 9).len(), 5);
    assert_eq!(store.stats().acks_void, 1);
}

#[test]
fn a_log_keeps_its_id_and_its_time() {
    let state = |store: &mut Store<MemorySegments>| {
        let op = StoreOp::Join {
            node: NODE,
            instance: InstanceId(1),
            epoch: Epoch(0),
            role: Role::GameNode,
        };
        let Ok(Completed::Joined { log, newest, .. }) = run(store, op) else {
            panic!("there is room for a node");
        };
        (log, newest)
    };
    let mut store = open(MemorySegments::new(1 << 30));
    assert_eq!(state(&mut store), (LOG, UnixTime::default()));
    let times = [NOW, LATER, NOW];
    for time in times {
        run(&mut store, StoreOp::Expire { now: time }).unwrap();
        assert_eq!(
            state(&mut store),
            (LOG, time),
            "what was last believed counts"
        );
        // The time is not written on every tick.
        let syncs = store.files_mut().syncs();
        let soon = time + Duration::from_secs(59);
        run(&mut store, StoreOp::Expire { now: soon }).unwrap();
        assert_eq!(store.files_mut().syncs(), syncs);
    }
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(1).generator(0));
    let mut store = Store::open(disk, small(), LogId(99)).unwrap();
    assert_eq!(state(&mut store), (LOG, NOW));
    // The time is in the next segment too, after the first one was removed.
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, 9, &vec![5; 20_000])).unwrap();
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 9, last).unwrap();
        while store.tidy() {}
    }
    let mut store = open(store.into_files());
    assert_eq!(state(&mut store), (LOG, NOW));
}

#[test]
fn a_renewed_log_keeps_its_mail_under_another_id_after_each_crash() {
    for steps in 0..12 {
        let mut store = Store::open(one_acknowledged(), small(), LogId(99)).unwrap();
        let before = store.mail_count();
        store.files_mut().stop_after(steps);
        let renewed = store.renew_log_id(LogId(50));
        let mut disk = store.into_files();
        disk.power_cut(&mut Seed::from_number(steps).generator(0));
        let store = Store::open(disk, small(), LogId(98)).unwrap();
        assert_eq!(store.mail_count(), before);
        let id = store.log.index.log;
        assert!(id == LogId(50) || (renewed.is_err() && id == LOG), "{id:?}");
    }
    let mut full = open(MemorySegments::new(small().segment_bytes()));
    assert_eq!(full.renew_log_id(LogId(50)), Err(StoreError::Full));
    assert_eq!(full.log.index.log, LOG);
}

#[test]
fn a_full_or_unreadable_disk_does_not_open() {
    let mut disk = MemorySegments::new(0);
    assert_eq!(disk.allocate(SegmentId(1), 1), Err(FileError::Full));
    assert_eq!(
        Store::open(disk, small(), LOG).unwrap_err().error,
        OpenError::Full
    );
    for failing in 0..3 {
        let mut disk = one_acknowledged();
        disk.fail_reads(failing, 1);
        assert_eq!(
            Store::open(disk, small(), LOG).unwrap_err().error,
            OpenError::Failed
        );
    }
}

#[test]
fn hub_1_a_disk_that_is_full_at_any_allocation_keeps_what_was_stored() {
    for allocations in 0..12 {
        let mut disk = MemorySegments::new(1 << 30);
        disk.fill_after(allocations);
        let Ok(mut store) = Store::open(disk, small(), LOG) else {
            assert_eq!(allocations, 0);
            continue;
        };
        let epoch = join(&mut store, 1);
        let mut stored = 0;
        for seq in 1..=300 {
            match append(&mut store, mail(epoch, seq, seq % 10, &vec![5; 20_000])) {
                Ok(MailVerdict::Stored) => stored += 1,
                Ok(MailVerdict::Full) => break,
                other => panic!("{other:?}"),
            }
            while store.tidy() {}
        }
        assert!(!store.is_dead());
        assert_eq!(stored == 300, allocations > 10, "{stored}, {allocations}");
        let mut disk = store.into_files();
        disk.power_cut(&mut Seed::from_number(allocations).generator(0));
        assert_eq!(open(disk).mail_count(), stored, "{allocations}");
    }
}

#[test]
fn hub_1_a_failed_write_ends_the_log_and_loses_nothing_stored() {
    for operations in 0..60 {
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        store.files_mut().stop_after(operations);
        let mut stored = 0;
        for seq in 1..=100 {
            match append(&mut store, mail(epoch, seq, seq % 5, &vec![5; 30_000])) {
                Ok(MailVerdict::Stored) => stored += 1,
                Ok(MailVerdict::Busy | MailVerdict::Full) => {}
                Err(StoreError::Failed) => break,
                other => panic!("{other:?}"),
            }
            while store.tidy() {}
        }
        assert!(store.is_dead(), "{operations}");
        let mut disk = store.into_files();
        disk.power_cut(&mut Seed::from_number(operations).generator(0));
        let found = open(disk).mail_count();
        assert!((stored..=stored + 1).contains(&found), "{operations}");
    }
}
