#![cfg_attr(feature = "udp", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "udp"),
    doc = "`tickwire-servicer` without its feature `udp`: the clock, and what other features add."
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(feature = "hub")]
pub mod claims;
pub mod clock;
#[cfg(feature = "conditioner")]
pub mod conditioner;
#[cfg(any(feature = "tcp", feature = "udp"))]
mod counters;
#[cfg(feature = "udp")]
pub mod driver;
#[cfg(any(feature = "tcp", feature = "udp"))]
pub mod handle;
#[cfg(feature = "hub")]
pub mod hub_node;
#[cfg(feature = "mesh")]
pub mod mesh;
#[cfg(feature = "tcp")]
pub mod reliable;
#[cfg(any(feature = "tcp", feature = "udp"))]
pub mod request;
#[cfg(feature = "udp")]
pub mod socket;
#[cfg(feature = "hub")]
pub mod stats;
#[cfg(feature = "hub")]
pub mod storage;
#[cfg(feature = "tcp")]
pub mod tcp;
#[cfg(any(feature = "tcp", feature = "udp"))]
mod turn;
#[cfg(feature = "udp")]
pub mod udp;
#[cfg(any(feature = "tcp", feature = "udp"))]
mod waiter;

#[cfg(feature = "hub")]
pub use claims::{ClaimIssuer, P256Verifier};
pub use clock::Clock;
#[cfg(feature = "conditioner")]
pub use conditioner::{Conditioner, Delivery, Direction, Ends, LinkModel, Remote, Rules};
#[cfg(feature = "udp")]
pub use counters::Counters;
#[cfg(feature = "udp")]
pub use driver::{
    Application, Config, Driver, PeerAddress, Requests, SocketError, SocketOrder, SocketOutcome,
};
#[cfg(any(feature = "tcp", feature = "udp"))]
pub use handle::{End, SpawnError};
#[cfg(feature = "hub")]
pub use hub_node::{HubApplication, HubNode, HubNodeError};
#[cfg(feature = "tcp")]
pub use reliable::{
    AcceptError, AcceptFault, ClientClose, ClientEvent, Dest, JoinRequest, LeaveCause, MemberId,
    MessageError, ReliableClient, ReliableConfig, ReliableServer, ServerEvent, ServerReport,
    TcpServicers,
};
#[cfg(any(feature = "tcp", feature = "udp"))]
pub use request::RequestError;
#[cfg(feature = "udp")]
pub use socket::{
    Batching, BindCause, BindError, SocketConfig, SocketIndex, SocketReport, Stack, UdpSocket,
};
#[cfg(feature = "hub")]
pub use stats::{
    StatsInlet, StatsJob, StatsQuestion, StatsReader, StatsRecorder, StatsRecorders, submit_stats,
};
#[cfg(feature = "hub")]
pub use storage::{
    BackgroundSegments, JobQueue, Jobs, Storage, StorageConfig, StorageCounters, StorageReport,
    StorageThread, free_bytes,
};
#[cfg(feature = "tcp")]
pub use tcp::{
    Admission, Authorities, AuthoritiesError, BadHostName, CertificateFault, Dial, DialError,
    DialPeer, Host, HostCertificate, HostCertificateError, KeyRefused, ListenError, NodeList,
    OpenConnection, StreamApplication, StreamConfig, StreamCounters, StreamDriver, StreamHandle,
    StreamListener, StreamReport, StreamRequests, StreamServicer, TlsIdentity,
    raise_descriptor_limit,
};
#[cfg(feature = "udp")]
pub use udp::{Handle, Report, Shards, UdpServicer};
