//! The certificate of a listener that peers dial by host name.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig};

use super::tls;

/// An X.509 certificate chain and the private key of its first certificate. Clones share it.
///
/// It can be [replaced](Self::replace) while listeners use it.
#[derive(Clone)]
pub struct HostCertificate {
    shown: Arc<Shown>,
}

impl HostCertificate {
    /// Maximum total size of a chain's certificates, bytes of DER. A tenth of it is usual. Each
    /// handshake sends the whole chain.
    pub const CHAIN_BYTES_MAX: usize = 32 << 10;

    /// Reads a chain and its private key, both in PEM. The host's certificate is first, then the
    /// intermediate ones; the authority's may be left out. The key is PKCS#8, SEC1 or PKCS#1, of
    /// kind P-256, P-384, Ed25519, or RSA with at least 2,048 bits. Other sections are skipped, so
    /// one file may hold both.
    ///
    /// Validity period, name and authority are not checked here. Each dialling peer checks them.
    ///
    /// # Errors
    ///
    /// [`HostCertificateError`]; its text is one sentence for an operator.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, HostCertificateError> {
        let key = Arc::new(load(chain, key, &tls::provider())?);
        let shown = Shown(Mutex::new(key));
        Ok(Self {
            shown: Arc::new(shown),
        })
    }

    /// Replaces chain and key for all clones. New connections use them; open connections are not
    /// affected. May be called from any thread.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem). Then the old chain and key stay in use.
    pub fn replace(&self, chain: &str, key: &str) -> Result<(), HostCertificateError> {
        let key = Arc::new(load(chain, key, &tls::provider())?);
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    /// Returns the TLS configuration for a listener.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        let shown = Arc::clone(&self.shown);
        let mut config = tls::server_builder()?
            .with_no_client_auth()
            .with_cert_resolver(shown);
        tls::settle(&mut config);
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for HostCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCertificate").finish_non_exhaustive()
    }
}

fn load(
    chain: &str,
    key: &str,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, HostCertificateError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| HostCertificateError::BadCertificate)?;
    if chain.is_empty() {
        return Err(HostCertificateError::NoCertificate);
    }
    let len: usize = chain.iter().map(|certificate| certificate.len()).sum();
    if len > HostCertificate::CHAIN_BYTES_MAX {
        return Err(HostCertificateError::TooLong);
    }
    if chain
        .iter()
        .any(|certificate| ParsedCertificate::try_from(certificate).is_err())
    {
        return Err(HostCertificateError::BadCertificate);
    }
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| HostCertificateError::NoKey)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        if let Error::InconsistentKeys(_) = error {
            HostCertificateError::OtherKey
        } else {
            HostCertificateError::BadKey
        }
    })
}

/// Why a chain and a key were rejected. The text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostCertificateError {
    /// The chain's text holds no certificate.
    NoCertificate,
    /// A section of the chain is not valid base64 or not a certificate.
    BadCertificate,
    /// The certificates have more than [`CHAIN_BYTES_MAX`](HostCertificate::CHAIN_BYTES_MAX) bytes.
    TooLong,
    /// The key's text holds no private key.
    NoKey,
    /// The key is malformed or of an unsupported kind.
    BadKey,
    /// The key does not match the first certificate.
    OtherKey,
}

impl fmt::Display for HostCertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => "there is no certificate in what should be a chain in PEM",
            Self::BadCertificate => "one of the chain's certificates cannot be read",
            Self::TooLong => "the chain of certificates is longer than 32 KiB",
            Self::NoKey => "there is no private key in what should be one in PEM",
            Self::BadKey => "the private key cannot be read, or is of a kind that is not taken",
            Self::OtherKey => "the private key is not that of the chain's first certificate",
        })
    }
}

impl std::error::Error for HostCertificateError {}

/// The certificate for new connections.
struct Shown(Mutex<Arc<CertifiedKey>>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&key))
    }
}
