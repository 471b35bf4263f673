#![cfg_attr(feature = "udp", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "udp"),
    doc = "The clock of `tickwire-servicer`; its feature `udp` is off."
)]
#![forbid(unsafe_code)]

pub mod clock;
#[cfg(feature = "conditioner")]
pub mod conditioner;
#[cfg(feature = "udp")]
pub mod driver;
#[cfg(feature = "udp")]
pub mod udp;

pub use clock::Clock;
#[cfg(feature = "conditioner")]
pub use conditioner::{Conditioner, Delivery, Direction, Ends, LinkModel, Remote, Rules};
#[cfg(feature = "udp")]
pub use driver::{
    Application, Config, Counters, Driver, End, PeerAddress, RequestError, Requests, SocketIndex,
};
#[cfg(feature = "udp")]
pub use udp::{
    BindCause, BindError, Handle, Report, SocketConfig, SocketReport, SpawnError, Stack,
    UdpServicer, UdpSocket,
};
