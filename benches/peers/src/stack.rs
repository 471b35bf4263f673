//! The interface of a measured stack: two ends without a socket.

pub mod enet;
pub mod quinn_proto;
pub mod renet;
pub mod tickwire;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crate::lane::Lane;

/// An implementation of connections over datagrams.
pub trait Stack {
    /// Name in rows.
    const NAME: &'static str;
    /// The listening end.
    type Server: End;
    /// The connecting end.
    type Client: End;

    /// Creates a server at [`SERVER`] for this many clients.
    fn server(clients: usize) -> Self::Server;

    /// Returns the data that clients need to connect, such as the server's key.
    fn connect_data(server: &Self::Server) -> Vec<u8>;

    /// Creates a client which starts to connect to the server at `server`, with the data in
    /// `connect_data`. Also creates what a matchmaker would issue, such as a token, if
    /// `connect_data` has the data for it.
    fn dial(connect_data: &[u8], server: SocketAddr, number: u32, now: Duration) -> Self::Client;

    /// Creates a client at [`client_address`] of `number` which starts to connect.
    fn client(server: &Self::Server, number: u32, now: Duration) -> Self::Client {
        Self::dial(&Self::connect_data(server), SERVER, number, now)
    }
}

/// One end, run like a game loop: receive, run timers and read, send, drain.
pub trait End {
    /// Receives one datagram.
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]);

    /// Runs due timers, and reads and counts all received messages.
    fn settle(&mut self, now: Duration);

    /// Queues `message` for the other end, or for each of them if there are several.
    fn send(&mut self, now: Duration, delivery: Delivery, message: &[u8]);

    /// Moves all outgoing datagrams to `lane`.
    fn drain(&mut self, now: Duration, lane: &mut Lane);

    /// Closes its connections gracefully.
    fn close(&mut self, now: Duration);

    /// Returns the number of open connections.
    fn connections(&self) -> usize;

    /// Returns the number of messages read.
    fn received(&self) -> u64;

    /// Frees memory that it holds only because it has no socket.
    fn shrink(&mut self) {}
}

/// Delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Sent once.
    Unreliable,
    /// Retransmitted until acknowledged, in order.
    Reliable,
    /// Reliable, at the path's maximum rate. Only Tickwire distinguishes it: its reliable messages
    /// have a rate limit.
    Bulk,
}

/// The address of servers.
pub const SERVER: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_777);

/// Returns the address of a client: each in its own /24, from 1.0.0.0/24 on.
pub fn client_address(number: u32) -> SocketAddr {
    let prefix = 0x01_0000 + number % 0xBE_0000;
    SocketAddr::from((Ipv4Addr::from_bits(prefix << 8 | 9), 4_000))
}

/// Returns the number of the client at `address`.
pub fn client_number(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else {
        panic!("clients have addresses of version 4");
    };
    ((address.ip().to_bits() >> 8) - 0x01_0000) as usize
}
