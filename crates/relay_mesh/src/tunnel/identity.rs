//! TLS 1.3 of QUIC (RFC 9001) in which the ends of a tunnel prove their node keys.

use std::sync::Arc;

use crypto::tls::{self, KeyRefused, NodeVerifier, TlsIdentity};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::CertificateError;
use wire::NodeId;

/// Returns the client configuration of an entry, which accepts only the exit `far`.
pub(super) fn client(own: &TlsIdentity, far: NodeId) -> Result<Arc<QuicClientConfig>, KeyRefused> {
    let config = tls::client_config(Some(own), verifier(far), PROTOCOL).map_err(|_| KeyRefused)?;
    let config = QuicClientConfig::try_from(config).map_err(|_| KeyRefused)?;
    Ok(Arc::new(config))
}

/// Returns the server configuration of an exit, which accepts only the entry `far`.
pub(super) fn server(own: &TlsIdentity, far: NodeId) -> Result<Arc<QuicServerConfig>, KeyRefused> {
    let config = tls::server_config(own.server_key(), Arc::new(verifier(far)), PROTOCOL)
        .map_err(|_| KeyRefused)?;
    let config = QuicServerConfig::try_from(config).map_err(|_| KeyRefused)?;
    Ok(Arc::new(config))
}

fn verifier(far: NodeId) -> NodeVerifier {
    NodeVerifier::new(move |node| {
        if node == far {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    })
}

/// ALPN protocol (RFC 7301): streams that start with an open record of version 1.
const PROTOCOL: &[u8] = b"tickwire-tunnel/1";
