//! Whom a mesh node speaks to: one of its sockets, and an address at the other end.

use core::net::SocketAddr;

/// Names one socket of a node's driver.
///
/// The driver gives the names: [`MESH`](Self::MESH) is the socket that nodes speak over, the rest
/// are answers to [`Command::Listen`](crate::Command::Listen) and
/// [`Command::Open`](crate::Command::Open), never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

impl SocketId {
    /// The socket of the mesh itself, open before the node is made.
    pub const MESH: Self = Self(0);
}

/// One end of an exchange: by which socket, and with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leg {
    /// Our socket.
    pub socket: SocketId,
    /// The address at the other end.
    pub address: SocketAddr,
}

impl Leg {
    /// A node of the mesh at `address`.
    #[must_use]
    pub const fn mesh(address: SocketAddr) -> Self {
        Self {
            socket: SocketId::MESH,
            address,
        }
    }
}
