//! The HTTP edge of the matchmaker: players create tickets and receive seats.
//!
//! `docs/edge.md` describes its requests and responses. It runs on its own thread and holds no
//! tickets: each request is queued to the matchmaker's thread and waits for the answer.

mod body;
mod proxy;
mod ticket;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use servicer::Clock;
use tokio::net::TcpStream;
use wire::token_bucket::Fill;
use wire::{SourceKey, SourceLimiter, SourceRates};

use crate::exit::Failure;
use crate::http::open_connection::OpenConnection;
use crate::http::{BoundPort, Limits, Server};
use crate::matchmaking::MatchmakerRequests;
use ticket::{Peer, Shared};

/// Address and limits of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeConfig {
    /// Address to listen on; with port 0 the system chooses one.
    pub listen: SocketAddr,
    /// Plain HTTP or TLS.
    pub transport: Transport,
    /// Proxies with a trusted forwarding header; none by default. Their connections have no limit
    /// per source.
    pub trusted_proxies: Vec<IpAddr>,
    /// The forwarding header of these proxies.
    pub proxy_header: ProxyHeader,
    /// Concurrent connections. Default 1,024. Further ones are closed at once.
    pub connections_max: usize,
    /// Concurrent connections of one source, which is an IPv4 address or an IPv6 /64. Default 256.
    pub connections_per_source_max: usize,
    /// Longest request body, bytes. Default 4,096.
    pub body_bytes_max: usize,
    /// Longest request head, bytes. Default 16 KiB.
    pub head_bytes_max: usize,
    /// Time for a request's head, from its first byte or the end of the previous request, and again
    /// for its body. Default 10 s.
    pub read_timeout: Duration,
    /// Time for responses that the client does not read, from the first blocked write until nothing
    /// is left to write. Default 10 s.
    pub write_timeout: Duration,
    /// Lifetime of a connection, busy or not. Default 5 minutes. It ends after the current request,
    /// so that no client keeps a slot for ever.
    pub connection_life: Duration,
    /// Longest wait of a long poll. Default 30 s.
    pub wait_max: Duration,
    /// Concurrent long polls. Default 512.
    pub waits_max: usize,
    /// Concurrent long polls of one source. Default 128.
    pub waits_per_source_max: usize,
    /// Requests per second of one source. Default 100.
    pub requests_per_second: u32,
    /// Burst of requests of one source. Default 200.
    pub requests_burst: u32,
}

impl EdgeConfig {
    /// Returns the default limits.
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

    pub(crate) fn bind(self) -> Result<BoundEdge, Failure> {
        let listen = self.listen;
        match self.transport {
            Transport::PlainHttp if listen.ip().is_loopback() => {}
            Transport::PlainHttp => {
                return Err(Failure::usage(format_args!(
                    "plain HTTP is served on loopback addresses only, since grants hold keys; \
                     {listen} is not one"
                )));
            }
            Transport::Tls => {
                return Err(Failure::usage(
                    "this release serves the edge without TLS only: use --plain-http, listen on \
                     a loopback address, and put a TLS proxy in front for other hosts",
                ));
            }
        }
        let port = BoundPort::bind(self.listen)?;
        Ok(BoundEdge { config: self, port })
    }
}

/// Transport of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP without TLS; loopback only, since a grant is a bearer secret.
    PlainHttp,
    /// HTTP over TLS; not supported yet.
    Tls,
}

/// The header in which a proxy names the client. The proxy must set it or append to it; if it
/// passes a client's header on unchanged, the client can forge any source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, a list of addresses.
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

#[derive(Debug)]
pub(crate) struct BoundEdge {
    config: EdgeConfig,
    port: BoundPort,
}

impl BoundEdge {
    pub(crate) fn start(self, requests: MatchmakerRequests) -> Result<Server, Failure> {
        let shared = Arc::new(Shared::new(self.config, requests));
        let server = self.port.serve("http edge", move |stream, peer| {
            admit(stream, peer, &shared);
        });
        server
            .map_err(|error| Failure::refused(format_args!("the HTTP edge cannot start: {error}")))
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) {
    let ip = peer.ip();
    let source = (!shared.proxies.contains(ip)).then(|| SourceKey::of(ip));
    let Some(open) = OpenConnection::admit(&shared.connections, &shared.counter, source) else {
        return;
    };
    let config = &shared.config;
    let limits = Limits {
        head_bytes_max: config.head_bytes_max,
        read_timeout: config.read_timeout,
        write_timeout: config.write_timeout,
        life: config.connection_life,
    };
    let routes = ticket::routes(shared).layer(Extension(Peer(ip)));
    drop(tokio::spawn(open.serve(stream, routes, limits)));
}

/// The limits, shared by all connections. No lock is held across a wait.
#[derive(Debug)]
struct Limiter {
    clock: Clock,
    rates: Mutex<SourceRates<SourceKey>>,
    waits: Arc<Mutex<SourceLimiter<SourceKey>>>,
}

impl Limiter {
    fn new(config: &EdgeConfig) -> Self {
        let fill = Fill {
            rate: config.requests_per_second.max(1),
            burst: config.requests_burst.max(1),
        };
        let most = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let waits = SourceLimiter::new(most(config.waits_max), most(config.waits_per_source_max));
        Self {
            clock: Clock::new(),
            rates: Mutex::new(SourceRates::new(fill, SOURCES_MAX)),
            waits: Arc::new(Mutex::new(waits)),
        }
    }

    /// Takes one request of `source`. If it exceeds the rate, returns when it may be repeated.
    fn request(&self, source: SourceKey) -> Result<(), Duration> {
        lock(&self.rates).take(self.clock.now(), source)
    }

    /// Takes a long poll of `source`, unless there are too many.
    fn wait(&self, source: SourceKey) -> Option<WaitGuard> {
        let taken = lock(&self.waits).take(self.clock.now(), source);
        taken.is_ok().then(|| WaitGuard {
            waits: Arc::clone(&self.waits),
            source,
        })
    }
}

/// A long poll that counts until it is dropped.
#[derive(Debug)]
struct WaitGuard {
    waits: Arc<Mutex<SourceLimiter<SourceKey>>>,
    source: SourceKey,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        lock(&self.waits).release(self.source);
    }
}

/// Counts are consistent after a panic, too.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sources whose rate is remembered: 3 MiB. If all of them are busy, others are refused.
const SOURCES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::edge::Transport;

    const ONE: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    const TWO: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

    fn config() -> EdgeConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        EdgeConfig::new(listen, Transport::PlainHttp)
    }

    #[test]
    fn long_polls_are_limited_in_all_and_for_each_source() {
        let limiter = Limiter::new(&EdgeConfig {
            waits_max: 3,
            waits_per_source_max: 2,
            ..config()
        });
        let (first, _second) = (limiter.wait(ONE).unwrap(), limiter.wait(ONE).unwrap());
        assert!(limiter.wait(ONE).is_none(), "two each");
        let third = limiter.wait(TWO).unwrap();
        assert!(limiter.wait(TWO).is_none(), "three in all");
        drop((first, third));
        assert!(limiter.wait(ONE).is_some());
        assert_eq!(lock(&limiter.waits).sources(), 1);
    }

    #[test]
    fn requests_are_limited_for_each_source() {
        let limiter = Limiter::new(&EdgeConfig {
            requests_per_second: 1,
            requests_burst: 2,
            ..config()
        });
        assert!(limiter.request(ONE).is_ok() && limiter.request(ONE).is_ok());
        let wait = limiter.request(ONE).unwrap_err();
        assert!(wait <= Duration::from_secs(1) && wait > Duration::ZERO);
        assert_eq!(limiter.request(TWO), Ok(()));
    }
}
