#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod block_list;
pub mod budget;
mod byte_queue;
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
mod nanos;
pub mod outbox;
pub mod packet;
pub mod received;
pub mod replay;
pub mod rtt;
pub mod sent;
mod session;
mod slots;
mod stats;

pub use block_list::{BlockError, BlockList, Prefix};
pub use channel::{
    ChannelConfig, ChannelId, ChannelTable, Delivery, Message, MessageId, SendError,
};
pub use config::{
    AppId, Config, DuplicatePolicy, FloodPolicy, IdleTimeout, InboundLimits, Keepalive, KeyLimits,
    Mtu, MtuSearch, RetryPolicy, SpokenVersions, Timeouts, VERSION_1, VERSION_TRIAL,
};
pub use endpoint::Endpoint;
pub use endpoint::listener::{Listen, Network};
pub use error::{
    Certainty, CloseCode, CloseReason, ConnectError, ConnectFailure, ListenError, NoSession,
};
pub use event::{Event, Grant, MessageOutcome, Peer, Proof, Settled};
pub use handshake::target::{Credentials, ServerIdentity, Target};
pub use slots::{CidLen, SessionId};
pub use stats::{EndpointStats, SessionStats};
