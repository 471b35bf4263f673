//! A network in a temporary folder: identities, join file, hub, matchmaker.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crypto::{Identity, Ring, identity_file};
use daemon::allocator::LocalProcessConfig;
use daemon::edge::{EdgeConfig, Transport};
use daemon::exit::{Exit, Failure};
use daemon::hub_api::ApiConfig;
use daemon::role::hub::{HubOptions, HubProcess};
use daemon::role::matchmaker::{MatchmakerOptions, MatchmakerProcess};
use daemon::trust;
use hub::join_file::{Grant, NetworkSecret};
use hub::{JoinFile, Name, Role};
use matchmaker_core::{Config, Rule, TeamSize};

/// Longest wait, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const APP: u64 = 42;

/// Number of game server identities.
pub(crate) const SERVERS: usize = 3;

pub(crate) struct Net {
    folder: PathBuf,
    pub(crate) hub_address: SocketAddr,
    /// Kept open until the hub binds it, so that no other test gets the port.
    port: Option<TcpListener>,
}

/// A loopback address of this test only: no other program can take the port between its closing and
/// the hub's bind.
fn own_host() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Net {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("tickwire-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind((own_host(), 0)).unwrap();
        let hub_address = port.local_addr().unwrap();
        let net = Self {
            folder,
            hub_address,
            port: Some(port),
        };
        let mut join_file = JoinFile::new(NetworkSecret::new([7; 32]));
        let mut ring = Ring::new();
        for name in [
            "hub",
            "matchmaker",
            "server-0",
            "server-1",
            "server-2",
            "guest",
        ] {
            let identity = Identity::generate(&mut ring).unwrap();
            identity_file::write_new(&net.key(name), &identity).unwrap();
            let role = match name {
                "hub" => Role::Hub,
                "matchmaker" => Role::Matchmaker,
                "guest" => continue,
                _ => Role::GameNode,
            };
            let mut grant = Grant::new(role, identity.node_id());
            if role == Role::Hub {
                grant = grant.with_address(&hub_address.to_string());
            } else if role == Role::Matchmaker {
                grant = grant.with_service(Name::new("matchmaker").unwrap());
            }
            join_file.grants.push(grant);
        }
        trust::write_new_join_file(&net.join_path(), &join_file).unwrap();
        net
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.pem"))
    }

    pub(crate) fn join_path(&self) -> PathBuf {
        self.path("net.join")
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        trust::read_identity(&self.key(name)).unwrap()
    }

    pub(crate) fn join_file(&self) -> JoinFile {
        trust::read_join_file(&self.join_path()).unwrap()
    }

    /// Passes the hub's port to another listener.
    pub(crate) fn take_hub_port(&mut self) -> TcpListener {
        self.port.take().unwrap()
    }

    pub(crate) fn hub(&mut self) -> HubProcess {
        self.hub_with(None)
    }

    pub(crate) fn hub_with(&mut self, api: Option<&ApiConfig>) -> HubProcess {
        self.port = None;
        let identity = self.identity("hub");
        let data = self.path("data");
        // A process that another test starts keeps the port open between fork and exec.
        until("the port is given up", || {
            let mut options = HubOptions::new(&identity, self.join_file(), &data);
            options.api = api.cloned();
            let hub = HubProcess::start(options);
            match hub {
                Err(failure) if failure.exit == Exit::Refused => None,
                hub => Some(hub.unwrap()),
            }
        })
    }

    /// Starts the hub as a process that logs to a file.
    pub(crate) fn hub_process(&mut self) -> Program {
        self.port = None;
        let mut command = self.hub_command();
        Program::start(&mut command, &self.path("hub.log"))
    }

    pub(crate) fn hub_command(&self) -> Command {
        let mut command = tickwire();
        command
            .args(["hub", "run", "--identity"])
            .arg(self.key("hub"))
            .arg("--join-file")
            .arg(self.join_path())
            .arg("--data")
            .arg(self.path("data"));
        command
    }

    /// Gives up the hub's port, for a hub that the caller starts.
    pub(crate) fn free_hub_port(&mut self) {
        self.port = None;
    }

    /// Starts a matchmaker for pairs of players in this process, with short timeouts.
    pub(crate) fn matchmaker(&self, pool: Option<LocalProcessConfig>) -> MatchmakerProcess {
        self.matchmaker_with(pool, quick(), edge())
    }

    pub(crate) fn matchmaker_with(
        &self,
        pool: Option<LocalProcessConfig>,
        config: Config,
        edge: EdgeConfig,
    ) -> MatchmakerProcess {
        self.try_matchmaker(pool, config, edge).unwrap()
    }

    pub(crate) fn try_matchmaker(
        &self,
        pool: Option<LocalProcessConfig>,
        config: Config,
        edge: EdgeConfig,
    ) -> Result<MatchmakerProcess, Failure> {
        MatchmakerProcess::start(MatchmakerOptions {
            identity: &self.identity("matchmaker"),
            join_file: &self.join_file(),
            app_id: APP,
            rule: Rule::TeamSize(TeamSize::new(2, 1).unwrap()),
            config,
            pool,
            edge,
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Short timeouts.
pub(crate) fn quick() -> Config {
    let mut config = Config::default();
    config.recovery = Duration::from_millis(200);
    config.heartbeat = Duration::from_millis(500);
    config.backoff_min = Duration::from_millis(50);
    config
}

pub(crate) fn edge() -> EdgeConfig {
    let mut config = EdgeConfig::new("127.0.0.1:0".parse().unwrap(), Transport::PlainHttp);
    config.requests_per_second = 10_000;
    config.requests_burst = 10_000;
    config
}

/// The program under test.
pub(crate) fn tickwire() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tickwire"))
}

/// A running program that has printed its address.
pub(crate) struct Program {
    child: Child,
    /// Kept open for further output.
    stdout: BufReader<ChildStdout>,
    /// The last word of its first output line.
    pub(crate) said: String,
}

impl Program {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let mut child = command
            .env("TICKWIRE_LOG", "trace")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said = line.split_whitespace().last();
        let said = said.expect("it says where it listens").to_owned();
        Self {
            child,
            stdout,
            said,
        }
    }

    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends the signal, as `kill` names it.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its exit; returns the status.
    pub(crate) fn wait_end(mut self) -> Option<i32> {
        until("the program has ended", || self.child.try_wait().unwrap()).code()
    }

    /// Closes its stdin and waits for its exit; returns the status.
    pub(crate) fn release(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Repeats `probe` until it returns a value.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let (_open, nothing) = std::sync::mpsc::channel::<()>();
    let step = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / step.as_millis() {
        if let Some(found) = probe() {
            return found;
        }
        nothing.recv_timeout(step).unwrap_err();
    }
    panic!("waited in vain until {what}");
}

/// The bytes of a file, or of all files in a folder.
pub(crate) fn bytes_under(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            bytes.extend(bytes_under(&entry.unwrap().path()));
        }
    } else {
        let mut file = std::fs::File::open(path).unwrap();
        file.read_to_end(&mut bytes).unwrap();
    }
    bytes
}
