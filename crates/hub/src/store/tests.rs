#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other variant fails the test"
)]

mod corruption;
mod crash;
mod disk;
mod groups;
mod kv;
mod limit;
mod many;
mod page;
mod policy;
mod room;
mod share;
mod snapshot;

use bytes::Bytes;
use wire::{Generator, Seed};

use super::*;
use crate::field::{Addr, Name, Redacted};
use crate::log::format::{HEAD_BYTES, Start};
use crate::log::{FileError, MemorySegments, OpenError, SegmentId};
use crate::record::{MailRefusal, MailVerdict};

const NODE: NodeId = NodeId([7; 32]);
const LOG: LogId = LogId(7);
const INSTANCE: InstanceId = InstanceId(1);
const NOW: UnixTime = UnixTime::from_millis(1_000_000);
const LATER: UnixTime = UnixTime::from_millis(2_000_000);

fn small() -> StoreConfig {
    StoreConfig {
        segment_bytes: 0,
        snapshot_after: 0,
        shares: SenderShares::WHOLE,
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
        role: Role::GameNode,
    };
    match run(store, op) {
        Ok(Completed::Joined { epoch, .. }) => epoch,
        other => panic!("{other:?}"),
    }
}

fn mail(epoch: Epoch, seq: u64, player: u64, body: &[u8]) -> NewMail {
    NewMail {
        to: Addr::Player(ClientId(player)).into(),
        node: NODE,
        epoch,
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        expires: LATER,
        priority: 0,
        body: Redacted(Bytes::copy_from_slice(body)),
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

/// The segments that contain data.
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

/// A disk with one acknowledged mail, in the newest of several segments.
fn one_acknowledged() -> MemorySegments {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let mut seq = 0;
    while used(store.files_mut()).len() < 3 {
        seq += 1;
        // The first mail is never acknowledged, and keeps its segment and all later ones.
        let player = u64::from(seq > 1);
        append(&mut store, mail(epoch, seq, player, &vec![5; 60_000])).unwrap();
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 1, last).unwrap();
        while store.tidy() {}
    }
    append(&mut store, mail(epoch, seq + 1, 9, b"kept")).unwrap();
    store.into_files()
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
            role: Role::GameNode,
        },
    );
    let expected = Completed::Joined {
        epoch: Epoch(2),
        boot: 2,
        log: LogId(7),
        newest: UnixTime::default(),
        ran: Duration::ZERO,
        last_mail: MailSeq(1),
        mail_mark: SenderSeq(1),
        count_mark: BatchSeq(0),
    };
    assert_eq!(again, Ok(expected));
    let superseded = StoreOp::Join {
        node: NODE,
        instance: InstanceId(1),
        epoch: Epoch(1),
        role: Role::GameNode,
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
fn hub_2_a_repeated_mail_is_stored_once_and_one_out_of_order_waits() {
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
        .map(|mail| mail.body.0)
        .collect();
    assert_eq!(bodies, ["a", "b", "c"]);
    assert_eq!(store.stats().duplicates, 1);
}

#[test]
fn hub_4_expired_mail_is_counted_and_frees_its_segment() {
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
fn hub_1_a_failed_sync_acknowledges_nothing_and_recovery_is_durable() {
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
    // The process restarts: the mail is only in the page cache.
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
            Ok(MailVerdict::Full) => break,
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
        let last = store.log.index.last_mail;
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
    assert_eq!(waiting[0].body.0, "waits for ever");
    assert!(read_all(&mut store, 2).is_empty());
}

#[test]
fn hub_2_mail_of_an_earlier_run_removes_no_recorded_refusal() {
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
