//! A machine that loses power again and again, with everything that a hub stores: mail to players, to
//! many and to groups, groups, keys and statistics.
//!
//! Each life of the machine draws its faults: a failed sync, a full disk, a write that ends halfway, a
//! flipped bit. Then the power is cut: of what was not synced, any sectors are lost.
//!
//! ```text
//! SEEDS=400 cargo test -p tickwire-hub --test it sim_h13_power_cuts -- --nocapture    # 10,000 cuts
//! ```

mod keys;
mod mail;
mod statistics;

use std::collections::{BTreeMap, BTreeSet};

use hub::log::{MemorySegments, SegmentFile};
use hub::stats_store::{StatsStore, StatsStoreConfig};
use hub::store::{Outcome, Store, StoreConfig, StoreOp};
use hub::{Command, LogId};
use wire::{CommandId, Generator, NodeId, Seed, UnixTime};

const NODE: NodeId = NodeId([7; 32]);
const NOW: UnixTime = UnixTime::from_secs(1_800_014_400);
const LATER: UnixTime = UnixTime::from_secs(1_900_000_000);

/// Lives of a machine; each ends with a power cut.
const LIVES: u64 = 25;

/// Machines of the short run: 1,000 cuts.
const SHORT: u64 = 40;

/// What senders, handlers and readers know, and the two disks.
struct Machine {
    seed: u64,
    generator: Generator,
    disk: MemorySegments,
    stats_disk: MemorySegments,
    mail: mail::Model,
    keys: keys::Model,
    statistics: statistics::Model,
    met: Met,
}

/// What all machines have met; each must be met for the run to show anything.
#[derive(Debug, Default)]
struct Met {
    cuts: u64,
    failed_stores: u64,
    failed_starts: u64,
    full: u64,
    snapshots: u64,
    restored: u64,
    flipped: u64,
    detected: u64,
    stored: u64,
    recipients: u64,
    handled: u64,
    memberships: u64,
    keys: u64,
    batches: u64,
}

#[test]
fn sim_h13_power_cuts_lose_and_double_nothing_acknowledged() {
    let mut met = Met::default();
    let seeds = std::cell::Cell::new(0);
    netsim::for_each_seed(&netsim::test_site!(), SHORT, |seed| {
        seeds.set(seeds.get() + 1);
        let number = seed.0[0..8].try_into().map_or(0, u64::from_le_bytes);
        let mut machine = Machine::new(number, seed, std::mem::take(&mut met));
        for _ in 0..LIVES {
            machine.live();
        }
        machine.check_end();
        met = machine.met;
        Ok::<(), std::convert::Infallible>(())
    });
    eprintln!("{met:?}");
    assert_eq!(met.cuts, seeds.get() * LIVES);
    let each = [
        met.failed_stores,
        met.failed_starts,
        met.full,
        met.snapshots,
        met.restored,
        met.detected,
        met.handled,
        met.memberships,
        met.keys,
        met.batches,
    ];
    assert!(
        seeds.get() < SHORT || each.iter().all(|count| *count > 0),
        "{met:?}"
    );
}

impl Machine {
    fn new(seed: u64, from: Seed, met: Met) -> Self {
        Self {
            seed,
            generator: from.generator(0),
            disk: MemorySegments::new(6 * StoreConfig::SEGMENT_BYTES_MIN),
            stats_disk: MemorySegments::new(64 << 20),
            mail: mail::Model::default(),
            keys: keys::Model::default(),
            statistics: statistics::Model::default(),
            met,
        }
    }

    /// One life, from the start to the power cut.
    fn live(&mut self) {
        if self.generator.chance(100_000) {
            self.flip_a_bit();
        }
        self.inject_faults();
        let disk = std::mem::replace(&mut self.disk, MemorySegments::new(0));
        self.disk = match Store::open(disk, small(), LogId(7)) {
            Ok(mut store) => {
                self.met.restored += store.recovery().restored;
                self.use_store(&mut store);
                self.met.failed_stores += u64::from(store.is_dead());
                self.met.snapshots += store.stats().snapshots;
                store.into_files()
            }
            Err(failure) => {
                self.met.failed_starts += 1;
                failure.files
            }
        };
        let disk = std::mem::replace(&mut self.stats_disk, MemorySegments::new(0));
        self.stats_disk = match StatsStore::open(disk, small_statistics()) {
            Ok(mut store) => {
                let steps = self.generator.below(6);
                for _ in 0..steps {
                    let count = self.statistics.step(&mut store, &mut self.generator);
                    self.met.batches += count;
                }
                store.into_files()
            }
            Err(failure) => failure.files,
        };
        self.met.cuts += 1;
        for disk in [&mut self.disk, &mut self.stats_disk] {
            disk.power_cut(&mut self.generator);
            disk.set_capacity(6 * StoreConfig::SEGMENT_BYTES_MIN);
        }
    }

    fn inject_faults(&mut self) {
        let generator = &mut self.generator;
        for (disk, many) in [(&mut self.disk, 60), (&mut self.stats_disk, 20)] {
            match generator.below(6) {
                0 => disk.fail_sync_after(generator.below(many / 2)),
                1 => disk.stop_after(generator.below(many)),
                // During recovery, which takes about five operations.
                2 => disk.stop_after(generator.below(8)),
                3 => disk.fill_after(generator.below(3)),
                4 => {
                    let used = disk.used();
                    disk.set_capacity(used + generator.below(StoreConfig::SEGMENT_BYTES_MIN));
                }
                _ => {}
            }
        }
    }

    fn use_store(&mut self, store: &mut Store<MemorySegments>) {
        let (seed, generator) = (self.seed, &mut self.generator);
        self.keys.check(seed, store);
        for _ in 0..generator.below(30) {
            if store.is_dead() {
                return;
            }
            match generator.below(12) {
                0..=3 => self.mail.send(seed, store, generator, &mut self.met),
                4 | 5 => self.mail.handle(seed, store, generator, &mut self.met),
                6 | 7 => self
                    .mail
                    .change_group(seed, store, generator, &mut self.met),
                8 | 9 => self.met.keys += self.keys.write(seed, store, generator),
                // The power may be cut between any two steps.
                _ => {
                    for _ in 0..=generator.below(9) {
                        store.tidy();
                    }
                }
            }
        }
    }

    /// Flips one bit of a copy of the disk. What is lost by that is reported, and what is not is as
    /// it was.
    fn flip_a_bit(&mut self) {
        let mut disk = self.disk.clone();
        disk.kill();
        let segments = disk.list().unwrap_or_default();
        let nth = self.generator.below(segments.len().max(1) as u64);
        let Some((segment, len)) = segments.get(usize::try_from(nth).unwrap()) else {
            return;
        };
        let offset = usize::try_from(self.generator.below(*len)).unwrap();
        let bit = u8::try_from(self.generator.below(8)).unwrap();
        disk.flip_bit(*segment, offset, bit);
        self.met.flipped += 1;
        let Ok(mut store) = Store::open(disk, small(), LogId(7)) else {
            self.met.detected += 1;
            return;
        };
        let missing = self.mail.missing(self.seed, &mut store);
        let recovery = store.recovery();
        let reports = [recovery.corrupt, recovery.torn_bytes, store.stats().corrupt];
        let is_reported = reports.iter().any(|count| *count > 0);
        assert!(
            missing == 0 || is_reported,
            "seed {}: {missing} mails are lost silently",
            self.seed
        );
        self.met.detected += u64::from(is_reported);
    }

    /// After the last cut, with a disk that works.
    fn check_end(&mut self) {
        let disk = std::mem::replace(&mut self.disk, MemorySegments::new(0));
        let mut store = Store::open(disk, small(), LogId(7)).unwrap();
        self.keys.check(self.seed, &mut store);
        self.mail.settle(self.seed, &mut store, &mut self.met);
        let missing = self.mail.missing(self.seed, &mut store);
        assert_eq!(missing, 0, "seed {}: acknowledged mail is lost", self.seed);
        let disk = std::mem::replace(&mut self.stats_disk, MemorySegments::new(0));
        self.statistics.check(self.seed, disk);
    }
}

fn small() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.segment_bytes = 0;
    config.snapshot_after = 0;
    config
}

fn small_statistics() -> StatsStoreConfig {
    let mut config = StatsStoreConfig::default();
    config.segment_bytes = 0;
    config.checkpoint_bytes = 20_000;
    config
}

fn run(store: &mut Store<MemorySegments>, op: StoreOp) -> Outcome {
    let mut outcomes = Vec::new();
    store.execute([(CommandId(0), Command::Store(op))], &mut outcomes);
    outcomes.pop().unwrap().1
}

/// Players of each group, or handled mails of each player.
type Sets = BTreeMap<u64, BTreeSet<u64>>;
