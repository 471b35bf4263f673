//! How the client proves itself and checks the server.

use std::path::Path;
use std::sync::Arc;

use async_nats::ConnectOptions;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::config::{Credentials, NatsConfig, Tls};
use crate::error::NatsError;

/// Returns the options of a connection, but for its events.
pub(crate) fn options(config: &NatsConfig) -> Result<ConnectOptions, NatsError> {
    let options = match &config.credentials {
        Credentials::None => ConnectOptions::new(),
        Credentials::File(path) => credentials(path)?,
        Credentials::User { user, password } => {
            ConnectOptions::with_user_and_password(user.clone(), password.reveal())
        }
        Credentials::Token(token) => ConnectOptions::with_token(token.reveal()),
    };
    Ok(match &config.tls {
        Tls::ByAddress => options,
        Tls::System => options.require_tls(true),
        Tls::Authority(path) => {
            check_readable(path)?;
            options
                .require_tls(true)
                .add_root_certificates(path.clone())
        }
        Tls::Insecure => options.require_tls(true).tls_client_config(unchecked()?),
    })
}

fn credentials(path: &Path) -> Result<ConnectOptions, NatsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| NatsError::Config(format!("{}: {error}", path.display())))?;
    // The error may quote the seed.
    ConnectOptions::with_credentials(&text)
        .map_err(|_| NatsError::Config(format!("{}: no credentials file", path.display())))
}

fn check_readable(path: &Path) -> Result<(), NatsError> {
    std::fs::File::open(path)
        .map(drop)
        .map_err(|error| NatsError::Config(format!("{}: {error}", path.display())))
}

fn unchecked() -> Result<ClientConfig, NatsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| NatsError::request("TLS", error))?;
    let verifier = Arc::new(Unchecked(provider));
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(config.with_no_client_auth())
}

/// Accepts any certificate; signatures are checked, so that the handshake is with its key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
