//! A servicer that runs a stream machine on TCP connections, on its own thread.
//!
//! Connections use TLS 1.3. In one mode, each end proves its P-256 identity and is known only by
//! its `NodeId`, without certificates, names or session resumption. In the other mode, the accepter
//! is a host known by name: it presents an X.509 chain ([`HostCertificate`]), and the dialler
//! chooses the authorities that it trusts ([`Authorities`]). Framing and machine are the same in
//! both modes.
//!
//! A record is a 4-byte big-endian length and that many bytes. The accepter sends an empty first
//! record after it has admitted the peer; until then a dial has not succeeded. Credit bounds what a
//! machine may write, and is returned as bytes reach the socket. [`StreamApplication::may_receive`]
//! bounds what the machine receives.
//!
//! ```
//! use std::convert::Infallible;
//! use std::ops::ControlFlow;
//! use std::time::Duration;
//!
//! use crypto::{Identity, Ring};
//! use servicer::{
//!     Admission, Dial, StreamApplication, StreamListener, StreamServicer, TlsIdentity,
//! };
//! use wire::{
//!     CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine,
//! };
//!
//! /// Echoes each record. A real machine also tracks its credit.
//! #[derive(Default)]
//! struct Echo(Vec<(ConnectionId, Vec<u8>)>);
//!
//! impl StreamMachine for Echo {
//!     type Event = Infallible;
//!     type Command = Infallible;
//!
//!     fn handle_opened(&mut self, _: Instant, _: ConnectionId, _: &PeerIdentity) {}
//!     fn handle_frame(&mut self, _: Instant, connection: ConnectionId, record: &[u8]) {
//!         self.0.push((connection, record.to_vec()));
//!     }
//!     fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}
//!     fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {}
//!     fn poll_outbound(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
//!         let (connection, record) = self.0.pop()?;
//!         buf.extend_from_slice(&record);
//!         Some(Outbound { connection, close: false })
//!     }
//!     fn handle_timeout(&mut self, _: Instant) {}
//!     fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
//!         match outcome {}
//!     }
//!     fn poll_command(&mut self) -> Option<(CommandId, Infallible)> { None }
//!     fn poll_event(&mut self) -> Option<Infallible> { None }
//!     fn poll_timeout(&self) -> Option<Instant> { None }
//! }
//!
//! /// Has no requests, events or dials.
//! struct Quiet;
//!
//! impl StreamApplication<Echo> for Quiet {
//!     type Request = ();
//!
//!     fn apply_request(&mut self, _: Instant, _: &mut Echo, (): ()) -> ControlFlow<()> {
//!         ControlFlow::Continue(())
//!     }
//!     fn on_event(&mut self, _: Instant, _: &mut Echo, event: Infallible) { match event {} }
//!     fn on_command(
//!         &mut self, _: Instant, _: &mut Echo, _: CommandId, command: Infallible,
//!     ) -> Option<Dial> {
//!         match command {}
//!     }
//! }
//!
//! let identity = TlsIdentity::new(&Identity::generate(&mut Ring::new())?)?;
//! let listener = StreamListener::bind("127.0.0.1:0".parse()?, &identity, Admission::AnyNode)?;
//! println!("{} at {}", identity.node_id(), listener.local_address());
//! let handle = StreamServicer::named("echo").spawn(vec![listener], Echo::default(), Quiet)?;
//! let report = handle.shutdown(Duration::from_secs(1));
//! assert_eq!(report.counters.accepted, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Listening as a host, and dialling it by name:
//!
//! ```no_run
//! use std::fs::read_to_string;
//!
//! use servicer::{Authorities, Dial, HostCertificate, StreamListener};
//!
//! let (chain, key) = (read_to_string("chain.pem")?, read_to_string("key.pem")?);
//! let certificate = HostCertificate::from_pem(&chain, &key)?;
//! let listener = StreamListener::bind_host("[::]:7400".parse()?, &certificate)?;
//! // Later, when the files have been renewed: new connections use the new certificate.
//! certificate.replace(&read_to_string("chain.pem")?, &read_to_string("key.pem")?)?;
//!
//! // At the other end, the dial that the application returns for a command.
//! let authorities = Authorities::from_pem(&read_to_string("authorities.pem")?)?;
//! let address = "[2001:db8::7]:7400".parse()?;
//! let peer = authorities.host("lobby.example")?.into();
//! let dial = Dial { address, peer };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod application;
mod connection;
mod counters;
mod driver;
mod handshake_limiter;
mod listener;
mod record;
#[doc(hidden)] // For `daemon` only: it shows types of `mio` and `socket2`.
pub mod socket;
mod table;
mod tls;
mod x509;

use std::num::NonZeroUsize;
use std::time::Duration;

use wire::StreamMachine;

pub use application::{Dial, DialError, DialPeer, StreamApplication};
pub use connection::OpenConnection;
pub use counters::StreamCounters;
pub use crypto::tls::{KeyRefused, TlsIdentity};
pub use driver::{StreamDriver, StreamRequests};
pub use listener::{ListenError, StreamListener, raise_descriptor_limit};
pub use tls::{Admission, NodeList};
pub use x509::{
    Authorities, AuthoritiesError, BadHostName, CertificateFault, Host, HostCertificate,
    HostCertificateError,
};

use crate::handle::{self, SpawnError};

/// A stream servicer that has not started.
#[derive(Debug)]
pub struct StreamServicer {
    /// Name of the thread, in logs and in the report.
    name: String,
    config: StreamConfig,
    /// The identity that dials prove.
    identity: Option<TlsIdentity>,
}

impl StreamServicer {
    /// Creates a servicer. `name` is the name of its thread; most systems show only about 15 bytes
    /// of it.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            config: StreamConfig::default(),
            identity: None,
        }
    }

    /// Replaces the default limits.
    #[must_use]
    pub const fn with_config(mut self, config: StreamConfig) -> Self {
        self.config = config;
        self
    }

    /// Authenticates outgoing connections with `identity`. Without it, the servers dialled see
    /// [`PeerIdentity::Anonymous`](wire::PeerIdentity::Anonymous).
    #[must_use]
    pub fn with_identity(mut self, identity: &TlsIdentity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Starts the thread.
    ///
    /// `machine` receives times of [`Clock`](crate::Clock), so construct it with that clock.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no descriptor or thread left.
    pub fn spawn<M, A>(
        self,
        listeners: Vec<StreamListener>,
        machine: M,
        application: A,
    ) -> Result<StreamHandle<A::Request>, SpawnError>
    where
        M: StreamMachine + Send + 'static,
        A: StreamApplication<M, Request: Send> + Send + 'static,
    {
        for listener in &listeners {
            tracing::info!(servicer = self.name, address = %listener.local_address(), "listening");
        }
        let (driver, requests) =
            StreamDriver::new(listeners, self.identity, machine, application, self.config)?;
        handle::Handle::start(self.name, requests, move || driver.run())
    }
}

/// A running stream servicer.
pub type StreamHandle<R> = handle::Handle<R, StreamCounters>;

/// How a stream servicer ended, with its final counters.
pub type StreamReport = handle::Report<StreamCounters>;

/// How much a stream driver holds, waits and does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Maximum length of an inbound record, bytes. Default 66,560, which is 64 KiB of body and 1
    /// KiB of headers. A connection that announces a longer record is closed. Each connection may
    /// buffer this much of an incomplete record.
    pub record_bytes_max: usize,
    /// Send buffer of a connection, bytes of records. Default 256 KiB, at least the longest record.
    /// It is the machine's initial credit, which is returned as bytes are written. In the worst
    /// case each connection holds this much, plus 4 bytes for each record.
    pub credit_bytes: usize,
    /// Maximum connections, including handshakes and dials. Default 4,096.
    pub connections_max: usize,
    /// Maximum accepted connections of one source, an IPv4 address or an IPv6 /64. Default 1,024.
    /// Dials do not count.
    pub connections_per_source_max: usize,
    /// Maximum accepted connections in the handshake. Default 256. Each holds up to 64 KiB. One
    /// more replaces the oldest of the source with the most handshakes, unless that is its own
    /// source.
    pub handshakes_max: usize,
    /// Maximum handshakes of one source. Default 32. Above half of it, each new connection replaces
    /// the oldest if that has had its [`handshake_grace`](Self::handshake_grace).
    pub handshakes_per_source_max: usize,
    /// Time before a handshake may be evicted for another of its source. Default 1 s. A shorter
    /// grace limits how long an attacker blocks others of its source, but cuts off peers with a
    /// long round trip.
    pub handshake_grace: Duration,
    /// Timeout of a handshake, from the first packet. Default 5 s.
    pub handshake_timeout: Duration,
    /// Timeout of a record, from its first byte to its last. Default 10 s. It sets the slowest
    /// usable link: 6.5 KiB/s for the longest record.
    pub record_timeout: Duration,
    /// Timeout without any byte of a record. Default 60 s. A machine that needs a shorter timeout
    /// closes the connection itself.
    pub idle_timeout: Duration,
    /// Timeout while the peer takes none of the bytes waiting for it. Default 30 s.
    pub stall_timeout: Duration,
    /// Time for the peer to take the last bytes of a connection closed here. Default 1 s.
    pub linger_timeout: Duration,
    /// Bytes read from all sockets before timers run, and bytes of records then taken from the
    /// machine. Default 1 MiB, about 1 ms of work. The result of one poll of all sockets is read
    /// completely, up to 256 KiB per socket. Of sockets in the handshake, only one is read per 64
    /// KiB of this budget. After a gap of 250 ms between turns the read bound is 16 times as high,
    /// so that all data queued during a pause is read before timers run.
    pub bytes_per_turn: NonZeroUsize,
    /// Maximum queued requests. Default 4,096. The queue is allocated at the start.
    pub requests_max: NonZeroUsize,
}

impl StreamConfig {
    /// Maximum bytes of records that a connection holds for writing.
    pub(super) fn credit(&self) -> usize {
        self.credit_bytes.max(self.record_bytes_max)
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        const BYTES: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
        const REQUESTS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        Self {
            record_bytes_max: 65 << 10,
            credit_bytes: 256 << 10,
            connections_max: 4_096,
            connections_per_source_max: 1_024,
            handshakes_max: 256,
            handshakes_per_source_max: 32,
            handshake_grace: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            record_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(1),
            bytes_per_turn: BYTES,
            requests_max: REQUESTS,
        }
    }
}
