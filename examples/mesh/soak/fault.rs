//! Faults, drawn from a seed.

use std::fmt;
use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

use wire::Seed;
use wire::seed::Generator;

use super::flows::Flows;
use super::test_mesh::{NODES, RELAYS, TestMesh};

/// A kind of fault. The worst case is printed for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum FaultKind {
    /// SIGSTOP, then SIGCONT, of a relay.
    StopRelay,
    /// SIGSTOP, then SIGCONT, of an entry or exit.
    StopEnd,
    /// SIGKILL and restart of a relay.
    KillRelay,
    /// SIGKILL and restart of an entry or exit.
    KillEnd,
    /// All datagrams from one node to another are lost.
    OneWayLoss,
    /// Players change their source port, as after a NAT rebinding.
    Rebind,
    /// Publishes a document with one more game, then one without it.
    ConfigChange,
    /// A relay drains, stops and restarts.
    Drain,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::StopRelay => "stop relay",
            Self::StopEnd => "stop end",
            Self::KillRelay => "kill relay",
            Self::KillEnd => "kill end",
            Self::OneWayLoss => "one-way loss",
            Self::Rebind => "rebind",
            Self::ConfigChange => "config change",
            Self::Drain => "drain",
        })
    }
}

const KINDS: [FaultKind; 8] = [
    FaultKind::StopRelay,
    FaultKind::StopEnd,
    FaultKind::KillRelay,
    FaultKind::KillEnd,
    FaultKind::OneWayLoss,
    FaultKind::Rebind,
    FaultKind::ConfigChange,
    FaultKind::Drain,
];

/// One fault.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    kind: FaultKind,
    /// The affected node.
    node: usize,
    /// The node that datagrams of `node` do not reach.
    other: usize,
    lasts: Duration,
}

impl Fault {
    pub(super) const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Injects the fault. Returns when it has ended.
    pub(super) fn happen(&self, test_mesh: &mut TestMesh, flows: &Flows) -> io::Result<()> {
        match self.kind {
            FaultKind::StopRelay | FaultKind::StopEnd => {
                let pid = test_mesh.pid(self.node)?;
                signal("STOP", pid)?;
                thread::sleep(self.lasts);
                signal("CONT", pid)
            }
            FaultKind::KillRelay | FaultKind::KillEnd => {
                test_mesh.kill(self.node)?;
                thread::sleep(self.lasts);
                test_mesh.restart(self.node)
            }
            FaultKind::OneWayLoss => {
                test_mesh.set_loss((self.node, self.other), 1_000_000)?;
                thread::sleep(self.lasts);
                test_mesh.set_loss((self.node, self.other), 0)
            }
            FaultKind::Rebind => {
                flows.rebind(REBIND_STEP);
                Ok(())
            }
            FaultKind::ConfigChange => {
                test_mesh.publish_with_extra()?;
                thread::sleep(self.lasts);
                test_mesh.publish()
            }
            FaultKind::Drain => {
                test_mesh.drain(self.node, DRAIN_MAX)?;
                test_mesh.restart(self.node)
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: usize| NODES.get(node).map_or("a node", |(name, _)| name);
        let (node, seconds) = (name(self.node), self.lasts.as_secs_f32());
        match self.kind {
            FaultKind::StopRelay | FaultKind::StopEnd => {
                write!(f, "{node} stopped for {seconds:.1} s")
            }
            FaultKind::KillRelay | FaultKind::KillEnd => {
                write!(f, "{node} killed, started {seconds:.1} s later")
            }
            FaultKind::OneWayLoss => {
                write!(
                    f,
                    "nothing from {node} to {} for {seconds:.1} s",
                    name(self.other)
                )
            }
            FaultKind::Rebind => write!(f, "one player in {REBIND_STEP} on another port"),
            FaultKind::ConfigChange => write!(f, "a game more for {seconds:.1} s"),
            FaultKind::Drain => write!(f, "{node} drained and started again"),
        }
    }
}

/// Draws faults.
pub(super) struct Draw {
    generator: Generator,
    kinds: Vec<FaultKind>,
}

impl Draw {
    /// Creates a sequence for `seed`, with all kinds if `only` is empty.
    pub(super) fn new(seed: u64, only: &[FaultKind]) -> Self {
        Self {
            generator: Seed::from_number(seed).generator(0),
            kinds: if only.is_empty() {
                KINDS.to_vec()
            } else {
                only.to_vec()
            },
        }
    }

    pub(super) fn next(&mut self) -> Fault {
        let kind = self.below(self.kinds.len());
        let kind = self.kinds.get(kind).copied().unwrap_or(FaultKind::Rebind);
        let node = match kind {
            FaultKind::StopRelay | FaultKind::KillRelay | FaultKind::Drain => {
                RELAYS[0] + self.below(RELAYS.len())
            }
            FaultKind::StopEnd | FaultKind::KillEnd => {
                let ends: Vec<_> = (0..NODES.len())
                    .filter(|node| !RELAYS.contains(node))
                    .collect();
                let end = self.below(ends.len());
                ends.get(end).copied().unwrap_or(0)
            }
            FaultKind::OneWayLoss | FaultKind::Rebind | FaultKind::ConfigChange => {
                self.below(NODES.len())
            }
        };
        // Any node except `node`.
        let other = (node + 1 + self.below(NODES.len() - 1)) % NODES.len();
        let lasts = match kind {
            FaultKind::StopRelay | FaultKind::StopEnd => self.millis(1_000, 15_000),
            FaultKind::KillRelay | FaultKind::KillEnd => self.millis(500, 8_000),
            FaultKind::OneWayLoss => self.millis(1_000, 12_000),
            FaultKind::Rebind | FaultKind::ConfigChange | FaultKind::Drain => {
                self.millis(1_000, 3_000)
            }
        };
        Fault {
            kind,
            node,
            other,
            lasts,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(1).max(1);
        usize::try_from(self.generator.next_u64() % count).unwrap_or(0)
    }

    fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.generator.next_u64() % (high - low))
    }
}

/// Sends a signal with the system's `kill` program.
fn signal(name: &str, pid: u32) -> io::Result<()> {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "SIG{name} to process {pid} failed"
        )))
    }
}

/// One in this many players rebinds.
const REBIND_STEP: usize = 3;
/// Time limit for a relay to drain.
const DRAIN_MAX: Duration = Duration::from_secs(20);
