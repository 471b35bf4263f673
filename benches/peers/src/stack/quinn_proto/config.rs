//! Configuration of both ends of a QUIC connection, also for quinn.

use std::sync::Arc;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, ServerConfig};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The certificate's host name.
pub(super) const NAME: &str = "localhost";

/// A self-signed P-256 certificate and its key.
#[derive(Clone, Debug)]
pub struct Certified {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Certified {
    /// Generates a key.
    #[expect(clippy::new_without_default, reason = "it draws another each time")]
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a name");
        Self {
            certificate: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
        }
    }

    /// Returns the certificate, DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }
}

/// Returns ring with the only suite that Tickwire also uses. QUIC needs it for its first packets
/// anyway.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..ring::default_provider()
    })
}

/// Returns a server configuration with this certificate and without session tickets.
pub fn server_config(certified: &Certified) -> ServerConfig {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.key.clone()));
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certified.certificate.clone()], key)
        .expect("a sound certificate");
    tls.send_tls13_tickets = 0;
    let tls = QuicServerConfig::try_from(tls).expect("the suite of first packets");
    ServerConfig::with_crypto(Arc::new(tls))
}

/// Returns a client configuration which trusts this certificate and requests no tickets.
pub fn client_config(certificate: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate.to_vec().into())
        .expect("a sound certificate");
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.resumption = rustls::client::Resumption::disabled();
    let tls = QuicClientConfig::try_from(tls).expect("the suite of first packets");
    ClientConfig::new(Arc::new(tls))
}
