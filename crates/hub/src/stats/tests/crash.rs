//! Crashes between any two steps of a driver: append, apply, write, expire.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::{Generator, Seed, UnixTime};

use super::*;
use crate::stats::number::float_of_i128;
use crate::stats::{Applied, Level, LoadError, Query};

/// An entry of the raw log.
struct Raw {
    id: BatchId,
    received: UnixTime,
    bytes: Vec<u8>,
}

/// What a driver has on disk: the raw log, and the table that it writes in transactions.
#[derive(Default)]
struct Disk {
    log: Vec<Raw>,
    table: Table,
}

fn replay(config: RollupConfig, disk: &Disk) -> Rollups {
    let (mut rollups, position) = load(config, &disk.table);
    for raw in &disk.log[usize::try_from(position).unwrap()..] {
        apply(&mut rollups, raw);
    }
    rollups
}

fn apply(rollups: &mut Rollups, raw: &Raw) -> Applied {
    let batch = Batch::decode(&raw.bytes).unwrap();
    rollups.apply(raw.id, raw.received, &batch)
}

fn small() -> RollupConfig {
    RollupConfig {
        series_max: 6,
        ..RollupConfig::default()
    }
}

/// A driver that crashes.
struct Driver {
    generator: Generator,
    config: RollupConfig,
    disk: Disk,
    rollups: Rollups,
    now: UnixTime,
    sent: Vec<(BatchId, Vec<u8>)>,
    /// Last batches of 2 nodes in 3 runs.
    last: BTreeMap<(u8, u32), u64>,
}

impl Driver {
    fn step(&mut self) {
        match self.generator.below(12) {
            0..=6 => self.receive(),
            7..=8 => self.write(),
            9 => self.rollups.expire(self.now),
            10 => {
                let span = [1, 100, 50_000, 800_000][pick(&mut self.generator, 4)];
                let span = Duration::from_secs(self.generator.below(span));
                self.now = self.now + span;
            }
            _ => self.crash(),
        }
    }

    fn crash(&mut self) {
        self.rollups = replay(self.config, &self.disk);
    }

    /// Takes a new batch, or an old one again: nodes resend what was not confirmed.
    fn receive(&mut self) {
        let generator = &mut self.generator;
        let (id, bytes) = if !self.sent.is_empty() && generator.chance(300_000) {
            self.sent[pick(generator, self.sent.len().try_into().unwrap())].clone()
        } else {
            let node = u8::from(generator.chance(500_000));
            let epoch = u32::try_from(generator.between(1, 3)).unwrap();
            let number = self.last.entry((node, epoch)).or_default();
            *number += 1;
            let id = id(node, epoch, *number);
            let count = generator.between(1, 30);
            let records: Vec<_> = (0..count)
                .map(|_| random_record(generator, self.now))
                .collect();
            (id, encoded(&records))
        };
        self.sent.push((id, bytes.clone()));
        self.disk.log.push(Raw {
            id,
            received: self.now,
            bytes,
        });
        // A crash may come before it is applied.
        if self.generator.chance(50_000) {
            self.crash();
        } else {
            apply(&mut self.rollups, self.disk.log.last().unwrap());
        }
    }

    fn write(&mut self) {
        let position = self.disk.log.len().try_into().unwrap();
        // A crash may come before the transaction is complete.
        if self.generator.chance(300_000) {
            self.rollups.drain_dirty(position);
            self.crash();
        } else {
            write(&mut self.rollups, position, &mut self.disk.table);
        }
    }
}

/// Sends, resends, writes, expires and crashes at random; at the end, everything is as if the log
/// had been applied once without a crash.
fn run(seed: u64, config: RollupConfig) {
    let mut driver = Driver {
        generator: Seed::from_number(seed).generator(2),
        config,
        disk: Disk::default(),
        rollups: Rollups::new(config),
        now: NOON,
        sent: Vec::new(),
        last: BTreeMap::new(),
    };
    for _step in 0..120 {
        driver.step();
    }
    let (mut rollups, mut disk) = (driver.rollups, driver.disk);
    rollups.expire(driver.now);
    write(&mut rollups, 0, &mut disk.table);
    let mut expected = Rollups::new(config);
    for raw in &disk.log {
        apply(&mut expected, raw);
    }
    expected.expire(driver.now);
    assert_eq!(expected.stats(), rollups.stats(), "seed {seed}");
    assert_eq!(
        expected.memory_bytes(),
        rollups.memory_bytes(),
        "seed {seed}"
    );
    assert!(stored(expected, config) == disk.table, "seed {seed}");
    let (mut loaded, _) = load(config, &disk.table);
    assert_eq!(loaded.memory_bytes(), rollups.memory_bytes());
    assert_eq!(loaded.drain_dirty(0).len(), 1, "nothing is dirty");
}

#[test]
fn sim_hub_10_after_any_crash_the_figures_are_those_of_the_raw_log() {
    for seed in seeds(150) {
        run(seed, RollupConfig::default());
    }
}

/// Series that go to `other` are those of the log too.
#[test]
fn sim_hub_10_after_any_crash_with_few_series_the_figures_are_those_of_the_raw_log() {
    for seed in seeds(150) {
        run(seed, small());
    }
}

/// Figures of one bucket, counted without rollups.
#[derive(Default)]
struct Plain {
    count: u64,
    sum: i128,
    values: Vec<i64>,
    players: BTreeSet<ClientId>,
}

/// Resent batches are counted once, at every level; sums are exact, and sketches within 1 %.
#[test]
fn hub_10_every_level_equals_a_recount() {
    for seed in seeds(20) {
        let mut generator = Seed::from_number(seed).generator(3);
        let week = Duration::from_secs(7 * 86_400);
        let mut rollups = Rollups::new(RollupConfig {
            retention: [Some(week); 4],
            ..RollupConfig::default()
        });
        let mut plain: BTreeMap<(Level, u64), Plain> = BTreeMap::new();
        for number in 1..=20 {
            let records: Vec<_> = (0..100)
                .map(|_| {
                    let time = NOON.as_millis() - generator.below(400_000_000);
                    let value = i64::try_from(generator.between(1, 60_000)).unwrap();
                    StatRecord {
                        time: UnixTime::from_millis(time),
                        player: Some(ClientId(generator.below(500))),
                        ..record(0, "e", Sample::Event(value.into()))
                    }
                })
                .collect();
            let batch = batch(&records);
            for _again in 0..=generator.below(3) {
                rollups.apply(id(1, 1, number), NOON, &batch);
            }
            for record in &records {
                for level in Level::ALL {
                    let start = record.time.as_secs() / level.secs() * level.secs();
                    let plain = plain.entry((level, start)).or_default();
                    let Some(Number::Int(value)) = record.sample.number() else {
                        panic!("a float");
                    };
                    plain.count += 1;
                    plain.sum += i128::from(value);
                    plain.values.push(value);
                    plain.players.extend(record.player);
                }
            }
        }
        let columns = "count, sum, min, max, uniques, p50, p90, p99";
        for level in Level::ALL {
            let text = format!("{columns} of e from 0 to now step {}s", level.secs());
            let query = Query::parse(&text, NOON + Duration::from_secs(1)).unwrap();
            let rows = rollups.query(&query).unwrap();
            let expected: Vec<_> = plain.iter().filter(|((of, _), _)| *of == level).collect();
            assert_eq!(rows.len(), expected.len(), "{level:?}");
            for (row, ((_, start), plain)) in rows.iter().zip(expected) {
                assert_eq!(row.start.as_secs(), *start);
                let cells: Vec<_> = row.cells.iter().map(query::number).collect();
                let mut values = plain.values.clone();
                values.sort_unstable();
                let exact = [
                    plain.count.into(),
                    plain.sum,
                    (*values.first().unwrap()).into(),
                    (*values.last().unwrap()).into(),
                    plain.players.len().try_into().unwrap(),
                ]
                .map(float_of_i128);
                assert_eq!(cells[..5], exact, "{level:?} {start}");
                for (percent, found) in [50, 90, 99].into_iter().zip(&cells[5..]) {
                    let rank = (values.len() * percent).div_ceil(100) - 1;
                    let exact = float_of_i128(values[rank].into());
                    assert!(
                        (found - exact).abs() <= exact / 100.0,
                        "{found} for {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn hub_h12_rows_of_other_versions_are_named() {
    let config = RollupConfig::default();
    let mut player = record(NOON.as_secs(), "a x=y", Sample::Set(1.into()));
    player.player = Some(ClientId(1));
    let table = stored(rollups(&[player]), config);
    for (key, value) in &table {
        let mut other = table.clone();
        let mut later = value.clone();
        later[0] = 3;
        other.insert(key.clone(), later);
        let rows = other.iter().map(|(key, value)| (&key[..], &value[..]));
        let error = Rollups::load(config, rows).unwrap_err();
        let expected = format!("a row of kind {}: format version 3 is unknown", key[0]);
        assert_eq!(error.to_string(), expected);
        // Each flipped bit and each cut is refused, or loads.
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut flipped = value.clone();
                flipped[at] ^= 1 << bit;
                load_value(&table, key, flipped);
            }
            load_value(&table, key, value[..at].to_vec());
        }
    }
}

/// A node that was updated goes on with what the release before has stored.
#[test]
fn hub_h12_rows_of_version_1_are_read() {
    let config = RollupConfig {
        node_series_max: 0,
        ..RollupConfig::default()
    };
    let table = version_1_rows();
    let (mut rollups, position) = load(config, &table);
    assert_eq!(position, 0);
    let query = Query::parse(
        "sum, p50, uniques of kill by map from 0 to now step 1d",
        NOON + Duration::from_secs(86_400),
    );
    let rows = rollups.query(&query.unwrap()).unwrap();
    let cells: Vec<_> = rows[0].cells.iter().map(query::number).collect();
    assert_eq!(cells, [3.0, 3.0, 1.0]);
    assert_eq!(rows[0].group, [Some(text("Dust"))]);
    // The series of version 1 has no owner: a node without a share adds to it, and to no other.
    let time = rows[0].start;
    let add = |words| record(time.as_secs(), words, Sample::Add(1.into()));
    let batch = batch(&[add("kill map=Dust"), add("kill map=Rust")]);
    let two = BatchId {
        batch: BatchSeq(2),
        ..id(1, 1, 2)
    };
    assert_eq!(rollups.apply(two, time, &batch), Applied::Counted);
    assert_eq!(rollups.stats().over_share, 1);
    // Written again, rows have version 2.
    let mut again = Table::new();
    let written = rollups.visit_rows(7, |key, value| {
        again.insert(key.to_vec(), value.to_vec());
        Ok::<_, ()>(())
    });
    assert_eq!(written, Ok(()));
    assert_eq!((again[&vec![0]][0], table[&vec![0]][0]), (2, 1));
    let (loaded, position) = load(config, &again);
    assert_eq!((loaded.stats(), position), (rollups.stats(), 7));
}

fn version_1_rows() -> Table {
    let lines = include_str!("../../../testdata/stats_rows_v1.hex").lines();
    let digits: String = lines.filter(|line| !line.starts_with('#')).collect();
    let bytes = (0..digits.len()).step_by(2);
    let bytes: Vec<u8> = bytes
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect();
    let (mut table, mut rest) = (Table::new(), &bytes[..]);
    while let [key, high, low, tail @ ..] = rest {
        let value = usize::from(u16::from_be_bytes([*high, *low]));
        let (key, tail) = tail.split_at(usize::from(*key));
        let (value, tail) = tail.split_at(value);
        table.insert(key.to_vec(), value.to_vec());
        rest = tail;
    }
    table
}

fn load_value(table: &Table, key: &[u8], value: Vec<u8>) {
    let mut other = table.clone();
    other.insert(key.to_vec(), value);
    let rows = other.iter().map(|(key, value)| (&key[..], &value[..]));
    if let Ok((rollups, position)) = Rollups::load(RollupConfig::default(), rows) {
        let query = Query::parse("p50, uniques, last of a from 0 to now step 1d", NOON);
        rollups.query(&query.unwrap()).unwrap();
        assert!(rollups.bucket_count() <= 4);
        assert!(position == 0 || key == [0]);
    }
}

#[test]
fn keys_that_are_none_are_refused() {
    let config = RollupConfig::default();
    let table = stored(
        rollups(&[record(NOON.as_secs(), "a", Sample::Add(1.into()))]),
        config,
    );
    let load = |table: &Table| {
        let rows = table.iter().map(|(key, value)| (&key[..], &value[..]));
        Rollups::load(config, rows).map(|_| ())
    };
    assert_eq!(load(&table), Ok(()));
    let bucket = table.keys().find(|key| key[0] == 3).unwrap().clone();
    let series = table.keys().find(|key| key[0] == 2).unwrap().clone();
    let value = table[&bucket].clone();
    for key in [vec![4], vec![], vec![3, 0], [&bucket[..], &[0]].concat()] {
        let mut other = table.clone();
        other.insert(key.clone(), value.clone());
        let error = load(&other).unwrap_err();
        let is_first = key.is_empty();
        let expected = if is_first {
            LoadError::NoPosition
        } else {
            LoadError::Key
        };
        assert_eq!(error, expected, "{key:?}");
    }
    let mut other = table.clone();
    other.remove(&series);
    assert_eq!(load(&other), Err(LoadError::NoSeries(0)));
    let mut other = table.clone();
    other.insert(vec![2, 0, 0, 0, 1], table[&series].clone());
    assert_eq!(load(&other), Err(LoadError::Repeated(1)));
    let rows = [(&[1][..], &[][..]), (&[0][..], &[][..])];
    assert_eq!(
        Rollups::load(config, rows).unwrap_err(),
        LoadError::NoPosition
    );
    let rows = table
        .iter()
        .rev()
        .map(|(key, value)| (&key[..], &value[..]));
    assert_eq!(
        Rollups::load(config, rows).unwrap_err(),
        LoadError::NoPosition
    );
}
