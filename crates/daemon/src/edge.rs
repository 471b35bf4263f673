//! The HTTP edge of the matchmaker: how players get tickets and, for them, seats.
//!
//! Its requests and answers are described in `docs/edge.md`. It runs on a thread of its own and
//! holds no state of tickets: every request is put to the matchmaker's thread by a bounded queue,
//! and waits for the answer there.

mod count;
mod door;
mod limit;
mod patience;
mod proxy;
mod refusal;
mod shape;
mod ticket;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::exit::Failure;
use crate::role::matchmaker::MatchmakerRequests;
use ticket::Shared;

/// Where the edge listens, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeConfig {
    /// Where it listens; port 0 for one that the system chooses.
    pub listen: SocketAddr,
    /// How it speaks.
    pub transport: Transport,
    /// Proxies whose word about who asks is taken; none. Their connections count for all, and not
    /// for one source.
    pub trusted_proxies: Vec<IpAddr>,
    /// Where these proxies say it.
    pub proxy_header: ProxyHeader,
    /// Connections at once; 1,024. One more is closed as it is made.
    pub connections_max: usize,
    /// Connections at once of one source, which is an IPv4 address or 64 bits of an IPv6 one; 256.
    pub connections_per_source_max: usize,
    /// Longest body of a request, bytes; 4,096.
    pub body_bytes_max: usize,
    /// Longest head of a request, bytes; 16 KiB.
    pub head_bytes_max: usize,
    /// Time from the first byte of a request, or from the end of the one before, to the end of its
    /// head, and again to the end of its body; 10 s.
    pub read_timeout: Duration,
    /// Time from when an answer has to wait, since the other end does not take it, until it and all
    /// behind it are on their way; 10 s.
    pub write_timeout: Duration,
    /// How long a connection may serve, however busy; 5 minutes. It ends with the request that is
    /// then under way, so that nobody keeps a place for ever.
    pub connection_life: Duration,
    /// Longest wait that a request may ask for; 30 s.
    pub wait_max: Duration,
    /// Requests that wait at a time; 512.
    pub waits_max: usize,
    /// Requests of one source that wait at a time; 128.
    pub waits_per_source_max: usize,
    /// Requests of one source, each second; 100.
    pub requests_per_second: u32,
    /// Requests that one source may make at once; 200.
    pub requests_burst: u32,
}

impl EdgeConfig {
    /// A configuration with the default limits.
    #[must_use]
    pub const fn new(listen: SocketAddr, transport: Transport) -> Self {
        Self {
            listen,
            transport,
            trusted_proxies: Vec::new(),
            proxy_header: ProxyHeader::XForwardedFor,
            connections_max: 1_024,
            connections_per_source_max: 256,
            body_bytes_max: 4_096,
            head_bytes_max: 16 << 10,
            read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            connection_life: Duration::from_secs(300),
            wait_max: Duration::from_secs(30),
            waits_max: 512,
            waits_per_source_max: 128,
            requests_per_second: 100,
            requests_burst: 200,
        }
    }

    /// Takes the port.
    pub(crate) fn bind(self) -> Result<BoundEdge, Failure> {
        let listen = self.listen;
        match self.transport {
            Transport::PlainHttp if listen.ip().is_loopback() => {}
            Transport::PlainHttp => {
                return Err(Failure::usage(format_args!(
                    "plain HTTP is served on loopback addresses only, since grants hold keys; \
                     {listen} is none"
                )));
            }
            Transport::Tls => {
                return Err(Failure::usage(
                    "this release serves the edge without TLS only: say --plain-http, listen on \
                     a loopback address, and put a TLS proxy in front for other hosts",
                ));
            }
        }
        let fail = |error: std::io::Error| {
            Failure::refused(if error.kind() == ErrorKind::AddrInUse {
                format!("TCP port {listen} is in use by another program")
            } else {
                format!("TCP port {listen} cannot be listened on: {error}")
            })
        };
        let listener = TcpListener::bind(listen).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(BoundEdge {
            config: self,
            listener,
            address,
        })
    }
}

/// How an edge speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP without TLS, on loopback addresses only: whoever reads a grant can take the seat.
    PlainHttp,
    /// HTTP over TLS; not served yet.
    Tls,
}

/// The header in which a proxy says on whose behalf it asks. It must set this one, or add to it,
/// whatever came in: a header that it passes on as it is would let anybody say anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, a list of addresses.
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

/// An edge that has its port and does not answer yet.
#[derive(Debug)]
pub(crate) struct BoundEdge {
    config: EdgeConfig,
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundEdge {
    /// Starts to answer, by asking `requests`.
    pub(crate) fn start(self, requests: MatchmakerRequests) -> Result<Edge, Failure> {
        let fail = |error: std::io::Error| {
            Failure::refused(format_args!("the HTTP edge cannot start: {error}"))
        };
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(fail)?;
        let shared = Arc::new(Shared::new(self.config, requests));
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(fail)?
        };
        let thread = thread::Builder::new()
            .name("http edge".to_owned())
            .spawn(move || {
                runtime.spawn(door::serve(listener, shared));
                // Closed by the handle; what still runs then is dropped.
                drop(runtime.block_on(stopped));
                runtime.shutdown_background();
            })
            .map_err(fail)?;
        Ok(Edge {
            address: self.address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// A running edge. Dropping it ends it.
#[derive(Debug)]
pub struct Edge {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Edge {
    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether its thread is at work.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Closes the port and all connections.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the HTTP edge has panicked");
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.end();
    }
}
