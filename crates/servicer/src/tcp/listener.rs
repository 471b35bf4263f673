//! TCP listeners.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crypto::tls::TlsIdentity;
use mio::net::TcpListener;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::address::canonical;

use super::tls::{Admission, node_server};
use super::x509::HostCertificate;

/// A bound TCP port, with the identity that it proves and the peers that it admits.
#[derive(Debug)]
pub struct StreamListener {
    pub(super) io: TcpListener,
    pub(super) tls: Arc<ServerConfig>,
    address: SocketAddr,
}

impl StreamListener {
    /// Binds `address`. With port 0, the system chooses the port. `[::]` also accepts IPv4 if the
    /// system supports it; other IPv6 addresses accept only IPv6.
    ///
    /// # Errors
    ///
    /// [`ListenError`]; its text is one sentence for an operator.
    pub fn bind(
        address: SocketAddr,
        identity: &TlsIdentity,
        admission: Admission,
    ) -> Result<Self, ListenError> {
        Self::with_tls(address, node_server(identity, admission).ok())
    }

    /// Like [`bind`](Self::bind), for peers that dial this host by name. Peers are shown
    /// `certificate` and need no key. The machine sees all of them as
    /// [`Anonymous`](wire::PeerIdentity::Anonymous).
    ///
    /// # Errors
    ///
    /// [`ListenError`]; its text is one sentence for an operator.
    pub fn bind_host(
        address: SocketAddr,
        certificate: &HostCertificate,
    ) -> Result<Self, ListenError> {
        Self::with_tls(address, certificate.server().ok())
    }

    fn with_tls(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Result<Self, ListenError> {
        let fail = |error: io::Error| ListenError {
            address,
            kind: error.kind(),
        };
        let tls = tls.ok_or_else(|| fail(ErrorKind::InvalidInput.into()))?;
        let io = listen(address).map_err(fail)?;
        let address = io.local_addr().map_err(fail)?;
        Ok(Self { io, tls, address })
    }

    /// Returns the bound address.
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let address = canonical(address);
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // OpenBSD has no dual-stack sockets.
        if !address.ip().is_unspecified() || socket.set_only_v6(false).is_err() {
            socket.set_only_v6(true)?;
        }
    }
    // On Windows this would let two programs bind the same port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Backlog of the listening socket. The system's own limit may be lower (on Linux
/// net.core.somaxconn).
const BACKLOG: i32 = 1_024;

/// Why a port cannot be bound. The text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenError {
    /// The requested address.
    pub address: SocketAddr,
    /// The system's error.
    pub kind: ErrorKind,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, kind } = self;
        if *kind == ErrorKind::AddrInUse {
            write!(f, "TCP port {address} is in use by another program")
        } else if *kind == ErrorKind::PermissionDenied {
            write!(f, "this user may not listen on TCP port {address}")
        } else if *kind == ErrorKind::AddrNotAvailable {
            write!(f, "this host has no address {}", address.ip())
        } else {
            write!(f, "TCP port {address} cannot be listened on: {kind}")
        }
    }
}

impl std::error::Error for ListenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn all_addresses_are_those_of_ipv4_too_and_a_mapped_one_is_ipv4() {
        let any = listen("[::]:0".parse().unwrap()).unwrap();
        let port = any.local_addr().unwrap().port();
        for ip in ["127.0.0.1", "::1"] {
            TcpStream::connect((ip, port)).unwrap();
        }
        let mapped = listen("[::ffff:127.0.0.1]:0".parse().unwrap()).unwrap();
        let address = mapped.local_addr().unwrap();
        assert_eq!(address.ip().to_string(), "127.0.0.1");
        TcpStream::connect(address).unwrap();
    }
}
