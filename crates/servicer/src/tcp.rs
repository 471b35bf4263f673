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
//!     Admission, Dial, DialError, StreamApplication, StreamListener, StreamServicer, TlsIdentity,
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
//!     fn on_dialled(
//!         &mut self, _: Instant, _: &mut Echo, _: CommandId, _: Result<ConnectionId, DialError>,
//!     ) {}
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
mod config;
mod connection;
mod counters;
mod crowd;
mod descriptors;
mod driver;
mod listener;
mod passage;
mod patience;
mod record;
mod table;
mod tls;
mod x509;

use wire::StreamMachine;

pub use application::{Dial, DialError, DialPeer, StreamApplication};
pub use config::StreamConfig;
pub use counters::StreamCounters;
pub use crypto::tls::{KeyRefused, TlsIdentity};
pub use descriptors::raise_descriptor_limit;
pub use driver::{StreamDriver, StreamRequests};
pub use listener::{ListenError, StreamListener};
pub use passage::OpenConnection;
pub use tls::Admission;
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

    /// Makes dials prove `identity`. Without it, peers see this end as
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
