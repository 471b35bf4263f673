#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bits;
pub mod bundle;
mod chain;
pub mod checksum;
mod client_peer;
mod config;
pub mod delta;
mod divergence;
mod event;
mod history;
mod input;
mod input_log;
mod ladder;
mod ledger;
mod margin;
mod match_server;
pub mod message;
mod repair;
#[cfg(feature = "replay")]
pub mod replay;
mod rungs;
mod sim;
mod snapshot;
mod stats;
mod tick;
mod tick_clock;
pub mod transfer;
mod turn;

pub use checksum::StateHasher;
pub use client_peer::ClientPeer;
pub use config::{
    ClientConfig, ClosePolicy, Config, InputDelay, Recovery, Repair, SlowPolicy, SnapshotSource,
    StartPolicy, Substitute, TickRate,
};
pub use divergence::{Cause, Section, SectionName};
pub use event::{
    ClientEvent, CloseReason, ConfigError, JoinError, LeaveReason, Phase, Refusal, ReportError,
    ServerEvent, SlowCause, SnapshotError, StallCause, StartError, SubmitError, Verdict,
};
pub use input::{Input, Width};
pub use match_server::MatchServer;
pub use sim::{Sim, SnapshotBytes};
pub use stats::{ClientStats, ServerStats};
pub use tick::{PeerId, Tick};
pub use turn::{Origin, Turn};
