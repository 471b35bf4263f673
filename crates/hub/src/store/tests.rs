#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else comes fails the test"
)]

mod disk;
mod room;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::{Generator, Seed};

use super::*;
use crate::address::Addr;
use crate::log::format::{HEAD_BYTES, Start};
use crate::log::{FileError, MemorySegments, OpenError, SegmentId};
use crate::name::Name;
use crate::record::{MailRefusal, MailVerdict};

const NODE: NodeId = NodeId([7; 32]);
const LOG: LogId = LogId(7);
const INSTANCE: InstanceId = InstanceId(1);
const NOW: UnixTime = UnixTime::from_millis(1_000_000);
const LATER: UnixTime = UnixTime::from_millis(2_000_000);

fn small() -> StoreConfig {
    StoreConfig {
        segment_bytes: 0,
        ..StoreConfig::default()
    }
}

fn open(disk: MemorySegments) -> Store<MemorySegments> {
    Store::open(disk, small(), LOG).unwrap()
}

fn run(store: &mut Store<MemorySegments>, op: StoreOp) -> Outcome {
    let mut outcomes = Vec::new();
    store.execute([(CommandId(0), Command::Store(op))], &mut outcomes);
    outcomes.pop().unwrap().1
}

fn join(store: &mut Store<MemorySegments>, instance: u64) -> Epoch {
    let op = StoreOp::Join {
        node: NODE,
        instance: InstanceId(instance),
        epoch: Epoch(0),
    };
    match run(store, op) {
        Ok(Completed::Joined { epoch, .. }) => epoch,
        other => panic!("{other:?}"),
    }
}

fn mail(epoch: Epoch, seq: u64, player: u64, body: &[u8]) -> NewMail {
    NewMail {
        to: Addr::Player(ClientId(player)),
        node: NODE,
        epoch,
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        expires: LATER,
        body: Bytes::copy_from_slice(body),
    }
}

fn append(store: &mut Store<MemorySegments>, mail: NewMail) -> Result<MailVerdict, StoreError> {
    match run(store, StoreOp::Append(vec![mail]))? {
        Completed::Appended(settled) => Ok(settled[0].verdict),
        other => panic!("{other:?}"),
    }
}

fn read_all(store: &mut Store<MemorySegments>, player: u64) -> Vec<Mail> {
    let mut found = Vec::new();
    loop {
        let op = StoreOp::Read {
            player: ClientId(player),
            after: found.last().map_or(MailSeq(0), |mail: &Mail| mail.seq),
            bytes_max: 4_096,
            now: NOW,
        };
        match run(store, op).unwrap() {
            Completed::Mails { mails, more } => {
                found.extend(mails);
                if !more {
                    return found;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn acknowledge(store: &mut Store<MemorySegments>, player: u64, upto: MailSeq) -> Outcome {
    let player = ClientId(player);
    run(store, StoreOp::Ack { player, upto })
}

#[test]
fn a_batch_costs_one_sync() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    while store.tidy() {}
    let before = store.files_mut().syncs();
    let commands = (1..=500).map(|seq| {
        let mail = mail(epoch, seq, seq % 7, b"hello");
        (CommandId(seq), Command::Store(StoreOp::Append(vec![mail])))
    });
    let mut outcomes = Vec::new();
    store.execute(commands, &mut outcomes);
    assert_eq!(outcomes.len(), 500);
    assert_eq!(store.files_mut().syncs(), before + 1);
    assert_eq!(store.stats().stored, 500);
}

#[test]
fn hub_1_an_epoch_outlives_a_power_cut_and_a_later_run_gets_the_next() {
    let mut generator = Seed::from_number(5).generator(0);
    let mut store = open(MemorySegments::new(1 << 30));
    assert_eq!(join(&mut store, 1), Epoch(1));
    assert_eq!(join(&mut store, 1), Epoch(1));
    assert_eq!(join(&mut store, 2), Epoch(2));
    assert_eq!(
        append(&mut store, mail(Epoch(2), 1, 9, b"a")),
        Ok(MailVerdict::Stored)
    );
    let mut disk = store.into_files();
    disk.power_cut(&mut generator);
    let mut store = open(disk);
    let again = run(
        &mut store,
        StoreOp::Join {
            node: NODE,
            instance: InstanceId(2),
            epoch: Epoch(2),
        },
    );
    let expected = Completed::Joined {
        epoch: Epoch(2),
        boot: 2,
        log: LogId(7),
        newest: UnixTime::default(),
        mail_mark: SenderSeq(1),
        count_mark: BatchSeq(0),
    };
    assert_eq!(again, Ok(expected));
    let superseded = StoreOp::Join {
        node: NODE,
        instance: InstanceId(1),
        epoch: Epoch(1),
    };
    assert_eq!(run(&mut store, superseded), Ok(Completed::Fenced));
    assert_eq!(join(&mut store, 1), Epoch(3));
    assert_eq!(
        append(&mut store, mail(Epoch(2), 2, 9, b"late")),
        Ok(MailVerdict::Busy),
        "a record of an earlier run changes nothing",
    );
}

#[test]
fn hub_2_a_mail_sent_again_is_stored_once_and_one_out_of_turn_waits() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"a")),
        Ok(MailVerdict::Stored)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"a")),
        Ok(MailVerdict::Stored)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 3, 9, b"c")),
        Ok(MailVerdict::Busy)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 2, 9, b"b")),
        Ok(MailVerdict::Stored)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 3, 9, b"c")),
        Ok(MailVerdict::Stored)
    );
    let bodies: Vec<_> = read_all(&mut store, 9)
        .into_iter()
        .map(|mail| mail.body)
        .collect();
    assert_eq!(bodies, ["a", "b", "c"]);
    assert_eq!(store.stats().duplicates, 1);
}

#[test]
fn hub_6_a_full_mailbox_refuses_for_good_and_remembers() {
    let mut config = small();
    config.mailbox_mails_max = 2;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    for seq in 1..=2 {
        assert_eq!(
            append(&mut store, mail(epoch, seq, 9, b"a")),
            Ok(MailVerdict::Stored)
        );
    }
    assert_eq!(append(&mut store, mail(epoch, 3, 9, b"a")), full);
    assert_eq!(
        append(&mut store, mail(epoch, 4, 8, b"a")),
        Ok(MailVerdict::Stored)
    );
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(1).generator(0));
    let mut store = Store::open(disk, config, LOG).unwrap();
    assert_eq!(
        append(&mut store, mail(epoch, 3, 9, b"a")),
        full,
        "the mark is 4, and yet this one is not on disk",
    );
    let mut next = mail(epoch, 5, 8, b"b");
    next.settled = SenderSeq(4);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
    assert!(store.log.index().node(NODE).unwrap().refused.is_empty());
}

#[test]
fn hub_6_unheard_refusals_are_bounded() {
    let mut config = small();
    config.mailbox_mails_max = 0;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    for seq in 1..=1_024 {
        assert_eq!(append(&mut store, mail(epoch, seq, 9, b"")), full);
    }
    assert_eq!(
        append(&mut store, mail(epoch, 1_025, 9, b"")),
        Ok(MailVerdict::Busy)
    );
    let mut heard = mail(epoch, 1_025, 9, b"");
    heard.settled = SenderSeq(1_000);
    assert_eq!(append(&mut store, heard), full);
}

#[test]
fn hub_6_all_mail_together_is_bounded() {
    let mut config = small();
    config.mails_max = 3;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    for seq in 1..=3 {
        assert_eq!(
            append(&mut store, mail(epoch, seq, seq, b"")),
            Ok(MailVerdict::Stored)
        );
    }
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, b"")),
        Ok(MailVerdict::Busy)
    );
    config.mails_max = 100;
    config.live_bytes_max = 400;
    let mut store = Store::open(store.into_files(), config, LOG).unwrap();
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, &[0; 99])),
        Ok(MailVerdict::Busy)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, b"")),
        Ok(MailVerdict::Stored)
    );
}

#[test]
fn hub_6_names_of_counts_are_bounded_and_counts_are_added_once() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let keys: Vec<_> = (0..20_000)
        .map(|number| CountKey::from(Name::new(&format!("{number:032}")).unwrap()))
        .collect();
    for (batch, keys) in (1..).zip(keys.chunks(64)) {
        let op = StoreOp::Count {
            node: NODE,
            epoch,
            batch: BatchSeq(batch),
            entries: keys.iter().map(|key| (key.clone(), 2)).collect(),
        };
        assert_eq!(run(&mut store, op.clone()), Ok(Completed::Counted));
        assert_eq!(run(&mut store, op), Ok(Completed::Counted), "sent again");
    }
    let known = store.totals().count() as u64;
    assert_eq!(store.stats().counts_dropped, 20_000 - known);
    assert!((2_000..12_000).contains(&known), "{known}");
    assert!(store.totals().all(|(_, total)| total == 2));
    while store.tidy() {}
    let store = open(store.into_files());
    assert_eq!(store.totals().count() as u64, known);
    assert!(store.totals().all(|(_, total)| total == 2));
}

#[test]
fn hub_4_what_expires_is_counted_and_frees_its_segment() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![0; 30_000])).unwrap();
    }
    while store.tidy() {}
    let before = store.files_mut().used();
    assert_eq!(
        run(&mut store, StoreOp::Expire { now: NOW }),
        Ok(Completed::Expired { count: 0 })
    );
    assert_eq!(
        run(&mut store, StoreOp::Expire { now: LATER }),
        Ok(Completed::Expired { count: 100 }),
    );
    while store.tidy() {}
    assert!(store.files_mut().used() < before / 2);
    assert_eq!(store.stats().expired, 100);
}

#[test]
fn hub_1_after_a_failed_sync_nothing_is_acknowledged_and_what_is_read_again_is_on_disk() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    store.files_mut().fail_sync_after(0);
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"a")),
        Err(StoreError::Failed)
    );
    assert!(store.is_dead());
    let syncs = store.files_mut().syncs();
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"a")),
        Err(StoreError::Failed)
    );
    assert_eq!(
        store.files_mut().syncs(),
        syncs,
        "a failed sync is not tried again"
    );
    // The process starts again: the mail is in the page cache, and nowhere else.
    let mut disk = store.into_files();
    disk.kill();
    let mut store = open(disk);
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"a")),
        Ok(MailVerdict::Stored)
    );
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(2).generator(0));
    assert_eq!(read_all(&mut open(disk), 9).len(), 1);
}

#[test]
fn hub_1_a_full_disk_keeps_reading_and_acknowledging_and_recovers() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(3 * segment));
    let epoch = join(&mut store, 1);
    let mut seq = 0;
    loop {
        match append(&mut store, mail(epoch, seq + 1, seq % 9, &[5; 5_000])) {
            Ok(MailVerdict::Stored) => seq += 1,
            Ok(MailVerdict::Busy) => break,
            other => panic!("{other:?}"),
        }
        while store.tidy() {}
    }
    assert!(!store.is_dead());
    assert!(seq > 200, "{seq} mails of 5,000 bytes on {segment} x 3");
    let mut waiting = 0;
    for player in 0..9 {
        for mail in read_all(&mut store, player) {
            waiting += 1;
            let acked = acknowledge(&mut store, player, mail.seq);
            assert_eq!(acked, Ok(Completed::Acked));
        }
    }
    assert_eq!(waiting, seq);
    while store.tidy() {}
    assert_eq!(
        append(&mut store, mail(epoch, seq + 1, 9, &[5; 5_000])),
        Ok(MailVerdict::Stored),
    );
}

#[test]
fn a_hub_starts_on_a_full_disk() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut disk = MemorySegments::new(segment);
    for boot in 1..=50 {
        let mut store = open(disk);
        let epoch = join(&mut store, boot);
        for seq in 1..=200 {
            append(&mut store, mail(epoch, seq, 9, &[5; 5_000])).unwrap();
        }
        while store.tidy() {}
        disk = store.into_files();
    }
    assert_eq!(disk.list().unwrap().len(), 1);
}

#[test]
fn waiting_mail_is_copied_so_that_the_disk_stays_bounded() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    append(&mut store, mail(epoch, 1, 1, b"waits for ever")).unwrap();
    for seq in 2..=2_000 {
        append(&mut store, mail(epoch, seq, 2, &vec![5; 20_000])).unwrap();
        let last = store.log.index().last_mail;
        acknowledge(&mut store, 2, last).unwrap();
        while store.tidy() {}
        assert!(
            store.files_mut().used() <= 6 * segment,
            "{}",
            store.files_mut().used()
        );
    }
    assert!(store.files_mut().list().unwrap()[0].0 > SegmentId(40));
    let mut store = open(store.into_files());
    let waiting = read_all(&mut store, 1);
    assert_eq!(waiting[0].body, "waits for ever");
    assert!(read_all(&mut store, 2).is_empty());
}

#[test]
fn rot_in_an_older_segment_costs_one_mail_and_is_counted() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![5; 20_000])).unwrap();
    }
    store.files_mut().flip_bit(SegmentId(1), 50_000, 3);
    let store = open(store.into_files());
    assert_eq!(store.recovery().rotten, 1);
    assert_eq!(store.mail_count(), 99);
}

#[test]
fn rot_in_the_state_of_the_newest_segment_stops_the_start() {
    for offset in [0, 10, 20] {
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        append(&mut store, mail(epoch, 1, 9, b"a")).unwrap();
        let mut disk = store.into_files();
        disk.flip_bit(SegmentId(1), offset, 3);
        let error = Store::open(disk, small(), LOG).unwrap_err().error;
        assert_eq!(error, OpenError::Rotten(SegmentId(1)), "at {offset}");
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
                boot: 1,
                last_mail: MailSeq(0),
                log: LOG,
                time: NOW,
            });
            crate::log::format::encode(&start, SegmentId(1), 0, &mut record);
            // Version 2, with a checksum that holds.
            record[HEAD_BYTES + 10] = 2;
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

/// What a sender and a reader know, next to a store that dies again and again.
#[derive(Default)]
struct Model {
    /// The sender's next number.
    next: u64,
    /// Mails that were reported as stored, by mailbox, in order of sending.
    stored: BTreeMap<u64, Vec<u64>>,
    /// Mails whose report was lost.
    unknown: BTreeSet<u64>,
    /// Acknowledged up to here, by mailbox.
    acked: BTreeMap<u64, MailSeq>,
    /// Bodies that an acknowledgement covers.
    handled: BTreeSet<u64>,
}

#[test]
fn hub_h13_no_mail_is_lost_or_doubled_over_random_crash_points() {
    let seeds = std::env::var("SEED").ok().map_or_else(
        || 0..100,
        |seed| {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        },
    );
    let (mut crashes, mut died_open) = (0, 0);
    for seed in seeds {
        let mut generator = Seed::from_number(seed).generator(0);
        let (one, other) = live_and_die(seed, &mut generator);
        crashes += one;
        died_open += other;
    }
    assert!(crashes > 0, "a disk that never fails shows nothing");
    assert!(died_open > 0, "nor one that is always recovered at once");
}

/// One log's life: 25 runs, each with a fault or a crash at a random operation.
fn live_and_die(seed: u64, generator: &mut Generator) -> (u32, u32) {
    let mut model = Model {
        next: 1,
        ..Model::default()
    };
    let mut disk = MemorySegments::new(5 * StoreConfig::SEGMENT_BYTES_MIN);
    let (mut crashes, mut died_open) = (0, 0);
    for _ in 0..25 {
        match generator.below(4) {
            0 => disk.fail_sync_after(generator.below(30)),
            1 => disk.stop_after(generator.below(60)),
            // In recovery, which takes about five operations.
            2 => disk.stop_after(generator.below(8)),
            _ => {}
        }
        let mut store = match Store::open(disk, small(), LOG) {
            Ok(store) => store,
            Err(OpenFailure { mut files, .. }) => {
                // It died while it recovered, and goes on from there.
                died_open += 1;
                if generator.chance(500_000) {
                    files.power_cut(generator);
                } else {
                    files.kill();
                }
                disk = files;
                continue;
            }
        };
        for _ in 0..generator.below(40) {
            step(seed, &mut model, &mut store, generator);
            if store.is_dead() {
                break;
            }
        }
        crashes += u32::from(store.is_dead());
        disk = store.into_files();
        if generator.chance(500_000) {
            disk.power_cut(generator);
        } else {
            disk.kill();
        }
    }
    let mut store = open(disk);
    check(seed, &mut model, &mut store);
    (crashes, died_open)
}

fn step(
    seed: u64,
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    generator: &mut Generator,
) {
    let Ok(Completed::Joined {
        epoch, mail_mark, ..
    }) = run(
        store,
        StoreOp::Join {
            node: NODE,
            instance: INSTANCE,
            epoch: Epoch(0),
        },
    )
    else {
        return;
    };
    assert!(
        mail_mark.0 < model.next,
        "seed {seed}: a mark past the last mail"
    );
    match generator.below(5) {
        0..=2 => send_some(model, store, epoch, generator),
        3 => {
            let player = generator.below(3);
            let mails = read_all(store, player);
            let Some(last) = mails.last() else { return };
            // Noted before: an acknowledgement whose report is lost may be on disk.
            model
                .handled
                .extend(mails.iter().map(|mail| mail.sender_seq.0));
            if acknowledge(store, player, last.seq).is_ok() {
                model.acked.insert(player, last.seq);
            }
        }
        _ => while store.tidy() {},
    }
}

fn send_some(
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    epoch: Epoch,
    generator: &mut Generator,
) {
    // What is unknown is sent again first, as a sender does.
    let again: Vec<u64> = model.unknown.iter().copied().collect();
    let fresh: Vec<u64> = (model.next..)
        .take(usize::try_from(generator.below(12)).unwrap())
        .collect();
    model.next += fresh.len() as u64;
    let mails: Vec<_> = again
        .iter()
        .chain(&fresh)
        .map(|seq| {
            mail(
                epoch,
                *seq,
                seq % 3,
                &vec![5; usize::try_from(seq * 977 % 30_000).unwrap()],
            )
        })
        .collect();
    model.unknown.extend(fresh);
    if let Ok(Completed::Appended(settled)) = run(store, StoreOp::Append(mails)) {
        for one in settled {
            match one.verdict {
                MailVerdict::Stored => {
                    model.unknown.remove(&one.seq.0);
                    let stored = model.stored.entry(one.seq.0 % 3).or_default();
                    assert_ne!(stored.last(), Some(&one.seq.0));
                    stored.push(one.seq.0);
                }
                MailVerdict::Busy => {}
                refused @ MailVerdict::Refused(_) => panic!("{refused:?}"),
            }
        }
    }
}

fn check(seed: u64, model: &mut Model, store: &mut Store<MemorySegments>) {
    for player in 0..3 {
        let mails = read_all(store, player);
        let acked = model.acked.get(&player).copied().unwrap_or_default();
        assert!(
            mails.iter().all(|mail| mail.seq > acked),
            "seed {seed}: an acknowledged mail is back"
        );
        let found: Vec<u64> = mails.iter().map(|mail| mail.sender_seq.0).collect();
        assert!(
            found.is_sorted_by(|a, b| a < b),
            "seed {seed}: order or doubles in {found:?}"
        );
        for stored in model.stored.get(&player).into_iter().flatten() {
            assert!(
                found.contains(stored) || model.handled.contains(stored),
                "seed {seed}: mail {stored} was reported as stored and is lost",
            );
        }
    }
}

#[test]
fn a_disk_that_has_no_room_or_cannot_be_read_does_not_open() {
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
fn hub_2_a_mail_of_an_earlier_run_makes_the_store_forget_no_refusal() {
    let mut config = small();
    config.mailbox_mails_max = 0;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    join(&mut store, 1);
    let epoch = join(&mut store, 2);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    assert_eq!(append(&mut store, mail(epoch, 1, 9, b"")), full);
    let mut late = mail(Epoch(1), 501, 9, b"");
    late.settled = SenderSeq(500);
    assert_eq!(append(&mut store, late), Ok(MailVerdict::Busy));
    assert_eq!(
        append(&mut store, mail(epoch, 1, 9, b"")),
        full,
        "refused, and never stored"
    );
}

#[test]
fn hub_6_what_a_mailbox_takes_is_bounded() {
    let mut config = small();
    config.mailbox_bytes_max = 1_000;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    let stored = Ok(MailVerdict::Stored);
    assert_eq!(append(&mut store, mail(epoch, 1, 9, &[0; 800])), stored);
    assert_eq!(append(&mut store, mail(epoch, 2, 9, &[0; 800])), full);
    assert_eq!(append(&mut store, mail(epoch, 3, 8, &[0; 800])), stored);
}

/// The segments that something was written to.
fn used(disk: &mut MemorySegments) -> Vec<SegmentId> {
    let mut head = [0; HEAD_BYTES];
    let mut found = Vec::new();
    for (segment, _) in disk.list().unwrap() {
        disk.read(segment, 0, &mut head).unwrap();
        if head != [0; HEAD_BYTES] {
            found.push(segment);
        }
    }
    found
}

/// A disk with one mail that was acknowledged, in the newest of several segments.
fn one_acknowledged() -> MemorySegments {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let mut seq = 0;
    while used(store.files_mut()).len() < 3 {
        seq += 1;
        // The first waits for ever, and keeps its segment and those behind it.
        let player = u64::from(seq > 1);
        append(&mut store, mail(epoch, seq, player, &vec![5; 60_000])).unwrap();
        let last = store.log.index().last_mail;
        acknowledge(&mut store, 1, last).unwrap();
        while store.tidy() {}
    }
    append(&mut store, mail(epoch, seq + 1, 9, b"kept")).unwrap();
    store.into_files()
}

#[test]
fn hub_1_no_flipped_bit_in_the_state_of_the_newest_segment_loses_mail_unsaid() {
    let disk = one_acknowledged();
    let newest = *used(&mut disk.clone()).last().unwrap();
    let mut stopped = 0;
    // Start, a node, Ready: every bit of every byte.
    for at in 0..47 + 69 + 9 {
        for bit in 0..8 {
            let mut rotten = disk.clone();
            rotten.flip_bit(newest, at, bit);
            match Store::open(rotten, small(), LOG) {
                Ok(mut store) => assert_eq!(read_all(&mut store, 9).len(), 1, "{at} {bit}"),
                Err(failure) => {
                    assert_eq!(failure.error, OpenError::Rotten(newest), "{at} {bit}");
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
        assert!(matches!(error, OpenError::Rotten(_)), "{one:?} {other:?}");
    }
}

#[test]
fn rot_in_a_length_of_an_older_segment_costs_one_mail_and_is_counted() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=100 {
        append(&mut store, mail(epoch, seq, seq, &vec![5; 20_000])).unwrap();
    }
    let (_, entry) = store
        .log
        .index()
        .mails_after(ClientId(3), MailSeq(0))
        .next()
        .unwrap();
    let place = usize::try_from(entry.place.offset).unwrap();
    let disk = store.into_files();
    // Each byte of the head, and a sector that the disk has lost.
    for at in place..place + HEAD_BYTES {
        let mut rotten = disk.clone();
        rotten.flip_bit(entry.place.segment, at, 1);
        let store = open(rotten);
        assert_eq!(store.recovery().rotten, 1);
        assert_eq!(store.mail_count(), 99, "{at}");
    }
    let mut lost = disk;
    lost.write(entry.place.segment, entry.place.offset, &[0; 512])
        .unwrap();
    let store = open(lost);
    assert_eq!(store.recovery().rotten, 1);
    assert_eq!(store.mail_count(), 99);
}

#[test]
fn a_segment_that_was_cut_short_loses_what_was_cut_and_no_more() {
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
            // What is left goes on.
            let before = store.mail_count();
            let Ok(Completed::Joined {
                epoch, mail_mark, ..
            }) = run(
                &mut store,
                StoreOp::Join {
                    node: NODE,
                    instance: InstanceId(2),
                    epoch: Epoch(0),
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
                Ok(MailVerdict::Busy) => break,
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
fn hub_1_a_write_that_fails_at_any_point_ends_the_log_and_loses_nothing_stored() {
    for operations in 0..60 {
        let mut store = open(MemorySegments::new(1 << 30));
        let epoch = join(&mut store, 1);
        store.files_mut().stop_after(operations);
        let mut stored = 0;
        for seq in 1..=100 {
            match append(&mut store, mail(epoch, seq, seq % 5, &vec![5; 30_000])) {
                Ok(MailVerdict::Stored) => stored += 1,
                Ok(MailVerdict::Busy) => {}
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
