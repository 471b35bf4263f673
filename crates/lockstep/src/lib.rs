#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod audience;
pub mod bits;
pub mod bundle;
mod chain;
pub mod checksum;
mod client_peer;
mod config;
pub mod delta;
mod event;
mod history;
mod input;
mod input_log;
mod ledger;
mod margin;
mod match_server;
pub mod message;
mod relay_fan;
mod repair;
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
    ClientConfig, ClosePolicy, Config, InputDelay, Recovery, Repair, SnapshotSource, StartPolicy,
    Substitute, TickRate,
};
pub use event::{
    ClientEvent, CloseReason, ConfigError, JoinError, LeaveReason, Phase, Refusal, ReportError,
    ServerEvent, SnapshotError, StartError, SubmitError, Verdict,
};
pub use input::{Input, Width};
pub use match_server::MatchServer;
pub use relay_fan::{FanConfig, FanEvent, RelayFan};
pub use sim::Sim;
pub use stats::{ClientStats, FanStats, ServerStats, SpectatorStats};
pub use tick::{PeerId, Tick};
pub use turn::{Origin, Turn};
