#![doc = include_str!("../README.md")]
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
