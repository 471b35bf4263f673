//! Time from a mail to its durable acknowledgement, 64 in flight, while segments of the log roll.
//!
//! ```text
//! cargo bench -p tickwire-servicer --features hub --bench acknowledgement      # `-- 20`: seconds for each row
//! ```
//!
//! 64 mails make one batch and one sync, as on the hub's storage thread; the time of a batch includes the
//! housekeeping before it. With 4 KiB each, one batch in 60 meets a new segment of 16 MiB: more than one
//! in a hundred. `files` allocates it in the storage thread, `background` on another one.

#![expect(clippy::print_stdout, reason = "its table is its result")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hub::log::{FileSegments, SegmentFile};
use hub::store::NewMail;
use hub::{Addr, Command, Completed, Epoch, LogId, SenderSeq, Store, StoreConfig, StoreOp};
use servicer::BackgroundSegments;
use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

const NODE: NodeId = NodeId([7; 32]);
const IN_FLIGHT: u64 = 64;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().filter_map(|text| text.parse().ok());
    let time = Duration::from_secs(numbers.next().unwrap_or(20));
    println!("| body, bytes | segments | batches | p50, µs | p99, µs | worst, µs | p99 / p50 |");
    println!("|---|---|---|---|---|---|---|");
    for body in [128, 4_096] {
        let folder = folder("files");
        measure("files", body, time, FileSegments::open(&folder.0)?)?;
        let folder = self::folder("background");
        let files = BackgroundSegments::new(FileSegments::open(&folder.0)?)?;
        measure("background", body, time, files)?;
    }
    Ok(())
}

fn folder(name: &str) -> Folder {
    let name = format!("tickwire-acknowledgement-{name}-{}", std::process::id());
    Folder(Path::new(&std::env::temp_dir()).join(name))
}

fn measure(
    name: &str,
    body: usize,
    time: Duration,
    files: impl SegmentFile,
) -> Result<(), Box<dyn Error>> {
    let mut config = StoreConfig::default();
    config.mailbox_bytes_max = u64::MAX;
    config.mailbox_mails_max = u32::MAX;
    let store = Store::open(files, config, LogId(1));
    let mut store = store.map_err(|failure| failure.error)?;
    let mut outcomes = Vec::new();
    let join = StoreOp::Join {
        node: NODE,
        instance: InstanceId(1),
        epoch: Epoch(0),
        role: hub::Role::GameNode,
    };
    store.execute([(CommandId(0), Command::Store(join))], &mut outcomes);
    let Some((_, Ok(Completed::Joined { epoch, .. }))) = outcomes.pop() else {
        return Err("the node did not join".into());
    };
    let body = Bytes::from(vec![5; body]);
    let mut times = Vec::new();
    let began = Instant::now();
    let (mut before, mut next) = (began, 1);
    while began.elapsed() < time {
        let mails = (next..next + IN_FLIGHT).map(|seq| NewMail {
            to: Addr::Player(ClientId(seq % 500)).into(),
            node: NODE,
            epoch,
            seq: SenderSeq(seq),
            settled: SenderSeq(seq - 1),
            expires: UnixTime::from_secs(2_000_000_000),
            priority: 0,
            body: body.clone().into(),
        });
        let append = Command::Store(StoreOp::Append(mails.collect()));
        // Players acknowledge, so that old segments are removed.
        let ack = |player| {
            let player = ClientId(player);
            let upto = hub::MailSeq(next.saturating_sub(4_000));
            (CommandId(2), Command::Store(StoreOp::Ack { player, upto }))
        };
        let acks = (next..next + IN_FLIGHT).map(|seq| ack(seq % 500));
        let commands: Vec<_> = std::iter::once((CommandId(1), append))
            .chain(acks)
            .collect();
        store.execute(commands, &mut outcomes);
        if outcomes.iter().any(|(_, outcome)| outcome.is_err()) {
            return Err("the store refused".into());
        }
        outcomes.clear();
        times.push(before.elapsed());
        before = Instant::now();
        while store.keep_up() {}
        next += IN_FLIGHT;
    }
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get(times.len() * share / 1_000)
            .map_or(0, Duration::as_micros)
    };
    let (p50, p99, worst) = (
        at(500),
        at(990),
        times.last().map_or(0, Duration::as_micros),
    );
    println!(
        "| {} | {name} | {} | {p50} | {p99} | {worst} | {:.1} |",
        body.len(),
        times.len(),
        Duration::from_micros(u64::try_from(p99)?).as_secs_f64()
            / Duration::from_micros(u64::try_from(p50)?).as_secs_f64()
    );
    Ok(())
}
