//! A mesh of local processes, for demonstrations and tests.
//!
//! Each node has its own loopback address, a key, and a configuration that lists all nodes. A
//! configuration may be changed until its node is started. Dropping the sandbox removes its folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crypto::{Identity, Provider, Ring, identity_file};
use servicer::Clock;
use wire::NodeId;

use super::emulation::FileLink;
use super::file::{BootstrapNode, FileConfig, FileRole, Member, NodeName, SECRET};
use crate::control::{spawn, write_line};
use crate::relay::stdio::{ProcessCommand, ProcessEvent};

/// Keys and configurations of several nodes.
#[derive(Debug)]
pub struct Sandbox {
    directory: PathBuf,
    /// The first three bytes of the sandbox's addresses.
    address_block: [u8; 3],
    configs: Vec<FileConfig>,
    ids: Vec<NodeName>,
}

impl Sandbox {
    /// Creates a folder with a key per node and the network's secret.
    ///
    /// # Errors
    ///
    /// The system's, for example if no folder can be created.
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
        // A secret is written like a node id.
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
        let nodes = || sandbox.ids.iter().zip(&sandbox.configs);
        let known = nodes().map(|(&node, config)| BootstrapNode {
            node,
            address: config.listen,
        });
        let members = nodes().map(|(&node, config)| Member {
            node,
            roles: config.roles.clone(),
        });
        let (known, members): (Vec<_>, Vec<_>) = (known.collect(), members.collect());
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

    /// Returns a loopback address of this sandbox; nodes have 1, 2 and so on.
    pub const fn host(&self, number: u8) -> IpAddr {
        let [a, b, c] = self.address_block;
        IpAddr::V4(Ipv4Addr::new(a, b, c, number))
    }

    /// Returns the id of a node; `None` if there is no such node.
    pub fn id(&self, node: usize) -> Option<NodeName> {
        self.ids.get(node).copied()
    }

    /// Returns the name of the node with that id.
    pub fn name(&self, id: NodeName) -> Option<&str> {
        let position = self.ids.iter().position(|known| *known == id)?;
        self.configs
            .get(position)
            .map(|config| config.name.as_str())
    }

    /// Returns the configuration of a node.
    pub fn config(&self, node: usize) -> Option<&FileConfig> {
        self.configs.get(node)
    }

    /// Returns the configuration of a node, to change it before the start.
    pub fn config_mut(&mut self, node: usize) -> Option<&mut FileConfig> {
        self.configs.get_mut(node)
    }

    /// Delays the datagrams between two nodes, in both directions.
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

    /// Starts a node: runs `command` with the configuration's path as its last argument.
    ///
    /// # Errors
    ///
    /// The system's; `NotFound` if there is no such node.
    pub fn start(&self, node: usize, mut command: Command) -> io::Result<NodeProcess> {
        let config = self.configs.get(node).ok_or(io::ErrorKind::NotFound)?;
        let path = self.directory.join(format!("{}.json", config.name));
        fs::write(&path, serde_json::to_vec_pretty(config)?)?;
        command.arg(&path);
        NodeProcess::spawn(command)
    }

    fn default_config(&self, host: u8, name: &str, role: FileRole) -> FileConfig {
        let listen = SocketAddr::new(self.host(host), MESH_PORT);
        FileConfig {
            roles: [role].into(),
            upstream_ip: Some(self.host(host)),
            ..FileConfig::new(name, key_name(name).into(), listen)
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The system cleans its folder of temporary files.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// Chooses 127.80.0 to 127.119.255 by process and sandbox number.
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

static NEXT: AtomicU32 = AtomicU32::new(0);
const MESH_PORT: u16 = 4_500;

/// A running node. Dropping it kills it.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
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
        spawn("node", move || {
            let lines = output
                .map(BufReader::new)
                .into_iter()
                .flat_map(BufRead::lines);
            // Lines of unknown kinds are skipped.
            let events = lines
                .map_while(Result::ok)
                .filter_map(|line| serde_json::from_str(&line).ok());
            for one in events {
                // Keeps reading: the node must not block on the pipe.
                sender.try_send(one).ok();
            }
        })?;
        Ok(started)
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the events received so far, oldest first, without waiting.
    pub fn events(&self) -> impl Iterator<Item = ProcessEvent> {
        self.events.try_iter()
    }

    /// Waits for the first event that `matching` accepts; drops earlier ones.
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

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// The system's, if the node has ended.
    pub fn send(&mut self, command: &ProcessCommand) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        write_line(input, command)
    }

    /// Kills the node.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Closes the node's stdin and waits for its end; `None` if it does not end within `timeout`.
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
                // The output closes when the process ends.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().map(Some),
            }
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const EVENTS_MAX: usize = 4_096;
