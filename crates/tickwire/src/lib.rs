#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use core::num::NonZeroU8;

#[cfg(feature = "accounts")]
pub mod accounts;
#[cfg(feature = "tokio")]
mod asynchronous;
mod background;
mod client;
mod event;
mod host;
#[cfg(feature = "hub")]
pub mod hub_client;
mod key;
mod server;
mod shared;
mod socket;
pub mod stats;

pub use crypto;
#[cfg(feature = "hub")]
pub use hub;
#[cfg(feature = "lockstep")]
pub use lockstep;
#[cfg(feature = "matchmaker")]
pub use matchmaker_core as matchmaker;
pub use servicer;
pub use udp_proto;
pub use wire;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncClient, AsyncServer};
pub use background::{BackgroundClient, BackgroundServer};
pub use client::Client;
pub use event::Event;
pub use key::{KeyError, ServerKey};
pub use server::{Game, Server, Stopper};
pub use socket::OpenError;
pub use stats::Report;
pub use udp_proto::{
    AppId, Certainty, ChannelId, CloseReason, Config, ConnectFailure, Message, MessageId,
    MessageOutcome, SendError, SessionId, SessionStats,
};

/// 20 ticks per second, for [`Server::wait_tick`], [`Client::wait_tick`] and [`Server::run`].
pub const HZ_20: NonZeroU8 = NonZeroU8::MIN.saturating_add(19);
/// 30 ticks per second; see [`HZ_20`].
pub const HZ_30: NonZeroU8 = NonZeroU8::MIN.saturating_add(29);
/// 60 ticks per second; see [`HZ_20`].
pub const HZ_60: NonZeroU8 = NonZeroU8::MIN.saturating_add(59);
/// 128 ticks per second; see [`HZ_20`].
pub const HZ_128: NonZeroU8 = NonZeroU8::MIN.saturating_add(127);

/// The unreliable channel, for state that the next tick replaces.
pub const UNRELIABLE: ChannelId = ChannelId(0);
/// The reliable, ordered channel.
pub const RELIABLE: ChannelId = ChannelId(1);

#[cfg(test)]
mod tests {
    use super::{HZ_20, HZ_30, HZ_60, HZ_128};

    #[test]
    fn tick_rates_match_their_names() {
        assert_eq!(
            [HZ_20, HZ_30, HZ_60, HZ_128].map(u8::from),
            [20, 30, 60, 128]
        );
    }
}
