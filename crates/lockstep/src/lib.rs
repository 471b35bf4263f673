#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod bisect;
pub mod bits;
pub mod bundle;
mod chain;
pub mod checksum;
mod client_peer;
mod config;
pub mod delta;
mod event;
mod hash_comparator;
mod hash_history;
mod hosted_peer;
mod input;
mod input_log;
mod interpolation;
mod match_server;
mod mesh_peer;
pub mod message;
mod playout;
mod prediction;
mod repair;
mod repeat;
#[cfg(feature = "replay")]
pub mod replay;
mod runner;
mod sim;
mod spectator_relay;
mod spectators;
pub mod state_channel;
mod stats;
mod stepper;
mod sync_test;
mod tick;
pub mod transfer;
mod view;

pub use checksum::StateHasher;
pub use client_peer::ClientPeer;
pub use config::{
    ClientConfig, ClosePolicy, Config, Recovery, SavePolicy, SlowPolicy, SnapshotSource,
    StartPolicy, Substitute,
};
pub use event::{
    Cause, ClientEvent, CloseReason, ConfigError, JoinError, LeaveReason, Phase, Refusal,
    ReportError, Section, SectionName, ServerEvent, SlowCause, SnapshotError, StallCause,
    StartError, SubmitError, Verdict,
};
pub use hosted_peer::{
    HostedClose, HostedConfig, HostedConfigError, HostedEvent, HostedPeer, HostedStats,
};
pub use input::{Input, Origin, Turn, Width};
pub use interpolation::{Between, Interpolation, InterpolationConfig, InterpolationStats};
pub use match_server::MatchServer;
pub use mesh_peer::{
    CommitSecret, MeshClose, MeshConfig, MeshConfigError, MeshEvent, MeshPeer, MeshStats,
};
pub use playout::{JitterBuffer, JitterStats, Playout};
pub use prediction::{Correction, HistoryFull, Prediction, PredictionStats};
pub use runner::Rollback;
pub use sim::{Sim, SnapshotBytes, Step, Steps};
pub use spectator_relay::{SpectatorRelay, SpectatorRelayConfig, SpectatorRelayEvent};
pub use stats::{ClientStats, ServerStats, SpectatorRelayStats, SpectatorStats};
pub use sync_test::{Divergence, SyncFault, SyncTest};
pub use tick::{InputDelay, PeerId, Repair, Tick, TickRate};
