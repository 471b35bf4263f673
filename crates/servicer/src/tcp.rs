//! The servicer of streams: a thread of its own for a stream machine on TCP connections.
//!
//! Over TLS 1.3 each end proves its P-256 identity, and is known by its `NodeId` and nothing else:
//! no certificates, no names, no resumption. Or the end that accepts is a host that others know by
//! its name: it shows a chain of X.509 certificates ([`HostCertificate`]), and who dials says whose
//! word is taken for it ([`Authorities`]). All above is the same for both. A record is four bytes of length, big-endian, and as
//! many bytes; the first one of the end that accepts is empty and says that it has, so that a dial
//! has not gone well before the other end has let it in. What a machine may write is bounded by its
//! credit, given anew as bytes reach the socket; what it is given, by
//! [`StreamApplication::may_receive`].
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
//! /// Sends back what it gets. One that never overdraws its credit would count it too.
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
//! /// Nothing to ask, nothing to tell, nobody to dial.
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
//! A host, and a dial of it by its name:
//!
//! ```no_run
//! use std::fs::read_to_string;
//!
//! use servicer::{Authorities, Dial, HostCertificate, StreamListener};
//!
//! let (chain, key) = (read_to_string("chain.pem")?, read_to_string("key.pem")?);
//! let certificate = HostCertificate::from_pem(&chain, &key)?;
//! let listener = StreamListener::bind_host("[::]:7400".parse()?, &certificate)?;
//! // Later, when the files have been renewed: whoever comes from now on is shown the new ones.
//! certificate.replace(&read_to_string("chain.pem")?, &read_to_string("key.pem")?)?;
//!
//! // At the other end, what the application answers to a command that means a dial.
//! let authorities = Authorities::from_pem(&read_to_string("authorities.pem")?)?;
//! let address = "[2001:db8::7]:7400".parse()?;
//! let peer = authorities.host("lobby.example")?.into();
//! let dial = Dial { address, peer };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod application;
mod authorities;
mod config;
mod connection;
mod counters;
mod crowd;
mod descriptors;
mod driver;
mod host_certificate;
mod listener;
mod passage;
mod patience;
mod record;
mod table;
mod tls;

use wire::StreamMachine;

pub use admission::Admission;
pub use application::{Dial, DialError, DialPeer, StreamApplication};
pub use authorities::{Authorities, AuthoritiesError, BadHostName, CertificateFault, Host};
pub use config::StreamConfig;
pub use counters::StreamCounters;
pub use descriptors::raise_descriptor_limit;
pub use driver::{StreamDriver, StreamRequests};
pub use host_certificate::{HostCertificate, HostCertificateError};
pub use listener::{ListenError, StreamListener};
pub use passage::OpenConnection;
pub use tls::{KeyRefused, TlsIdentity};

use crate::handle::{self, SpawnError};

/// A servicer of streams that is not started yet.
#[derive(Debug)]
pub struct StreamServicer {
    /// Name of the thread, in logs and in the report.
    name: String,
    config: StreamConfig,
    /// What dials prove.
    identity: Option<TlsIdentity>,
}

impl StreamServicer {
    /// Prepares a servicer; `name` is that of its thread, of which systems show 15 bytes or so.
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

    /// Has dials prove `identity`. Without, the other end knows nobody:
    /// [`PeerIdentity::Anonymous`](wire::PeerIdentity::Anonymous).
    #[must_use]
    pub fn with_identity(mut self, identity: &TlsIdentity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Starts the thread.
    ///
    /// `machine` takes times of [`Clock`](crate::Clock), so that is the clock to construct it with.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no descriptor or thread left.
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

/// A running servicer of streams.
pub type StreamHandle<R> = handle::Handle<R, StreamCounters>;

/// How a servicer of streams ended, and what it had done.
pub type StreamReport = handle::Report<StreamCounters>;
