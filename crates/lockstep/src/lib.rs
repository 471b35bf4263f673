#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod bisect;
pub mod bits;
mod body;
pub mod bundle;
mod chain;
pub mod checksum;
mod client_peer;
mod commitment;
mod config;
pub mod delta;
mod divergence;
mod event;
mod hash_comparator;
mod hash_history;
mod history;
mod hosted_peer;
mod input;
mod input_log;
mod interpolation;
mod jitter_buffer;
mod margin;
mod match_server;
mod mesh_peer;
pub mod message;
mod playout;
mod prediction;
mod repair;
#[cfg(feature = "replay")]
pub mod replay;
mod runner;
mod saves;
mod sim;
mod snapshot;
mod spectator_relay;
mod spectators;
pub mod state_channel;
mod stats;
mod step;
mod stepper;
mod sync_test;
mod tick;
mod tick_clock;
pub mod transfer;
mod turn;
mod view;

pub use checksum::StateHasher;
pub use client_peer::ClientPeer;
pub use commitment::CommitSecret;
pub use config::{
    ClientConfig, ClosePolicy, Config, InputDelay, Recovery, Repair, SavePolicy, SlowPolicy,
    SnapshotSource, StartPolicy, Substitute, TickRate,
};
pub use divergence::{Cause, Section, SectionName};
pub use event::{
    ClientEvent, CloseReason, ConfigError, JoinError, LeaveReason, Phase, Refusal, ReportError,
    ServerEvent, SlowCause, SnapshotError, StallCause, StartError, SubmitError, Verdict,
};
pub use hosted_peer::{
    HostedClose, HostedConfig, HostedConfigError, HostedEvent, HostedPeer, HostedStats,
};
pub use input::{Input, Width};
pub use interpolation::{Between, Interpolation, InterpolationConfig, InterpolationStats};
pub use jitter_buffer::{JitterBuffer, JitterStats};
pub use match_server::MatchServer;
pub use mesh_peer::{MeshClose, MeshConfig, MeshConfigError, MeshEvent, MeshPeer, MeshStats};
pub use playout::Playout;
pub use prediction::{Correction, HistoryFull, Prediction, PredictionStats};
pub use runner::Rollback;
pub use sim::{Sim, SnapshotBytes};
pub use spectator_relay::{SpectatorRelay, SpectatorRelayConfig, SpectatorRelayEvent};
pub use stats::{ClientStats, ServerStats, SpectatorRelayStats, SpectatorStats};
pub use step::{Step, Steps};
pub use sync_test::{Divergence, SyncFault, SyncTest};
pub use tick::{PeerId, Tick};
pub use turn::{Origin, Turn};
