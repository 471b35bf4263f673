//! Snapshots of the mail index: written, interrupted, broken, misplaced.

use core::ops::Range;
use std::collections::BTreeSet;

use super::*;
use crate::log::{SnapshotId, snapshot_format};

/// Appends the mails `seqs` of the sender to `players` mailboxes, in batches.
fn append_many(
    store: &mut Store<MemorySegments>,
    epoch: Epoch,
    seqs: Range<u64>,
    body: usize,
    players: u64,
) {
    for start in seqs.clone().step_by(500) {
        let mails = (start..seqs.end.min(start + 500))
            .map(|seq| mail(epoch, seq, seq % players, &vec![5; body]))
            .collect();
        let Ok(Completed::Appended(settled)) = run(store, StoreOp::Append(mails)) else {
            panic!("the disk works");
        };
        let is_stored = |one: &Settled| one.verdict == MailVerdict::Stored;
        assert!(settled.iter().all(is_stored));
    }
}

fn newest_snapshot(disk: &mut MemorySegments) -> SnapshotId {
    *disk
        .list_snapshots()
        .unwrap()
        .last()
        .expect("one is written")
}

pub(super) fn without_snapshots(disk: &MemorySegments) -> MemorySegments {
    let mut disk = disk.clone();
    for snapshot in disk.list_snapshots().unwrap() {
        disk.remove_snapshot(snapshot).unwrap();
    }
    disk
}

fn reopen(disk: &MemorySegments) -> Store<MemorySegments> {
    open(disk.clone())
}

/// A store with several segments and a snapshot of some of them.
fn with_snapshot() -> Store<MemorySegments> {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    append_many(&mut store, epoch, 1..61, 20_000, 7);
    while store.tidy() {}
    append_many(&mut store, epoch, 61..71, 20_000, 7);
    assert_eq!(store.stats().snapshots, 1);
    store
}

#[test]
fn a_start_restores_old_mails_from_a_snapshot_and_reads_the_rest() {
    let store = with_snapshot();
    let index = store.log.index.clone();
    let disk = store.into_files();
    let restored = reopen(&disk);
    let recovery = restored.recovery();
    assert!(recovery.restored > 20 && recovery.snapshots_ignored == 0);
    let replayed = open(without_snapshots(&disk));
    assert_eq!(replayed.recovery().restored, 0);
    assert!(replayed.recovery().segments > recovery.segments);
    for store in [restored, replayed] {
        assert_eq!(store.mail_count(), 70);
        let mut found = store.log.index.clone();
        found.boot = index.boot;
        assert_eq!(found, index);
    }
}

/// Property: whatever happens to mails, before, while and after a snapshot is written.
#[test]
fn an_index_restored_from_a_snapshot_equals_the_one_of_the_whole_log() {
    let (mut restored, mut copied) = (0, 0);
    for seed in 0..20 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        let mut seq = 1;
        let mut now = NOW;
        for _ in 0..400 {
            match generator.below(6) {
                0..=2 => {
                    for _ in 0..generator.below(6) {
                        let body = usize::try_from(generator.below(20_000)).unwrap();
                        let mut mail = mail(epoch, seq, generator.below(9), &vec![5; body]);
                        let life = Duration::from_millis(generator.below(3_000_000));
                        mail.expires = NOW + life;
                        append(&mut store, mail).unwrap();
                        seq += 1;
                    }
                }
                // Mailbox 0 waits, so that its mails are copied.
                3 => {
                    let last = store.log.index.last_mail.0;
                    let upto = MailSeq(last.saturating_sub(generator.below(9)));
                    acknowledge(&mut store, 1 + generator.below(8), upto).unwrap();
                }
                4 if generator.chance(100_000) => {
                    now = now + Duration::from_secs(60);
                    run(&mut store, StoreOp::Expire { now }).unwrap();
                }
                _ => {
                    for _ in 0..generator.below(8) {
                        store.tidy();
                    }
                }
            }
            if generator.chance(20_000) {
                let disk = store.files_mut().clone();
                let mut one = reopen(&disk);
                let mut other = open(without_snapshots(&disk));
                // Expiry is not in the log: expired mails may be back.
                let mut live = store.log.index.clone();
                for index in [&mut one.log.index, &mut other.log.index, &mut live] {
                    index.expire(now, u32::MAX);
                    index.boot = 0;
                }
                assert_eq!(one.log.index, other.log.index, "seed {seed}");
                assert_eq!(one.log.index, live, "seed {seed}");
                restored += u32::from(one.recovery().restored > 0);
                copied += u32::from(disk.clone().list().unwrap()[0].0 > SegmentId(1));
            }
        }
    }
    assert!(restored > 50 && copied > 50, "{restored} {copied}");
}

#[test]
fn a_crash_at_each_step_of_a_snapshot_loses_and_returns_no_mail() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    append_many(&mut store, epoch, 1..10_001, 20, 10_000);
    while store.tidy() {}
    assert_eq!(store.stats().snapshots, 1);
    append_many(&mut store, epoch, 10_001..20_001, 20, 10_000);
    let base = store.into_files();
    let mut generator = Seed::from_number(3).generator(0);
    let mut restored = BTreeSet::new();
    for fault in 0..60 {
        let operation = fault / 3;
        let mut store = reopen(&base);
        let before = newest_snapshot(store.files_mut());
        match fault % 3 {
            0 | 1 => store.files_mut().stop_after(operation),
            _ => store.files_mut().fail_sync_after(operation),
        }
        // What is acknowledged while a snapshot is written must not return.
        let (mut gone, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        let mut player = 0;
        loop {
            player += 37;
            let last = store.log.index.last_mail;
            match acknowledge(&mut store, player, last) {
                Ok(_) => gone.insert(player),
                Err(_) => unknown.insert(player),
            };
            if !store.tidy() {
                break;
            }
        }
        let mut disk = store.into_files();
        if fault % 3 == 0 {
            disk.kill();
        } else {
            disk.power_cut(&mut generator);
        }
        let found = newest_snapshot(&mut disk.clone());
        let mut store = open(disk);
        restored.insert((found > before, store.recovery().snapshots_ignored));
        for player in 0..10_000 {
            let count = store.log.index.mailbox(ClientId(player)).count;
            if gone.contains(&player) {
                assert_eq!(count, 0, "{fault}: mail of {player} is back");
            } else if !unknown.contains(&player) {
                assert_eq!(count, 2, "{fault}: mail of {player} is lost");
            }
        }
        assert_eq!(read_all(&mut store, 1).len(), 2);
    }
    // Unfinished ones, complete ones, and none at all.
    let all = [(false, 0), (true, 0), (true, 1)];
    assert_eq!(restored, BTreeSet::from(all));
}

#[test]
fn no_flipped_bit_in_a_snapshot_loses_mail() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    append_many(&mut store, epoch, 1..16, 60_000, 7);
    while store.tidy() {}
    let mut disk = store.into_files();
    let snapshot = newest_snapshot(&mut disk);
    let mut bytes = [0; 4_096];
    let len = disk.read_snapshot(snapshot, 0, &mut bytes).unwrap();
    assert!((100..4_096).contains(&len), "{len}");
    let expect_ignored = |disk: MemorySegments, at: usize| {
        let store = open(disk);
        assert_eq!(store.recovery().snapshots_ignored, 1, "{at}");
        assert_eq!(store.mail_count(), 15, "{at}");
    };
    for at in 0..len {
        // All bits of what frames the records, one of each byte of the entries.
        let is_frame = at < 60 || at + 40 >= len;
        for bit in 0..if is_frame { 8 } else { 1 } {
            let mut rotten = disk.clone();
            rotten.flip_snapshot_bit(snapshot, at, bit + u8::try_from(at % 8).unwrap());
            expect_ignored(rotten, at);
        }
    }
    for at in (0..len).step_by(5) {
        let mut cut = disk.clone();
        cut.truncate_snapshot(snapshot, at);
        expect_ignored(cut, at);
    }
}

#[test]
fn a_snapshot_of_another_log_or_another_time_is_ignored() {
    let disk = with_snapshot().into_files();
    let snapshot = newest_snapshot(&mut disk.clone());
    let mut bytes = vec![0; 1 << 20];
    let len = disk.clone().read_snapshot(snapshot, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    let expect_ignored = |disk: MemorySegments, mails: usize| {
        let mut store = open(disk);
        assert_eq!(store.recovery().snapshots_ignored, 1);
        assert_eq!(store.mail_count(), mails);
        assert_eq!(store.files_mut().list_snapshots().unwrap(), []);
    };
    // Another log with as many segments.
    let mut other = Store::open(MemorySegments::new(1 << 30), small(), LogId(8)).unwrap();
    let epoch = join(&mut other, 1);
    append_many(&mut other, epoch, 1..71, 20_000, 7);
    let mut other = other.into_files();
    other.append_snapshot(snapshot, &bytes).unwrap();
    expect_ignored(other, 70);
    // A number that it was not written under.
    let mut renamed = without_snapshots(&disk);
    renamed.append_snapshot(snapshot.next(), &bytes).unwrap();
    expect_ignored(renamed, 70);
    // The log ends before the snapshot was complete: the newest segments are gone.
    let mut shortened = disk.clone();
    let segments = used(&mut shortened);
    for segment in shortened.list().unwrap().into_iter().rev() {
        if segment.0 >= segments[1] {
            shortened.remove(segment.0).unwrap();
        }
    }
    let left = open(without_snapshots(&shortened)).mail_count();
    assert!(left < 30, "{left}");
    expect_ignored(shortened, left);
    // The same, with the segment's records gone, but not its state.
    let mut cut = disk;
    let (record, _) = snapshot_format::decode(&bytes, snapshot, 0).unwrap();
    let snapshot_format::SnapshotRecord::Head(head) = record else {
        panic!("{record:?}");
    };
    for (segment, len) in cut.list().unwrap().into_iter().rev() {
        if segment > head.segment {
            cut.remove(segment).unwrap();
        } else if segment == head.segment {
            let zeros = vec![0; usize::try_from(len).unwrap() - 200];
            cut.write(segment, 200, &zeros).unwrap();
        }
    }
    let left = open(without_snapshots(&cut)).mail_count();
    expect_ignored(cut, left);
}

#[test]
fn rot_behind_a_snapshot_or_a_mixed_up_file_makes_the_start_read_the_whole_log() {
    let mut store = with_snapshot();
    let epoch = join(&mut store, 1);
    append_many(&mut store, epoch, 71..131, 20_000, 7);
    let disk = store.into_files();
    let store = reopen(&disk);
    assert!(store.recovery().restored > 0);
    let covered = store.recovery().segments;
    let segments = used(&mut disk.clone());
    let older = segments[segments.len() - usize::try_from(covered).unwrap()];
    let mut rotten = disk.clone();
    rotten.flip_bit(older, 100_000, 3);
    let store = open(rotten);
    assert_eq!(
        (store.recovery().restored, store.recovery().corrupt),
        (0, 1)
    );
    assert_eq!(store.mail_count(), 129);
    let mut mixed_up = disk;
    mixed_up.flip_bit(segments[0], 3, 1);
    let store = open(mixed_up);
    assert_eq!(
        (store.recovery().restored, store.recovery().corrupt),
        (0, 1)
    );
    assert_eq!(store.mail_count(), 130);
}

#[test]
fn a_snapshot_is_written_in_bounded_steps_and_no_more_than_the_log() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let (mut seq, mut written, mut steps) = (1, 0, 0);
    while seq < 60_000 {
        append_many(&mut store, epoch, seq..seq + 500, 20, 500);
        for player in 0..250 {
            let last = store.log.index.last_mail;
            acknowledge(&mut store, player, last).unwrap();
        }
        seq += 500;
        loop {
            let disk = store.files_mut();
            let (segments, used, syncs) = (disk.list(), disk.used(), disk.syncs());
            let has_more = store.tidy();
            let disk = store.files_mut();
            // One step: a segment is allocated, or a part of a snapshot is written.
            if disk.list() == segments && disk.used() > used {
                let grown = disk.used() - used;
                assert!(grown <= 4 * (2_048 * 32 + 9) + 33, "{grown}");
                written += grown;
                steps += 1;
            }
            assert!(disk.syncs() <= syncs + 1);
            if !has_more {
                break;
            }
        }
    }
    let snapshots = store.stats().snapshots;
    assert!(
        snapshots > 5 && steps > 2 * snapshots,
        "{snapshots} {steps}"
    );
    let log = seq * 97;
    assert!(written <= log, "{written} of {log}");
    assert_eq!(store.files_mut().list_snapshots().unwrap().len(), 1);
}

#[test]
fn a_snapshot_that_cannot_be_written_is_dropped_and_the_store_lives() {
    for room in [0, 20, 100, 700] {
        let mut store = with_snapshot();
        let epoch = join(&mut store, 1);
        append_many(&mut store, epoch, 71..111, 20_000, 7);
        let used = store.files_mut().used();
        // The next segment is there, and `room` for the snapshot.
        store.tidy();
        let allocated = store.files_mut().used();
        store.files_mut().set_capacity(allocated.max(used) + room);
        while store.tidy() {}
        let stats = store.stats();
        assert_eq!((stats.snapshots, stats.snapshots_dropped), (1, 1), "{room}");
        assert!(!store.is_dead());
        let kept = store.files_mut().list_snapshots().unwrap();
        assert_eq!(kept, [SnapshotId(1)], "the one before stays");
        let store = open(store.into_files());
        assert_eq!(store.mail_count(), 110);
        assert!(store.recovery().restored > 0);
    }
}

#[test]
fn a_snapshot_gives_way_to_a_segment() {
    let mut store = with_snapshot();
    let epoch = join(&mut store, 1);
    while store.tidy() {}
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let used = store.files_mut().used();
    // Room for one more segment, less a few bytes.
    store.files_mut().set_capacity(used + segment - 10);
    append_many(&mut store, epoch, 71..116, 20_000, 7);
    assert_eq!(store.stats().snapshots_dropped, 1);
    assert!(store.files_mut().list_snapshots().unwrap().is_empty());
    assert_eq!(open(store.into_files()).mail_count(), 115);
}
