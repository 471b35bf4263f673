#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other variant fails the test"
)]

mod batch;
mod crash;
mod limit;
mod query;

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{ClientId, Generator, NodeId, UnixTime};

use super::{
    Batch, BatchId, BatchWriter, Finite, Number, RollupConfig, Rollups, Sample, StatKey,
    StatRecord, StatText,
};
use crate::field::{BatchSeq, Epoch, Name};

/// The middle of a day.
const NOON: UnixTime = UnixTime::from_secs(1_800_014_400);

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

fn float(value: f64) -> Number {
    Finite::new(value).unwrap().into()
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

fn id(node: u8, epoch: u32, batch: u64) -> BatchId {
    BatchId {
        node: NodeId([node; 32]),
        epoch: Epoch(epoch),
        batch: BatchSeq(batch),
    }
}

fn rollups(records: &[StatRecord]) -> Rollups {
    let mut rollups = Rollups::new(RollupConfig::default());
    let latest = records.iter().map(|record| record.time).max().unwrap();
    rollups.apply(id(1, 1, 1), latest, &batch(records));
    rollups
}

/// A store: what its last transaction has left.
type Table = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(rollups: &mut Rollups, position: u64, table: &mut Table) {
    for row in rollups.drain_dirty(position) {
        match row.value {
            Some(value) => table.insert(row.key, value),
            None => table.remove(&row.key),
        };
    }
}

fn load(config: RollupConfig, table: &Table) -> (Rollups, u64) {
    let rows = table.iter().map(|(key, value)| (&key[..], &value[..]));
    Rollups::load(config, rows).unwrap()
}

/// Everything that is stored, as a store that was empty gets it.
fn stored(rollups: Rollups, config: RollupConfig) -> Table {
    let mut table = Table::new();
    let mut rollups = rollups;
    write(&mut rollups, 0, &mut table);
    // A second drain has the counters only.
    assert_eq!(rollups.drain_dirty(0).len(), 1);
    assert_eq!(
        load(config, &table).0.memory_bytes(),
        rollups.memory_bytes()
    );
    table
}

fn random_record(generator: &mut Generator, now: UnixTime) -> StatRecord {
    let back = [10, 3_600, 100_000, 10_000_000][pick(generator, 4)];
    let age = generator.below(back * 1_000);
    let names = ["kill", "tick_us", "state", "players"];
    let which = pick(generator, 4);
    let regions = ["eu", "us", "Asia 1"];
    let dimensions = match generator.below(3) {
        0 => Vec::new(),
        _ => vec![(name("region"), text(regions[pick(generator, 3)]))],
    };
    let number = match generator.below(3) {
        0 => float(f64::from(generator.next_u32()) / 1_024.0),
        _ => i64::from(generator.next_u32() % 50_000).into(),
    };
    let sample = match which {
        0 => Sample::Add(number),
        1 => Sample::Event(number),
        2 => Sample::State(text(regions[pick(generator, 3)])),
        _ => Sample::Set(number),
    };
    StatRecord {
        time: UnixTime::from_millis(now.as_millis() - age),
        player: generator
            .chance(500_000)
            .then(|| ClientId(generator.below(2_000))),
        key: StatKey::new(name(names[which]), dimensions).unwrap(),
        sample,
    }
}

fn pick(generator: &mut Generator, bound: u64) -> usize {
    usize::try_from(generator.below(bound)).unwrap()
}

fn seeds(default: u64) -> core::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse().unwrap());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(default),
    }
}
