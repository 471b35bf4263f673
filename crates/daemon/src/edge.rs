//! The HTTP edge of the matchmaker: how players get tickets and, for them, seats.
//!
//! Its requests and answers are described in `docs/edge.md`. It runs on a thread of its own and
//! holds no state of tickets: every request is put to the matchmaker's thread by a bounded queue,
//! and waits for the answer there.

mod body;
mod count;
mod forwarded;
mod limit;
mod proxy;
mod ticket;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use tokio::net::{TcpListener, TcpStream};
use wire::SourceKey;

use crate::exit::Failure;
use crate::http::connections::ConnectionSlot;
use crate::http::{ACCEPT_PAUSE, BoundPort, Limits, Server, serve_connection};
use crate::matchmaking::MatchmakerRequests;
use count::ConnectionEnd;
use ticket::{Peer, Shared};

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
        let port = BoundPort::bind(self.listen)?;
        Ok(BoundEdge { config: self, port })
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
    port: BoundPort,
}

impl BoundEdge {
    /// Starts to answer, by asking `requests`.
    pub(crate) fn start(self, requests: MatchmakerRequests) -> Result<Edge, Failure> {
        let shared = Arc::new(Shared::new(self.config, requests));
        let server = self
            .port
            .serve("http edge", |listener| serve(listener, shared));
        server
            .map(Edge)
            .map_err(|error| Failure::refused(format_args!("the HTTP edge cannot start: {error}")))
    }
}

/// A running edge. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Edge(Server);

impl Edge {
    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns whether its thread is at work.
    pub fn is_running(&self) -> bool {
        self.0.is_running()
    }

    /// Closes the port and all connections.
    pub fn shutdown(self) {
        drop(self);
    }
}

/// Serves for as long as it is polled.
async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(stream, peer, &shared),
            Err(error) => {
                tracing::debug!(error = %error.kind(), "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) {
    let ip = peer.ip();
    let source = (!shared.proxies.contains(ip)).then(|| SourceKey::of(ip));
    if let Some(slot) = shared.connections.admit(source) {
        let open = OpenConnection::new(slot, Arc::clone(shared));
        drop(tokio::spawn(handle_connection(stream, Peer(ip), open)));
    } else {
        shared.counter.connection_refused();
        tracing::debug!("a connection over the limit was closed");
    }
}

/// A connection that counts as open until it is dropped.
struct OpenConnection {
    slot: ConnectionSlot,
    shared: Arc<Shared>,
    end: ConnectionEnd,
}

impl OpenConnection {
    fn new(slot: ConnectionSlot, shared: Arc<Shared>) -> Self {
        shared.counter.connection_opened();
        Self {
            slot,
            shared,
            end: ConnectionEnd::Cut,
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.counter.connection_ended(self.end);
    }
}

async fn handle_connection(stream: TcpStream, peer: Peer, mut open: OpenConnection) {
    let config = &open.shared.config;
    let limits = Limits {
        head_bytes_max: config.head_bytes_max,
        read_timeout: config.read_timeout,
        write_timeout: config.write_timeout,
        life: config.connection_life,
    };
    let routes = ticket::routes(&open.shared).layer(Extension(peer));
    let served = serve_connection(stream, routes, limits, &mut open.slot).await;
    open.end = ConnectionEnd::of(&served);
}
