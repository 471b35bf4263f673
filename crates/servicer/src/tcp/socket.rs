//! Opens, listens on and accepts TCP sockets, and checks a pending connect.
//!
//! Not part of the public API, since its signatures have types of `mio` and `socket2`. It is
//! reachable only for relays: their sockets are polled in `daemon`.

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
        Err(error) if is_pending(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether getpeername failed since the connect is pending: `ENOTCONN` on every Unix,
/// `WSAENOTCONN` on Windows.
///
/// `EINVAL` is not: macOS and the BSDs return it if the peer has already reset the connection.
fn is_pending(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotConnected
}

/// Maximum accepts before other work.
pub const ACCEPTS_MAX: usize = 64;
/// Pause after a failed accept.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Connections that the system queues before accept. Its own limit may be lower (on Linux
/// net.core.somaxconn).
const BACKLOG: i32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(codes: [i32; 3]) -> io::Error {
        let [linux, windows, bsd] = codes;
        let of_bsd = cfg!(any(
            target_vendor = "apple",
            target_os = "freebsd",
            target_os = "openbsd",
            target_os = "netbsd",
        ));
        io::Error::from_raw_os_error(if cfg!(windows) {
            windows
        } else if of_bsd {
            bsd
        } else {
            linux
        })
    }

    #[test]
    fn only_the_error_of_a_socket_without_a_peer_means_a_pending_connect() {
        let not_connected = error([107, 10_057, 57]);
        let invalid = error([22, 10_022, 22]);
        let reset = error([104, 10_054, 54]);
        assert!(is_pending(&not_connected));
        assert!(!is_pending(&invalid));
        assert!(!is_pending(&reset));
    }

    #[test]
    fn a_connect_is_complete_once_the_socket_has_a_peer() {
        let address = "127.0.0.1:0".parse().unwrap();
        let socket = open(address).unwrap();
        let unconnected = TcpStream::from_std(open(address).unwrap().into());
        assert!(!is_connected(&unconnected).unwrap());
        let listener = listen(socket, address).unwrap();
        let to = listener.local_addr().unwrap();
        let connected = std::net::TcpStream::connect(to).unwrap();
        assert!(is_connected(&TcpStream::from_std(connected)).unwrap());
    }
}
