//! TCP sockets: what all listeners and connections of a process have in common.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::address::canonical;

/// Opens a nonblocking socket for `address`. One for IPv6 has no IPv4.
///
/// # Errors
///
/// The system's error.
pub fn open(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Listens with an open socket on `address`.
///
/// # Errors
///
/// The system's error.
pub fn listen(socket: Socket, address: SocketAddr) -> io::Result<TcpListener> {
    // On Windows this would let two programs bind the same port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Accepts a connection, with the canonical address of its peer; `None` if none is pending.
///
/// # Errors
///
/// The system's error, such as a lack of descriptors, which seldom ends at once; or
/// `ConnectionAborted` if [`ACCEPTS_MAX`] peers in a row left before the accept. Try again after
/// [`ACCEPT_BACKOFF`].
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    for _ in 0..ACCEPTS_MAX {
        match listener.accept() {
            Ok((stream, peer)) => return Ok(Some((stream, canonical(peer)))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // The peer left before the accept, or a signal arrived; accept(2).
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::ConnectionAborted.into())
}

/// Returns whether a connect has completed.
///
/// # Errors
///
/// The error with which it failed.
pub fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotConnected | ErrorKind::InvalidInput
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Maximum accepts before other work.
pub const ACCEPTS_MAX: usize = 64;
/// Pause after a failed accept.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Connections that the system queues before accept. Its own limit may be lower (on Linux
/// net.core.somaxconn).
const BACKLOG: i32 = 1_024;
