//! Socket and remote address of a datagram.

use core::net::SocketAddr;

/// Id of one of the driver's sockets.
///
/// The driver assigns it: [`MESH`](Self::MESH) is the socket between nodes; the others are results
/// of [`Command::Listen`](crate::Command::Listen) and [`Command::Open`](crate::Command::Open),
/// never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

impl SocketId {
    /// The socket between nodes, open before the node is created.
    pub const MESH: Self = Self(0);
}

/// A local socket and a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leg {
    /// The local socket.
    pub socket: SocketId,
    /// The remote address.
    pub address: SocketAddr,
}

impl Leg {
    /// Creates the leg of a mesh node at `address`.
    #[must_use]
    pub const fn mesh(address: SocketAddr) -> Self {
        Self {
            socket: SocketId::MESH,
            address,
        }
    }
}
