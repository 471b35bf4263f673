#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "accounts")]
pub mod accounts;
#[cfg(feature = "tokio")]
mod asynchronous;
mod background;
mod client;
mod event;
mod game;
mod host;
mod key;
mod server;
mod socket;
pub mod stats;

pub use crypto;
pub use servicer;
pub use udp_proto;
pub use wire;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncClient, AsyncServer};
pub use background::{BackgroundClient, BackgroundServer};
pub use client::Client;
pub use event::Event;
pub use game::{Game, Stopper};
pub use key::{KeyError, ServerKey};
pub use server::Server;
pub use socket::OpenError;
pub use stats::Report;
pub use udp_proto::{
    AppId, Certainty, ChannelId, CloseReason, Config, ConnectFailure, Message, MessageId,
    MessageOutcome, SendError, SessionId, SessionStats,
};

/// The channel for state that the next tick replaces: unreliable.
pub const UNRELIABLE: ChannelId = ChannelId(0);
/// The channel for what must arrive: reliable and ordered.
pub const RELIABLE: ChannelId = ChannelId(1);
