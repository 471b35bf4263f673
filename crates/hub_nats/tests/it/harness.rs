//! Servers of NATS as child processes, and stores on them.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hub::log::SegmentId;
use hub::log::format::{LogRecord, decode};
use hub::store::{NewMail, StoreStats};
use hub::{
    Addr, Backend, Completed, Epoch, LogId, MailSeq, Outcome, Redacted, SenderSeq, Store,
    StoreConfig, StoreOp,
};
use hub_nats::{NatsConfig, NatsServer, StreamSegments, Watch, store_config};
use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

/// Longest time that a test waits for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A `nats-server` with a folder of its own; both end with this value.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a server that keeps nothing but one store folder; `extra` is more of its configuration.
    pub(crate) fn start(extra: &str) -> Self {
        Self::start_at(free_port(), &unique_folder(), extra)
    }

    /// Starts three servers that form a cluster.
    pub(crate) fn cluster() -> Vec<Self> {
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let all: Vec<String> = routes
            .iter()
            .map(|port| format!("nats-route://127.0.0.1:{port}"))
            .collect();
        let start = |(port, route): (&u16, &u16)| {
            let extra = format!(
                "server_name: s{port}\ncluster {{ name: c, listen: \"127.0.0.1:{route}\", \
                 routes: [{}] }}\n",
                all.join(", ")
            );
            Self::start_at(*port, &unique_folder(), &extra)
        };
        ports.iter().zip(&routes).map(start).collect()
    }

    fn start_at(port: u16, folder: &Path, extra: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let store = folder.join("store");
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{extra}",
            store.display()
        );
        let path = folder.join("server.conf");
        std::fs::write(&path, config).unwrap();
        let child = spawn(&path, folder);
        let server = Self {
            child,
            folder: folder.to_owned(),
            port,
        };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                let mut line = String::new();
                if BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO") {
                    return;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("nats-server does not answer:\n{log}");
    }

    /// Ends the server as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        // An error: it was killed before.
        drop(self.child.kill());
        self.child.wait().unwrap();
    }

    /// Kills the server, and starts it again on the same store.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.folder.join("server.conf"), &self.folder);
        self.wait_until_ready();
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn config(&self) -> NatsConfig {
        config(vec![self.url()])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn spawn(config: &Path, folder: &Path) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    Command::new("nats-server")
        .arg("-c")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("nats-server is on PATH: run `cargo xtask test`")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

pub(crate) fn unique_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tickwire-hub-nats-{}-{number}", std::process::id());
    std::env::temp_dir().join(name)
}

/// Patient with a loaded machine, and with a lease that ends soon.
pub(crate) fn config(servers: Vec<String>) -> NatsConfig {
    let mut config = NatsConfig::new(servers);
    config.request_timeout = Duration::from_secs(5);
    config.outage_max = Duration::from_secs(40);
    config.lease_ttl = Duration::from_secs(3);
    config.cache_bytes = 256 << 10;
    config
}

/// A store on NATS, with its lease.
pub(crate) struct NatsBackend {
    pub(crate) store: Store<StreamSegments>,
    // Dropped last.
    pub(crate) watch: Watch,
}

impl NatsBackend {
    /// Opens the store; while the servers elect their leaders, it asks again.
    pub(crate) fn open(config: &NatsConfig, limits: StoreConfig) -> Self {
        let start = Instant::now();
        loop {
            let opened = NatsServer::connect(config.clone())
                .and_then(|server| server.take_over("test", || start.elapsed() < LIMIT));
            let error = match opened {
                Ok(Some((segments, watch))) => {
                    match Store::open(segments, store_config(limits), LogId(7)) {
                        Ok(store) => return Self { store, watch },
                        Err(failure) => format!("{}; {:?}", failure.error, watch.lost()),
                    }
                }
                Ok(None) => panic!("the lease is not free"),
                Err(error) => error.to_string(),
            };
            // As a supervisor starts a hub again.
            assert!(start.elapsed() < LIMIT, "{error}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn run(&mut self, op: StoreOp) -> Outcome {
        let mut outcomes = Vec::new();
        let command = hub::Command::Store(op);
        self.store.execute([(CommandId(1), command)], &mut outcomes);
        while self.store.keep_up() {}
        outcomes.pop().unwrap().1
    }

    pub(crate) fn join(&mut self, instance: u64) -> Epoch {
        let op = StoreOp::Join {
            node: NODE,
            instance: InstanceId(instance),
            epoch: Epoch(0),
            role: hub::Role::GameNode,
        };
        match self.run(op) {
            Ok(Completed::Joined { epoch, .. }) => epoch,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, player: u64) -> Vec<Vec<u8>> {
        let mut found: Vec<hub::store::Mail> = Vec::new();
        loop {
            let op = StoreOp::Read {
                player: ClientId(player),
                after: found.last().map_or(MailSeq(0), |mail| mail.seq),
                bytes_max: 1 << 20,
                now: UnixTime::from_millis(1),
            };
            match self.run(op) {
                Ok(Completed::Mails { mails, more }) => {
                    found.extend(mails);
                    if !more {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        found.iter().map(|mail| mail.body.0.to_vec()).collect()
    }
}

pub(crate) const NODE: NodeId = NodeId([7; 32]);

pub(crate) fn append_op(epoch: Epoch, seq: u64, player: u64, body: &[u8]) -> StoreOp {
    StoreOp::Append(vec![NewMail {
        to: Addr::Player(ClientId(player)).into(),
        priority: 0,
        node: NODE,
        epoch,
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        expires: UnixTime::from_millis(1 << 40),
        body: Redacted(bytes::Bytes::copy_from_slice(body)),
    }])
}

impl Backend for NatsBackend {
    fn submit(&mut self, batch: &mut dyn Iterator<Item = (CommandId, hub::Command)>) {
        self.store.submit(batch);
    }

    fn poll_completed(&mut self) -> Option<(CommandId, Outcome)> {
        self.store.poll_completed()
    }

    fn tidy(&mut self) -> bool {
        self.store.tidy()
    }

    fn keep_up(&mut self) -> bool {
        self.store.keep_up()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

/// Small segments, so that tests meet several.
pub(crate) fn limits() -> StoreConfig {
    let mut limits = StoreConfig::default();
    limits.segment_bytes = StoreConfig::SEGMENT_BYTES_MIN;
    limits
}

/// The segment that a subject of the log names.
pub(crate) fn segment_of(subject: &str) -> SegmentId {
    SegmentId(subject.rsplit('.').next().unwrap().parse().unwrap())
}

/// The player and the body of each mail in a message of the log, which holds whole records.
pub(crate) fn mails_in(subject: &str, place: &str, data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut offset: u64 = place.split(' ').next().unwrap().parse().unwrap();
    let (mut rest, mut mails) = (data, Vec::new());
    while let Ok((record, len)) = decode(rest, segment_of(subject), offset) {
        if let LogRecord::Mail(mail) = record {
            mails.push((mail.player.0, mail.body.0.to_vec()));
        }
        rest = &rest[len..];
        offset += len as u64;
    }
    assert!(rest.is_empty(), "a message holds whole records");
    mails
}
