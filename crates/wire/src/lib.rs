#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc)]

extern crate alloc;

pub mod address;
pub mod codec;
pub mod id;
pub mod lookup;
pub mod machine;
pub mod proxy_header;
pub mod seed;
pub mod source_limiter;
mod text;
pub mod time;
pub mod token_bucket;

pub use address::{
    AddressError, BadDestination, BadDestinationCause, NetworkKey, SourceKey, check_port,
    parse_address,
};
pub use codec::{Encode, Reader, Truncated, Writer};
pub use id::{ClientId, ConnectionId, InstanceId, MatchId, NodeId, Seat, Team};
pub use lookup::Lookup;
pub use machine::{
    Arrival, CloseCause, CommandId, Ecn, Effect, Machine, Outbound, PeerIdentity, StreamMachine,
    Transmit,
};
pub use seed::{Generator, Seed};
pub use source_limiter::{LimitError, SourceLimiter, SourceRates};
pub use time::{Instant, UnixTime};
pub use token_bucket::TokenBucket;
