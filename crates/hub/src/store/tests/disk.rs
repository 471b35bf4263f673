//! Disks that fail for a while, and disks that are at work without a pause.

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
    assert_eq!(store.stats().rotten, 0);
}

#[test]
fn hub_1_what_was_read_before_a_read_fails_is_given_and_the_rest_waits() {
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
fn rot_that_a_read_finds_costs_that_mail_and_is_counted() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=3 {
        append(&mut store, mail(epoch, seq, 9, b"well met")).unwrap();
    }
    let (_, entry) = store
        .log
        .index()
        .mails_after(ClientId(9), MailSeq(1))
        .next()
        .unwrap();
    let at = usize::try_from(entry.place.offset).unwrap() + 20;
    store.files_mut().flip_bit(entry.place.segment, at, 1);
    assert_eq!(read_all(&mut store, 9).len(), 2);
    assert_eq!((store.stats().rotten, store.mail_count()), (1, 2));
}

#[test]
fn hub_6_a_store_that_never_rests_stays_within_its_bound_of_the_disk() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let mut most = 0;
    for seq in 1..=3_000 {
        // One of ten waits while 200 others come, so that each segment has mail to be copied.
        let (slow, is_slow) = (seq / 10 % 20, seq % 10 == 0);
        let player = if is_slow { 1 + slow } else { 0 };
        append(&mut store, mail(epoch, seq, player, &vec![5; 20_000])).unwrap();
        let last = store.log.index().last_mail;
        let reader = if is_slow { 1 + (slow + 1) % 20 } else { 0 };
        acknowledge(&mut store, reader, last).unwrap();
        // Never idle: `tidy` is not called.
        while store.keep_up() {}
        let allowed = 2 * store.log.index().live_bytes() + 6 * segment;
        assert!(store.files_mut().used() <= allowed, "at mail {seq}");
        most = most.max(store.files_mut().list().unwrap().len());
    }
    assert!(most > 4, "nothing was ever to be removed");
}

#[test]
fn a_next_segment_is_made_before_it_is_needed_under_load_too() {
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
        let last = store.log.index().last_mail;
        acknowledge(&mut store, 9, last).unwrap();
    }
}
