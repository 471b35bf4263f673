//! Time until a hub's store is ready after its process was killed, with and without a snapshot of the
//! mail index.
//!
//! ```text
//! cargo bench -p tickwire-hub --features fs --bench restart              # `-- 1000000 10000000 7`: mails, rounds
//! ```
//!
//! *Cold* rounds begin without the log in the page cache: `dd` drops it.

#![expect(clippy::print_stdout, reason = "its table is its result")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hub::log::FileSegments;
use hub::store::NewMail;
use hub::{Addr, Command, Completed, LogId, SenderSeq, Store, StoreConfig, StoreOp};
use wire::{ClientId, CommandId, InstanceId, NodeId, Seed, UnixTime};

const NODE: NodeId = NodeId([7; 32]);
const BODY: Bytes = Bytes::from_static(&[5; 128]);
const BATCH: u64 = 4_096;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().filter_map(|text| text.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    let rounds = numbers.pop().unwrap_or(7);
    if numbers.is_empty() {
        numbers = vec![1_000_000, 10_000_000];
    }
    println!(
        "| mails | index | ready, ms: best, median, worst | CPU, ms | restored | records read |"
    );
    println!("|---|---|---|---|---|---|");
    for mails in numbers {
        measure(mails, rounds)?;
    }
    Ok(())
}

fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.live_bytes_max = 64 << 30;
    config.mails_max = usize::MAX;
    config
}

fn open(folder: &Path) -> Result<Store<FileSegments>, Box<dyn Error>> {
    let store = Store::open(FileSegments::open(folder)?, config(), LogId(1));
    store.map_err(|failure| failure.error.into())
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn measure(mails: u64, rounds: u64) -> Result<(), Box<dyn Error>> {
    let name = format!("tickwire-restart-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    fill(&folder.0, mails)?;
    for index in ["snapshot", "snapshot, cold", "log only"] {
        if index == "log only" {
            remove_snapshots(&folder.0)?;
        }
        let mut times = Vec::new();
        let mut processor = Vec::new();
        let (mut restored, mut records) = (0, 0);
        for _ in 0..rounds {
            if index == "snapshot, cold" {
                drop_pages(&folder.0)?;
            }
            let (began, busy) = (Instant::now(), processor_time()?);
            let store = open(&folder.0)?;
            times.push(began.elapsed());
            processor.push(processor_time()?.saturating_sub(busy));
            if store.mail_count() as u64 != mails {
                return Err(format!("{} mails of {mails}", store.mail_count()).into());
            }
            restored = store.recovery().restored;
            records = store.recovery().records;
        }
        times.sort_unstable();
        processor.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        let (best, worst) = (ms(times.first()), ms(times.last()));
        let median = ms(times.get(times.len() / 2));
        let processor = ms(processor.get(processor.len() / 2));
        println!(
            "| {mails} | {index} | {best}, {median}, {worst} | {processor} | {restored} | {records} |"
        );
    }
    Ok(())
}

/// Writes the folder's files to the disk, and drops them from the page cache.
fn drop_pages(folder: &Path) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        std::fs::File::open(&file)?.sync_all()?;
        let done = std::process::Command::new("dd")
            .arg(format!("if={}", file.display()))
            .args(["iflag=nocache", "count=0", "status=none"])
            .status()?;
        if !done.success() {
            return Err("dd does not drop pages".into());
        }
    }
    Ok(())
}

/// Returns the time that this thread has run.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(nanos))
}

/// Stores `mails` mails of 128 bytes, about eight for each player in random order.
fn fill(folder: &Path, mails: u64) -> Result<(), Box<dyn Error>> {
    let mut store = open(folder)?;
    let mut outcomes = Vec::new();
    let join = StoreOp::Join {
        node: NODE,
        instance: InstanceId(1),
        epoch: hub::Epoch(0),
        role: hub::Role::GameNode,
    };
    store.execute([(CommandId(0), Command::Store(join))], &mut outcomes);
    let Some((_, Ok(Completed::Joined { epoch, .. }))) = outcomes.pop() else {
        return Err("the node did not join".into());
    };
    let mut generator = Seed::from_number(1).generator(0);
    let players = (mails / 8).max(1);
    let mut next = 1;
    while next <= mails {
        let last = mails.min(next + BATCH - 1);
        let batch = (next..=last).map(|seq| NewMail {
            to: Addr::Player(ClientId(
                generator.below(players).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ))
            .into(),
            node: NODE,
            epoch,
            seq: SenderSeq(seq),
            settled: SenderSeq(seq - 1),
            expires: UnixTime::from_secs(2_000_000_000),
            priority: 0,
            body: BODY.into(),
        });
        let append = Command::Store(StoreOp::Append(batch.collect()));
        store.execute([(CommandId(next), append)], &mut outcomes);
        outcomes.clear();
        while store.keep_up() {}
        next = last + 1;
    }
    Ok(())
}

fn remove_snapshots(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
