//! A reliable server and its clients: what must not be lost and may be late, such as joins, chat and
//! snapshots, over TCP and TLS 1.3.
//!
//! A server has one servicer that lets clients in, and others that serve those who are in: one for each,
//! or a pool ([`TcpServicers`]). All are threads that wait for sockets and queues and make no turn at rest.
//! The application speaks to each by a bounded queue, in which a message to any number of its members is
//! one order, and hears of all by one bounded queue. A client has one servicer. What moves in UDP stands
//! beside it, in a thread of its own: a client learns where, and with what key, as it is let in.
//!
//! ```text
//! application --- one queue for each servicer ---> servicer 1 ... n --- members
//!      ^   \----------- refusals ---------------> door --- strangers
//!      \------------- one queue of events ------- all of them
//! ```
//!
//! **Being let in.** A stranger gets a handshake and one record of 1 KiB, both in limited time and number,
//! and no thread. The application judges what it says and accepts it, or refuses it with a reason; until
//! then nothing more is read from it.
//!
//! **What waits.** Messages for a peer that takes too little wait up to a budget in bytes and in age, 256
//! KiB and 5 s by default. Beyond, the application is told [`ServerEvent::Slow`], and the member is closed
//! with that reason; nobody else is delayed. Where the application takes no events, nothing is read from
//! members, who then have to wait.
//!
//! **The end.** [`ReliableServer::shutdown`] lets nobody in any more, tells members why, writes what waits
//! up to a deadline, closes, joins every thread, and reports how many messages were written and how many
//! dropped. A servicer that panics closes its own connections; the application is told by
//! [`ServerEvent::ServicerEnded`], and the others go on.
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
//! // Elsewhere: a client, who knows the server by its address and key.
//! let dial = Dial { address: server.addresses()[0], peer: identity.node_id().into() };
//! let join = Bytes::from_static(b"ann:secret");
//! let mut ann = ReliableClient::connect("ann", dial, None, join, &config)?;
//!
//! let patience = Duration::from_secs(10);
//! let Some(ServerEvent::Join(request)) = server.wait_event(patience) else { panic!("nobody") };
//! assert_eq!(request.payload(), "ann:secret");
//! server.accept(request, Bytes::from_static(b"the game is at 192.0.2.1:7777"))?;
//! server.send(Dest::All, Bytes::from_static(b"ann is here"))?;
//!
//! assert!(matches!(ann.wait_event(patience), Some(ClientEvent::Accepted { .. })));
//! assert!(matches!(ann.wait_event(patience), Some(ClientEvent::Message(line)) if line == "ann is here"));
//! let report = server.shutdown(patience, Bytes::from_static(b"maintenance"));
//! assert_eq!((report.flushed, report.dropped), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backlog;
mod caller;
mod client;
mod config;
mod desk;
mod dest;
mod door;
mod event;
mod letter;
mod mailbox;
mod news;
mod server;
mod socket;
mod worker;

pub use client::ReliableClient;
pub use config::{ReliableConfig, TcpServicers};
pub use dest::Dest;
pub use event::{ClientClose, ClientEvent, JoinRequest, LeaveCause, MemberId, ServerEvent};
pub use server::{AcceptError, AcceptFault, MessageError, ReliableServer, ServerReport};
