//! One node of the mesh, run from a configuration file or embedded in a larger process.
//!
//! [`main`] is the whole process: it reads a [`FileConfig`], prints [`ProcessEvent`]s and reads
//! [`ProcessCommand`]s, each as one JSON object per line, and stops on what its [`StopOn`] says.
//! [`Relay`] runs the node on threads of the caller's process.

mod admin;
mod emulation;
mod file;
mod forwarder_threads;
mod host_names;
mod machine;
mod probing;
mod process;
mod running;
pub mod sandbox;
mod stdio;
mod store;
mod tcp;

pub use admin::AdminSetup;
pub use emulation::{Emulation, FileLink};
pub use file::{
    BootstrapNode, FileAdmin, FileConfig, FileGame, FileHopFrames, FileLimits, FileMinimum,
    FileProbe, FileProxies, FileRole, FileSigned, FileUnprovedLimits,
};
pub use file::{Member, NodeName};
pub use forwarder_threads::StrayStats;
pub use machine::Stats;
pub use process::{StopOn, main, run};
pub use relay_mesh::signed_config::Protocol;
pub use relay_mesh::{Mode, RouteCause, TurnedAway};
pub use running::{Relay, RelayEvent, Setup};
pub use stdio::{ProcessCommand, ProcessEvent};
pub(crate) use store::write_atomic;
pub use tcp::{TcpReport, TcpSetup, TcpStats};
