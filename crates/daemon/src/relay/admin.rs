//! The admin interface of a node: HTTP on a loopback address, with a bearer token.
//!
//! `docs/operations.md` describes its requests and responses.

mod metrics;
mod render;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use crypto::Secret32;
use tokio::net::{TcpListener, TcpStream};
use wire::NodeId;

use super::client::NodeClient;
use super::store::DocumentStore;
use crate::exit::Failure;
use crate::http::connections::{ConnectionSlot, Connections};
use crate::http::error_response::ErrorResponse;
use crate::http::field::bearer_token;
use crate::http::{ACCEPT_PAUSE, BoundPort, Limits, Server, serve_connection};

/// Settings of the admin interface.
#[derive(Debug)]
pub struct AdminSetup {
    /// Its address.
    pub listen: SocketAddr,
    /// The token that authorizes every request.
    pub token: Secret32,
}

pub(super) struct AdminStart {
    pub(super) client: NodeClient,
    pub(super) store: Option<Arc<DocumentStore>>,
}

pub(super) struct BoundAdmin {
    port: BoundPort,
    access: Access,
}

struct Shared {
    access: Access,
    client: NodeClient,
    store: Option<Arc<DocumentStore>>,
}

#[derive(Debug)]
pub(super) struct Admin(Server);

impl Admin {
    pub(super) fn bind(setup: AdminSetup) -> Result<BoundAdmin, Failure> {
        if !setup.listen.ip().is_loopback() {
            return Err(Failure::usage(format_args!(
                "the admin interface has no TLS, so it requires a loopback address; {} is not one",
                setup.listen
            )));
        }
        Ok(BoundAdmin {
            port: BoundPort::bind(setup.listen)?,
            access: Access::new(setup.token),
        })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl BoundAdmin {
    pub(super) fn start(self, start: AdminStart) -> Result<Admin, Failure> {
        let shared = Arc::new(Shared {
            access: self.access,
            client: start.client,
            store: start.store,
        });
        let server = self
            .port
            .serve("http admin", |listener| serve(listener, shared));
        server.map(Admin).map_err(|error| {
            Failure::refused(format_args!("the admin interface cannot start: {error}"))
        })
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let connections = Connections::new(CONNECTIONS_MAX, CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            // A connection beyond the limit is closed at once. All are from this host.
            Ok((stream, _)) => {
                if let Some(slot) = connections.admit(None) {
                    drop(tokio::spawn(handle_connection(
                        stream,
                        slot,
                        Arc::clone(&shared),
                    )));
                }
            }
            Err(error) => {
                tracing::debug!(error = %error.kind(), "an accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn handle_connection(stream: TcpStream, mut slot: ConnectionSlot, shared: Arc<Shared>) {
    drop(serve_connection(stream, routes::routes(shared), LIMITS, &mut slot).await);
}

const CONNECTIONS_MAX: usize = 64;

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    read_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(10),
    life: Duration::from_secs(300),
};

/// The bearer token of RFC 6750: 64 hexadecimal digits.
struct Access(Secret32);

impl Access {
    const fn new(token: Secret32) -> Self {
        Self(token)
    }

    /// Returns whether the request has the token, in constant time.
    fn admits(&self, headers: &HeaderMap) -> bool {
        // A token is written like a node id.
        let token: Option<NodeId> = bearer_token(headers).and_then(|token| token.parse().ok());
        token.is_some_and(|token| crypto::equal(&token.0, self.0.expose()))
    }
}

impl ErrorResponse {
    fn no_token() -> Self {
        let detail = "expected \"Authorization: Bearer TOKEN\" with the token of this node's token file; \
                      found none, or another token";
        Self::new(StatusCode::UNAUTHORIZED, "no_token", detail)
    }

    fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    fn busy() -> Self {
        let detail = "the node does not answer";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn pgx12_only_the_token_authorizes() {
        let access = Access::new(Secret32::new([0xab; 32]));
        let admits = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            access.admits(&headers)
        };
        let right = format!("Bearer {}", "ab".repeat(32));
        assert!(admits(&[&right]));
        assert!(admits(&[&right.replace("Bearer", "bearer")]));
        let twice = admits(&[&right, &right]);
        assert!(!twice, "two headers are ambiguous");
        for wrong in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            right.replace("Bearer", "Basic"),
            right.replace("Bearer ", ""),
            right.replacen("ab", "ac", 1),
            format!("{right}ab"),
            right.replacen("ab", "", 1),
        ] {
            assert!(!admits(&[&wrong]), "{wrong}");
        }
        assert!(!admits(&[]));
    }
}
