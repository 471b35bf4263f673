//! A connection of a server from its admission to its end, which is counted once.

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use wire::SourceKey;

use super::connections::{ConnectionSlot, Connections};
use super::count::{ConnectionEnd, Counter};
use super::tls::Tls;
use super::{Limits, serve_connection};

/// A connection that is counted as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    slot: ConnectionSlot,
    counter: Counter,
    end: ConnectionEnd,
}

impl OpenConnection {
    /// Admits a connection of `source`, see [`Connections::admit`]; counts one that is refused.
    pub(crate) fn admit(
        connections: &Connections,
        counter: &Counter,
        source: Option<SourceKey>,
    ) -> Option<Self> {
        let Some(slot) = connections.admit(source) else {
            counter.connection_refused();
            tracing::debug!("a connection over the limit was closed");
            return None;
        };
        counter.connection_opened();
        Some(Self {
            slot,
            counter: counter.clone(),
            end: ConnectionEnd::Cut,
        })
    }

    /// Serves the requests of `stream` until its end.
    pub(crate) async fn serve<S>(mut self, stream: S, routes: Router, limits: Limits)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let served = serve_connection(stream, routes, limits, &mut self.slot).await;
        self.end = ConnectionEnd::of(&served);
    }

    /// Serves the requests of `stream` after a TLS handshake.
    pub(crate) async fn serve_tls(
        mut self,
        stream: TcpStream,
        tls: Tls,
        routes: Router,
        limits: Limits,
    ) {
        let accepted = tokio::select! {
            biased;
            accepted = tls.accept(stream) => accepted,
            () = self.slot.closed() => {
                self.end = ConnectionEnd::Evicted;
                return;
            }
        };
        match accepted {
            Ok(stream) => self.serve(stream, routes, limits).await,
            Err(error) => {
                self.end = ConnectionEnd::of_handshake(&error);
                tracing::debug!(%error, "a TLS handshake failed");
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.counter.connection_ended(self.end);
    }
}
