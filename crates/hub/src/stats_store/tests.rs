//! A store of statistics that crashes: what was confirmed is counted once, and nothing else is.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::{Generator, NodeId, Seed};

use super::*;
use crate::field::{BatchSeq, Epoch, LogId};
use crate::log::{FileError, MemorySegments};
use crate::stats::{BatchWriter, Cell, Number, Sample, StatKey, StatRecord};

const NOON: UnixTime = UnixTime::from_secs(1_800_014_400);

const LOG: LogId = LogId(9);

fn small() -> StatsStoreConfig {
    StatsStoreConfig {
        segment_bytes: 0,
        checkpoint_bytes: 20_000,
        ..StatsStoreConfig::default()
    }
}

fn key(name: &str) -> StatKey {
    crate::Name::new(name).unwrap().into()
}

fn batch(records: &[(UnixTime, &str, i64)]) -> Bytes {
    let mut writer = BatchWriter::default();
    for (time, name, value) in records {
        let record = StatRecord {
            time: *time,
            player: None,
            key: key(name),
            sample: Sample::Add(Number::Int(*value)),
        };
        writer.push(&record).unwrap();
    }
    writer.take().into()
}

fn append_op(node: u8, epoch: u32, number: u64, now: UnixTime, bytes: Bytes) -> StatsOp {
    StatsOp::Append {
        log: LOG,
        node: NodeId([node; 32]),
        epoch: Epoch(epoch),
        batch: BatchSeq(number),
        now,
        bytes: Redacted(bytes),
    }
}

fn run(store: &mut StatsStore<MemorySegments>, op: StatsOp) -> Outcome {
    let mut outcomes = Vec::new();
    store.execute([(CommandId(1), op)], &mut outcomes);
    outcomes.pop().unwrap().1
}

fn settled(outcome: &Outcome) -> Option<StatsVerdict> {
    match outcome {
        Ok(Completed::StatsSettled(verdict)) => Some(*verdict),
        _ => None,
    }
}

fn sum(store: &mut StatsStore<MemorySegments>, name: &str, step: &str) -> f64 {
    let now = NOON + Duration::from_secs(10_000_000);
    let mut text = format!("sum of {name} from 0 to {} step {step}", now.as_secs());
    let mut sum = 0.0;
    loop {
        let page = store.query(&text, now).unwrap();
        for row in page.rows {
            let Cell::Number(number) = row.cells[0] else {
                panic!("no number");
            };
            sum += number;
        }
        let Some(next) = page.next else {
            return sum;
        };
        let next = next.as_secs();
        text = format!("sum of {name} from {next} to {} step {step}", now.as_secs());
    }
}

fn open(disk: MemorySegments) -> StatsStore<MemorySegments> {
    StatsStore::open(disk, small()).unwrap()
}

#[test]
fn h11_a_batch_costs_one_sync_and_is_counted_once() {
    let mut store = open(MemorySegments::new(64 << 20));
    let first = append_op(1, 1, 1, NOON, batch(&[(NOON, "kill", 2)]));
    assert_eq!(
        settled(&run(&mut store, first.clone())),
        Some(StatsVerdict::Stored)
    );
    let before = store.files_mut().syncs();
    let ops: Vec<_> = (2..=50)
        .map(|number| append_op(1, 1, number, NOON, batch(&[(NOON, "kill", 1)])))
        .collect();
    let mut outcomes = Vec::new();
    let ids = (1..).map(CommandId);
    store.execute(ids.zip(ops.iter().cloned()), &mut outcomes);
    assert_eq!(store.files_mut().syncs(), before + 1);
    // Resent batches are confirmed and change nothing, also after a restart.
    for _start in 0..2 {
        for op in ops.iter().chain([&first]) {
            assert_eq!(
                settled(&run(&mut store, op.clone())),
                Some(StatsVerdict::Stored)
            );
        }
        for step in ["10s", "1m", "1h", "1d"] {
            assert_eq!(sum(&mut store, "kill", step).to_string(), "51", "{step}");
        }
        let mut disk = store.into_files();
        disk.power_cut(&mut Seed::from_number(1).generator(0));
        store = open(disk);
    }
    assert_eq!(store.rollup_stats().batches, 50);
}

#[test]
fn h11_what_does_not_decode_or_is_superseded_is_refused() {
    let mut store = open(MemorySegments::new(64 << 20));
    let bad = append_op(1, 2, 1, NOON, Bytes::from_static(b"\x01\xff"));
    assert_eq!(settled(&run(&mut store, bad)), Some(StatsVerdict::Refused));
    let good = |epoch, number| append_op(1, epoch, number, NOON, batch(&[(NOON, "a", 1)]));
    // The next one is counted though the first of the run is missing.
    assert_eq!(
        settled(&run(&mut store, good(2, 2))),
        Some(StatsVerdict::Stored)
    );
    assert_eq!(
        settled(&run(&mut store, good(1, 9))),
        Some(StatsVerdict::Refused)
    );
    assert_eq!(store.stats().refused, 2);
    // With another log of the hub, epochs start again.
    let StatsOp::Append {
        node, now, bytes, ..
    } = good(1, 3)
    else {
        panic!("an append");
    };
    let other = StatsOp::Append {
        log: LogId(10),
        node,
        epoch: Epoch(1),
        batch: BatchSeq(3),
        now,
        bytes,
    };
    assert_eq!(settled(&run(&mut store, other)), Some(StatsVerdict::Stored));
    assert_eq!(sum(&mut store, "a", "1d").to_string(), "2");
}

#[test]
fn h8_a_full_disk_is_busy_until_there_is_room_and_loses_nothing() {
    let mut store = open(MemorySegments::new(2 * StatsStoreConfig::SEGMENT_BYTES_MIN));
    let records: Vec<_> = (0..2_000)
        .map(|at| (NOON + Duration::from_millis(at), "a", 1))
        .collect();
    let bytes = batch(&records);
    let (mut stored, mut busy) = (0, 0);
    for number in 1..500 {
        let op = append_op(1, 1, number, NOON, bytes.clone());
        match settled(&run(&mut store, op)) {
            Some(StatsVerdict::Stored) => stored += 1,
            Some(StatsVerdict::Busy) => {
                busy += 1;
                break;
            }
            other => panic!("{other:?}"),
        }
        while store.keep_up() {}
    }
    assert!(stored > 20 && busy == 1, "{stored}");
    assert!(!store.is_dead());
    store.files_mut().set_capacity(64 << 20);
    let op = append_op(1, 1, stored + 1, NOON, bytes);
    assert_eq!(settled(&run(&mut store, op)), Some(StatsVerdict::Stored));
    assert_eq!(
        sum(&mut store, "a", "1d").to_string(),
        (2_000 * (stored + 1)).to_string()
    );
}

#[test]
fn h11_the_raw_log_is_kept_for_its_retention_and_within_raw_bytes_max() {
    let mut config = small();
    config.rollups.raw_retention = Duration::from_secs(600);
    let most = |config: StatsStoreConfig, secs: u64| {
        let mut store = StatsStore::open(MemorySegments::new(64 << 20), config).unwrap();
        let mut most = 0;
        for number in 1..=600 {
            let now = NOON + Duration::from_secs(number * secs);
            let records: Vec<_> = (0..700).map(|_| (now, "a", 1)).collect();
            run(&mut store, append_op(1, 1, number, now, batch(&records))).unwrap();
            while store.keep_up() {}
            most = most.max(store.files_mut().list().unwrap().len());
        }
        assert_eq!(sum(&mut store, "a", "1d").to_string(), "420000");
        assert!(store.stats().checkpoints > 5);
        assert!(store.files_mut().list_snapshots().unwrap().len() <= 2);
        (most, store.stats().segments_removed)
    };
    // 2.8 KB at one time, then each minute.
    let (all, removed) = most(config, 0);
    assert!(all > 3 && removed == 0, "{all} {removed}");
    let (few, removed) = most(config, 60);
    assert!(few <= 3 && removed > 0, "{few} {removed}");
    config.raw_bytes_max = 2 * StatsStoreConfig::SEGMENT_BYTES_MIN;
    let (few, removed) = most(config, 0);
    assert!(few <= 3 && removed > 0, "{few} {removed}");
}

/// The files of release 0.1, which later ones must go on reading.
#[test]
fn h12_files_of_version_1_open() {
    let (segment, checkpoint) = frozen();
    let mut disk = MemorySegments::new(64 << 20);
    disk.allocate(SegmentId(1), StatsStoreConfig::SEGMENT_BYTES_MIN)
        .unwrap();
    disk.write(SegmentId(1), 0, &segment).unwrap();
    disk.append_snapshot(SnapshotId(1), &checkpoint).unwrap();
    let mut store = open(disk.clone());
    assert!(store.recovery().has_checkpoint);
    assert!(store.recovery().replayed_bytes > 0);
    assert_eq!(sum(&mut store, "kill", "1d").to_string(), "5");
    // Of another version, each file stops the start.
    let mut later = segment.clone();
    let start = StatsLogRecordBytes::start_of_version(2);
    later[..start.len()].copy_from_slice(&start);
    let mut other = MemorySegments::new(64 << 20);
    other
        .allocate(SegmentId(1), StatsStoreConfig::SEGMENT_BYTES_MIN)
        .unwrap();
    other.write(SegmentId(1), 0, &later).unwrap();
    let failure = StatsStore::open(other, small()).unwrap_err();
    assert_eq!(failure.error, OpenError::Foreign(SegmentId(1)));
    disk.remove_snapshot(SnapshotId(1)).unwrap();
    disk.append_snapshot(SnapshotId(1), &start).unwrap();
    let failure = StatsStore::open(disk, small()).unwrap_err();
    assert_eq!(failure.error, OpenError::Foreign(SegmentId(1)));
}

struct StatsLogRecordBytes;

impl StatsLogRecordBytes {
    fn start_of_version(version: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        crate::log::format::frame(SegmentId(1), 0, &mut bytes, |out| {
            out.push(28);
            out.extend_from_slice(b"TWSTATLG");
            out.extend_from_slice(&[0, version]);
            out.extend_from_slice(&[0; 8]);
        });
        bytes
    }
}

/// The lines `name hex` of the frozen files.
fn frozen() -> (Vec<u8>, Vec<u8>) {
    let text = include_str!("../../testdata/stats_store_v1.hex");
    let file = |name: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let digits: String = lines.map(str::trim).collect();
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    };
    (file("segment "), file("checkpoint "))
}

#[test]
fn h11_damage_is_counted_or_stops_the_start() {
    let filled = || {
        let mut store = open(MemorySegments::new(64 << 20));
        for number in 1..=100 {
            let records: Vec<_> = (0..1_000).map(|_| (NOON, "a", 1)).collect();
            run(&mut store, append_op(1, 1, number, NOON, batch(&records))).unwrap();
            while store.keep_up() {}
        }
        store
    };
    let mut store = filled();
    assert!(store.stats().checkpoints >= 2);
    let snapshots = store.files_mut().list_snapshots().unwrap();
    // A broken checkpoint: the one before and the raw log have everything.
    let mut disk = store.into_files();
    disk.flip_snapshot_bit(*snapshots.last().unwrap(), 300, 1);
    let mut store = open(disk);
    assert_eq!(store.recovery().checkpoints_ignored, 1);
    assert_eq!(sum(&mut store, "a", "1d").to_string(), "100000");
    // Without any checkpoint the log is whole, so it is applied again.
    let mut disk = store.into_files();
    for id in disk.list_snapshots().unwrap() {
        disk.remove_snapshot(id).unwrap();
    }
    let mut store = open(disk.clone());
    assert_eq!(sum(&mut store, "a", "1d").to_string(), "100000");
    // Without its first segment it is not.
    disk.remove(SegmentId(1)).unwrap();
    let failure = StatsStore::open(disk, small()).unwrap_err();
    assert_eq!(failure.error, OpenError::Corrupt(SegmentId(2)));
}

/// What nodes know of their batches.
struct Sender {
    epoch: u32,
    last: u64,
    /// Sent and not confirmed: number, time, value.
    waiting: Vec<(u64, Bytes, i64)>,
    confirmed: i64,
    /// Of runs that have ended: sent, but not known to be confirmed.
    unknown: i64,
}

/// Power cuts and kills at any operation: what was confirmed is counted once at every level, and the
/// totals are those of the raw log.
#[test]
fn sim_hub_10_h8_totals_equal_a_recount_of_the_raw_log_after_power_cuts() {
    let (mut crashes, mut from_checkpoint) = (0, 0);
    let seeds = std::env::var("SEED").ok().map_or(0..60, |seed| {
        let seed: u64 = seed.parse().unwrap();
        seed..seed + 1
    });
    for seed in seeds {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut disk = MemorySegments::new(64 << 20);
        let mut senders: Vec<_> = (0..3)
            .map(|_| Sender {
                epoch: 1,
                last: 0,
                waiting: Vec::new(),
                confirmed: 0,
                unknown: 0,
            })
            .collect();
        let mut now = NOON;
        for _start in 0..12 {
            match generator.below(4) {
                0 => disk.fail_sync_after(generator.below(15)),
                1 => disk.stop_after(generator.below(40)),
                2 => disk.stop_after(generator.below(8)),
                _ => {}
            }
            let mut store = match StatsStore::open(disk, small()) {
                Ok(store) => store,
                Err(failure) => {
                    assert_eq!(failure.error, OpenError::Failed, "seed {seed}");
                    disk = crash(failure.files, &mut generator);
                    continue;
                }
            };
            from_checkpoint += u64::from(store.recovery().has_checkpoint);
            for _step in 0..generator.below(12) {
                now = now + Duration::from_secs(generator.below(100));
                live(&mut store, &mut senders, now, &mut generator);
            }
            crashes += u64::from(store.is_dead());
            disk = crash(store.into_files(), &mut generator);
        }
        check(seed, disk, &senders);
    }
    assert!(crashes > 0, "a disk that never fails shows nothing");
    assert!(from_checkpoint > 0, "nor one without checkpoints");
}

fn crash(mut disk: MemorySegments, generator: &mut Generator) -> MemorySegments {
    if generator.chance(500_000) {
        disk.power_cut(generator);
    } else {
        disk.kill();
    }
    disk
}

/// All nodes send what waits, and something new; sometimes one starts another run.
fn live(
    store: &mut StatsStore<MemorySegments>,
    senders: &mut [Sender],
    now: UnixTime,
    generator: &mut Generator,
) {
    let mut ops = Vec::new();
    for (node, sender) in senders.iter_mut().enumerate() {
        if generator.chance(50_000) {
            sender.unknown += sender.waiting.drain(..).map(|(_, _, sum)| sum).sum::<i64>();
            sender.epoch += 1;
            sender.last = 0;
        }
        sender.last += 1;
        let records: Vec<_> = (0..generator.between(1, 2_000))
            .map(|at| (now + Duration::from_millis(at % 5), "a", 1))
            .collect();
        let total = i64::try_from(records.len()).unwrap();
        sender.waiting.push((sender.last, batch(&records), total));
        for (number, bytes, _) in &sender.waiting {
            let node = u8::try_from(node + 1).unwrap();
            ops.push((
                node,
                append_op(node, sender.epoch, *number, now, bytes.clone()),
            ));
        }
    }
    let mut outcomes = Vec::new();
    let nodes: Vec<_> = ops.iter().map(|(node, _)| *node).collect();
    let numbered = ops.into_iter().map(|(_, op)| (CommandId(1), op));
    store.execute(numbered, &mut outcomes);
    let mut done: BTreeMap<u8, Vec<bool>> = BTreeMap::new();
    for (node, (_, outcome)) in nodes.iter().zip(&outcomes) {
        let stored = settled(outcome) == Some(StatsVerdict::Stored);
        done.entry(*node).or_default().push(stored);
    }
    for (node, stored) in done {
        let sender = &mut senders[usize::from(node) - 1];
        let mut stored = stored.into_iter();
        sender.waiting.retain(|(_, _, sum)| {
            let is_stored = stored.next().unwrap();
            sender.confirmed += if is_stored { *sum } else { 0 };
            !is_stored
        });
    }
    while store.keep_up() {}
}

fn check(seed: u64, mut disk: MemorySegments, senders: &[Sender]) {
    // An offline recount of the raw log, each batch once.
    let (mut seen, mut recount) = (BTreeSet::new(), 0_i64);
    read_raw_log(&mut disk, &mut |raw| {
        assert!(seen.insert(raw.id), "seed {seed}: {:?} twice", raw.id);
        let batch = Batch::decode(&raw.bytes).unwrap();
        for record in batch.records() {
            let Sample::Add(Number::Int(value)) = record.sample else {
                panic!("an increase");
            };
            recount += value;
        }
    })
    .unwrap();
    let mut store = open(disk);
    let confirmed: i64 = senders.iter().map(|sender| sender.confirmed).sum();
    let unknown: i64 = senders
        .iter()
        .map(|it| it.unknown + it.waiting.iter().map(|(_, _, sum)| sum).sum::<i64>())
        .sum();
    for step in ["10s", "1m", "1h", "1d"] {
        let total = sum(&mut store, "a", step);
        assert_eq!(
            total.to_string(),
            recount.to_string(),
            "seed {seed}: {step}"
        );
    }
    assert!(
        (confirmed..=confirmed + unknown).contains(&recount),
        "seed {seed}: {recount} for {confirmed} confirmed, {unknown} unknown"
    );
    assert_eq!(
        store.files_mut().list_snapshots().map(|it| it.len() <= 2),
        Ok(true)
    );
    assert_ne!(store.files_mut().list(), Err(FileError::Failed));
}

#[test]
fn h11_names_of_series_are_listed_in_order_and_by_page() {
    let mut store = StatsStore::open(MemorySegments::new(64 << 20), small()).unwrap();
    let bytes = batch(&[(NOON, "kill", 1), (NOON, "join", 1), (NOON, "kill", 1)]);
    run(&mut store, append_op(1, 1, 1, NOON, bytes)).unwrap();
    let name = |text| crate::Name::new(text).unwrap();
    let all = StatsView::names(&store, None, 9);
    assert_eq!(all, ["join", "kill"].map(name));
    assert_eq!(store.names(None, 1), [name("join")]);
    assert_eq!(store.names(Some(name("join")), 1), [name("kill")]);
    assert_eq!(store.names(Some(name("kill")), 1), []);
    assert_eq!(store.counters().series, 2);
}

#[test]
fn records_of_a_player_are_read_in_parts_over_segments_and_a_restart() {
    let mut store = StatsStore::open(MemorySegments::new(64 << 20), small()).unwrap();
    let record = |player: u64, value: i64| StatRecord {
        time: NOON,
        player: Some(wire::ClientId(player)),
        key: key("kill"),
        sample: Sample::Event(Number::Int(value)),
    };
    for number in 1..=300 {
        let mut writer = BatchWriter::default();
        for value in 0..40 {
            let other = record(7, value);
            writer.push(&other).unwrap();
        }
        writer
            .push(&record(42, i64::try_from(number).unwrap()))
            .unwrap();
        let bytes = writer.take().into();
        run(&mut store, append_op(1, 1, number, NOON, bytes)).unwrap();
    }
    let files = store.into_files();
    let mut store = StatsStore::open(files, small()).unwrap();
    let (mut from, mut parts, mut values) = (0, 0, Vec::new());
    loop {
        let part = store.player_records(wire::ClientId(42), from, 50).unwrap();
        assert!(part.records.len() <= 50);
        parts += 1;
        values.extend(
            part.records
                .iter()
                .map(|found| found.sample.number().unwrap().to_f64()),
        );
        let Some(next) = part.next else { break };
        from = next;
    }
    let expected: Vec<f64> = (1..=300_u32).map(f64::from).collect();
    assert_eq!(values, expected);
    assert!(parts >= 6, "{parts}");
    let none = store.player_records(wire::ClientId(1), 0, 50).unwrap();
    assert_eq!(none.records, []);
    assert_eq!(
        store.raw_end(NOON).saturating_since(NOON),
        Duration::from_secs(86_400)
    );
}
