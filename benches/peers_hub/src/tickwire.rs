//! The cases on the hub, over TLS 1.3: it has no other transport.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crypto::{Identity, Provider as _, Ring};
use daemon::role::hub::{HubOptions, HubProcess};
use hub::join_file::{Grant, NetworkSecret};
use hub::kv::{Durability, KvKey, KvPrefix, KvPut, Revision};
use hub::{
    Addr, CallId, ClaimId, JoinFile, MailSeq, Name, Node, NodeConfig, NodeEvent, Role, SenderSeq,
};
use servicer::{HubApplication, HubNode, StreamHandle};
use wire::{ClientId, Instant};

use crate::process::{self, Server};
use crate::sample::{DURATION, Recorder, Sample, now};
use crate::{
    FAN_BATCH, FAN_LINKS, FAN_SUBSCRIPTIONS, FAN_WINDOW, MAILBOX_MAILS, MAILBOXES, PAYLOAD, Result,
};

const BODY: Bytes = Bytes::from_static(&[7; PAYLOAD]);

const HOUR: Duration = Duration::from_hours(1);

/// Longest wait for a node.
const PATIENCE: Duration = Duration::from_secs(20);

/// The part of an application that gets no requests.
macro_rules! without_requests {
    () => {
        type Request = usize;

        fn apply_request(&mut self, _: Instant, _: &mut Node, _: usize) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    };
}

/// A hub process and the identities of its nodes.
#[derive(Debug)]
pub struct Tickwire {
    _server: Server,
    join_file: JoinFile,
    identities: Vec<Identity>,
}

/// Runs the hub of `folder` until stdin is closed.
#[expect(clippy::print_stdout, reason = "the parent process waits for the line")]
pub fn run_hub(folder: &Path) -> Result<()> {
    let identity = Identity::from_pem(&fs::read_to_string(folder.join("hub.pem"))?)?;
    let join_file = JoinFile::parse(&fs::read_to_string(folder.join("net.join"))?)?;
    let data = folder.join("data");
    let options = HubOptions::new(&identity, join_file, &data);
    let hub = HubProcess::start(options).map_err(|error| error.to_string())?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    hub.shutdown(Duration::from_secs(1))
        .map_err(|error| error.to_string().into())
}

impl Tickwire {
    /// Starts a hub in `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        let folder: PathBuf = folder.to_path_buf();
        fs::create_dir_all(&folder)?;
        let mut random = Ring::new();
        let port = process::free_port()?;
        let hub = Identity::generate(&mut random)?;
        let mut join_file = JoinFile::new(NetworkSecret::new([7; 32]));
        let address = format!("127.0.0.1:{port}");
        join_file
            .grants
            .push(Grant::new(Role::Hub, hub.node_id()).with_address(&address));
        let mut identities = Vec::new();
        for _ in 0..2 + FAN_LINKS {
            let identity = Identity::generate(&mut random)?;
            join_file
                .grants
                .push(Grant::new(Role::GameNode, identity.node_id()));
            identities.push(identity);
        }
        fs::write(folder.join("hub.pem"), hub.to_pem().as_bytes())?;
        fs::write(folder.join("net.join"), join_file.to_text())?;
        Ok(Self {
            _server: process::hub(&folder, port)?,
            join_file,
            identities,
        })
    }

    fn spawn<A>(&self, at: usize, config: NodeConfig, application: A) -> Result<StreamHandle<usize>>
    where
        A: HubApplication<Request = usize> + Send + 'static,
    {
        let node = HubNode {
            identity: self.identities.get(at).ok_or("too few identities")?,
            join_file: &self.join_file,
            instance: Ring::new().random_instance()?,
        };
        Ok(node.spawn(&format!("node {at}"), config, application)?)
    }

    /// Calls a node on another thread, `window` at a time.
    pub fn call(&self, window: usize) -> Result<Sample> {
        let (joined, waits) = mpsc::channel();
        let responder = self.spawn(1, NodeConfig::default(), Responder { joined })?;
        waits.recv_timeout(PATIENCE)?;
        let (done, result) = mpsc::channel();
        let to = Addr::Node(self.identities.get(1).ok_or("no responder")?.node_id());
        let caller = self.spawn(
            0,
            NodeConfig::default(),
            Caller {
                to,
                window,
                recorder: None,
                open: BTreeMap::new(),
                done,
            },
        )?;
        let sample = result.recv_timeout(PATIENCE)?;
        caller.shutdown(Duration::from_secs(1));
        responder.shutdown(Duration::from_secs(1));
        Ok(sample)
    }

    /// Casts to 100 players on 10 nodes.
    pub fn fan_out(&self) -> Result<Sample> {
        let mut config = NodeConfig::default();
        config.live_queue_max = FAN_BATCH * FAN_WINDOW * 4;
        config.live_queue_bytes_max = 1 << 20;
        let (credit, window) = mpsc::channel();
        let delivered = Arc::new(AtomicUsize::new(0));
        let (joined, waits) = mpsc::channel();
        let mut nodes = Vec::new();
        for link in 0..FAN_LINKS {
            nodes.push(self.spawn(
                2 + link,
                config.clone(),
                Receiving {
                    first_player: (link * FAN_SUBSCRIPTIONS) as u64,
                    claims: 0,
                    delivered: Arc::clone(&delivered),
                    credit: credit.clone(),
                    joined: joined.clone(),
                },
            )?);
        }
        for _ in 0..FAN_LINKS {
            waits.recv_timeout(PATIENCE)?;
        }
        let publisher = self.spawn(0, NodeConfig::default(), Publisher { joined })?;
        waits.recv_timeout(PATIENCE)?;
        for _ in 0..FAN_WINDOW {
            credit.send(())?;
        }
        let mut recorder = Recorder::default();
        let begin = now();
        while now() - begin < DURATION {
            window.recv_timeout(PATIENCE)?;
            let requests = publisher.requests();
            requests.send(FAN_BATCH).map_err(|_| "no room")?;
            recorder.add_count((FAN_BATCH * FAN_LINKS * FAN_SUBSCRIPTIONS) as u64);
        }
        let sample = recorder.finish();
        publisher.shutdown(Duration::from_secs(1));
        for node in nodes {
            node.shutdown(Duration::from_secs(1));
        }
        Ok(sample)
    }

    /// Sends durable mail, `window` at a time.
    pub fn mail(&self, window: usize) -> Result<Sample> {
        let (done, result) = mpsc::channel();
        let mailer = self.spawn(
            0,
            NodeConfig::default(),
            Mailer {
                window,
                limit: None,
                next: 0,
                boxes: (1 << 32)..(1 << 32) + MAILBOXES,
                recorder: None,
                open: BTreeMap::new(),
                done,
            },
        )?;
        let sample = result.recv_timeout(PATIENCE)?;
        mailer.shutdown(Duration::from_secs(1));
        sample.map_err(Into::into)
    }

    /// Measures from the put of a key to the event of a watcher on another node.
    pub fn kv_watch(&self, durability: Durability) -> Result<Sample> {
        let (joined, waits) = mpsc::channel();
        let (seen, changes) = mpsc::channel();
        let put_at = Arc::new(Mutex::new(now()));
        let watching = Watching {
            joined: joined.clone(),
            put_at: Arc::clone(&put_at),
            seen,
        };
        let watcher = self.spawn(1, NodeConfig::default(), watching)?;
        waits.recv_timeout(PATIENCE)?;
        let writing = Writing {
            joined,
            put_at,
            durability,
        };
        let writer = self.spawn(0, NodeConfig::default(), writing)?;
        waits.recv_timeout(PATIENCE)?;
        let mut recorder = Recorder::default();
        while !recorder.is_over() {
            writer.request(0).map_err(|_| "no room")?;
            recorder.add_latency(changes.recv_timeout(PATIENCE)?);
            // The answer arrives on the other connection.
            waits.recv_timeout(PATIENCE)?;
        }
        writer.shutdown(Duration::from_secs(1));
        watcher.shutdown(Duration::from_secs(1));
        Ok(recorder.finish())
    }

    /// Reads mailboxes of 200 mails.
    pub fn mailbox(&self) -> Result<Sample> {
        const BOXES: u64 = 50;
        let (done, result) = mpsc::channel();
        let mailer = self.spawn(
            0,
            NodeConfig::default(),
            Mailer {
                window: 1_024,
                limit: Some(BOXES * MAILBOX_MAILS as u64),
                next: 0,
                boxes: (2 << 32)..(2 << 32) + BOXES,
                recorder: None,
                open: BTreeMap::new(),
                done,
            },
        )?;
        result.recv_timeout(PATIENCE)??;
        mailer.shutdown(Duration::from_secs(1));
        let (done, result): (_, Receiver<Vec<f64>>) = mpsc::channel();
        let reader = self.spawn(
            1,
            NodeConfig::default(),
            Reader {
                players: ((2 << 32)..(2 << 32) + BOXES).collect(),
                since: now(),
                mails: 0,
                latencies_us: Vec::new(),
                done,
            },
        )?;
        let latencies = result.recv_timeout(PATIENCE)?;
        reader.shutdown(Duration::from_secs(1));
        Ok(Sample::of(&latencies))
    }
}

/// Returns each request's body.
struct Responder {
    joined: Sender<()>,
}

impl HubApplication for Responder {
    without_requests!();

    fn on_event(&mut self, at: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => self.joined.send(()).unwrap_or_default(),
            NodeEvent::Request { ticket, body, .. } => {
                node.reply(at, ticket, Ok(body.0)).expect("room");
            }
            _ => {}
        }
    }
}

struct Caller {
    to: Addr,
    window: usize,
    recorder: Option<Recorder>,
    open: BTreeMap<CallId, Clock>,
    done: Sender<Sample>,
}

impl Caller {
    fn fill(&mut self, at: Instant, node: &mut Node) {
        let recorder = self.recorder.as_ref();
        if recorder.is_none_or(Recorder::is_over) {
            return;
        }
        while self.open.len() < self.window {
            let call = node.call(at, self.to, BODY, Duration::from_secs(5));
            self.open.insert(call.expect("room"), now());
        }
    }
}

impl HubApplication for Caller {
    without_requests!();

    fn on_event(&mut self, at: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => self.recorder = Some(Recorder::default()),
            NodeEvent::Reply { call, result } => {
                result.expect("a reply");
                if let (Some(since), Some(recorder)) =
                    (self.open.remove(&call), self.recorder.as_mut())
                {
                    recorder.add(since);
                }
            }
            _ => return,
        }
        self.fill(at, node);
        if self.open.is_empty()
            && let Some(recorder) = self.recorder.take()
        {
            self.done.send(recorder.finish()).unwrap_or_default();
        }
    }
}

struct Receiving {
    first_player: u64,
    claims: usize,
    delivered: Arc<AtomicUsize>,
    credit: Sender<()>,
    joined: Sender<()>,
}

impl Receiving {
    fn take(&self, node: &mut Node, claim: ClaimId) {
        const BATCH: usize = FAN_BATCH * FAN_LINKS * FAN_SUBSCRIPTIONS;
        while node.next_message(claim).is_some() {
            if (self.delivered.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(BATCH) {
                self.credit.send(()).unwrap_or_default();
            }
        }
    }
}

impl HubApplication for Receiving {
    without_requests!();

    fn on_event(&mut self, at: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => {
                for player in 0..FAN_SUBSCRIPTIONS as u64 {
                    let player = ClientId(self.first_player + player);
                    node.claim(at, player, MailSeq(0), Bytes::new())
                        .expect("room");
                }
            }
            NodeEvent::Claimed(claim) => {
                let topic = Name::new("fan").expect("a name");
                assert!(node.subscribe(at, claim, topic));
                self.claims += 1;
                if self.claims == FAN_SUBSCRIPTIONS {
                    self.joined.send(()).unwrap_or_default();
                }
            }
            NodeEvent::MessageReady(claim) => self.take(node, claim),
            _ => {}
        }
    }
}

struct Publisher {
    joined: Sender<()>,
}

impl HubApplication for Publisher {
    type Request = usize;

    fn apply_request(&mut self, at: Instant, node: &mut Node, count: usize) -> ControlFlow<()> {
        for _ in 0..count {
            let topic = Name::new("fan").expect("a name");
            node.cast(at, topic, BODY).expect("room");
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Node, event: NodeEvent) {
        if matches!(event, NodeEvent::Joined { .. }) {
            self.joined.send(()).unwrap_or_default();
        }
    }
}

struct Mailer {
    window: usize,
    /// Mails to send; `None` for as many as the time allows.
    limit: Option<u64>,
    next: u64,
    boxes: std::ops::Range<u64>,
    recorder: Option<Recorder>,
    open: BTreeMap<SenderSeq, Clock>,
    done: Sender<std::result::Result<Sample, String>>,
}

impl Mailer {
    fn is_over(&self) -> bool {
        self.recorder
            .as_ref()
            .is_none_or(|recorder| match self.limit {
                Some(limit) => self.next >= limit,
                None => recorder.is_over(),
            })
    }

    fn fill(&mut self, at: Instant, node: &mut Node) {
        while self.open.len() < self.window && !self.is_over() {
            let boxes = self.boxes.end - self.boxes.start;
            let player = ClientId(self.boxes.start + self.next % boxes);
            self.next += 1;
            let seq = node.mail(at, player, BODY, HOUR);
            self.open.insert(seq.expect("room"), now());
        }
    }
}

impl HubApplication for Mailer {
    without_requests!();

    fn on_event(&mut self, at: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => self.recorder = Some(Recorder::default()),
            NodeEvent::MailStored(seq) => {
                if let (Some(since), Some(recorder)) =
                    (self.open.remove(&seq), self.recorder.as_mut())
                {
                    recorder.add(since);
                }
            }
            NodeEvent::MailRefused(_, reason) => {
                self.done.send(Err(reason.to_string())).unwrap_or_default();
            }
            _ => return,
        }
        self.fill(at, node);
        if self.open.is_empty()
            && let Some(recorder) = self.recorder.take()
        {
            self.done.send(Ok(recorder.finish())).unwrap_or_default();
        }
    }
}

struct Reader {
    players: Vec<u64>,
    since: Clock,
    mails: usize,
    latencies_us: Vec<f64>,
    done: Sender<Vec<f64>>,
}

impl Reader {
    fn claim(&mut self, at: Instant, node: &mut Node) {
        self.mails = 0;
        self.since = now();
        let Some(player) = self.players.pop() else {
            let latencies = std::mem::take(&mut self.latencies_us);
            self.done.send(latencies).unwrap_or_default();
            return;
        };
        node.claim(at, ClientId(player), MailSeq(0), Bytes::new())
            .expect("room");
    }
}

impl HubApplication for Reader {
    without_requests!();

    fn on_event(&mut self, at: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => self.claim(at, node),
            // As on the other stacks, nothing is acknowledged meanwhile. Mail of a released claim
            // no longer counts against the limit of unacknowledged bytes.
            NodeEvent::Mail { claim, .. } => {
                self.mails += 1;
                if self.mails == MAILBOX_MAILS {
                    self.latencies_us
                        .push(self.since.elapsed().as_secs_f64() * 1e6);
                    node.release(at, claim);
                    self.claim(at, node);
                }
            }
            _ => {}
        }
    }
}

/// Puts a key at each request.
struct Writing {
    joined: Sender<()>,
    put_at: Arc<Mutex<Clock>>,
    durability: Durability,
}

impl HubApplication for Writing {
    type Request = usize;

    fn apply_request(&mut self, _: Instant, node: &mut Node, _: usize) -> ControlFlow<()> {
        let key = KvKey::new("bench.key").expect("a key");
        let mut put = KvPut::new(key, BODY);
        put.durability = self.durability;
        *self.put_at.lock().expect("no panic") = now();
        node.kv().put(put).expect("room");
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            // A key keeps its durability, so the one of an earlier case is deleted.
            NodeEvent::Joined { .. } => {
                let key = KvKey::new("bench.key").expect("a key");
                node.kv().delete(key, None).expect("room");
            }
            NodeEvent::KvAnswer { .. } => self.joined.send(()).unwrap_or_default(),
            _ => {}
        }
    }
}

/// Reports each change of the key.
struct Watching {
    joined: Sender<()>,
    put_at: Arc<Mutex<Clock>>,
    seen: Sender<Duration>,
}

impl HubApplication for Watching {
    without_requests!();

    fn on_event(&mut self, _: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::Joined { .. } => {
                let prefix = KvPrefix::new("bench.").expect("a prefix");
                node.kv().watch(prefix, Revision::NONE).expect("room");
            }
            NodeEvent::KvComplete { .. } => self.joined.send(()).unwrap_or_default(),
            NodeEvent::KvChanged { change, .. } if change.value.is_some() => {
                let latency = self.put_at.lock().expect("no panic").elapsed();
                self.seen.send(latency).unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// Calls [`Counters::count`](hub::stats::Counters::count) in a loop.
#[must_use]
pub fn count() -> Sample {
    use hub::stats::{Counters, StatKey};
    const CALLS: u32 = 1_000;
    let mut counters = Counters::new(64, 1_024);
    let name = Name::new("kills").expect("a name");
    let key = StatKey::new(name, Vec::new()).expect("a key");
    let series = counters.register(key).expect("room");
    let mut latencies = Vec::new();
    for _ in 0..1_000 {
        let since = now();
        for _ in 0..CALLS {
            counters.count(std::hint::black_box(series), 1);
        }
        latencies.push(since.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
    }
    Sample::of(&latencies)
}
