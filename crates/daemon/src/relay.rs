//! One node of the mesh: from a configuration file, or as a part of a larger process.
//!
//! [`main`] is the whole process: it reads a [`FileConfig`], prints [`News`] as one JSON object a
//! line, takes [`Order`]s the same way, and ends as its [`Ending`] says: with its input, or by a signal.
//! [`Relay`] is the node on a thread, for whoever has its own way to configure and to report.

mod admin;
mod ask;
mod beside;
mod emulation;
mod file;
mod host_names;
mod news;
mod operator;
mod probing;
mod process;
mod running;
pub mod sandbox;
mod store;
mod tcp;

pub use beside::StrayStats;
pub use emulation::Emulation;
pub use file::{
    BootstrapNode, ConfigError, FileAdmin, FileConfig, FileGame, FileHopFrames, FileLimits,
    FileLink, FileMinimum, FileMode, FileProbe, FileProtocol, FileProxies, FileRation, FileRole,
    FileSigned,
};
pub use file::{Member, NodeName};
pub use news::{News, Order, RouteCauseName};
pub use process::{Ending, RunError, main, run};
pub use relay_mesh::TurnedAway;
pub use running::{AdminSetup, Relay, Setup, StartError, Stats, Told};
pub(crate) use store::replace;
pub use tcp::{TcpCounted, TcpSetup, TcpStats};
