//! Statistics: a node that sends its batches until they are stored.

use std::time::Duration;

use bytes::Bytes;
use hub::log::MemorySegments;
use hub::record::StatsVerdict;
use hub::stats::{Batch, BatchWriter, Cell, Number, Sample, StatRecord, StatsOp};
use hub::stats_store::{StatsStore, read_raw_log};
use hub::store::Completed;
use hub::{BatchSeq, Epoch, LogId, Name, Redacted};
use wire::{CommandId, Generator};

use super::{NODE, NOW, small_statistics};

#[derive(Default)]
pub(super) struct Model {
    batches: u64,
    /// Batches without a verdict, with their samples.
    open: Vec<(u64, Bytes)>,
    /// Samples in all batches.
    recorded: i64,
}

impl Model {
    /// Sends a new batch, and all without a verdict; returns how many were stored.
    pub(super) fn step(
        &mut self,
        store: &mut StatsStore<MemorySegments>,
        generator: &mut Generator,
    ) -> u64 {
        self.batches += 1;
        let samples = i64::try_from(generator.between(1, 800)).unwrap();
        let mut writer = BatchWriter::default();
        for at in 0..samples {
            let at = u64::try_from(at % 5).unwrap();
            let record = StatRecord {
                time: NOW + Duration::from_millis(at),
                player: None,
                key: Name::new("kill").unwrap().into(),
                sample: Sample::Add(Number::Int(1)),
            };
            writer.push(&record).unwrap();
        }
        self.recorded += samples;
        self.open.push((self.batches, writer.take().into()));
        let stored = self.send(store);
        while generator.chance(800_000) && store.keep_up() {}
        stored
    }

    fn send(&mut self, store: &mut StatsStore<MemorySegments>) -> u64 {
        let ops = self.open.iter().map(|(number, bytes)| StatsOp::Append {
            log: LogId(9),
            node: NODE,
            epoch: Epoch(1),
            batch: BatchSeq(*number),
            now: NOW,
            bytes: Redacted(bytes.clone()),
        });
        let ops: Vec<_> = ops.map(|op| (CommandId(1), op)).collect();
        let mut outcomes = Vec::new();
        store.execute(ops, &mut outcomes);
        let mut is_stored = outcomes.iter().map(|(_, outcome)| match outcome {
            Ok(Completed::StatsSettled(StatsVerdict::Stored)) => true,
            Ok(Completed::StatsSettled(StatsVerdict::Busy)) | Err(_) => false,
            other => panic!("{other:?}"),
        });
        let before = self.open.len();
        self.open.retain(|_| !is_stored.next().unwrap_or(false));
        (before - self.open.len()) as u64
    }

    /// After the last cut: every sample is counted once, in the rollups and in the raw log.
    pub(super) fn check(&mut self, seed: u64, disk: MemorySegments) {
        let mut store = StatsStore::open(disk, small_statistics()).unwrap();
        self.send(&mut store);
        assert!(self.open.is_empty(), "seed {seed}: the disk works");
        let now = NOW + Duration::from_secs(100);
        let page = store
            .query("sum of kill from 0 to now step 1d", now)
            .unwrap();
        let mut sum = 0.0;
        for row in page.rows {
            let Cell::Number(number) = row.cells[0] else {
                panic!("seed {seed}: no number");
            };
            sum += number;
        }
        assert_eq!(sum.to_string(), self.recorded.to_string(), "seed {seed}");
        let mut recount = 0;
        read_raw_log(store.files_mut(), &mut |raw| {
            recount += Batch::decode(&raw.bytes).unwrap().records().count();
        })
        .unwrap();
        assert_eq!(
            i64::try_from(recount).unwrap(),
            self.recorded,
            "seed {seed}"
        );
    }
}
