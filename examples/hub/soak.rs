//! Kills the hub, a sender and a receiver at random moments, and checks that no acknowledged mail is
//! lost, doubled or out of order.
//!
//! Each is a process of its own, ended by SIGKILL. The sender prints the number of each mail that
//! the hub has acknowledged; the receiver prints each mail that its handler gets. The receiver is
//! started with the last mail that it has printed for each player, as a client does that stores it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use daemon::role::hub::{HubOptions, HubProcess};
use hub::join_file::{Grant, JoinFile, NetworkSecret};
use hub::{MailSeq, Node, NodeConfig, NodeEvent, Role, SenderSeq};
use tickwire::crypto::{Identity, Provider as _, Ring};
use tickwire::servicer::{Clock, HubApplication, HubNode};
use wire::{ClientId, Instant, Seed};

use crate::{Folder, Outcome};

/// How long to go on.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Processes to kill.
    #[arg(long, default_value_t = 1_000)]
    kills: u32,
    /// Stops after this many minutes.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Seed of the moments and of the processes to kill.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Players with mail.
const PLAYERS: u64 = 8;

/// Mails in flight.
const WINDOW: usize = 16;

/// Most time between two kills.
const PAUSE_MS: u64 = 250;

/// Longest wait for a process or for the last mail.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Hub,
    Sender,
    Receiver,
}

const KINDS: [Kind; 3] = [Kind::Hub, Kind::Sender, Kind::Receiver];

struct Process {
    child: Child,
    lines: JoinHandle<()>,
}

impl Process {
    /// Ends it, and reads what it has printed.
    fn kill(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.lines.join().map_err(|_| "a reader panicked")?;
        Ok(())
    }
}

/// What was acknowledged and what was received. A mail is known by the run of its sender and its
/// number.
#[derive(Default)]
struct Record {
    acknowledged: BTreeSet<(u64, u64)>,
    received: BTreeSet<(u64, u64)>,
    /// The last mail of each player, by the mailbox's number.
    seen: BTreeMap<u64, u64>,
    /// The last number of each player and run.
    last: BTreeMap<(u64, u64), u64>,
}

impl Record {
    fn on_line(&mut self, kind: Kind, line: &str) -> Outcome<()> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match (kind, &numbers?[..]) {
            (Kind::Sender, &[run, number]) => {
                self.acknowledged.insert((run, number));
            }
            (Kind::Receiver, &[player, seq, run, number]) => {
                if !self.received.insert((run, number)) {
                    return Err(format!("mail {number} of run {run} was received twice").into());
                }
                let last = self.last.insert((player, run), number);
                if last.is_some_and(|last| last >= number) {
                    return Err(format!("player {player} got {number} after {last:?}").into());
                }
                self.seen.insert(player, seq);
            }
            (kind, numbers) => return Err(format!("{kind:?} printed {numbers:?}").into()),
        }
        Ok(())
    }

    fn missing(&self) -> usize {
        self.acknowledged.difference(&self.received).count()
    }
}

struct Soak {
    folder: PathBuf,
    processes: BTreeMap<Kind, Process>,
    sender: Sender<(Kind, String)>,
    lines: Receiver<(Kind, String)>,
    record: Record,
    /// Runs of the sender.
    runs: u64,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let name = format!("tickwire-soak-hub-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    create(&folder.0)?;
    let (sender, lines) = mpsc::channel();
    let mut soak = Soak {
        folder: folder.0.clone(),
        processes: BTreeMap::new(),
        sender,
        lines,
        record: Record::default(),
        runs: 0,
    };
    for kind in KINDS {
        soak.start(kind)?;
    }
    let clock = Clock::new();
    let end = clock.now() + Duration::from_secs(options.minutes.saturating_mul(60));
    let mut generator = Seed::from_number(options.seed).generator(0);
    let mut kills = 0;
    while kills < options.kills && clock.now() < end {
        soak.take_lines(Duration::from_millis(generator.below(PAUSE_MS)))?;
        let chosen = usize::try_from(generator.below(3))?;
        let kind = *KINDS.get(chosen).ok_or("no such process")?;
        soak.kill(kind)?;
        soak.start(kind)?;
        kills += 1;
    }
    soak.kill(Kind::Sender)?;
    let until = clock.now() + PATIENCE;
    while soak.record.missing() > 0 && clock.now() < until {
        soak.take_lines(Duration::from_millis(100))?;
    }
    let (missing, record) = (soak.record.missing(), &soak.record);
    if missing > 0 {
        return Err(format!("{missing} acknowledged mails were not received").into());
    }
    Ok(format!(
        "{kills} processes killed; {} mails acknowledged, {} received: 0 lost, 0 doubled, 0 out of order",
        record.acknowledged.len(),
        record.received.len(),
    ))
}

impl Soak {
    fn start(&mut self, kind: Kind) -> Outcome<()> {
        let mut command = Command::new(std::env::current_exe()?);
        match kind {
            Kind::Hub => command.arg("serve").arg(&self.folder),
            Kind::Sender => {
                self.runs += 1;
                command
                    .arg("send")
                    .arg(&self.folder)
                    .arg(self.runs.to_string())
            }
            Kind::Receiver => {
                let seen = (1..=PLAYERS).map(|player| self.record.seen.get(&player).copied());
                let seen: Vec<_> = seen
                    .map(|seq| seq.unwrap_or_default().to_string())
                    .collect();
                command.arg("receive").arg(&self.folder).arg(seen.join(","))
            }
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut ready = String::new();
        output.read_line(&mut ready)?;
        if ready != "ready\n" {
            return Err(format!("{kind:?} printed {ready:?}").into());
        }
        let sender = self.sender.clone();
        let lines = std::thread::spawn(move || pass_on(kind, output, &sender));
        self.processes.insert(kind, Process { child, lines });
        Ok(())
    }

    fn kill(&mut self, kind: Kind) -> Outcome<()> {
        let process = self.processes.remove(&kind).ok_or("it does not run")?;
        process.kill()?;
        self.take_lines(Duration::ZERO)
    }

    /// Takes lines for `time`, and all that are there.
    fn take_lines(&mut self, time: Duration) -> Outcome<()> {
        let clock = Clock::new();
        let end = clock.now() + time;
        loop {
            let left = end.saturating_since(clock.now());
            match self.lines.recv_timeout(left) {
                Ok((kind, line)) => self.record.on_line(kind, &line)?,
                Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            process.child.kill().ok();
            process.child.wait().ok();
        }
    }
}

/// Passes complete lines on until the process has ended.
fn pass_on(kind: Kind, mut output: BufReader<ChildStdout>, lines: &Sender<(Kind, String)>) {
    loop {
        let mut line = String::new();
        match output.read_line(&mut line) {
            Ok(1..) if line.ends_with('\n') => {}
            _ => return,
        }
        if lines.send((kind, line)).is_err() {
            return;
        }
    }
}

/// Writes identities and join file.
fn create(folder: &Path) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let mut random = Ring::new();
    let mut secret = [0; 32];
    random.random(&mut secret)?;
    let mut join_file = JoinFile::new(NetworkSecret::new(secret));
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for (name, role) in [
        ("hub", Role::Hub),
        ("sender", Role::GameNode),
        ("receiver", Role::GameNode),
    ] {
        let identity = Identity::generate(&mut random)?;
        let mut grant = Grant::new(role, identity.node_id());
        if role == Role::Hub {
            grant = grant.with_address(&address.to_string());
        }
        join_file.grants.push(grant);
        fs::write(
            folder.join(name).with_extension("pem"),
            identity.to_pem().as_bytes(),
        )?;
    }
    fs::write(folder.join("net.join"), join_file.to_text())?;
    Ok(())
}

fn read(folder: &Path, name: &str) -> Outcome<(Identity, JoinFile)> {
    let identity = fs::read_to_string(folder.join(name).with_extension("pem"))?;
    let join_file = fs::read_to_string(folder.join("net.join"))?;
    Ok((Identity::from_pem(&identity)?, JoinFile::parse(&join_file)?))
}

/// Prints a line in one write, so that a kill leaves no part of it.
fn print(line: std::fmt::Arguments<'_>) {
    // The parent may have ended; then stdin is closed too.
    std::io::stdout()
        .write_all(format!("{line}\n").as_bytes())
        .ok();
}

fn wait_for_parent() -> Outcome<()> {
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The hub's process.
pub(crate) fn serve(folder: &Path) -> Outcome<()> {
    let (identity, join_file) = read(folder, "hub")?;
    let data = folder.join("data");
    let options = HubOptions::new(&identity, join_file, &data);
    let hub = HubProcess::start(options).map_err(|error| error.to_string())?;
    print(format_args!("ready"));
    wait_for_parent()?;
    hub.shutdown(Duration::from_secs(1))
        .map_err(|error| error.to_string().into())
}

fn spawn(
    folder: &Path,
    name: &str,
    application: impl HubApplication<Request = ()> + Send + 'static,
) -> Outcome<()> {
    let (identity, join_file) = read(folder, name)?;
    let node = HubNode {
        identity: &identity,
        join_file: &join_file,
        instance: Ring::new().random_instance()?,
    };
    // Before the first line of the node's thread.
    print(format_args!("ready"));
    let handle = node.spawn(name, NodeConfig::default(), application)?;
    wait_for_parent()?;
    handle.shutdown(Duration::from_secs(1));
    Ok(())
}

/// The sender's process.
pub(crate) fn send(folder: &Path, run: u64) -> Outcome<()> {
    let application = MailSender {
        run,
        next: 0,
        open: BTreeMap::new(),
    };
    spawn(folder, "sender", application)
}

struct MailSender {
    run: u64,
    next: u64,
    open: BTreeMap<SenderSeq, u64>,
}

impl HubApplication for MailSender {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Node, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::MailStored(seq) = event
            && let Some(number) = self.open.remove(&seq)
        {
            print(format_args!("{} {number}", self.run));
        }
        while self.open.len() < WINDOW {
            let player = ClientId(1 + self.next % PLAYERS);
            let body = Bytes::from(format!("{} {}", self.run, self.next));
            let Ok(seq) = node.mail(now, player, body, Duration::from_secs(3_600)) else {
                return;
            };
            self.open.insert(seq, self.next);
            self.next += 1;
        }
    }
}

/// The receiver's process. `seen` has the last mail of each player.
pub(crate) fn receive(folder: &Path, seen: &str) -> Outcome<()> {
    let seen: Result<Vec<u64>, _> = seen.split(',').map(str::parse).collect();
    spawn(folder, "receiver", MailReceiver { seen: seen? })
}

struct MailReceiver {
    seen: Vec<u64>,
}

impl HubApplication for MailReceiver {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Node, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        match event {
            // The node renews its claims by itself after the first time.
            NodeEvent::Joined { .. } => {
                for (player, seen) in (1..).zip(self.seen.drain(..)) {
                    node.claim(now, ClientId(player), MailSeq(seen), Bytes::new())
                        .ok();
                }
            }
            NodeEvent::Mail {
                claim, seq, body, ..
            } => {
                let text = String::from_utf8_lossy(&body);
                print(format_args!("{} {} {text}", claim.player().0, seq.0));
                node.acknowledge(now, claim, seq);
            }
            _ => {}
        }
    }
}
