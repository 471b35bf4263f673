//! The admin interface of a node: HTTP on a loopback address, for whoever holds the token.
//!
//! Its requests and answers are described in `docs/operations.md`.

mod access;
mod answer;
mod metrics;
mod picture;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::ask::Asker;
use super::running::AdminSetup;
use super::store::Desk;
use crate::exit::Failure;
use crate::http::connections::{Connections, Place};
use crate::http::{ACCEPT_PAUSE, Limits, Port, Server, converse};
use access::Access;

/// What requests are answered from.
pub(super) struct AdminStart {
    pub(super) asker: Asker,
    /// Where documents are stored, if they are.
    pub(super) store: Option<Arc<Desk>>,
}

/// An admin interface that has its port.
pub(super) struct BoundAdmin {
    port: Port,
    access: Access,
}

/// What all connections share.
struct Shared {
    access: Access,
    asker: Asker,
    store: Option<Arc<Desk>>,
}

/// A running admin interface. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Admin(Server);

impl Admin {
    /// Takes the port.
    pub(super) fn bind(setup: AdminSetup) -> Result<BoundAdmin, Failure> {
        if !setup.listen.ip().is_loopback() {
            return Err(Failure::usage(format_args!(
                "the admin interface speaks without TLS, so on a loopback address only; {} is none",
                setup.listen
            )));
        }
        Ok(BoundAdmin {
            port: Port::bind(setup.listen)?,
            access: Access::new(setup.token),
        })
    }

    /// Returns where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl BoundAdmin {
    pub(super) fn start(self, start: AdminStart) -> Result<Admin, Failure> {
        let shared = Arc::new(Shared {
            access: self.access,
            asker: start.asker,
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
            // Where all are busy, one more is closed as it is made. All are of this host.
            Ok((stream, _)) => {
                if let Some(place) = connections.admit(None) {
                    drop(tokio::spawn(talk(stream, place, Arc::clone(&shared))));
                }
            }
            Err(error) => {
                tracing::debug!(error = %error.kind(), "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn talk(stream: TcpStream, mut place: Place, shared: Arc<Shared>) {
    drop(converse(stream, routes::routes(shared), LIMITS, &mut place).await);
}

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    read_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(10),
    life: Duration::from_secs(300),
};
