//! TLS of HTTP servers, with a certificate chain of the operator.

use std::io;
use std::io::ErrorKind;
use std::time::Duration;

use servicer::HostCertificate;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::exit::Failure;

/// Accepts TLS 1.3 connections for HTTP/1.1.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    /// Time for a handshake.
    timeout: Duration,
}

impl Tls {
    pub(crate) fn new(certificate: &HostCertificate, timeout: Duration) -> Result<Self, Failure> {
        let config = certificate.server_config(PROTOCOL);
        let config = config.map_err(|error| {
            Failure::usage(format_args!("the certificate cannot be used: {error}"))
        })?;
        Ok(Self {
            acceptor: config.into(),
            timeout,
        })
    }

    /// Does the handshake of a connection.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = timeout(self.timeout, self.acceptor.accept(stream));
        handshake
            .await
            .map_err(|_| io::Error::from(ErrorKind::TimedOut))?
    }
}

/// ALPN name (RFC 7301) of HTTP/1.1.
pub(crate) const PROTOCOL: &[u8] = b"http/1.1";
