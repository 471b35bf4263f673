//! A reliable server and its clients: many connections over TCP and TLS, few threads, queues between.

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
