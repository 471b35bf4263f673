//! Measures the hub, NATS and Redis in turn, and prints rows.
//!
//! ```text
//! peers-hub NATS-SERVER REDIS-SERVER ROUNDS
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hub::kv::Durability;
use peers_hub::nats::Nats;
use peers_hub::process::{self, Certificate, Sync};
use peers_hub::redis_stack::Redis;
use peers_hub::sample::{self, Sample};
use peers_hub::tickwire::{self, Tickwire};
use peers_hub::{Result, floor};

/// All stacks of one round.
struct Stacks {
    tickwire: Tickwire,
    nats: [Nats; 2],
    nats_sync: [Nats; 2],
    redis: [Redis; 2],
    folder: PathBuf,
}

type Samples = BTreeMap<(&'static str, String), Vec<Sample>>;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hub", folder] => tickwire::run_hub(Path::new(folder)),
        [nats, redis, rounds] => run(Path::new(nats), Path::new(redis), rounds.parse()?),
        _ => Err("expected arguments: nats-server, redis-server, rounds".into()),
    }
}

fn run(nats: &Path, redis: &Path, rounds: usize) -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "a TLS provider is installed")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut samples = Samples::new();
    for round in 0..rounds {
        let folder = std::env::temp_dir().join(format!("peers-hub-{}-{round}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = start(&folder, nats, redis)
            .map(|stacks| runtime.block_on(measure(&stacks, &mut samples)));
        std::fs::remove_dir_all(&folder).ok();
        result?;
    }
    for ((stack, case), samples) in samples {
        sample::print(stack, &case, &samples);
    }
    Ok(())
}

fn start(folder: &Path, nats: &Path, redis: &Path) -> Result<Stacks> {
    let certificate = Certificate::create(folder)?;
    let tls = Some(&certificate);
    let start_nats = |name: &str, sync, tls: Option<&Certificate>| -> Result<Nats> {
        let server = process::nats(nats, &folder.join(name), sync, tls)?;
        Ok(Nats::new(server, tls.cloned()))
    };
    let start_redis = |name: &str, tls: Option<&Certificate>| -> Result<Redis> {
        Redis::new(process::redis(redis, &folder.join(name), tls)?, tls)
    };
    Ok(Stacks {
        tickwire: Tickwire::start(&folder.join("hub"))?,
        nats: [
            start_nats("nats", Sync::Default, None)?,
            start_nats("nats_tls", Sync::Default, tls)?,
        ],
        nats_sync: [
            start_nats("sync", Sync::Always, None)?,
            start_nats("sync_tls", Sync::Always, tls)?,
        ],
        redis: [start_redis("redis", None)?, start_redis("redis_tls", tls)?],
        folder: folder.to_path_buf(),
    })
}

/// Runs each case on each stack. The hub has TLS in both columns.
async fn measure(stacks: &Stacks, samples: &mut Samples) {
    for (at, suffix) in ["", "_tls"].into_iter().enumerate() {
        let (hub, nats) = (&stacks.tickwire, &stacks.nats[at]);
        let (nats_sync, redis) = (&stacks.nats_sync[at], &stacks.redis[at]);
        // A fault of one stack leaves its value out, and so its goals undecided.
        let mut add = |stack, case: &str, sample: Result<Sample>| match sample {
            Ok(sample) => {
                let key = (stack, format!("{case}{suffix}"));
                samples.entry(key).or_default().push(sample);
            }
            Err(error) => eprintln!("{stack} {case}{suffix}: {error}"),
        };
        for (case, window) in [("call1", 1), ("call256", 256)] {
            add(TICKWIRE, case, hub.call(window));
            add(NATS, case, nats.call(window).await);
        }
        add(TICKWIRE, "fanout100", hub.fan_out());
        add(NATS, "fanout100", nats.fan_out().await);
        for (case, window) in [("mail1", 1), ("mail64", 64), ("mail1024", 1_024)] {
            add("floor", case, floor::sync(&stacks.folder));
            add(TICKWIRE, case, hub.mail(window));
            add(NATS, case, nats.mail(window).await);
            add("nats-sync", case, nats_sync.mail(window).await);
            add(REDIS, case, redis.mail(window).await);
        }
        add(TICKWIRE, "mailbox200", hub.mailbox());
        add(NATS, "mailbox200", nats.mailbox().await);
        add(REDIS, "mailbox200", redis.mailbox().await);
        add(TICKWIRE, "kv_watch", hub.kv_watch(Durability::Memory));
        add(NATS, "kv_watch", nats.kv_watch().await);
        add("floor", "kv_watch_disk", floor::sync(&stacks.folder));
        add(TICKWIRE, "kv_watch_disk", hub.kv_watch(Durability::Disk));
        add("nats-sync", "kv_watch_disk", nats_sync.kv_watch().await);
        add(TICKWIRE, "count", Ok(tickwire::count()));
    }
}

const TICKWIRE: &str = "tickwire";
const NATS: &str = "nats";
const REDIS: &str = "redis";
