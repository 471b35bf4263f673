//! The port: connections in, as many as the limits let.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use tokio::net::{TcpListener, TcpStream};
use wire::SourceKey;

use super::count::ConnectionEnd;
use super::ticket::{self, Peer, Shared};
use crate::http::connections::Place;
use crate::http::{ACCEPT_PAUSE, Limits, converse};

/// Serves for as long as it is polled.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
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
    let source = (!shared.proxies.has(ip)).then(|| SourceKey::of(ip));
    if let Some(place) = shared.connections.admit(source) {
        let open = Open::new(place, Arc::clone(shared));
        drop(tokio::spawn(talk(stream, Peer(ip), open)));
    } else {
        shared.counter.connection_refused();
        tracing::debug!("a connection over the limit was closed");
    }
}

/// A connection that counts as open until it is dropped.
struct Open {
    place: Place,
    shared: Arc<Shared>,
    end: ConnectionEnd,
}

impl Open {
    fn new(place: Place, shared: Arc<Shared>) -> Self {
        shared.counter.connection_opened();
        Self {
            place,
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
    let config = &open.shared.config;
    let limits = Limits {
        head_bytes_max: config.head_bytes_max,
        read_timeout: config.read_timeout,
        write_timeout: config.write_timeout,
        life: config.connection_life,
    };
    let routes = ticket::routes(&open.shared).layer(Extension(peer));
    let served = converse(stream, routes, limits, &mut open.place).await;
    open.end = ConnectionEnd::of(&served);
}
