//! Cost of statistics: calls on a game's thread, ingestion, and queries. Goals: 50 ns a call, 1 million
//! events a second a core, 5 ms for 30 days by the hour.
//!
//! ```text
//! cargo bench -p tickwire-hub --bench stats
//! ```

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "it measures, prints what it measured, and stops at what it does not expect"
)]

use core::hint::black_box;
use std::time::{Duration, Instant};

use hub::stats::{
    Batch, BatchId, BatchWriter, Counters, Query, RollupConfig, Rollups, Sample, StatKey,
    StatRecord, StatText, Tallies,
};
use hub::{BatchSeq, Epoch, Name};
use wire::{ClientId, Generator, NodeId, Seed, UnixTime};

/// The middle of a day.
const NOON: UnixTime = UnixTime::from_secs(1_800_014_400);

fn main() {
    calls();
    ingestion();
    queries();
}

/// Returns the CPU time of this thread, seconds: other processes' load does not count.
fn cpu_secs() -> f64 {
    // Gives up the core, so that the kernel brings the figure up to date.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos).as_secs_f64()
}

/// Each sample is the mean of 64 calls, since reading the clock takes longer than one of them.
fn calls() {
    let mut counters = Counters::new(256, 64 * 64);
    let series: Vec<_> = (0..256)
        .map(|at| counters.register(key(&format!("s x={at}"))).unwrap())
        .collect();
    let mut spare = Tallies::default();
    let (mut counts, mut records) = (Vec::new(), Vec::new());
    for _round in 0..2_000 {
        let start = Instant::now();
        for series in &series[..64] {
            counters.count(*series, black_box(1));
        }
        counts.push(start.elapsed().as_nanos() / 64);
        let start = Instant::now();
        for series in &series[64..128] {
            let player = Some(ClientId(black_box(7)));
            counters.record(*series, black_box(5).into(), player);
        }
        records.push(start.elapsed().as_nanos() / 64);
        spare = counters.take(spare);
        assert_eq!(spare.dropped(), 0);
    }
    for (call, times) in [("count", &mut counts), ("record", &mut records)] {
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{call}: p50 {p50} ns, p99 {p99} ns");
    }
}

/// 8 nodes, a batch a second each, for 5 minutes: 100 series, 5,000 players.
fn ingestion() {
    let mut generator = Seed::from_number(1).generator(0);
    let mut rollups = Rollups::new(RollupConfig::default());
    let series: Vec<_> = (0..100)
        .map(|at| key(&format!("tick_us region=eu server={at}")))
        .collect();
    let (mut batches, mut events) = (Vec::new(), 0_u32);
    for second in 0..300_u64 {
        let mut writer = BatchWriter::default();
        for at in 0..4_000_u64 {
            let record = StatRecord {
                time: UnixTime::from_millis(NOON.as_millis() + second * 1_000 + at / 4),
                player: Some(ClientId(generator.below(5_000))),
                key: series[pick(&mut generator, 100)].clone(),
                sample: Sample::Event(i64::from(generator.next_u32() % 60_000).into()),
            };
            writer.push(&record).unwrap();
            events += 1;
        }
        batches.push(writer.take());
    }
    let bytes: usize = batches.iter().map(Vec::len).sum();
    let bytes = u32::try_from(bytes).unwrap();
    let start = cpu_secs();
    for bytes in &batches {
        black_box(Batch::decode(bytes).unwrap());
    }
    let decode = cpu_secs() - start;
    let start = cpu_secs();
    for (number, bytes) in (1..).zip(&batches) {
        let batch = Batch::decode(bytes).unwrap();
        let received = UnixTime::from_secs(NOON.as_secs() + number);
        rollups.apply(id(1, 1, number), received, &batch);
    }
    let rate = f64::from(events) / (cpu_secs() - start);
    println!(
        "{events} events: {:.2} million/s (decoded at {:.2}), {:.1} bytes an event, {} MiB in {} buckets",
        rate / 1e6,
        f64::from(events) / decode / 1e6,
        f64::from(bytes) / f64::from(events),
        rollups.memory_bytes() >> 20,
        rollups.bucket_count(),
    );
    let start = cpu_secs();
    let rows = rollups.drain_dirty(0);
    let drain = cpu_secs() - start;
    let size: usize = rows
        .iter()
        .map(|row| row.key.len() + row.value.as_ref().map_or(0, Vec::len))
        .sum();
    println!(
        "{} dirty rows, {} KiB, in {:.1} ms",
        rows.len(),
        size >> 10,
        drain * 1e3
    );
}

/// 30 days of 2,000 events an hour in 4 series.
fn queries() {
    let mut generator = Seed::from_number(1).generator(0);
    let mut rollups = Rollups::new(RollupConfig::default());
    let regions = ["eu", "us", "asia", "sa"];
    for hour in 0..720_u64 {
        let mut records = Vec::new();
        for _event in 0..2_000 {
            let secs = NOON.as_secs() + hour * 3_600 + generator.below(3_600);
            let words = format!("tick_us region={}", regions[pick(&mut generator, 4)]);
            let value = i64::from(generator.next_u32() % 60_000);
            let mut record = record(secs, &words, Sample::Event(value.into()));
            record.player = Some(ClientId(generator.below(10_000)));
            records.push(record);
        }
        let received = UnixTime::from_secs(NOON.as_secs() + (hour + 1) * 3_600);
        rollups.apply(id(1, 1, hour + 1), received, &batch(&records));
        rollups.expire(received);
    }
    let now = UnixTime::from_secs(NOON.as_secs() + 720 * 3_600);
    for (columns, series) in [
        ("count, sum, p50, p99, uniques", "where region = eu"),
        ("count, sum, mean, max", ""),
        // Each row is merged from 4 series; 4 rows an hour.
        ("count, sum, p50, p99, uniques", ""),
        ("count, sum, p50, p99, uniques", "by region"),
    ] {
        let text = format!("{columns} of tick_us {series} from now-30d to now step 1h");
        let mut rows = 0;
        let start = cpu_secs();
        for _round in 0..100 {
            let query = Query::parse(&text, now).unwrap();
            rows = rollups.query(&query).unwrap().len();
        }
        let millis = (cpu_secs() - start) * 10.0;
        println!("{rows} rows in {millis:.2} ms: {text}");
    }
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn text(text: &str) -> StatText {
    StatText::new(text).unwrap()
}

/// A series by `name` and `dimension=text` words.
fn key(words: &str) -> StatKey {
    let mut words = words.split(' ');
    let series = name(words.next().unwrap());
    let dimensions = words.map(|word| {
        let (dimension, value) = word.split_once('=').unwrap();
        (name(dimension), text(value))
    });
    StatKey::new(series, dimensions.collect()).unwrap()
}

fn record(secs: u64, words: &str, sample: Sample) -> StatRecord {
    StatRecord {
        time: UnixTime::from_secs(secs),
        player: None,
        key: key(words),
        sample,
    }
}

fn encoded(records: &[StatRecord]) -> Vec<u8> {
    let mut writer = BatchWriter::default();
    for record in records {
        writer.push(record).unwrap();
    }
    writer.take()
}

fn batch(records: &[StatRecord]) -> Batch {
    Batch::decode(&encoded(records)).unwrap()
}

const fn id(node: u8, epoch: u32, batch: u64) -> BatchId {
    BatchId {
        node: NodeId([node; 32]),
        epoch: Epoch(epoch),
        batch: BatchSeq(batch),
    }
}

fn pick(generator: &mut Generator, bound: u64) -> usize {
    usize::try_from(generator.below(bound)).unwrap()
}
