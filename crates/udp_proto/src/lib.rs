#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod block_list;
pub mod budget;
pub mod channel;
pub mod codec;
mod config;
mod endpoint;
mod error;
mod event;
pub mod fragment;
pub mod frame;
pub mod handshake;
pub mod inbox;
mod marks;
mod nanos;
pub mod outbox;
mod outcome;
pub mod packet;
pub mod received;
pub mod replay;
pub mod rtt;
pub mod sent;
mod session;
pub mod skip;
mod slots;
mod stats;
mod timeouts;
mod timers;

pub use block_list::{BlockError, BlockList, Prefix};
pub use channel::{ChannelConfig, ChannelId, ChannelTable, Delivery, MessageId, SendError};
pub use config::{
    AppId, Config, DuplicatePolicy, FloodPolicy, IdleTimeout, InboundLimits, Keepalive, KeyLimits,
    Mtu, MtuSearch, RetryPolicy,
};
pub use endpoint::Endpoint;
pub use endpoint::listener::{Listen, Network};
pub use error::{
    Certainty, CloseCode, CloseReason, ConnectError, ConnectFailure, ListenError, NoSession,
};
pub use event::{Event, Grant, Peer, Proof};
pub use handshake::SpokenVersions;
pub use handshake::target::{Credentials, ServerIdentity, Target};
pub use outcome::{Message, MessageOutcome, Settled};
pub use slots::{CidLen, SessionId};
pub use stats::{EndpointStats, SessionStats};
pub use timeouts::Timeouts;
