//! The port: connections in, each served by HTTP/1.1 with limits on its heads and its patience.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::count::ConnectionEnd;
use super::limit::{ConnectionGuard, Source};
use super::patience::Patient;
use super::ticket::{self, Peer, Shared};

/// Serves for as long as it is polled.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(stream, peer, &shared),
            Err(error) => {
                tracing::debug!(error = %error.kind(), "a connection was not accepted");
                // Out of descriptors, trying again at once would spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) {
    let ip = peer.ip();
    let source = (!shared.proxies.has(ip)).then(|| Source::of(ip));
    if let Some(guard) = shared.limiter.connect(source) {
        let open = Open::new(guard, Arc::clone(shared));
        drop(tokio::spawn(talk(stream, Peer(ip), open)));
    } else {
        shared.counter.connection_refused();
        tracing::debug!("a connection over the limit was closed");
    }
}

/// A connection that counts as open until it is dropped.
struct Open {
    _place: ConnectionGuard,
    shared: Arc<Shared>,
    end: ConnectionEnd,
}

impl Open {
    fn new(place: ConnectionGuard, shared: Arc<Shared>) -> Self {
        shared.counter.connection_opened();
        Self {
            _place: place,
            shared,
            end: ConnectionEnd::Cut,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.counter.connection_ended(self.end);
    }
}

async fn talk(stream: TcpStream, peer: Peer, mut open: Open) {
    // Answers are one small segment each; waiting to fill it gains nothing.
    drop(stream.set_nodelay(true));
    let config = &open.shared.config;
    let routes = ticket::routes(&open.shared).layer(Extension(peer));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.read_timeout)
        .max_buf_size(config.head_bytes_max.max(HEAD_BYTES_MIN))
        .max_headers(HEADERS_MAX);
    let stream = TokioIo::new(Patient::new(stream, config.write_timeout));
    let mut connection = pin!(http.serve_connection(stream, TowerToHyperService::new(routes)));
    let served = if let Ok(served) = timeout(config.connection_life, connection.as_mut()).await {
        served
    } else {
        // What is under way has limits of its own, and nothing comes after it.
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = &served {
        tracing::debug!(%error, "a connection ended badly");
    }
    open.end = ConnectionEnd::of(&served);
}

/// hyper takes no less.
const HEAD_BYTES_MIN: usize = 8_192;

/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
