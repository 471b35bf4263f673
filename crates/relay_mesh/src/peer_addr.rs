//! Sockets and addresses of datagrams.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Id of one of the driver's sockets; never reused. [`MESH`](Self::MESH) is the socket between
/// nodes; the others are results of [`Command::Listen`](crate::Command::Listen) and
/// [`Command::Open`](crate::Command::Open).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

impl SocketId {
    /// The socket between nodes, open before the node is created.
    pub const MESH: Self = Self(0);
}

/// A local socket and a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddr {
    /// The local socket.
    pub socket: SocketId,
    /// The remote address.
    pub address: SocketAddr,
}

impl PeerAddr {
    /// Creates the leg of a mesh node at `address`.
    #[must_use]
    pub const fn mesh(address: SocketAddr) -> Self {
        Self {
            socket: SocketId::MESH,
            address,
        }
    }
}

/// Whether `address` has a port and is not unspecified, multicast or broadcast.
pub(crate) fn is_single_host(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}
