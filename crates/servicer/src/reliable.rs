//! A reliable server and its clients over TCP and TLS 1.3, for data that must not be lost and may
//! be late, such as joins, chat and snapshots.
//!
//! A server has one thread that accepts clients, and workers for the members, as the accepted
//! clients are called: one per member, or a pool ([`TcpServicers`]). The application sends orders to
//! each by a bounded queue, and receives the events of all by another one. A message to any number
//! of a worker's members is one order. A client has one thread. A game's UDP traffic runs on its own
//! thread; the server's welcome can give the client the address and key for it.
//!
//! ```text
//! application --- one queue for each worker ---> worker 1 ... n --- members
//!      ^   \--------------- refusals ------------> acceptor --- clients
//!      \------------- one queue of events ------- all of them
//! ```
//!
//! **Joining.** An unaccepted client is limited to a TLS handshake and one record of 1 KiB, both
//! limited in time and number, and has no thread. The application accepts it, or refuses it with a
//! reason. Until then the server reads nothing more from it.
//!
//! **Slow readers.** Messages for a peer that reads too slowly are queued up to a budget of bytes
//! and age, 256 KiB and 5 s by default. Beyond that, the member is closed with that reason, and the
//! application receives [`ServerEvent::Slow`]. Other members are not delayed. If the application
//! takes no events, the server stops reading from members.
//!
//! **Shutdown.** [`ReliableServer::shutdown`] accepts no more clients, sends members the reason,
//! writes queued messages up to a deadline, closes all connections, joins every thread, and reports
//! how many messages were written and how many dropped. If a thread panics, only its own
//! connections close, and the application receives [`ServerEvent::ThreadEnded`].
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use crypto::{Identity, Ring};
//! use servicer::{
//!     Admission, ClientEvent, Dest, Dial, ReliableClient, ReliableConfig, ReliableServer,
//!     ServerEvent, StreamListener, TlsIdentity,
//! };
//!
//! let identity = TlsIdentity::new(&Identity::generate(&mut Ring::new())?)?;
//! let listener = StreamListener::bind("127.0.0.1:0".parse()?, &identity, Admission::Anyone)?;
//! let config = ReliableConfig::default();
//! let mut server = ReliableServer::start("lobby", vec![listener], &config)?;
//!
//! // Elsewhere: a client that knows the address and key of the server.
//! let dial = Dial { address: server.addresses()[0], peer: identity.node_id().into() };
//! let join = Bytes::from_static(b"ann:secret");
//! let mut ann = ReliableClient::connect("ann", dial, None, join, &config)?;
//!
//! let timeout = Duration::from_secs(10);
//! let Some(ServerEvent::Join(request)) = server.wait_event(timeout) else { panic!("nobody") };
//! assert_eq!(request.payload(), "ann:secret");
//! server.accept(request, Bytes::from_static(b"the game is at 192.0.2.1:7777"))?;
//! server.send(Dest::All, Bytes::from_static(b"ann is here"))?;
//!
//! assert!(matches!(ann.wait_event(timeout), Some(ClientEvent::Accepted { .. })));
//! assert!(matches!(ann.wait_event(timeout), Some(ClientEvent::Message(line)) if line == "ann is here"));
//! let report = server.shutdown(timeout, Bytes::from_static(b"maintenance"));
//! assert_eq!((report.flushed, report.dropped), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
mod client;
mod config;
mod event;
mod event_queue;
mod member;
mod record;
mod server;

pub use client::ReliableClient;
pub use config::{ReliableConfig, TcpServicers};
pub use event::{ClientClose, ClientEvent, Dest, JoinRequest, LeaveCause, MemberId, ServerEvent};
pub use server::{AcceptError, AcceptFault, MessageError, ReliableServer, ServerReport};
