//! A mesh of processes on this machine, for demonstrations and tests.
//!
//! Each node gets a loopback address of its own, a key, and a configuration that knows all the
//! others; the configuration may be changed until the node is started. What was started ends, and
//! the folder with the keys goes, when this is dropped.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crypto::{Identity, Provider, Ring, identity_file};
use servicer::Clock;
use wire::NodeId;

use super::emulation::FileLink;
use super::file::{
    BootstrapNode, FileConfig, FileHopFrames, FileLimits, FileRole, Member, NodeName,
};
use crate::relay::stdio::{ProcessCommand, ProcessEvent};

/// Keys and configurations of a few nodes.
#[derive(Debug)]
pub struct Sandbox {
    directory: PathBuf,
    /// Tells the sandboxes of this machine apart.
    address_block: [u8; 3],
    configs: Vec<FileConfig>,
    ids: Vec<NodeName>,
}

impl Sandbox {
    /// Makes a folder with keys and a secret for nodes of these names and roles.
    ///
    /// # Errors
    ///
    /// The system's, such as where it gives no randomness or no folder.
    pub fn new(nodes: &[(&str, FileRole)]) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let directory = std::env::temp_dir().join(format!("tickwire-mesh-{pid}-{number}"));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory)?;
        let mut sandbox = Self {
            directory,
            address_block: address_block(pid, number),
            configs: Vec::new(),
            ids: Vec::new(),
        };
        let mut provider = Ring::new();
        let mut secret = [0; 32];
        provider.random(&mut secret).map_err(io::Error::other)?;
        // A node id has the same form.
        let digits = NodeId(secret).to_string();
        write_private(&sandbox.directory.join(SECRET), digits.as_bytes())?;
        for (name, _) in nodes {
            let identity = Identity::generate(&mut provider).map_err(io::Error::other)?;
            identity_file::write_new(&sandbox.directory.join(key_name(name)), &identity)
                .map_err(io::Error::other)?;
            sandbox.ids.push(NodeName(identity.node_id()));
        }
        sandbox.configs = (1_u8..)
            .zip(nodes)
            .map(|(host, (name, role))| sandbox.default_config(host, name, *role))
            .collect();
        let known: Vec<BootstrapNode> = sandbox
            .ids
            .iter()
            .zip(&sandbox.configs)
            .map(|(&node, config)| BootstrapNode {
                node,
                address: config.listen,
            })
            .collect();
        let members: Vec<Member> = sandbox
            .ids
            .iter()
            .zip(&sandbox.configs)
            .map(|(&node, config)| Member {
                node,
                roles: config.roles.clone(),
            })
            .collect();
        for config in &mut sandbox.configs {
            config.bootstrap.clone_from(&known);
            config.members = Some(members.clone());
        }
        Ok(sandbox)
    }

    /// Returns the folder with the keys, the secret and the configurations.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a loopback address of this sandbox; the nodes have 1, 2 and so on.
    pub const fn host(&self, number: u8) -> IpAddr {
        let [a, b, c] = self.address_block;
        IpAddr::V4(Ipv4Addr::new(a, b, c, number))
    }

    /// Returns the id of a node; `None` where there are not that many.
    pub fn id(&self, node: usize) -> Option<NodeName> {
        self.ids.get(node).copied()
    }

    /// Returns the name of the node with that id.
    pub fn name(&self, id: NodeName) -> Option<&str> {
        let place = self.ids.iter().position(|known| *known == id)?;
        self.configs.get(place).map(|config| config.name.as_str())
    }

    /// Returns the configuration of a node.
    pub fn config(&self, node: usize) -> Option<&FileConfig> {
        self.configs.get(node)
    }

    /// Returns the configuration that a node will be started with.
    pub fn config_mut(&mut self, node: usize) -> Option<&mut FileConfig> {
        self.configs.get_mut(node)
    }

    /// Makes what two nodes send each other late, in both directions.
    pub fn link(&mut self, one: usize, other: usize, delay_ms: u64) {
        for (from, to) in [(one, other), (other, one)] {
            let remote = self.configs.get(to).map(|config| config.listen.ip());
            if let (Some(config), Some(remote)) = (self.configs.get_mut(from), remote) {
                config.links.push(FileLink {
                    remote,
                    delay_ms,
                    loss_per_million: 0,
                });
            }
        }
    }

    /// Starts a node: `command` with the path of its configuration as last argument.
    ///
    /// # Errors
    ///
    /// The system's; `NotFound` where there is no such node.
    pub fn start(&self, node: usize, mut command: Command) -> io::Result<NodeProcess> {
        let config = self.configs.get(node).ok_or(io::ErrorKind::NotFound)?;
        let path = self.directory.join(format!("{}.json", config.name));
        fs::write(&path, serde_json::to_vec_pretty(config)?)?;
        command.arg(&path);
        NodeProcess::spawn(command)
    }

    fn default_config(&self, host: u8, name: &str, role: FileRole) -> FileConfig {
        FileConfig {
            name: name.to_owned(),
            identity_file: key_name(name).into(),
            secret_file: SECRET.into(),
            listen: SocketAddr::new(self.host(host), MESH_PORT),
            advertise: Vec::new(),
            roles: [role].into(),
            bootstrap: Vec::new(),
            members: None,
            games: Vec::new(),
            proxies: BTreeMap::new(),
            rations: BTreeMap::new(),
            probes: BTreeMap::new(),
            signed: None,
            admin: None,
            limits: FileLimits::default(),
            upstream_ip: Some(self.host(host)),
            shards: 1,
            hop_frames: FileHopFrames::default(),
            links: Vec::new(),
            seed: 0,
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What cannot be removed now lies where the system clears up by itself.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// The first three bytes of the addresses: 127.80.0 to 127.119.255, by process and sandbox.
const fn address_block(pid: u32, number: u32) -> [u8; 3] {
    let mixed = pid.wrapping_add(number.wrapping_mul(4_099)) % (40 * 256);
    let [.., high, low] = mixed.to_be_bytes();
    [127, high.saturating_add(80), low]
}

fn key_name(name: &str) -> String {
    format!("{name}.pem")
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// Number of the next sandbox of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Name of the file with the secret.
const SECRET: &str = "secret";
/// Port of all mesh sockets; the addresses differ.
const MESH_PORT: u16 = 4_500;

/// A running node. Dropping it kills it.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    /// The leash: the node ends when this closes.
    input: Option<ChildStdin>,
    events: Receiver<ProcessEvent>,
}

impl NodeProcess {
    fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let started = Self {
            child,
            input,
            events,
        };
        thread::Builder::new()
            .name("node".to_owned())
            .spawn(move || {
                let lines = output
                    .map(BufReader::new)
                    .into_iter()
                    .flat_map(BufRead::lines);
                // What this program has no word for is for others.
                let events = lines
                    .map_while(Result::ok)
                    .filter_map(|line| serde_json::from_str(&line).ok());
                for one in events {
                    // Read on in any case: the node must not wait for us.
                    sender.try_send(one).ok();
                }
            })?;
        Ok(started)
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the node has said, the oldest first, without waiting.
    pub fn events(&self) -> impl Iterator<Item = ProcessEvent> {
        self.events.try_iter()
    }

    /// Waits for the first stdio that `wanted` makes something of; drops what came before it.
    pub fn wait_for<T>(
        &self,
        timeout: Duration,
        mut matching: impl FnMut(ProcessEvent) -> Option<T>,
    ) -> Option<T> {
        let (clock, end) = (Clock::new(), Clock::new().now() + timeout);
        loop {
            let left = end.saturating_since(clock.now());
            let events = self.events.recv_timeout(left).ok()?;
            if let Some(found) = matching(events) {
                return Some(found);
            }
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    ///
    /// The system's, where the node has ended.
    pub fn send(&mut self, send: &ProcessCommand) -> io::Result<()> {
        let mut line = serde_json::to_vec(send)?;
        line.push(b'\n');
        match &mut self.input {
            Some(input) => input.write_all(&line),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends the node at once, without a word to anyone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Lets go of the node and waits for its end; `None` where it does not end within `patience`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn stop(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        self.input = None;
        let (clock, end) = (Clock::new(), Clock::new().now() + timeout);
        loop {
            let left = end.saturating_since(clock.now());
            match self.events.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                // Its output is closed only by its end.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().map(Some),
            }
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Events that wait to be read; more are dropped.
const EVENTS_MAX: usize = 4_096;
