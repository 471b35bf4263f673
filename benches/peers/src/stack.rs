//! What a stack must do to be measured: be two ends without a socket.

pub mod enet;
pub mod quinn_proto;
pub mod renet;
pub mod tickwire;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crate::lane::Lane;

/// One implementation of connections over datagrams.
pub trait Stack {
    /// What rows call it.
    const NAME: &'static str;
    /// The end that listens.
    type Server: End;
    /// An end that dials.
    type Client: End;

    /// Makes a server at [`SERVER`] for so many clients.
    fn server(clients: usize) -> Self::Server;

    /// Returns what clients must know of a server, such as its key.
    fn door(server: &Self::Server) -> Vec<u8>;

    /// Makes a client that begins to connect to the server with this door at `server`. What a
    /// matchmaker would give it, such as a token, is made here too; where `door` has nothing to
    /// make one from, it comes without.
    fn dial(door: &[u8], server: SocketAddr, number: u32, now: Duration) -> Self::Client;

    /// Makes a client at [`client_address`] of `number` that begins to connect.
    fn client(server: &Self::Server, number: u32, now: Duration) -> Self::Client {
        Self::dial(&Self::door(server), SERVER, number, now)
    }
}

/// One end, driven as a game loop drives it: take, settle, send, drain.
pub trait End {
    /// Takes one datagram.
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]);

    /// Runs timers that are due, and reads and counts every message that came.
    fn settle(&mut self, now: Duration);

    /// Queues `message` for the other end, for each of them where there are several.
    fn send(&mut self, now: Duration, delivery: Delivery, message: &[u8]);

    /// Moves all that is to be sent to `lane`.
    fn drain(&mut self, now: Duration, lane: &mut Lane);

    /// Ends its connections in order.
    fn close(&mut self, now: Duration);

    /// Returns how many connections are open.
    fn connections(&self) -> usize;

    /// Returns how many messages were read.
    fn received(&self) -> u64;

    /// Gives back what it keeps only because it has no socket.
    fn shrink(&mut self) {}
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Sent once.
    Unreliable,
    /// Sent until it is acknowledged, in order.
    Reliable,
    /// As reliable, and as fast as the path takes it. Only Tickwire tells it apart: its reliable
    /// messages keep to a rate.
    Bulk,
}

/// Where servers are.
pub const SERVER: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_777);

/// Where the client of this number is: each in a /24 of its own, from 1.0.0.0/24 on.
pub fn client_address(number: u32) -> SocketAddr {
    let prefix = 0x01_0000 + number % 0xBE_0000;
    SocketAddr::from((Ipv4Addr::from_bits(prefix << 8 | 9), 4_000))
}

/// The number of the client at `address`.
pub fn client_number(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else {
        panic!("clients have addresses of version 4");
    };
    ((address.ip().to_bits() >> 8) - 0x01_0000) as usize
}
