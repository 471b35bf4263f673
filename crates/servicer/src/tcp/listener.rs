//! TCP listeners and the accept loop.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crypto::tls::TlsIdentity;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;
use wire::address::canonical;
use wire::{Instant, SourceKey};

use super::counters::StreamLedger;
use super::socket::{self, ACCEPT_BACKOFF, ACCEPTS_MAX};
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
    let socket = socket::open(address)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // OpenBSD has no dual-stack sockets.
        socket.set_only_v6(false).ok();
    }
    socket::listen(socket, address)
}

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

/// The listeners of a driver. The token of each is its index.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<StreamListener>,
    /// Whether each listener may have a pending connection.
    is_ready: Vec<bool>,
    /// When to retry after a failed accept.
    retry_at: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(mut listeners: Vec<StreamListener>, registry: &Registry) -> io::Result<Self> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            registry.register(&mut listener.io, Token(index), Interest::READABLE)?;
        }
        Ok(Self {
            is_ready: vec![false; listeners.len()],
            listeners,
            retry_at: None,
        })
    }

    /// Marks a listener as ready. Returns whether `token` is a listener's.
    pub(super) fn mark_ready(&mut self, token: Token) -> bool {
        let Some(is_ready) = self.is_ready.get_mut(token.0) else {
            return false;
        };
        *is_ready = true;
        true
    }

    /// Accepts pending connections, up to a bound. Returns how many.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        ledger: &StreamLedger,
        mut take: impl FnMut(TcpStream, SourceKey, &Arc<ServerConfig>),
    ) -> usize {
        if self.retry_at.is_some_and(|at| at > now) {
            return 0;
        }
        self.retry_at = None;
        let mut count = 0_usize;
        for (listener, is_ready) in self.listeners.iter().zip(&mut self.is_ready) {
            while *is_ready && count < ACCEPTS_MAX {
                match socket::accept(&listener.io) {
                    Ok(Some((io, peer))) => {
                        count = count.saturating_add(1);
                        take(io, SourceKey::of(peer.ip()), &listener.tls);
                    }
                    Ok(None) => *is_ready = false,
                    Err(_) => {
                        ledger.accept_errors.add(1);
                        self.retry_at = Some(now + ACCEPT_BACKOFF);
                        return count;
                    }
                }
            }
        }
        count
    }

    /// Returns whether a pending connection can be accepted now.
    pub(super) fn is_behind(&self) -> bool {
        self.retry_at.is_none() && self.is_ready.contains(&true)
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(super) fn close(&mut self) {
        self.listeners.clear();
        self.is_ready.fill(false);
        self.retry_at = None;
    }
}

/// Raises the soft limit of open files to the hard limit and returns it. Returns `None` on systems
/// other than Linux, without effect.
///
/// The soft limit is often 1,024, a quarter of
/// [`StreamConfig::connections_max`](crate::StreamConfig::connections_max). A process that serves
/// many connections calls this once at its start.
#[must_use]
pub fn raise_descriptor_limit() -> Option<u64> {
    #[cfg(any(target_os = "android", target_os = "linux"))]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};

        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
            return Some(hard);
        }
        Some(soft)
    }
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_dual_stack_listener_serves_ipv4_and_mapped_addresses() {
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

    #[cfg(any(target_os = "android", target_os = "linux"))]
    #[test]
    fn the_limit_that_holds_is_the_highest_there_is() {
        use nix::sys::resource::{Resource, getrlimit};

        let raised = raise_descriptor_limit().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((soft, soft), (raised, hard));
        assert_eq!(raise_descriptor_limit(), Some(raised), "and stays so");
    }
}
